"""The typed, versioned comparison of answers or of fronts; its JSON is what `compare --format json` prints.

Contents: COMPARISON_SCHEMA, Change, Moved, Term, Coverage, Crossing, Comparison.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

COMPARISON_SCHEMA = "mapsearch.comparison/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class Change(_Record):
    """Something that the documents rest on and that is not the same in all of them."""

    what: str
    """`model`, `topology (contents)`, `--fix`, `numpy`, `assumptions`."""
    values: list[str]
    """One per document; empty where a document has none."""


class Moved(_Record):
    """One mapping in all documents: equal sizes and choices."""

    mapping: str
    ranks: list[int | None]
    """Its rank in each document; None where it is not listed."""
    step_times_s: list[float | None]
    move: Literal["same", "up", "down", "new", "gone", "elsewhere"]
    """From the first document to the last; `elsewhere`: listed in others only."""


class Term(_Record):
    """One part of the step time or of the peak memory of the mappings that are compared."""

    name: str
    values: list[float]
    """One per document, 0 where the mapping has no such part."""
    differences: list[float]
    """Less the first document's."""


class Coverage(_Record):
    """How much of one front another one is at least as good as (the C-metric)."""

    by: str
    of: str
    share: float
    """Share of the points of `of` that some point of `by` equals or dominates."""
    dominates: bool
    """All of them, and not the other way round."""


class Crossing(_Record):
    """Where one front stops being the faster one."""

    first: str
    second: str
    objective: str
    """What is allowed up to some value; others beside the step time are not limited."""
    at: float
    """From this value on another front is the faster one, until the next crossing."""
    leader_below: str
    """The faster one before; empty at the first value where one is."""
    leader_above: str


class Comparison(_Record):
    """What `compare` returns."""

    schema_: str = Field(default=COMPARISON_SCHEMA, alias="schema")
    kind: Literal["answers", "fronts"]
    names: list[str]
    """The documents, in the order given; every list with one value per document has this order."""
    statuses: list[str]
    changes: list[Change]
    mappings: list[Moved]
    compared: list[str]
    """The mapping of each document whose terms are compared: the best, the one asked for, or the fastest point."""
    step_time_s: list[Term]
    """Parts of the step, the whole last."""
    memory_bytes: list[Term]
    """Parts of the worst stage's peak, the whole last."""
    objectives: list[str] = []
    coverage: list[Coverage] = []
    hypervolume: list[float | None] = []
    """Share of the box that each front dominates: objectives scaled to the range of all fronts together, the
    reference a tenth of the range beyond its worst corner. None when moocore is not installed."""
    reference: dict[str, float] = {}
    """The reference point, in SI units."""
    crossings: list[Crossing] = []
    notes: list[str] = []

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same comparison."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
