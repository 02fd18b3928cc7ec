"""From what a search found to what is shown: mapping inventories, every relation's margin, the estimate.

Contents: KEY, mapping_of, key_of_mapping, pair_view, margins, better_layout, time_of, keeps, ranked_mapping.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mapsearch.answer import BetterLayout, Binding, Margin, RankedMapping
from mapsearch.axes import CHOICES, SIZES, WORDS, written
from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.constraints.views import PairView
from mapsearch.costs.estimate import Point, estimate_point, layout_trouble, number, point_of
from mapsearch.costs.placement import placement_of
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.relation import Relation, Side
from mapsearch.solver.layouts import best_cut
from mapsearch.solver.problem import Problem
from mapsearch.solver.top import Candidate

VARIANT = ("micro_batch", "schedule", "vpp", "recompute", "zero", "offload", "overlap")
KEY = (*SIZES, *VARIANT, "cp_kind", "dispatcher")
"""Axes in the order of a candidate's key."""


def mapping_of(candidate: Candidate) -> Mapping:
    """The mapping inventory of a candidate, placement included."""
    tables = candidate.tables
    values = dict(zip(KEY, candidate.key, strict=True))
    rows = {"pp": tables.group.pp_row}
    for axis, row in zip(("tp", "cp", "dp"), tables.attention.options.rows, strict=True):
        rows[axis] = tuple(int(cut) for cut in row[candidate.attention])
    for axis, row in zip(("etp", "ep", "edp"), tables.expert.options.rows, strict=True):
        rows[axis] = tuple(int(cut) for cut in row[candidate.expert])
    named = {axis: written(axis, code) for axis, code in values.items()}
    where = {"placement": placement_of(rows, tables.cell.facts.fabric), "layout": list(tables.group.layout)}
    split = tables.group.recompute_stages if values["recompute"] else 0
    return Mapping.model_validate({**named, **where, "recompute_stages": split})


def key_of_mapping(mapping: Mapping, facts: Facts) -> tuple[int, ...]:
    """Sizes and choices of a mapping in the order of a candidate's key; what it leaves to the run is the run's."""
    values = {axis: getattr(mapping, axis) for axis in KEY}
    if values["overlap"] is None:
        values["overlap"] = facts.run.overlap.codes[0]
    return tuple(int(values[axis]) for axis in KEY)


def pair_view(point: Point) -> PairView:
    """One mapping as the relations of both grids together see it."""
    return PairView(
        cell=point.cell,
        step_time_s=point.step_time_s(),
        memory=point.kind_memory_bytes,
        host_bytes=point.host_bytes,
        nvme_bytes=point.nvme_bytes,
        without=point.step_time_s,
    )


def _margin(relation: Relation, view: Any) -> Margin:
    demand, limit = number(relation.demand(view)), number(relation.limit(view))
    return Margin(
        relation=relation.name,
        demand=demand,
        limit=limit,
        unit=relation.unit,
        margin=limit - demand,
        origin=relation.origin,
        reason=relation.sentence(view, demand, limit),
    )


def margins(point: Point, relations: Iterable[Relation], sides: Iterable[Side] | None = None) -> list[Margin]:
    """Every relation on one mapping, in the given order; `sides` leaves out those that need more."""
    views = {"cell": point.cell, "attention": point.attention, "expert": point.expert}
    wanted = {"cell", "attention", "expert", "pair"} if sides is None else set(sides)
    if "pair" in wanted:
        views["pair"] = pair_view(point)
    return [_margin(relation, views[relation.side]) for relation in relations if relation.side in wanted]


WORTH = 1e-6
"""Share of the step below which another layout is not worth naming."""


def better_layout(point: Point, relations: Iterable[Relation]) -> BetterLayout | None:
    """The fastest of all cuts of a mapping that satisfies every relation, where that is another one.

    Looked for among cuts that fit in memory; None also when the fastest of those breaks a limit on communication.
    """
    named = {relation.name: relation for relation in relations}
    device, facts = point.facts.fabric.device, point.facts
    limits = {
        "hbm_bytes": usable_hbm_bytes(facts) if "hbm" in named else math.inf,
        "host_bytes": device.host_memory_bytes if "host_memory" in named else math.inf,
        "nvme_bytes": device.nvme_bytes if "nvme_capacity" in named else math.inf,
    }
    best = best_cut(point, **limits)
    if best is None:
        return None
    fits = all(margin.margin >= 0.0 for margin in margins(point, named.values()))
    if fits and best.step_time_s >= point.step_time_s() * (1.0 - WORTH):
        return None
    other = point_of(point.mapping.model_copy(update={"layout": list(best.cut)}), facts)
    if any(margin.margin < 0.0 for margin in margins(other, named.values())):
        return None
    return BetterLayout(layout=list(best.cut), step_time_s=other.step_time_s(), fits=not fits)


def _chosen(point: Point, axis: str) -> int:
    """The code of a choice: what overlaps may be left to the run."""
    return int(point.cell.overlap if axis == "overlap" else getattr(point.mapping, axis))


def time_of(mapping: Mapping, problem: Problem) -> float:
    """Step time of a known mapping, s; infinite where it breaks a relation or has no place on the cluster."""
    try:
        point = point_of(mapping, problem.facts)
    except InputError:
        return math.inf
    if layout_trouble(point) or not keeps(point, problem.relations):
        return math.inf
    return float(point.step_time_s())


def keeps(point: Point, relations: Iterable[Relation]) -> bool:
    """Whether one mapping keeps every relation; stops at the first that it breaks."""
    views = {"cell": point.cell, "attention": point.attention, "expert": point.expert, "pair": pair_view(point)}
    judged = ((relation, views[relation.side]) for relation in relations)
    return all(number(relation.limit(view)) - number(relation.demand(view)) >= 0.0 for relation, view in judged)


def ranked_mapping(
    rank: int,
    point: Point,
    relations: Iterable[Relation],
    *,
    binding: Binding | None = None,
    binding_note: str = "",
    better: BetterLayout | None = None,
) -> RankedMapping:
    """One mapping with everything that was estimated about it."""
    mapping, told = point.mapping, estimate_point(point)
    numbers = (*SIZES, *(axis for axis in CHOICES if axis not in WORDS))
    return RankedMapping(
        rank=rank,
        sizes={axis: getattr(mapping, axis) for axis in numbers},
        choices={axis: str(written(axis, _chosen(point, axis))) for axis in CHOICES if axis in WORDS},
        placement=placement_of(point.rows, point.facts.fabric),
        devices=told.devices,
        microbatches=told.microbatches,
        layout=list(mapping.layout),
        recompute_stages=mapping.recomputing,
        layers_per_stage=told.layers_per_stage,
        step_time_s=told.step_time_s,
        tokens_per_s=told.tokens_per_s,
        mfu=told.mfu,
        hfu=told.hfu,
        breakdown_s=told.breakdown_s,
        communication_s=told.communication_s,
        exposed_s=told.exposed_s,
        exposed_fraction=told.exposed_fraction,
        peak_memory_bytes=told.peak_memory_bytes,
        memory_limit_bytes=usable_hbm_bytes(point.facts),
        worst_stage=told.worst_stage,
        memory_bytes=told.memory_bytes,
        memory_by_stage_bytes=told.memory_by_stage_bytes,
        margins=margins(point, relations),
        binding=binding,
        binding_note=binding_note,
        better_layout=better,
    )
