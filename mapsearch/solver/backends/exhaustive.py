"""The exhaustive backend: every pair of every cell, in floats. It is the oracle of the others.

Contents: Exhaustive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import numpy as np

from mapsearch.quantity import Floats
from mapsearch.solver.backends.base import Outcome, Refutation, candidate_of, remaining_s
from mapsearch.solver.cells import CellProblem, evaluate
from mapsearch.solver.problem import Problem
from mapsearch.solver.top import Candidate, Key, Top


class Exhaustive:
    """Evaluates all pairs; nothing is bounded, pruned or rounded."""

    name = "exhaustive"
    features = frozenset({"exact floats"})

    def available(self) -> bool:
        """Always: it needs numpy only."""
        return True

    def best(self, problem: Problem, cells: list[CellProblem], k: int, deadline: float | None = None) -> Outcome:
        """The k best distinct mappings of the cells."""
        top = Top(k)
        for cell in cells:
            if remaining_s(deadline) <= 0.0:
                return Outcome(top.ranked, complete=False)
            for candidate in pairs_by_time(problem, cell, top):
                if top.wants(candidate.step_time_s, candidate.key):
                    top.offer(candidate)
        return Outcome(top.ranked, complete=True)

    def refute(
        self,
        problem: Problem,
        cells: Iterable[CellProblem],
        cutoff_s: float,
        known: Set[Key],
        deadline: float | None = None,
    ) -> Refutation:
        """Look at every pair that is faster than the cutoff."""
        number = literals = 0
        for cell in cells:
            if remaining_s(deadline) <= 0.0:
                return Refutation("unknown", cells=number, literals=literals)
            number += 1
            literals += len(cell.attention) + len(cell.expert)
            times = feasible_times(problem, cell)
            for flat in np.flatnonzero(times < cutoff_s):
                attention, expert = divmod(int(flat), len(cell.expert))
                witness = candidate_of(cell, attention, expert, float(times.reshape(-1)[flat]))
                if witness.key not in known:
                    return Refutation("counterexample", witness=witness, cells=number, literals=literals)
        return Refutation("proven", cells=number, literals=literals)


def feasible_times(problem: Problem, cell: CellProblem) -> Floats:
    """Step time of every pair of a cell, infinite where a relation is broken."""
    result = evaluate(problem, cell)
    return np.where(result.feasible & ~np.isnan(result.step_time_s), result.step_time_s, np.inf)


def pairs_by_time(problem: Problem, cell: CellProblem, top: Top) -> Iterator[Candidate]:
    """The feasible pairs of a cell from the fastest on, until they are slower than what the top needs."""
    times = feasible_times(problem, cell).reshape(-1)
    for flat in np.argsort(times, kind="stable"):
        if not np.isfinite(times[flat]) or times[flat] > top.cutoff_s:
            return
        attention, expert = divmod(int(flat), len(cell.expert))
        yield candidate_of(cell, attention, expert, float(times[flat]))
