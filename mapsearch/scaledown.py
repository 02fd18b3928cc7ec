"""The typed, versioned result of `scale-down`: a small run that stands for a large one, and what it can confirm.

Contents: SCALE_DOWN_SCHEMA, Kept, ContractRow, ScaledDown, kept_records.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Provenance, RankedMapping, data_frame

SCALE_DOWN_SCHEMA = "mapsearch.scale-down/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class Kept(_Record):
    """One quantity of the full run, and whether the small one has the same."""

    name: str
    domain: int
    """Of the ten of the contract (FORMULAS 1.9)."""
    full: str
    small: str
    kept: bool
    confirms: str
    """What a measurement on the small run says of the full one where it is kept, or why it says nothing of it."""


class ContractRow(_Record):
    """One row of the contract that both runs have, and whether the small one predicts the same of it."""

    id: str
    domain: int
    full: float | str
    small: float | str
    confirmed: bool
    """True when both predictions are equal, so that a measurement on the small run is one on the full."""


class ScaledDown(_Record):
    """What `scale-down` returns."""

    schema_: str = Field(default=SCALE_DOWN_SCHEMA, alias="schema")
    status: Literal["optimal", "infeasible"]
    """`optimal`: no small run on so many devices keeps more. `infeasible`: none keeps what has to be kept and fits."""
    devices: int
    full: RankedMapping | None
    """The mapping that is to be validated."""
    mapping: RankedMapping | None
    """The small run's mapping, with its predicted step time and memory."""
    units: dict[str, int] = {}
    """Level: how many units of the level below take part in each of its units, innermost first."""
    kept: list[Kept] = []
    rows: list[ContractRow] = []
    """Rows of the full run's contract that are predicted for both; those that are not are in `only_full`."""
    only_full: list[str] = []
    """Rows that are predicted for the full run alone: a level or an axis that the small run does not have."""
    score: int = 0
    """How many quantities are kept."""
    examined: int = 0
    """Small runs that were compared."""
    inputs: dict[str, Any] = {}
    """model, run, topology, profile and mapping of the small run, as documents."""
    provenance: Provenance
    notes: list[str] = []

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same result."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per quantity. Raises BackendMissing when pandas is not installed."""
        return data_frame(kept_records(self))


def kept_records(found: ScaledDown) -> list[dict[str, Any]]:
    """A flat record per quantity."""
    return [one.model_dump() for one in found.kept]
