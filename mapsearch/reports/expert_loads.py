"""The views of router load and placed experts: tables that fit the width, Markdown, a record for each layer.

Contents: expert_load_lines, load_sentences, load_tables, expert_load_records, expert_load_markdown,
expert_load_charts, expert_load_svg, expert_load_page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from mapsearch.expert_load import ExpertLoad, LayerLoad, RoutingValues, Spread
from mapsearch.reports import human
from mapsearch.reports.exports.charts import Chart, Line, charts_svg
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import fitted, flowed, section
from mapsearch.reports.page import page

_PAGE_WIDTH = 120
_FEW = 6
"""Layers shown without `--verbose`: those whose worst rank gains most."""
Table = tuple[str, Sequence[str], list[tuple[str, ...]]]
"""Heading, titles, rows; the first column stands left."""


def expert_load_lines(load: ExpertLoad, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view as styled lines."""
    width = max(width, 40)
    lines = flowed(_headline(load), width=width, style="bold")
    lines += [line for sentence in _about(load) for line in flowed(sentence, width=width, style="dim")]
    for heading, titles, rows in _tables(load, verbose):
        lines += section(heading, fitted(titles, rows, width=width), width=width)
    if footer:
        lines += [
            Text(""),
            *(line for note in load.notes for line in flowed(f"Note: {note}", width=width, style="dim")),
        ]
    return lines


def _headline(load: ExpertLoad) -> str:
    return (
        f"Worst rank over the mean of {load.ranks:,} ranks: {_ratio(load.now.time_skew)} with experts as they stand, "
        f"{_ratio(load.greedy.time_skew)} longest first, {_ratio(load.placed.time_skew)} as placed; {_proof(load)}"
    )


def _proof(load: ExpertLoad) -> str:
    if load.proven == load.layer_count:
        return "no placement has a lighter worst rank, in any layer"
    gap = f"the rest within {100.0 * load.largest_gap:.2g} % of a bound"
    return f"{load.proven:,} of {load.layer_count:,} layers proven, {gap}"


def _about(load: ExpertLoad) -> list[str]:
    steps = "" if load.steps == 1 else f"{load.steps:,} steps of "
    copies = f", {load.copies:,} of them copies" if load.copies else ""
    inside = f", {load.groups:,} groups each inside one of {load.nodes:,} nodes" if load.groups > 1 else ""
    nodes = f" in {load.nodes:,} nodes" if load.nodes > 1 and load.groups == 1 else ""
    return [
        f"{load.source} ({load.origin}) · {steps}{load.layer_count:,} layers, {load.experts:,} experts, "
        f"{human.count(load.assignments)} assignments each",
        f"{load.ranks:,} ranks{nodes} with {load.slots:,} experts each{copies}{inside}",
    ]


def _ratio(value: float) -> str:
    return f"{value:.3g}" if value >= 10.0 else f"{value:.3f}"


def _spread_row(name: str, spread: Spread) -> tuple[str, ...]:
    counts = (spread.min, spread.mean, spread.p95, spread.max)
    return (name, *(f"{value:,.0f}" for value in counts), f"{spread.variation:.3f}", _ratio(spread.skew))


def _share(value: float) -> str:
    """A share as a percentage with two decimals: small drop rates matter."""
    return f"{100.0 * value:.2f} %"


def _values_row(name: str, values: RoutingValues) -> tuple[str, ...]:
    shown = (
        values.capacity_factor,
        values.rank_skew,
        values.pair_skew,
        values.time_skew,
        values.memory_skew,
        values.worst_layer_skew,
    )
    return (name, *(_ratio(value) for value in shown))


def _tables(load: ExpertLoad, verbose: bool) -> list[Table]:
    spreads = [
        _spread_row("expert", load.by_expert),
        _spread_row("rank", load.by_rank),
        _spread_row("rank, placed", load.placed_by_rank),
    ]
    capacity: list[tuple[str, ...]] = [
        (
            f"{row.capacity_factor:.4g}",
            f"{row.slots:,.0f}",
            _share(row.use),
            _share(row.waste),
            _share(row.drop_rate),
            _share(row.worst_drop_rate),
        )
        for row in load.capacity
    ]
    values = [
        _values_row("as they stand", load.now),
        _values_row("longest first", load.greedy),
        _values_row("placed", load.placed),
    ]
    effects: list[tuple[str, ...]] = [
        (
            effect.placement,
            _ratio(effect.rank_skew),
            _ratio(effect.pair_skew),
            human.seconds(effect.step_time_s, 4),
            human.amount(effect.peak_memory_bytes),
            "fits" if effect.fits else "does not fit",
        )
        for effect in load.effects
    ]
    return [
        ("Assignments of a layer and step", ("of each", "min", "mean", "p95", "max", "CV", "max/mean"), spreads),
        ("Capacity", ("factor", "slots", "in use", "waste", "dropped", "worst layer"), capacity),
        (
            "For the run file (routing)",
            ("experts", "capacity_factor", "rank_skew", "pair_skew", "time", "memory", "worst layer"),
            values,
        ),
        _held_out(load),
        (f"The step of {load.mapping}", ("experts", "rank skew", "pair skew", "step", "peak HBM", ""), effects),
        _layers(load, verbose),
    ]


