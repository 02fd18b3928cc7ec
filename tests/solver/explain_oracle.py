"""What every mapping of a small problem does to every relation, by plain loops: the judge of explanations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import bruteforce
import numpy as np

from mapsearch.costs.estimate import layout_trouble, number, point_of
from mapsearch.costs.views import Facts
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import KEY, pair_view


@dataclass(frozen=True)
class Judged:
    """Every mapping, whether it keeps each relation, its peak and its step time (infinite without a layout)."""

    names: list[str]
    sides: dict[str, str]
    holds: np.ndarray
    """Shape (mappings, relations)."""
    demand: np.ndarray
    limit: np.ndarray
    peak_bytes: np.ndarray
    step_time_s: np.ndarray
    keys: list[tuple[int, ...]]

    def satisfying(self, names) -> np.ndarray:
        """Which mappings keep all the named relations."""
        columns = [self.names.index(name) for name in names]
        return self.holds[:, columns].all(axis=1)

    @cached_property
    def alone(self) -> list[str]:
        """Relations of cells and grids."""
        return [name for name in self.names if self.sides[name] != "pair"]


def judged(facts: Facts) -> Judged:
    """Judge all mappings; one without a layer for each pipeline chunk breaks what needs it (memory, exposure)."""
    relations = problem_of(facts).relations
    rows = [_row(point_of(mapping, facts), relations) for mapping in bruteforce.mappings(facts)]
    demand, limit = (np.array([row[i] for row in rows]) for i in (0, 1))
    return Judged(
        names=[relation.name for relation in relations],
        sides={relation.name: relation.side for relation in relations},
        holds=demand <= limit,
        demand=demand,
        limit=limit,
        peak_bytes=np.array([row[2] for row in rows]),
        step_time_s=np.array([row[3] for row in rows]),
        keys=[row[4] for row in rows],
    )


def _row(point, relations):
    views = {"cell": point.cell, "attention": point.attention, "expert": point.expert}
    peak = seconds = float("inf")
    if _filled(point) and not layout_trouble(point):
        views["pair"] = pair_view(point)
        peak = max(number(value) for value in point.kind_memory_bytes)
        seconds = float(number(views["pair"].step_time_s))
    demand = [number(r.demand(views[r.side])) if r.side in views else np.inf for r in relations]
    limit = [number(r.limit(views[r.side])) if r.side in views else 0.0 for r in relations]
    key = tuple(int(getattr(point.mapping, axis)) for axis in KEY)
    return demand, limit, peak, seconds, key


def feasible(facts: Facts, without=()) -> bool:
    """Whether any mapping keeps every relation, those left out that are named."""
    relations = [relation for relation in problem_of(facts).relations if relation.name not in without]
    asked = {relation.name for relation in relations}
    alone = [relation for relation in relations if relation.side != "pair"]
    limits = [relation for relation in relations if relation.side == "pair"]
    for mapping in bruteforce.mappings(facts):
        point = point_of(mapping, facts)
        views = {"cell": point.cell, "attention": point.attention, "expert": point.expert}
        if not all(_holds(relation, views[relation.side]) for relation in alone):
            continue
        if not limits:
            return True
        if layout_trouble(point) or ("layers_fill_stages" not in asked and not _filled(point)):
            continue
        view = pair_view(point)
        if all(_holds(relation, view) for relation in limits):
            return True
    return False


def _holds(relation, view) -> bool:
    return number(relation.demand(view)) <= number(relation.limit(view))


def _filled(point) -> bool:
    """Whether each pipeline chunk has a layer."""
    relations = problem_of(point.facts).relations
    return _holds(next(r for r in relations if r.name == "layers_fill_stages"), point.cell)


def relaxed(facts: Facts, change, value: float) -> Facts:
    """The facts with what a relaxation changes set to a value; dropped rules are left to `feasible`."""
    name, _, part = change.name.partition(".")
    device = {"hbm": "hbm_bytes", "host_memory": "host_memory_bytes", "nvme": "nvme_bytes"}
    fabric = facts.fabric
    if name in device:
        return replace(facts, fabric=replace(fabric, device=replace(fabric.device, **{device[name]: value})))
    if name == "devices":
        *inner, outer = fabric.levels
        units = round(value) // (fabric.devices // outer.size)
        return replace(facts, fabric=replace(fabric, levels=(*inner, replace(outer, size=units, dims=()))))
    if name == "bandwidth":
        levels = tuple(replace(x, bytes_per_s=value) if x.name == part else x for x in fabric.levels)
        return replace(facts, fabric=replace(fabric, levels=levels))
    if name == "rules":
        return facts
    return with_run(facts, **_run_changes(facts, change, name, part, value))


def _run_changes(facts, change, name, part, value):
    run = facts.run
    if name in ("sequence_length", "global_batch"):
        return {name: round(value)}
    if name in ("reserve", "exposed_limit"):
        return {name: value}
    if name == "exposed_limit_by_class":
        return {name: {**run.exposed_limit_by_class, part: value}}
    if name == "overlap":
        return {"overlap": {**run.overlap.model_dump(), part: [True, False] if change.choice == "either" else True}}
    if name == "state":
        words = dict(one.split(" ") for one in change.choice.split(", "))
        state = {key: word == "True" if word in ("True", "False") else float(word) for key, word in words.items()}
        fp8 = {} if "fp8_primary_weights" not in state or run.fp8 else {"precision": "fp8-block"}
        return {"state": {**run.state.model_dump(), **state}, **fp8}
    word = int(change.choice) if change.choice.isdigit() else change.choice
    return {name: [*run.model_dump()[name], word]}


def with_run(facts: Facts, **changes) -> Facts:
    """The same facts with another run."""
    return replace(facts, run=facts.run.replaced(**changes))
