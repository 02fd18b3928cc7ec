"""The typed, versioned result of an audit; its JSON is what `mapsearch audit --format json` prints.

Contents: AUDIT_SCHEMA, LinkLoad, GroupRate, AxisAudit, Overlap, Round, Audit.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Provenance, RankedMapping

AUDIT_SCHEMA = "mapsearch.audit/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LinkLoad(_Record):
    """One link, one way, and what a step puts on it."""

    source: str
    """The node that sends."""
    target: str
    """The node that receives."""
    bytes_per_s: float
    load_bytes: float
    """Bytes per step."""
    seconds: float
    """Seconds that they take at full bandwidth."""
    by_axis: dict[str, float] = {}
    """Those seconds by the axis whose groups send."""
    alike: int = 1
    """Links with the very same load, this one counted; only told of the busiest ones."""


class GroupRate(_Record):
    """One group of an axis while all groups of the axis send."""

    first: str
    """Its first device."""
    last: str
    """Its last device."""
    bytes_per_s: float


class AxisAudit(_Record):
    """What the groups of one axis get on the graph, against what the level model assumes.

    Bandwidths are bytes that a device sends for the pattern, over the time of the whole (the bus bandwidth of
    nccl-tests), without efficiencies and start-up costs.
    """

    axis: str
    pattern: Literal["gather", "exchange", "hop"]
    """All-gather and reduce-scatter, all-to-all, or to the next member."""
    groups: int
    members: int
    ways: dict[str, int]
    """Ways of a group by level, innermost first, ways of 1 left out."""
    model_bytes_per_s: float
    """By the level model: all devices send at once."""
    routed_bytes_per_s: float
    """On the graph, all groups at once."""
    alone_bytes_per_s: float
    """On the graph, one group by itself: the slowest of those that were tried."""
    simulated_bytes_per_s: float | None = None
    """All groups at once by the discrete-event check; None where the graph is too large for it."""
    measured_bytes_per_s: float | None = None
    """On the machine, as it was given; None where it was not."""
    ratio: float
    """Routed over model."""
    model_s: float
    """Seconds per step by the level model, on the slowest stage, hidden or not."""
    routed_s: float
    worst: LinkLoad
    """The link that takes longest, with this axis' load alone."""
    shares: dict[str, float] = {}
    """Where it differs by more than the tolerance: share of each level's bandwidth that explains it."""
    rates: list[GroupRate] = []
    """Every group, on graphs that are small enough."""


class Overlap(_Record):
    """Two axes whose transfers the schedule has at the same time, on the link that they share most."""

    hidden: str
    """The axis that runs in the background, under compute."""
    other: str
    alone_s: float
    """Seconds per step of the longer one by itself."""
    together_s: float
    """Seconds per step of both on their busiest link."""
    link: LinkLoad


class Round(_Record):
    """One search and the audit of its best mapping."""

    mapping: str
    step_time_s: float | None
    """By the level model, with the shares that the rounds before have found; None where it breaks a relation."""
    audited_step_time_s: float | None
    """With the shares that the graph gives this very mapping; None where it then breaks a relation."""
    shares: dict[str, dict[str, float]]
    """Axis: {level: share of its bandwidth}, as given to the next search; only what differs."""
    changed: bool
    """True when the mapping is another one than in the round before."""


class Audit(_Record):
    """What `audit` returns."""

    schema_: str = Field(default=AUDIT_SCHEMA, alias="schema")
    mapping: str
    """The mapping in a line."""
    devices: int
    links: int
    """Links of the graph, each way counted."""
    tolerance: float
    """Share by which routed and model bandwidth may differ before it counts."""
    step_time_s: float
    """By the level model."""
    audited_step_time_s: float
    """With what the axes get on the graph."""
    contended_step_time_s: float | None = None
    """At most, where background traffic takes its half of every link that it shares with what stands in line."""
    axes: list[AxisAudit]
    level_busy_s: dict[str, float] = {}
    """Level: seconds per step that messages which cross it, of all axes, keep their busiest link busy."""
    overlaps: list[Overlap] = []
    busiest: list[LinkLoad] = []
    """The links that are busiest over a step, all axes together, busiest first; one of each kind of load."""
    rounds: list[Round] = []
    """Searches with what the audits before them found; empty unless asked for."""
    outcome: Literal["", "fixpoint", "cycle", "bound", "nothing fits", "interrupted"] = ""
    """How the rounds ended: an audit that told nothing new, a mapping that came back, the bound on rounds, shares with
    which nothing fits, or the user."""
    best: RankedMapping | None = None
    """The mapping of the round with the shortest audited step, costed with its own shares; None without rounds,
    and where none of them keeps all relations."""
    provenance: Provenance
    notes: list[str] = []

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)

    @property
    def holds(self) -> bool:
        """True when every axis gets what the level model assumes, within the tolerance."""
        return not any(axis.shares for axis in self.axes)

    @property
    def shares(self) -> dict[str, dict[str, float]]:
        """Axis: {level: share of its bandwidth}, where they differ."""
        return {axis.axis: axis.shares for axis in self.axes if axis.shares}

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same audit."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
