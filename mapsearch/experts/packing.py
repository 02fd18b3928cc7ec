"""Few ranks with copies, exactly: heavy experts by exhaustive search with bounds, light ones by rule and exchanges.

Contents: Packed, packed.

All copies of an expert are placed at once, the heaviest expert first, so ranks that hold the same are alike and only
how many of each kind take a copy is decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mapsearch.experts.greedy import copies_of, improved
from mapsearch.solver.backends.experts import TOLERANCE, ExpertProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_HEAVY = 0.01
"""Load over the target from which on an expert's ranks are searched for."""
_MOST_HEAVY = 20
_LEAF = 100
"""What a completion by rule counts for, in steps of the search."""
_STATES = 6000
"""Steps of the search for one target."""
_ALL_STATES = 12000
"""The same for all targets together."""
_LEAVES = 40
"""Completions by rule that are tried for one target; one alone for the proof, which the first of them refutes."""
_NARROW = 5e-4
"""Bound and worst rank this near are near enough."""


class Packed(NamedTuple):
    """The best placement found, and a load that no placement's worst rank is below."""

    placement: Ints
    bound: float


def packed(problem: ExpertProblem, start: Ints, bound: float) -> Packed:
    """The best placement on a few ranks from `start` on, and a bound at least as high as the one given.

    Halves the interval between bound and worst rank: for a target in between, either heavy experts cannot be placed
    within it, whatever the light ones do, or a placement within it may come up. Near the end the target is the worst
    rank itself: no placement below it is the proof. Groups and traffic are not looked at.
    """
    best, worst = start, problem.worst(start)
    floor = low = bound  # below `floor` there is nothing, which is proven; below `low` nothing was found
    states = 0
    while worst > floor * (1.0 + TOLERANCE) and states < _ALL_STATES:
        last = worst <= low * (1.0 + _NARROW)
        search = _Search(problem, worst * (1.0 - TOLERANCE / 2.0) if last else (low + worst) / 2.0, worst)
        search.most_leaves = 1 if last else _LEAVES
        within = search.place(0, problem.copies)
        states += search.states
        if search.best is not None:
            best, worst = search.best, search.worst
        if within:
            continue
        low = min(search.target, worst)
        if search.exhausted and search.leaves == 0:
            floor = low
        if last:
            break
    return Packed(best, floor)


