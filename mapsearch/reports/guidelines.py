"""The views of rules of thumb on trial: a table with what came of each, and sentences for those that do not hold.

Contents: guideline_lines, guideline_markdown.
"""

from __future__ import annotations

from rich.text import Text

from mapsearch.guideline import Guideline, Guidelines
from mapsearch.reports import human
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section
from mapsearch.reports.tables import heading, resting_lines
from mapsearch.reports.verdicts import estimate_lines

_STYLE = {"exact": "bold green", "feasible": "bold yellow"}
_OUTCOME = {"holds": "green", "does not hold": "bold red", "does not apply": "dim", "unknown": "yellow"}


def guideline_lines(found: Guidelines, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    lines = heading(found, _verdict(found), _STYLE.get(found.status, "bold red"), width)
    if found.mapping is not None:
        lines += [Text(""), *estimate_lines(found.mapping, width)]
    table = _table(found.guidelines, width) if found.guidelines else []
    lines += section("Rules of thumb on trial", table, width=width)
    for one in found.guidelines:
        if verbose or one.outcome == "does not hold":
            lines += section(f"{one.name}: {one.statement}", _told(one, width), width=width)
    return [*lines, *resting_lines([], found, width, verbose=verbose)] if footer else lines


def _verdict(found: Guidelines) -> str:
    if found.mapping is None:
        return "no mapping fits" if found.status == "infeasible" else "the search stopped before it found a mapping"
    held = sum(one.outcome == "holds" for one in found.guidelines)
    tried = held + sum(one.outcome == "does not hold" for one in found.guidelines)
    fastest = human.seconds(found.mapping.step_time_s, 4)
    return f"{held} of {tried} rules of thumb hold here; the fastest mapping takes {fastest}"


def _change(one: Guideline) -> str:
    """What following it costs or gains."""
    if one.by is not None:
        if one.by == 0.0:
            return "0"
        return f"{'+' if one.by > 0.0 else '-'}{human.percent(abs(one.by))}{'' if one.told_apart else ' ?'}"
    if one.found is not None:
        return f"x {one.found:.3g}" + (f" ({one.expected:.3g} said)" if one.expected is not None else "")
    return ""


def _table(guidelines: list[Guideline], width: int) -> list[Text]:
    columns = [
        Column("rule", [one.name for one in guidelines], left=True, style="cyan"),
        Column("", [one.outcome for one in guidelines], left=True),
        Column("followed", [_time(one.follows_s) for one in guidelines]),
        Column("not", [_time(one.breaks_s) for one in guidelines]),
        Column("change", [_change(one) for one in guidelines]),
    ]
    wide = [*columns, Column("what it says", [one.statement for one in guidelines], left=True)]
    lines = grid(wide if grid_width(wide) + 2 <= width else columns, indent=2)
    for line, one in zip(lines[1:], guidelines, strict=False):
        start = line.plain.find(one.outcome)
        line.stylize(_OUTCOME[one.outcome], start, start + len(one.outcome))
    if any(not one.told_apart for one in guidelines):
        lines += flowed("?: closer than the estimate can tell apart", width=width, indent=2, style="dim")
    return lines


def _time(seconds: float | None) -> str:
    return "" if seconds is None else human.seconds(seconds, 4)


def _told(one: Guideline, width: int) -> list[Text]:
    texts = [*one.sentences, one.source]
    return [line for text in texts for line in flowed(text.replace("->", "→"), width=width, indent=2)]


def guideline_markdown(found: Guidelines) -> str:
    """The result as a Markdown document with one table."""
    verdict, inputs = guideline_lines(found, width=10**6, footer=False)[:2]
    titles = ("rule", "outcome", "followed", "not", "change", "what it says", "why")
    rows = [
        (one.name, one.outcome, _time(one.follows_s), _time(one.breaks_s), _change(one), one.statement,
         "; ".join(one.sentences))
        for one in found.guidelines
    ]  # fmt: skip
    return "\n\n".join([f"**{verdict.plain}**", inputs.plain, markdown_table(titles, rows)]) + "\n"
