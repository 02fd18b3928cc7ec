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
    """Judge all mappings; a mapping without a layout of layers breaks what needs one (memory, exposure)."""
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
    if not layout_trouble(point):
        views["pair"] = pair_view(point)
        peak = max(number(value) for value in point.kind_memory_bytes)
        seconds = float(number(views["pair"].step_time_s))
    demand = [number(r.demand(views[r.side])) if r.side in views else np.inf for r in relations]
    limit = [number(r.limit(views[r.side])) if r.side in views else 0.0 for r in relations]
    key = tuple(int(getattr(point.mapping, axis)) for axis in KEY)
    return demand, limit, peak, seconds, key


def feasible(facts: Facts) -> bool:
    """Whether any mapping keeps every relation."""
    found = judged(facts)
    return bool(found.satisfying(found.names).any())


def with_run(facts: Facts, **changes) -> Facts:
    """The same facts with another run."""
    return replace(facts, run=facts.run.replaced(**changes))
