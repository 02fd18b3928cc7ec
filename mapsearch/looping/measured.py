"""Figures of a simulated loop: means over its second half, and which queue grows.

Contents: Measured, measured, growing.
"""

from __future__ import annotations

from dataclasses import dataclass

from mapsearch.looping.facts import LoopFacts
from mapsearch.looping.simulator import Moment, Trace
from mapsearch.looping.steady import Growing

_RISES = 1.2
"""From the third quarter to the last one; what grows evenly from nothing rises by 1.4, what has settled by 1."""


@dataclass(frozen=True)
class Measured:
    """Means of a run's second half, as `Steady` has them in closed form."""

    step_s: float
    wait_s: float
    duty: float
    consumed_tokens_per_s: float
    effective_tokens_per_s: float
    rollout_use: float
    dropped_share: float
    queue_mean_tokens: float
    queue_delay_s: float
    age_mean_s: float
    lag_mean: float
    lag_most: int
    age_most_s: float
    over_share: float
    mixed_share: float
    queue_least_tokens: float
    queue_most_tokens: float


def measured(facts: LoopFacts, trace: Trace) -> Measured | None:
    """Means over the second half of a run; None when too few steps were made."""
    half = len(trace.batches) // 2
    if half < 2:
        return None
    first, last = trace.totals[half], trace.totals[-1]
    span_s, area, kept, dropped, worked_s = (after - before for before, after in zip(first, last, strict=True))
    batches = trace.batches[half + 1 :]
    steps, tokens = len(batches), sum(batch.tokens for batch in batches)
    samples = sum(batch.samples for batch in batches)
    levels = [moment.queue_tokens for moment in trace.moments if moment.time_s >= first[0]]

    def mean(name: str) -> float:
        return float(sum(getattr(batch, name) * batch.samples for batch in batches) / samples)

    return Measured(
        step_s=span_s / steps,
        wait_s=sum(batch.waited_s for batch in batches) / steps,
        duty=facts.train_s * steps / span_s,
        consumed_tokens_per_s=tokens / span_s,
        effective_tokens_per_s=sum(batch.weight * batch.tokens for batch in batches) / span_s,
        rollout_use=worked_s / (span_s * facts.concurrency),
        dropped_share=dropped / kept if kept else 0.0,
        queue_mean_tokens=area / span_s,
        queue_delay_s=sum(batch.queued_mean_s * batch.tokens for batch in batches) / tokens,
        age_mean_s=mean("age_mean_s"),
        lag_mean=mean("lag_mean"),
        lag_most=max(batch.lag_most for batch in batches),
        age_most_s=max(batch.age_most_s for batch in batches),
        over_share=sum(batch.over_tokens for batch in batches) / tokens,
        mixed_share=sum(batch.mixed_samples for batch in batches) / samples,
        queue_least_tokens=min(levels),
        queue_most_tokens=max(levels),
    )


def growing(facts: LoopFacts, trace: Trace) -> Growing:
    """The queue that grows from the third quarter of a run to the last by more than chance makes it."""
    if trace.stalled:
        return "starved"
    quarter = len(trace.moments) // 4
    third, fourth = trace.moments[2 * quarter : 3 * quarter], trace.moments[3 * quarter :]

    def rises(name: str, least: float) -> bool:
        before, after = _mean(third, name), _mean(fourth, name)
        return after > _RISES * before and after - before > least

    # Versions first: where rollout falls behind, samples may pile up as well.
    if rises("unpublished", 0.5):
        return "versions"
    return "samples" if rises("queue_tokens", facts.batch_tokens / 4.0) else ""


def _mean(moments: list[Moment], name: str) -> float:
    return float(sum(getattr(moment, name) for moment in moments) / len(moments)) if moments else 0.0
