"""The joint search: training mapping, way to serve and division of the devices, together and exactly.

Contents: Pair, Division, Found, Sides, offer_bounds, best_pair.

A division's step is never shorter than its training floor, nor than the least pace of its offers with a training step
of no length and publishing from all devices. Divisions are searched in the order of that bound until it reaches the
best step found. Inside one, the training search is told that step as its cutoff; a training mapping matters beyond its
step time only by how evenly its ranks send, so further ones are looked at while an even sender would be faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mapsearch.costs.pacing import Pace
from mapsearch.inventories.mapping import Mapping
from mapsearch.pooling.problem import Part, Pools, pace_of
from mapsearch.pooling.replicas import Offer
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import SLACK, Search, search

EXPECTED = 2.0
"""Training step over its floor, until a search says more: only the order of the divisions follows from it."""
Told = Callable[[int, int, float], None]
"""Divisions done, all, best step so far."""


@dataclass(frozen=True)
class Pair:
    """A training mapping beside a way to serve, on one division."""

    part: Part
    mapping: Mapping
    train_s: float
    offer: Offer
    pace: Pace

    @property
    def step_s(self) -> float:
        """Seconds per step of the pair."""
        return self.pace.step_s


@dataclass(frozen=True)
class Division:
    """What became of one way to divide the devices."""

    units: int
    training_devices: int
    rollout_devices: int
    bound_s: float
    """No pair on it is faster; infinite where rollout does not fit or no sample can be young enough."""
    status: str
    """`searched`, `bound` (left out: its bound is not below the best), `training` (nothing fits), `rollout` (no offer),
    `late` (the time was over)."""
    step_s: float | None = None
    """Of its best pair, where it was searched and is below the best so far."""
    which: str = ""
    """Of a cluster with holes or several types of device: what either side is read as."""


@dataclass
class Found:
    """The best pair and what proves it."""

    best: Pair | None = None
    divisions: list[Division] = field(default_factory=list)
    complete: bool = True
    mappings: int = 0
    """Training mappings in the spaces that were searched."""
    offers: int = 0
    bound_s: float = math.inf
    """No pair is faster."""


@dataclass(frozen=True, eq=False)
class _Entry:
    """A division that waits, with its offers in the order of their own bounds."""

    bound_s: float
    part: Part
    offered: list[tuple[float, Offer]]


def offer_bounds(pools: Pools, part: Part, offers: list[Offer]) -> list[float]:
    """Per offer: its step with a training step of no length and the most even senders."""
    return [pace_of(pools, part, offer, 0.0, None).step_s for offer in offers]


class Sides:
    """Where a joint search takes its divisions, its ways to serve and its training mappings from; others may keep what
    they have found for a question that differs in one number."""

    def parts(self, pools: Pools) -> list[Part]:
        """Divisions of the devices."""
        return pools.parts()

    def offers(self, pools: Pools, part: Part) -> list[Offer]:
        """Ways to serve on one of them."""
        return pools.server.offers(part.serving)

    def mappings(self, part: Part, count: int, deadline: float | None, known_s: float) -> Search:
        """The fastest training mappings on one of them, of those that are faster than a time."""
        return search(problem_of(part.training), count, deadline=deadline, known_s=known_s)


def best_pair(
    pools: Pools,
    deadline: float | None = None,
    told: Told | None = None,
    *,
    below_s: float = math.inf,
    sides: Sides | None = None,
) -> Found:
    """The pair with the shortest step over all divisions; complete unless the deadline cut a search short.

    With `below_s` only pairs that are faster count, and none may be found.
    """
    found, queue = Found(), list[_Entry]()
    sides = sides or Sides()
    for part in sides.parts(pools):
        offers = sides.offers(pools, part)
        found.offers += len(offers)
        paced = sorted(zip(offer_bounds(pools, part, offers), range(len(offers)), strict=True))
        least = paced[0][0] if paced else math.inf
        queue.append(_Entry(max(least, part.floor_s), part, [(bound, offers[at]) for bound, at in paced]))
    ratio, total = EXPECTED, len(queue)
    while queue:
        best_s = found.best.step_s if found.best else below_s
        if told is not None:
            told(total - len(queue), total, best_s)
        # Any order is exact: the likeliest division first makes a cutoff that the others seldom get below.
        entry = min(queue, key=lambda one: (max(one.bound_s, ratio * one.part.floor_s), one.bound_s, one.part.units))
        queue.remove(entry)
        if math.isinf(entry.bound_s):
            status, step_s = "rollout", None
        elif entry.bound_s >= best_s * (1.0 - SLACK):
            status, step_s = "bound", None
        elif deadline is not None and time.monotonic() > deadline:
            status, step_s = "late", None
        else:
            status, step_s, fastest_s = _search_part(pools, entry, found, deadline, below_s, sides)
            ratio = fastest_s / entry.part.floor_s if fastest_s else ratio
        sizes = (entry.part.training.fabric.devices, entry.part.rollout_devices)
        found.divisions.append(Division(entry.part.units, *sizes, entry.bound_s, status, step_s, entry.part.which))
    found.divisions.sort(key=lambda one: one.units)
    left = [one.bound_s for one in found.divisions if one.status == "late"]
    found.bound_s = min([*left, found.best.step_s if found.best else below_s])
    found.complete = not left
    return found


def _search_part(
    pools: Pools, entry: _Entry, found: Found, deadline: float | None, below_s: float, sides: Sides
) -> tuple[str, float | None, float | None]:
    """Search one division for a pair that is faster than the best; what became of it, its step, its training step."""
    part, offered = entry.part, entry.offered
    k, seen = 1, 0
    best_here: float | None = None
    fastest_s: float | None = None
    while True:
        cutoff_s = found.best.step_s if found.best else below_s
        result = sides.mappings(part, k, deadline, cutoff_s)
        found.mappings += result.mappings if k == 1 else 0
        fastest_s = result.top[0].step_time_s if result.top else fastest_s
        for candidate in result.top[seen:]:
            pair = _paired(pools, part, offered, candidate.step_time_s, mapping_of(candidate))
            best_here = pair.step_s if best_here is None else min(best_here, pair.step_s)
            if pair.step_s < (found.best.step_s if found.best else below_s):
                found.best = pair
        if not result.complete:
            return "late", best_here, fastest_s
        if not result.top:
            return ("training" if math.isinf(cutoff_s) else "searched"), best_here, fastest_s
        least_s = _least_s(pools, part, offered, result.top[-1].step_time_s)
        if len(result.top) < k or least_s >= (found.best.step_s if found.best else below_s) * (1.0 - SLACK):
            return "searched", best_here, fastest_s
        seen, k = len(result.top), 4 * k


def _least_s(pools: Pools, part: Part, offered: list[tuple[float, Offer]], train_s: float) -> float:
    """The step that a training mapping no faster than `train_s` could still reach, if its ranks sent evenly."""
    return min(pace_of(pools, part, offer, train_s, None).step_s for _, offer in offered)


def _paired(pools: Pools, part: Part, offered: list[tuple[float, Offer]], train_s: float, mapping: Mapping) -> Pair:
    """The best offer beside one training mapping; of equal ones the first in the order of their own bounds."""
    best: Pair | None = None
    for bound, offer in offered:
        if best is not None and max(bound, train_s) >= best.step_s:
            break
        pace = pace_of(pools, part, offer, train_s, mapping)
        if best is None or pace.step_s < best.step_s:
            best = Pair(part, mapping, train_s, offer, pace)
    if best is None:
        raise ValueError("a division without offers is not searched")
    return best
