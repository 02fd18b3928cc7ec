"""The typed, versioned result of an export; its JSON is what `--format json` prints.

Contents: EXPORT_SCHEMA, Unexpressed, Refusal, Exported.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

EXPORT_SCHEMA = "mapsearch.export/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class Unexpressed(_Record):
    """Something of a mapping or run that the framework's files cannot say."""

    what: str
    """An axis (`cp_kind`), `placement`, or a fact of the run (`precision`)."""
    value: str
    """As the mapping has it."""
    why: str
    """What the framework does instead, or where it is said."""


class Refusal(_Record):
    """A rule of the framework that the mapping breaks."""

    relation: str
    sentence: str


class Exported(_Record):
    """What `export` writes."""

    schema_: str = Field(default=EXPORT_SCHEMA, alias="schema")
    to: str
    """megatron, bridge, torchtitan, deepspeed or mindspeed."""
    framework: str
    """Whose rules the mapping was held against, with the release."""
    text: str
    """The file."""
    mapping: dict[str, Any]
    """The mapping as the file says it, read again."""
    same: bool
    """Whether it is the mapping that was asked for, in sizes, choices and layout."""
    unexpressed: list[Unexpressed]
    refused: list[Refusal]
    """Rules of the framework that the mapping breaks: it would not start."""
    notes: list[str]

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same export."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
