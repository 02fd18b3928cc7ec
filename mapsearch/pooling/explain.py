"""`explain` of an answer about two pools: both sides, the four constraints, and the least changes that help.

Contents: explain_pools.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from mapsearch.explaining.api import BINDINGS, CONFLICTS, explain
from mapsearch.explanation import Explanation
from mapsearch.interrupts import Interrupts, interruptible, requested
from mapsearch.pooled import TwoPools
from mapsearch.pooling.again import Again
from mapsearch.pooling.answers import objective_asked, pair_of, provenance_of_pools
from mapsearch.pooling.infeasible import explain_infeasible, pair_text
from mapsearch.pooling.least import least_value
from mapsearch.pooling.levers import PoolLever, choice_levers, number_levers
from mapsearch.pooling.problem import Pools
from mapsearch.pooling.split import Pair
from mapsearch.pooling.told import constraints_of, serving_explained
from mapsearch.pools_explained import PoolChange, PoolsExplanation
from mapsearch.progress import Progress
from mapsearch.solver.explain.probe import OutOfTime

WORTHWHILE = 0.01
"""Share of the step that a change must save to be told."""
SHARE = 0.05
"""To which share of its value the least change of a number is found."""
R = TypeVar("R")
Watch = Callable[[Progress], Any]
_STATUS: dict[str, Any] = {"optimal": "exact", "feasible": "feasible", "infeasible": "infeasible", "unknown": "unknown"}


def explain_pools(
    answer: TwoPools,
    pools: Pools,
    *,
    file: str = "answer",
    bindings: int = BINDINGS,
    conflicts: int = CONFLICTS,
    stable: bool = False,
    time_limit: float | None = None,
    progress: Watch | None = None,
) -> PoolsExplanation:
    """What binds a pair and what would shorten its step, or why nothing fits; `pools` is the question of the answer.

    The training side is explained as `explain` does, with so many `bindings` and, with `stable`, how far bandwidths may
    fall. Where nothing fits, up to so many `conflicts` are told. After `time_limit` seconds, or on Ctrl-C, what was
    found so far is returned with a note. Raises InputError when the inputs are not those of the answer.
    """
    deadline = None if time_limit is None else time.monotonic() + time_limit
    with Interrupts():
        work = _Work(pools, answer, deadline, progress or (lambda _progress: None))
        if answer.mapping is not None:
            work.explain_pair(pair_of(pools, answer, file=file), bindings, stable)
        elif answer.status == "infeasible":
            told = work.answered("why nothing fits", lambda: explain_infeasible(
                pools, deadline=deadline, conflicts=conflicts))  # fmt: skip
            work.about |= {} if told is None else told.fields()
        else:
            work.notes.append("the search was stopped before it found a pair, so there is nothing to explain")
        return work.result()


class _Work:
    """One explanation as it goes."""

    def __init__(self, pools: Pools, answer: TwoPools, deadline: float | None, tell: Watch) -> None:
        self.pools, self.answer, self.deadline, self.tell = pools, answer, deadline, tell
        self.about: dict[str, Any] = {}
        self.notes: list[str] = []
        self.unanswered: list[str] = []

    def answered(self, what: str, ask: Callable[[], R]) -> R | None:
        """One question's answer; None with a note when the time or the user ended it."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.unanswered.append(what)
            return None
        self.tell(Progress(what))
        try:
            with interruptible():
                return ask()
        except OutOfTime:
            self.unanswered.append(what)
        except KeyboardInterrupt:
            self.notes.append(f"interrupted before the answer to: {what}")
        return None

    def explain_pair(self, pair: Pair, bindings: int, stable: bool) -> None:
        """Serving, constraints, changes of both pools together, then training by itself."""
        assert self.answer.steady is not None
        self.about["serving"] = serving_explained(self.pools, pair)
        self.about["constraints"] = constraints_of(pair, self.answer.steady)
        self._changes(pair, trains=False)
        training = self.answered("training by itself", lambda: self._training(pair, bindings, stable))
        self.about["training"] = training
        if training is not None and training.mapping is not None and training.mapping.step_time_s < pair.train_s:
            self.notes.append(
                "the training side by itself has a faster mapping, whose ranks send so unevenly that the pair is slower"
            )
        self._changes(pair, trains=True)  # both sides again: what takes longest comes last

    def _training(self, pair: Pair, bindings: int, stable: bool) -> Explanation:
        asked, part = self.pools.asked, pair.part
        left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        topology, devices = asked.topology, asked.devices if part.units == 0 else part.training.fabric.devices
        if part.trains:
            topology, devices = part.topology, None
        return explain(
            asked.model, asked.run, topology, profile=asked.profile, devices=devices, bindings=bindings,
            stable=stable, time_limit=left, progress=self.tell,
        )  # fmt: skip

    def _changes(self, pair: Pair, *, trains: bool) -> None:
        """Changes that leave the training side as it is, or the others."""
        assert self.answer.publishing is not None
        asked = objective_asked(self.answer)
        again, changes, useless = Again(self.pools, asked, self.deadline), [], []
        levers = [*choice_levers(self.pools), *number_levers(self.pools, self.answer.publishing.bytes_per_s)]
        for lever in (one for one in levers if one.trains is trains):
            words = lever.words(1.0) if lever.choice else lever.name.replace("_", " ")
            told = self.answered(f"what {words} would gain", lambda lever=lever: [_change(again, pair, lever)])  # type: ignore[misc]
            if told is None:
                continue
            (found,) = told
            if found is None:
                useless.append(lever.words(lever.far))
            else:
                changes.append(found)
        changes += self.about.get("changes", [])
        self.about["changes"] = sorted(changes, key=lambda one: (-one.gain, one.lever))
        self.about["useless"] = [*self.about.get("useless", []), *useless]

    def result(self) -> PoolsExplanation:
        """Everything found."""
        late = [f"no time was left for: {'; '.join(self.unanswered)}"] if self.unanswered else []
        notes = [*self.notes, *late, *self.about.pop("notes", [])]
        return PoolsExplanation(
            status=_STATUS[self.answer.status],
            pools=self.answer,
            training=self.about.pop("training", None),
            serving=self.about.pop("serving", None),
            worthwhile=WORTHWHILE,
            provenance=provenance_of_pools(self.pools),
            notes=notes,
            interrupted=requested(),
            **self.about,
        )


def _change(again: Again, pair: Pair, lever: PoolLever) -> PoolChange | None:
    """The least change of a lever that is worthwhile; None where none is."""
    target = pair.value * (1.0 - WORTHWHILE)

    def works(value: float) -> bool:
        best = again.best(lever, value)
        return best is not None and best.value <= target

    found = least_value(lever, works, SHARE)
    if found is None:
        return None
    value, short = found
    best = again.best(lever, value)
    assert best is not None
    return PoolChange(
        name=lever.name,
        lever=lever.words(value),
        from_value=None if lever.choice else lever.now,
        to_value=None if lever.choice else value,
        unit=lever.unit,
        choice=lever.choice,
        step_s=best.step_s,
        gain=1.0 - best.value / pair.value,
        fails_at=short,
        training_devices=best.part.training.fabric.devices,
        rollout_devices=best.part.serving.fabric.devices,
        pair=pair_text(best),
    )
