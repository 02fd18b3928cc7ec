"""CP-SAT on a bottleneck assignment: items to slots, the busiest resource first, then a total cost.

Contents: Instance, Assigned, assign.

Pairs of items load resources by where both stand (a quadratic assignment). Each product of two choices is a literal of
its own, tied to both choices by sums over rows and columns, which is the tightest linear form of first order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapsearch.solver.backends.base import stoppable
from mapsearch.solver.backends.cpsat import STATUS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WHOLE = 10**10
"""What the busiest resource of the start is scaled to; loads are rounded to one part in this."""


@dataclass(frozen=True)
class Instance:
    """Items, slots (at least as many), and what every pair of items does to resources and total cost."""

    pairs: Ints
    """(pairs, 2): items that load something together, each pair once."""
    load: Floats
    """(pairs, slots, slots, resources): by the slot of the first and of the second item."""
    price: Floats
    """(pairs, slots, slots): share in the total cost."""
    own: Floats
    """(items, slots, resources): what an item loads wherever the others stand."""
    own_price: Floats
    """(items, slots)."""

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self.own)

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.own_price[0])

    def value(self, slot_of: Ints) -> tuple[float, float]:
        """Busiest resource and total cost of an assignment."""
        first, second = slot_of[self.pairs[:, 0]], slot_of[self.pairs[:, 1]]
        every, each = np.arange(len(self.pairs)), np.arange(self.items)
        loads = self.load[every, first, second].sum(axis=0) + self.own[each, slot_of].sum(axis=0)
        price = self.price[every, first, second].sum() + self.own_price[each, slot_of].sum()
        return float(loads.max(initial=0.0)), float(price)


@dataclass(frozen=True)
class Assigned:
    """Slot of every item, and whether nothing is better (lexicographically, rounding aside)."""

    slot_of: Ints
    proven: bool


def assign(instance: Instance, start: Ints, seconds: float = float("inf")) -> Assigned:
    """The best assignment: least busiest resource, then least total cost. `start`: an assignment to begin with.

    The budget is CP-SAT's deterministic time, so that equal inputs give equal results.
    """
    worst = instance.value(start)[0]
    if worst <= 0.0:
        return _cheapest(instance, start, 0.0, seconds)
    first = _Model(instance, worst, start)
    top = first.cp.LinearExpr.sum([first.top])
    found, proven = first.minimised(top, seconds)
    slot_of = start if found is None else found
    if instance.value(slot_of)[0] > worst * (1.0 + 1e-9):
        slot_of = start
    best = _cheapest(instance, slot_of, instance.value(slot_of)[0], seconds)
    return Assigned(best.slot_of, proven and best.proven)


def _cheapest(instance: Instance, start: Ints, worst: float, seconds: float) -> Assigned:
    """The least total cost among assignments whose busiest resource is no busier."""
    model = _Model(instance, worst, start)
    if worst > 0.0:
        model.model.add(model.top <= WHOLE + model.rounding)
    found, proven = model.minimised(model.total(), seconds)
    return Assigned(start if found is None else found, proven)


class _Model:
    def __init__(self, instance: Instance, worst: float, start: Ints) -> None:
        from ortools.sat.python import cp_model

        self.cp: Any = cp_model
        self.model: Any = cp_model.CpModel()
        self.instance = instance
        items, slots = instance.items, instance.slots
        self.at = [[self.model.new_bool_var(f"x{i}_{p}") for p in range(slots)] for i in range(items)]
        for row in self.at:
            self.model.add_exactly_one(row)
        for p in range(slots):
            column = [row[p] for row in self.at]
            (self.model.add_exactly_one if items == slots else self.model.add_at_most_one)(column)
        self.both = [self._products(int(i), int(j)) for i, j in instance.pairs]
        self.rounding = len(instance.pairs) + items
        self.top: Any = self.model.new_int_var(0, 2 * WHOLE, "worst")
        self._resources(WHOLE / worst if worst > 0.0 else 0.0)
        for i, row in enumerate(self.at):
            for p, literal in enumerate(row):
                self.model.add_hint(literal, int(start[i]) == p)

    def _products(self, i: int, j: int) -> dict[tuple[int, int], Any]:
        """A literal per pair of different slots: the first item on one and the second on the other."""
        slots = range(self.instance.slots)
        both = {(p, q): self.model.new_bool_var("") for p in slots for q in slots if p != q}
        for p in slots:
            self.model.add(sum(both[p, q] for q in slots if q != p) == self.at[i][p])
            self.model.add(sum(both[q, p] for q in slots if q != p) == self.at[j][p])
        return both

    def _resources(self, scale: float) -> None:
        """Every resource is at most as busy as the busiest; loads rounded to the nearest whole number."""
        weighted = self.cp.LinearExpr.weighted_sum
        load = np.rint(self.instance.load * scale).astype(np.int64)
        own = np.rint(self.instance.own * scale).astype(np.int64)
        seen = set()
        for resource in range(load.shape[-1]):
            key = (load[..., resource].tobytes(), own[..., resource].tobytes())
            if key in seen:
                continue  # two links that are always equally busy
            seen.add(key)
            literals, weights = [], []
            for k, both in enumerate(self.both):
                for (p, q), literal in both.items():
                    if load[k, p, q, resource]:
                        literals.append(literal)
                        weights.append(int(load[k, p, q, resource]))
            for i, row in enumerate(self.at):
                for p, literal in enumerate(row):
                    if own[i, p, resource]:
                        literals.append(literal)
                        weights.append(int(own[i, p, resource]))
            if literals:
                self.model.add(weighted(literals, weights) <= self.top)

    def total(self) -> Any:
        """The total cost as a whole number, scaled like the loads."""
        most = (
            self.instance.price.max(axis=(1, 2), initial=0.0).sum()
            + self.instance.own_price.max(axis=1, initial=0.0).sum()
        )
        scale = WHOLE / most if most > 0.0 else 0.0
        literals, weights = [], []
        for k, both in enumerate(self.both):
            for (p, q), literal in both.items():
                literals.append(literal)
                weights.append(round(float(self.instance.price[k, p, q]) * scale))
        for i, row in enumerate(self.at):
            for p, literal in enumerate(row):
                literals.append(literal)
                weights.append(round(float(self.instance.own_price[i, p]) * scale))
        return self.cp.LinearExpr.weighted_sum(literals, weights)

    def minimised(self, objective: Any, seconds: float) -> tuple[Ints | None, bool]:
        """The best assignment that was found, and whether it is proven."""
        self.model.minimize(objective)
        solver = self.cp.CpSolver()
        parameters = solver.parameters
        parameters.num_workers = 1
        parameters.random_seed = 1
        parameters.relative_gap_limit = 0.0
        parameters.absolute_gap_limit = 0.0
        parameters.catch_sigint_signal = False
        if seconds != float("inf"):
            parameters.max_deterministic_time = seconds
        status = STATUS[solver.status_name(stoppable(lambda: solver.solve(self.model), solver.stop_search))]
        if status in ("infeasible", "stopped"):
            return None, False
        chosen = [next(p for p, literal in enumerate(row) if solver.boolean_value(literal)) for row in self.at]
        return np.array(chosen, dtype=np.int64), status == "optimal"
