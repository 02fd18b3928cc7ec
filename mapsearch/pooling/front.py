"""`rollout --pareto`: the best pair of mappings for every number of versions that a sample may be old.

Contents: rollout_front.

A pair that keeps samples within fewer versions keeps them within more, so the best only gets better with versions. They
are gone through upwards: what one point's searches found is an incumbent of the next, and what they refuted below a
longer step stays refuted. Without a list of versions the front ends where no number of them does better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from mapsearch.costs.pacing import least_versions
from mapsearch.errors import UsageError
from mapsearch.fronts import knee_of
from mapsearch.interrupts import Interrupts
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.rollout import Rollout
from mapsearch.inventories.run import Run
from mapsearch.pooled_front import PoolFront, PoolPoint
from mapsearch.pooling.api import bounds_of, pair_told
from mapsearch.pooling.infeasible import explain_infeasible
from mapsearch.pooling.objective import Objective, objective_of
from mapsearch.pooling.problem import Pools, read_pools
from mapsearch.pooling.split import Found, Kept, Pair, best_pair
from mapsearch.solver.search import SLACK
from mapsearch.topologies.spec import Topology

MOST_POINTS = 64
"""Numbers of versions that are gone through when none are asked for."""
UNLIMITED = 2**40
"""So many versions that no sample is ever too old."""
Status = Literal["exact", "open", "infeasible", "unknown"]
Watched = Callable[[int, int, int, float], None]
"""Points that are known; of the next one divisions done, all, and the step of its best pair so far."""


def rollout_front(
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology = "asic",
    *,
    rollout: str | Rollout = "default",
    versions: Sequence[int] | None = None,
    queue: Sequence[float] | None = None,
    profile: str | Profile | None = None,
    devices: int | None = None,
    objective: str = "tokens",
    training_price: float | None = None,
    rollout_price: float | None = None,
    time_limit: float | None = None,
    told: Watched | None = None,
) -> PoolFront:
    """For each number of versions, and each number of batches held in the queue, the best pair over all divisions.

    Without `versions` from the first number that anything fits to the one from which on more gain nothing; without
    `queue` what the rollout holds. The other arguments are those of `mapsearch.rollout`. Raises MapsearchError.
    """
    started = time.monotonic()
    deadline = None if time_limit is None else started + time_limit
    with Interrupts():
        pools = read_pools(model, run, topology, rollout, profile, devices)
        asked = objective_of(pools, objective, training_price, rollout_price)
        work = _Front(pools, asked, Kept(pools, asked.pays), deadline, told)
        for held in sorted(set(queue)) if queue else [pools.rollout.queue.held_batches]:
            work.along(held, sorted(set(versions)) if versions else None)
        return work.answer(time.monotonic() - started)


@dataclass
class _Front:
    """A front under way."""

    pools: Pools
    objective: Objective
    kept: Kept
    deadline: float | None
    told: Watched | None
    points: list[PoolPoint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    known: int = 0
    mappings: int = 0
    interrupted: bool = False
    failed: Pools | None = None
    """The question of a point under which nothing fits."""

    def along(self, held: float, asked: list[int] | None) -> None:
        """The points of one queue."""
        found, best = list[tuple[PoolPoint, Pair | None]](), math.inf
        for versions in asked or self._all(held, found):
            question = self._question(held, versions)
            answer = self._best(question)
            value = answer.best.value if answer.best else math.inf
            gains = value < best * (1.0 - SLACK)
            found.append((self._point(question, answer, gains), answer.best))
            best = min(best, value)
            if answer.best is None and answer.complete:
                self.failed = self.failed or question
            self.known += 1
        self.points += self._marked([point for point, _ in found])

    def _all(self, held: float, found: list[tuple[PoolPoint, Pair | None]]) -> Iterator[int]:
        """Numbers of versions until more gain nothing, nothing fits whatever their number is, or the time is over."""
        first = max(1, least_versions(held, self.pools.rollout.publishing.every))
        ceiling: float | None = None
        for versions in range(first, first + MOST_POINTS):
            yield versions
            point, pair = found[-1]
            if pair is None or point.status != "exact":
                self._cut(point)
                return
            if pair.step_s <= pair.pace.fresh_s * (1.0 + SLACK):
                continue  # the age of samples binds this very pair, so one more version shortens its step
            if ceiling is None:
                whole = self._best(self._question(held, UNLIMITED))
                ceiling = whole.bound
            if pair.value * (1.0 - SLACK) <= ceiling:
                return
        self.notes.append(f"more than {first + MOST_POINTS - 1} versions gain more still; ask for them (--versions)")

    def _cut(self, point: PoolPoint) -> None:
        if point.status in ("open", "unknown"):
            self.notes.append(f"the search was stopped: more than {point.versions} versions were not looked at")

    def _question(self, held: float, versions: int) -> Pools:
        rollout = self.pools.rollout
        queue = rollout.queue.model_copy(update={"held_batches": held})
        if held < queue.least_batches:
            raise UsageError(f"{held:g} batches are below the rollout's least_batches of {queue.least_batches:g}",
                             field="queue")  # fmt: skip
        return replace(self.pools, rollout=rollout.model_copy(update={"queue": queue, "versions": versions}))

    def _best(self, question: Pools) -> Found:
        told = None if self.told is None else partial(self.told, self.known)
        found = best_pair(question, self.deadline, told, objective=self.objective, kept=self.kept)
        self.mappings += found.mappings
        self.interrupted = self.interrupted or found.interrupted
        return found

    def _point(self, question: Pools, found: Found, gains: bool) -> PoolPoint:
        pair = found.best
        told: dict[str, Any] = {
            "versions": question.rollout.versions,
            "held_batches": question.rollout.queue.held_batches,
            **bounds_of(question, found, found.bound),
        }
        if pair is None:
            status = "infeasible" if found.complete else "unknown"
            empty = dict.fromkeys(("gap", "cost", "steady", "mapping", "serving", "publishing"))
            sizes = dict.fromkeys(("training_devices", "rollout_devices", "idle_devices"), 0)
            return PoolPoint(status=status, gains=False, **sizes, **told, **empty)
        status = "exact" if found.complete else "open"
        return PoolPoint(status=status, gains=gains, **pair_told(question, pair, found), **told)

    def _marked(self, points: list[PoolPoint]) -> list[PoolPoint]:
        """The points of one queue with the knee among those that gain."""
        front = [point for point in points if point.gains]
        knee = knee_of(np.array([[point.versions, self._value(point)] for point in front]).reshape(-1, 2))
        marked = front[knee].versions if knee is not None else None
        return [point.model_copy(update={"knee": point.gains and point.versions == marked}) for point in points]

    def _value(self, point: PoolPoint) -> float:
        """What is minimised."""
        if point.cost is None or point.steady is None:
            return math.inf
        paid = point.cost.per_million if self.objective.name == "cost" else point.cost.device_hours_per_million
        return point.steady.step_s if paid is None or not self.objective.pays else paid

    def answer(self, seconds: float) -> PoolFront:
        """What was found as the typed answer."""
        named = {one.kind: one.name for one in self.pools.inputs.named}
        statuses = {point.status for point in self.points}
        held = any(point.steady is not None for point in self.points)
        status: Status = "exact" if held else "infeasible"
        if statuses & {"open", "unknown"}:
            status = "open" if held else "unknown"
        told = explain_infeasible(self.failed).fields() if status == "infeasible" and self.failed else {"notes": []}
        told["notes"] = [*self.notes, *told["notes"]]
        return PoolFront(
            status=status,
            model=named["model"],
            run=named["run"],
            topology=named["topology"],
            rollout=self.pools.rollout_name,
            objective=self.objective.name,
            points=self.points,
            offers=sum(len(one.offers) for one in self.kept.ways),
            mappings=self.mappings,
            searches=self.kept.trainer.searches,
            interrupted=self.interrupted,
            seconds=seconds,
            **told,
        )