def _held_out(load: ExpertLoad) -> Table:
    found = load.held_out
    heading = "Placed for the first half of the steps, on the second half: worst rank over the mean"
    titles = ("experts", "worst rank")
    if found is None:
        return heading, titles, []
    rows = [("as they stand", found.now), ("placed for the first half", found.early)]
    return heading, titles, [(name, _ratio(value)) for name, value in [*rows, ("for the second half", found.late)]]


def expert_load_charts(load: ExpertLoad) -> list[Chart]:
    """Worst rank over the mean by layer, before and after; and what leaves a node, where that is known."""
    layers = load.layers
    ways = {
        "as they stand": [one.ranks.max / one.ranks.mean for one in layers],
        "longest first": [one.lpt / one.ranks.mean for one in layers],
        "placed": [one.worst / one.ranks.mean for one in layers],
        "bound": [one.bound / one.ranks.mean for one in layers],
    }
    charts = [_chart("worst-rank", "Worst rank over the mean, by layer", "worst rank", ways, "{:.3g}".format)]
    if all(one.off_node is not None for one in layers):
        shares = {
            "as they stand": [one.off_node or 0.0 for one in layers],
            "placed": [one.placed_off_node or 0.0 for one in layers],
            "bound": [one.off_node_bound or 0.0 for one in layers],
        }
        charts.append(_chart("off-node", "Share that leaves its node, by layer", "share", shares, human.percent))
    return charts


def _chart(name: str, title: str, axis: str, ways: dict[str, list[float]], told: Callable[[float], str]) -> Chart:
    lines = tuple(Line(way, tuple((float(at), value) for at, value in enumerate(row))) for way, row in ways.items())
    return Chart(
        name, title, "lines", told, lines=lines, axes=("layer", axis), told_x="{:.3g}".format, names=tuple(ways)
    )  # fmt: skip


def expert_load_svg(load: ExpertLoad) -> str:
    """The charts below each other as one SVG document."""
    return charts_svg(expert_load_charts(load), alone=True)


def expert_load_page(load: ExpertLoad, *, footer: bool = True) -> str:
    """The view as one HTML document with its charts, without scripts or links."""
    figure = expert_load_svg(load) if len(load.layers) > 1 else ""
    return page(expert_load_lines(load, width=_PAGE_WIDTH, verbose=True, footer=footer), figure=figure)


def _layers(load: ExpertLoad, verbose: bool) -> Table:
    shown = list(load.layers)
    if not verbose and len(shown) > _FEW:
        kept = sorted(shown, key=lambda layer: layer.worst / layer.ranks.max)[:_FEW]
        shown = [layer for layer in shown if layer in kept]
    told = any(layer.off_node is not None for layer in shown)
    titles = ["layer", "hottest", "max/mean", "worst rank", "longest first", "placed", "bound", "proof"]
    rows = [_layer_row(layer, told) for layer in shown]
    left = "" if len(shown) == len(load.layers) else f": {len(shown)} of {len(load.layers):,} (all: --verbose)"
    return f"Layers, worst rank over the mean{left}", titles + (["off node", "placed", "bound"] if told else []), rows


def _layer_row(layer: LayerLoad, told: bool) -> tuple[str, ...]:
    mean = layer.ranks.mean
    proof = {"bound": layer.bound_from, "": f"gap {100.0 * layer.gap:.2g} %"}.get(layer.proof, layer.proof)
    worst = (layer.ranks.max, layer.lpt, layer.worst, layer.bound)
    row = (
        layer.layer,
        f"expert {layer.hottest}",
        _ratio(layer.experts.skew),
        *(_ratio(value / mean) for value in worst),
        proof,
    )
    if not told:
        return row
    return (
        *row,
        *(
            "" if share is None else human.percent(share)
            for share in (layer.off_node, layer.placed_off_node, layer.off_node_bound)
        ),
    )


def load_sentences(load: ExpertLoad) -> list[str]:
    """What was found and of what, one sentence each."""
    return [f"{text}." for text in (_headline(load), *_about(load))] + load.notes


def load_tables(load: ExpertLoad) -> list[Table]:
    """Every table with its heading and titles."""
    return _tables(load, True)


def expert_load_records(load: ExpertLoad) -> list[dict[str, Any]]:
    """One record per layer, rank and slot: where every expert and copy stands, and how the layer's worst rank is."""
    return [
        {
            "layer": layer.layer,
            "rank": rank,
            "slot": slot,
            "expert": expert,
            "layer_skew": layer.ranks.skew,
            "layer_placed_skew": layer.worst / layer.ranks.mean,
            "layer_gap": layer.gap,
        }
        for layer in load.layers
        for rank, held in enumerate(layer.placement)
        for slot, expert in enumerate(held)
    ]


def expert_load_markdown(load: ExpertLoad) -> str:
    """The tables as Markdown."""
    parts = [f"**{_headline(load)}**", *_about(load)]
    for heading, titles, rows in _tables(load, True):
        if rows:
            parts += [f"### {heading}", markdown_table(titles, rows)]
    return "\n\n".join([*parts, *load.notes]) + "\n"
