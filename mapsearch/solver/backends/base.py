"""What every backend offers, and the words its results are given in.

Contents: SolverFault, Outcome, Refutation, Backend, every_table, cells_of, every_cell, pair_key, candidate_of,
remaining_s, stoppable, Tally.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

import numpy as np

from mapsearch.interrupts import requested
from mapsearch.solver.cells import CellProblem, cell_problem
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import key_of
from mapsearch.solver.space import rows_of
from mapsearch.solver.tables import Tables, tabulate
from mapsearch.solver.top import Candidate, Key

T = TypeVar("T")
POLL_S = 0.1


class SolverFault(RuntimeError):
    """A solver's solution is not what its model says: a bug in an encoding or in the solver."""


@dataclass(frozen=True)
class Outcome:
    """The best mappings that a backend found by itself."""

    candidates: list[Candidate]
    complete: bool
    """True when nothing better is left out, but for ties closer than `error_s`."""
    error_s: float = 0.0
    """Step times closer than this were not told apart inside the solver."""
    solves: int = 0
    """How often the solver was called."""


@dataclass(frozen=True)
class Refutation:
    """Whether a mapping outside the known ones can be faster than the cutoff."""

    verdict: Literal["proven", "counterexample", "unknown"]
    error_s: float = 0.0
    """Proven for step times below the cutoff less this."""
    witness: Candidate | None = None
    """The counterexample, confirmed in floats."""
    cells: int = 0
    """Cells that reached the solver; the others lost all options to their own floors."""
    literals: int = 0
    dropped: int = 0
    """Options whose own floor lies above the cutoff, or breaks a relation."""


class Backend(Protocol):
    """One way to solve cells; each is asked the same two questions."""

    name: str
    features: frozenset[str]
    """`exact floats`: no rounding; `integers`: rounding in the quantiser only; `tolerances`: more in the solver."""

    def available(self) -> bool:
        """Whether its library is installed and runs."""

    def best(self, problem: Problem, cells: list[CellProblem], k: int, deadline: float | None = None) -> Outcome:
        """The k best distinct mappings of the cells, found by this solver alone."""

    def refute(
        self,
        problem: Problem,
        cells: Iterable[CellProblem],
        cutoff_s: float,
        known: Set[Key],
        deadline: float | None = None,
    ) -> Refutation:
        """Prove that no mapping outside `known` is feasible and faster than the cutoff, or show one.

        Each cell is asked for once and let go, so that a large space may be made as it is needed.
        """


def every_table(problem: Problem, *, prune: bool = False) -> Iterator[Tables]:
    """The tables of all groups, made one after the other."""
    for used, row in rows_of(problem):
        yield from tabulate(problem, used, row, prune=prune)


def cells_of(tables: Tables) -> Iterator[CellProblem]:
    """All cells of a group that the cell relations allow, with all options that their own relations allow."""
    allowed = np.asarray(tables.allowed)[..., 0]
    for flat in np.flatnonzero(allowed):
        cell = cell_problem(tables, tuple(int(i) for i in np.unravel_index(flat, allowed.shape)))
        if len(cell.attention) and len(cell.expert):
            yield cell


def every_cell(problem: Problem, *, prune: bool = False) -> Iterator[CellProblem]:
    """All cells of a problem that can hold a mapping."""
    for tables in every_table(problem, prune=prune):
        yield from cells_of(tables)


def pair_key(cell: CellProblem, attention: int, expert: int) -> Key:
    """The key of a pair of a cell, its options counted in the cell's own lists."""
    return key_of(cell.tables, cell.index, *_positions(cell, attention, expert))


def candidate_of(cell: CellProblem, attention: int, expert: int, step_time_s: float) -> Candidate:
    """A pair of a cell as the search names it."""
    positions = _positions(cell, attention, expert)
    key = key_of(cell.tables, cell.index, *positions)
    return Candidate(step_time_s, key, cell.tables, cell.index, *positions)


def _positions(cell: CellProblem, attention: int, expert: int) -> tuple[int, int]:
    return int(cell.attention.positions[attention]), int(cell.expert.positions[expert])


def remaining_s(deadline: float | None) -> float:
    """Seconds until a deadline (a time of `time.monotonic`); infinite without one, 0 once the user wants to stop."""
    if requested():
        return 0.0
    return float("inf") if deadline is None else deadline - time.monotonic()


def stoppable(work: Callable[[], T], stop: Callable[[], None]) -> T:
    """The result of a library call that keeps signals from Python while it runs: `stop` is called on Ctrl-C.

    The call gets a thread of its own, and this one looks every tenth of a second whether the user wants to stop.
    """
    results: list[T] = []
    faults: list[BaseException] = []
    done = threading.Event()

    def call() -> None:
        try:
            results.append(work())
        except BaseException as fault:
            faults.append(fault)
        finally:
            done.set()

    threading.Thread(target=call, daemon=True).start()
    while not done.wait(POLL_S):
        if requested():
            stop()
    if faults:
        raise faults[0]
    return results[0]


@dataclass
class Tally:
    """What a refutation went through, summed over its models."""

    error_s: float = 0.0
    cells: int = 0
    literals: int = 0
    dropped: int = 0
    solves: int = field(default=0)
