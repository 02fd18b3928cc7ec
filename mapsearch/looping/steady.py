"""The steady state of the loop in closed form: step, waiting, queue, age, lag, and which queue grows (FORMULAS 1.8).

Contents: Steady, steady.

Built on `costs.rollout`. What it leaves out: batches are large, so that chance evens out within one; phases of
trajectories and steps are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mapsearch.costs import rollout
from mapsearch.costs.lengths import Distribution
from mapsearch.looping.durations import delayed, durations
from mapsearch.looping.facts import LoopFacts

Bound = Literal["training", "rollout", "staleness", "publishing"]
"""What sets the step: the trainer, the supply of tokens, pacing by the staleness budget, publishing in order."""
Growing = Literal["", "samples", "versions", "starved"]
"""The queue that grows without end: samples before training, versions before publishing; or no sample is ever used."""

_PHASES = (np.arange(256) + 0.5) / 256
_ALMOST_ALL = 0.99
_FEW = 0.125
"""Up to this share of a batch under way, lumps of trajectories that end together leave the queue's mean as it is."""
_MOST_LAG = 4096


@dataclass(frozen=True)
class Steady:
    """Figures of the steady state; None where the closed form does not tell."""

    bound: Bound
    grows: Growing
    growth_per_s: float
    """Tokens, or versions, per second that the growing queue gains."""
    approximate: bool
    """True where a part of it is a mean-field estimate and no identity: pacing, draining, versions that are left out,
    starts in step with updates under `drop`."""
    supply_s: float
    """Seconds in which rollout makes one batch, pauses and thrown-away samples included."""
    step_s: float
    wait_s: float
    duty: float
    consumed_tokens_per_s: float
    effective_tokens_per_s: float | None
    """Consumed tokens by their weight."""
    rollout_use: float | None
    """Share of the slots' time in which they generate."""
    dropped_share: float | None
    """Share of kept tokens that are thrown away as over age."""
    queue_mean_tokens: float | None
    queue_delay_s: float | None
    age_mean_s: float | None
    """From a sample's first token to its use."""
    lag_mean: float | None
    lag_bound: float | None
    """F1.8's bound of the version lag, with the time within which 99 % of the trajectories end."""
    token_lag_bound: float | None
    age_bound_s: float | None
    """The same in seconds from first token to use: T_gen + Q / lambda_train."""
    publish_budget_s: float | None
    """Longest publishing time that keeps that bound within the budget; None without a budget in versions."""


def steady(facts: LoopFacts) -> Steady:
    """The steady state of a loop. Source: F1.8."""
    times, by_tokens = durations(facts), durations(facts, by_tokens=True)
    drain_s, facts = _drained(facts, times)
    busy_s = facts.train_s + facts.publish_stall_s
    supply = _supply_s(facts, by_tokens, busy_s)
    limits: dict[Bound, float] = {
        "training": busy_s,
        "rollout": supply,
        "staleness": max(_paced_s(facts, times, by_tokens), _held_s(facts, times, max(busy_s, supply))),
        "publishing": _in_order_s(facts),
    }
    step = max(limits.values())
    bound = next(name for name, least in limits.items() if least == step)
    if not math.isfinite(step):
        return _starved(facts, supply)
    found = _figures(facts, times, bound, step, supply, drained=drain_s > 0.0)
    mean_weight = _over_mean(facts, by_tokens, bound, step, busy_s)
    return replace(
        found, effective_tokens_per_s=None if mean_weight is None else mean_weight * facts.batch_tokens / step
    )


def _drained(facts: LoopFacts, times: Distribution) -> tuple[float, LoopFacts]:
    """With `drain`, slots stand idle until the last of them has ended: as a longer pause, and a longer publication."""
    if facts.switching != "drain":
        return 0.0, facts
    residual = times.rest()
    last = residual.last_of(facts.concurrency)
    idle = last - residual.mean
    return last, replace(facts, publish_s=facts.publish_s + last, pause_s=facts.pause_s + idle)


