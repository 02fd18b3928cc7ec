"""Who proves what a search found: one backend or all of them. Solver code is imported when a proof is asked for.

Contents: Prover, prover_of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mapsearch.answer import Proof
from mapsearch.progress import Progress
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import Search

Prover = Callable[[Problem, Search, float | None, Callable[[Progress], Any]], list[Proof]]
"""The proofs of a search, until a deadline."""


def prover_of(backend: str, certified: bool) -> Prover:
    """The function that proves a search with this backend, or certifies it. Raises BackendMissing, InputError."""
    from mapsearch.solver.backends import backend_named, choose
    from mapsearch.solver.certify import SOLVERS, certify
    from mapsearch.solver.proof import prove

    choose(backend)
    if not certified:
        return lambda problem, found, deadline, watch: [prove(problem, found, backend, deadline, watch)]
    # All that will be needed, before the search starts.
    for name in SOLVERS if backend == "auto" else ():
        backend_named(name)
    return lambda problem, found, deadline, watch: certify(problem, found, backend, deadline, watch)
