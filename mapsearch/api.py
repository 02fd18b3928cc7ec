"""The Python API: `solve` ranks the fastest mappings with proof, `check` judges one mapping.

Contents: solve, check, band_of, mapping_given.

Inputs are names of built-in documents, paths, or typed objects. A user's mistake raises MapsearchError; that nothing
fits is an answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mapsearch import documents
from mapsearch.answer import Answer, Binding, CheckReport, ErrorBand, Price, Proof, RankedMapping, Space, Status
from mapsearch.calibration.shipped import shipped
from mapsearch.costs.estimate import layout_trouble, point_of
from mapsearch.costs.views import Facts
from mapsearch.errors import UsageError
from mapsearch.inputs import Inputs, decided, read_for, read_inputs
from mapsearch.interrupts import Interrupts, interruptible, requested
from mapsearch.inventories.base import validate
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.progress import Progress
from mapsearch.solver.alternatives import idle_devices_note, prices
from mapsearch.solver.cores import core_notes, core_use
from mapsearch.solver.legality import framework_notes, joint_margins
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.provenance import provenance_of
from mapsearch.solver.prover import Prover, prover_of
from mapsearch.solver.ranking import better_layout, mapping_of, margins, ranked_mapping
from mapsearch.solver.search import Search, search
from mapsearch.solver.top import Candidate
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology

Watch = Callable[[Progress], Any]


def solve(
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology | Fabric = "asic",
    *,
    profile: str | Profile | None = None,
    devices: int | None = None,
    top: int = 10,
    backend: str = "auto",
    time_limit: float | None = None,
    require_proof: bool = False,
    proof: str = "auto",
    certify: bool = False,
    progress: Watch | None = None,
) -> Answer:
    """The `top` fastest mappings, ranked, with proof.

    `devices` takes that many devices of the topology's kind; `profile` defaults to the one that names the device;
    `backend` is auto, exhaustive, cpsat or milp, and `proof` auto or none; `certify` proves by CP-SAT and by MILP (and
    by exhaustion where that is possible), leaning on no bound of the search. After `time_limit` seconds, or on Ctrl-C,
    the answer holds the best so far with its gap; a second Ctrl-C raises KeyboardInterrupt.
    Raises MapsearchError (InputError, MissingFact, BackendMissing) for what the user can mend.
    """
    if top < 1:
        raise UsageError(f"top is {top}; ask for at least 1 mapping", field="top")
    if proof not in ("auto", "none"):
        raise UsageError(f"proof is {proof!r}; accepted: auto or none", field="proof")
    for name, asked in (("require-proof", require_proof), ("certify", certify)):
        if asked and proof == "none":
            raise UsageError(f"none and {name} exclude each other; drop one of them", field="proof")
    started = time.monotonic()
    deadline = None if time_limit is None else started + time_limit
    with Interrupts():
        inputs = decided(read_inputs(model, run, topology, profile, devices), deadline)
        problem = problem_of(inputs.facts)
        prover = prover_of(backend, certify) if proof == "auto" else None
        work = _Work(problem, top, deadline, progress)
        work.timings["read"] = time.monotonic() - started
        work.search()
        work.prove(prover)
        return work.answer(inputs)


def check(
    mapping: str | Mapping | RankedMapping,
    *,
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology | Fabric = "asic",
    profile: str | Profile | None = None,
    devices: int | None = None,
    answer_notes: Collection[str] | None = None,
) -> CheckReport:
    """One mapping: every relation with its margin, and the estimate when the mapping can be evaluated at all.

    `answer_notes`: the notes of the mapping's answer, which tell how its cluster was read where it can be read in
    several ways; without them it is the first way in which the mapping fits.
    Raises MapsearchError when an input cannot be read or the mapping does not fit the cluster's levels.
    """
    wanted = mapping_given(mapping)
    inputs = read_for(read_inputs(model, run, topology, profile, devices), wanted, answer_notes)
    problem = problem_of(inputs.facts)
    point = point_of(wanted, inputs.facts)
    notes = [*inputs.notes, *point.notes]
    trouble = layout_trouble(point)
    if trouble:
        notes.append(f"the mapping cannot be estimated: {trouble}; relations of memory and time are left out")
        judged, found = None, margins(point, problem.relations, sides=("cell", "attention", "expert"))
    else:
        better = better_layout(point, problem.relations)
        judged = ranked_mapping(1, point, problem.relations, better=better)
        found = judged.margins
    found = [*found, *joint_margins(point)]
    notes += framework_notes(point, found)
    return CheckReport(
        feasible=judged is not None and all(margin.margin >= 0.0 for margin in found),
        mapping=judged,
        margins=found,
        provenance=provenance_of(inputs.named, devices),
        notes=notes,
    )


def mapping_given(given: str | Mapping | RankedMapping) -> Mapping:
    """A mapping by path, or as an object. Raises InputError."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, RankedMapping):
        stages: Any = {"layout": given.layout, "recompute_stages": given.recompute_stages}
        data: Any = {**given.sizes, **given.choices, "placement": given.placement, **stages}
        return validate(Mapping, data, file=f"mapping {given.rank}")
    return validate(Mapping, documents.load(given), file=given)


