"""Certifying a ranking: the decomposition's own statement, and every backend by itself, none leaning on its bounds.

Contents: certify.

A small space is ranked by each backend alone. Of a large one each backend holds every cell against the cutoff: tables
are made anew with all options (no dominance, no memory test), and a cell reaches no model only when intervals over all
of its options (`sieve.py`, which shares no code with the search's bounds) exclude it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from mapsearch.answer import Proof
from mapsearch.progress import Progress
from mapsearch.solver.backends import backend_named
from mapsearch.solver.backends.base import Backend, Refutation, SolverFault, remaining_s
from mapsearch.solver.cells import CellProblem, cell_problem
from mapsearch.solver.problem import Problem
from mapsearch.solver.proof import (
    LEANS_ON,
    MOST_PAIRS,
    bound_of,
    by_itself,
    contradiction,
    cutoff_of,
    prove,
    stopped,
    told_apart,
    whole_space,
)
from mapsearch.solver.search import Search
from mapsearch.solver.sieve import sieved
from mapsearch.solver.space import rows_of
from mapsearch.solver.tables import tabulate

Report = Callable[[Progress], None]
SOLVERS = ("cpsat", "milp")
"""Backends that certify whatever the size of the space."""
KIND = "cutoff alone"
DISAGREES = "the model and the floats of a backend differ"


def certify(
    problem: Problem,
    found: Search,
    backend: str = "auto",
    deadline: float | None = None,
    report: Report | None = None,
) -> list[Proof]:
    """The decomposition's statement and the proofs of CP-SAT, MILP and, on a small space, exhaustion.

    A named backend alone certifies instead of all of them. The quick proof of a large space comes first, so that a
    time limit which ends the others leaves one. Raises BackendMissing, InputError.
    """
    tell = report or (lambda _progress: None)
    solvers = [backend_named(name) for name in (SOLVERS if backend == "auto" else (backend,))]
    proofs = [_statement(found)]
    if not found.complete:
        detail = "the search was cut short"
        return [*proofs, *(Proof(backend=s.name, status="not proven", kind="none", detail=detail) for s in solvers)]
    cells = whole_space(problem, found.mappings, MOST_PAIRS["exhaustive"], deadline)
    if cells is not None and backend == "auto":
        solvers.insert(0, backend_named("exhaustive"))
    elif backend == "auto":
        proofs.append(prove(problem, found, backend, deadline, report))
    pairs = sum(len(cell.attention) * len(cell.expert) for cell in cells or [])
    large: list[_Run] = []
    for solver in solvers:
        if cells is not None and pairs <= MOST_PAIRS[solver.name]:
            tell(Progress(f"proof ({solver.name})", 0, len(cells)))
            proofs.append(_alone(problem, found, solver, cells, deadline))
        else:
            large.append(_Run(solver))
    if large:
        _hold(problem, found, large, deadline, tell)
    proofs += [_proof(found, run) for run in large]
    return [proof.model_copy(update={"leans_on": LEANS_ON[proof.kind]}) for proof in proofs]


def _statement(found: Search) -> Proof:
    """What the decomposition says of itself."""
    kind = "bounds and exact evaluation"
    whole = f"{found.cells:,} cells by their bounds, {found.pairs:,} pairs evaluated exactly"
    return Proof(
        backend="decomposition",
        status="exact" if found.complete else "not proven",
        kind=kind,
        leans_on=LEANS_ON[kind],
        cells=found.cells if found.complete else None,
        bound_s=bound_of(found, 0.0) if found.complete else None,
        seconds=found.seconds,
        detail=whole if found.complete else "the search was cut short",
    )


def _alone(problem: Problem, found: Search, solver: Backend, cells: list[CellProblem], deadline: float | None) -> Proof:
    """The backend ranks the whole space by itself; a model that contradicts its own floats is a disagreement."""
    started = time.monotonic()
    try:
        proof = by_itself(problem, found, solver, cells, deadline)
    except SolverFault as fault:
        proof = Proof(backend=solver.name, status="disagrees", kind="all cells", detail=f"{DISAGREES}: {fault}")
    return proof.model_copy(update={"seconds": time.monotonic() - started})


@dataclass
class _Run:
    """One backend on its way through all groups of cells."""

    solver: Backend
    total: Refutation = field(default_factory=lambda: Refutation("proven"))
    covered: int = 0
    """Cells of the groups that it came through."""
    excluded: int = 0
    """Of these, cells that intervals exclude."""
    seconds: float = 0.0
    """Tables and intervals, which all backends share, included."""
    fault: str = ""

    @property
    def running(self) -> bool:
        """False once it found something or ran out of time."""
        return self.total.verdict == "proven" and not self.fault


def _hold(problem: Problem, found: Search, runs: list[_Run], deadline: float | None, tell: Report) -> None:
    """Hold every cell of the space against the cutoff, group by group so that memory stays small."""
    cutoff, known = cutoff_of(found), {candidate.key for candidate in found.top}
    rows, last = rows_of(problem), time.monotonic()
    for number, (used, row) in enumerate(rows):
        tell(Progress("certify", number, len(rows)))
        for tables in tabulate(problem, used, row, prune=False, reach=np.inf):
            if remaining_s(deadline) <= 0.0:
                for run in runs:
                    run.total = replace(run.total, verdict="unknown" if run.running else run.total.verdict)
                return
            kept = sieved(problem, tables, cutoff)
            cells = [cell_problem(tables, index) for index in kept.left]
            shared_s = time.monotonic() - last
            for run in runs:
                if run.running:
                    run.seconds += shared_s
                    _refute(problem, run, cells, cutoff, known, deadline)
                if run.running:  # still: it came through all of them
                    run.covered += kept.cells
                    run.excluded += kept.cells - len(cells)
            last = time.monotonic()


def _refute(
    problem: Problem,
    run: _Run,
    cells: list[CellProblem],
    cutoff: float,
    known: set[tuple[int, ...]],
    deadline: float | None,
) -> None:
    """Add what a backend says of one group's cells to what it said of the others."""
    started = time.monotonic()
    before = run.total
    try:
        here = run.solver.refute(problem, cells, cutoff, known, deadline)
    except SolverFault as fault:
        run.fault = str(fault)
        return
    run.total = replace(
        here,
        error_s=max(before.error_s, here.error_s),
        cells=before.cells + here.cells,
        literals=before.literals + here.literals,
        dropped=before.dropped + here.dropped,
    )
    run.seconds += time.monotonic() - started


def _proof(found: Search, run: _Run) -> Proof:
    name, total = run.solver.name, run.total
    if run.fault or total.witness is not None:
        detail = f"{DISAGREES}: {run.fault}" if run.fault else contradiction(found, total)
        return Proof(backend=name, status="disagrees", kind=KIND, seconds=run.seconds, detail=detail)
    proven = total.verdict == "proven"
    seen = (
        f"{run.covered:,} cells with all options held against the cutoff: {run.excluded:,} excluded by intervals of "
        f"time and memory, {run.covered - run.excluded:,} given to the backend; {total.dropped:,} options dropped by "
        f"their own floors, {total.cells:,} cells with {total.literals:,} literals solved"
    )
    return Proof(
        backend=name,
        status="proven" if proven else "not proven",
        kind=KIND,
        cells=run.covered,
        cells_solved=total.cells,
        bound_s=bound_of(found, total.error_s) if proven else None,
        seconds=run.seconds,
        detail=seen + told_apart(total.error_s) if proven else f"{stopped()}; until then {seen}",
    )
