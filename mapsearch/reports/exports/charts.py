"""Small charts as SVG that follow a light or dark page, and as PNG: stacked bars, waterfalls, points, lines.

Contents: Bar, Point, Line, Chart, chart_svg, charts_svg, chart_png, STYLE.

A chart is data; both drawings show the same. Values are drawn with their numbers beside them, so that nothing rests on
colour alone; every mark has a title to hover over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from mapsearch.reports.exports.plots import COLOURS, picture

WIDTH = 720
LABEL = 190
ROW = 26
SHADES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7b6888", "#637939", "#999999")
"""Told apart with colour-blindness as well (Okabe and Ito); later parts repeat them."""
STYLE = """
svg.chart{max-width:100%;height:auto;font:13px system-ui,sans-serif}
svg.chart text{fill:var(--ink)}svg.chart .dim{fill:var(--dim)}svg.chart .axis{stroke:var(--line)}
svg.chart .mark{stroke:var(--page);stroke-width:1}
"""


@dataclass(frozen=True)
class Bar:
    """One bar: its label, and its parts one behind the other."""

    label: str
    parts: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return sum(value for _, value in self.parts)


@dataclass(frozen=True)
class Point:
    """One mark of a chart of points."""

    label: str
    x: float
    y: float
    filled: bool = True


@dataclass(frozen=True)
class Line:
    """One line of a chart over two axes."""

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Chart:
    """What is drawn; `kind` says how."""

    name: str
    """Of the file that it is written to."""
    title: str
    kind: str
    """`stacked`, `waterfall` (one bar, each part on a line of its own), `points`, or `lines`."""
    told: Callable[[float], str]
    """A value in words."""
    bars: tuple[Bar, ...] = ()
    points: tuple[Point, ...] = ()
    lines: tuple[Line, ...] = ()
    limit: float | None = None
    limit_label: str = ""
    axes: tuple[str, str] = ("", "")
    told_x: Callable[[float], str] | None = None
    names: tuple[str, ...] = field(default=())
    """Parts in the order of their colours."""

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts of all bars, in the order of their colours."""
        return self.names or tuple(dict.fromkeys(name for bar in self.bars for name, _ in bar.parts))

    def shade(self, part: str) -> str:
        """The colour of a part."""
        return SHADES[self.parts.index(part) % len(SHADES)]


def chart_svg(chart: Chart, *, alone: bool = False) -> str:
    """The chart as an SVG element; `alone` makes it a document of its own."""
    body, height = _drawn(chart)
    if alone:
        return charts_svg([chart], alone=True)
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img"'
    return f'{head} aria-label="{escape(chart.title)}">{body}</svg>'


def charts_svg(charts: Sequence[Chart], *, alone: bool = False) -> str:
    """Charts with their titles below each other as an SVG element; `alone` makes it a document of its own."""
    parts, top = [], 0
    for chart in charts:
        body, height = _drawn(chart)
        title = f'<text x="0" y="{top + 16}">{escape(chart.title)}</text>'
        parts.append(f'{title}<g transform="translate(0 {top + 24})">{body}</g>')
        top += height + 24
    label = escape("; ".join(chart.title for chart in charts))
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" role="img" aria-label="{label}"'
    style = (
        "svg{--ink:#1a1a1a;--dim:#5c5c5c;--line:#8a8a8a;--page:#ffffff}"
        "@media (prefers-color-scheme:dark){svg{--ink:#ececec;--dim:#a8a8a8;--line:#7d7d7d;--page:#14171a}}"
        f"{STYLE}"
    )
    space, end = (' xmlns="http://www.w3.org/2000/svg"', "\n") if alone else ("", "")
    page = f'<rect width="{WIDTH}" height="{top}" style="fill:var(--page)"/>'
    return f"{head}{space}><style>{style}</style>{page}{''.join(parts)}</svg>{end}"


def _drawn(chart: Chart) -> tuple[str, int]:
    """The inside of a chart and its height."""
    kinds = {"stacked": _stacked, "waterfall": _waterfall, "points": _points, "lines": _lines}
    return kinds[chart.kind](chart)


def _scale(chart: Chart) -> float:
    """Pixels of one unit of value."""
    most = max([bar.total for bar in chart.bars] + ([chart.limit] if chart.limit else []), default=1.0) or 1.0
    return (WIDTH - LABEL - 110) / most


def _text(x: float, y: float, words: str, shape: str = "", anchor: str = "") -> str:
    told = f' class="{shape}"' if shape else ""
    place = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{told}{place}>{escape(words)}</text>'


