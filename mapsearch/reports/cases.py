"""The views of a verdict on a case: lines of a table, records, Markdown.

Contents: verdict_lines, verdict_records, verdict_markdown.
"""

from __future__ import annotations

from typing import Any

from rich.text import Text

from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import Column, flowed, grid, section
from mapsearch.verdict import Verdict

STYLES = {"feasible": "bold green", "slow": "bold yellow", "undetermined": "bold yellow"}
MOST_TRIED = 12


def verdict_lines(verdict: Verdict, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    word = verdict.verdict.upper()
    lines = flowed(f"{word}: {verdict.because}", width=width)
    lines[0].stylize(STYLES.get(verdict.verdict, "bold red"), 0, len(word))
    lines += flowed(f"{verdict.case} · decided by {verdict.relation}", width=width, style="dim")
    others = [one for one in verdict.found if one.sentence != verdict.because]
    also = [line for one in others for line in flowed(f"{one.kind}: {one.sentence}", width=width, indent=2)]
    lines += section("Also found", also, width=width)
    if verdict.missing:
        rows = verdict.missing
        columns = [
            Column("not given", [one.fact for one in rows], left=True),
            Column("taken", [one.taken or "nothing" for one in rows], left=True),
            Column("may be", [one.may_be for one in rows], left=True),
        ]
        lines += [Text(""), *grid(columns)]
    lines += section("At other values of what is not given", _tried(verdict, width, verbose), width=width)
    if footer and verdict.notes:
        lines += [Text(""), *(line for note in verdict.notes for line in flowed(note, width=width, style="dim"))]
    return lines


def _tried(verdict: Verdict, width: int, verbose: bool) -> list[Text]:
    """Values with another verdict first; the rest as a count unless asked for."""
    other = [one for one in verdict.tried if one.verdict != verdict.verdict]
    same = len(verdict.tried) - len(other)
    shown = verdict.tried if verbose else other[:MOST_TRIED]
    lines = [line for one in shown for line in flowed(f"{one.fact} {one.value}: {one.verdict}", width=width, indent=2)]
    if not verbose and len(other) > MOST_TRIED:
        lines += flowed(f"{len(other) - MOST_TRIED} more differ (all: --verbose)", width=width, indent=2, style="dim")
    if not verbose and same:
        lines += flowed(f"{same} tried values give the same verdict", width=width, indent=2, style="dim")
    return lines


def verdict_records(verdict: Verdict) -> list[dict[str, Any]]:
    """One flat record per thing found, the deciding one first."""
    deciding = {"kind": verdict.verdict, "relation": verdict.relation, "origin": "", "sentence": verdict.because}
    others = [one.model_dump() for one in verdict.found if one.sentence != verdict.because]
    return [{"case": verdict.case, "verdict": verdict.verdict, **one} for one in (deciding, *others)]


def verdict_markdown(verdict: Verdict) -> str:
    """The verdict as Markdown."""
    body = [f"**{verdict.verdict}**: {verdict.because}", f"{verdict.case}, decided by `{verdict.relation}`"]
    others = [f"- {one.kind}: {one.sentence}" for one in verdict.found if one.sentence != verdict.because]
    body.append("\n".join(others))
    missing = [(one.fact, one.taken or "nothing", one.may_be) for one in verdict.missing]
    body.append(markdown_table(("not given", "taken", "may be"), missing) if missing else "")
    body.append("\n".join(f"- {note}" for note in verdict.notes))
    return "\n\n".join(part for part in body if part) + "\n"
