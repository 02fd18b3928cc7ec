"""Router load and placed experts as a section of a report, or as a report of its own.

Contents: load_section, load_report.
"""

from __future__ import annotations

import mapsearch
from mapsearch.expert_load import ExpertLoad
from mapsearch.reports.dossier import Page
from mapsearch.reports.expert_loads import expert_load_charts, load_sentences, load_tables
from mapsearch.reports.exports.charts import Bar, Chart
from mapsearch.reports.exports.report import Block, Column, Figure, Section, Table, TextBlock

CAPTIONS = {
    "worst-rank": "The worst expert rank of every layer; 1 is an even load.",
    "off-node": "Assignments that leave the node of their source, over all of them.",
}


def load_section(load: ExpertLoad) -> Section:
    """The worst rank of every layer, capacity, and values for the run file."""
    blocks: list[Block] = [TextBlock(text) for text in load_sentences(load)]
    charts = expert_load_charts(load) if len(load.layers) > 1 else [_one_layer(load)]
    blocks += [Figure(CAPTIONS[chart.name], chart) for chart in charts]
    if load.capacity:
        blocks.append(Figure("Assignments that find no slot, over all of them.", _drops(load)))
    for heading, titles, rows in load_tables(load):
        if rows:
            columns = tuple(Column(title, place > 0) for place, title in enumerate(titles))
            blocks.append(Table(columns, tuple(tuple(row) for row in rows), heading))
    return Section("experts", "Router load", tuple(blocks))


def load_report(load: ExpertLoad) -> Page:
    """Router load as a page of its own."""
    section = load_section(load)
    title = f"Router load: {load.source}"
    return Page(title, load_sentences(load)[:1], [section], f"mapsearch {mapsearch.__version__}")


def _one_layer(load: ExpertLoad) -> Chart:
    """The worst rank of the only layer, before and after."""
    layer = load.layers[0]
    ways = {"as they stand": layer.ranks.max, "longest first": layer.lpt, "placed": layer.worst, "bound": layer.bound}
    bars = tuple(Bar(name, (("worst rank over mean", value / layer.ranks.mean),)) for name, value in ways.items())
    return Chart("worst-rank", "Worst rank over the mean", "stacked", "{:.3f}".format, bars=bars, limit=1.0,
                 limit_label="even")  # fmt: skip


def _drops(load: ExpertLoad) -> Chart:
    bars = tuple(
        Bar(f"factor {row.capacity_factor:g}", (("dropped", row.drop_rate),)) for row in load.capacity
    )  # fmt: skip
    return Chart("drops", "Dropped assignments by capacity factor", "stacked",
                 lambda value: f"{100.0 * value:.2f} %", bars=bars)  # fmt: skip
