"""The typed, versioned result of a `sensitivity`; its JSON is what `--format json` prints.

Contents: SENSITIVITY_SCHEMA, SensitivityStatus, Breakpoints, Piece, Sensitivity, piece_row.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Proof, Provenance, RankedMapping, Space, data_frame, row

SENSITIVITY_SCHEMA = "mapsearch.sensitivity/1"

SensitivityStatus = Literal["proven", "exact", "open", "infeasible", "unknown"]
Breakpoints = Literal["exact", "bracketed", "listed"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class Piece(_Record):
    """A range of the input, or one value of it, and the fastest mapping there."""

    rank: int
    """Place in the order of the input: the lowest values are 1."""
    low: float
    """Where the piece begins, SI units. Exact breakpoints: the mapping fits from this value on."""
    high: float
    """Where it ends: the beginning of the next one (exact), else the last value at which the mapping was the best."""
    interval: str
    """The same in the units in which the input is written, every digit that matters."""
    changes_between: list[float] | None = None
    """The breakpoint before the piece lies between these two values, equal where it is exact; None before the first."""
    step_time_low_s: float | None
    """Step time of the fastest mapping at `low`; None where nothing fits."""
    step_time_high_s: float | None
    """Step time of the same mapping at `high`."""
    change: str = ""
    """What differs from the mapping of the piece before: `PP16 -> PP8`."""
    unseen_gain: float | None = None
    """Share of the step that another mapping could save between two solved values, at most; None where not known."""
    settled: bool = True
    """False when the search was stopped and a mapping that it did not see could be faster in this piece."""
    mapping: RankedMapping | None
    """Everything that is estimated of it at `low`; None where nothing fits."""


class Sensitivity(_Record):
    """What `sensitivity` returns."""

    schema_: str = Field(default=SENSITIVITY_SCHEMA, alias="schema")
    status: SensitivityStatus
    """`proven`: every solve went through the whole space, and a second way agrees. `exact`: the whole space, by the
    search alone. `open`: stopped early. `infeasible`: nothing fits anywhere. `unknown`: stopped without a mapping."""
    over: str
    """The input that varies: `hbm`, `bandwidth.rack`."""
    unit: str
    """SI unit of `low` and `high`."""
    low: float
    high: float
    breakpoints: Breakpoints
    """`exact`: all of them, to the last digit. `bracketed`: as seen from the solved values, each within `tolerance`.
    `listed`: a piece is one value, and nothing is said of others."""
    tolerance: float | None = None
    """Largest width of a bracket as a share of its upper end."""
    pieces: list[Piece]
    solves: int
    """Searches that were made: one for exact breakpoints, else one for each solved value."""
    space: Space
    """Of all searches together."""
    proofs: list[Proof]
    provenance: Provenance
    notes: list[str] = []
    interrupted: bool = False
    timings_s: dict[str, float] = Field(default_factory=dict, exclude=True)
    """Wall times of the phases; left out of the JSON so that equal inputs give equal bytes."""

    def at(self, value: float) -> Piece | None:
        """The piece that holds a value of the input (SI units); None outside, and in a bracket between two pieces."""
        closed = self.breakpoints != "exact"
        for piece in reversed(self.pieces):
            if piece.low <= value and (value < piece.high or (value == piece.high and (closed or value == self.high))):
                return piece
        return None

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same result."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per piece. Raises BackendMissing when pandas is not installed."""
        return data_frame([piece_row(piece) for piece in self.pieces])


_MAPPED = ("rank", "step_time_s", "binding", "lever", "gain")


def piece_row(piece: Piece) -> dict[str, Any]:
    """One piece as a flat record: what CSV and data frames show; the mapping last, where there is one."""
    about = {key: value for key, value in row(piece.mapping).items() if key not in _MAPPED} if piece.mapping else {}
    before: list[Any] = [*piece.changes_between] if piece.changes_between else [None, None]
    return {
        "rank": piece.rank,
        "low": piece.low,
        "high": piece.high,
        "interval": piece.interval,
        "changes_after": before[0],
        "changes_until": before[1],
        "step_time_low_s": piece.step_time_low_s,
        "step_time_high_s": piece.step_time_high_s,
        "change": piece.change,
        "unseen_gain": piece.unseen_gain,
        "settled": piece.settled,
        **about,
    }
