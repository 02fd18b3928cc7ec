"""The nearest relaxations, lever by lever; each is solved again, and so is what is just short of it.

Contents: relaxations, Cores.

A lever helps only when it eases a relation of every conflict, so levers that cannot are not tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from mapsearch.answer import Relaxation
from mapsearch.constraints.capacity import bytes_text, hbm_for, usable_hbm_bytes
from mapsearch.costs.views import Facts
from mapsearch.relation import Relation
from mapsearch.solver.explain.choices import choice_axes, dropped, other_choices, other_precision
from mapsearch.solver.explain.leanest import floor_bytes
from mapsearch.solver.explain.probe import MEMORY, Probe
from mapsearch.solver.explain.relax import (
    rounded_up,
    shown,
    with_bandwidth,
    with_device,
    with_hbm,
    with_outer_units,
    with_run,
)
from mapsearch.solver.explain.tighten import SHORT, Lever, stepped, tight, told
from mapsearch.solver.problem import problem_of

Cores = list[list[Relation]]
GROWTH = 12
"""Doublings of the outermost level that are tried where memory conflicts: up to 4,096 times as many devices."""
GROWTH_OF_RULES = 4
"""The same where only rules of the grids conflict."""
COUNTS = 32
"""Counts that are tried between the last doubling that does not fit and the first that does."""
FASTER = 1024.0
"""Times the bandwidth of a level that is tried at most."""
NEAR_BATCHES = 16
"""Sequences by which the global batch is changed one by one."""
BATCH_RULES = (
    "batch_divides",
    "bidirectional_batch",
    "zero_bubble_batch",
    "megatron_interleave",
    "torchtitan_interleave",
)
AXIS_WORDS = {"zero": "ZeRO stage", "micro_batch": "micro-batch", "vpp": "VPP", "cp_kind": "kind of CP"}


def relaxations(probe: Probe, cores: Cores, *, thorough: bool = False) -> Iterator[Relaxation | str]:
    """Relaxations of one lever each as they are found, and notes on levers that do not help."""
    if not cores:
        return
    helped: set[str] = set()
    for answer in _each(probe, cores, thorough=thorough):
        if isinstance(answer, Relaxation):
            helped.add(answer.name)
        yield answer
    failed = [words for name, words in _tried(probe, cores).items() if name not in helped] if thorough else []
    if failed:
        yield f"changed alone, none of these makes anything fit: {', '.join(failed)}"


def _each(probe: Probe, cores: Cores, *, thorough: bool) -> Iterator[Relaxation | str]:
    if _eases(cores, _memory):
        yield from memory_levers(probe, cores, thorough=thorough)
    yield from devices_lever(probe, cores)
    if thorough:
        for lever in time_levers(probe, cores):
            yield from _found(tight(probe, lever))
        yield from whole_levers(probe, cores)
        yield from _found(other_precision(probe) if _eases(cores, _memory) else None)
    yield from other_choices(probe, cores, thorough=thorough)
    if _eases(cores, lambda relation: relation.name in BATCH_RULES):
        yield from near_batches(probe)
    yield from dropped(probe, cores)


def _tried(probe: Probe, cores: Cores) -> dict[str, str]:
    """Levers that a thorough look tries, by name, as they are called when they do not help."""
    tried: dict[str, str] = {}
    if _eases(cores, _named("hbm")):
        tried |= {"hbm": "HBM", "reserve": "the reserve"}
    for name, relation, words in (("host_memory", "host_memory", "host memory"), ("nvme", "nvme_capacity", "NVMe")):
        tried |= {name: words} if _eases(cores, _named(relation)) else {}
    for lever in time_levers(probe, cores):
        tried[lever.name] = lever.name.replace("_", " ").replace(".", " of ")
    tried |= {"sequence_length": "the sequence length"} if _eases(cores, length_lever(probe).eases) else {}
    if _eases(cores, batch_lever(probe, 1, 1).eases):
        tried["global_batch"] = "the global batch"
    tried |= {"state": "16-bit or FP8 states"} if _eases(cores, _memory) else {}
    return tried | {axis: f"another {AXIS_WORDS.get(axis, axis)}" for axis in choice_axes(cores)}


def _eases(cores: Cores, eases: Callable[[Relation], bool]) -> bool:
    return all(any(map(eases, core)) for core in cores)


def _memory(relation: Relation) -> bool:
    return relation.name in MEMORY


def _exposure(relation: Relation) -> bool:
    return relation.name.startswith("exposed")


def _named(name: str) -> Callable[[Relation], bool]:
    return lambda relation: relation.name == name


def _found(relaxation: Relaxation | Iterable[Relaxation] | None) -> Iterator[Relaxation]:
    if isinstance(relaxation, Relaxation):
        yield relaxation
    elif relaxation is not None:
        yield from relaxation


def memory_levers(probe: Probe, cores: Cores, *, thorough: bool) -> Iterator[Relaxation]:
    """HBM, the reserve that is kept of it, host memory and NVMe."""
    device = probe.problem.facts.fabric.device
    if _eases(cores, _named("hbm")):
        more = more_hbm(probe, thorough=thorough)
        yield from _found(more)
        yield from _found(less_reserve(probe, more) if more else None)
    stores = (("host_memory", "host_memory_bytes", "host memory"), ("nvme_capacity", "nvme_bytes", "NVMe"))
    for relation, field, label in stores:
        before: float = getattr(device, field)
        if _eases(cores, _named(relation)):
            yield from _found(tight(probe, _store_lever(probe, relation, field, label, before)))


def _store_lever(probe: Probe, relation: str, field: str, label: str, before: float) -> Lever:
    return Lever(
        name=relation.removesuffix("_capacity"),
        relation=relation,
        unit="bytes",
        before=before,
        far=1e18,
        at=lambda value: with_device(probe.problem.facts, **{field: value}),
        words=lambda value: f"{label} per device {bytes_text(before)} -> {bytes_text(value)}",
        eases=_named(relation),
    )


def hbm_lever(probe: Probe, far: float) -> Lever:
    """HBM per device, up to so many bytes."""
    facts = probe.problem.facts
    before = facts.fabric.device.hbm_bytes
    return Lever(
        name="hbm",
        relation="hbm",
        unit="bytes",
        before=before,
        far=far,
        at=lambda value: with_hbm(facts, value),
        words=lambda value: f"HBM per device {before / 1e9:,.5g} -> {value / 1e9:,.5g} GB",
        eases=_named("hbm"),
    )


def more_hbm(probe: Probe, *, thorough: bool = True) -> Relaxation | None:
    """The least HBM per device with which something fits, rounded up to five digits.

    Where only memory limits a pair, the leanest mapping says it; `thorough` then looks for the fastest that fits.
    """
    problem, facts = probe.problem, probe.problem.facts
    if any(relation.name not in MEMORY for relation in problem.side("pair")):
        return tight(probe, hbm_lever(probe, 1e18))
    best = probe.leanest(problem.relations)
    if best is None or best.peak_bytes <= usable_hbm_bytes(facts):
        return None
    needed = hbm_for(best.peak_bytes, facts)
    lever, value = hbm_lever(probe, needed), rounded_up(needed)
    lean = None if thorough else best.candidate
    return told(probe, lever, value, max(SHORT * value, lever.before), lean)


def less_reserve(probe: Probe, more: Relaxation) -> Relaxation | None:
    """The largest reserve with which the HBM there is suffices, rounded down to five places; None when even 0 does not.

    What fits is the same as with more HBM and the reserve as it is: both only change what may be used. So the reserve
    that does not do is the one that leaves as much as the HBM that does not.
    """
    facts = probe.problem.facts
    kept, context = 1.0 - facts.run.reserve, facts.profile.runtime_bytes

    def left(hbm_bytes: float) -> float:
        return 1.0 - kept * (hbm_bytes - context) / (facts.fabric.device.hbm_bytes - context)

    value = math.floor(left(more.to_value) * 1e5) / 1e5
    if value < 0.0:
        return None
    problem = problem_of(with_run(facts, reserve=value))
    short = None if more.fails_at is None else min(left(more.fails_at), facts.run.reserve)
    return shown(
        problem,
        probe.fastest(problem),
        name="reserve",
        relation="hbm",
        lever=f"reserve {100 * facts.run.reserve:.5g} -> {100 * value:.5g} % of HBM",
        from_value=facts.run.reserve,
        to_value=value,
        unit="share",
        fails_at=short,
    )


def devices_lever(probe: Probe, cores: Cores) -> Iterator[Relaxation | str]:
    """More devices, where memory or what the user asks of an axis conflicts."""
    if any(_exposure(relation) for core in cores for relation in core):
        return
    memory = all(any(map(_memory, core)) for core in cores)
    if not memory and not _eases(cores, lambda r: _memory(r) or r.origin in ("user", "placement")):
        return
    growth = GROWTH if memory else GROWTH_OF_RULES
    found = more_devices(probe, growth)
    if found is not None:
        yield found
    elif memory:
        most = probe.problem.facts.fabric.devices << growth
        yield f"no number of devices up to {most:,} that was tried makes it fit"


def more_devices(probe: Probe, growth: int = GROWTH) -> Relaxation | None:
    """The fewest devices, as whole units of the outermost level, with which something fits.

    Counts too few for the model states alone are skipped. The rest is tried by doubling; then, between the last
    doubling that does not fit and the first that does, in ascending order: all counts, or 32 evenly spaced ones.
    """
    facts = probe.problem.facts
    outer = facts.fabric.regular.levels[-1].size
    inner = facts.fabric.devices // outer
    short, units = outer, tried_units(probe, outer, inner, growth)
    for count in units:
        grown = problem_of(with_outer_units(facts, count))
        if _holds_states(probe, inner * count) and probe.fits(grown):
            before, after = facts.fabric.devices, inner * count
            return shown(
                grown,
                probe.fastest(grown),
                name="devices",
                relation="hbm",
                lever=f"devices {before:,} -> {after:,}",
                from_value=before,
                to_value=after,
                unit="devices",
                fails_at=inner * short,
            )
        short = count
    return None


def _holds_states(probe: Probe, devices: int) -> bool:
    limited = any(relation.name == "hbm" for relation in probe.problem.relations)
    return not limited or floor_bytes(probe.problem, devices) <= usable_hbm_bytes(probe.problem.facts)


def tried_units(probe: Probe, outer: int, inner: int, growth: int = GROWTH) -> list[int]:
    """Units of the outermost level to try, ascending; empty when no doubling fits."""
    facts = probe.problem.facts
    low = outer
    for doubling in range(1, growth + 1):
        high = outer << doubling
        if _holds_states(probe, inner * high) and probe.fits(problem_of(with_outer_units(facts, high))):
            step = -(-(high - low) // COUNTS)
            return [*range(low + step, high, step), high]
        low = high
    return []


def time_levers(probe: Probe, cores: Cores) -> list[Lever]:
    """Limits of exposure, and the bandwidth of each level, where exposure conflicts."""
    facts = probe.problem.facts
    run, levers = facts.run, []
    if run.exposed_limit < 1.0:
        levers.append(_share_lever(probe, "exposed", "exposed_limit", run.exposed_limit))
    for name, share in sorted(run.exposed_limit_by_class.items()):
        levers.append(_share_lever(probe, f"exposed_{name}", f"exposed_limit_by_class.{name}", share))
    for level in facts.fabric.levels:
        if level.size > 1:
            levers.append(bandwidth_lever(probe, level.name, level.bytes_per_s))
    return [lever for lever in levers if _eases(cores, lever.eases)]


def _share_lever(probe: Probe, relation: str, name: str, before: float) -> Lever:
    facts, (field, _, part) = probe.problem.facts, name.partition(".")

    def at(value: float) -> Facts:
        by_class: dict[str, float] = {**facts.run.exposed_limit_by_class}  # type: ignore[dict-item]
        return with_run(facts, **{field: {**by_class, part: value} if part else value})

    label = f"{part.upper()} communication" if part else "communication"
    return Lever(
        name=name,
        relation=relation,
        unit="share",
        before=before,
        far=1.0,
        at=at,
        words=lambda value: f"exposed {label} {100 * before:.5g} -> {100 * value:.5g} % of the step",
        eases=_named(relation),
    )


def bandwidth_lever(probe: Probe, level: str, before: float) -> Lever:
    """The bandwidth of one level per device and direction."""
    return Lever(
        name=f"bandwidth.{level}",
        relation="exposed",
        unit="B/s",
        before=before,
        far=FASTER * before,
        at=lambda value: with_bandwidth(probe.problem.facts, level, value),
        words=lambda value: f"bandwidth of {level} {before / 1e9:,.5g} -> {value / 1e9:,.5g} GB/s per device",
        eases=_exposure,
    )


def whole_levers(probe: Probe, cores: Cores) -> Iterator[Relaxation]:
    """Shorter sequences, and a larger or smaller global batch."""
    facts = probe.problem.facts
    shorter = length_lever(probe)
    if _eases(cores, shorter.eases):
        yield from _found(stepped(probe, shorter, up=False))
    batch = facts.run.global_batch
    if _eases(cores, _exposure):
        yield from _found(stepped(probe, batch_lever(probe, batch, 64 * batch), up=True))
    if _eases(cores, _memory):
        yield from _found(stepped(probe, batch_lever(probe, batch, 1), up=False))


def length_lever(probe: Probe) -> Lever:
    """Tokens of a sequence; the batch keeps its sequences."""
    facts = probe.problem.facts
    before = facts.run.sequence_length
    return Lever(
        name="sequence_length",
        relation="hbm",
        unit="tokens",
        before=before,
        far=1,
        at=lambda value: with_run(facts, sequence_length=round(value)),
        words=lambda value: f"sequence length {before:,} -> {value:,.0f} tokens",
        eases=lambda r: _memory(r) or _exposure(r) or r.name == "sequence_divides",
    )


def batch_lever(probe: Probe, before: int, far: float) -> Lever:
    """Sequences of a step."""
    return Lever(
        name="global_batch",
        relation="batch_divides",
        unit="sequences",
        before=before,
        far=far,
        at=lambda value: with_run(probe.problem.facts, global_batch=round(value)),
        words=lambda value: f"global batch {before:,} -> {value:,.0f} sequences",
        eases=lambda r: _memory(r) or _exposure(r) or r.name in BATCH_RULES,
    )


def near_batches(probe: Probe) -> Iterator[Relaxation]:
    """The nearest larger and the nearest smaller global batch with which something fits."""
    batch = probe.problem.facts.run.global_batch
    lever = batch_lever(probe, batch, batch)
    for sign in (-1, 1):
        for change in range(1, NEAR_BATCHES + 1):
            value = batch + sign * change
            if value >= 1 and probe.fits(problem_of(lever.at(value))) is not None:
                yield from _found(told(probe, lever, value, value - sign))
                break
