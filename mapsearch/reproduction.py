"""Typed records of a solve that can be repeated: its lock file, and what a repetition found.

Contents: LOCK_FILE, LOCK_SCHEMA, REPRODUCTION_SCHEMA, LockedDocument, Lock, Difference, Trial, Reproduction.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Status

LOCK_FILE = "mapsearch.lock.json"
LOCK_SCHEMA = "mapsearch.lock/1"
REPRODUCTION_SCHEMA = "mapsearch.reproduction/1"
Cause = Literal["nothing", "inputs", "versions", "inputs and versions", "unknown"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class LockedDocument(_Record):
    """One document as it was when the problem was solved."""

    file: str
    """Its file beside the lock file."""
    name: str = ""
    """What it was asked for as: a built-in name or a path; empty of what `solve` wrote itself."""
    sha256: str
    """Of its canonical JSON, as `input_sha256` of an answer."""
    content: dict[str, Any]
    """All of it, so that a change can be told before and after."""


class Lock(_Record):
    """What an answer depends on: `mapsearch.lock.json`."""

    schema_: str = Field(default=LOCK_SCHEMA, alias="schema")
    version: str
    """Of mapsearch."""
    libraries: dict[str, str]
    """Versions of the libraries that solve."""
    options: dict[str, Any]
    """Options of `solve` that matter: devices, top, backend, proof, certify, time_limit."""
    overrides: dict[str, list[str]]
    """Options that changed the run before it was written; `run.yaml` holds them already."""
    documents: dict[str, LockedDocument]
    """model, run, topology, profile, mapping (the first of the ranking) and answer."""
    sha256: str
    """Of this file without this line: a lock that was edited by hand is refused."""

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same solve."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


class Difference(_Record):
    """One value that is not what it was."""

    file: str
    """`topology.yaml`; of a version `mapsearch` or the library."""
    field: str
    """`levels.rack.bandwidth`; of a version `version`."""
    before: str
    after: str


class Trial(_Record):
    """The search with the locked documents but for one that has changed."""

    changed: str
    """The file that is taken as it is now; empty: none, so that only versions differ."""
    same: bool
    """True when the answer is the locked one: what changed there did not change it."""
    status: Status
    step_time_s: float | None


class Reproduction(_Record):
    """What `reproduce` returns."""

    schema_: str = Field(default=REPRODUCTION_SCHEMA, alias="schema")
    folder: str
    same: bool
    """True when status, bound and every mapping are what they were."""
    complete: bool
    """False when the new search was stopped, so that `same` says nothing."""
    cause: Cause
    """What the difference is laid to by the trials; `nothing` where there is none."""
    sentence: str
    status: Status
    step_time_s: float | None
    """Now."""
    locked_status: Status
    locked_step_time_s: float | None
    inputs: list[Difference]
    """Every changed field of every document, whether it changes the answer or not."""
    versions: list[Difference]
    answer: list[Difference]
    """Fields of the answer that differ, provenance apart; the first hundred."""
    answer_differences: int
    """How many differ in all."""
    trials: list[Trial]
    notes: list[str] = []

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same repetition."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
