"""The views of a repetition: the same answer or not, and what has changed.

Contents: reproduction_lines, reproduction_records, reproduction_markdown.
"""

from __future__ import annotations

from typing import Any

from rich.text import Text

from mapsearch.reports import human
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section
from mapsearch.reproduction import Difference, Reproduction

SHOWN = 12
"""Differing fields of the answer that the table shows without --verbose."""


def _word(found: Reproduction) -> str:
    return "SAME" if found.same and found.complete else "DIFFERENT" if found.complete else "UNKNOWN"


def reproduction_lines(found: Reproduction, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view of a repetition as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    word = _word(found)
    lines = flowed(f"{word}: {found.sentence}", width=width)
    lines[0].stylize("bold green" if word == "SAME" else "bold red", 0, len(word))
    lines += flowed(f"{found.folder}: {_steps(found)}", width=width, style="dim")
    lines += section("Changed inputs", _table(found.inputs, width), width=width)
    lines += section("Versions", _table(found.versions, width), width=width)
    shown = found.answer if verbose else found.answer[:SHOWN]
    lines += section("What differs in the answer", _table(shown, width), width=width)
    left = found.answer_differences - len(shown)
    if left > 0:
        lines += flowed(f"and {left:,} more", width=width, indent=2, style="dim")
    lines += section("Which change does it", _trials(found), width=width)
    if footer and found.notes:
        lines += [
            Text(""),
            *(line for note in found.notes for line in flowed(f"Note: {note}", width=width, style="dim")),
        ]
    return lines


def _steps(found: Reproduction) -> str:
    def told(status: str, step_s: float | None) -> str:
        return status if step_s is None else f"{status}, step {human.seconds(step_s, 4)}"

    before, now = told(found.locked_status, found.locked_step_time_s), told(found.status, found.step_time_s)
    return f"locked {before}; now {now}"


def _table(changes: list[Difference], width: int) -> list[Text]:
    if not changes:
        return []
    columns = [
        Column("file", [one.file for one in changes], left=True),
        Column("field", [one.field for one in changes], left=True),
        Column("before", [one.before for one in changes], left=True),
        Column("after", [one.after for one in changes], left=True),
    ]
    if grid_width(columns) + 2 <= width:
        return grid(columns, indent=2)
    return [
        line
        for one in changes
        for line in flowed(f"{one.file} {one.field}: {one.before} -> {one.after}", width=width, indent=2)
    ]


def _trials(found: Reproduction) -> list[Text]:
    if not found.trials:
        return []
    steps = [trial.step_time_s for trial in found.trials]
    columns = [
        Column("changed alone", [trial.changed or "versions only" for trial in found.trials], left=True),
        Column("answer", ["the same" if trial.same else "another one" for trial in found.trials], left=True),
        Column("status", [trial.status for trial in found.trials], left=True),
        Column("step", ["" if step is None else human.seconds(step, 4) for step in steps]),
    ]
    return grid(columns, indent=2)


def reproduction_records(found: Reproduction) -> list[dict[str, Any]]:
    """One record per change: of inputs, versions and the answer."""
    kinds = {"input": found.inputs, "version": found.versions, "answer": found.answer}
    return [
        {"kind": kind, "same": found.same, "cause": found.cause, **change.model_dump()}
        for kind, changes in kinds.items()
        for change in changes
    ]


def reproduction_markdown(found: Reproduction) -> str:
    """The repetition as a Markdown document."""
    body = [f"**{_word(found)}**: {found.sentence}", f"{found.folder}: {_steps(found)}"]
    titles = ("file", "field", "before", "after")
    told = {"Changed inputs": found.inputs, "Versions": found.versions, "What differs in the answer": found.answer}
    for title, changes in told.items():
        if changes:
            rows = [(one.file, one.field, one.before, one.after) for one in changes]
            body += [f"## {title}", markdown_table(titles, rows)]
    if found.trials:
        rows3 = [
            (trial.changed or "versions only", "the same" if trial.same else "another one", trial.status)
            for trial in found.trials
        ]
        body += ["## Which change does it", markdown_table(("changed alone", "answer", "status"), rows3)]
    body.append("\n".join(f"- {note}" for note in found.notes))
    return "\n\n".join(part for part in body if part) + "\n"
