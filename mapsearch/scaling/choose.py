"""Which small run keeps most: plans in the order of what they could keep, each placed by the search.

Contents: Chosen, choose, same_quantity.

Exact, best first: a plan could at best keep all layers of a stage and every crossing of levels that its sizes allow;
then the layers that fit are found (memory does not depend on the placement), then the placement.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from mapsearch.axes import SIZES
from mapsearch.costs.estimate import Point, layers_per_stage, point_of
from mapsearch.costs.views import Facts
from mapsearch.relation import Relation
from mapsearch.scaling.keeps import Keep, crosses, crossing, keeps_of, same
from mapsearch.scaling.reduced import Plan, facts_of, plans
from mapsearch.solver.explain.edits import smallest_corrections
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import search
from mapsearch.solver.top import Candidate

LAYERS = "layers per stage"
MOST = 16
"""Smallest sets of crossings to give up that are compared for one plan."""


@dataclass(frozen=True)
class Chosen:
    """The small run that keeps most."""

    plan: Plan
    point: Point
    kept: tuple[str, ...]
    examined: int = 0


@dataclass(order=True)
class _Entry:
    """A plan by what it keeps at best: more quantities, then more layers per stage, then the faster one."""

    lost: int
    fewer_layers: int
    step_time_s: float
    number: int
    plan: Plan = field(compare=False)
    names: frozenset[str] = field(compare=False)
    layers: int = field(compare=False, default=0)
    """Layers per stage that fit; 0 before that is known."""
    chosen: Chosen | None = field(compare=False, default=None)


def choose(full: Point, devices: int, required: Collection[str], tell: Callable[[int, int], None]) -> Chosen | None:
    """The small run on so many devices that keeps most quantities; None when none keeps the required ones and fits.

    Of equals: more layers per stage, then the faster one, then the first in the order of plans.
    """
    keeps, must = keeps_of(full), frozenset(required)
    heap = [
        _Entry(len(keeps) - len(names), 0, 0.0, number, plan, names)
        for number, plan in enumerate(plans(full, devices))
        if (names := _at_best(full, plan, keeps)) is not None and must <= names
    ]
    heapq.heapify(heap)
    count, done = len(heap), 0
    while heap:
        entry = heapq.heappop(heap)
        if entry.chosen is not None:
            return replace(entry.chosen, examined=count)
        tell(done, count)
        done += entry.layers == 0
        sharper = _fitted(full, entry, must) if entry.layers == 0 else _placed(full, entry, keeps, must)
        if sharper is not None:
            heapq.heappush(heap, sharper)
    return None


def _fitted(full: Point, entry: _Entry, must: frozenset[str]) -> _Entry | None:
    """The entry with the most layers per stage that fit in memory, which no placement changes."""
    # Every chunk holds as many layers; one stage has no chunks.
    most, step = _stage_layers(full), full.mapping.vpp if entry.plan.by_axis["pp"] > 1 else 1
    if _fits(full, entry.plan, most):
        return replace(entry, layers=most)
    names = entry.names - {LAYERS}
    if LAYERS in must:
        return None
    low, high = 0, math.ceil(most / step)  # in chunks of layers: `low` fits, `high` does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(full, entry.plan, middle * step) else (low, middle)
    if low == 0:
        return None
    lost = entry.lost + len(entry.names) - len(names)
    return replace(entry, lost=lost, fewer_layers=most - low * step, names=names, layers=low * step)


def _fits(full: Point, plan: Plan, layers: int) -> bool:
    facts = facts_of(full, plan, layers)
    return facts is not None and _fastest(replace(problem_of(facts), all_devices=True), []) is not None


def _placed(full: Point, entry: _Entry, keeps: tuple[Keep, ...], must: frozenset[str]) -> _Entry | None:
    """The entry with its best placement, and what it then keeps."""
    facts = facts_of(full, entry.plan, entry.layers)
    found = None if facts is None else _crossing(full, entry.plan, facts, must)
    if facts is None or found is None:
        return None
    point = point_of(mapping_of(found), facts)
    kept = tuple(keep.name for keep in keeps if same_quantity(keep, full, point))
    if not must <= set(kept):
        return None
    chosen = Chosen(entry.plan, point, kept)
    return replace(entry, lost=len(keeps) - len(kept), step_time_s=found.step_time_s, chosen=chosen)


def _stage_layers(full: Point) -> int:
    return max(layers_per_stage(full.mapping, full.facts))


def _at_best(full: Point, plan: Plan, keeps: tuple[Keep, ...]) -> frozenset[str] | None:
    """What a plan keeps when every layer of a stage fits and every axis crosses the levels that it can."""
    facts = facts_of(full, plan, _stage_layers(full))
    if facts is None:
        return None
    point = _any_point(full, plan, facts)
    crossed = {keep.name for keep in keeps if keep.axis and _can_cross(full, plan, keep.axis)}
    return frozenset(crossed | {keep.name for keep in keeps if not keep.axis and same_quantity(keep, full, point)})


def _can_cross(full: Point, plan: Plan, axis: str) -> bool:
    """Whether an axis of this size can be cut exactly at the levels of the full run."""
    wanted, size = crossing(full.rows[axis]), plan.by_axis[axis]
    cut = [units for units, crossed in zip(plan.units, wanted, strict=True) if crossed]
    return all(units > 1 for units in cut) and 2 ** len(cut) <= size <= math.prod(cut)


def _any_point(full: Point, plan: Plan, facts: Facts) -> Point:
    """The plan's mapping as axes fill the levels in the usual order; sizes and volumes do not depend on it."""
    stages = {"layout": [], "recompute_stages": 0, "placement": {}}
    return point_of(full.mapping.model_copy(update={**plan.by_axis, **stages}), facts)


def same_quantity(keep: Keep, full: Point, point: Point) -> bool:
    """Whether a small run has a quantity of the full one; of uneven stages the longest counts."""
    if keep.name == LAYERS:
        return point.facts.model.layers == _stage_layers(full) * point.mapping.pp
    return same(keep.value(full), keep.value(point))


def _crossing(full: Point, plan: Plan, facts: Facts, required: Collection[str]) -> Candidate | None:
    """The fastest placement that keeps most crossings; None when nothing fits with the required ones."""
    problem = replace(problem_of(facts), all_devices=True)
    rules = {axis: crosses(axis, crossing(full.rows[axis])) for axis in SIZES if getattr(full.mapping, axis) > 1}
    kept = {keep.axis for keep in keeps_of(full) if keep.axis and keep.name in required}
    must = [rule for axis, rule in rules.items() if axis in kept]
    soft = [
        rule
        for axis, rule in rules.items()
        if rule not in must and _can_cross(full, plan, axis)
    ]  # fmt: skip
    whole = _fastest(problem, [*must, *soft])
    if whole is not None or not soft:
        return whole
    known: dict[frozenset[str], Candidate | None] = {}

    def satisfiable(rules: list[Relation]) -> bool:
        names = frozenset(rule.name for rule in rules)
        if names not in known:
            known[names] = _fastest(problem, list(rules))
        return known[names] is not None

    corrections = smallest_corrections(must, soft, lambda rules: satisfiable(list(rules)), MOST)
    lists = [[*must, *(rule for rule in soft if rule not in dropped)] for dropped in corrections]
    found = (known[frozenset(rule.name for rule in rules)] for rules in lists)
    return min((one for one in found if one is not None), key=lambda one: one.order, default=None)


def _fastest(problem: Problem, rules: list[Relation]) -> Candidate | None:
    found = search(replace(problem, relations=(*problem.relations, *rules)), 1).top
    return found[0] if found else None
