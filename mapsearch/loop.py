"""The typed, versioned result of `mapsearch loop`: steady state, constraints, simulation and policies side by side.

Contents: LOOP_SCHEMA, SteadyState, LoopConstraint, Agreement, PolicyCost, LoopPoint, QueuePoint, LoopReport.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LOOP_SCHEMA = "mapsearch.loop/1"
Growing = Literal["", "samples", "versions", "starved"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class SteadyState(_Record):
    """The steady state in closed form (FORMULAS 1.8); null where the closed form does not tell."""

    bound: Literal["training", "rollout", "staleness", "publishing"]
    """What sets the step: the trainer, the supply of tokens, pacing by the budget, or publishing in order."""
    grows: Growing
    """The queue that grows without end: samples before training, versions before publishing; `starved`: no sample is
    ever young enough. Empty: the loop is stable."""
    growth_per_s: float
    """What the growing queue gains: tokens, or versions, per second."""
    approximate: bool
    """True where a part of it is a mean-field estimate: pacing by the budget, draining, versions that are left out,
    starts in step with updates under `drop`."""
    supply_s: float | None
    """Seconds in which rollout makes one batch, pauses and thrown-away samples included."""
    step_s: float | None
    wait_s: float | None
    duty: float
    """Share of the step in which training trains."""
    consumed_tokens_per_s: float
    effective_tokens_per_s: float | None
    """Consumed tokens by their weight."""
    rollout_use: float | None
    """Share of the time in which rollout's places generate."""
    dropped_share: float | None
    """Share of kept tokens that are thrown away as over age."""
    queue_mean_tokens: float | None
    queue_delay_s: float | None
    """Q / lambda_train (Little)."""
    age_mean_s: float | None
    """From a sample's first token to its use."""
    lag_mean: float | None
    """Versions between a sample's generation and its use."""
    lag_bound: float | None
    """F1.8's bound of it, with the time of the longest trajectory of a batch."""
    token_lag_bound: float | None
    """The same in trained tokens."""
    age_bound_s: float | None
    """The same in seconds from first token to use: T_gen + Q / lambda_train."""
    publish_budget_s: float | None
    """Longest publishing time that keeps the bound within the budget in versions."""


class LoopConstraint(_Record):
    """One of F1.8's constraints; `lag`, `age` and `token-lag` are the three measures of staleness."""

    name: Literal["supply", "publish", "queue-least", "queue-most", "lag", "age", "token-lag", "one-version"]
    holds: bool | None
    """Null: it does not apply, or nothing tells."""
    demand: float | None
    limit: float | None
    unit: str
    reason: str


class Agreement(_Record):
    """One quantity by formula and by simulation."""

    quantity: str
    unit: str
    formula: float | None
    simulated: float
    apart: float | None
    """Simulated over formula, less one."""


class PolicyCost(_Record):
    """The same loop under one policy, simulated."""

    policy: Literal["wait", "drop", "down-weight"]
    grows: Growing
    step_s: float | None
    wait_s: float | None
    consumed_tokens_per_s: float
    effective_tokens_per_s: float | None
    cost: float | None
    """Share of the effective tokens per second of the same loop without a budget that it gives up."""
    rollout_use: float
    dropped_share: float
    over_share: float
    """Share of used tokens that were over the budget."""
    lag_mean: float
    lag_most: int
    age_mean_s: float


class LoopPoint(_Record):
    """One training step of the simulation, from the start on."""

    taken_s: float
    waited_s: float
    lag_mean: float
    lag_most: int
    age_mean_s: float
    age_most_s: float
    token_lag_mean: float
    weight: float


class QueuePoint(_Record):
    """The queue at one moment of the simulation."""

    time_s: float
    queue_tokens: float
    trained: int
    """Versions trained."""
    rolled: int
    """Version with which trajectories begin."""
    unpublished: int
    """Versions that wait for their publication."""


class LoopReport(_Record):
    """A loop of training and rollout: what holds, what binds, what grows."""

    schema_: str = Field(default=LOOP_SCHEMA, alias="schema")
    name: str
    policy: Literal["wait", "drop", "down-weight"]
    batch_tokens: float
    train_s: float
    publish_s: float
    steady: SteadyState
    searched_step_s: float | None = None
    """Of an answer about two pools: the step that the search gave the pair, every sample within its budget."""
    constraints: list[LoopConstraint]
    simulated_grows: Growing
    """The queue that grows in the simulation."""
    agreement: list[Agreement]
    """Of a stable loop: formula beside simulation, second half of the steps."""
    settled_s: float | None
    """Simulated time after which steps stay within 5 % of the steady step on average of ten; null: they do not."""
    policies: list[PolicyCost]
    steps: list[LoopPoint]
    queue: list[QueuePoint]
    budget_versions: float | None
    budget_age_s: float | None
    seed: int
    assumptions: list[str]
    notes: list[str]

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same report."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def loop_records(found: LoopReport) -> list[dict[str, Any]]:
    """One record per simulated training step; numbers in SI units."""
    return [{"step": place, **point.model_dump()} for place, point in enumerate(found.steps)]
