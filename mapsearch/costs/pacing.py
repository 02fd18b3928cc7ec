"""The steady state of two pools: what a step takes under supply, publishing, queue and one version per request.

Contents: Pace, least_versions, switched_supply_s, relieved, publish_budget_s, binding, lost_s, apart_s,
synchronous_step_s, blocking_asynchronous_step_s, sample_rates.

Batch, queue and versions are those of FORMULAS 1.8. Rates are effective: what passes the filter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mapsearch.costs import rollout

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Pace:
    """What the step of two pools follows from. All times are per step unless said."""

    train_s: float
    batch_tokens: float
    rollout_tokens_per_s: float
    """Effective, replicas never standing still."""
    generate_s: float
    """Longest request of a batch, first token of the prompt to the last of the response."""
    publish_s: float
    lost_s: float
    """Replica seconds lost by one switch of versions: standing still, and places that run empty or start again."""
    held_batches: float
    versions: float
    every: int = 1
    """Steps between published versions."""
    apart_s: float = 0.0
    """Least seconds between two switches (`apart_s`)."""
    mean_s: float = 0.0
    """A request of mean length, as `generate_s`."""
    drained_s: float = 0.0
    """From a version's arrival until the first request on it may start: the longest rest, where replicas drain."""
    paced: bool = True
    """Admission starts no request that could be used too late. False: samples are thrown away or used all the same."""
    most_batches: float = float("inf")
    """Q_max: what is held and the batch that comes together beside it must be within."""

    @property
    def queue_holds(self) -> bool:
        """True when the queue is within Q_max at its fullest, just before training takes a batch. Source: F1.8."""
        return self.held_batches + 1.0 <= self.most_batches

    @property
    def room(self) -> float:
        """Steps that generation, publishing and training may last: allowed versions, less the queue's and the
        unpublished."""
        return self.versions - self.held_batches - (self.every - 1)

    @property
    def paced_room(self) -> float:
        """The same where a batch starts when its oldest allowed version arrives: one step more, in whole batches."""
        return self.versions + 1.0 - least_versions(self.held_batches, self.every) if self.paced else 0.0

    @property
    def made_s(self) -> float:
        """Seconds in which rollout makes a batch while no version is switched. Source: F1.8."""
        return float(rollout.supply_s(self.batch_tokens, self.rollout_tokens_per_s))

    @property
    def supply_s(self) -> float:
        """Seconds in which rollout makes a batch, switches included. Source: F1.8."""
        return switched_supply_s(self.made_s, self.lost_s, self.publish_s, self.every)

    @property
    def spread_s(self) -> float:
        """What the last request of a batch waits for a place, at most, once its version has arrived.

        Nothing where every batch under way has all its places; on a pool that is empty, until places become free; else
        as long as rollout makes a batch.
        """
        if self.mean_s >= self.paced_room * self.made_s:
            return 0.0
        return self.made_s if self.paced_room > 1.0 else self.made_s - self.mean_s

    @property
    def fresh_s(self) -> float:
        """Least step under which no sample is over age; infinite without room, or where the queue cannot hold a batch.

        Requests start at any time: (T_gen + T_pub + T_train) / room, which is F1.8's
        ceil((T_gen + T_pub + Q / lambda_train) / T_step) <= versions with what is held and, since the last update, the
        batch that came together in the queue. Or, paced, all of a batch starts when its version has arrived:
        (T_gen + T_pub + T_train + drained + spread) / paced room. The shorter of both (docs/explanation/loop.md).
        """
        if not self.queue_holds:
            return math.inf
        oldest_s = self.generate_s + self.publish_s + self.train_s
        flowing = oldest_s / self.room if self.room > 0.0 else math.inf
        lumped_s = oldest_s + self.drained_s + self.spread_s
        return min(flowing, lumped_s / self.paced_room if self.paced_room >= 1.0 else math.inf)

    @property
    def repeated_s(self) -> float:
        """Least step under which a version has arrived, and the one before has ended, before the next is published."""
        return max(self.publish_s, self.apart_s) / self.every

    @property
    def step_s(self) -> float:
        """The step: training, supply and freshness go on side by side, so the longest counts. Source: F1.8."""
        return max(self.train_s, self.supply_s, self.fresh_s, self.repeated_s)

    @property
    def tokens_per_s(self) -> float:
        """Tokens that training consumes per second."""
        return self.batch_tokens / self.step_s

    def oldest_batches(self, step_s: float) -> float:
        """Batches that wait before the oldest sample's own, at most: what is held, and its own since the last update.

        Its batch came together over a step, in which one update fell T_train after the last take.
        """
        return self.held_batches + self.train_s / step_s

    def lag_bound(self, step_s: float) -> float:
        """Versions between a sample's generation and its use, at most; paced, it is within `versions`. Source: F1.8."""
        queue_tokens, rate = self.oldest_batches(step_s) * self.batch_tokens, self.batch_tokens / step_s
        flowing = float(rollout.version_lag_bound(self.generate_s, self.publish_s, queue_tokens, rate, step_s))
        flowing += self.every - 1
        return min(flowing, self.versions) if self.paced and self.fresh_s <= step_s * (1.0 + _ROUNDING) else flowing

    def age_bound_s(self, step_s: float) -> float:
        """From a sample's first token to its use, at most: T_gen + Q / lambda_train, Q at its fullest. Source: F1.8."""
        queue_tokens = (self.held_batches + 1.0) * self.batch_tokens
        return self.generate_s + float(rollout.queue_delay_s(queue_tokens, self.batch_tokens / step_s))

    def publish_budget_s(self, step_s: float) -> float:
        """Longest publishing that keeps `fresh_s` within a step; negative when nothing does. Source: F1.8."""
        queue_tokens, rate = self.oldest_batches(step_s) * self.batch_tokens, self.batch_tokens / step_s
        allowed = self.versions - (self.every - 1)
        flowing = float(rollout.publish_budget_s(allowed, self.generate_s, queue_tokens, rate, step_s))
        if self.paced_room < 1.0:
            return flowing
        begun_s = self.generate_s + self.train_s + self.drained_s + self.spread_s
        return max(flowing, self.paced_room * step_s - begun_s)


