"""Bytes that one rank sends per step, by axis: what a placement on actual links weighs.

Contents: sent_bytes_of.
"""

from __future__ import annotations

from dataclasses import replace

from mapsearch.costs.estimate import Point, number, point_of
from mapsearch.costs.step import Side
from mapsearch.costs.views import Facts
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.profile import CollectiveEfficiency
from mapsearch.topologies.fabric import Level

COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "point_to_point")


def sent_bytes_of(mapping: Mapping, facts: Facts) -> dict[str, float]:
    """Bytes that a rank of the slowest stage sends per step, by axis; what is gathered over ETP counts to EP.

    Unit: B. Counted with the cost model itself: on one switch with 1 B/s per device, without start-up costs, seconds
    are bytes. Source: FORMULAS 4.2, 4.3. Ignores: how a hierarchy of levels would save bytes.
    """
    count = mapping.devices
    one = Level("all", "switch", count, bytes_per_s=1.0, latency_s=0.0)
    flat = replace(facts.fabric, levels=(one,), notes=(), cores=(), site=None, alternatives=())
    whole = CollectiveEfficiency(peak=1.0)
    profile = facts.profile.model_copy(update={**dict.fromkeys(COLLECTIVES, whole), "overlap_slowdown": 1.0})
    point = point_of(mapping.model_copy(update={"placement": {}}), replace(facts, fabric=flat, profile=profile))
    attention, expert, _ = point.sides
    rounds = number(point.cell.microbatches)
    found = dict.fromkeys(("tp", "cp", "ep", "pp"), 0.0)
    for side in point.sides:
        for transfer in side.transfers:
            found[transfer.name] += rounds * number(transfer.total_s(point.slowest))
    return {**found, "dp": _gradients(point, attention), "edp": _gradients(point, expert)}


def _gradients(point: Point, side: Side) -> float:
    """Reduction and gathers of one grid's states over its replicas, per step."""
    once = sum(number(side.once[name][point.last]) for name in ("reduce", "gather") if name in side.once)
    streamed = number(side.under_compute["dp"][point.slowest]) if "dp" in side.under_compute else 0.0
    inline = sum(number(part.steady_s[point.slowest]) for part in side.parts if part.name == "dp")
    return once + number(point.cell.microbatches) * (streamed + inline)
