"""The typed, versioned result of `guidelines`: rules of thumb, each tried on one model and cluster.

Contents: GUIDELINES_SCHEMA, Guideline, Guidelines, guideline_records.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Provenance, RankedMapping, data_frame
from mapsearch.comparison import Term

GUIDELINES_SCHEMA = "mapsearch.guidelines/1"
Outcome = Literal["holds", "does not hold", "does not apply", "unknown"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class Guideline(_Record):
    """One rule of thumb, with the fastest mapping that follows it and the fastest that does not."""

    name: str
    statement: str
    source: str
    outcome: Outcome
    """`does not apply`: its premise is not given here, or nothing that fits follows it. `unknown`: no time was left."""
    follows_s: float | None = None
    """Step time of the fastest mapping that follows it; None when none fits."""
    breaks_s: float | None = None
    """Step time of the fastest mapping that does not, or where the rule is free; None when none fits."""
    by: float | None = None
    """follows_s / breaks_s - 1: negative where following it gains, positive where it costs."""
    expected: float | None = None
    """What the rule says a quantity of the fastest mapping changes to, as a share of what it was."""
    found: float | None = None
    """What it changes to by the estimate."""
    told_apart: bool = True
    """False when both are closer than the error band of the profile tells apart."""
    difference: str = ""
    """How the mapping that does not follow it differs: `TP4 -> TP8`."""
    parts: list[Term] = []
    """Parts of the step of both, and the difference."""
    example: RankedMapping | None = None
    """The counter-example: the fastest mapping that does not follow it, where that one is faster."""
    sentences: list[str] = []


class Guidelines(_Record):
    """What `guidelines` returns."""

    schema_: str = Field(default=GUIDELINES_SCHEMA, alias="schema")
    status: Literal["exact", "feasible", "infeasible", "unknown"]
    """`exact`: every search went through its whole space. `feasible`: some did not. `infeasible`: nothing fits."""
    mapping: RankedMapping | None
    """The fastest mapping of all."""
    guidelines: list[Guideline] = []
    provenance: Provenance
    notes: list[str] = []
    interrupted: bool = False
    timings_s: dict[str, float] = Field(default_factory=dict, exclude=True)

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same result."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per guideline. Raises BackendMissing when pandas is not installed."""
        return data_frame(guideline_records(self))


def guideline_records(found: Guidelines) -> list[dict[str, Any]]:
    """A flat record per guideline."""
    return [
        {
            "guideline": one.name,
            "outcome": one.outcome,
            "follows_s": one.follows_s,
            "breaks_s": one.breaks_s,
            "by": one.by,
            "expected": one.expected,
            "found": one.found,
            "told_apart": one.told_apart,
            "difference": one.difference,
            "statement": one.statement,
            "source": one.source,
        }
        for one in found.guidelines
    ]
