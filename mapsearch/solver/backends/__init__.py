"""Solver libraries behind one interface; the only modules that import them, and only when they run.

Contents: BACKENDS, backend_named, choose.
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


def choose(name: str) -> Backend:
    """The backend that proves large spaces: `auto` takes CP-SAT, or MILP without it, or exhaustion.

    Raises InputError for an unknown name and BackendMissing when its library is absent.
    """
    if name != "auto":
        if name not in BACKENDS:
            raise InputError(f"there is no backend {name!r}; accepted: {listed(['auto', *BACKENDS])}")
        return backend_named(name)
    found: list[Backend] = [BACKENDS[each]() for each in ("cpsat", "milp", "exhaustive")]
    return next(backend for backend in found if backend.available())
