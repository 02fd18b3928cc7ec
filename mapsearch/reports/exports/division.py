"""The devices of two pools as a picture: one square for every outer unit, or for equally many of them.

Contents: Divided, division_svg.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from mapsearch.reports.exports.charts import SHADES, WIDTH

MOST = 256
"""Squares that are drawn; of more units several share one."""
SIDE, GAP = 20, 4
_SHADES = {"train": SHADES[0], "roll out": SHADES[4], "stay unused": "none"}


@dataclass(frozen=True)
class Divided:
    """What becomes of some devices."""

    does: str
    """train, roll out, stay unused."""
    devices: int
    words: str
    """What these devices are told as."""


def division_svg(sides: list[Divided], unit_devices: int) -> str:
    """Squares of so many devices each, those that train first, and a key below them."""
    total = sum(side.devices for side in sides)
    each = unit_devices
    while total / each > MOST:
        each *= 2
    squares = [side for side in sides for _ in range(max(1, round(side.devices / each)) if side.devices else 0)]
    columns = WIDTH // (SIDE + GAP)
    drawn = []
    for place, side in enumerate(squares):
        x, y = place % columns * (SIDE + GAP), place // columns * (SIDE + GAP)
        dashed = ' stroke-dasharray="3 3"' if _SHADES[side.does] == "none" else ""
        drawn.append(
            f'<rect x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" rx="3" fill="{_SHADES[side.does]}" '
            f'class="axis"{dashed}><title>{escape(f"{each:,} devices {side.does}")}</title></rect>'
        )
    y = ((len(squares) - 1) // columns + 1) * (SIDE + GAP) + 8
    for side in sides:
        if side.devices:
            drawn.append(f'<rect x="0" y="{y}" width="12" height="12" fill="{_SHADES[side.does]}" class="axis"/>')
            drawn.append(f'<text x="20" y="{y + 11}">{escape(side.words)}</text>')
            y += 22
    label = escape("; ".join(side.words for side in sides if side.devices))
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {y + 4}" width="{WIDTH}" role="img" aria-label="{label}"'
    return f"{head}>{''.join(drawn)}</svg>"
