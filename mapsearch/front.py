"""The typed, versioned front of a `pareto`; its JSON is what `--format json` prints.

Contents: FRONT_SCHEMA, FrontStatus, FrontPoint, Front, front_row.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Proof, Provenance, RankedMapping, Space, data_frame, row

FRONT_SCHEMA = "mapsearch.front/1"

FrontStatus = Literal["proven", "exact", "open", "infeasible", "unknown"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class FrontPoint(_Record):
    """One mapping that no other one is better than in some objective and as good as in all others."""

    rank: int
    """Place on the front, in the order of its objectives as asked for: the fastest is 1."""
    objectives: dict[str, float]
    """Value by objective, in SI units; all are minimised."""
    knee: bool = False
    """The point farthest from the chord between the extremes, in logarithms scaled to the front's range."""
    settled: bool = True
    """False when the search was stopped and a mapping that it did not see could still dominate the point."""
    mapping: RankedMapping


class Front(_Record):
    """What `pareto` returns."""

    schema_: str = Field(default=FRONT_SCHEMA, alias="schema")
    status: FrontStatus
    """`proven`: the whole space, and a second way to the same front. `exact`: the whole space, by the search alone.
    `open`: stopped early. `infeasible`: no mapping fits. `unknown`: stopped without a mapping."""
    objectives: list[str]
    units: dict[str, str]
    """Unit of each objective; a cost is in the currency of the topology's `price_per_hour`."""
    points: list[FrontPoint]
    open_region: list[dict[str, float]] = []
    """Where unseen mappings may lie when the search was stopped: at or above one of these vectors."""
    space: Space
    proofs: list[Proof]
    provenance: Provenance
    notes: list[str] = []
    interrupted: bool = False
    timings_s: dict[str, float] = Field(default_factory=dict, exclude=True)
    """Wall times of the phases; left out of the JSON so that equal inputs give equal bytes."""

    @property
    def knee(self) -> FrontPoint | None:
        """The marked point, or None on a front of fewer than three points."""
        return next((point for point in self.points if point.knee), None)

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same front."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per point. Raises BackendMissing when pandas is not installed."""
        return data_frame([front_row(point) for point in self.points])


def front_row(point: FrontPoint) -> dict[str, Any]:
    """One point as a flat record: what CSV and data frames show; objectives first."""
    about = {key: value for key, value in row(point.mapping).items() if key not in ("rank", "binding", "lever", "gain")}
    objectives = {f"objective_{name}": value for name, value in point.objectives.items()}
    return {"rank": point.rank, "knee": point.knee, "settled": point.settled, **objectives, **about}
