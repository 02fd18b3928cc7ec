"""The Python API of rules of thumb: `guidelines` tries each on one model and cluster.

Contents: RULES, guidelines.
"""

from __future__ import annotations

import time

from mapsearch.api import Watch, band_of
from mapsearch.guideline import Guideline, Guidelines
from mapsearch.hypotheses.fp8 import FP8
from mapsearch.hypotheses.place import PLACE
from mapsearch.hypotheses.sizes import SIZES
from mapsearch.hypotheses.trial import Rule, Trial
from mapsearch.inputs import read_inputs
from mapsearch.interrupts import Interrupts, interruptible
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.progress import Progress
from mapsearch.solver.explain.probe import OutOfTime
from mapsearch.solver.problem import problem_of
from mapsearch.solver.provenance import provenance_of
from mapsearch.solver.search import search
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology

RULES: tuple[Rule, ...] = (*SIZES, *PLACE, *FP8)
"""Every rule of thumb that is tried, in the order in which it is told."""


def guidelines(
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology | Fabric = "asic",
    *,
    profile: str | Profile | None = None,
    devices: int | None = None,
    time_limit: float | None = None,
    progress: Watch | None = None,
) -> Guidelines:
    """Megatron Core's advice for MoE training as hypotheses: each searched with and without it (FORMULAS 2).

    After `time_limit` seconds, or on Ctrl-C, what was not tried yet is `unknown`.
    Raises MapsearchError (InputError, MissingFact) for what the user can mend.
    """
    started = time.monotonic()
    tell: Watch = progress or (lambda _progress: None)
    with Interrupts():
        inputs = read_inputs(model, run, topology, profile, devices)
        deadline = None if time_limit is None else started + time_limit
        problem = problem_of(inputs.facts)
        found = search(problem, 1, deadline=deadline, report=tell)
        notes, tried, stopped = list(inputs.notes), [], found.interrupted
        best = found.top[0] if found.top else None
        trial = Trial(problem, best, band_of(inputs.facts), deadline) if best else None
        for number, rule in enumerate(RULES if trial is not None else ()):
            tell(Progress(f"guideline: {rule.name}", number, len(RULES), best.step_time_s if best else None))
            assert trial is not None
            one = None if stopped else _tried(trial, rule)
            stopped = stopped or one is None
            tried.append(one or _unknown(rule, "stopped before it was tried"))
        complete = found.complete and all(one.outcome != "unknown" for one in tried)
        status = "exact" if complete else "feasible" if best else "unknown"
        return Guidelines(
            status="infeasible" if found.complete and best is None else status,
            mapping=trial.ranked(best) if trial and best else None,
            guidelines=tried,
            provenance=provenance_of(inputs.named, inputs.devices),
            notes=notes,
            interrupted=stopped,
            timings_s={"guidelines": time.monotonic() - started},
        )


def _tried(trial: Trial, rule: Rule) -> Guideline | None:
    """What came of one rule; None when the user stopped it."""
    try:
        with interruptible():
            return rule.ask(trial, rule)
    except OutOfTime:
        return _unknown(rule, "no time was left to try it")
    except KeyboardInterrupt:
        return None


def _unknown(rule: Rule, why: str) -> Guideline:
    return Guideline(name=rule.name, statement=rule.statement, source=rule.source, outcome="unknown", sentences=[why])
