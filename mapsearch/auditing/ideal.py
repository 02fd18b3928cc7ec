"""The level model by itself: no start-up costs, no efficiencies, so that only bandwidth is left to compare.

Contents: ideal_facts, unit_seconds, level_seconds, axis_seconds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from mapsearch.auditing.traffic import Traffic
from mapsearch.axes import CpKind, Dispatcher
from mapsearch.costs import collectives, communication
from mapsearch.costs.estimate import Point, number, point_of
from mapsearch.costs.views import Facts
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.profile import CollectiveEfficiency
from mapsearch.quantity import Num

ENDLESS = 1e30
"""Bandwidth of a level that takes no time, B/s."""


def ideal_facts(facts: Facts) -> Facts:
    """The same facts at full bandwidth: no latency, launch, half-size or share of the peak."""
    whole = CollectiveEfficiency(peak=1.0)
    kinds = dict.fromkeys(("all_reduce", "all_gather", "all_to_all", "point_to_point"), whole)
    levels = tuple(replace(level, latency_s=0.0) for level in facts.fabric.levels)
    return replace(
        facts,
        fabric=replace(facts.fabric, levels=levels),
        profile=facts.profile.model_copy(update={**kinds, "overlap_slowdown": 1.0}),
    )


def unit_seconds(traffic: Traffic, facts: Facts) -> float:
    """Seconds of a unit payload of the pattern under the level model, with the facts of `ideal_facts`. Unit: s."""
    row = np.array(traffic.row)
    about = _about(traffic, facts)
    if traffic.crossing:
        return number(collectives.loads_s(list(traffic.crossing), row, **about))
    charge = {
        "gather": collectives.all_gather_s,
        "exchange": collectives.all_to_all_s,
        "hop": collectives.point_to_point_s,
    }[traffic.pattern]
    return number(charge(1.0, row, **about))


def _about(traffic: Traffic, facts: Facts) -> dict[str, Any]:
    fabric = facts.fabric.seen_by(traffic.axis)
    return {"fabric": fabric, "profile": facts.profile, "inner_row": traffic.inner_row}


def axis_seconds(mapping: Mapping, facts: Facts, traffic: list[Traffic]) -> list[float]:
    """Seconds per step of each pattern of a mapping under the level model, on the slowest stage, hidden or not."""
    point = point_of(mapping, ideal_facts(facts))
    attention, expert, cell = point.sides
    kind, rounds = point.slowest, number(point.cell.microbatches)
    totals = dict.fromkeys(("tp", "cp", "ep", "pp"), 0.0)
    for side in (attention, expert, cell):
        for transfer in side.transfers:
            totals[transfer.name] += rounds * number(transfer.total_s(kind))
    for axis, side in (("dp", attention), ("edp", expert)):
        once = sum(number(side.once[name][point.last]) for name in ("reduce", "gather") if name in side.once)
        streamed = number(side.under_compute["dp"][kind]) if "dp" in side.under_compute else 0.0
        inline = sum(number(part.steady_s[kind]) for part in side.parts if part.name == "dp")
        totals[axis] = once + rounds * (streamed + inline)
    exchanged = _exchanged_share(point)
    totals |= {"ep": totals["ep"] * exchanged, "etp": totals["ep"] * (1.0 - exchanged)}
    parts = {"exchange": _ulysses_share(mapping, point), "hop": 1.0 - _ulysses_share(mapping, point)}
    hybrid = int(mapping.cp_kind) == CpKind.HYBRID
    return [totals[each.axis] * (parts[each.pattern] if each.axis == "cp" and hybrid else 1.0) for each in traffic]


def _exchanged_share(point: Point) -> float:
    """Share of a dispatch and combine that is exchanged over EP; the rest is gathered over ETP."""
    expert = point.expert
    about = {name: getattr(point.facts, name) for name in ("model", "run", "fabric", "profile")}
    if point.facts.model.moe is None or expert.etp == 1 or int(point.mapping.dispatcher) == Dispatcher.ALL_GATHER:
        return 1.0
    tokens, alone = point.cell.tokens, np.ones_like(expert.etp_row)

    def seconds(row: Num) -> float:
        return number(communication.ep_backward_s(tokens, row, expert.ep_row, expert.dispatcher, **about))

    whole = seconds(expert.etp_row)
    return seconds(alone) / whole if whole else 1.0


def _ulysses_share(mapping: Mapping, point: Point) -> float:
    """Share of a hybrid context parallel that is exchanged inside: what is left when other levels take no time."""
    if int(mapping.cp_kind) != CpKind.HYBRID:
        return 1.0
    whole = _context_s(point)
    fabric = point.facts.fabric.seen_by("cp")
    used = next((level for level, ways in enumerate(point.rows["cp"]) if ways > 1), 0)
    levels = tuple(
        level if place == used else replace(level, bytes_per_s=ENDLESS) for place, level in enumerate(fabric.levels)
    )
    inner = point_of(mapping, replace(point.facts, fabric=replace(fabric, levels=levels)))
    return _context_s(inner) / whole if whole else 1.0


def _context_s(point: Point) -> float:
    return sum(number(t.forward) + number(t.backward) for t in point.sides[0].transfers if t.name == "cp")


def level_seconds(traffic: Traffic, level: int, facts: Facts) -> float:
    """Seconds of those messages of a unit payload that cross a level and none further out, by the level model.

    `facts`: as `ideal_facts` gives them. Unit: s.
    """
    ways, inside = traffic.row[level], math.prod(traffic.row[:level])
    if ways == 1:
        return 0.0
    row = np.array([ways if place == level else 1 for place in range(len(traffic.row))])
    about = _about(traffic, facts)
    if traffic.pattern == "gather":
        return number(collectives.all_gather_s(1.0 / inside, row, **about))
    if traffic.pattern == "hop":
        return number(collectives.point_to_point_s(1.0, row, **about))
    sent = inside * ways / traffic.members
    if traffic.crossing:
        sent = traffic.staying(level) * ways / (ways - 1.0)
    return number(collectives.all_to_all_s(sent, row, **about))