def _stacked(chart: Chart) -> tuple[str, int]:
    """Bars below each other, parts behind each other, the total at the end, and a key of the parts."""
    scale, drawn = _scale(chart), []
    for row, bar in enumerate(chart.bars):
        y, x = row * ROW, float(LABEL)
        drawn.append(_text(LABEL - 8, y + 16, bar.label, anchor="end"))
        for name, value in bar.parts:
            width = value * scale
            title = f"<title>{escape(f'{bar.label}: {name} {chart.told(value)}')}</title>"
            drawn.append(
                f'<rect class="mark" x="{x:.1f}" y="{y + 3}" width="{max(width, 0.0):.1f}" height="18" '
                f'fill="{chart.shade(name)}">{title}</rect>'
            )
            x += width
        drawn.append(_text(x + 6, y + 16, chart.told(bar.total), "dim"))
    bottom = len(chart.bars) * ROW
    drawn += _limit(chart, scale, bottom)
    bottom += 18 if chart.limit else 0
    key, height = _key(chart, bottom + 8)
    return "".join(drawn) + key, height


def _limit(chart: Chart, scale: float, bottom: int) -> list[str]:
    if not chart.limit:
        return []
    x = LABEL + chart.limit * scale
    line = f'<path class="axis" stroke-dasharray="4 3" d="M{x:.1f} 0V{bottom}"/>'
    return [line, _text(x, bottom + 12, f"{chart.limit_label} {chart.told(chart.limit)}", "dim", "middle")]


def _key(chart: Chart, top: int) -> tuple[str, int]:
    """Colours and names of the parts, as many to a row as fit."""
    drawn, x, y = [], 0.0, top
    for name in chart.parts:
        width = 26 + 7.5 * len(name)
        if x + width > WIDTH:
            x, y = 0.0, y + 20
        drawn.append(f'<rect x="{x:.1f}" y="{y}" width="12" height="12" fill="{chart.shade(name)}"/>')
        drawn.append(_text(x + 17, y + 11, name, "dim"))
        x += width
    return "".join(drawn), y + 24


def _waterfall(chart: Chart) -> tuple[str, int]:
    """One bar taken apart: each part on a line of its own, beginning where the one before it ends."""
    scale, drawn, x = _scale(chart), [], float(LABEL)
    (bar,) = chart.bars
    for row, (name, value) in enumerate(bar.parts):
        y, width = row * ROW, value * scale
        drawn.append(_text(LABEL - 8, y + 16, name, anchor="end"))
        title = f"<title>{escape(f'{name} {chart.told(value)}')}</title>"
        drawn.append(
            f'<rect class="mark" x="{x:.1f}" y="{y + 3}" width="{max(width, 1.0):.1f}" height="18" '
            f'fill="{chart.shade(name)}">{title}</rect>'
        )
        drawn.append(_text(x + max(width, 1.0) + 6, y + 16, chart.told(value), "dim"))
        x += width
        drawn.append(f'<path class="axis" stroke-dasharray="2 3" d="M{x:.1f} {y + 21}V{y + ROW + 3}"/>')
    y = len(bar.parts) * ROW
    drawn.append(_text(LABEL - 8, y + 16, bar.label, anchor="end"))
    drawn.append(
        f'<rect class="mark" x="{LABEL}" y="{y + 3}" width="{bar.total * scale:.1f}" height="18" fill="var(--line)"/>'
    )
    drawn.append(_text(LABEL + bar.total * scale + 6, y + 16, chart.told(bar.total), "dim"))
    bottom = y + ROW
    drawn += _limit(chart, scale, bottom)
    return "".join(drawn), bottom + (20 if chart.limit else 4)


HEIGHT = 320
_LEFT, _BOTTOM = 84, 44


def _points(chart: Chart) -> tuple[str, int]:
    """Points over two axes, each with its label."""
    xs, ys = [p.x for p in chart.points], [p.y for p in chart.points]
    told_x = chart.told_x or chart.told

    def along(value: float, values: Sequence[float], low: float, high: float) -> float:
        least, most = min(values), max(values)
        room = 0.06 * (most - least) or 0.06 * abs(most) or 1.0
        return low + (value - least + room) / (most - least + 2.0 * room) * (high - low)

    drawn = [f'<path class="axis" fill="none" d="M{_LEFT} 8V{HEIGHT - _BOTTOM}H{WIDTH - 10}"/>']
    for value in dict.fromkeys((min(xs), max(xs))):
        x = along(value, xs, _LEFT, WIDTH - 20)
        drawn.append(_text(x, HEIGHT - _BOTTOM + 18, told_x(value), "dim", "middle"))
    for value in dict.fromkeys((min(ys), max(ys))):
        drawn.append(_text(_LEFT - 8, along(value, ys, HEIGHT - _BOTTOM, 12) + 4, chart.told(value), "dim", "end"))
    drawn.append(_text((_LEFT + WIDTH) / 2, HEIGHT - 8, chart.axes[0], "dim", "middle"))
    drawn.append(_text(4, 12, chart.axes[1], "dim"))
    for point in chart.points:
        x, y = along(point.x, xs, _LEFT, WIDTH - 20), along(point.y, ys, HEIGHT - _BOTTOM, 12)
        fill = COLOURS[0] if point.filled else "none"
        words = f"{point.label}: {told_x(point.x)}, {chart.told(point.y)}"
        drawn.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{COLOURS[0]}" stroke-width="2">'
            f"<title>{escape(words)}</title></circle>"
        )
    return "".join(drawn), HEIGHT


