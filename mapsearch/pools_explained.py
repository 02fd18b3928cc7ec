"""The typed, versioned result of an `explain` of an answer about two pools.

Contents: POOLS_EXPLANATION_SCHEMA, ServingExplained, PoolConstraint, PoolChange, PoolsExplanation, pools_findings.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Conflict, Provenance, Relaxation, data_frame
from mapsearch.explanation import Explanation, finding, findings
from mapsearch.pooled import TwoPools

POOLS_EXPLANATION_SCHEMA = "mapsearch.pools-explanation/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class ServingExplained(_Record):
    """One replica's memory and passes, and what limits the requests under way in it."""

    memory_bytes: dict[str, float]
    """Weights, their scales, cache and buffers of the fullest device."""
    limit_bytes: float
    free_bytes: float
    sequences: int
    """Requests under way in one replica."""
    most_sequences: int
    """Requests whose caches fit."""
    limited_by: Literal["memory", "concurrency", "step"]
    """What more requests would break: HBM, the concurrency of the rollout, or nothing, but the step is no shorter."""
    reason: str
    decode_parts_s: dict[str, float]
    """One decode step."""
    prefill_parts_s: dict[str, float]
    """One prompt of mean length."""


class PoolConstraint(_Record):
    """One of the four constraints between the pools, with its margin."""

    name: Literal["supply", "publish", "queue", "version"]
    demand: float
    limit: float
    margin: float
    unit: str
    without_s: float
    """The step of the same pair if this constraint alone were gone."""
    reason: str


class PoolChange(_Record):
    """The least change of one input that shortens the step by a worthwhile share, both mappings searched again."""

    name: str
    lever: str
    """In words: `versions 8 -> 9`."""
    from_value: float | None
    to_value: float | None
    """Null of a choice."""
    unit: str
    choice: str
    """What is chosen instead, where it is no number."""
    step_s: float
    gain: float
    """Share of the step that it saves."""
    fails_at: float | None
    """The nearest smaller change that was searched too, and saves less."""
    training_devices: int
    rollout_devices: int
    pair: str
    """Both mappings then, in a line."""


class PoolsExplanation(_Record):
    """What `explain` says of an answer about two pools."""

    schema_: str = Field(default=POOLS_EXPLANATION_SCHEMA, alias="schema")
    status: Literal["exact", "feasible", "infeasible", "unknown"]
    """`exact`: the pair is proven the best. `feasible`: a better one is not excluded."""
    pools: TwoPools
    """The answer that is explained."""
    training: Explanation | None
    """The training side by itself on its devices: what binds it, what rules cost, how stable it is."""
    serving: ServingExplained | None
    constraints: list[PoolConstraint] = []
    worthwhile: float
    """Share of the step that a change must save to be told."""
    changes: list[PoolChange] = []
    """Least changes of one input, those that save most first."""
    useless: list[str] = []
    """Changes that were searched as far as they go and save less, in words."""
    conflicts: list[Conflict] = []
    conflicts_complete: bool = False
    relaxations: list[Relaxation] = []
    provenance: Provenance
    notes: list[str] = []
    interrupted: bool = False

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same explanation."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per finding. Raises BackendMissing when pandas is not installed."""
        return data_frame(pools_findings(self))


def pools_findings(found: PoolsExplanation) -> list[dict[str, Any]]:
    """Every finding as a flat record with the keys of a training explanation's."""
    rows = [
        finding(f"constraint without {one.without_s:.6g} s", one.name, "", one.margin, one.unit, None, one.reason)
        for one in found.constraints
    ]
    rows += [
        finding("change", one.name, one.lever, one.to_value, one.unit, one.gain, one.pair) for one in found.changes
    ]
    for number, conflict in enumerate(found.conflicts, 1):
        pairs = zip(conflict.relations, conflict.sentences, strict=True)
        rows += [finding(f"conflict {number}", name, "", None, "", None, sentence) for name, sentence in pairs]
    rows += [
        finding("relaxation", one.relation, one.lever, one.to_value, one.unit, None, one.mapping)
        for one in found.relaxations
    ]
    if found.serving is not None:
        rows.append(finding("serving", found.serving.limited_by, "", float(found.serving.sequences), "requests", None,
                            found.serving.reason))  # fmt: skip
    training = findings(found.training) if found.training is not None else []
    return [*rows, *({**row, "finding": f"training {row['finding']}"} for row in training)]
