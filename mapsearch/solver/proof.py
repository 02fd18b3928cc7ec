"""Proofs of a ranking: by exhaustion where the space is small, otherwise by refuting anything faster than its last.

Contents: prove, solve_with, whole_space, open_cells, cutoff_of, by_itself, bound_of, both_lists, stopped, told_apart,
LEANS_ON.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from mapsearch.answer import Proof
from mapsearch.interrupts import requested
from mapsearch.progress import Progress
from mapsearch.solver.backends import backend_named, choose
from mapsearch.solver.backends.base import Backend, Outcome, Refutation, cells_of, every_table, remaining_s
from mapsearch.solver.cells import CellProblem, cell_problem
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import Search, search
from mapsearch.solver.top import Candidate

Report = Callable[[Progress], None]

MOST_PAIRS = {"exhaustive": 2_000_000, "cpsat": 20_000, "milp": 20_000}
"""Pairs of all cells together up to which a backend is given the whole space."""
MOST_CELLS = 3_000
"""Cells above which refuting the few under the cutoff is quicker than going through all."""
MOST_MAPPINGS = 50_000_000
"""Joint mappings before any relation, above which the pairs are not even counted."""
MOST_SHOWN = 20
"""Mappings of a list that are shown when two lists differ."""
QUANTITIES = "quantities, composition, options and cells as they are listed and as relations of one side allow them"
_ROUNDING = f"{QUANTITIES}; rounding within the stated error"
LEANS_ON = {
    "exhaustion": QUANTITIES,
    "all cells": _ROUNDING,
    "cells under the cutoff": f"{_ROUNDING}; the search's bounds of the other cells, memory test and dominance",
    "cutoff alone": f"{_ROUNDING}; for cells that reach no solver, intervals over all their options; "
    "none of the search's bounds, memory tests and dominance",
    "memory floor of every cell": f"{QUANTITIES}; the search's bounds of memory",
    "bounds and exact evaluation": f"{QUANTITIES}; the search's bounds, memory test and dominance",
    "none": "",
}
"""What each kind of proof takes for granted."""
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
        proof = by_itself(problem, found, oracle, cells, deadline)
    else:
        solver = choose(backend)
        tell(Progress(f"proof ({solver.name})", 0, len(found.open_cells)))
        proof = _by_refutation(problem, found, solver, deadline)
    return proof.model_copy(update={"seconds": time.monotonic() - started, "leans_on": LEANS_ON[proof.kind]})


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


def open_cells(found: Search) -> Iterator[CellProblem]:
    """Cells whose bound is not above the cutoff, with the options that no other placement beats; made one by one."""
    return (cell_problem(tables, index) for _, tables, index in found.open_cells)


def cutoff_of(found: Search) -> float:
    """Step time of the last listed mapping; infinite when fewer were found than asked for."""
    return found.top[-1].step_time_s if found.top and len(found.top) >= found.k else np.inf


def by_itself(
    problem: Problem, found: Search, oracle: Backend, cells: list[CellProblem], deadline: float | None
) -> Proof:
    """The backend ranks the whole space without seeing what the search found."""
    outcome = oracle.best(problem, cells, found.k, deadline)
    kind = "exhaustion" if "exact floats" in oracle.features else "all cells"
    size = f"{len(cells):,} cells with {sum(len(c.attention) * len(c.expert) for c in cells):,} pairs"
    difference = _difference(found.top, outcome) if outcome.complete else None
    if difference is not None:
        return Proof(backend=oracle.name, status="disagrees", kind=kind, cells=len(cells), detail=difference)
    return Proof(
        backend=oracle.name,
        status="proven" if outcome.complete else "not proven",
        kind=kind,
        cells=len(cells),
        cells_solved=len(cells) if outcome.complete else None,
        bound_s=bound_of(found, outcome.error_s) if outcome.complete else None,
        detail=f"{size}, all options" + told_apart(outcome.error_s) if outcome.complete else stopped(),
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
        return Proof(backend=solver.name, status="disagrees", kind=kind, detail=contradiction(found, result))
    proven = result.verdict == "proven"
    return Proof(
        backend=solver.name,
        status="proven" if proven else "not proven",
        kind=kind,
        cells=len(found.open_cells),
        cells_solved=result.cells,
        bound_s=bound_of(found, result.error_s) if proven else None,
        detail=_scope(found, result) if proven else stopped(),
    )


def bound_of(found: Search, error_s: float) -> float | None:
    """What every mapping that is not listed takes at least; None when there is no other mapping."""
    cutoff = cutoff_of(found)
    return cutoff - error_s if np.isfinite(cutoff) else None


def _difference(listed: list[Candidate], outcome: Outcome) -> str | None:
    """The first rank at which two lists differ by more than the backend can tell apart, and both lists."""
    for rank in range(max(len(listed), len(outcome.candidates))):
        mine, theirs = (some[rank] if rank < len(some) else None for some in (listed, outcome.candidates))
        alike = mine and theirs and abs(mine.step_time_s - theirs.step_time_s) <= outcome.error_s + _same(mine)
        if not alike:
            first = f"rank {rank + 1}: the search has {_shown(mine)}, the backend {_shown(theirs)}"
            return f"{first}; {both_lists(listed, outcome.candidates)}"
    return None


def _same(candidate: Candidate) -> float:
    return SAME * candidate.step_time_s


def contradiction(found: Search, result: Refutation) -> str:
    """A mapping that should not exist, beside the search's list."""
    last = found.top[-1] if found.top else None
    theirs = [result.witness] if result.witness else []
    first = f"the search's last is {_shown(last)}; the backend found {_shown(result.witness)}"
    return f"{first}; {both_lists(found.top, theirs)}"


def both_lists(listed: list[Candidate], theirs: list[Candidate]) -> str:
    """Both sides of a disagreement."""
    return f"the search lists {_list(listed)}; the backend lists {_list(theirs)}"


def _list(candidates: list[Candidate]) -> str:
    shown = [f"{rank}. {_shown(candidate)}" for rank, candidate in enumerate(candidates[:MOST_SHOWN], start=1)]
    more = [f"and {len(candidates) - MOST_SHOWN} more"] if len(candidates) > MOST_SHOWN else []
    return ", ".join([*shown, *more]) or "nothing"


def _shown(candidate: Candidate | None) -> str:
    return "nothing" if candidate is None else f"{candidate.step_time_s!r} s for {candidate.key}"


def _scope(found: Search, result: Refutation) -> str:
    if not found.open_cells:
        return "no cell is left by the bounds of time and memory, so no model had to be solved"
    text = (
        f"{len(found.open_cells):,} cells whose bound is not above the cutoff; {result.dropped:,} options dropped by "
        f"their own floors, {result.cells:,} cells with {result.literals:,} literals solved"
    )
    return text + told_apart(result.error_s)


def stopped() -> str:
    """Why a proof did not come to its end."""
    return "interrupted" if requested() else "time ran out"


def told_apart(error_s: float) -> str:
    """The difference that a backend cannot tell apart, in words."""
    return f"; differences below {error_s:.1e} s are not told apart" if error_s > 0.0 else ""
