"""The typed, versioned contract of a mapping: what a machine can later confirm or refute, in ten domains.

Contents: CONTRACT_SCHEMA, Verdict, Origin, Recipe, Band, Found, Row, Part, Attribution, DomainContract, Contract,
contract_records.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Provenance, RankedMapping

CONTRACT_SCHEMA = "mapsearch.contract/1"
Verdict = Literal["holds", "broken", "must be measured", "not given"]
Agreement = Literal["agrees", "differs", "no band"]
Sense = Literal["<=", ">=", "="]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class Origin(_Record):
    """One input that a quantity rests on."""

    document: str
    """model, run, topology, profile or mapping."""
    file: str
    """The document's name as it was asked for."""
    field: str
    """The field in it: `levels.rack.bandwidth`."""
    value: str
    """As written; empty where a field holds too much to repeat."""
    tag: str
    """measured, datasheet, assumed or fitted; `chosen` of a mapping's own axes; `not said` where no source is."""


class Recipe(_Record):
    """How a quantity is measured on the machine."""

    record: str
    """What to run or to record."""
    compute: str
    """How the quantity follows from what was recorded."""


class Band(_Record):
    """How far a prediction may be off."""

    low: float
    high: float
    rests_on: str
    """What the band rests on."""


class Found(_Record):
    """What was measured of one quantity."""

    value: float | str
    """The median, where several values were given."""
    low: float | None
    high: float | None
    """Least and largest of the values that were given; None of a word."""
    samples: int
    source: str
    difference: float | None
    """measured / predicted - 1; None without a prediction, or where that is 0."""
    agreement: Agreement
    """`agrees`: inside the band; `no band`: nobody knows how far off this prediction may be."""
    sentence: str


class Row(_Record):
    """One recorded quantity of one domain."""

    id: str
    """Its name for measurements: `ep.fixed.peer_bytes`."""
    domain: int
    meaning: str
    predicted: float | str | None
    """In SI units; a word where the quantity is one; None when it cannot be predicted."""
    unit: str
    band: Band | None = None
    """None where the calibration gives none."""
    limit: float | None = None
    sense: Sense = "<="
    """How predicted stands to limit when the row holds."""
    margin: float | None = None
    """Positive when the limit is kept; of the measured value once there is one."""
    advisory: bool = False
    """True when the limit is a wish: a row that misses it is not broken."""
    verdict: Verdict
    why: str
    """Of a limit: where it comes from; of `not given`: exactly what is missing."""
    formula: str
    """The sections of docs/reference/formulas.md that it follows from."""
    origins: list[Origin]
    recipe: Recipe
    measured: Found | None = None
    parts: list[str] = []
    """Rows that add up to this one."""
    factors: dict[str, int] = {}
    """Rows whose product, to these powers, this one is but for a constant."""


class Part(_Record):
    """One part of a difference between predicted and measured."""

    id: str
    formula: str
    predicted: float
    measured: float
    difference: float
    """In the unit of the whole; of factors the natural logarithm of measured over predicted, with its power."""
    share: float
    """Of the whole difference."""


class Attribution(_Record):
    """Which formula is off: what a measured difference is made of."""

    id: str
    unit: str
    kind: Literal["sum", "product"]
    difference: float
    """measured - predicted; of a product the logarithm of their ratio."""
    parts: list[Part]
    """The largest first."""
    unexplained: float
    """What the measured parts leave over: parts that were not measured, or that nobody counts."""
    missing: list[str]
    """Parts that were not measured."""
    sentence: str


class DomainContract(_Record):
    """One of the ten domains with its rows."""

    number: int
    title: str
    predicate: str
    """What must be true of the machine."""
    verdict: Verdict
    """The worst of its rows: broken, then not given, then must be measured."""
    missing: list[str]
    """What is not given, each once."""
    rows: list[Row]


class Contract(_Record):
    """What `contract` returns."""

    schema_: str = Field(default=CONTRACT_SCHEMA, alias="schema")
    source: str
    """Where the mapping was read from."""
    mapping: RankedMapping
    """The mapping with its estimate and the margin of every relation of the search."""
    verdict: Verdict
    domains: list[DomainContract]
    measured_with: str = ""
    """Name of the measurements that the rows were held against."""
    attributions: list[Attribution] = []
    provenance: Provenance
    notes: list[str] = []

    @property
    def rows(self) -> list[Row]:
        """All rows in order."""
        return [row for domain in self.domains for row in domain.rows]

    def row(self, name: str) -> Row:
        """One row by its id. Raises KeyError."""
        found = {row.id: row for row in self.rows}
        return found[name]

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same contract."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def contract_records(contract: Contract) -> list[dict[str, Any]]:
    """One flat record per row, in SI units: what CSV shows."""
    return [
        {
            "domain": row.domain,
            "id": row.id,
            "meaning": row.meaning,
            "predicted": row.predicted,
            "unit": row.unit,
            "low": row.band.low if row.band else None,
            "high": row.band.high if row.band else None,
            "limit": row.limit,
            "sense": row.sense if row.limit is not None else "",
            "margin": row.margin,
            "verdict": row.verdict,
            "why": row.why,
            "measured": row.measured.value if row.measured else None,
            "difference": row.measured.difference if row.measured else None,
            "agreement": row.measured.agreement if row.measured else "",
            "formula": row.formula,
            "origins": "; ".join(f"{o.document} {o.file}: {o.field} {o.value} ({o.tag})" for o in row.origins),
            "record": row.recipe.record,
            "compute": row.recipe.compute,
        }
        for row in contract.rows
    ]
