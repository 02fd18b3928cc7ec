"""The typed, versioned verdict on a case; its JSON is what `--format json` prints.

Contents: VERDICT_SCHEMA, Word, Found, Absent, Tried, Verdict.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

VERDICT_SCHEMA = "mapsearch.verdict/1"
Word = Literal["feasible", "infeasible", "out of memory", "slow", "undetermined"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class Found(_Record):
    """One thing found about a case."""

    kind: str
    """infeasible, out of memory, slow, or note."""
    relation: str
    origin: str
    """physics, or whose rule it is."""
    sentence: str


class Absent(_Record):
    """A fact that the case does not give."""

    fact: str
    taken: str
    """What was taken for it; empty when nothing could be."""
    may_be: str


class Tried(_Record):
    """A missing fact at one of its legal values, with the verdict there."""

    fact: str
    value: str
    verdict: Word


class Verdict(_Record):
    """What `check` says of a case."""

    schema_: str = Field(default=VERDICT_SCHEMA, alias="schema")
    case: str
    verdict: Word
    relation: str
    """The relation that decides; of an undetermined case the fact that does."""
    because: str
    """The deciding sentence, with its numbers."""
    relations: list[str]
    """All relations at stake: those that are broken, or of a feasible case those that something else would break."""
    firm: bool
    """Whether every legal value tried for the missing facts gives the same verdict."""
    found: list[Found]
    missing: list[Absent]
    tried: list[Tried]
    notes: list[str]

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same verdict."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
