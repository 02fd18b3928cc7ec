"""What the loop is made of, as plain numbers: the arguments of `steady` and `simulate`.

Contents: Policy, Publishing, Switching, LoopFacts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mapsearch.costs.lengths import Distribution
from mapsearch.errors import InputError
from mapsearch.quantity import Num

Policy = Literal["wait", "drop", "down-weight"]
"""What is done about samples over the staleness budget: rollout starts none that could become one; they are thrown
away before use; they are used with less weight."""
Publishing = Literal["latest", "every"]
"""Which versions reach rollout: the newest one when the last publication has ended, or all in order."""
Switching = Literal["finish", "side-by-side", "drain", "restart", "in-flight"]
"""What becomes of trajectories under way when their replica switches: each ends on its version; the same with two
versions in memory at most, so that the older one's last must have ended before a third arrives; no new one starts until
all have ended; they begin again; they go on with new weights, and hold tokens of two versions."""


@dataclass(frozen=True)
class LoopFacts:
    """One loop in SI units. Raises InputError when it cannot run at all."""

    batch_tokens: float
    """Tokens that one training step consumes, after the filter."""
    train_s: float
    """One training step without waiting."""
    rollout_tokens_per_s: float
    """All trajectories together when none waits, before the filter."""
    concurrency: int
    """Trajectories under way at once."""
    lengths: Distribution
    """Tokens of a trajectory."""
    prompt_tokens: float = 0.0
    """So many of them are given: they count in a batch, and a trajectory's time is that of the others."""
    replicas: int = 1
    """Parts of the pool that switch to a new version by themselves, each with its share of the places."""
    publish_s: float = 0.0
    """From the end of an update to the moment at which rollout has it (without the wait of `drain`)."""
    publish_stall_s: float = 0.0
    """Part of it in which training stands still."""
    pause_s: float = 0.0
    """Last part of it, in which rollout stands still."""
    speed_cv: float = 0.0
    """Standard deviation over mean of the time per token of a trajectory."""
    kept_share: float = 1.0
    """Share of trajectories that reward and filter let through."""
    least_queue_tokens: float = 0.0
    most_queue_tokens: float = math.inf
    most_versions: float = math.inf
    most_age_s: float = math.inf
    most_lag_tokens: float = math.inf
    policy: Policy = "wait"
    decay: float = 1.0
    """Weight of a sample for each version over the budget, with `down-weight`."""
    publishing: Publishing = "latest"
    every: int = 1
    """Steps between two versions that are published."""
    switching: Switching = "finish"

    def __post_init__(self) -> None:
        if self.replicas > self.concurrency:
            raise InputError(
                f"{self.replicas:,} replicas have no place each among {self.concurrency:,} trajectories under way",
                field="replicas",
            )
        if self.prompt_tokens >= float(self.lengths.values[0]):
            raise InputError(
                f"{self.prompt_tokens:g} leave nothing to generate of a trajectory of {self.lengths.values[0]:g}",
                field="prompt_tokens",
            )
        if self.most_queue_tokens < self.batch_tokens + self.least_queue_tokens:
            raise InputError(
                f"{self.most_queue_tokens:,.0f} is less than a batch ({self.batch_tokens:,.0f}) and what has to stay "
                f"in the queue ({self.least_queue_tokens:,.0f}), so that no step could begin",
                field="most_queue_tokens",
            )
        for name in ("publish_stall_s", "pause_s"):
            if getattr(self, name) > self.publish_s:
                raise InputError(
                    f"{getattr(self, name):g} s is a part of publish_s and more than all of it ({self.publish_s:g} s)",
                    field=name,
                )

    @property
    def kept_tokens_per_s(self) -> float:
        """Effective rate of rollout: what the filter lets through."""
        return self.rollout_tokens_per_s * self.kept_share

    @property
    def slot_tokens(self) -> float:
        """Tokens of trajectories under way that will be kept."""
        return self.concurrency * self.kept_share * self.lengths.mean

    @property
    def generate_s(self) -> float:
        """Mean time of a trajectory."""
        return float(self.seconds(self.lengths.mean))

    def seconds(self, tokens: Num) -> Num:
        """Mean time of a trajectory of so many tokens: each has its share of the pool's rate. Axes: any."""
        made = (tokens - self.prompt_tokens) / (self.lengths.mean - self.prompt_tokens)
        return made * self.lengths.mean * self.concurrency / self.rollout_tokens_per_s

    @property
    def versions_allowed(self) -> float:
        """Versions that a sample may be behind when it is used, by the budgets in versions and in tokens."""
        allowed = min(self.most_versions, self.most_lag_tokens / self.batch_tokens)
        return math.floor(allowed) if math.isfinite(allowed) else math.inf

    @property
    def most_system_tokens(self) -> float:
        """Tokens under way and in the queue that are used within the age budget when training never waits."""
        trained_tokens_per_s = self.batch_tokens / (self.train_s + self.publish_stall_s)
        return max(self.most_age_s * trained_tokens_per_s, self.batch_tokens + self.least_queue_tokens)

    @property
    def made_per_step(self) -> float:
        """Trajectories of a training step, as many as rollout makes where it is faster and nothing holds it."""
        surplus = max(1.0, self.train_s * self.kept_tokens_per_s / self.batch_tokens)
        return self.batch_tokens / (self.lengths.mean * self.kept_share) * surplus

    def over(self, versions: float, age_s: float) -> bool:
        """Whether a sample of that lag and age is over one of the budgets."""
        return versions > self.versions_allowed or age_s > self.most_age_s
