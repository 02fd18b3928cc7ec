"""A mapping estimated again with the skew of a placement of experts.

Contents: point_with, effects_of.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.estimate import Point, estimate_point, point_of
from mapsearch.costs.routing import skews
from mapsearch.expert_load import RoutingValues, StepEffect
from mapsearch.experts.copied import copies_cost

MOST_SKEW = 1000.0
"""Largest skew that a run file takes."""
Name = Literal["run file", "consecutive", "greedy", "placed"]


def point_with(point: Point, rank_skew: float, pair_skew: float) -> Point:
    """The same mapping under a run with this skew."""
    run = point.facts.run
    clipped = {
        name: min(max(value, 1.0), MOST_SKEW) for name, value in (("rank_skew", rank_skew), ("pair_skew", pair_skew))
    }
    changed = run.model_copy(update={"routing": run.routing.replaced(by_ranks={}, **clipped)})
    return point_of(point.mapping, replace(point.facts, run=changed))


def effects_of(
    point: Point, now: RoutingValues, greedy: RoutingValues, placed: RoutingValues, copies: int = 0
) -> list[StepEffect]:
    """Step time and peak memory as the run file says, and under each placement, with its copies where it has some."""
    rank, pair = (float(value) for value in skews(point.mapping.ep, run=point.facts.run))
    asked: list[tuple[Name, float, float]] = [("run file", rank, pair)]
    named: list[tuple[Name, RoutingValues]] = [("consecutive", now), ("greedy", greedy), ("placed", placed)]
    asked += [(name, values.rank_skew, values.pair_skew) for name, values in named]
    usable = usable_hbm_bytes(point.facts)
    effects = []
    for name, rank_skew, pair_skew in asked:
        there = point_with(point, rank_skew, pair_skew)
        found = estimate_point(there)
        cost = copies_cost(there, copies) if copies and name in ("greedy", "placed") else None
        peak = found.peak_memory_bytes if cost is None else cost.peak_bytes
        effects.append(
            StepEffect(
                placement=name,
                rank_skew=rank_skew,
                pair_skew=pair_skew,
                step_time_s=found.step_time_s + (0.0 if cost is None else cost.gradient_s),
                peak_memory_bytes=peak,
                fits=peak <= usable,
            )
        )
    return effects
