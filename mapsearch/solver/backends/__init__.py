"""Solver libraries behind one interface; the only modules that import them, and only when they run.

Contents: BACKENDS, backend_named.
"""

from __future__ import annotations

from mapsearch.errors import BackendMissing, InputError, listed
from mapsearch.solver.backends.base import Backend
from mapsearch.solver.backends.cpsat import CpSat
from mapsearch.solver.backends.exhaustive import Exhaustive
from mapsearch.solver.backends.milp import Milp

BACKENDS: dict[str, type[Exhaustive] | type[CpSat] | type[Milp]] = {
    "exhaustive": Exhaustive,
    "cpsat": CpSat,
    "milp": Milp,
}
"""Backends by name."""
NEEDS = {"exhaustive": "numpy", "cpsat": "ortools", "milp": "pulp highspy"}


def backend_named(name: str) -> Backend:
    """A backend that can run. Raises InputError for an unknown name and BackendMissing when its library is absent."""
    if name not in BACKENDS:
        raise InputError(f"there is no backend {name!r}; accepted: {listed(BACKENDS)}")
    backend: Backend = BACKENDS[name]()
    if not backend.available():
        raise BackendMissing(f"backend {name} is not installed: pip install {NEEDS[name]}")
    return backend
