"""The Python API of fronts: `pareto` returns the mappings that no other one dominates, with proof.

Contents: pareto, knee_of.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mapsearch.answer import Proof, Space
from mapsearch.api import Watch
from mapsearch.costs.estimate import point_of
from mapsearch.front import Front, FrontPoint, FrontStatus
from mapsearch.inputs import Inputs, decided, read_inputs
from mapsearch.interrupts import Interrupts, interruptible, requested
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.progress import Progress
from mapsearch.quantity import Floats
from mapsearch.solver.front import FrontSearch, front
from mapsearch.solver.objectives import UNITS, Objectives, objectives_of
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.provenance import provenance_of
from mapsearch.solver.ranking import mapping_of, ranked_mapping
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology

DEFAULT = ("step_time", "peak_memory")
NOT_LOOKED_FOR = "what binds is not looked for on a front: its neighbours say what less memory costs"


def pareto(
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology | Fabric = "asic",
    *,
    objectives: Sequence[str] | str = DEFAULT,
    profile: str | Profile | None = None,
    devices: int | None = None,
    time_limit: float | None = None,
    certify: bool = False,
    backend: str = "auto",
    progress: Watch | None = None,
) -> Front:
    """The exact front of the objectives: step_time and more of peak_memory, devices, exposed_fraction, energy, cost.

    Small spaces are enumerated as a proof; with `certify`, `backend` (auto, exhaustive, cpsat or milp) refutes every
    gap between the points. After `time_limit` seconds, or on Ctrl-C, the front so far says which region is open.
    Raises MapsearchError (InputError, MissingFact, BackendMissing) for what the user can mend.
    """
    started = time.monotonic()
    deadline = None if time_limit is None else started + time_limit
    names = [name.strip() for name in objectives.split(",")] if isinstance(objectives, str) else list(objectives)
    with Interrupts():
        inputs = decided(read_inputs(model, run, topology, profile, devices), deadline)
        asked = objectives_of(names, inputs.facts.fabric.device)
        problem = problem_of(inputs.facts)
        if certify:
            _backend_runs(backend)
        found = front(problem, asked, deadline=deadline, report=progress)
        proofs = _proofs(problem, asked, found, backend if certify else None, deadline, progress)
        return _front(problem, asked, found, proofs, inputs, time.monotonic() - started)


def _backend_runs(backend: str) -> None:
    """Refuse a backend that cannot run before the search. Raises BackendMissing, InputError."""
    from mapsearch.solver.backends import choose

    choose(backend)


def _proofs(
    problem: Problem,
    objectives: Objectives,
    found: FrontSearch,
    backend: str | None,
    deadline: float | None,
    watch: Watch | None,
) -> list[Proof]:
    """Enumeration where the space is small enough, and the gaps refuted when asked for."""
    from mapsearch.solver.front_proof import by_exhaustion, certify

    def tell(report: Progress) -> None:
        if watch is not None:
            best = found.points[0].candidate.step_time_s if found.points else None
            watch(replace(report, incumbent_s=best))

    proofs: list[Proof] = []
    if not found.complete:
        return proofs
    try:
        with interruptible():
            proof = by_exhaustion(problem, objectives, found, deadline)
        proofs += [proof] if proof else []
        if backend is not None:
            proofs.append(certify(problem, objectives, found, backend, deadline, tell))
    except KeyboardInterrupt:
        proofs.append(Proof(backend=backend or "exhaustive", status="not proven", kind="none", detail="interrupted"))
    return proofs


def _front(
    problem: Problem,
    objectives: Objectives,
    found: FrontSearch,
    proofs: list[Proof],
    inputs: Inputs,
    seconds: float,
) -> Front:
    points = _points(problem, objectives, found)
    opened = [dict(zip(objectives.names, row, strict=True)) for row in found.open_bounds.tolist()]
    notes = [*inputs.notes, *_remarks(objectives, found, points)]
    return Front(
        status=_status(found, proofs),
        objectives=list(objectives.names),
        units={name: UNITS[name] for name in objectives.names},
        points=points,
        open_region=opened,
        space=Space(
            mappings=found.mappings, cells=found.cells, pairs_evaluated=found.pairs, grid_options=found.grid_options
        ),
        proofs=proofs,
        provenance=provenance_of(inputs.named, inputs.devices),
        notes=notes,
        interrupted=found.interrupted or requested(),
        timings_s={"search": found.seconds, "all": seconds},
    )


def _status(found: FrontSearch, proofs: list[Proof]) -> FrontStatus:
    states = {proof.status for proof in proofs}
    if not found.complete or "disagrees" in states:
        return "open" if found.points else "unknown"
    if not found.points:
        return "infeasible"
    return "proven" if "proven" in states else "exact"


def _points(problem: Problem, objectives: Objectives, found: FrontSearch) -> list[FrontPoint]:
    vectors = np.array([point.values for point in found.points]).reshape(-1, len(objectives.names))
    knee = knee_of(vectors)
    # A mapping at or above an open bound may still dominate a point that is not below that bound everywhere.
    unsettled = [bool((found.open_bounds <= vector).all(axis=1).any()) for vector in vectors]
    points = []
    for place, point in enumerate(found.points):
        told = ranked_mapping(
            place + 1,
            point_of(mapping_of(point.candidate), problem.facts),
            problem.relations,
            binding_note=NOT_LOOKED_FOR,
        )
        points.append(
            FrontPoint(
                rank=place + 1,
                objectives=dict(zip(objectives.names, point.values, strict=True)),
                knee=place == knee,
                settled=not unsettled[place],
                mapping=told,
            )
        )
    return points


def knee_of(vectors: Floats) -> int | None:
    """The point farthest below the plane through the extremes of a front, each axis in logarithms from 0 to 1.

    On two axes the plane is the chord between the ends. Axes that reach zero are taken as they are; axes on which
    all points are equal are left out. None for fewer than three points.
    """
    if len(vectors) < 3:
        return None
    axes = [np.log(column) if column.min() > 0.0 else column for column in vectors.T if np.ptp(column) > 0.0]
    scaled = [(column - column.min()) / np.ptp(column) for column in axes if np.ptp(column) > 0.0]
    return int(np.argmin(np.sum(scaled, axis=0))) if len(scaled) > 1 else None


def _remarks(objectives: Objectives, found: FrontSearch, points: list[FrontPoint]) -> list[str]:
    notes = []
    if found.interrupted:
        notes.append("interrupted: this is the front so far" if points else "interrupted")
    elif not found.complete:
        notes.append("the time limit ended the search before it went through the whole space")
    if not found.complete and points:
        settled = sum(point.settled for point in points)
        notes.append(f"{settled} of {len(points)} points can no longer be dominated; others may be missing")
    if "devices" in objectives:
        notes.append(
            "parts of the cluster are whole units of one level, all or a power of two of them, inside one unit of the "
            "level above"
        )
    return notes
