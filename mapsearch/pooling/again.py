"""Joint searches again, for questions that differ in one number from one whose best pair is known.

Contents: Again.
"""

from __future__ import annotations

from mapsearch.pooling.levers import PoolLever
from mapsearch.pooling.objective import Objective
from mapsearch.pooling.problem import Pools
from mapsearch.pooling.split import Kept, Pair, best_pair
from mapsearch.solver.explain.probe import OutOfTime

SAME_SERVING = ("versions", "held_batches", "link", "path", "every")
"""Inputs that leave both the training side and every way to serve as they are."""


class Again:
    """Best pairs of changed questions; each is searched once, and training searches are shared where they can be."""

    def __init__(self, pools: Pools, objective: Objective, deadline: float | None) -> None:
        self.pools = pools
        self.objective = objective
        self.deadline = deadline
        self._kept = Kept(pools, objective.pays)
        self._found: dict[tuple[str, str, float], Pair | None] = {}

    def best(self, lever: PoolLever, value: float) -> Pair | None:
        """The best pair with an input at a value. Raises OutOfTime, and InputError where the cluster cannot have it."""
        key = (lever.name, lever.choice, value)
        if key not in self._found:
            asked = lever.at(value)
            trained = None if lever.trains else self._kept.trainer
            kept = self._kept if lever.name in SAME_SERVING else Kept(asked, self.objective.pays, trained)
            found = best_pair(asked, self.deadline, objective=self.objective, kept=kept)
            if found.interrupted:
                raise KeyboardInterrupt
            if not found.complete:
                raise OutOfTime
            self._found[key] = found.best
        return self._found[key]
