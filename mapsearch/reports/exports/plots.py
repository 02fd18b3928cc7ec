"""Plots of fronts: HTML that needs no network (plotly), SVG and PNG (matplotlib); equal fronts give equal bytes.

Contents: ENDINGS, COLOURS, check_plot, plot_bytes, plain_ticks, page, picture, plain_numbers.

The first two objectives are the axes, both logarithmic where they can be; a third is the colour of the points.
"""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mapsearch.errors import BackendMissing, UsageError, listed
from mapsearch.front import Front, FrontPoint
from mapsearch.reports.fronts import TITLES, value_text
from mapsearch.reports.tables import sizes_text

ENDINGS = {".html": "plotly", ".svg": "matplotlib", ".png": "matplotlib"}
"""Ending of a plot's file: the library that draws it."""
DIV = "mapsearch-front"
"""Fixed, since plotly would draw a random one."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart with colour-blindness as well (Okabe and Ito); a seventh front begins again."""
MARKS = (("circle", "o"), ("square", "s"), ("diamond", "D"), ("triangle-up", "^"), ("cross", "P"), ("star", "*"))
"""Mark of a front, as plotly and as matplotlib call it."""
MANY_TICKS = 12
SCALES = {"peak_memory": (1e9, "GB"), "energy": (1e6, "MJ"), "step_time": (1.0, "s"), "exposed_fraction": (0.01, "%")}
"""Objective: what one unit of its axis is, and its name."""


def check_plot(path: str) -> None:
    """Refuse an ending that nothing draws and a library that is missing, before the search.

    Raises UsageError, BackendMissing.
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(f"the ending says how to draw; accepted: {listed(ENDINGS)}", file=path, field="--plot")
    library = ENDINGS[ending]
    if importlib.util.find_spec(library) is None:
        raise BackendMissing(f"{ending} plots need {library}, which is not installed: pip install 'mapsearch[plots]'")


def plot_bytes(fronts: Sequence[Front], names: Sequence[str], ending: str) -> bytes:
    """The plot of some fronts of the same objectives in one format. Raises UsageError, BackendMissing."""
    check_plot(f"plot{ending}")
    if not any(front.points for front in fronts):
        raise UsageError("there is no point to draw", field="--plot")
    return _html(fronts, names) if ending == ".html" else picture(lambda figure: _draw(figure, fronts, names), ending)


def _axis(name: str) -> tuple[str, float]:
    """Title of an objective's axis, and the value of one of its units."""
    factor, unit = SCALES.get(name, (1.0, ""))
    return f"{TITLES[name]} ({unit})" if unit else TITLES[name], factor


def _axes(fronts: Sequence[Front]) -> list[tuple[str, str, float, bool]]:
    """The objectives drawn: name, title, unit, and whether the axis is logarithmic."""
    found = []
    for name in fronts[0].objectives:
        values = [point.objectives[name] for front in fronts for point in front.points]
        title, factor = _axis(name)
        found.append((name, title, factor, min(values) > 0.0))
    return found


def _coordinates(front: Front, axes: Sequence[tuple[str, str, float, bool]]) -> list[list[float]]:
    return [[point.objectives[name] / factor for point in front.points] for name, _, factor, _ in axes]


def _told(point: FrontPoint) -> str:
    values = ", ".join(f"{TITLES[name]} {value_text(name, value)}" for name, value in point.objectives.items())
    return f"#{point.rank}{' (knee)' if point.knee else ''}: {values}<br>{sizes_text(point.mapping)}"


def _html(fronts: Sequence[Front], names: Sequence[str]) -> bytes:
    import plotly.graph_objects as go

    axes = _axes(fronts)
    figure = go.Figure()
    coloured = len(axes) > 2 and len(fronts) == 1
    for place, (front, name) in enumerate(zip(fronts, names, strict=True)):
        x, y, *rest = _coordinates(front, axes)
        marker: dict[str, Any] = {
            "symbol": MARKS[place % len(MARKS)][0],
            "size": [13 if point.knee else 7 for point in front.points],
            "color": COLOURS[place % len(COLOURS)],
            "line": {"width": [2 if point.knee else 0 for point in front.points], "color": "black"},
        }
        if coloured:
            marker |= _colours(rest[0], axes[2])
        shape = (
            {"mode": "lines+markers", "line": {"shape": "hv", "width": 1}} if len(axes) == 2 else {"mode": "markers"}
        )
        text = [_told(point) for point in front.points]
        figure.add_scatter(x=x, y=y, name=name, marker=marker, text=text, hoverinfo="text+name", **shape)
    drawn = [_coordinates(front, axes) for front in fronts]
    for place, update in enumerate((figure.update_xaxes, figure.update_yaxes)):
        _, title, _, logarithmic = axes[place]
        values = [value for front in drawn for value in front[place]]
        update(title={"text": title}, **(plain_ticks(values) if logarithmic else {"type": "linear"}))
    figure.update_layout(title={"text": _title(fronts)}, template="plotly_white", showlegend=len(fronts) > 1)
    return page(figure)