def _lines(chart: Chart) -> tuple[str, int]:
    """Lines over two axes, both from zero, with a limit across and a key below."""
    xs = [x for line in chart.lines for x, _ in line.points]
    ys = [y for line in chart.lines for _, y in line.points] + ([chart.limit] if chart.limit else [])
    told_x = chart.told_x or chart.told
    wide, high = max(xs, default=0.0) or 1.0, max(ys, default=0.0) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + x / wide * (WIDTH - 20 - _LEFT),
            HEIGHT - _BOTTOM - y / high * (HEIGHT - _BOTTOM - 24),
        )  # fmt: skip

    drawn = [f'<path class="axis" fill="none" d="M{_LEFT} 8V{HEIGHT - _BOTTOM}H{WIDTH - 10}"/>']
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "end" if part == 1.0 else "middle"
        drawn.append(_text(place(part * wide, 0.0)[0], HEIGHT - _BOTTOM + 18, told_x(part * wide), "dim", anchor))
        drawn.append(_text(_LEFT - 8, place(0.0, part * high)[1] + 4, chart.told(part * high), "dim", "end"))
    drawn.append(_text((_LEFT + WIDTH) / 2, HEIGHT - 8, chart.axes[0], "dim", "middle"))
    drawn.append(_text(4, 12, chart.axes[1], "dim"))
    for line in chart.lines:
        path = "L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in line.points)
        title = f"<title>{escape(line.label)}</title>"
        drawn.append(
            f'<path fill="none" stroke="{chart.shade(line.label)}" stroke-width="1.5" d="M{path}">{title}</path>'
        )
    if chart.limit:
        y = place(0.0, chart.limit)[1]
        drawn.append(f'<path class="axis" stroke-dasharray="4 3" d="M{_LEFT} {y:.1f}H{WIDTH - 10}"/>')
        words = f"{chart.limit_label} {chart.told(chart.limit)}"
        drawn.append(_text(WIDTH - 20, y - 5, words, "dim", "end"))
    key, height = _key(chart, HEIGHT + 6)
    return "".join(drawn) + key, height + 10


def chart_png(chart: Chart) -> bytes:
    """The chart as PNG. Raises BackendMissing where matplotlib is not installed."""
    return picture(lambda figure: _draw(figure, chart), ".png")


def _draw(figure: object, chart: Chart) -> None:
    axes = figure.subplots()  # type: ignore[attr-defined]
    axes.set_title(chart.title, fontsize=11)
    if chart.kind == "points":
        told_x = chart.told_x or chart.told
        axes.scatter([p.x for p in chart.points], [p.y for p in chart.points], color=COLOURS[0])
        axes.set_xlabel(chart.axes[0])
        axes.set_ylabel(chart.axes[1])
        axes.xaxis.set_major_formatter(lambda value, _place: told_x(value))
        axes.yaxis.set_major_formatter(lambda value, _place: chart.told(value))
        return
    if chart.kind == "lines":
        _draw_lines(axes, chart)
        return
    falling = chart.kind == "waterfall"
    rows = [(name, ((name, value),)) for name, value in chart.bars[0].parts] if falling else []
    bars = [Bar(label, parts) for label, parts in rows] or list(chart.bars)
    start = 0.0
    for place, bar in enumerate(bars):
        left = start if falling else 0.0
        for name, value in bar.parts:
            axes.barh(place, value, left=left, color=chart.shade(name))
            left += value
        start = left
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _place: chart.told(value))
    if chart.limit:
        axes.axvline(chart.limit, color="#5c5c5c", linestyle="--", linewidth=1)
    if not falling:
        handles = [axes.barh(0, 0, color=chart.shade(name), label=name) for name in chart.parts]
        axes.legend(handles=handles, fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def _draw_lines(axes: Any, chart: Chart) -> None:
    told_x = chart.told_x or chart.told
    for line in chart.lines:
        axes.plot(*zip(*line.points, strict=True), color=chart.shade(line.label), label=line.label, linewidth=1)
    if chart.limit:
        axes.axhline(chart.limit, color="#5c5c5c", linestyle="--", linewidth=1)
    axes.set_xlabel(chart.axes[0])
    axes.set_ylabel(chart.axes[1])
    axes.set_ylim(bottom=0.0)
    axes.xaxis.set_major_formatter(lambda value, _place: told_x(value))
    axes.yaxis.set_major_formatter(lambda value, _place: chart.told(value))
    axes.legend(fontsize=7)
