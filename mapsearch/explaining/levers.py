"""Inputs whose value an explanation moves: the facts at another value, and what a mapping takes there.

Contents: Lever, bandwidths, fastest_below, rivals_at, SAME.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from mapsearch.costs.views import Facts
from mapsearch.inventories.mapping import Mapping
from mapsearch.sensitivities.sampled import crossing
from mapsearch.solver.explain.relax import with_bandwidth
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.ranking import time_of
from mapsearch.solver.search import search
from mapsearch.solver.top import Candidate

SAME = 1e-9
"""Relative difference of two step times that add up in another order."""
LOOK = 5
"""Faster mappings that a first look collects."""


@dataclass(frozen=True)
class Lever:
    """One number among the inputs."""

    name: str
    """`bandwidth.rack`."""
    unit: str
    now: float
    at: Callable[[float], Facts]

    def problem(self, value: float) -> Problem:
        """The problem with the input at a value."""
        return problem_of(self.at(value))

    def time_s(self, mapping: Mapping, value: float) -> float:
        """Step time of a mapping at a value; infinite where it does not fit."""
        return time_of(mapping, self.problem(value))

    def best_s(self, mappings: list[Mapping], value: float) -> float:
        """Step time of the fastest of some mappings at a value; infinite when none fits."""
        return min((self.time_s(mapping, value) for mapping in mappings), default=math.inf)

    def crossing(self, first: list[Mapping], second: list[Mapping], near: float, far: float) -> float:
        """Where the best of `second` overtakes the best of `first`, from a value where it is slower to one where it
        is faster."""
        return crossing(lambda value: self.best_s(first, value), lambda value: self.best_s(second, value), near, far)


def bandwidths(facts: Facts) -> list[Lever]:
    """The bandwidth of every level that has more than one unit."""

    return [
        Lever(f"bandwidth.{level.name}", "B/s", level.bytes_per_s, partial(with_bandwidth, facts, level.name))
        for level in facts.fabric.levels
        if level.size > 1
    ]


def fastest_below(problem: Problem, step_time_s: float, deadline: float | None) -> tuple[Candidate | None, bool]:
    """The fastest mapping that is faster than a time, None without one, and whether all of the space was seen."""
    found, complete = _below(problem, step_time_s, 1, deadline)
    return next(iter(found), None), complete


def rivals_at(
    problem: Problem, step_time_s: float, enough: int, deadline: float | None
) -> tuple[list[Candidate], bool]:
    """Mappings that are faster than a time, and whether the search for them came to its end.

    Fewer than `enough` are returned only when there are no more; others need not be the fastest.
    """
    # Faster ones are often among few nested placements; only too few of them ask for the whole space.
    look = _below(replace(problem, first_look=True), step_time_s, max(enough, LOOK), deadline)
    return look if len(look[0]) >= enough else _below(problem, step_time_s, enough, deadline)


def _below(problem: Problem, step_time_s: float, count: int, deadline: float | None) -> tuple[list[Candidate], bool]:
    """As many of the fastest mappings that are faster than a time, and whether the search came to its end.

    A search lets in what is slower by rounding, which may be the very mapping whose time it is.
    """
    limit = step_time_s * (1.0 - SAME)
    found = search(problem, count, deadline=deadline, known_s=limit)
    return [one for one in found.top if one.step_time_s < limit], found.complete
