"""The steady state of the loop in closed form: step, waiting, queue, age, lag, and which queue grows (FORMULAS 1.8).

Contents: Steady, steady, pace_of.

Built on `costs.pacing`: supply, switches, order of publishing and all bounds are those of the joint search; what is
added here are policies, and means instead of bounds. What it leaves out: batches are large, so that chance evens out
within one; phases of trajectories and steps are independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from mapsearch.costs import pacing, rollout
from mapsearch.costs.lengths import Distribution
from mapsearch.costs.pacing import Pace
from mapsearch.looping.durations import durations
from mapsearch.looping.facts import LoopFacts
from mapsearch.looping.limits import MOST_LAG, over_share, published_s, runs_late, stale_s, supply_s

Bound = Literal["training", "rollout", "staleness", "publishing"]
"""What sets the step: the trainer, the supply of tokens, pacing by the staleness budget, publishing in order."""
Growing = Literal["", "samples", "versions", "starved"]
"""The queue that grows without end: samples before training, versions before publishing; or no sample is ever used."""

_ALMOST_ALL = 0.99
_FEW = 0.125
"""Up to this share of a batch under way, lumps of trajectories that end together leave the queue's mean as it is."""


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
    """F1.8's bound of the version lag, with the time of the longest trajectory of a batch."""
    token_lag_bound: float | None
    age_bound_s: float | None
    """The same in seconds from first token to use: T_gen + Q / lambda_train."""
    publish_budget_s: float | None
    """Longest publishing time that keeps that bound within the budget; None without a budget in versions."""


def steady(facts: LoopFacts) -> Steady:
    """The steady state of a loop. Source: F1.8."""
    times, by_tokens = durations(facts), durations(facts, by_tokens=True)
    pace = pace_of(facts, times)
    facts, busy_s = _switching(facts, pace), pace.train_s
    supply = supply_s(facts, by_tokens, pace)
    limits: dict[Bound, float] = {
        "training": busy_s,
        "rollout": supply,
        "staleness": stale_s(facts, times, by_tokens, pace, max(busy_s, supply)),
        "publishing": _in_order_s(facts, pace),
    }
    step = max(limits.values())
    bound = next(name for name, least in limits.items() if least == step)
    if not math.isfinite(step):
        return _starved(facts, supply)
    found = _figures(facts, times, pace, bound, step, supply)
    mean_weight = _over_mean(facts, by_tokens, bound, step, busy_s)
    return replace(
        found, effective_tokens_per_s=None if mean_weight is None else mean_weight * facts.batch_tokens / step
    )


def pace_of(facts: LoopFacts, times: Distribution) -> Pace:
    """The loop as the joint search sees it: its bounds, with the queue's least as what is held."""
    rest = times.rest()
    longest_rest_s = rest.last_of(facts.concurrency / facts.replicas)
    count = facts.batch_tokens / (facts.lengths.mean * facts.kept_share)
    longest_s, kind = times.last_of(max(count, 1.0)), facts.switching
    rests = {"longest_rest_s": longest_rest_s, "mean_rest_s": rest.mean}
    return Pace(
        train_s=facts.train_s + facts.publish_stall_s,
        batch_tokens=facts.batch_tokens,
        rollout_tokens_per_s=facts.kept_tokens_per_s,
        generate_s=longest_s,
        publish_s=facts.publish_s,
        lost_s=pacing.lost_s(kind, facts.pause_s, **rests),
        held_batches=facts.least_queue_tokens / facts.batch_tokens,
        versions=facts.versions_allowed,
        every=facts.every,
        apart_s=pacing.apart_s(
            kind, facts.pause_s, longest_rest_s=longest_rest_s, longest_s=longest_s, most_s=times.longest
        ),
        mean_s=times.mean,
        drained_s=longest_rest_s if kind == "drain" else 0.0,
        paced=facts.policy == "wait",
        most_batches=facts.most_queue_tokens / facts.batch_tokens,
    )


def _switching(facts: LoopFacts, pace: Pace) -> LoopFacts:
    """With the time until replicas are empty as part of the publication."""
    return replace(facts, publish_s=facts.publish_s + pace.drained_s)


def _in_order_s(facts: LoopFacts, pace: Pace) -> float:
    """Publishing every version in order holds training back where a budget in versions does. Unit: s."""
    holds = facts.policy != "down-weight" and math.isfinite(facts.versions_allowed)
    return pace.repeated_s if facts.publishing == "every" and holds else 0.0


def _starved(facts: LoopFacts, supply: float) -> Steady:
    return Steady(
        "rollout", "starved", facts.kept_tokens_per_s, False, supply, math.inf, math.inf, 0.0, 0.0, 0.0, 1.0, 1.0,
        None, None, None, None, None, None, None, None,
    )  # fmt: skip


