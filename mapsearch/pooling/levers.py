"""Inputs of two pools whose value an explanation moves: the question at another value.

Contents: PoolLever, number_levers, limit_levers, choice_levers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mapsearch.constraints.capacity import bytes_text
from mapsearch.pooling.problem import Pools, on_topology
from mapsearch.pooling.uneven import irregular
from mapsearch.topologies import fabric_of
from mapsearch.topologies.scale import scaled
from mapsearch.topologies.spec import Topology

FAR = 64.0
"""Times its value that a number is raised at most; a link and memory that are so much larger are as good as endless."""
MOST_UNITS = 64
"""Times the outermost units of a cluster that are tried at most."""


@dataclass(frozen=True)
class PoolLever:
    """One number, or one choice, among the inputs of both pools."""

    name: str
    eases: tuple[str, ...]
    """Constraints that a change may ease, as `conflicts` names them; a prefix ends in a dot."""
    unit: str
    now: float
    far: float
    """As far as it is taken."""
    at: Callable[[float], Pools]
    """The question at a value. Raises InputError where a cluster cannot have it."""
    words: Callable[[float], str]
    """The change to a value."""
    whole: bool = False
    trains: bool = False
    """True when the training side changes with it, so that it has to be searched again."""
    choice: str = ""
    """What is chosen instead, where it is no number."""
    gaps: bool = False
    """True where not every value can be: a cluster does not come in all sizes."""
    exact: tuple[float, ...] = ()
    """The only values worth trying, nearest first, where the limit itself says them."""


def _with(pools: Pools, **changes: Any) -> Pools:
    # Copied, not read again: what is read needs its units.
    return replace(pools, rollout=pools.rollout.model_copy(update=changes))


def _inside(pools: Pools, field: str, **changes: Any) -> Pools:
    return _with(pools, **{field: getattr(pools.rollout, field).model_copy(update=changes)})


def number_levers(pools: Pools, link_bytes_per_s: float) -> list[PoolLever]:
    """Numbers whose change may shorten the step, cheapest to try first; the link's is what one device has now."""
    return [
        *_versions(pools),
        *_held(pools),
        *_link(pools, link_bytes_per_s),
        *_yield(pools),
        _concurrency(pools),
        *_memory(pools),
        *_devices(pools),
    ]


def limit_levers(pools: Pools) -> list[PoolLever]:
    """Numbers whose change may make something fit."""
    return [
        *_versions(pools), *_held_below(pools), _most(pools), _concurrency(pools), *_memory(pools), *_devices(pools),
        *_other_ways(pools),
    ]  # fmt: skip


def _versions(pools: Pools) -> list[PoolLever]:
    now = pools.rollout.versions
    room = pools.rollout.queue.held_batches + pools.rollout.publishing.every
    return [
        PoolLever(
            "versions", ("versions",), "versions", now, FAR * max(now, room),
            lambda value: _with(pools, versions=round(value)),
            lambda value: f"versions {now} -> {value:.0f}", whole=True,
        )
    ]  # fmt: skip


def _held(pools: Pools) -> list[PoolLever]:
    queue = pools.rollout.queue
    if queue.held_batches <= queue.least_batches:
        return []
    return [
        PoolLever(
            "held_batches", ("queue", "versions"), "batches", queue.held_batches, queue.least_batches,
            lambda value: _inside(pools, "queue", held_batches=value),
            lambda value: f"batches held in the queue {queue.held_batches:g} -> {value:.4g}",
        )
    ]  # fmt: skip


def _held_below(pools: Pools) -> list[PoolLever]:
    """What may be held at most so that a batch comes together beside it."""
    queue = pools.rollout.queue
    room = queue.most_batches - 1.0
    return [replace(one, eases=("queue",), exact=(room,)) for one in _held(pools) if room >= queue.least_batches]


def _other_ways(pools: Pools) -> list[PoolLever]:
    """Limits of the serving side that are dropped, and switches that hold the weights once."""
    serving = pools.rollout.serving
    ways = [2**power for power in range(max(pools.unit_devices, 2).bit_length())]
    wide: dict[str, Any] = {axis: sorted({*getattr(serving, axis), *ways}) for axis in ("tp", "dp", "ep")}
    told = [_sized(pools, "rollout.sizes", "any power of two for tp, dp and ep of a replica", wide)]
    if serving.prefill_decode_split:
        told.append(_sized(pools, "rollout.kinds", "prompts on the same replicas", {"prefill_decode_split": False}))
    single = [one for one in choice_levers(pools) if one.name == "in_flight" and one.choice != "side-by-side"]
    return told + (single if pools.rollout.publishing.in_flight == "side-by-side" else [])


def _sized(pools: Pools, name: str, words: str, changes: dict[str, Any]) -> PoolLever:
    return PoolLever(
        name.partition(".")[2], (name,), "", 0.0, 1.0,
        lambda share: _inside(pools, "serving", **changes) if share else pools,
        lambda _share: words, choice=words,
    )  # fmt: skip


def _most(pools: Pools) -> PoolLever:
    queue = pools.rollout.queue
    return PoolLever(
        "most_batches", ("queue",), "batches", queue.most_batches, max(queue.held_batches + 1.0, queue.most_batches),
        lambda value: _inside(pools, "queue", most_batches=value),
        lambda value: f"batches that the queue takes {queue.most_batches:g} -> {value:.4g}",
        exact=(queue.held_batches + 1.0,),
    )  # fmt: skip


