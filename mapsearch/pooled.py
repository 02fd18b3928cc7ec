"""The typed, versioned answer about two pools: what `rollout` finds, as its JSON.

Contents: TWO_POOLS_SCHEMA, ServingPlan, CutTold, LevelTold, PublishPlan, Steady, DivisionTold, Cost, TwoPools.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Answer, Conflict, Provenance, RankedMapping, Relaxation

TWO_POOLS_SCHEMA = "mapsearch.rollout/1"
Constraint = Literal["train", "supply", "publish", "queue", "version"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class ServingPlan(_Record):
    """How the rollout pool serves."""

    tp: int
    dp: int
    """Copies of attention in one replica."""
    ep: int
    etp: int
    """Ways that an expert's width is cut."""
    devices_per_replica: int
    replicas: int
    prefill_replicas: int
    """Replicas for prompts alone; 0 where every replica does both."""
    sequences_per_replica: int
    weights: str
    decode_step_s: float
    decode_parts_s: dict[str, float]
    prefill_s: float
    """One prompt of mean length on one replica."""
    token_s: float
    """Between two tokens of one request."""
    tokens_per_s: float
    """Effective, after the filter, switches apart."""
    tokens_per_s_per_replica: float
    longest_request_s: float
    """The longest request of a batch, first token to last."""
    weight_bytes: float
    cache_bytes: float
    buffer_bytes: float
    limit_bytes: float


class CutTold(_Record):
    """A place that all published weights must pass, and how long that takes."""

    name: Literal["send", "link", "receive", "relay"]
    where: str
    bytes: float
    """Through the busiest device; between the pools all that crosses."""
    bytes_per_s: float
    """At which those pass; between the pools a rate of all links together, which its busiest one leaves."""
    seconds: float


class LevelTold(_Record):
    """What crosses one level of one side for one version, summed over training ranks and rollout ranks."""

    side: Literal["training", "rollout"]
    level: str
    units: int
    """Units joined by the level, in use."""
    mean_bytes: float
    """Out of a unit of training for all replicas, or into a unit of rollout."""
    most_bytes: float


class PublishPlan(_Record):
    """One version on its way."""

    path: str
    volume_bytes: float
    """One copy of a whole version."""
    version_bytes: float
    """One copy of what is usually sent: changes alone, with their part of whole versions that are spread."""
    delta_bytes: float | None
    """The changes alone."""
    mean_bytes: float
    """One copy, over all versions."""
    received_bytes: float
    """By the fullest rollout device."""
    sent_bytes: float
    """By the busiest training device, to all replicas."""
    peers: int
    """Ranks of one replica that a training rank sends to, at most."""
    pair_bytes: float
    """The most that one training rank sends to one rollout rank, when every holder of a piece sends an equal part."""
    bytes_per_s: float
    """Of one training device's way out."""
    cuts: list[CutTold]
    """On the way that the weights take: the longest is the transfer."""
    binding_cut: str
    routed_s: float | None
    """The transfer with both layouts, rank by rank, routed on the graph; null where no graph is known of the way."""
    levels: list[LevelTold]
    """Bytes from every training rank to every rollout rank, by level."""
    stages_s: dict[str, float]
    """Of a version as it is usually sent."""
    whole_s: float | None
    """T_pub of a version that is sent whole in its turn; null without such."""
    time_s: float
    """T_pub of the slowest version."""
    bound_s: float
    """No transfer between these pools is shorter: the bytes through the narrowest cut, over its capacity."""
    bound_cut: str
    budget_s: float
    """The longest publishing with which the step stays as it is."""
    lost_s: float
    """Seconds in which replicas make nothing, for one switch of versions."""


class Steady(_Record):
    """The steady state, and the four constraints."""

    step_s: float
    train_s: float
    supply_s: float
    """Until rollout has made a batch, switches included."""
    fresh_s: float
    """Least step under which no sample is over age."""
    repeated_s: float
    """Least step under which a version arrives before the next one is published."""
    wait_s: float
    duty: float
    """Share of the step in which training trains."""
    tokens_per_s: float
    """Consumed by training."""
    version_lag: float
    """Largest, in versions."""
    versions: int
    """Allowed."""
    age_s: float
    """Largest age of a sample, from its first token to its use."""
    token_lag: float
    batch_tokens: float
    held_batches: float
    """What admission holds in the queue."""
    least_batches: float
    most_batches: float
    binding: Constraint
    without_binding_s: float
    """The step if that constraint alone were gone."""


class DivisionTold(_Record):
    """What became of one way to divide the devices."""

    units: int
    training_devices: int
    rollout_devices: int
    """At most."""
    bound_s: float | None
    """No pair on it is faster; null where there is no pair, and under another objective."""
    status: str
    step_s: float | None
    which: str = ""
    """Of a cluster with holes or several types of device: what either side is read as."""
    bound_per_million: float | None = None
    """Under cost or device-hours: no pair on it takes less per million tokens."""
    per_million: float | None = None
    """What its best pair takes, where it was searched and is below the best so far."""


class Cost(_Record):
    """What consumed tokens cost; devices that neither pool uses cost nothing."""

    device_hours_per_million: float
    """Per million tokens that training consumes."""
    per_million: float | None
    """Price per million tokens, in the currency of the prices; null under another objective than cost."""
    training_per_hour: float | None
    """Price of a training device per hour."""
    rollout_per_hour: float | None


class TwoPools(_Record):
    """What `rollout` finds."""

    schema_: str = Field(default=TWO_POOLS_SCHEMA, alias="schema")
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    model: str
    run: str
    topology: str
    rollout: str
    objective: Literal["tokens", "cost", "device-hours"] = "tokens"
    """What is the best: most tokens per second, or the least price or device-hours per token."""
    training_devices: int
    rollout_devices: int
    training_units: list[str] = []
    """Of a cluster with holes or several types of device: the outer units that train, the others roll out."""
    idle_devices: int = 0
    """Of the cluster or clusters: what neither pool uses."""
    bound_s: float | None
    """No pair of mappings on any division has a shorter step; null under another objective."""
    bound_per_million: float | None = None
    """Under cost or device-hours: no pair takes less per million tokens."""
    gap: float | None = None
    """How far the best may be above the bound, as a share of it; 0 when proven, null without a pair."""
    cost: Cost | None = None
    steady: Steady | None
    mapping: RankedMapping | None
    serving: ServingPlan | None
    publishing: PublishPlan | None
    training: Answer | None
    """The training side by itself on its part of the devices, with its proofs; null when the time was over."""
    divisions: list[DivisionTold]
    offers: int
    """Ways to serve, over all divisions."""
    mappings: int
    """Training mappings in the spaces that were searched."""
    conflicts: list[Conflict] = []
    """Why nothing fits: minimal sets of named constraints of both sides that no pair satisfies together."""
    conflicts_complete: bool = False
    """True when `conflicts` holds every minimal conflict there is."""
    relaxations: list[Relaxation] = []
    """Least changes of one input with which something fits, each solved again."""
    notes: list[str] = []
    provenance: Provenance
    """Inputs of both sides as they were named, and their checksums; `rollout` is among the checksums, and
    `pool_topology` and `pool_profile` where rollout has a cluster of its own."""
    interrupted: bool = False
    seconds: float = Field(default=0.0, exclude=True)
    """How long it took; not in the document, which is the same for the same input."""

    def to_json(self) -> str:
        """The JSON document, keys in the order of the fields."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
