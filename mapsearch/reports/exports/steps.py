"""Plots of a sensitivity: step time over the input, as HTML, SVG or PNG; equal results give equal bytes.

Contents: sensitivity_plot.
"""

from __future__ import annotations

from typing import Any

from mapsearch.errors import UsageError
from mapsearch.parametric import Piece, Sensitivity
from mapsearch.reports.exports.plots import COLOURS, check_plot, page, picture, plain_numbers, plain_ticks
from mapsearch.reports.sensitivities import value_text
from mapsearch.reports.tables import sizes_text

_SCALES = {"bytes": (1e9, "GB"), "B/s": (1e9, "GB/s")}


def sensitivity_plot(result: Sensitivity, ending: str) -> bytes:
    """The plot of a sensitivity in one format. Raises UsageError, BackendMissing."""
    check_plot(f"plot{ending}")
    pieces = [piece for piece in result.pieces if piece.mapping is not None]
    if not pieces:
        raise UsageError("there is no piece to draw", field="--plot")
    return _html(result, pieces) if ending == ".html" else picture(lambda figure: _draw(figure, result, pieces), ending)


def _axis(result: Sensitivity) -> tuple[float, str]:
    factor, unit = _SCALES.get(result.unit, (1.0, ""))
    return factor, f"{result.over} ({unit})" if unit else result.over


def _line(result: Sensitivity, piece: Piece) -> tuple[list[float], list[float]]:
    factor, _ = _axis(result)
    return [piece.low / factor, piece.high / factor], [piece.step_time_low_s or 0.0, piece.step_time_high_s or 0.0]


def _title(result: Sensitivity) -> str:
    about = result.provenance
    return f"{about.model} on {about.topology}: fastest step over {result.over} ({result.status})"


def _html(result: Sensitivity, pieces: list[Piece]) -> bytes:
    import plotly.graph_objects as go

    figure = go.Figure()
    for place, piece in enumerate(pieces):
        x, y = _line(result, piece)
        assert piece.mapping is not None
        text = f"from {value_text(result, piece.low)}: {sizes_text(piece.mapping)}<br>{piece.change}"
        colour = COLOURS[place % len(COLOURS)]
        figure.add_scatter(
            x=x, y=y, text=[text, text], hoverinfo="text+x+y", mode="lines+markers", showlegend=False,
            line={"color": colour, "width": 2}, marker={"size": 6, "color": colour},
        )  # fmt: skip
    lines = [_line(result, piece) for piece in pieces]
    for place, update, title in (
        (0, figure.update_xaxes, _axis(result)[1]),
        (1, figure.update_yaxes, "step (s)"),
    ):
        update(title={"text": title}, **plain_ticks([value for line in lines for value in line[place]]))
    figure.update_layout(title={"text": _title(result)}, template="plotly_white")
    return page(figure)


def _draw(figure: Any, result: Sensitivity, pieces: list[Piece]) -> None:
    plot = figure.add_subplot()
    for place, piece in enumerate(pieces):
        x, y = _line(result, piece)
        plot.plot(x, y, color=COLOURS[place % len(COLOURS)], marker="o", markersize=3, linewidth=1.5)
    for axis, title, set_scale in (
        (plot.xaxis, _axis(result)[1], plot.set_xscale),
        (plot.yaxis, "step (s)", plot.set_yscale),
    ):
        axis.set_label_text(title)
        set_scale("log")
        plain_numbers(axis)
    plot.grid(True, which="both", linewidth=0.3)
    plot.set_title(_title(result), fontsize=10)
