"""The joint search: training mapping, way to serve and division of the devices, together and exactly.

Contents: Pair, Division, Found, Kept, best_pair, offer_bounds.

A division gives so many outer units to training, and any number of the others to rollout. Its value is never below
that of its training floor, nor of its ways to serve with a training step of no length and publishing from all devices.
A quick look at the likeliest divisions gives a first pair; the others are searched, likeliest first, unless their bound
is not below the best. Inside one, the training search is told the longest step that could still help as its cutoff; a
training mapping matters beyond its step only by how evenly its ranks send, so further ones are looked at while an even
sender would be better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from mapsearch.costs.pacing import Pace
from mapsearch.interrupts import requested
from mapsearch.inventories.mapping import Mapping
from mapsearch.pooling.objective import TOKENS, Objective
from mapsearch.pooling.problem import Part, Pools, pace_of
from mapsearch.pooling.replicas import Offer
from mapsearch.pooling.sides import Choices, Limits, Served, Sides, Trained, Trainer, narrower, sends_less, served
from mapsearch.solver.search import SLACK

EXPECTED = 2.0
"""Training step over its floor, until a search says more: only the order of the divisions follows from it."""
FIRST_LOOKS = 8
"""Divisions at which a quick look is taken at most; each shows how long a training step really is."""
ROOMY = 1.2
"""Longest step that could still help, over the expected one, from which on a quick look is worth its time."""
LATE_LOOKS = 3
"""Of those, when the time is over and there is no pair yet: a short limit has an answer as well."""
Told = Callable[[int, int, float], None]
"""Divisions done, all, step of the best pair so far."""


@dataclass(frozen=True)
class Pair:
    """A training mapping beside a way to serve, on one division."""

    part: Part
    mapping: Mapping
    train_s: float
    offer: Offer
    pace: Pace
    value: float
    """What is minimised."""

    @property
    def step_s(self) -> float:
        """Seconds per step of the pair."""
        return self.pace.step_s


@dataclass(frozen=True)
class Division:
    """What became of one number of training units."""

    units: int
    training_devices: int
    rollout_devices: int
    """At most."""
    bound: float
    """No pair on it has a smaller value; infinite where rollout does not fit or no sample can be young enough."""
    status: str
    """`searched`, `bound` (left out: its bound is not below the best), `training` (nothing fits), `rollout` (no offer),
    `late` (the time was over)."""
    step_s: float | None = None
    """Of its best pair, where it was searched and is below the best so far."""
    value: float | None = None
    which: str = ""
    """Of a cluster with holes or several types of device: what either side is read as."""


@dataclass
class Found:
    """The best pair and what proves it."""

    best: Pair | None = None
    divisions: list[Division] = field(default_factory=list)
    complete: bool = True
    interrupted: bool = False
    mappings: int = 0
    """Training mappings in the spaces that were searched."""
    offers: int = 0
    bound: float = math.inf
    """No pair has a smaller value."""
    objective: Objective = TOKENS


@dataclass
class Kept:
    """What searches of one cluster, model, run and way to serve share, whatever versions, queue and objective are."""

    pools: Pools
    parted: bool = False
    trained: Trainer | None = None
    """Of a question with the same training side and the same sizes of it, if there is one."""

    @cached_property
    def sides(self) -> Sides:
        """Sizes of both pools."""
        return Sides(self.pools, self.parted)

    @cached_property
    def trainer(self) -> Trainer:
        """Training searches."""
        return self.trained or Trainer(self.sides)

    @cached_property
    def ways(self) -> list[Served]:
        """Ways to serve."""
        return served(self.sides)


def offer_bounds(pools: Pools, part: Part, offers: list[Offer]) -> list[float]:
    """Per offer: its step with a training step of no length and the most even senders."""
    return [pace_of(pools, part, offer, 0.0, None).step_s for offer in offers]


def best_pair(
    pools: Pools,
    deadline: float | None = None,
    told: Told | None = None,
    *,
    objective: Objective = TOKENS,
    kept: Kept | None = None,
) -> Found:
    """The pair of the least value over all divisions; complete unless the deadline or Ctrl-C cut a search short.

    `kept`: of an earlier question with other versions, queue or objective.
    """
    kept = kept or Kept(pools, objective.pays)
    before = kept.trainer.mappings
    work = _Work(pools, kept.trainer, Choices(pools, kept.sides, kept.ways, objective), deadline, Found())
    work.found.objective, work.found.offers = objective, work.choices.count
    trainer = kept.trainer
    entries = [_Entry(work.choices.bound(part, trainer.least_s(part)), part) for part in kept.sides.training]
    for part in kept.sides.training:
        for trained in trainer.seen(part):
            work.offer(part, trained)
    work.first_look([entry for entry in entries if math.isfinite(entry.bound)])
    work.through(entries, told)
    found = work.found
    found.divisions.sort(key=lambda one: (one.units == 0, one.units))
    late = [one.bound for one in found.divisions if one.status == "late"]
    found.bound = min([*late, found.best.value if found.best else math.inf])
    found.complete, found.mappings = not late, kept.trainer.mappings - before
    return found


@dataclass(eq=False)
class _Entry:
    """A division that waits."""

    bound: float
    part: Part


@dataclass(eq=False)
class _Work:
    """A joint search under way."""

    pools: Pools
    trainer: Trainer
    choices: Choices
    deadline: float | None
    found: Found
    ratio: float = EXPECTED

    @property
    def best(self) -> float:
        """Value of the best pair so far."""
        return self.found.best.value if self.found.best else math.inf

    def late(self) -> bool:
        """Whether the time is over or the user wants to stop."""
        self.found.interrupted = self.found.interrupted or requested()
        return self.found.interrupted or (self.deadline is not None and time.monotonic() > self.deadline)

    @property
    def enough(self) -> float:
        """Values from which on a pair is not better."""
        return self.best * (1.0 - SLACK)

    def offer(self, part: Part, trained: Trained) -> Pair | None:
        """Take the best pair with a training mapping if it is the best so far; the pair if it was taken."""
        train_s, mapping, _ = trained
        choice = self.choices.best(part, train_s, mapping, self.enough)
        if choice is None or not math.isfinite(choice.value):
            return None
        whole = replace(part, serving=choice.serving)
        self.found.best = Pair(whole, mapping, train_s, choice.offer, choice.pace, choice.value)
        return self.found.best

    def expected(self, entry: _Entry) -> tuple[float, float, int]:
        """What a division may come to: only an order."""
        value = self.choices.bound(entry.part, self.ratio * entry.part.floor_s)
        return max(value, entry.bound), entry.bound, entry.part.units

    def first_look(self, entries: list[_Entry]) -> None:
        """A pair soon: some training mapping on the likeliest divisions."""
        seen: set[object] = set()
        for looks in range(FIRST_LOOKS):
            left = [entry for entry in entries if entry.part.trained not in seen and entry.bound < self.best]
            enough = self.found.best is not None or looks >= LATE_LOOKS or self.found.interrupted
            if not left or (self.late() and enough):
                return
            entry = min(left, key=self.expected)
            if self.expected(entry)[0] >= self.best:
                return
            seen.add(entry.part.trained)
            seen_s = [one.train_s for one in self.trainer.seen(entry.part)]
            answered = self.trainer.some(entry.part, (), self.deadline if self.found.best else None)
            if answered.trained is not None:
                self.ratio = min([*seen_s, answered.trained.train_s]) / entry.part.floor_s
                self.offer(entry.part, answered.trained)
            elif answered.complete:
                # Fewer devices have less memory: where they fit all the same, the search itself finds out.
                seen |= {other.part.trained for other in entries if 0 < other.part.units < entry.part.units}

    def through(self, entries: list[_Entry], told: Told | None) -> None:
        """Every division, the likeliest first, unless its bound leaves it out."""
        queue = list(entries)
        while queue:
            if told is not None:
                told(len(entries) - len(queue), len(entries), self.found.best.step_s if self.found.best else math.inf)
            alive = [entry for entry in queue if entry.bound < self.enough]
            entry = min(alive or queue[:1], key=self.expected)
            queue.remove(entry)
            self.found.divisions.append(self._division(entry))

    def _division(self, entry: _Entry) -> Division:
        """What becomes of one division."""
        part, pair, enough = entry.part, None, self.enough
        if entry.bound < enough:
            choice = self.choices.best(part, self.trainer.least_s(part), None)
            entry.bound = choice.value if choice else math.inf
        if math.isinf(entry.bound):
            status = "rollout"
        elif entry.bound >= enough:
            status = "bound"
        elif self.late():
            status = "late"
        else:
            status, pair, entry.bound = self._searched(entry)
        if pair is None and self.found.best is not None and self._same(self.found.best.part, part):
            # The first look, or an earlier question, found it.
            status, pair = "late" if status == "late" else "searched", self.found.best
        sizes = part.training.fabric.devices, part.rollout_devices
        step_s, value = (pair.step_s, pair.value) if pair else (None, None)
        return Division(part.units, *sizes, entry.bound, status, step_s, value, part.which)

    def _same(self, one: Part, other: Part) -> bool:
        """Whether two divisions are one; a rollout pool may have been left units that it does not use."""
        return one.key == other.key if self.choices.sides.fixed else one.trained == other.trained

    def _searched(self, entry: _Entry) -> tuple[str, Pair | None, float]:
        """Search one division for a pair that is better than the best; what became of it, its pair, its bound.

        A mapping counts by its step and by what its busiest rank sends: none is faster than `low_s`, and one that sends
        as much as a limit is no better. Where a step may be long any mapping that sends less will do, and is found
        sooner than the fastest one.
        """
        part, here, low_s = entry.part, None, self.trainer.least_s(entry.part)
        limits: Limits = ()
        nothing = "training" if math.isinf(self.best) else "searched"
        for one in self.trainer.seen(part):
            here = self.offer(part, one) or here
        while self.choices.best(part, low_s, None, self.enough) is not None:
            limits = self._limits(part, low_s, limits)
            cutoff_s = self.choices.cutoff_s(part, self.best)
            if cutoff_s > ROOMY * self.ratio * part.floor_s:
                answered = self.trainer.some(part, limits, self.deadline)
                if answered.trained is None and answered.complete:
                    return ("searched" if limits else nothing), here, entry.bound
                better = self.offer(part, answered.trained) if answered.trained else None
                if better is not None:
                    here = better
                    continue
            answered = self.trainer.fastest(part, limits, cutoff_s, self.deadline)
            if answered.trained is not None:
                here = self.offer(part, answered.trained) or here
            if not answered.complete:
                return "late", here, max(entry.bound, self.choices.bound(part, max(low_s, answered.bound_s)))
            if answered.trained is None:
                return ("searched" if limits else nothing), here, entry.bound
            low_s = answered.trained.train_s
            if not limits:
                self.ratio = low_s / part.floor_s
        return "searched", here, entry.bound

    def _limits(self, part: Part, low_s: float, limits: Limits) -> Limits:
        """Shares of the mappings that were seen which are no better, however fast one that sends as much would be."""
        told = list(limits)
        for one in self.trainer.seen(part):
            if sends_less(one.shares, tuple(told)) and not self.choices.best(part, low_s, one.mapping, self.enough):
                told = [*(other for other in told if not narrower((one.shares,), (other,))), one.shares]
        return tuple(told)
