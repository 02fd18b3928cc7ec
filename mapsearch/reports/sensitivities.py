"""The views of a sensitivity: a table that fits the width, Markdown, records.

Contents: sensitivity_lines, sensitivity_records, sensitivity_markdown, value_text.
"""

from __future__ import annotations

import math
from typing import Any

from rich.text import Text

from mapsearch.parametric import Piece, Sensitivity, piece_row
from mapsearch.reports import human
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import Column, flowed, grid, grid_width
from mapsearch.reports.tables import heading, placement_text, resting_lines, searched, sizes_text

_STYLE = {"proven": "bold green", "exact": "bold green", "open": "bold yellow"}
CHANGED = "what changed"
LEAST = 24
"""Cells that what changed gets at least, cut at its end, before another column is left out for it."""
_SCALES = {"bytes": (1e9, "GB"), "B/s": (1e9, "GB/s")}
DIGITS = 5
"""Significant digits of a breakpoint in a table; it is rounded up, so that the mapping fits at what is shown."""


def value_text(result: Sensitivity, value: float) -> str:
    """A value of the input as people read it, rounded up."""
    scale, unit = _SCALES.get(result.unit, (1.0, ""))
    number = value / scale
    if number <= 0.0 or not math.isfinite(number):
        return f"{number:g} {unit}".strip()
    if result.unit in ("devices", "tokens"):
        return f"{number:,.0f}"
    decimals = max(0, DIGITS - 1 - math.floor(math.log10(number)))
    nearest = round(number, decimals)
    # What is written with few digits is shown as it is.
    rounded = nearest if abs(nearest - number) <= 1e-12 * number else math.ceil(number * 10**decimals) / 10**decimals
    return f"{rounded:,.{decimals}f}".rstrip("0").rstrip(".") + (f" {unit}" if unit else "")


def _interval(result: Sensitivity, piece: Piece) -> str:
    low, high = value_text(result, piece.low), value_text(result, piece.high)
    return low if piece.low == piece.high else f"{low} to {high}"


def _times(piece: Piece) -> str:
    if piece.step_time_low_s is None or piece.step_time_high_s is None:
        return "nothing fits"
    low, high = (human.seconds(value, 4) for value in (piece.step_time_low_s, piece.step_time_high_s))
    return low if low == high else f"{low} to {high}"


def sensitivity_lines(result: Sensitivity, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view of a sensitivity as styled lines."""
    width = max(width, 40)
    lines = heading(result, _verdict(result), _STYLE.get(result.status, "bold red"), width)
    if result.pieces:
        lines += [Text(""), *_table(result, width)]
    return [*lines, *_footer(result, width, verbose)] if footer else lines


def _verdict(result: Sensitivity) -> str:
    low, high = value_text(result, result.low), value_text(result, result.high)
    count = len(result.pieces)
    kinds = {"exact": "piece", "bracketed": "piece", "listed": "value"}
    words = f"{count} {kinds[result.breakpoints]}{'' if count == 1 else 's'}"
    where = f"{result.over} from {low} to {high}"
    how = {"exact": ", every breakpoint exact", "bracketed": ", breakpoints bracketed", "listed": ""}[
        result.breakpoints
    ]
    if result.status == "proven":
        ways = [f"{proof.backend} ({proof.kind})" for proof in result.proofs if proof.status == "proven"]
        return f"{words} of {where}{how}, proven by {' and by '.join(ways)}"
    if result.status == "exact":
        return f"{words} of {where}{how}; exact by the search, no second way was taken (--certify)"
    if result.status == "infeasible":
        return f"no mapping fits for {where} (mapsearch solve says why)"
    if result.status == "open":
        return f"{words} of {where} so far: not proven"
    return "the search stopped before it found a mapping"


def _sizes(piece: Piece) -> str:
    return "" if piece.mapping is None else sizes_text(piece.mapping)


def _choices(piece: Piece) -> str:
    if piece.mapping is None:
        return ""
    return f"{piece.mapping.choices['schedule']}, {piece.mapping.choices['recompute']}"


def _table(result: Sensitivity, width: int) -> list[Text]:
    pieces = result.pieces
    marks = ["" if piece.settled else "open" for piece in pieces]
    columns = [
        Column(result.over, [_interval(result, piece) for piece in pieces]),
        Column("step", [_times(piece) for piece in pieces], style="bold"),
        *([Column("", marks, left=True, style="cyan")] if any(marks) else []),
    ]
    sizes = Column("mapping", [_sizes(piece) for piece in pieces], left=True)
    choices = Column("choices", [_choices(piece) for piece in pieces], left=True)
    for left in ([*columns, sizes, choices], [*columns, sizes], columns):
        room = width - grid_width(left) - 2
        if room >= min(LEAST, max(len(piece.change) for piece in pieces)) and room >= len(CHANGED):
            return grid([*left, Column(CHANGED, [_cut(piece.change, room) for piece in pieces], left=True)])
    return _stacked(result, width)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1].rstrip(' ,')}…"


def _stacked(result: Sensitivity, width: int) -> list[Text]:
    """One piece after the other, for a narrow screen."""
    lines: list[Text] = []
    for piece in result.pieces:
        lines += flowed(f"{_interval(result, piece)}: {_times(piece)}", width=width, style="bold")
        lines += flowed(_sizes(piece), width=width, indent=2) if piece.mapping else []
    return lines


def _footer(result: Sensitivity, width: int, verbose: bool) -> list[Text]:
    solves = "1 search" if result.solves == 1 else f"{result.solves} searches"
    return resting_lines([f"{solves}: {searched(result.space)}"], result, width, verbose=verbose)


def sensitivity_records(result: Sensitivity) -> list[dict[str, Any]]:
    """One record per piece with the same keys in each; numbers in SI units."""
    rows = [piece_row(piece) for piece in result.pieces]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def sensitivity_markdown(result: Sensitivity) -> str:
    """The sensitivity as a Markdown document with one table."""
    verdict, inputs = sensitivity_lines(result, width=10**6, verbose=True, footer=False)[:2]
    rows = [
        (
            piece.interval,
            _times(piece),
            "" if piece.settled else "open",
            _sizes(piece),
            ", ".join(f"{name} {word}" for name, word in piece.mapping.choices.items()) if piece.mapping else "",
            placement_text(piece.mapping) if piece.mapping else "",
            piece.change,
        )
        for piece in result.pieces
    ]
    titles = (result.over, "step", "", "sizes", "choices", "placement", CHANGED)
    body = [f"**{verdict.plain}**", inputs.plain, markdown_table(titles, rows) if rows else ""]
    body.append("\n".join(f"- {line.plain}" for line in _footer(result, 10**6, True) if line.plain))
    return "\n\n".join(part for part in body if part) + "\n"
