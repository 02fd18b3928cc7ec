"""The typed, versioned result of an `explain`; its JSON is what `--format json` prints.

Contents: EXPLANATION_SCHEMA, Stability, RulePrice, HoleCost, Win, WhyNot, Explanation, findings, finding.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import (
    Binding,
    Conflict,
    JointRelaxation,
    Margin,
    Provenance,
    RankedMapping,
    Relaxation,
    Space,
    data_frame,
)
from mapsearch.comparison import Term

EXPLANATION_SCHEMA = "mapsearch.explanation/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class Stability(_Record):
    """How far one input may worsen before the explained mapping loses its rank."""

    input: str
    """`hbm`, `exposed_limit`, `bandwidth.rack`."""
    unit: str
    now: float
    until: float | None
    """The mapping keeps its rank down to this value; None where it does down to the lowest value that was tried."""
    tried: float
    """The lowest value that was looked at."""
    resolution: float
    """Width of the bracket around `until` as a share of it; 0 where it is exact."""
    what: str
    """What happens there: it no longer fits, or which mapping takes over."""


class RulePrice(_Record):
    """What one rule of placement, of a framework, or of the user costs: the best mapping without it, searched too."""

    relation: str
    origin: str
    words: str
    step_time_s: float | None
    """Step time of the fastest mapping without the rule; None where the search for it was stopped."""
    gain: float
    """Share of the step that dropping the rule saves; 0 where it costs nothing."""
    unlock: str = ""
    """How that mapping differs: `EP32 -> EP64`."""


class HoleCost(_Record):
    """What one hole of the cluster costs: the best mapping with it repaired, searched too."""

    hole: str
    """As written under `down`; `all 3` for all of them together."""
    step_time_s: float | None
    """Step time of the fastest mapping then; None where the search for it was stopped."""
    tokens_per_s: float
    """Now."""
    repaired_tokens_per_s: float | None
    gain: float
    """Share of today's tokens per second that the repair adds; 0 where it adds nothing by itself."""
    devices: int
    """Devices that a mapping could use then, at most."""
    unlock: str = ""
    """How that mapping differs: `PP15 -> PP1`."""


class Win(_Record):
    """The least change of one input at which the mapping asked about is the fastest."""

    input: str
    unit: str
    now: float
    value: float | None
    """The nearest value at which it beats every mapping that is known; None where no value that was tried does."""
    tried: tuple[float, float]
    resolution: float
    """How near `value` is to where it begins to win, as a share of it."""
    step_time_s: float | None = None
    """Its step time there."""
    verified: bool = False
    """True when the whole space was searched at `value` and nothing is faster there: the least change of all."""


class WhyNot(_Record):
    """Why a mapping, or mappings of a kind, are not the answer."""

    wish: str
    """What was asked for: `tp=8 ep=64`."""
    complete: bool
    """True when the wish fixes every axis."""
    mapping: RankedMapping | None
    """The mapping asked about, or the fastest one that grants the wish; None when none does."""
    broken: list[Margin] = []
    """Relations that the mapping asked about breaks, as it is placed."""
    conflicts: list[Conflict] = []
    """Why no mapping grants the wish."""
    edit: str = ""
    """The least change of the wish that can be granted: `EP64 -> EP32`."""
    edited: RankedMapping | None = None
    """The fastest mapping after that change."""
    slower_by: float | None = None
    """(its step time - the winner's) / the winner's."""
    step_time_s: list[Term] = []
    """Parts of the step, winner first, and the difference."""
    memory_bytes: list[Term] = []
    wins: list[Win] = []
    sentences: list[str] = []


class Explanation(_Record):
    """What `explain` returns."""

    schema_: str = Field(default=EXPLANATION_SCHEMA, alias="schema")
    status: Literal["exact", "feasible", "infeasible", "unknown"]
    """`exact`: the search went through the whole space. `feasible`: it was stopped. `infeasible`: nothing fits."""
    mapping: RankedMapping | None
    """The mapping that is explained, with the margin of every relation."""
    bindings: list[Binding] = []
    """Least relaxations of a limit that unlock something faster, nearest first, no two of them the same mapping."""
    binding_note: str = ""
    stability: list[Stability] = []
    rules: list[RulePrice] = []
    holes: list[HoleCost] = Field(default=[], exclude_if=lambda holes: not holes)
    """Where they were asked about; left out of the JSON otherwise."""
    conflicts: list[Conflict] = []
    relaxations: list[Relaxation] = []
    conflicts_complete: bool = False
    """True when `conflicts` holds every minimal conflict there is."""
    joint: JointRelaxation | None = None
    """The cheapest joint relaxation."""
    rejections: dict[str, int] = {}
    """How many joint mappings each relation alone rejects."""
    first_rejections: dict[str, int] = {}
    """How many joint mappings each relation rejects that all relations before it accept, in the order of the list."""
    rejections_of: int = 0
    """Joint mappings that were counted, before any relation."""
    rejections_note: str = ""
    """What was counted, and what was not."""
    why_not: WhyNot | None = None
    space: Space
    provenance: Provenance
    notes: list[str] = []
    interrupted: bool = False
    timings_s: dict[str, float] = Field(default_factory=dict, exclude=True)
    """Wall times of the phases; left out of the JSON so that equal inputs give equal bytes."""

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same explanation."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per finding. Raises BackendMissing when pandas is not installed."""
        return data_frame(findings(self))


def findings(explanation: Explanation) -> list[dict[str, Any]]:
    """Every finding as a flat record with the same keys: what CSV and data frames show."""
    found = explanation
    rows = [finding("binding", b.relation, b.lever, b.relax_by, b.unit, b.gain, b.unlock) for b in found.bindings]
    rows += [finding("stability", s.input, "", s.until, s.unit, None, s.what) for s in found.stability]
    rows += [finding("rule", r.relation, r.words, None, "", r.gain, r.unlock) for r in found.rules]
    rows += [
        finding("hole", h.hole, "repair", h.repaired_tokens_per_s, "tokens/s", h.gain, h.unlock) for h in found.holes
    ]
    for name, number in found.rejections.items():
        rows.append(finding("rejects", name, "", float(number), "", None, ""))
    for number, conflict in enumerate(found.conflicts, 1):
        pairs = zip(conflict.relations, conflict.sentences, strict=True)
        rows += [finding(f"conflict {number}", name, "", None, "", None, sentence) for name, sentence in pairs]
    rows += [finding("relaxation", r.relation, r.lever, r.to_value, r.unit, None, r.mapping) for r in found.relaxations]
    if found.joint is not None:
        rows += [
            finding("joint", c.name, c.lever, c.to_value, c.unit, None, found.joint.mapping)
            for c in found.joint.changes
        ]
    if found.why_not is not None:
        rows += [finding("why not", found.why_not.wish, "", None, "", None, text) for text in found.why_not.sentences]
    if found.mapping is not None:
        rows += [
            finding("margin", m.relation, m.origin, m.margin, m.unit, None, m.reason) for m in found.mapping.margins
        ]
    return rows


def finding(
    kind: str, subject: str, lever: str, value: float | None, unit: str, gain: float | None, text: str
) -> dict[str, Any]:
    """One finding as a flat record."""
    return {
        "finding": kind,
        "subject": subject,
        "lever": lever,
        "value": value,
        "unit": unit,
        "gain": gain,
        "text": text,
    }
