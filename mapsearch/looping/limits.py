"""What rollout's supply and the staleness budget ask of a step: pauses, thrown-away samples, pacing.

Contents: supply_s, runs_late, published_s, over_share, young_shares, stale_s, MOST_LAG.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mapsearch.costs import pacing
from mapsearch.costs.lengths import Distribution
from mapsearch.costs.pacing import Pace
from mapsearch.looping.durations import delayed
from mapsearch.looping.facts import LoopFacts
from mapsearch.quantity import Floats

MOST_LAG = 4096
"""Versions beyond which a budget is none."""
_PHASES = (np.arange(256) + 0.5) / 256


def supply_s(facts: LoopFacts, times: Distribution, pace: Pace) -> float:
    """Seconds in which rollout makes one batch that can be used. Unit: s; inf when no sample is ever young enough."""
    plain, busy_s = pace.made_s, pace.train_s
    if facts.policy != "drop":
        return _paused_s(facts, pace, plain)

    def lacks(step: float) -> bool:
        used = young_shares(facts, times, step, busy_s, facts.versions_allowed)
        # A batch takes as long as its own share makes it; where none of one is young enough, no version comes again.
        return bool(used.min() <= 0.0) or _paused_s(facts, pace, float(np.mean(plain / used))) > step

    return _least(lacks, max(_paused_s(facts, pace, plain), busy_s)) if lacks(busy_s) else _paused_s(facts, pace, plain)


def _paused_s(facts: LoopFacts, pace: Pace, plain_s: float) -> float:
    """Supply with one pause for each publication. Unit: s."""
    return pacing.switched_supply_s(plain_s, pace.lost_s, facts.publish_s, facts.every)


def runs_late(facts: LoopFacts, step: float) -> bool:
    """Whether a publication takes longer than the steps between two of them."""
    return facts.publish_s > step * facts.every


def published_s(facts: LoopFacts, step: float, late: float) -> float:
    """From an update to the last use of the version before it as the newest: one publication, or `late` of one more."""
    return facts.publish_s * (1.0 + (late if runs_late(facts, step) else 0.0))


def over_share(facts: LoopFacts, times: Distribution, step: float, busy_s: float, versions: float) -> float:
    """Share of samples more than so many versions, or seconds, old at their use, when the queue is short."""
    return 1.0 - float(np.mean(young_shares(facts, times, step, busy_s, versions)))


def young_shares(facts: LoopFacts, times: Distribution, step: float, busy_s: float, versions: float) -> Floats:
    """Share of samples that are young enough, of each step from one published version to the next.

    A sample waits for its batch between no time and a step. Its version is the last one that was active at its start.
    """
    waits = _PHASES * step
    since_update = max(step - busy_s, 0.0) + facts.publish_stall_s
    most_s = facts.most_age_s if versions == facts.versions_allowed else np.inf
    young = np.full((facts.every, 1, len(waits)), most_s)
    late = _PHASES[:: len(_PHASES) // 16, np.newaxis] if runs_late(facts, step) else np.zeros((1, 1))
    older = np.arange(facts.every)[:, np.newaxis, np.newaxis]  # updates since the one that was published
    if math.isfinite(versions):
        young = np.minimum(young, since_update + (versions - older) * step - facts.publish_s * (1.0 + late))
    return np.asarray(np.mean(times.within(young - waits), axis=(1, 2)))


def stale_s(facts: LoopFacts, times: Distribution, by_tokens: Distribution, pace: Pace, step: float) -> float:
    """Step that pacing allows: an estimate, and never longer than the bound under which no sample is over age."""
    found = max(_paced_s(facts, times, by_tokens), _held_s(facts, times, pace, step))
    bounded = math.isfinite(pace.fresh_s) and pace.repeated_s <= max(step, pace.fresh_s)
    return min(found, pace.fresh_s) if bounded else found


def _paced_s(facts: LoopFacts, times: Distribution, by_tokens: Distribution) -> float:
    """Step when rollout starts only what can be used in time: (eta + 1) batches are between start and publication.

    Batch i is taken x after its trajectories were allowed, when as many of later ones have ended as of its own are
    still under way; (eta + 1) T = x + T_train + T_pub. Unit: s.
    """
    allowed = facts.versions_allowed - (facts.every - 1)
    if facts.policy != "wait" or not math.isfinite(allowed) or allowed > MOST_LAG:
        return 0.0
    if allowed < 0.0:
        return math.inf
    busy_s = facts.train_s + facts.publish_stall_s
    cycle_s = facts.train_s + published_s(facts, busy_s, 0.5)
    count = facts.batch_tokens / facts.lengths.mean
    plain_s = facts.batch_tokens / facts.kept_tokens_per_s
    at_once, spread_s = facts.concurrency * facts.kept_share / count, plain_s - times.mean
    if allowed == 0.0:
        return cycle_s + delayed(times, at_once, spread_s).last_of(count)
    ends = delayed(by_tokens, at_once, spread_s)
    older, later = np.arange(0, 64), np.arange(1, int(allowed) + 1)

    def lacks(step: float) -> bool:
        taken = (allowed + 1.0) * step - cycle_s
        behind = float(np.sum(1.0 - ends.within(taken + older * step)))
        return behind - float(np.sum(ends.within(taken - later * step))) > 0.5 / count

    return _least(lacks, cycle_s / (allowed + 1.0))


def _held_s(facts: LoopFacts, times: Distribution, pace: Pace, step: float) -> float:
    """Step when pacing stops rollout between the moment at which the allowed batches are begun and the next version.

    After a batch is taken, eta batches less what is under way may be begun, which takes so long; the next version comes
    T_train + T_pub after the take. A slot that becomes free in between stands idle. Unit: s; 0 when none does.
    """
    allowed = facts.versions_allowed
    if facts.policy != "wait" or not math.isfinite(allowed):
        return 0.0
    cycle_s = facts.train_s + published_s(facts, step, 0.5) + (facts.every - 1) * step
    passed = math.floor(cycle_s / step)
    begun_s = ((allowed - passed) * facts.batch_tokens - facts.slot_tokens) / facts.kept_tokens_per_s
    held_s = cycle_s - passed * step - max(begun_s, 0.0)
    residual = times.rest()
    idle_s = float(np.maximum(held_s - residual.values, 0.0) @ residual.shares) / facts.every
    return _paused_s(facts, pace, pace.made_s) + idle_s if idle_s > 0.0 else 0.0


def _least(lacks: Callable[[float], bool], start: float) -> float:
    """The least step at which nothing lacks, by doubling and halving; inf when there is none."""
    low, high = start, start
    while lacks(high):
        low, high = high, high * 2.0
        if high > 1e9 * start:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if lacks(middle) else (low, middle)
    return high
