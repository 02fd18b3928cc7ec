"""The table view of a check: one mapping, every relation with its margin.

Contents: check_lines, estimate_lines, relation_lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from mapsearch.answer import CheckReport, Margin, RankedMapping
from mapsearch.reports import human
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section
from mapsearch.reports.tables import anatomy, better_text, memory_text, placement_text, sizes_text


def check_lines(report: CheckReport, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view of a report as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    broken = report.broken
    word = "FITS" if report.feasible else "BROKEN"
    verdict = f"all {len(report.margins)} relations hold" if report.feasible else _count_broken(report)
    lines = flowed(f"{word}: {verdict}", width=width)
    lines[0].stylize("bold green" if report.feasible else "bold red", 0, len(word))
    if report.provenance:
        about = report.provenance
        inputs = f"{about.model} · {about.run} · {about.topology} · profile {about.profile}"
        lines += flowed(inputs, width=width, style="dim")
    if report.mapping:
        lines += [Text(""), *estimate_lines(report.mapping, width)]
    lines += section("What is broken", [line for margin in broken for line in _sentence(margin, width)], width=width)
    if report.margins:
        lines += [Text(""), *relation_lines(report.margins, width)]
    if verbose and report.mapping:
        lines += anatomy(report.mapping, width)
    if footer and report.notes:
        notes = [line for note in report.notes for line in flowed(f"Note: {note}", width=width, style="dim")]
        lines += [Text(""), *notes]
    return lines


def _count_broken(report: CheckReport) -> str:
    number = len(report.broken)
    return f"{number} of {len(report.margins)} relations {'does' if number == 1 else 'do'} not hold"


def estimate_lines(mapping: RankedMapping, width: int) -> list[Text]:
    """One mapping in a few lines: sizes, choices, placement, figures."""
    figures = (
        f"step {human.seconds(mapping.step_time_s, 4)}, {human.count(mapping.tokens_per_s)} tokens/s, "
        f"MFU {human.percent(mapping.mfu)}, worst HBM {memory_text(mapping)} (stage {mapping.worst_stage}), "
        f"exposed {human.percent(mapping.exposed_fraction)}"
    )
    choices = ", ".join(f"{name} {word}" for name, word in mapping.choices.items())
    return [
        *flowed(f"{sizes_text(mapping)} on {human.count(mapping.devices)} devices", width=width),
        *flowed(choices, width=width),
        *flowed(placement_text(mapping), width=width, style="dim"),
        *flowed(figures, width=width),
        *(flowed(better_text(mapping), width=width, style="cyan") if mapping.better_layout else []),
    ]


def _sentence(margin: Margin, width: int) -> list[Text]:
    return flowed(f"{margin.relation}: {margin.reason or 'does not hold'}", width=width, indent=2, style="red")


def relation_lines(margins: Sequence[Margin], width: int) -> list[Text]:
    """A table of relations with their margins; broken ones in red."""

    def numbers(values: Sequence[float]) -> list[str]:
        pairs = zip(values, (margin.unit for margin in margins), strict=True)
        return [human.measured(v, unit) if human.scaled_unit(unit) else human.plain_number(v) for v, unit in pairs]

    columns = [
        Column("relation", [margin.relation for margin in margins], left=True),
        Column("", ["holds" if margin.margin >= 0 else "BROKEN" for margin in margins], left=True),
        Column("demand", numbers([margin.demand for margin in margins])),
        Column("limit", numbers([margin.limit for margin in margins])),
        Column("margin", numbers([margin.margin for margin in margins])),
        Column("", ["" if human.scaled_unit(margin.unit) else margin.unit for margin in margins], left=True),
        Column("origin", [margin.origin for margin in margins], left=True),
    ]
    head, *rows = grid(next((fit for fit in (columns, columns[:-1]) if grid_width(fit) <= width), columns[:-2]))
    for margin, line in zip(margins, rows, strict=True):
        if margin.margin < 0:
            line.stylize("red")
    return [head, *rows]