def least_versions(held_batches: float, every: int) -> int:
    """Versions that samples must be allowed to be old, however long a step is: in the queue, and unpublished."""
    return math.ceil(held_batches) + every - 1


def switched_supply_s(made_s: float, lost_s: float, publish_s: float, every: int = 1) -> float:
    """Seconds in which rollout makes a batch with one switch for each publication. Unit: s.

    One publication in `every` steps adds its loss; publications that take longer follow each other, and each takes its
    share of all time. Source: F1.8.
    """
    with_each = made_s + lost_s / every
    if lost_s == 0.0 or with_each * every >= publish_s:
        return with_each
    return made_s / (1.0 - lost_s / publish_s) if lost_s < publish_s else math.inf


def relieved(pace: Pace) -> dict[str, Pace]:
    """The same pools with one constraint gone: `supply`, `publish`, `queue` or `version`.

    Without one version per request a switch costs nothing and a sample's age does not count from its first token.
    """
    return {
        "supply": replace(pace, batch_tokens=0.0),
        "publish": replace(pace, publish_s=0.0),
        "queue": replace(pace, held_batches=0.0),
        "version": replace(pace, lost_s=0.0, generate_s=0.0, mean_s=0.0, apart_s=0.0, drained_s=0.0),
    }


def publish_budget_s(pace: Pace) -> float:
    """The longest publishing with which the step stays as it is: steps grow with it, so halves of the way find it.

    Unit: s. Source: F1.8, by bisection to 1 part in 10^9.
    """
    low, high = pace.publish_s, max(2.0 * pace.publish_s, pace.step_s)
    held_s = pace.step_s * (1.0 + 1e-9)
    while replace(pace, publish_s=high).step_s <= held_s:
        low, high = high, 2.0 * high
    while high > low * (1.0 + 1e-9):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if replace(pace, publish_s=middle).step_s <= held_s else (low, middle)
    return low


def binding(pace: Pace) -> tuple[str, float]:
    """The constraint whose removal alone shortens the step most, and the step without it (binding in value, F7.1).

    One of `relieved`, or `train` when no removal helps: the training step itself is the longest.
    """
    steps = {name: other.step_s for name, other in relieved(pace).items()}
    name = min(steps, key=lambda name: steps[name])
    return (name, steps[name]) if steps[name] < pace.step_s * (1.0 - 1e-12) else ("train", pace.step_s)


def lost_s(in_flight: str, switch_s: float, *, longest_rest_s: float, mean_rest_s: float) -> float:
    """Replica seconds that one switch of versions costs.

    drain: until the last request ends, less what is generated meanwhile, longest rest less mean rest, and the switch;
    restart: the age of what begins again (as long as its rest, on average) and the switch; side-by-side: nothing; where
    requests go on across the switch, the switch alone. Unit: s. Source: F1.8 (iv), renewal theory.
    Ignores: that a replica with few requests decodes faster; that requests which all began at the last switch are not
    yet met at random (2 % of the loss where the switches are two mean requests apart).
    """
    if in_flight == "side-by-side":
        return 0.0
    return switch_s + {"drain": longest_rest_s - mean_rest_s, "restart": mean_rest_s}.get(in_flight, 0.0)


def apart_s(in_flight: str, switch_s: float, *, longest_rest_s: float, longest_s: float, most_s: float) -> float:
    """Least seconds between two switches of a replica, whose requests keep one version each. Unit: s.

    drain: until its last request has ended, and the switch; restart: the longest request that there is (`most_s`),
    which would otherwise begin again for ever; side-by-side: the longest of a batch, which would otherwise need a third
    copy of the weights; 0 for others. Source: F1.8 (iv).
    """
    ends_s = {"drain": longest_rest_s + switch_s, "restart": most_s + switch_s, "side-by-side": longest_s}
    return ends_s.get(in_flight, 0.0)


def synchronous_step_s(train_s: float, generate_s: float, publish_s: float) -> float:
    """One pool, one thing after the other: T_gen + T_train + T_pub. Unit: s. Source: F1.8 without overlap."""
    return train_s + generate_s + publish_s


def blocking_asynchronous_step_s(train_s: float, generate_s: float, publish_s: float) -> float:
    """Two pools whose publishing stops both: max(T_gen, T_train) + T_pub. Unit: s. Source: F1.8.

    Slower than `synchronous_step_s` when its publishing takes longer by more than the overlap gains, min(T_gen,
    T_train): 147 s against 49 s is 98 s to win back (marin #8936).
    """
    return max(train_s, generate_s) + publish_s


def sample_rates(
    sequences: float, decode_s: float, prefill_s: float, response_tokens: float
) -> tuple[float, float]:  # fmt: skip
    """Samples per second of one replica, and seconds per generated token as a request sees it.

    A sample takes its share of the decode steps, R T_dec / b, and its prompt. By Little's law a token then takes
    T_dec + b T_pre / R. Unit: 1/s and s. Source: F1.8 (rates), Little.
    """
    each_s = response_tokens * decode_s / sequences + prefill_s
    return 1.0 / each_s, decode_s + sequences * prefill_s / response_tokens