def _link(pools: Pools, now: float) -> list[PoolLever]:
    def at(value: float) -> Pools:
        link = pools.rollout.pool.link.model_copy(update={"bandwidth": value, "gateways": []})
        return _inside(pools, "pool", link=link)

    words = lambda value: f"bandwidth between the pools {bytes_text(now)}/s -> {bytes_text(value)}/s per device"  # noqa: E731
    return [PoolLever("link", ("publish",), "B/s", now, FAR * now, at, words)]


def _yield(pools: Pools) -> list[PoolLever]:
    now = pools.rollout.filter_yield
    if now >= 1.0:
        return []
    return [
        PoolLever(
            "filter_yield", ("supply",), "share", now, 1.0,
            lambda value: _with(pools, filter_yield=value),
            lambda value: f"filter yield {100 * now:.4g} % -> {100 * value:.4g} %",
        )
    ]  # fmt: skip


def _concurrency(pools: Pools) -> PoolLever:
    now = pools.rollout.concurrency
    return PoolLever(
        "concurrency", ("rollout.concurrency",), "requests", now, FAR * now,
        lambda value: _with(pools, concurrency=round(value)),
        lambda value: f"requests under way {now:,} -> {value:,.0f}", whole=True,
    )  # fmt: skip


def _memory(pools: Pools) -> list[PoolLever]:
    """HBM of the devices of both pools, or of either where each has a cluster of its own."""

    def of(name: str, eases: tuple[str, ...], words: str, spec: Topology, put: Callable[[Topology], Pools],
           trains: bool) -> PoolLever:  # fmt: skip
        now = spec.device.hbm
        return PoolLever(
            name, eases, "bytes", now, FAR * now,
            lambda value: put(spec.model_copy(update={"device": spec.device.model_copy(update={"hbm": value})})),
            lambda value: f"{words} {bytes_text(now)} -> {bytes_text(value)}", trains=trains,
        )  # fmt: skip

    if pools.own is None:
        eased = ("training.hbm", "rollout.hbm")
        return [of("hbm", eased, "HBM per device", pools.built, lambda spec: on_topology(pools, spec), True)]
    own = pools.own
    return [
        of("rollout_hbm", ("rollout.hbm",), "HBM per rollout device", own, lambda one: replace(pools, own=one), False),
        of("training_hbm", ("training.hbm",), "HBM per training device", pools.built,
           lambda spec: on_topology(pools, spec), True),
    ]  # fmt: skip


def _devices(pools: Pools) -> list[PoolLever]:
    """Whole outermost units of the cluster that is split, or of each of both clusters; not of one with holes or several
    types of device, where another number of units is not defined."""

    def of(name: str, words: str, spec: Topology, put: Callable[[Topology], Pools], trains: bool) -> PoolLever:
        fabric = fabric_of(spec)
        units = fabric.levels[-1].size
        each = fabric.devices // units
        eased = ("training.", "rollout.", "devices", "supply") if pools.own is None else (
            ("training.",) if trains else ("rollout.", "supply")
        )  # fmt: skip
        return PoolLever(
            name, eased, "units", units, float(MOST_UNITS * units),
            lambda value: put(scaled(spec, each * round(value))),
            lambda value: f"{words} {units * each:,} -> {each * round(value):,}", whole=True, trains=trains, gaps=True,
        )  # fmt: skip

    trained = [] if irregular(pools.built) else [pools.topology]
    if pools.own is None:
        return [of("devices", "devices", spec, lambda spec: on_topology(pools, spec), True) for spec in trained]
    served = [] if irregular(pools.own) else [pools.own]
    return [
        *(of("rollout_devices", "rollout devices", spec, lambda spec: replace(pools, own=spec), False)
          for spec in served),
        *(of("training_devices", "training devices", spec, lambda spec: on_topology(pools, spec), True)
          for spec in trained),
    ]  # fmt: skip


MODES = {"drain": "drain", "restart": "begin again", "side-by-side": "end on the old weights beside the new"}
PATHS = {"push": "pushed by the sources", "tree": "passed on in a tree", "all": "sent by all training devices"}


def choice_levers(pools: Pools) -> list[PoolLever]:
    """Ways of switching and of publishing that the rollout does not take, each as a question of its own."""
    now = pools.rollout.publishing
    told = []
    for mode, words in MODES.items():
        if mode != now.in_flight:
            told.append(_chosen(pools, "in_flight", mode, f"requests under way at a switch {words} ({mode})",
                                ("version", "rollout.hbm")))  # fmt: skip
    for path, words in PATHS.items():
        if path != now.path:
            told.append(_chosen(pools, "path", path, f"weights {words} ({path})", ("publish",)))
    for every in sorted({max(1, now.every // 2), now.every - 1, now.every + 1, 2 * now.every} - {0, now.every}):
        told.append(_chosen(pools, "every", every, f"a version every {every} steps instead of {now.every}",
                            ("version", "publish", "versions")))  # fmt: skip
    return told


def _chosen(pools: Pools, field: str, value: Any, words: str, eases: tuple[str, ...]) -> PoolLever:
    return PoolLever(
        field, eases, "", 0.0, 1.0,
        lambda share: _inside(pools, "publishing", **{field: value}) if share else pools,
        lambda _share: words, choice=str(value),
    )  # fmt: skip