def _figures(facts: LoopFacts, times: Distribution, pace: Pace, bound: Bound, step: float, supply: float) -> Steady:
    busy_s = pace.train_s
    rate = facts.batch_tokens / step
    grows, growth = _growing(facts, pace, step, supply)
    queue, age, lag = (None, None, None) if grows else _ages(facts, times, bound, step)
    use, dropped = _use_and_dropped(facts, pace, bound, step)
    drained = facts.switching in ("drain", "restart")
    full = _at_its_fullest(facts, pace, bound, step) if not grows else None
    lag_bound = full.lag_bound(step) if full else None
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
        age_bound_s=full.age_bound_s(step) if full else None,
        publish_budget_s=full.publish_budget_s(step) if full and math.isfinite(pace.versions) else None,
    )


def _use_and_dropped(facts: LoopFacts, pace: Pace, bound: Bound, step: float) -> tuple[float | None, float | None]:
    """Share of the time in which slots generate, and share of kept tokens that is thrown away."""
    plain_s = pace.made_s
    if facts.policy != "drop":
        return min(1.0, plain_s / step), 0.0
    if bound == "training" and math.isfinite(facts.most_queue_tokens):
        return None, None  # full queue or over age: which of the two comes first does not follow from rates
    use = 1.0 - pace.lost_s / max(step * facts.every, facts.publish_s) if pace.lost_s else 1.0
    return use, max(0.0, 1.0 - plain_s / (step * use))


def _growing(facts: LoopFacts, pace: Pace, step: float, supply: float) -> tuple[Growing, float]:
    """The queue that grows, and its tokens or versions per second."""
    if facts.publishing == "every" and pace.repeated_s > step:
        return "versions", (1.0 / step - 1.0 / pace.repeated_s) / facts.every
    paced = math.isfinite(facts.versions_allowed) or math.isfinite(facts.most_age_s)
    held = math.isfinite(facts.most_queue_tokens) or (paced and facts.policy != "down-weight")
    if held or supply >= step:
        return "", 0.0
    return "samples", facts.batch_tokens * (1.0 / supply - 1.0 / step)


def _skips(facts: LoopFacts, step: float) -> bool:
    """Whether versions are left out while a budget in versions is held: rollout is let go in lumps then."""
    held = facts.policy != "down-weight" and math.isfinite(facts.versions_allowed)
    return held and facts.publishing == "latest" and runs_late(facts, step)


def _in_step(facts: LoopFacts, times: Distribution) -> bool:
    """Whether starts keep to a phase while some samples may be late: trajectories all alike, pauses, rare versions."""
    keeps = len(times.values) == 1 or facts.pause_s > 0.0 or facts.every > 1
    return facts.policy == "drop" and math.isfinite(facts.versions_allowed) and keeps


def _system_tokens(facts: LoopFacts, step: float) -> float:
    """Tokens under way and in the queue at which pacing (`wait`) holds rollout, on average; inf without pacing."""
    if facts.policy != "wait":
        return math.inf
    behind = (published_s(facts, step, 0.5) - facts.publish_stall_s) / step + (facts.every - 1) / 2.0
    return min((facts.versions_allowed - behind) * facts.batch_tokens, facts.most_system_tokens)


def _ages(
    facts: LoopFacts, times: Distribution, bound: Bound, step: float
) -> tuple[float | None, float | None, float | None]:
    """Mean queue (tokens), mean age (s) and mean lag (versions), where they follow from the rates alone."""
    rate, batch = facts.batch_tokens / step, facts.batch_tokens
    if facts.switching in ("drain", "restart") or (facts.pause_s and facts.every > 1):
        return None, None, None  # samples come in lumps
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
    published, pause = published_s(facts, step, 0.5), facts.pause_s if facts.publish_s <= step else 0.0
    to_update_s = (step * step / 2.0 - pause * (step - published + pause / 2.0)) / (step - pause)
    since_update = step - facts.train_s
    behind = (age_s - since_update - to_update_s) / step + 1.0 + (published - pause) / (step - pause)
    return behind + (facts.every - 1) / 2.0


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
    while lag < allowed + MOST_LAG:
        share = over_share(facts, times, step, busy_s, lag)
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


def _at_its_fullest(facts: LoopFacts, pace: Pace, bound: Bound, step: float) -> Pace | None:
    """The loop with as much held as the queue, and places that wait for room, hold at most beside a batch."""
    queue = _peak_tokens(facts, bound, step)
    if not math.isfinite(queue) or bound == "publishing":
        return None
    published_s = pace.publish_s * (2.0 if runs_late(facts, step) else 1.0)
    return replace(pace, held_batches=queue / facts.batch_tokens - 1.0, publish_s=published_s, most_batches=math.inf)