NARROW = 5.0
"""A logarithmic axis whose ends differ by less gets evenly spaced numbers: 1, 2 and 5 would leave one or none."""


def plain_ticks(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis of plotly with whole numbers for these values: its own are single digits within a decade."""
    low, high = min(values), max(values)
    ticks = [float(f"{step}e{decade}") for decade in range(-9, 16) for step in (1, 2, 5)]
    if low < high < NARROW * low:
        step = next(tick for tick in ticks if tick >= (high - low) / 8.0)
        ticks = [step * place for place in range(math.floor(low / step), math.ceil(high / step) + 1) if place]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:.6g}" for tick in ticks]}


def page(figure: Any) -> bytes:
    """A plotly figure as an HTML page of its own."""
    html: str = figure.to_html(include_plotlyjs=True, full_html=True, div_id=DIV, config={"displaylogo": False})
    return html.encode()


def _colours(values: list[float], axis: tuple[str, str, float, bool]) -> dict[str, Any]:
    """Colours by the third objective, its own values beside the bar where they are few."""
    _, title, _, logarithmic = axis
    bar: dict[str, Any] = {"title": {"text": title}}
    shown = [math.log10(value) for value in values] if logarithmic else values
    ticks = dict(sorted(zip(shown, values, strict=True)))
    if logarithmic:
        most = [*ticks] if len(ticks) <= MANY_TICKS else [min(ticks), max(ticks)]
        bar |= {"tickvals": most, "ticktext": [f"{ticks[place]:g}" for place in most]}
    return {"color": shown, "colorscale": "Viridis", "colorbar": bar}


def _title(fronts: Sequence[Front]) -> str:
    about = fronts[0].provenance
    if len(fronts) > 1:
        return f"{len(fronts)} fronts"
    return (
        f"{about.model} on {about.topology}: {len(fronts[0].points)} mappings ({fronts[0].status}), the knee is ringed"
    )


def picture(draw: Callable[[Any], None], ending: str) -> bytes:
    """What `draw` puts on a matplotlib figure, as SVG or PNG."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    canvas: Callable[[Any], Any] = FigureCanvasSVG if ending == ".svg" else FigureCanvasAgg
    # Fixed ids, letters as text and no date: equal fronts give equal bytes.
    with matplotlib.rc_context({"svg.hashsalt": DIV, "svg.fonttype": "none", "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(8.0, 5.5), dpi=120, layout="constrained")
        canvas(figure)
        draw(figure)
        buffer = io.BytesIO()
        metadata = {"Date": None} if ending == ".svg" else {"Software": None}
        figure.savefig(buffer, format=ending.removeprefix("."), metadata=metadata)
    return buffer.getvalue()


def _draw(figure: Any, fronts: Sequence[Front], names: Sequence[str]) -> None:
    axes = _axes(fronts)
    plot = figure.add_subplot()
    for place, (front, name) in enumerate(zip(fronts, names, strict=True)):
        x, y, *rest = _coordinates(front, axes)
        colour, mark = COLOURS[place % len(COLOURS)], MARKS[place % len(MARKS)][1]
        if len(axes) == 2:
            plot.step(x, y, where="post", color=colour, linewidth=0.8)
        if rest and len(fronts) == 1:
            norm = "log" if axes[2][3] else "linear"
            drawn = plot.scatter(x, y, c=rest[0], marker=mark, s=22, cmap="viridis", norm=norm, zorder=3)
            figure.colorbar(drawn, label=axes[2][1])
        else:
            plot.scatter(x, y, color=colour, marker=mark, s=22, label=name, zorder=3)
        for place_of, point in enumerate(front.points):
            if point.knee:
                plot.scatter([x[place_of]], [y[place_of]], s=120, facecolors="none", edgecolors="black", zorder=4)
                plot.annotate(f"knee #{point.rank}", (x[place_of], y[place_of]), (8, 8), textcoords="offset points")
    scales = ((plot.xaxis, plot.set_xscale), (plot.yaxis, plot.set_yscale))
    for (axis, set_scale), (_, title, _, logarithmic) in zip(scales, axes, strict=False):
        axis.set_label_text(title)
        if logarithmic:
            set_scale("log")
            plain_numbers(axis)
    plot.grid(True, which="both", linewidth=0.3)
    plot.set_title(_title(fronts), fontsize=10)
    if len(fronts) > 1:
        plot.legend()


def plain_numbers(axis: Any) -> None:
    """Plain numbers on a logarithmic axis, a few within a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