def band_of(facts: Facts) -> ErrorBand | None:
    """How far off comparable runs were, for a profile that was fitted to some."""
    if facts.profile.evidence != "fitted":
        return None
    found = shipped().band(facts.profile, "moe" if facts.model.moe else "dense")
    if found is None:
        return None
    return ErrorBand(
        group=found.group,
        rows=found.rows,
        share=found.share,
        order_share=found.order_share,
        statement=found.rests_on,
    )


def _told_apart(mappings: list[RankedMapping], band: ErrorBand | None) -> list[RankedMapping]:
    """The ranking with those marked that the model cannot tell from the first."""
    if band is None or not mappings:
        return mappings
    reach = mappings[0].step_time_s * (1.0 + band.order_share)
    return [m.model_copy(update={"separable": m.rank == 1 or m.step_time_s > reach}) for m in mappings]


@dataclass
class _Work:
    """One solve as it goes: phases, their wall times, and whether the user stopped it."""

    problem: Problem
    top: int
    deadline: float | None
    watch: Watch | None
    found: Search | None = None
    proofs: list[Proof] = field(default_factory=list)
    interrupted: bool = False
    timings: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Any:
        """Times a phase; an interrupt ends it and is remembered."""
        started = time.monotonic()
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
        self.interrupted = self.interrupted or requested()
        self.timings[name] = time.monotonic() - started

    def late(self) -> bool:
        """True when the time limit has passed."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def search(self) -> None:
        """Find the fastest mappings."""
        with self.phase("search"):
            self.found = search(self.problem, self.top, deadline=self.deadline, report=self.watch)
            self.interrupted = self.found.interrupted

    def prove(self, prover: Prover | None) -> None:
        """Prove what the search found, when it went through the whole space."""
        if prover is None or self.found is None or self.interrupted or not self.found.complete:
            return
        with self.phase("proof"):
            self.tell("proof")
            self.proofs += prover(self.problem, self.found, self.deadline, self.watched)

    def tell(self, phase: str) -> None:
        """Report the beginning of a phase."""
        self.watched(Progress(phase))

    def watched(self, report: Progress) -> None:
        """Pass on a report of what follows the search, with what the search found."""
        if self.watch is not None and self.found is not None:
            best = self.found.top[0].step_time_s if self.found.top else None
            self.watch(replace(report, incumbent_s=best, bound_s=self.bound_s(best)))

    def bindings(self) -> list[tuple[Binding | None, str]]:
        """What binds each mapping, and what to relax."""
        from mapsearch.solver.explain.binding import bindings as explain

        count = len(self.found.top if self.found else [])
        unknown: list[tuple[Binding | None, str]] = [(None, "what binds was not looked for")] * count
        if self.interrupted or self.found is None or not unknown:
            return unknown
        if self.late():
            self.notes.append("the time limit left no time to find what binds")
            return unknown
        with self.phase("bindings"):
            self.tell("bindings")
            with interruptible():
                return list(explain(self.problem, self.found, self.deadline))
        self.notes.append("interrupted before it was known what binds")
        return unknown

    def ranked(self) -> list[RankedMapping]:
        """The found mappings, estimated and explained."""
        if self.found is None:
            return []
        bindings, started = self.bindings(), time.monotonic()
        relations = self.problem.relations
        points = [point_of(mapping_of(candidate), self.problem.facts) for candidate in self.found.top]
        ranking = [
            ranked_mapping(
                rank, point, relations, binding=binding, binding_note=note, better=better_layout(point, relations)
            )
            for rank, (point, (binding, note)) in enumerate(zip(points, bindings, strict=True), start=1)
        ]
        self.timings["estimates"] = time.monotonic() - started
        return ranking

    def conflict(self) -> dict[str, Any]:
        """Why nothing fits, and the least changes that make something fit."""
        from mapsearch.solver.explain.infeasible import explain_infeasible as explain

        if self.interrupted:
            return {}
        if self.late():
            self.notes.append("the time limit left no time to explain why nothing fits")
            return {}
        with self.phase("conflict"):
            self.tell("conflict")
            with interruptible():
                told = explain(self.problem, deadline=self.deadline)
            self.notes += told.notes
            return told.fields()
        self.notes.append("interrupted before it was known why nothing fits")
        return {}

    def status(self, mappings: list[RankedMapping]) -> Status:
        """What is known: see docs/reference/answer.md."""
        complete = self.found is not None and self.found.complete
        disagrees = any(proof.status == "disagrees" for proof in self.proofs)
        if not mappings:
            return "infeasible" if complete and not disagrees else "unknown"
        proven = any(proof.status == "proven" for proof in self.proofs)
        return "optimal" if complete and proven and not disagrees else "feasible"

    def answer(self, inputs: Inputs) -> Answer:
        """The answer, whatever phase was reached."""
        band = band_of(self.problem.facts)
        mappings = _told_apart(self.ranked(), band)
        status = self.status(mappings)
        why = self.conflict() if status == "infeasible" else {}
        best = mappings[0].step_time_s if mappings else None
        bound = self.bound_s(best)
        core = core_use(self.problem, mappings[0]) if mappings else None
        found = self.found
        return Answer(
            status=status,
            bound_s=bound,
            gap=None if best is None or bound is None else max(0.0, (best - bound) / best),
            space=Space(
                mappings=found.mappings if found else 0,
                cells=found.cells if found else 0,
                pairs_evaluated=found.pairs if found else 0,
                grid_options=found.grid_options if found else 0,
            ),
            proofs=self.proofs,
            provenance=provenance_of(inputs.named, inputs.devices),
            mappings=mappings,
            band=band,
            prices=self.prices(),
            core=core,
            notes=[*inputs.notes, *core_notes(core), *self.notes, *self.remarks(mappings, inputs.facts.fabric)],
            interrupted=self.interrupted or requested(),
            timings_s=self.timings,
            **why,
        )

    def bound_s(self, best: float | None) -> float | None:
        """Lower bound of the best step time; the best itself when the search went through the whole space."""
        if self.found is None or not 0.0 < self.found.bound_s < math.inf:
            return None
        return self.found.bound_s if best is None else min(self.found.bound_s, best)

    def best(self) -> Candidate | None:
        """The fastest mapping of a search that went through the whole space."""
        whole = self.found is not None and self.found.complete and not self.interrupted
        return self.found.top[0] if whole and self.found and self.found.top else None

    def prices(self) -> list[Price]:
        """What the run's priced placements would cost."""
        best = self.best()
        if best is None or "priced" not in self.problem.facts.run.placement.values():
            return []
        with self.phase("prices"):
            self.tell("prices")
            found, notes = prices(self.problem, best, self.deadline)
            self.notes += notes
            return found
        return []

    def idle(self) -> str:
        """Why the fastest mapping leaves devices idle; empty when that is not known."""
        best = self.best()
        if best is None:
            return ""
        with self.phase("all devices"):
            self.tell("all devices")
            return idle_devices_note(self.problem, best, self.deadline)
        return ""

    def remarks(self, mappings: list[RankedMapping], fabric: Fabric) -> list[str]:
        """What a reader should know about the search and its first mapping."""
        notes = []
        complete = self.found is not None and self.found.complete
        if self.interrupted and not complete:
            notes.append("interrupted: these are the best mappings so far" if mappings else "interrupted")
        elif not complete:
            notes.append("the time limit ended the search before it went through the whole space")
        if mappings and mappings[0].devices < fabric.devices:
            notes.append(self.idle() or f"the best mapping uses {mappings[0].devices:,} of {fabric.devices:,} devices")
        if complete and 0 < len(mappings) < self.top:
            notes.append(f"only {len(mappings)} mappings satisfy every relation")
        return notes