def _supply_s(facts: LoopFacts, times: Distribution, busy_s: float) -> float:
    """Seconds in which rollout makes one batch that can be used. Unit: s; inf when no sample is ever young enough."""
    plain = float(rollout.supply_s(facts.batch_tokens, facts.kept_tokens_per_s))
    if facts.policy != "drop":
        return _paused_s(facts, plain)

    def lacks(step: float) -> bool:
        used = 1.0 - _over_share(facts, times, step, busy_s, facts.versions_allowed)
        return used <= 0.0 or _paused_s(facts, plain / used) > step

    return _least(lacks, max(_paused_s(facts, plain), busy_s)) if lacks(busy_s) else _paused_s(facts, plain)


def _paused_s(facts: LoopFacts, plain_s: float) -> float:
    """Supply with one pause for each publication. Unit: s."""
    with_each = plain_s + facts.pause_s
    if facts.pause_s == 0.0 or with_each >= facts.publish_s:
        return with_each
    return plain_s / (1.0 - facts.pause_s / facts.publish_s)


def _over_share(facts: LoopFacts, times: Distribution, step: float, busy_s: float, versions: float) -> float:
    """Share of samples more than so many versions, or seconds, old at their use, when the queue is short.

    A sample waits for its batch between no time and a step. Its version is the last one that was active at its start.
    """
    waits = _PHASES * step
    since_update = max(step - busy_s, 0.0) + facts.publish_stall_s
    young = np.full_like(waits, facts.most_age_s if versions == facts.versions_allowed else np.inf)
    late = _PHASES[:: len(_PHASES) // 16, np.newaxis] if facts.publish_s > step else np.zeros((1, 1))
    if math.isfinite(versions):
        young = np.minimum(young, since_update + versions * step - facts.publish_s * (1.0 + late))
    return 1.0 - float(np.mean(times.within(young - waits)))


def _paced_s(facts: LoopFacts, times: Distribution, by_tokens: Distribution) -> float:
    """Step when rollout starts only what can be used in time: (eta + 1) batches are between start and publication.

    Batch i is taken x after its trajectories were allowed, when as many of later ones have ended as of its own are
    still under way; (eta + 1) T = x + T_train + T_pub. Unit: s.
    """
    allowed = facts.versions_allowed
    if facts.policy != "wait" or not math.isfinite(allowed) or allowed > _MOST_LAG:
        return 0.0
    busy_s = facts.train_s + facts.publish_stall_s
    cycle_s = facts.train_s + _published_s(facts, busy_s, 0.5)
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


def _held_s(facts: LoopFacts, times: Distribution, step: float) -> float:
    """Step when pacing stops rollout between the moment at which the allowed batches are begun and the next version.

    After a batch is taken, eta batches less what is under way may be begun, which takes so long; the next version comes
    T_train + T_pub after the take. A slot that becomes free in between stands idle. Unit: s; 0 when none does.
    """
    allowed = facts.versions_allowed
    if facts.policy != "wait" or not math.isfinite(allowed):
        return 0.0
    cycle_s = facts.train_s + _published_s(facts, step, 0.5)
    passed = math.floor(cycle_s / step)
    begun_s = ((allowed - passed) * facts.batch_tokens - facts.slot_tokens) / facts.kept_tokens_per_s
    held_s = cycle_s - passed * step - max(begun_s, 0.0)
    residual = times.rest()
    idle_s = float(np.maximum(held_s - residual.values, 0.0) @ residual.shares)
    plain_s = float(rollout.supply_s(facts.batch_tokens, facts.kept_tokens_per_s))
    return _paused_s(facts, plain_s) + idle_s if idle_s > 0.0 else 0.0


def _in_order_s(facts: LoopFacts) -> float:
    """Publishing every version in order holds training back where a budget in versions does. Unit: s."""
    holds = facts.policy != "down-weight" and math.isfinite(facts.versions_allowed)
    return facts.publish_s if facts.publishing == "every" and holds else 0.0


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


def _starved(facts: LoopFacts, supply: float) -> Steady:
    return Steady(
        "rollout", "starved", facts.kept_tokens_per_s, False, supply, math.inf, math.inf, 0.0, 0.0, 0.0, 1.0, 1.0,
        None, None, None, None, None, None, None, None,
    )  # fmt: skip


def _figures(
    facts: LoopFacts, times: Distribution, bound: Bound, step: float, supply: float, *, drained: bool
) -> Steady:
    busy_s = facts.train_s + facts.publish_stall_s
    rate = facts.batch_tokens / step
    grows, growth = _growing(facts, step, supply)
    queue, age, lag = (None, None, None) if grows else _ages(facts, times, bound, step)
    use, dropped = _use_and_dropped(facts, bound, step)
    lag_bound = _lag_bound(facts, times, bound, step) if not grows else None
    return Steady(
        bound=bound,
        grows=grows,
        growth_per_s=growth,
        approximate=drained or bound == "staleness" or _skips(facts, step) or _in_step(facts, times),
        supply_s=supply,
        step_s=step,
        wait_s=step - busy_s,
        duty=float(rollout.duty(facts.train_s, 1.0, 1.0 / step)),
        consumed_tokens_per_s=rate,
        effective_tokens_per_s=None,
        rollout_use=use,
        dropped_share=dropped,
        queue_mean_tokens=queue,
        queue_delay_s=None if queue is None else float(rollout.queue_delay_s(queue, rate)),
        age_mean_s=age,
        lag_mean=lag,
        lag_bound=lag_bound,
        token_lag_bound=None if lag_bound is None else float(rollout.token_lag(lag_bound, facts.batch_tokens)),
        age_bound_s=None if lag_bound is None else _age_bound_s(facts, times, bound, step),
        publish_budget_s=_budget_s(facts, times, bound, step) if not grows else None,
    )


def _use_and_dropped(facts: LoopFacts, bound: Bound, step: float) -> tuple[float | None, float | None]:
    """Share of the time in which slots generate, and share of kept tokens that is thrown away."""
    plain_s = float(rollout.supply_s(facts.batch_tokens, facts.kept_tokens_per_s))
    if facts.policy != "drop":
        return min(1.0, plain_s / step), 0.0
    if bound == "training" and math.isfinite(facts.most_queue_tokens):
        return None, None  # full queue or over age: which of the two comes first does not follow from rates
    use = 1.0 - facts.pause_s / max(step, facts.publish_s) if facts.pause_s else 1.0
    return use, max(0.0, 1.0 - plain_s / (step * use))


def _growing(facts: LoopFacts, step: float, supply: float) -> tuple[Growing, float]:
    """The queue that grows, and its tokens or versions per second."""
    if facts.publishing == "every" and facts.publish_s > step:
        return "versions", 1.0 / step - 1.0 / facts.publish_s
    paced = math.isfinite(facts.versions_allowed) or math.isfinite(facts.most_age_s)
    held = math.isfinite(facts.most_queue_tokens) or (paced and facts.policy != "down-weight")
    if held or supply >= step:
        return "", 0.0
    return "samples", facts.batch_tokens * (1.0 / supply - 1.0 / step)


def _published_s(facts: LoopFacts, step: float, late: float) -> float:
    """From an update to the last use of the version before it as the newest: one publication, or `late` of one more."""
    return facts.publish_s * (1.0 + (late if facts.publish_s > step else 0.0))


def _skips(facts: LoopFacts, step: float) -> bool:
    """Whether versions are left out while a budget in versions is held: rollout is let go in lumps then."""
    held = facts.policy != "down-weight" and math.isfinite(facts.versions_allowed)
    return held and facts.publishing == "latest" and facts.publish_s > step


def _in_step(facts: LoopFacts, times: Distribution) -> bool:
    """Whether starts keep to a phase of the step while some samples may be late: trajectories all alike, or pauses."""
    keeps = len(times.values) == 1 or facts.pause_s > 0.0
    return facts.policy == "drop" and math.isfinite(facts.versions_allowed) and keeps


def _system_tokens(facts: LoopFacts, step: float) -> float:
    """Tokens under way and in the queue at which pacing (`wait`) holds rollout, on average; inf without pacing."""
    if facts.policy != "wait":
        return math.inf
    behind = (_published_s(facts, step, 0.5) - facts.publish_stall_s) / step
    return min((facts.versions_allowed - behind) * facts.batch_tokens, facts.most_system_tokens)


def _ages(
    facts: LoopFacts, times: Distribution, bound: Bound, step: float
) -> tuple[float | None, float | None, float | None]:
    """Mean queue (tokens), mean age (s) and mean lag (versions), where they follow from the rates alone."""
    rate, batch = facts.batch_tokens / step, facts.batch_tokens
    if bound == "rollout" and facts.policy != "drop":
        queue, slots = _filling_tokens(facts, step), facts.slot_tokens
    elif bound == "training" and facts.policy != "drop":
        short = max(batch - facts.slot_tokens, 0.0)
        queue = facts.most_queue_tokens - short * short / (2.0 * facts.kept_tokens_per_s * step)
        slots, paced = facts.slot_tokens, _system_tokens(facts, step)
        if paced < queue + slots:
            slots = rate * times.mean
            queue = paced - slots
        if not math.isfinite(queue) or queue < 0.0:
            return None, None, None
    else:
        return None, None, None
    age = (queue + slots) / rate
    if len(times.values) == 1:  # trajectories that are all alike stay in step with the updates
        return (None, None, None) if facts.slot_tokens > _FEW * batch else (queue, age, None)
    return queue, age, _lag(facts, age, step)


def _lag(facts: LoopFacts, age_s: float, step: float) -> float:
    """Mean lag: updates between a sample's start and its use, and one more if it starts before that one's publication.

    Starts are even over the part of a step in which rollout does not pause. Unit: versions.
    """
    published, pause = _published_s(facts, step, 0.5), facts.pause_s if facts.publish_s <= step else 0.0
    to_update_s = (step * step / 2.0 - pause * (step - published + pause / 2.0)) / (step - pause)
    since_update = step - facts.train_s
    return (age_s - since_update - to_update_s) / step + 1.0 + (published - pause) / (step - pause)


def _filling_tokens(facts: LoopFacts, step: float) -> float:
    """Mean queue where supply sets the step: it fills by trajectories, except during the pause. Unit: tokens."""
    queue = facts.least_queue_tokens + (facts.batch_tokens - facts.lengths.mean) / 2.0
    pause = facts.pause_s if facts.publish_s <= step else 0.0
    # The pause ends with the publication; the queue after it is behind an even filling, before it ahead.
    after_s = step - (facts.train_s + facts.publish_s) % step
    return queue + facts.kept_tokens_per_s * pause * (0.5 - (after_s + pause / 2.0) / step)


def _over_mean(facts: LoopFacts, times: Distribution, bound: Bound, step: float, busy_s: float) -> float | None:
    """Mean weight of what is used."""
    allowed = facts.versions_allowed
    if facts.policy != "down-weight" or (math.isinf(allowed) and math.isinf(facts.most_age_s)):
        return 1.0
    if bound != "rollout" or math.isinf(allowed) or math.isfinite(facts.most_age_s):
        return None
    mean, lag = 1.0, allowed
    while lag < allowed + _MOST_LAG:
        share = _over_share(facts, times, step, busy_s, lag)
        if share <= 1e-9:
            break
        # Each version more takes off what is left between two powers of the decay.
        mean -= share * facts.decay ** (lag - allowed) * (1.0 - facts.decay)
        lag += 1.0
    return mean


def _peak_tokens(facts: LoopFacts, bound: Bound, step: float) -> float:
    """The most that lies between a trajectory's end and training."""
    if bound != "training":
        return facts.least_queue_tokens + facts.batch_tokens
    paced = _system_tokens(facts, step)
    return min(facts.most_queue_tokens + facts.slot_tokens, max(paced, 0.0) + facts.batch_tokens)


def _lag_bound(facts: LoopFacts, times: Distribution, bound: Bound, step: float) -> float | None:
    queue = _peak_tokens(facts, bound, step)
    if not math.isfinite(queue) or bound == "publishing":
        return None
    almost, published = times.quantile(_ALMOST_ALL), _published_s(facts, step, 1.0)
    return float(rollout.version_lag_bound(almost, published, queue, facts.batch_tokens / step, step))


def _age_bound_s(facts: LoopFacts, times: Distribution, bound: Bound, step: float) -> float:
    queue = _peak_tokens(facts, bound, step)
    return times.quantile(_ALMOST_ALL) + float(rollout.queue_delay_s(queue, facts.batch_tokens / step))


def _budget_s(facts: LoopFacts, times: Distribution, bound: Bound, step: float) -> float | None:
    queue = _peak_tokens(facts, bound, step)
    if not (math.isfinite(facts.versions_allowed) and math.isfinite(queue)) or bound == "publishing":
        return None
    almost = times.quantile(_ALMOST_ALL)
    return float(rollout.publish_budget_s(facts.versions_allowed, almost, queue, facts.batch_tokens / step, step))
