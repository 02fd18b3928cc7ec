"""The steady state of two pools: what a step takes under supply, publishing, queue and one version per request.

Contents: Pace, sample_rates, lost_s, pace, synchronous_step_s, blocking_asynchronous_step_s, binding.

Batch, queue and versions are those of FORMULAS 1.8. Rates are effective: what passes the filter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mapsearch.costs import rollout


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
    versions: int
    every: int = 1
    """Steps between published versions."""
    apart_s: float = 0.0
    """Least seconds between two switches: with two versions in memory the older one's last request must have ended."""

    most_batches: float = float("inf")
    """Q_max: what is held and the batch that comes together beside it must be within."""

    @property
    def queue_holds(self) -> bool:
        """True when the queue is within Q_max at its fullest, just before training takes a batch. Source: F1.8."""
        return self.held_batches + 1.0 <= self.most_batches

    @property
    def room(self) -> float:
        """Steps that generation and publishing may last: allowed versions, less the queue's and the unpublished."""
        return self.versions - self.held_batches - (self.every - 1)

    @property
    def supply_s(self) -> float:
        """Seconds in which rollout makes a batch, switches included. Source: F1.8."""
        made = float(rollout.supply_s(self.batch_tokens, self.rollout_tokens_per_s))
        return made + self.lost_s / self.every

    @property
    def fresh_s(self) -> float:
        """Least step under which no sample is over age: (T_gen + T_pub) / room; infinite without room, or where the
        queue cannot hold a batch.

        F1.8's ceil((T_gen + T_pub + Q / lambda_train) / T_step) <= versions, solved for T_step, with
        Q / lambda_train = held_batches T_step.
        """
        return (self.generate_s + self.publish_s) / self.room if self.room > 0.0 and self.queue_holds else float("inf")

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


def binding(pace: Pace) -> tuple[str, float]:
    """The constraint whose removal alone shortens the step most, and the step without it (binding in value, F7.1).

    `supply`, `publish`, `queue` or `version`; `train` when no removal helps: the training step itself is the longest.
    Without one version per request a switch costs nothing and a sample's age does not count from its first token.
    """
    without = {
        "supply": replace(pace, batch_tokens=0.0),
        "publish": replace(pace, publish_s=0.0),
        "queue": replace(pace, held_batches=0.0),
        "version": replace(pace, lost_s=0.0, generate_s=0.0, apart_s=0.0),
    }
    steps = {name: other.step_s for name, other in without.items()}
    name = min(steps, key=lambda name: steps[name])
    return (name, steps[name]) if steps[name] < pace.step_s * (1.0 - 1e-12) else ("train", pace.step_s)


def lost_s(in_flight: str, switch_s: float, *, longest_rest_s: float, mean_rest_s: float) -> float:
    """Replica seconds that one switch of versions costs when each request keeps one version.

    drain: until the last request ends, less what is generated meanwhile, longest rest less mean rest, and the switch;
    restart: the age of what begins again (as long as its rest, on average) and the switch; side-by-side: nothing.
    Unit: s. Source: F1.8 (iv), renewal theory. Ignores: that a replica with few requests decodes faster.
    """
    if in_flight == "side-by-side":
        return 0.0
    return switch_s + (longest_rest_s - mean_rest_s if in_flight == "drain" else mean_rest_s)


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
