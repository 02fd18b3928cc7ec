"""Bytes on the wire by class and level, counted with the cost model itself.

Contents: Traffic, counting, level_facts, flat, traffic_of.

On switches of 1 B/s, without start-up costs, seconds are bytes: so the bytes of a contract are those that the step
time was charged for, and no volume is written down twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mapsearch.costs.estimate import Point, number, point_of
from mapsearch.costs.step import COMMUNICATION
from mapsearch.costs.views import Facts
from mapsearch.inventories.profile import CollectiveEfficiency
from mapsearch.topologies.fabric import Level

_KINDS = ("all_reduce", "all_gather", "all_to_all", "point_to_point")
_ENDLESS = 1e40
"""B/s of a level that is not counted."""
_LEAST = 1e-6
"""Bytes below which a count is what is left of the levels that are not counted."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that one rank sends to other ranks."""

    layer: dict[str, tuple[float, float]]
    """Class: bytes of one layer and microbatch, forward and backward (PP: of all hops of a microbatch)."""
    step: dict[str, float]
    """Class: bytes of one step on the slowest stage, repeats of recompute included (DP: what is done once and streams).
    """
    dense_once: tuple[float, float]
    """Reduction of gradients and gathering of weights outside the routed experts, per step, largest stage."""
    expert_once: tuple[float, float]
    """The same of the routed experts."""


def _uncosted(facts: Facts) -> Facts:
    whole = CollectiveEfficiency(peak=1.0)
    plain = facts.profile.model_copy(update={**dict.fromkeys(_KINDS, whole), "overlap_slowdown": 1.0})
    return replace(facts, profile=plain)


def counting(facts: Facts, level: int) -> Facts:
    """Facts under which the seconds of a collective are the bytes per rank that cross one level."""
    levels = tuple(
        Level(old.name, "switch", old.size, 1.0 if place == level else _ENDLESS, 0.0, own_ports=old.own_ports)
        for place, old in enumerate(facts.fabric.levels)
    )
    return replace(_uncosted(facts), fabric=replace(facts.fabric, levels=levels))


def level_facts(facts: Facts, level: int) -> Facts:
    """Facts whose other levels cost nothing: what one level alone takes."""
    levels = tuple(
        one if place == level else replace(one, bytes_per_s=_ENDLESS, latency_s=0.0)
        for place, one in enumerate(facts.fabric.levels)
    )
    return replace(facts, fabric=replace(facts.fabric, levels=levels))


def flat(facts: Facts, devices: int) -> Facts:
    """Facts with all devices on one switch of 1 B/s: seconds are the bytes that a rank sends to others."""
    one = Level("all", "switch", devices, 1.0, 0.0)
    return replace(_uncosted(facts), fabric=replace(facts.fabric, levels=(one,), notes=()))


def traffic_of(point: Point, level: int | None = None) -> Traffic:
    """Bytes of every class: those that leave a rank, or those per rank that cross one level.

    Unit: bytes. Source: FORMULAS 4.2, 4.4. Ignores: how a hierarchy of levels would save bytes, without a level.
    """
    if level is None:
        plain = point.mapping.model_copy(update={"placement": {}})
        counted = point_of(plain, flat(point.facts, point.mapping.devices))
    else:
        counted = point_of(point.mapping, counting(point.facts, level))
    kind, rounds = point.slowest, number(point.cell.microbatches)
    layer = dict.fromkeys(COMMUNICATION, (0.0, 0.0))
    step = dict.fromkeys(COMMUNICATION, 0.0)
    for side in counted.sides:
        for transfer in side.transfers:
            forward, backward = number(transfer.forward), number(transfer.backward)
            layer[transfer.name] = (layer[transfer.name][0] + forward, layer[transfer.name][1] + backward)
            step[transfer.name] += rounds * number(transfer.total_s(kind))
    once = []
    for side in counted.sides[:2]:
        reduce, gather = (max(map(number, side.once.get(name, [0.0]))) for name in ("reduce", "gather"))
        once.append((reduce, gather))
        streams = side.under_compute.get("dp", [0.0] * (kind + 1))
        inline = sum(number(part.steady_s[kind]) for part in side.parts if part.name == "dp")
        step["dp"] += sum(once[-1]) + rounds * (number(streams[kind]) + inline)
    whole = {name: (_whole(ways[0]), _whole(ways[1])) for name, ways in layer.items()}
    dense, expert = ((_whole(reduce), _whole(gather)) for reduce, gather in once)
    return Traffic(whole, {name: _whole(sent) for name, sent in step.items()}, dense, expert)


def _whole(counted: float) -> float:
    """What crosses a level that costs nothing is nothing."""
    return counted if counted > _LEAST else 0.0
