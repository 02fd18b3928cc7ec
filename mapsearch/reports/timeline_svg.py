"""A pipeline's timeline as one SVG element: no script, no font, no network; stands alone or inside a page.

Contents: timeline_svg.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from mapsearch.reports import human
from mapsearch.simulating.orders import Kind
from mapsearch.simulating.simulator import TimedOp, Timeline

_ROW, _GAP, _LEFT, _RIGHT, _TOP, _BOTTOM = 22, 4, 64, 150, 34, 26
_LETTER, _CUT = 6.2, 18
"""Pixels of a letter of the labels, and of the cut in the middle."""
_NAMES = {
    Kind.FORWARD: ("f", "F", "forward"),
    Kind.BACKWARD: ("b", "B", "backward"),
    Kind.INPUT_GRAD: ("i", "B", "input gradients"),
    Kind.WEIGHT_GRAD: ("w", "W", "weight gradients"),
}
# Colours that stay apart for colour-blind eyes (Okabe and Ito), and letters that say the same.
_STYLE = """
.tl{--ink:#1a1a1a;--dim:#595959;--paper:#ffffff;--line:#c8c8c8;--f:#56b4e9;--b:#e69f00;--i:#f0c566;--w:#009e73;
font:11px system-ui,sans-serif;max-width:100%;height:auto}
@media (prefers-color-scheme:dark){.tl{--ink:#e8e8e8;--dim:#b0b0b0;--paper:#161616;--line:#4a4a4a;--f:#2f7fb0;
--b:#b07800;--i:#8a6a1c;--w:#007a59}}
.tl .paper{fill:var(--paper)}.tl text{fill:var(--ink)}.tl .dim{fill:var(--dim)}.tl .lane{fill:none;stroke:var(--line)}
.tl .f{fill:var(--f)}.tl .b{fill:var(--b)}.tl .i{fill:var(--i)}.tl .w{fill:var(--w)}
.tl .o rect{stroke:var(--paper);stroke-width:.6}.tl .odd rect{fill-opacity:.62}
.tl .o text{pointer-events:none;text-anchor:middle}
.tl g:focus{outline:none}.tl g:focus>rect{stroke:var(--ink);stroke-width:2}
.tl rect:hover{stroke:var(--ink);stroke-width:1.5}
"""
_MOST_PER_STAGE, _MOST = 80, 4000
"""Operations of which blocks stay wide enough to be told apart, and that keep the element below a megabyte."""
_MOST_STOPS = 240
"""Operations that the keyboard stops at one by one; with more of them it stops at stages."""


def timeline_svg(timeline: Timeline, *, width: int = 1000, most_ops: int | None = None) -> str:
    """The timeline as an SVG element: a row per stage, a block per operation with its times as title.

    Rows (and, where there are few, operations) take the keyboard's focus; colours follow the reader's light or dark
    scheme. With more than `most_ops` operations (80 per stage and 4,000 in all unless told) the beginning and the end
    are drawn, and what is left out is said.
    `width`: pixels at full size; it shrinks with its surroundings. The same bytes for the same timeline.
    """
    most = most_ops or min(_MOST_PER_STAGE * timeline.devices, _MOST)
    scale = _Scale(timeline, width - _LEFT - _RIGHT, most)
    shown = [[op for op in row if scale.shows(op)] for row in timeline.by_device]
    stops = sum(map(len, shown)) <= _MOST_STOPS
    height = _TOP + timeline.devices * (_ROW + _GAP) + _BOTTOM
    said = f"Pipeline of {timeline.devices} stages over {human.seconds(timeline.makespan_s)}"
    rows = [_row(device, ops, timeline, scale, stops) for device, ops in enumerate(shown)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tl" role="group" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" aria-label="{escape(said)}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *_legend(timeline),
            *rows,
            *_axis(timeline, scale, height),
            "</svg>\n",
        ]
    )


class _Scale:
    """Seconds to pixels: the whole run, or its beginning and its end beside a cut."""

    def __init__(self, timeline: Timeline, pixels: float, most_ops: int) -> None:
        self.total = timeline.makespan_s or 1.0
        self.cut = len(timeline.ops) > most_ops
        self.pixels = pixels - (_CUT if self.cut else 0)
        self.head_s = self.total
        self.tail_s = self.total
        if self.cut:
            self.head_s = sorted(op.end_s for op in timeline.ops)[most_ops // 2]
            self.tail_s = sorted(op.start_s for op in timeline.ops)[-(most_ops // 2)]
        self.drawn = self.head_s + self.total - self.tail_s if self.cut else self.total

    def shows(self, op: TimedOp) -> bool:
        """Whether an operation is drawn."""
        return not self.cut or op.end_s < self.head_s or op.start_s > self.tail_s

    def x(self, at_s: float) -> float:
        """Where a time that is drawn stands."""
        if self.cut and at_s >= self.tail_s:
            at_s = at_s - self.tail_s + self.head_s
            return _LEFT + _CUT + at_s / self.drawn * self.pixels
        return _LEFT + at_s / self.drawn * self.pixels


def _row(device: int, ops: Iterable[TimedOp], timeline: Timeline, scale: _Scale, stops: bool) -> str:
    top = _TOP + device * (_ROW + _GAP)
    whole = timeline.makespan_s or 1.0
    waits, peak = human.percent(timeline.idle_s[device] / whole), f"{timeline.peaks[device]:.4g}"
    right = f"waits {waits}, holds {peak}"
    end = scale.x(scale.total)
    blocks = "".join(_block(op, top, scale, stops) for op in ops)
    return (
        f'<g tabindex="0" role="group" aria-label="Stage {device} {right} microbatches">'
        f'<rect class="lane" x="{_LEFT}" y="{top}" width="{end - _LEFT:.1f}" height="{_ROW}"/>'
        f'<text x="4" y="{top + 15}">stage {device}</text>{blocks}'
        f'<text class="dim" x="{end + 6:.1f}" y="{top + 15}">{right}</text></g>'
    )


def _block(op: TimedOp, top: int, scale: _Scale, stops: bool) -> str:
    code, letter, name = _NAMES[op.kind]
    left = scale.x(op.start_s)
    width = scale.x(op.end_s) - left
    chunk = f", chunk {op.chunk}" if op.chunk else ""
    title = f"{name}, microbatch {op.microbatch}{chunk}: {human.seconds(op.start_s, 4)} to {human.seconds(op.end_s, 4)}"
    label = f"{letter}{op.microbatch}"
    text = ""
    if width >= _LETTER * len(label) + 3:
        text = f'<text x="{left + width / 2:.1f}" y="{top + 15}" aria-hidden="true">{label}</text>'
    focus = ' tabindex="0" role="img"' if stops else ""
    odd = " odd" if op.chunk % 2 else ""
    return (
        f'<g class="o{odd}"{focus}><title>{title}</title>'
        f'<rect class="{code}" x="{left:.1f}" y="{top}" width="{max(width, 0.4):.1f}" height="{_ROW}"/>{text}</g>'
    )


def _legend(timeline: Timeline) -> list[str]:
    kinds = {op.kind for op in timeline.ops}
    parts, x = [], float(_LEFT)
    for kind, (code, letter, name) in _NAMES.items():
        if kind in kinds:
            parts.append(f'<rect class="{code}" x="{x:.0f}" y="8" width="14" height="14"/>')
            parts.append(f'<text x="{x + 19:.0f}" y="19">{letter} {name}</text>')
            x += 19 + _LETTER * (len(name) + 2) + 18
    if any(op.chunk % 2 for op in timeline.ops):
        parts.append(f'<text class="dim" x="{x:.0f}" y="19">paler: second chunk</text>')
    return parts


def _axis(timeline: Timeline, scale: _Scale, height: int) -> list[str]:
    """Times of beginning, cut and end below the rows."""
    y = height - 8
    marks = [(scale.x(0.0), "start", "0 s"), (scale.x(scale.total), "end", human.seconds(timeline.makespan_s, 4))]
    if scale.cut:
        between = human.seconds(scale.tail_s - scale.head_s)
        middle = (scale.x(scale.head_s) + scale.x(scale.tail_s)) / 2
        count = sum(not scale.shows(op) for op in timeline.ops)
        marks.append((middle, "middle", f"cut: {between} and {count:,} operations are not drawn"))
    return [f'<text class="dim" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{text}</text>' for x, anchor, text in marks]
