"""A cluster drawn: its levels as a ladder that zooms in (SVG), and every device with its groups to click on (HTML).

Contents: LevelPicture, ClusterPicture, picture_of, cluster_svg, cluster_html.

Drawn at any size: a level shows up to 64 of its units, and the first one opened below it. Files need no network, and
equal pictures give equal bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

from mapsearch.audited import Audit
from mapsearch.placement import Placement
from mapsearch.reports import human
from mapsearch.topologies.fabric import Fabric

WIDTH = 960
MARGIN = 24
ROW = 32
"""Units side by side in one row of a level."""
ROWS = 2
TILE = 20
MOST_DEVICES = 65_536
"""Devices that are drawn one by one; of larger clusters only the levels are."""
LOADS = ("#1a9850", "#66a61e", "#d9a514", "#e6550d", "#c51b29")
"""Colour of a fifth of the step that a link is in use: idle first."""


@dataclass(frozen=True)
class LevelPicture:
    """One level as it is drawn."""

    name: str
    size: int
    kind: str
    inside: str
    """What its units are called: `board`, or `device` for the innermost level."""
    told: str
    """Bandwidth and latency in words."""
    high_bandwidth: bool = False
    load: float | None = None
    """Share of the step that its busiest link is in use; None where no audit says."""


@dataclass(frozen=True)
class ClusterPicture:
    """What is drawn of a cluster."""

    name: str
    summary: str
    levels: tuple[LevelPicture, ...]
    """Outermost first."""
    device_names: tuple[str, ...] = ()
    group_of: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Axis: number of the group that each device is in, -1 for devices without a rank; empty without a placement."""
    busiest: tuple[str, ...] = ()
    """The busiest links in words."""
    notes: tuple[str, ...] = ()


def picture_of(
    fabric: Fabric, device_names: Sequence[str] = (), placement: Placement | None = None, audit: Audit | None = None
) -> ClusterPicture:
    """A cluster with its devices in order; groups of a placement and loads of an audit where they are given."""
    below = ["device", *fabric.level_names]
    levels = [
        LevelPicture(
            name=level.name,
            size=level.size,
            kind=level.kind,
            inside=inside,
            told=f"{human.amount(level.bytes_per_s)}/s per device and direction, {human.seconds(level.latency_s)}",
            high_bandwidth=place < fabric.domain_levels,
            load=_load(level.name, audit),
        )
        for place, (level, inside) in enumerate(zip(fabric.levels, below, strict=False))
    ]
    busiest = [] if audit is None else audit.busiest
    return ClusterPicture(
        name=fabric.name,
        summary=f"{fabric.name}: {fabric.devices:,} x {fabric.device.name}",
        levels=tuple(reversed(levels)),
        device_names=tuple(device_names),
        group_of={} if placement is None else _groups(device_names, placement),
        busiest=tuple(
            f"{one.source} to {one.target}: {human.seconds(one.seconds)} a step"
            + (f", {one.alike:,} links alike" if one.alike > 1 else "")
            for one in busiest
        ),
        notes=fabric.notes,
    )


def _load(level: str, audit: Audit | None) -> float | None:
    if audit is None or level not in audit.level_busy_s:
        return None
    return min(audit.level_busy_s[level] / audit.audited_step_time_s, 1.0)


def _groups(device_names: Sequence[str], placement: Placement) -> dict[str, list[int]]:
    """Axis: number of the group of each device; axes of groups of one are left out."""
    place = {name: number for number, name in enumerate(device_names)}
    found = {}
    for axis, groups in placement.groups.items():
        if placement.sizes[axis] == 1:
            continue
        numbers = [-1] * len(device_names)
        for number, ranks in enumerate(groups):
            for rank in ranks:
                numbers[place[placement.devices[rank]]] = number
        found[axis] = numbers
    return found


def _colour(load: float | None) -> str:
    return "var(--line)" if load is None else LOADS[min(int(load * len(LOADS)), len(LOADS) - 1)]


def cluster_svg(picture: ClusterPicture) -> str:
    """The levels as a self-contained SVG document that follows a light or dark page."""
    body, height = _ladder(picture)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        f'aria-label="{escape(picture.summary)}">\n<style>{_SVG_STYLE}</style>\n'
        f'<rect class="page" width="{WIDTH}" height="{height}"/>\n{body}\n</svg>\n'
    )


_SVG_STYLE = """
svg{--ink:#1a1a1a;--dim:#5c5c5c;--line:#8a8a8a;--tile:#dfe8f2;--fast:#bcd7f0;--page:#ffffff}
@media (prefers-color-scheme:dark){
svg{--ink:#ececec;--dim:#a8a8a8;--line:#7d7d7d;--tile:#2c3a49;--fast:#31567a;--page:#14171a}}
.page{fill:var(--page)}text{fill:var(--ink);font:14px system-ui,sans-serif}.dim{fill:var(--dim);font-size:12px}
.tile{fill:var(--tile);stroke:var(--line)}.fast{fill:var(--fast)}.open{stroke:var(--ink);stroke-width:2}
.wire{fill:none;stroke-width:2}.zoom{stroke:var(--line);stroke-dasharray:3 3;fill:none}
"""


