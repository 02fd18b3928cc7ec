"""The Python API of explanations: `explain` says what binds, what rules cost, why nothing fits, and why not that one.

Contents: explain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from mapsearch.answer import Answer, RankedMapping, Space
from mapsearch.api import Watch
from mapsearch.costs.estimate import point_of
from mapsearch.errors import InputError, UsageError
from mapsearch.explaining.holes import check_holes, hole_costs
from mapsearch.explaining.levers import SAME
from mapsearch.explaining.ranking import Listed, listed_of, stored_ranking
from mapsearch.explaining.rules import rule_prices
from mapsearch.explaining.stability import stability
from mapsearch.explaining.whynot import Asked, why_not
from mapsearch.explaining.wishes import Wish, read_wish
from mapsearch.explanation import Explanation, HoleCost, Stability, WhyNot
from mapsearch.inputs import Inputs, decided, read_inputs
from mapsearch.interrupts import Interrupts, interruptible, requested
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.progress import Progress
from mapsearch.solver.explain.binding import nearest_bindings
from mapsearch.solver.explain.infeasible import explain_infeasible
from mapsearch.solver.explain.joint import check_weights
from mapsearch.solver.explain.probe import OutOfTime
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.provenance import provenance_of
from mapsearch.solver.ranking import mapping_of, ranked_mapping
from mapsearch.solver.search import Search, search
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology

TOP = 10
"""Mappings that are ranked before one of them is explained."""
BINDINGS = 3
"""Relaxations that are shown."""
CONFLICTS = 10
"""Minimal conflicts that are looked for where nothing fits."""
R = TypeVar("R")


def explain(
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology | Fabric = "asic",
    *,
    profile: str | Profile | None = None,
    devices: int | None = None,
    rank: int = 1,
    why_not: str | Mapping | None = None,
    answer: Answer | None = None,
    stable: bool = False,
    holes: bool = False,
    bindings: int = BINDINGS,
    conflicts: int = CONFLICTS,
    weights: dict[str, float] | None = None,
    time_limit: float | None = None,
    progress: Watch | None = None,
) -> Explanation:
    """What binds the mapping of a rank, or why nothing fits; with `why_not`, why another mapping is not the answer.

    `why_not` is a mapping or some axes (`tp=8,ep=64`), and is then the only thing explained. `stable` also finds how
    far each bandwidth may fall before the mapping loses its rank, and `holes` what each thing that is down costs.
    Where nothing fits, up to so many `conflicts` are told, and the cheapest change of several numbers under `weights`
    (`{"hbm": 1, "devices": 2}`). `answer` is one of `solve` for these inputs: where it is proven and its mappings still
    take what it says, `why_not` takes the ranking from it and does not search for it again. After `time_limit` seconds,
    or on Ctrl-C, what was found so far is returned with a note.
    Raises MapsearchError (InputError, MissingFact) for what the user can mend.
    """
    for name, value in (("rank", rank), ("bindings", bindings), ("conflicts", conflicts)):
        if value < 1:
            raise UsageError(f"{name} is {value}; ask for at least 1", field=name)
    started = time.monotonic()
    wish = None if why_not is None else read_wish(why_not)
    with Interrupts():
        deadline = None if time_limit is None else started + time_limit
        inputs = decided(read_inputs(model, run, topology, profile, devices), deadline)
        check_weights(weights, inputs.facts)
        broken = check_holes(inputs.named[0].record) if holes else None
        work = _Work(problem_of(inputs.facts), inputs, rank, deadline, progress or (lambda _progress: None))
        if wish is None or answer is None or not work.recall(answer):
            work.search(max(rank, TOP))
        if wish is not None:
            work.about["why_not"] = work.answered("why not", lambda: work.why_not(wish))
            if work.contradicted(wish):
                work.search(max(rank, TOP))
                work.about["why_not"] = work.answered("why not", lambda: work.why_not(wish))
        elif work.found.top:
            work.explain_mapping(bindings, stable)
            work.explain_holes(broken)
        elif work.found.complete:
            work.explain_conflict(conflicts, weights)
        return work.result(time.monotonic() - started)


@dataclass
class _Work:
    """One explanation as it goes."""

    problem: Problem
    inputs: Inputs
    rank: int
    deadline: float | None
    tell: Watch
    about: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    recalled: tuple[Answer, list[Listed]] | None = None
    """An answer whose ranking holds, and that ranking."""
    _found: Search | None = None

    @property
    def found(self) -> Search:
        """What the search found; only after `search`."""
        assert self._found is not None
        return self._found

    def recall(self, answer: Answer) -> bool:
        """Take the ranking from an answer, where it holds for these inputs; else note why not."""
        top, trouble = stored_ranking(answer, self.problem, provenance_of(self.inputs.named, self.inputs.devices))
        if trouble:
            self.notes.append(f"the answer's ranking is not taken: {trouble}")
            return False
        proven = ", ".join(dict.fromkeys(proof.backend for proof in answer.proofs if proof.status == "proven"))
        self.notes.append(f"the ranking is the answer's, proven by {proven}; its {len(top)} mappings were costed again")
        self.recalled = answer, top
        self._check_rank(len(top))
        return True

    def contradicted(self, wish: Wish) -> bool:
        """Whether something that the run offers is faster than the ranking of an answer; it is forgotten then."""
        why: WhyNot | None = self.about["why_not"]
        if self.recalled is None or why is None or why.mapping is None or (why.slower_by or 0.0) >= -SAME:
            return False
        if any(code not in self.problem.candidates.get(axis, (code,)) for axis, code in wish.codes.items()):
            return False
        self.recalled = None
        self.notes.append("the answer's ranking is not taken: a faster mapping was found")
        return True

    def search(self, top: int) -> None:
        """Rank the fastest mappings. Raises InputError when there is no mapping of the rank asked for."""
        self._found = search(self.problem, top, deadline=self.deadline, report=self.tell)
        if not self.found.complete:
            self.notes.append("the search was stopped before it went through the whole space")
        if self.found.top:
            self._check_rank(len(self.found.top))

    def _check_rank(self, held: int) -> None:
        if self.rank > held:
            raise InputError(f"there is no mapping of rank {self.rank}; {held} satisfy every relation", field="rank")

    def answered(self, what: str, ask: Callable[[], R]) -> R | None:
        """One question's answer; None with a note when the time or the user ended it."""
        self.tell(Progress(what))
        try:
            with interruptible():
                return ask()
        except OutOfTime:
            self.notes.append(f"no time was left for: {what}")
        except KeyboardInterrupt:
            self.notes.append(f"interrupted before the answer to: {what}")
        return None

    def gathered(self, what: str, ask: Iterable[R]) -> list[R]:
        """Answers as they come, as far as the time allowed."""
        found: list[R] = []
        self.answered(what, lambda: found.extend(ask))
        return found

    def winner(self, rank: int = 1) -> RankedMapping | None:
        """A ranked mapping with everything that is estimated of it."""
        top = self.top
        if not top:
            return None
        return ranked_mapping(rank, point_of(top[rank - 1].mapping, self.problem.facts), self.problem.relations)

    @property
    def top(self) -> list[Listed]:
        """The ranking, of the search or of the answer."""
        return self.recalled[1] if self.recalled else [listed_of(one) for one in self.found.top]

    def why_not(self, wish: Any) -> WhyNot:
        """Why a wish is not the answer. Raises OutOfTime where it is not known what fits beside it."""
        if not self.recalled and not self.found.top and not self.found.complete:
            raise OutOfTime
        return why_not(Asked(self.problem, self.top, self.winner(), wish, self.deadline))

    def explain_mapping(self, bindings: int, stable: bool) -> None:
        """Margins, relaxations, stability and the price of rules of the mapping of the rank."""
        candidate, ranked = self.found.top[self.rank - 1], self.winner(self.rank)
        assert ranked is not None
        self.about["mapping"] = ranked
        if not self.found.complete:
            return
        near = self.answered(
            "what binds", lambda: nearest_bindings(self.problem, self.found, candidate, bindings, self.deadline)
        )
        self.about["bindings"] = near or []
        if near == []:
            self.about["binding_note"] = "no limit binds: relaxing none of them within reach unlocks anything faster"
        rules = rule_prices(self.problem, self.found.top[0], self.deadline)  # of the best, whatever rank is explained
        self.about["rules"] = self.gathered("what rules cost", rules)
        if any(rule.step_time_s is None for rule in self.about["rules"]):
            self.notes.append("the time limit ended the search for what some rules cost")
        point = point_of(mapping_of(candidate), self.problem.facts)
        told = self.gathered(
            "stability", stability(self.problem, point, self.rank, self.deadline, bandwidths_too=stable)
        )
        self.about["stability"] = [one for one in told if isinstance(one, Stability)]
        self.notes += [one for one in told if isinstance(one, str)]

    def explain_holes(self, broken: Topology | None) -> None:
        """What each thing that is down costs, beside the fastest mapping."""
        if broken is None or not self.found.complete:
            return
        costs = hole_costs(self.problem, broken, self.found.top[0], self.deadline)
        told = self.gathered("what holes cost", costs)
        self.about["holes"] = [one for one in told if isinstance(one, HoleCost)]
        self.notes += [one for one in told if isinstance(one, str)]

    def explain_conflict(self, conflicts: int, weights: dict[str, float] | None) -> None:
        """Why nothing fits, and the least changes that make something fit."""

        def ask() -> None:
            told = explain_infeasible(
                self.problem, deadline=self.deadline, conflicts=conflicts, weights=weights, thorough=True
            )
            self.about |= told.fields()
            self.notes += told.notes

        self.answered("why nothing fits", ask)

    def result(self, seconds: float) -> Explanation:
        """Everything found."""
        status, space, interrupted = self.searched()
        return Explanation(
            status=status,
            mapping=self.about.pop("mapping", None),
            space=space,
            provenance=provenance_of(self.inputs.named, self.inputs.devices),
            notes=[*self.inputs.notes, *self.notes],
            interrupted=interrupted or requested(),
            timings_s={"all": seconds},
            **self.about,
        )

    def searched(self) -> tuple[Literal["exact", "feasible", "infeasible", "unknown"], Space, bool]:
        """What is known of the space, its size, and whether the user stopped the search."""
        if self.recalled:
            return "exact", self.recalled[0].space.model_copy(update={"pairs_evaluated": 0}), False
        found = self.found
        space = Space(
            mappings=found.mappings, cells=found.cells, pairs_evaluated=found.pairs, grid_options=found.grid_options
        )
        if not found.complete:
            return ("feasible" if found.top else "unknown"), space, found.interrupted
        return ("exact" if found.top else "infeasible"), space, found.interrupted
