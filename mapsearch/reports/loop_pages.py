"""A loop of training and rollout as a section of a report, or as a report of its own.

Contents: loop_section, loop_report.
"""

from __future__ import annotations

import mapsearch
from mapsearch.loop import LoopReport
from mapsearch.reports.dossier import Page
from mapsearch.reports.exports.report import Block, Column, Figure, ListBlock, Section, Table, TextBlock
from mapsearch.reports.loops import AGREEMENT, agreement_rows, constraint_rows, loop_charts, loop_sentences, policy_rows

CAPTIONS = {
    "queue": "Tokens that wait for training, from an empty start on.",
    "lag": "How many versions a sample is behind the weights that it trains.",
    "age": "From a sample's first token to its use.",
}


def loop_section(found: LoopReport) -> Section:
    """Queue and staleness over time, beside the closed form."""
    blocks: list[Block] = [TextBlock(text) for text in loop_sentences(found)]
    blocks += [Figure(CAPTIONS[chart.name], chart) for chart in loop_charts(found) if found.steps]
    rows = agreement_rows(found)
    if rows:
        titles = (Column(""), Column("formula", True), Column("simulated", True), Column("apart", True))
        blocks.append(Table(titles, rows, AGREEMENT))
    return Section("loop", "Queue and staleness over time", tuple(blocks))


def loop_report(found: LoopReport) -> Page:
    """A loop as a page of its own."""
    verdict, *rest = loop_sentences(found)
    constraints = (Column("constraint"), Column(""), Column("demand", True), Column("limit", True), Column("why"))
    policies = (Column("policy"), Column("step", True), Column("wait", True), Column("effective", True),
                Column("cost", True), Column("thrown away", True), Column("versions behind"))  # fmt: skip
    blocks: list[Block] = [Table(constraints, constraint_rows(found))]
    told = policy_rows(found)
    costs: tuple[Block, ...] = (Table(policies, told),) if told else ()
    inputs: tuple[Block, ...] = (ListBlock(tuple(found.assumptions)),) if found.assumptions else ()
    sections = [
        Section("constraints", "Constraints", tuple(blocks)),
        loop_section(found),
        Section("policies", "What the policies cost", costs),
        Section("inputs", "Values with their sources", inputs),
    ]
    return Page(found.name, [verdict, *rest], sections, f"mapsearch {mapsearch.__version__}; seed {found.seed}")
