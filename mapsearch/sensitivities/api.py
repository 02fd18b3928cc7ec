"""The Python API of parametric answers: `sensitivity` is the optimum as a function of one input.

Contents: sensitivity, POINTS, TOLERANCE.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mapsearch.answer import Proof
from mapsearch.api import Watch
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError, UsageError
from mapsearch.inputs import Inputs, decided, read_inputs
from mapsearch.interrupts import Interrupts, interruptible, requested
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.parametric import Sensitivity
from mapsearch.sensitivities.exact import certified, step_objectives, steps_of
from mapsearch.sensitivities.inputs import MOST, Varied, at_value, check_level, ladder, read_over, spread
from mapsearch.sensitivities.results import from_samples, from_steps
from mapsearch.sensitivities.sampled import Sampler, refine
from mapsearch.solver.front import FrontSearch, front
from mapsearch.solver.objectives import Objectives
from mapsearch.solver.problem import problem_of
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology

POINTS = 5
"""Values of a range that are solved before it is refined."""
TOLERANCE = 0.01
"""Largest width of a bracket as a share of its upper end."""


def sensitivity(
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology | Fabric = "asic",
    *,
    over: str,
    profile: str | Profile | None = None,
    devices: int | None = None,
    points: int | None = None,
    tolerance: float = TOLERANCE,
    time_limit: float | None = None,
    certify: bool = False,
    backend: str = "auto",
    progress: Watch | None = None,
) -> Sensitivity:
    """The fastest mapping as a function of one input: `over="hbm=64GB..256GB"`.

    hbm and exposed_limit: every breakpoint, exactly. bandwidth.LEVEL and capacity_factor: solved at `points` values,
    each change of mapping bracketed to `tolerance`. devices and sequence_length: solved at doubled values, at `points`
    of them, or at those of a list. With `certify`, `backend` proves every piece. After `time_limit` seconds, or on
    Ctrl-C, the pieces so far say what is open.
    Raises MapsearchError (InputError, MissingFact, BackendMissing) for what the user can mend.
    """
    started = time.monotonic()
    varied = read_over(over)
    _check(varied, points, tolerance, devices)
    with Interrupts():
        # The given topology may lack the devices that one asks for: then its own size is as good as any to start from.
        deadline = None if time_limit is None else started + time_limit
        inputs = decided(read_inputs(model, run, topology, profile, devices), deadline)
        check_level(varied, inputs.facts)
        if certify:
            from mapsearch.solver.backends import choose

            choose(backend)
        work = _Work(
            varied,
            inputs,
            lambda count: read_inputs(model, run, topology, profile, count),
            deadline,
            backend if certify else None,
            progress or (lambda _progress: None),
        )
        result = work.exact() if varied.kind.breakpoints == "exact" else work.sampled(points, tolerance)
    return result.model_copy(update={"timings_s": {"all": time.monotonic() - started}})


def _check(varied: Varied, points: int | None, tolerance: float, devices: int | None) -> None:
    """Refuse what does not go together before the search. Raises UsageError."""
    if points is not None and not 1 <= points <= MOST:
        raise UsageError(f"{points} values cannot be solved; give 1 to {MOST}", field="points")
    if points is not None and varied.kind.breakpoints == "exact":
        raise UsageError(f"every breakpoint of {varied.name} is found, so there are none to choose", field="points")
    if points is not None and not varied.is_range:
        raise UsageError("a list says itself which values are solved; leave one of both out", field="points")
    if points == 1 and varied.kind.breakpoints == "bracketed":
        raise UsageError("1 value shows no change; give at least 2", field="points")
    if not 1e-6 <= tolerance < 1.0:
        raise UsageError(f"{tolerance:g} is not a share from 0.000001 to 1", field="tolerance")
    if devices is not None and varied.name == "devices":
        raise UsageError("is given and varied as well; leave one of both out", field="devices")


@dataclass
class _Work:
    """One sensitivity as it goes."""

    varied: Varied
    inputs: Inputs
    scaled_to: Callable[[int], Inputs]
    deadline: float | None
    backend: str | None
    tell: Watch
    notes: list[str] = field(default_factory=list)

    def facts_at(self, value: float) -> Facts:
        """The facts with the input at a value."""
        return at_value(self.varied, value, self.inputs, self.scaled_to)

    def exact(self) -> Sensitivity:
        """One front at the upper end of the range has every breakpoint."""
        low, high = self.varied.values
        problem = problem_of(self.facts_at(high))
        objectives = step_objectives(self.varied.name, low, self.inputs.facts)
        found = front(problem, objectives, deadline=self.deadline, report=self.tell)
        proofs: list[Proof] = []
        steps = steps_of(self.varied.name, found, self.facts_at, low, high)
        if found.complete:
            try:
                with interruptible():
                    proofs += self._enumerated(high, objectives, found)
                if self.backend is not None:
                    proofs.append(self._refuted(high, objectives, found))
            except KeyboardInterrupt:
                detail = {"status": "not proven", "kind": "none", "detail": "interrupted"}
                proofs.append(Proof.model_validate({"backend": self.backend or "exhaustive", **detail}))
        return from_steps(self.varied, self.inputs, self.facts_at, found, steps, proofs, self.notes)

    def _enumerated(self, high: float, objectives: Objectives, found: FrontSearch) -> list[Proof]:
        from mapsearch.solver.front_proof import by_exhaustion

        proof = by_exhaustion(problem_of(self.facts_at(high)), objectives, found, self.deadline)
        return [proof] if proof else []

    def _refuted(self, high: float, objectives: Objectives, found: FrontSearch) -> Proof:
        """Every gap between the steps is refuted; a limit that no gap can state is solved again piece by piece."""
        from mapsearch.solver.front_proof import certify

        assert self.backend is not None
        if self.varied.name == "hbm":
            return certify(
                problem_of(self.facts_at(high)), objectives, found, self.backend, self.deadline, self.tell
            )  # fmt: skip
        steps = steps_of(self.varied.name, found, self.facts_at, self.varied.values[0], high)
        return certified(steps, self.facts_at, self.backend, self.deadline, self.tell)

    def sampled(self, points: int | None, tolerance: float) -> Sensitivity:
        """Values solved one by one; between them the mappings' own times say where to look."""
        sampler = Sampler(self.facts_at, self.deadline, self.tell, self.backend)
        varied = self.varied
        if varied.kind.whole:
            for value in ladder(varied, points, self.possible):
                sampler.solve(value)
        else:
            low, high = varied.values[0], varied.values[-1]
            values = spread(low, high, points or POINTS) if varied.is_range else list(varied.values)
            # Both ends first: a search that is cut short still covers the range.
            refine(sampler, [*dict.fromkeys([values[0], values[-1], *values])], tolerance)
        if requested():
            sampler.interrupted = True
        return from_samples(varied, self.inputs, sampler, self.notes, tolerance)

    def possible(self, value: int) -> bool:
        """Whether the inputs can have this value; what cannot is noted."""
        try:
            self.facts_at(float(value))
        except UsageError:
            raise
        except InputError as problem:
            self.notes.append(f"{value:,} is left out: {problem.problem}")
            return False
        return True
