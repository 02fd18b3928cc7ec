"""The views of a comparison: tables that fit the width, Markdown, records.

Contents: comparison_lines, comparison_records, comparison_markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from mapsearch.comparison import Comparison, Crossing, Term
from mapsearch.reports import human
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.fronts import TITLES, value_text
from mapsearch.reports.layout import Column, flowed, grid, section

_MANY = 10
"""Mappings that moved, shown before `--verbose` is needed for the rest."""
_ARROWS = {"up": "up", "down": "down", "new": "new", "gone": "gone", "same": "", "elsewhere": "elsewhere"}
Table = tuple[str, Sequence[str], list[tuple[str, ...]]]
"""Heading, titles, rows; the first column stands left."""


def comparison_lines(comparison: Comparison, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view of a comparison as styled lines."""
    width = max(width, 40)
    lines = flowed(_headline(comparison), width=width, style="bold")
    for heading, titles, rows in _tables(comparison, verbose):
        columns = [
            Column(title, [row[place] for row in rows], left=place == 0 or heading == "Inputs that differ")
            for place, title in enumerate(titles)
        ]
        lines += section(heading, grid(columns, indent=2), width=width)
    for heading, sentences in _lists(comparison, verbose):
        body = [line for sentence in sentences for line in flowed(sentence, width=width, indent=2)]
        lines += section(heading, body, width=width)
    if footer:
        lines += section("", [], width=width)
        lines += [line for note in comparison.notes for line in flowed(f"Note: {note}", width=width, style="dim")]
    return lines


def _headline(comparison: Comparison) -> str:
    parts = [f"{name} ({status})" for name, status in zip(comparison.names, comparison.statuses, strict=True)]
    return f"{len(parts)} {comparison.kind}: {' · '.join(parts)}"


def _tables(comparison: Comparison, verbose: bool) -> list[Table]:
    names = comparison.names
    changed = [(c.what, *(_clipped(value, verbose) for value in c.values)) for c in comparison.changes]
    found: list[Table] = [("Inputs that differ", ("", *names), changed)]
    differences = [f"{name} - {names[0]}" for name in names[1:]]
    for heading, terms, write in (
        ("Step time, part by part", comparison.step_time_s, human.seconds),
        ("Memory of the worst stage, part by part", comparison.memory_bytes, human.amount),
    ):
        found.append((heading, ("", *names, *differences), [_term_row(term, write) for term in terms]))
    return [table for table in [*found, *_front_tables(comparison)] if table[2]]


def _front_tables(comparison: Comparison) -> list[Table]:
    covers: list[tuple[str, ...]] = [
        (c.by, human.percent(c.share), c.of, "dominates it" if c.dominates else "") for c in comparison.coverage
    ]
    volumes: list[tuple[str, ...]] = [
        (name, human.percent(value))
        for name, value in zip(comparison.names, comparison.hypervolume, strict=False)
        if value is not None
    ]
    return [
        ("Coverage: points of a front that another equals or dominates", ("front", "covers", "of", ""), covers),
        ("Hypervolume: share of the reference box", ("front", "dominates"), volumes),
    ]


def _term_row(term: Term, write: Callable[[float], str]) -> tuple[str, ...]:
    differences = [_signed(value, write) for value in term.differences[1:]]
    return (term.name.replace("_", " "), *(write(value) for value in term.values), *differences)


def _signed(value: float, write: Callable[[float], str]) -> str:
    return "=" if value == 0.0 else f"{'+' if value > 0 else '-'}{write(abs(value))}"


def _clipped(text: str, verbose: bool) -> str:
    return text if verbose or len(text) <= 36 else f"{text[:33]}..."


def _lists(comparison: Comparison, verbose: bool) -> list[tuple[str, list[str]]]:
    moved = [one for one in comparison.mappings if one.move != "same"]
    shown = moved if verbose else moved[:_MANY]
    sentences = [
        f"{_ARROWS[one.move]}: {' → '.join('-' if rank is None else f'#{rank}' for rank in one.ranks)}  {one.mapping}"
        for one in shown
    ]
    if len(shown) < len(moved):
        sentences.append(f"and {len(moved) - len(shown)} more (--verbose)")
    same = len(comparison.mappings) - len(moved)
    heading = f"Mappings that moved ({same} of {len(comparison.mappings)} kept their rank)"
    crossings = [text for one in comparison.crossings if (text := crossing_text(one, comparison.crossings))]
    return [(heading, sentences), ("Where fronts cross", crossings)]


def crossing_text(one: Crossing, every: Sequence[Crossing]) -> str:
    """One crossing in a line: `worst HBM from 46.4 GB on: b is faster; a below`; empty for a start before others."""
    where = f"{TITLES[one.objective]} from {value_text(one.objective, one.at)} on"
    if one.leader_below:
        return f"{where}: {one.leader_above} is faster; {one.leader_below} below"
    pair = (one.first, one.second, one.objective)
    if sum((other.first, other.second, other.objective) == pair for other in every) > 1:
        return ""
    behind = one.second if one.leader_above == one.first else one.first
    return f"{where}: {one.leader_above} is never slower than {behind}"


def comparison_records(comparison: Comparison) -> list[dict[str, Any]]:
    """One record per term, and per mapping and change; values by document, numbers in SI units."""
    names = comparison.names

    def record(kind: str, what: str, values: Sequence[Any], note: str = "") -> dict[str, Any]:
        cells = ["" if value is None else value for value in values]
        return {"kind": kind, "what": what, **dict(zip(names, cells, strict=True)), "note": note}

    rows = [record("input", one.what, one.values) for one in comparison.changes]
    rows += [record("step_time_s", one.name, one.values) for one in comparison.step_time_s]
    rows += [record("memory_bytes", one.name, one.values) for one in comparison.memory_bytes]
    rows += [record("rank", one.mapping, one.ranks, one.move) for one in comparison.mappings]
    if comparison.hypervolume:
        rows.append(record("hypervolume", "share of the reference box", comparison.hypervolume))
    for of in dict.fromkeys(one.of for one in comparison.coverage):
        share = {one.by: one.share for one in comparison.coverage if one.of == of}
        rows.append(record("coverage", f"of {of}", [share.get(name) for name in names]))
    return rows


def comparison_markdown(comparison: Comparison) -> str:
    """The comparison as a Markdown document."""
    body = [f"**{_headline(comparison)}**"]
    for heading, titles, rows in _tables(comparison, True):
        body += [f"## {heading}", markdown_table(titles, rows)]
    for heading, sentences in _lists(comparison, True):
        body += [f"## {heading}", "\n".join(f"- {one}" for one in sentences)] if sentences else []
    body.append("\n".join(f"- {note}" for note in comparison.notes))
    return "\n\n".join(part for part in body if part) + "\n"
