"""Solve, look at the solution in floats, cut it off, solve again: what CP-SAT and MILP have in common.

Contents: Raw, Session, RoundsBackend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mapsearch.solver.backends.base import Outcome, Refutation, SolverFault, Tally, candidate_of, remaining_s
from mapsearch.solver.backends.encoding import Cut, Encoding, encode, floor_s, matching, members, parts, restricted
from mapsearch.solver.backends.exhaustive import feasible_times
from mapsearch.solver.cells import CellProblem, pair_view
from mapsearch.solver.problem import Problem
from mapsearch.solver.top import Candidate, Key, Top

EXTRA_SOLVES = 20
"""Solves beyond k for mappings that tie with the k-th within the rounding error."""


@dataclass(frozen=True)
class Raw:
    """A solver's result in the words of all backends."""

    status: Literal["optimal", "found", "infeasible", "stopped"]
    choice: tuple[int, int, int] = (-1, -1, -1)
    """Cell, attention option, expert option."""


class Session(ABC):
    """One model inside one library."""

    @abstractmethod
    def cut(self, cut: Cut) -> None:
        """Allow at most one of the cut's literals."""

    @abstractmethod
    def solve(self, seconds: float) -> Raw:
        """Solve the model as it stands."""


class RoundsBackend(ABC):
    """A backend that encodes cells, and asks its library again until floats agree."""

    name: str
    features: frozenset[str]
    tolerance: int
    """Ulps that the library may be off by."""
    most_literals: int
    """Size at which cells go to another model."""

    @abstractmethod
    def available(self) -> bool:
        """Whether the library is installed."""

    @abstractmethod
    def session(self, encoding: Encoding, at_most: int | None, *, minimise: bool) -> Session:
        """A model of the encoding, step time limited to `at_most` ulps."""

    def best(self, problem: Problem, cells: list[CellProblem], k: int, deadline: float | None = None) -> Outcome:
        """The k best distinct mappings of the cells: solved to optimality and cut off, one after the other."""
        top, tally = Top(k), Tally()
        filled = [cell for cell in cells if len(cell.attention) and len(cell.expert)]
        # Likely cells first: the sooner the cutoff is low, the smaller the models.
        filled.sort(key=lambda cell: floor_s(problem, cell))
        for chunk in parts(filled, self.most_literals):
            if not self._best_of(problem, chunk, top, tally, deadline):
                return Outcome(top.ranked, False, tally.error_s, tally.solves)
        if "tolerances" in self.features:
            return self._polished(problem, filled, top, tally, deadline)
        return Outcome(top.ranked, True, tally.error_s, tally.solves)

    def _best_of(
        self, problem: Problem, cells: list[CellProblem], top: Top, tally: Tally, deadline: float | None
    ) -> bool:
        """Offer the best mappings of one model; False when time ran out."""
        # The cutoff is that of this solver's own solutions so far.
        kept = [cell for cell, _ in (restricted(problem, cell, top.cutoff_s) for cell in cells) if len(cell.attention)]
        kept = [cell for cell in kept if len(cell.expert)]
        if not kept:
            return True
        encoding = encode(problem, kept, top.cutoff_s, self.tolerance)
        cutoff = top.cutoff_s * encoding.scale + encoding.error
        session = self.session(encoding, int(cutoff) if np.isfinite(cutoff) else None, minimise=True)
        tally.error_s = max(tally.error_s, 2 * encoding.error / encoding.scale)
        for _ in range(top.k + EXTRA_SOLVES):
            raw = self._settled(problem, encoding, session, tally, deadline)
            if raw.status in ("infeasible", "stopped"):
                return raw.status == "infeasible"
            candidate = _candidate(problem, encoding, raw)
            for cell in encoding.cells:
                _offer_placements(problem, cell.cell, candidate.key, top)
            if raw.status == "found":
                return False
            ulps = encoding.cells[raw.choice[0]].time.at(*raw.choice[1:])
            if ulps > top.cutoff_s * encoding.scale + 2 * encoding.error:
                return True
            session.cut(matching(encoding, candidate.key))
        return True

    def _polished(
        self, problem: Problem, cells: list[CellProblem], top: Top, tally: Tally, deadline: float | None
    ) -> Outcome:
        """A library with tolerances minimises roughly: refute the rest on the scale of what it found."""
        while True:
            result = self.refute(problem, cells, top.cutoff_s, set(top.by_key), deadline)
            if result.verdict != "counterexample" or result.witness is None:
                return Outcome(top.ranked, result.verdict == "proven", result.error_s, tally.solves)
            tally.solves += 1
            for cell in cells:
                _offer_placements(problem, cell, result.witness.key, top)

    def refute(
        self,
        problem: Problem,
        cells: Iterable[CellProblem],
        cutoff_s: float,
        known: Set[Key],
        deadline: float | None = None,
    ) -> Refutation:
        """Prove that nothing outside `known` is faster than the cutoff less the error, or show a counterexample."""
        tally = Tally()
        kept: list[CellProblem] = []
        for cell in cells:
            if remaining_s(deadline) <= 0.0:
                return _refutation("unknown", tally)
            if not len(cell.attention) or not len(cell.expert):
                continue
            small, dropped = restricted(problem, cell, cutoff_s)
            tally.dropped += dropped
            if len(small.attention) and len(small.expert):
                kept.append(small)
        for chunk in parts(kept, self.most_literals):
            found = self._refute_part(problem, chunk, cutoff_s, known, tally, deadline)
            if found.status != "infeasible":
                witness = found.candidate
                return _refutation("unknown" if witness is None else "counterexample", tally, witness)
        return _refutation("proven", tally)

    def _refute_part(
        self,
        problem: Problem,
        cells: list[CellProblem],
        cutoff_s: float,
        known: Set[Key],
        tally: Tally,
        deadline: float | None,
    ) -> _Found:
        encoding = encode(problem, cells, cutoff_s, self.tolerance)
        # A mapping this much faster than the cutoff satisfies the limit whatever the rounding did to it.
        limit = int(cutoff_s * encoding.scale) - encoding.error - 1 if np.isfinite(cutoff_s) else None
        session = self.session(encoding, limit, minimise=False)
        for key in sorted(known):
            cut = matching(encoding, key)
            if cut:
                session.cut(cut)
        tally.cells += len(cells)
        tally.literals += encoding.literals
        if limit is not None:
            tally.error_s = max(tally.error_s, 2 * (encoding.error + 1) / encoding.scale)
        raw = self._settled(problem, encoding, session, tally, deadline)
        if raw.status in ("infeasible", "stopped"):
            return _Found(raw.status)
        candidate = _candidate(problem, encoding, raw)
        if candidate.step_time_s >= cutoff_s or candidate.key in known:
            raise SolverFault(f"{self.name}: {candidate.key} at {candidate.step_time_s} s is no counterexample")
        return _Found("found", candidate)

    def _settled(
        self, problem: Problem, encoding: Encoding, session: Session, tally: Tally, deadline: float | None
    ) -> Raw:
        """Solve until the solution is feasible in floats, or there is none."""
        while True:
            if remaining_s(deadline) <= 0.0:
                return Raw("stopped")
            raw = session.solve(remaining_s(deadline))
            tally.solves += 1
            if raw.status in ("infeasible", "stopped"):
                return raw
            broken = _near_limit(problem, encoding, raw)
            if broken is None:
                return raw
            session.cut([broken])


