"""Answers and reports as records: CSV and Markdown.

Contents: answer_records, report_records, csv_text, markdown_text, markdown_table.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from mapsearch.answer import Answer, CheckReport, row
from mapsearch.reports import human
from mapsearch.reports.infeasible import why_not_markdown, why_not_records
from mapsearch.reports.tables import (
    binding_text,
    footer_lines,
    memory_text,
    placement_text,
    price_text,
    sizes_text,
    solve_lines,
)

Record = dict[str, Any]


def answer_records(answer: Answer) -> list[Record]:
    """One record per mapping, or per relaxation when nothing fits; numbers in SI units."""
    if answer.mappings or not answer.relaxations:
        return [row(mapping) for mapping in answer.mappings]
    return why_not_records(answer)


def report_records(report: CheckReport) -> list[Record]:
    """One record per relation."""
    return [{**margin.model_dump(), "holds": margin.margin >= 0.0} for margin in report.margins]


def csv_text(records: Sequence[Record]) -> str:
    """CSV with a header line; empty when there are no records."""
    buffer = io.StringIO()
    if records:
        writer = csv.DictWriter(buffer, fieldnames=list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return buffer.getvalue()


def markdown_text(result: Answer | CheckReport) -> str:
    """The result as a Markdown document with one table."""
    return _answer_markdown(result) if isinstance(result, Answer) else _report_markdown(result)


def _answer_markdown(answer: Answer) -> str:
    titles = ("#", "step", "tokens/s", "MFU", "worst HBM", "exposed", "sizes", "choices", "placement", "what binds")
    rows = [
        (
            str(mapping.rank),
            human.seconds(mapping.step_time_s, 4),
            human.count(mapping.tokens_per_s),
            human.percent(mapping.mfu),
            memory_text(mapping),
            human.percent(mapping.exposed_fraction),
            sizes_text(mapping),
            ", ".join(f"{name} {word}" for name, word in mapping.choices.items()),
            placement_text(mapping),
            binding_text(mapping),
        )
        for mapping in answer.mappings
    ]
    verdict, inputs = solve_lines(answer, width=10**6, footer=False)[:2]
    body = [f"**{verdict.plain}**", inputs.plain]
    if rows:
        body.append(markdown_table(titles, rows))
        body.append("\n".join(f"- {price_text(one)}" for one in answer.prices))
    else:
        body += why_not_markdown(answer, markdown_table)
    body.append("\n".join(f"- {line.plain}" for line in footer_lines(answer, 10**6, verbose=True) if line.plain))
    return "\n\n".join(part for part in body if part) + "\n"


def _report_markdown(report: CheckReport) -> str:
    rows = [
        (
            margin.relation,
            "holds" if margin.margin >= 0 else "**broken**",
            *(human.measured(value, margin.unit) for value in (margin.demand, margin.limit, margin.margin)),
            margin.origin,
            margin.reason,
        )
        for margin in report.margins
    ]
    verdict = "fits" if report.feasible else f"{len(report.broken)} of {len(report.margins)} relations do not hold"
    sizes = f"{sizes_text(report.mapping)}; {placement_text(report.mapping)}" if report.mapping else ""
    body = [
        f"**{verdict}**",
        sizes,
        markdown_table(("relation", "", "demand", "limit", "margin", "origin", "why"), rows),
    ]
    return "\n\n".join(part for part in body if part) + "\n"


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(titles), "|" + "---|" * len(titles), *(line(cells) for cells in rows)])