@dataclass
class _Search:
    """Whether experts fit on ranks of `target` each; `best` is the lightest placement that came up on the way."""

    problem: ExpertProblem
    target: float
    worst: float
    best: Ints | None = None
    most_leaves: int = _LEAVES
    states: int = 0
    leaves: int = 0
    exhausted: bool = True
    """Every way was looked at: none was left out for want of time."""
    _dead: set[tuple[object, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        p = self.problem
        self.order = np.argsort(-p.loads, kind="stable")
        self.loads: list[float] = p.loads[self.order].tolist()
        rising = self.loads[::-1]
        self.light: list[float] = [0.0, *np.cumsum(rising).tolist()]
        self.fillers = [_fillers(rising, p.slots, extra) for extra in range(p.copies + 1)]
        self.top = self.target * (1.0 + 1e-12)
        heavy = sum(load > _HEAVY * self.target for load in self.loads)
        room = self.top - self.fillers[p.copies][p.slots - 1]
        least = [min(max(1, -int(-load // room)), p.ranks + 1) if room > 0.0 else p.ranks + 1 for load in self.loads]
        split = sum(copies > 1 for copies in least)
        self.heavy = min(max(min(heavy, _MOST_HEAVY), split), p.experts)
        self.least = least
        self.needed = [sum(copies - 1 for copies in least[i:]) for i in range(p.experts + 1)]
        self.held = [0.0] * p.ranks
        self.stand: list[list[int]] = [[] for _ in range(p.ranks)]

    def place(self, expert: int, extra: int) -> bool:
        """Place the expert and all lighter ones; True when a placement within the target was found."""
        if self.states > _STATES or self.leaves >= self.most_leaves:
            self.exhausted = False
            return False
        if expert == self.heavy:
            return self._completed(extra)
        key = (expert, extra, *sorted(zip(self.held, map(len, self.stand), strict=True)))
        if key in self._dead:
            return False
        for copies in range(self.least[expert], min(self.problem.ranks, 1 + extra - self.needed[expert + 1]) + 1):
            share, left = self.loads[expert] / copies, extra - copies + 1
            for ranks in self._choices(share, copies, left):
                self.states += 1
                before = [self.held[rank] for rank in ranks]
                for rank in ranks:
                    self.held[rank] += share
                    self.stand[rank].append(expert)
                if self._fits(expert + 1, left) and self.place(expert + 1, left):
                    return True
                for rank, load in zip(ranks, before, strict=True):
                    self.held[rank] = load
                    self.stand[rank].pop()
        if self.exhausted:
            self._dead.add(key)
        return False

    def _choices(self, share: float, copies: int, extra: int) -> Iterator[list[int]]:
        """Ranks that take a copy each: how many of every kind, the lightest first."""
        slots, fillers = self.problem.slots, self.fillers[extra]
        kinds: dict[tuple[float, int], list[int]] = {}
        for rank, load in enumerate(self.held):
            used = len(self.stand[rank])
            if used < slots and load + share + fillers[slots - used - 1] <= self.top:
                kinds.setdefault((load, used), []).append(rank)
        yield from _taken([kinds[kind] for kind in sorted(kinds)], copies)

    def _fits(self, expert: int, extra: int) -> bool:
        """The fullest ranks have room for the lightest of what is left, one by one and together."""
        slots, lightest, left = self.problem.slots, self.light, self.problem.experts - expert
        room, wanted = 0.0, 0
        for load, used in sorted(zip(self.held, map(len, self.stand), strict=True), reverse=True):
            room += self.top - load
            wanted += slots - used
            if room < lightest[min(max(wanted - extra, 0), left)] * (1.0 - 1e-12):
                return False
        return True

    def _completed(self, extra: int) -> bool:
        """Light experts by rule, spare copies to the lightest or to the heaviest of them; then exchanges."""
        p = self.problem
        tail = p.loads[self.order[self.heavy :]]
        if extra > len(tail) * (p.ranks - 1):
            return False  # some copy would have no rank of its own
        self.leaves += 1
        self.states += _LEAF
        ways = [copies_of(tail, extra, p.ranks)]
        if extra:
            few = np.ones(len(tail), dtype=np.int64)
            for one in range(extra):
                few[len(tail) - 1 - one % len(tail)] += 1
            ways.append(few)
        for counts in ways:
            table = self._filled(counts)
            if table is None:
                continue
            found = improved(p, table, self.target)
            worst = p.worst(found)
            if worst < self.worst:
                self.best, self.worst = found, worst
            if worst <= self.top:
                return True
        return False

    def _filled(self, counts: Ints) -> Ints | None:
        """All copies of an expert at once, onto the lightest ranks with room; None where a copy finds none."""
        slots = self.problem.slots
        held, stand = list(self.held), [list(one) for one in self.stand]
        shares = [(self.loads[self.heavy + i] / int(c), int(c), self.heavy + i) for i, c in enumerate(counts)]
        for share, copies, expert in sorted(shares, key=lambda one: (-one[0], one[2])):
            ranks = sorted((rank for rank in range(len(held)) if len(stand[rank]) < slots), key=held.__getitem__)
            if len(ranks) < copies:
                return None
            for rank in ranks[:copies]:
                held[rank] += share
                stand[rank].append(expert)
        return np.asarray(self.order[np.array(stand)])


def _fillers(rising: list[float], slots: int, extra: int) -> list[float]:
    """Least load of 0, 1, .. slots - 1 different experts on one rank, when `extra` copies are spent on them."""
    found = [0.0]
    for number in range(1, slots):
        loads = np.array(rising[:number])
        counts = np.ones(number)
        for _ in range(extra):
            counts[int(np.argmax(loads / counts - loads / (counts + 1.0)))] += 1.0
        found.append(float((loads / counts).sum()))
    return found


def _taken(kinds: list[list[int]], copies: int) -> Iterator[list[int]]:
    """`copies` ranks out of kinds, as many of the first ones as there are first."""
    if copies == 0:
        yield []
        return
    if sum(map(len, kinds)) < copies:
        return
    for number in range(min(copies, len(kinds[0])), -1, -1):
        for others in _taken(kinds[1:], copies - number):
            yield kinds[0][:number] + others
