"""The loop of training and rollout: what `mapsearch loop` reads.

Contents: TrainingSide, RolloutSide, PublishPath, QueueBounds, StalenessBudget, LoopRun, Loop.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from mapsearch.inventories.base import Inventory
from mapsearch.inventories.lengths import Lengths, Tokens
from mapsearch.records import Record
from mapsearch.units import Seconds


class TrainingSide(Record):
    """The trainer. Batch and step as numbers, or those of a mapping in an answer."""

    batch_tokens: Tokens | None = None
    """Tokens of one training batch, after the filter."""
    step: Seconds | None = None
    """One training step without waiting."""
    answer: str = ""
    """`ANSWER.json` or `ANSWER.json#2`, as `mapsearch solve --format json` wrote it: batch and step are its mapping's;
    a path beside this file."""

    @model_validator(mode="after")
    def _known(self) -> TrainingSide:
        if not self.answer and (self.batch_tokens is None or self.step is None):
            raise ValueError("needs batch_tokens and step, or the answer that they are read from")
        if self.step == 0.0:
            raise ValueError("step takes no time; write the seconds of one training step")
        return self


class RolloutSide(Record):
    """The rollout pool."""

    tokens_per_s: Tokens
    """All trajectories together when none waits, before the filter."""
    concurrency: int = Field(gt=0, le=100_000)
    """Trajectories under way at once; each has the same share of the rate."""
    lengths: Lengths
    spread: float = Field(default=0.0, ge=0, le=3)
    """Standard deviation over mean of the time per token between trajectories (lognormal); 0: all alike."""
    replicas: int = Field(default=1, gt=0, le=100_000)
    """Parts of the pool that switch to a new version by themselves, each with its share of the places."""
    kept_share: float = Field(default=1.0, gt=0, le=1)
    """Share of trajectories that reward and filter let through."""


class PublishPath(Record):
    """How a version reaches the rollout pool."""

    time: Seconds
    """From the end of an update to the moment at which rollout has it."""
    stall: Seconds = 0.0
    """Part of it in which training stands still."""
    pause: Seconds = 0.0
    """Last part of it, in which rollout stands still."""
    every: int = Field(default=1, gt=0)
    """Steps between two versions that are published."""
    order: Literal["latest", "every"] = "latest"
    """Which of them is next: the newest one, or each in turn."""
    switch: Literal["finish", "side-by-side", "drain", "restart", "in-flight"] = "finish"
    """Trajectories under way end on their version; or so with two versions in memory at most, the older of which must
    have ended before a third; or none begins on a replica until all have ended; or they begin again; or they go on with
    new weights and hold tokens of two versions."""


class QueueBounds(Record):
    """Tokens that have ended and wait for training."""

    least: float = Field(default=0.0, ge=0)
    """What a step leaves in the queue."""
    most: Tokens | None = None
    """A trajectory that finds no room waits in its place; left out: no bound."""


class StalenessBudget(Record):
    """How old a sample may be at its use; left out: no limit."""

    versions: int | None = Field(default=None, ge=0, le=1_000_000)
    """Updates between the version that generated it and the one that trains on it."""
    age: Seconds | None = None
    """From its first token to its use."""
    tokens: float | None = Field(default=None, ge=0)
    """Trained tokens between the two versions."""


class LoopRun(Record):
    """What is simulated."""

    steps: int = Field(default=200, ge=20, le=100_000)
    """Training steps; figures are of the second half."""
    seed: int = Field(default=0, ge=0)


class Loop(Inventory):
    """Training and rollout side by side, the path between them, and how old samples may be."""

    kind: ClassVar[str] = "loop"
    name: str = Field(default="loop", min_length=1)
    training: TrainingSide
    rollout: RolloutSide
    publish: PublishPath
    queue: QueueBounds = QueueBounds()
    budget: StalenessBudget = StalenessBudget()
    policy: Literal["wait", "drop", "down-weight"] = "wait"
    """Samples over the budget: rollout begins none that could become one; they are thrown away before use; they are
    used with less weight."""
    decay: float | None = Field(default=None, gt=0, le=1)
    """With `down-weight`: factor of a sample's weight for each version over the budget."""
    run: LoopRun = LoopRun()

    @model_validator(mode="after")
    def _weighted(self) -> Loop:
        if self.policy == "down-weight" and self.decay is None:
            raise ValueError("policy down-weight needs decay, the factor for each version over the budget")
        return self
