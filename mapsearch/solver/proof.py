"""Proofs of a ranking: by exhaustion where the space is small, otherwise by refuting anything faster than its last.

Contents: prove, solve_with.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from mapsearch.answer import Proof
from mapsearch.interrupts import requested
from mapsearch.progress import Progress
from mapsearch.solver.backends import backend_named, choose
from mapsearch.solver.backends.base import Backend, Outcome, Refutation, cells_of, every_table, remaining_s
from mapsearch.solver.cells import CellProblem, cell_problem
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import Candidate, Search, search

Report = Callable[[Progress], None]

MOST_PAIRS = {"exhaustive": 2_000_000, "cpsat": 20_000, "milp": 20_000}
"""Pairs of all cells together up to which a backend is given the whole space."""
MOST_CELLS = 3_000
"""Cells above which refuting the few under the cutoff is quicker than going through all."""
MOST_MAPPINGS = 50_000_000
"""Joint mappings before any relation, above which the pairs are not even counted."""
SAME = 1e-9
"""Relative difference of two float sums of the same terms in another order."""


def prove(
    problem: Problem,
    found: Search,
    backend: str = "auto",
    deadline: float | None = None,
    report: Report | None = None,
) -> Proof:
    """Prove that no mapping that is not listed is faster than the listed ones, or that there is no other at all.

    `auto` enumerates a small space, and leaves the cells under the cutoff of a large one to CP-SAT. A named backend
    solves a small space by itself and is compared; of a large one it refutes the same cells.
    Raises BackendMissing, InputError.
    """
    started = time.monotonic()
    tell = report or (lambda _progress: None)
    if not found.complete:
        # Cells may be missing that the search did not come to; nothing can be said about those.
        return Proof(backend=choose(backend).name, status="not proven", kind="none", detail="the search was cut short")
    oracle = backend_named("exhaustive") if backend == "auto" else backend_named(backend)
    cells = whole_space(problem, found.mappings, MOST_PAIRS[oracle.name], deadline)
    if cells is not None:
        tell(Progress(f"proof ({oracle.name})", 0, len(cells)))
        proof = _by_itself(problem, found, oracle, cells, deadline)
    else:
        solver = choose(backend)
        tell(Progress(f"proof ({solver.name})", 0, len(found.open_cells)))
        proof = _by_refutation(problem, found, solver, deadline)
    return proof.model_copy(update={"seconds": time.monotonic() - started})


def solve_with(problem: Problem, backend: str, k: int, deadline: float | None = None) -> list[Candidate]:
    """The k best mappings by one backend: alone on a small space, else by the search with that backend's refutation.

    Raises BackendMissing, InputError.
    """
    solver = choose(backend)
    found = search(problem, k, deadline=deadline)
    cells = whole_space(problem, found.mappings, MOST_PAIRS[solver.name], deadline)
    if cells is not None:
        return solver.best(problem, cells, k, deadline).candidates
    result = solver.refute(problem, open_cells(found), cutoff_of(found), {c.key for c in found.top}, deadline)
    if result.witness is None:
        return found.top
    return sorted([*found.top, result.witness], key=lambda candidate: candidate.order)[:k]


def whole_space(
    problem: Problem, mappings: int, most_pairs: int, deadline: float | None = None
) -> list[CellProblem] | None:
    """All cells with all options, nothing bounded or pruned; None when there are too many pairs."""
    if mappings > MOST_MAPPINGS:
        return None
    cells: list[CellProblem] = []
    pairs = allowed = 0
    for tables in every_table(problem, prune=False):
        allowed += int(tables.allowed.sum())
        if allowed > MOST_CELLS:
            return None
        for cell in cells_of(tables):
            pairs += len(cell.attention) * len(cell.expert)
            if pairs > most_pairs or remaining_s(deadline) <= 0.0:
                return None
            cells.append(cell)
    return cells


def open_cells(found: Search) -> list[CellProblem]:
    """Cells whose bound is not above the cutoff, with the options that no other placement beats."""
    return [cell_problem(tables, index) for _, tables, index in found.open_cells]


def cutoff_of(found: Search) -> float:
    """Step time of the last listed mapping; infinite when fewer were found than asked for."""
    return found.top[-1].step_time_s if found.top and len(found.top) >= found.k else np.inf


def _by_itself(
    problem: Problem, found: Search, oracle: Backend, cells: list[CellProblem], deadline: float | None
) -> Proof:
    """The backend ranks the whole space without seeing what the search found."""
    outcome = oracle.best(problem, cells, found.k, deadline)
    kind = "exhaustion" if "exact floats" in oracle.features else "all cells"
    size = f"{len(cells):,} cells with {sum(len(c.attention) * len(c.expert) for c in cells):,} pairs"
    difference = _difference(found.top, outcome) if outcome.complete else None
    if difference is not None:
        return Proof(backend=oracle.name, status="disagrees", kind=kind, detail=difference)
    return Proof(
        backend=oracle.name,
        status="proven" if outcome.complete else "not proven",
        kind=kind,
        bound_s=_bound(found, outcome.error_s) if outcome.complete else None,
        detail=f"{size}, all options" + _told_apart(outcome.error_s) if outcome.complete else _stopped(),
    )


def _by_refutation(problem: Problem, found: Search, solver: Backend, deadline: float | None) -> Proof:
    if not found.top and not found.open_cells:
        return Proof(
            backend="bounds",
            status="proven",
            kind="memory floor of every cell",
            detail="in every cell that rules allow, the smallest options of both grids do not fit on some stage",
        )
    cutoff = cutoff_of(found)
    result = solver.refute(problem, open_cells(found), cutoff, {c.key for c in found.top}, deadline)
    kind = "cells under the cutoff"
    if result.witness is not None:
        return Proof(backend=solver.name, status="disagrees", kind=kind, detail=_contradiction(found, result))
    proven = result.verdict == "proven"
    return Proof(
        backend=solver.name,
        status="proven" if proven else "not proven",
        kind=kind,
        bound_s=_bound(found, result.error_s) if proven else None,
        detail=_scope(found, result) if proven else _stopped(),
    )


def _bound(found: Search, error_s: float) -> float | None:
    """What every mapping that is not listed takes at least; None when there is no other mapping."""
    cutoff = cutoff_of(found)
    return cutoff - error_s if np.isfinite(cutoff) else None


def _difference(listed: list[Candidate], outcome: Outcome) -> str | None:
    """The first rank at which two lists differ by more than the backend can tell apart, both sides printed."""
    for rank in range(max(len(listed), len(outcome.candidates))):
        pair = [some[rank] if rank < len(some) else None for some in (listed, outcome.candidates)]
        mine, theirs = pair
        if mine is None or theirs is None:
            return f"rank {rank + 1}: the search has {_shown(mine)}, the backend {_shown(theirs)}"
        if abs(mine.step_time_s - theirs.step_time_s) > outcome.error_s + SAME * mine.step_time_s:
            return f"rank {rank + 1}: the search has {_shown(mine)}, the backend {_shown(theirs)}"
    return None


def _contradiction(found: Search, result: Refutation) -> str:
    last = found.top[-1] if found.top else None
    return f"the search's last is {_shown(last)}; the backend found {_shown(result.witness)}"


def _shown(candidate: Candidate | None) -> str:
    return "nothing" if candidate is None else f"{candidate.step_time_s!r} s for {candidate.key}"


def _scope(found: Search, result: Refutation) -> str:
    if not found.open_cells:
        return "no cell is left by the bounds of time and memory, so no model had to be solved"
    text = (
        f"{len(found.open_cells):,} cells whose bound is not above the cutoff; {result.dropped:,} options dropped by "
        f"their own floors, {result.cells:,} cells with {result.literals:,} literals solved"
    )
    return text + _told_apart(result.error_s)


def _stopped() -> str:
    return "interrupted" if requested() else "time ran out"


def _told_apart(error_s: float) -> str:
    return f"; differences below {error_s:.1e} s are not told apart" if error_s > 0.0 else ""
