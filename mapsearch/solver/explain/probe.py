"""One explanation's questions to the search, each answered once: can this set of relations be satisfied, does this fit.

Contents: OutOfTime, Probe, kept, certified.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from dataclasses import replace
from functools import cached_property

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.estimate import point_of
from mapsearch.relation import Relation
from mapsearch.solver.explain.leanest import Leanest, fitting, floor_bytes, leanest
from mapsearch.solver.explain.masks import Masks
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import mapping_of, margins
from mapsearch.solver.search import search
from mapsearch.solver.top import Candidate

MEMORY = ("hbm", "host_memory", "nvme_capacity")
"""Pair relations that are answered without looking at times."""
WIDE = 2
"""Larger sets of relations that are tried before the set that is asked about."""
SAME = 1e-9
"""Relative difference of two float sums of the same terms in another order."""


class OutOfTime(Exception):
    """The time limit passed before a question was answered."""


class Probe:
    """A problem that is asked what subsets of its relations allow; relations of a pair hold only where layers lie."""

    def __init__(self, problem: Problem, deadline: float | None = None) -> None:
        self.problem = problem
        self.deadline = deadline
        self._witnesses: dict[frozenset[str], frozenset[str] | None] = {}
        self._leanest: dict[frozenset[str], Leanest | None] = {}

    @cached_property
    def masks(self) -> Masks:
        """What each relation of cells and grids accepts."""
        self.hurry()
        return Masks(self.problem)

    def hurry(self) -> None:
        """Raises OutOfTime when the time is over."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTime

    def subset(self, relations: Iterable[Relation]) -> Problem:
        """The problem with only these relations, in their usual order."""
        return self.subset_of({relation.name for relation in relations})

    def subset_of(self, names: Container[str]) -> Problem:
        """The problem with only the relations of these names."""
        return replace(self.problem, relations=tuple(r for r in self.problem.relations if r.name in names))

    def satisfiable(self, relations: Iterable[Relation]) -> bool:
        """Whether some mapping satisfies all of these relations."""
        return self.witness(relation.name for relation in relations) is not None

    def witness(self, names: Iterable[str]) -> frozenset[str] | None:
        """All relations that one mapping satisfies, the named ones among them; None when no mapping does."""
        asked = frozenset(names)
        if asked not in self._witnesses:
            self.hurry()
            self._witnesses[asked] = self._found(asked)
        return self._witnesses[asked]

    def _found(self, asked: frozenset[str]) -> frozenset[str] | None:
        pair = {relation.name for relation in self.problem.side("pair")} & asked
        every = frozenset(relation.name for relation in self.masks.relations)
        wide = [every - broken for broken in self.masks.least_broken if not broken & asked]
        if not wide or not pair:
            return wide[0] if wide else None
        # A mapping that keeps more than what is asked for answers more questions, and is found in a smaller space.
        for more in dict.fromkeys((*(names | pair for names in wide[:WIDE]), asked)):
            candidate = self.fits(self.subset_of(more))
            if candidate is not None:
                return more | kept(self.problem, candidate)
        return None

    def leanest(self, relations: Iterable[Relation]) -> Leanest | None:
        """The mapping with the least peak under these relations, of which HBM and exposure do not count."""
        part = self.subset(relations)
        names = frozenset(r.name for r in part.relations if r.side != "pair" or r.name in MEMORY[1:])
        if names not in self._leanest:
            self.hurry()
            self._leanest[names] = leanest(part)
        return self._leanest[names]

    def fits(self, problem: Problem) -> Candidate | None:
        """A mapping that satisfies all relations of a problem, be it of this one's facts or of others; else None."""
        self.hurry()
        limited = any(relation.name == "hbm" for relation in problem.relations)
        limit = usable_hbm_bytes(problem.facts) if limited else float("inf")
        if floor_bytes(problem, problem.facts.fabric.devices) > limit:
            return None
        lean = fitting(problem, limit)
        if lean is None:
            return None
        if all(relation.name in MEMORY for relation in problem.side("pair")):
            return lean.candidate
        return self.fastest(problem, first=True)

    def fastest(self, problem: Problem, *, first: bool = False) -> Candidate | None:
        """The fastest mapping of a problem, or the first found. Raises OutOfTime when the time ends before that."""
        self.hurry()
        # Of placements that differ, the pruned ones are dominated only while microbatches are whole.
        found = search(problem, 1, prune=problem.whole_batches, deadline=self.deadline, first=first)
        if found.interrupted:
            raise KeyboardInterrupt
        if not found.top and not found.complete:
            raise OutOfTime
        return found.top[0] if found.top else None


def kept(problem: Problem, candidate: Candidate) -> frozenset[str]:
    """The relations of a problem that the estimate of this one mapping satisfies."""
    judged = margins(point_of(mapping_of(candidate), problem.facts), problem.relations)
    return frozenset(margin.relation for margin in judged if margin.margin >= 0.0)


def certified(problem: Problem, candidate: Candidate) -> bool:
    """Whether the estimate of this one mapping satisfies every relation of a problem."""
    judged = margins(point_of(mapping_of(candidate), problem.facts), problem.relations)
    return all(margin.margin >= -SAME * abs(margin.limit) for margin in judged)