@dataclass(frozen=True)
class _Found:
    status: str
    candidate: Candidate | None = None


def _refutation(
    verdict: Literal["proven", "counterexample", "unknown"], tally: Tally, witness: Candidate | None = None
) -> Refutation:
    return Refutation(verdict, tally.error_s, witness, tally.cells, tally.literals, tally.dropped)


def _candidate(problem: Problem, encoding: Encoding, raw: Raw) -> Candidate:
    """The solution in floats. Raises SolverFault when its step time is not the model's."""
    number, attention, expert = raw.choice
    encoded = encoding.cells[number]
    seconds = float(feasible_times(problem, encoded.cell)[attention, expert])
    off = abs(seconds * encoding.scale - encoded.time.at(attention, expert))
    if off > encoding.error + 1e-9 * seconds * encoding.scale:
        raise SolverFault(f"step time {seconds} s is {off} ulps away from the model's; {encoding.error} are allowed")
    return candidate_of(encoded.cell, attention, expert, seconds)


def _near_limit(problem: Problem, encoding: Encoding, raw: Raw) -> tuple[int, np.ndarray, np.ndarray] | None:
    """What to cut when floats call the solution infeasible: all such partners of its attention option.

    Raises SolverFault when a relation is broken by more than the model's allowance.
    """
    number, attention, expert = raw.choice
    encoded = encoding.cells[number]
    view = pair_view(encoded.cell)
    shape = (len(encoded.cell.attention), len(encoded.cell.expert))
    partners = np.zeros(shape[1], dtype=bool)
    for relation, (name, unit, value) in zip(problem.side("pair"), encoded.relations, strict=True):
        demand = np.broadcast_to(relation.demand(view), shape)
        limit = np.broadcast_to(relation.limit(view), shape)
        row = demand[attention] - limit[attention]
        # Floats decide as the oracle does, by comparing; the difference only says how near the limit it is.
        broken = ~(demand[attention] <= limit[attention])
        allowed = 2 * (value.error + encoding.tolerance) + 1e-9 * unit * abs(float(limit[attention, expert]))
        if broken[expert] and row[expert] * unit > allowed:
            raise SolverFault(
                f"{name} is broken by {row[expert]}, more than the {allowed / unit} that rounding explains"
            )
        partners |= broken & (row * unit <= allowed)
    if not partners[expert]:
        return None
    return number, np.array([attention]), np.flatnonzero(partners)


def _offer_placements(problem: Problem, cell: CellProblem, key: Key, top: Top) -> None:
    """Offer the best placement of a mapping in a cell: distinct mappings compare by that."""
    options = members(cell, key)
    if options is None:
        return
    times = feasible_times(problem, cell)[np.ix_(*options)]
    flat = int(np.argmin(times))
    if not np.isfinite(times.reshape(-1)[flat]):
        return
    a, e = divmod(flat, len(options[1]))
    if top.wants(float(times[a, e]), key):
        top.offer(candidate_of(cell, int(options[0][a]), int(options[1][e]), float(times[a, e])))
