"""The typed, versioned front of two pools over the versions that a sample may be old: `rollout --pareto` as its JSON.

Contents: POOL_FRONT_SCHEMA, PoolPoint, PoolFront.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Conflict, RankedMapping, Relaxation
from mapsearch.pooled import Cost, PublishPlan, ServingPlan, Steady

POOL_FRONT_SCHEMA = "mapsearch.rollout-front/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class PoolPoint(_Record):
    """The best pair of mappings under one limit on versions and one queue."""

    versions: int
    """A sample may be so many versions older than the weights that train on it."""
    held_batches: float
    """What admission holds in the queue."""
    status: Literal["exact", "open", "infeasible", "unknown"]
    """`exact`: no pair on any division is better. `open`: the best so far. `unknown`: stopped without a pair."""
    gains: bool = True
    """False when fewer versions do as well, so that the point is not on the front."""
    knee: bool = False
    """The point farthest from the chord between the extremes of its queue, in logarithms."""
    bound_s: float | None
    """No pair has a shorter step; null under another objective than tokens."""
    bound_per_million: float | None
    """Under cost or device-hours: no pair takes less per million tokens."""
    gap: float | None
    training_devices: int
    rollout_devices: int
    idle_devices: int
    cost: Cost | None
    steady: Steady | None
    mapping: RankedMapping | None
    serving: ServingPlan | None
    publishing: PublishPlan | None


class PoolFront(_Record):
    """What `rollout --pareto` finds."""

    schema_: str = Field(default=POOL_FRONT_SCHEMA, alias="schema")
    status: Literal["exact", "open", "infeasible", "unknown"]
    """`exact`: every point is. `open`: stopped early. `infeasible`: under no number of versions anything fits."""
    model: str
    run: str
    topology: str
    rollout: str
    objective: Literal["tokens", "cost", "device-hours"]
    points: list[PoolPoint]
    """By queue, and in it by versions."""
    offers: int
    """Ways to serve, over all divisions."""
    mappings: int
    """Training mappings in the spaces that were searched."""
    searches: int
    """Searches of a training side, shared by all points."""
    notes: list[str] = []
    conflicts: list[Conflict] = []
    """Why nothing fits: minimal sets of named constraints of both sides that no pair satisfies together."""
    conflicts_complete: bool = False
    relaxations: list[Relaxation] = []
    """Least changes of one input with which something fits, each solved again."""
    interrupted: bool = False
    seconds: float = Field(default=0.0, exclude=True)
    """How long it took; not in the document, which is the same for the same input."""

    def to_json(self) -> str:
        """The JSON document, keys in the order of the fields."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
