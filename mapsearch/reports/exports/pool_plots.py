"""The front of two pools drawn: throughput or cost over versions, a line per queue; equal fronts give equal bytes.

Contents: pool_plot_bytes.

HTML by plotly and pictures by matplotlib, as for other fronts. A line is a stair: what some versions reach, more do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mapsearch.errors import UsageError
from mapsearch.pooled_front import PoolFront, PoolPoint
from mapsearch.reports.exports.plots import COLOURS, MARKS, check_plot, page, picture
from mapsearch.reports.pool_fronts import BINDS, told_value, value_name, value_of
from mapsearch.reports.pools import serving_text
from mapsearch.reports.tables import sizes_text

VERSIONS = "versions that a sample may be old"


def pool_plot_bytes(front: PoolFront, ending: str) -> bytes:
    """The plot of a front in one format. Raises UsageError, BackendMissing."""
    check_plot(f"plot{ending}")
    if not any(point.steady for point in front.points):
        raise UsageError("there is no point to draw", field="--output")
    return _html(front) if ending == ".html" else picture(lambda figure: _draw(figure, front), ending)


def _lines(front: PoolFront) -> list[tuple[str, list[PoolPoint]]]:
    """Points that hold a pair by queue, with the name of each line."""
    queues = sorted({point.held_batches for point in front.points})
    found = [(held, [p for p in front.points if p.held_batches == held and p.steady]) for held in queues]
    return [(f"queue of {held:g} batches", points) for held, points in found if points]


def _title(front: PoolFront) -> str:
    return f"{front.model} and its rollout on {front.topology}: {value_name(front)} ({front.status})"


def _told(front: PoolFront, point: PoolPoint) -> str:
    if point.steady is None or point.mapping is None or point.serving is None:
        return ""
    parts = [
        f"{point.versions} versions: {told_value(front, point)} {value_name(front)}{' (knee)' if point.knee else ''}",
        f"{point.training_devices:,} devices train: {sizes_text(point.mapping)}",
        f"{point.rollout_devices:,} roll out: {serving_text(point.serving)}",
        f"binds: {BINDS[point.steady.binding]}",
    ]
    return "<br>".join(parts)


def _html(front: PoolFront) -> bytes:
    import plotly.graph_objects as go

    figure = go.Figure()
    for place, (name, points) in enumerate(_lines(front)):
        marker: dict[str, Any] = {
            "symbol": MARKS[place % len(MARKS)][0],
            "size": [13 if point.knee else 8 for point in points],
            "color": COLOURS[place % len(COLOURS)],
            "line": {"width": [2 if point.knee else 0 for point in points], "color": "black"},
        }
        figure.add_scatter(
            x=[point.versions for point in points],
            y=[value_of(front, point) for point in points],
            name=name,
            mode="lines+markers+text",
            line={"shape": "hv", "width": 1, "color": COLOURS[place % len(COLOURS)]},
            marker=marker,
            text=_binds(points) if len(_lines(front)) == 1 else None,
            cliponaxis=False,
            textposition="top center" if front.objective != "tokens" else "bottom center",
            hovertext=[_told(front, point) for point in points],
            hoverinfo="text+name",
        )
    figure.update_xaxes(title={"text": VERSIONS}, dtick=1 if _few(front) else None)
    figure.update_yaxes(title={"text": value_name(front)}, rangemode="tozero")
    figure.update_layout(title={"text": _title(front)}, template="plotly_white", showlegend=len(_lines(front)) > 1)
    return page(figure)


def _few(front: PoolFront) -> bool:
    versions = [point.versions for point in front.points]
    return max(versions) - min(versions) <= 24


def _binds(points: Sequence[PoolPoint]) -> list[str]:
    """What binds, where it is another constraint than at the point before."""
    names = [f"{BINDS[point.steady.binding]} binds" if point.steady else "" for point in points]
    return [name if place == 0 or name != names[place - 1] else "" for place, name in enumerate(names)]


def _draw(figure: Any, front: PoolFront) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    plot = figure.add_subplot()
    for place, (name, points) in enumerate(_lines(front)):
        colour, mark = COLOURS[place % len(COLOURS)], MARKS[place % len(MARKS)][1]
        x, y = [point.versions for point in points], [value_of(front, point) for point in points]
        plot.step(x, y, where="post", color=colour, linewidth=0.8)
        plot.scatter(x, y, color=colour, marker=mark, s=26, label=name, zorder=3)
        for point, at, value, binds in zip(points, x, y, _binds(points), strict=True):
            if point.knee:
                plot.scatter([at], [value], s=130, facecolors="none", edgecolors="black", zorder=4)
            if len(_lines(front)) > 1:
                continue  # words of several lines would lie on each other
            words = ", ".join(word for word in (binds, "knee" if point.knee else "") if word)
            if words:
                plot.annotate(words, (at, value), (7, -12), textcoords="offset points", fontsize=8)
    plot.set_xlabel(VERSIONS)
    plot.set_ylabel(value_name(front))
    plot.xaxis.set_major_locator(MaxNLocator(integer=True))
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,.6g}"))
    plot.set_ylim(bottom=0.0)
    plot.margins(x=0.12)
    plot.grid(True, linewidth=0.3)
    plot.set_title(_title(front), fontsize=10)
    if len(_lines(front)) > 1:
        plot.legend()