def _ladder(picture: ClusterPicture) -> tuple[str, int]:
    """The levels from above, each below the unit that it opens, and the height of all."""
    parts = [f'<text x="{MARGIN}" y="30">{escape(picture.summary)}</text>']
    top, opened = 56, None
    for level in picture.levels:
        drawn, height, first = _level(level, top)
        if opened is not None:
            left, bottom = opened
            parts.append(
                f'<path class="zoom" d="M{left} {bottom}L{MARGIN} {top - 16}M{left + TILE} {bottom}'
                f'L{WIDTH - MARGIN} {top - 16}"/>'
            )
        parts.append(drawn)
        opened, top = first, top + height
    if any(level.load is not None for level in picture.levels):
        parts.append(_key(top))
        top += 30
    return "\n".join(parts), top


def _level(level: LevelPicture, top: int) -> tuple[str, int, tuple[int, int]]:
    """One level: its drawing, its height, and where its opened unit is (left, bottom)."""
    shown = min(level.size, ROW * ROWS - (level.size > ROW * ROWS))
    wire = top + 34
    colour = _colour(level.load)
    busy = "" if level.load is None else f", busiest link in use {100.0 * level.load:.3g} % of the step"
    words = f"one {level.name}: {level.size:,} x {level.inside}, {level.kind.replace('_', ' ')}"
    parts = [
        f'<text x="{MARGIN}" y="{top}">{escape(words)}</text>',
        f'<text class="dim" x="{MARGIN}" y="{top + 18}">{escape(level.told + busy)}</text>',
    ]
    step = TILE + 8
    for place in range(shown):
        row, column = divmod(place, ROW)
        x, y = MARGIN + column * step, wire + 14 + row * (TILE + 22)
        title = f"{level.inside}{place}"
        shape = "tile fast" if level.high_bandwidth else "tile"
        parts.append(f'<path class="wire" stroke="{colour}" d="M{x + TILE // 2} {y}V{y - 10}"/>')
        parts.append(
            f'<rect class="{shape}{" open" if place == 0 else ""}" x="{x}" y="{y}" width="{TILE}" '
            f'height="{TILE}" rx="3">'
            f"<title>{escape(title)}</title></rect>"
        )
    rows = (shown + ROW - 1) // ROW
    for row in range(rows):
        columns = min(ROW, shown - row * ROW)
        y = wire + 4 + row * (TILE + 22)
        right = MARGIN + (columns - 1) * step + TILE // 2
        parts.append(_wire(level.kind, MARGIN + TILE // 2, right, y, colour))
        if row == rows - 1 and shown < level.size:
            parts.append(f'<text class="dim" x="{right + 20}" y="{y + 26}">+{level.size - shown:,}</text>')
    bottom = wire + 14 + TILE
    return "\n".join(parts), 34 + 14 + rows * (TILE + 22) + 34, (MARGIN, bottom)


def _wire(kind: str, left: int, right: int, y: int, colour: str) -> str:
    """What joins the units of a row: a bus, a ring that comes back, or the many links of a mesh."""
    if kind in ("ring", "torus"):
        back = f"M{left} {y}C{left - 12} {y - 14} {right + 12} {y - 14} {right} {y}"
        return f'<path class="wire" stroke="{colour}" d="M{left} {y}H{right}{back}"/>'
    if kind == "full_mesh":
        return (
            f'<path class="wire" stroke="{colour}" d="M{left} {y}H{right}"/>'
            f'<path class="wire" stroke="{colour}" stroke-dasharray="2 4" d="M{left} {y - 4}H{right}"/>'
        )
    return f'<path class="wire" stroke="{colour}" d="M{left} {y}H{right}"/>'


def _key(top: int) -> str:
    parts = [f'<text class="dim" x="{MARGIN}" y="{top + 12}">busiest link in use, share of the step:</text>']
    for number, colour in enumerate(LOADS):
        x = MARGIN + 240 + number * 96
        words = f"{20 * number} to {20 * (number + 1)} %" if number < len(LOADS) - 1 else "80 % and more"
        parts.append(f'<rect x="{x}" y="{top}" width="14" height="14" fill="{colour}"/>')
        parts.append(f'<text class="dim" x="{x + 20}" y="{top + 12}">{words}</text>')
    return "\n".join(parts)


def cluster_html(picture: ClusterPicture) -> str:
    """The levels, and every device with the groups that it is in: click one, or walk with the arrow keys."""
    body, height = _ladder(picture)
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(picture.summary)}">'
        f"<style>{_SVG_STYLE}</style>{body}</svg>"
    )
    drawn = 0 < len(picture.device_names) <= MOST_DEVICES
    # Keys are sorted and numbers are whole, so equal pictures give equal bytes; "<" cannot end the script.
    data = json.dumps(
        {
            "devices": list(picture.device_names) if drawn else [],
            "groups": {axis: [int(one) for one in picture.group_of[axis]] for axis in picture.group_of}
            if drawn
            else {},
            "fans": _fans(picture),
        },
        separators=(",", ":"),
    ).replace("<", "\\u003c")
    page = files("mapsearch.reports.exports").joinpath("cluster.html").read_text(encoding="utf-8")
    words = {
        "TITLE": escape(picture.name),
        "LADDER": svg,
        "DATA": data,
        "NOTES": _items("Notes", picture.notes),
        "BUSIEST": _items("Busiest links", picture.busiest),
        "HIDDEN": "" if drawn else " hidden",
    }
    for name, text in words.items():
        page = page.replace("{{" + name + "}}", text)
    return page


def _fans(picture: ClusterPicture) -> list[int]:
    """Units in units, innermost first, as devices are laid out; a cluster with holes is one block."""
    fans = [level.size for level in reversed(picture.levels)]
    return fans if math.prod(fans) == len(picture.device_names) else [len(picture.device_names)]


def _items(title: str, texts: Sequence[str]) -> str:
    if not texts:
        return ""
    return f"<h2>{title}</h2><ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"
