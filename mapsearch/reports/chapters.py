"""Sections of a report that rest on more than an answer: the pipeline as it runs, the cluster, the contract.

Contents: timeline_section, topology_section, contract_section.
"""

from __future__ import annotations

from mapsearch.contract import Contract
from mapsearch.placement import Placement
from mapsearch.reports import human
from mapsearch.reports.exports.cluster import cluster_svg, picture_of
from mapsearch.reports.exports.report import Block, Column, Figure, ListBlock, Section, Table, TextBlock
from mapsearch.reports.timeline_svg import timeline_svg
from mapsearch.simulating.simulator import Timeline
from mapsearch.simulation import Simulation
from mapsearch.topologies.fabric import Fabric


def timeline_section(simulation: Simulation, timeline: Timeline) -> Section:
    """The pipeline of the mapping, run operation by operation."""
    words = (
        f"{simulation.schedule} of {human.count(simulation.microbatches)} microbatches on {len(simulation.stages)} "
        f"stages, each operation as long as the estimate has it: {human.seconds(simulation.simulated_s, 4)}; by the "
        f"closed form {human.seconds(simulation.closed_form_s, 4)}."
    )
    return Section("timeline", "The pipeline as it runs", (Figure(words, timeline_svg(timeline)),))


def topology_section(fabric: Fabric, placement: Placement) -> Section:
    """The cluster, and where the groups of every axis stand in it."""
    rows = tuple(
        (
            one.axis.upper(),
            f"{one.size:,}",
            f"{kind.groups:,}",
            ", ".join(f"{ways:g} {level}" for level, ways in kind.ways.items()) or "none",
            kind.inside,
            kind.devices,
        )
        for one in placement.axes
        if one.size > 1
        for kind in one.patterns
    )
    columns = (
        Column("axis"),
        Column("size", True),
        Column("groups", True),
        Column("levels that a group crosses, and in how many ways"),
        Column("inside one"),
        Column("the first one's devices"),
    )
    picture = Figure("Levels from outside inwards; the marked unit is opened below.", cluster_svg(picture_of(fabric)))
    words = f"{len(placement.devices):,} ranks; the first axis counts fastest: {placement.order}."
    return Section(
        "topology", "The cluster and its groups", (picture, Table(columns, rows), TextBlock(words, dim=True))
    )


def contract_section(contract: Contract) -> Section:
    """The ten domains with their verdicts, and the rows that do not simply hold."""
    columns = (Column("domain"), Column("verdict"), Column("what must be true of the machine"), Column("rows", True))
    rows = tuple(
        (f"{one.number} {one.title}", one.verdict, one.predicate, str(len(one.rows))) for one in contract.domains
    )
    blocks: list[Block] = [
        TextBlock("What a machine can confirm or refute; mapsearch contract has every row with its measurement."),
        Table(columns, rows),
    ]
    titles = (
        Column("quantity"),
        Column("predicted", True),
        Column("limit", True),
        Column("verdict"),
        Column("meaning"),
    )
    told = tuple(
        (row.id, _value(row.predicted, row.unit), _value(row.limit, row.unit), row.verdict, row.meaning)
        for row in contract.rows
        if row.limit is not None
    )
    if told:
        blocks.append(Table(titles, told, "Quantities with a limit"))
    missing = tuple(f"{one.number} {one.title}: {text}" for one in contract.domains for text in one.missing)
    if missing:
        blocks += [TextBlock("Not given:"), ListBlock(missing)]
    return Section("contract", "The contract", tuple(blocks))


def _value(value: float | str | None, unit: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else human.measured(value, unit)
