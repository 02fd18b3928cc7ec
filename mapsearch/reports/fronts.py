"""The views of a front: a table that fits the width, Markdown, records.

Contents: front_lines, front_records, front_markdown, value_text, TITLES.
"""

from __future__ import annotations

from typing import Any

from rich.text import Text

from mapsearch.front import Front, FrontPoint, front_row
from mapsearch.reports import human
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import Column, flowed, grid, grid_width
from mapsearch.reports.tables import heading, placement_text, resting_lines, searched, sizes_text

TITLES = {
    "step_time": "step",
    "peak_memory": "worst HBM",
    "devices": "devices",
    "exposed_fraction": "exposed",
    "energy": "energy per step",
    "cost": "cost per step",
}
_STYLE = {"proven": "bold green", "exact": "bold green", "open": "bold yellow"}
_MANY = 40
"""Points shown before `--verbose` is needed for the rest."""


def value_text(name: str, value: float) -> str:
    """An objective's value as people read it."""
    if name == "energy":
        return human.scaled(value, "J")
    return human.measured(value, {"step_time": "s", "peak_memory": "bytes", "exposed_fraction": "share"}.get(name, ""))


def front_lines(front: Front, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view of a front as styled lines."""
    width = max(width, 40)
    lines = heading(front, _verdict(front), _STYLE.get(front.status, "bold red"), width)
    if front.points:
        shown = _shown(front, verbose)
        lines += [Text(""), *_table(front, shown, width)]
        if len(shown) < len(front.points):
            hint = (
                f"{len(shown)} of {len(front.points)} points, evenly spread, ends and knee among them (--verbose: all)"
            )
            lines += flowed(hint, width=width, style="dim")
    if front.open_region:
        lines += [Text(""), *_open(front, width)]
    return [*lines, *_footer(front, width, verbose)] if footer else lines


def _verdict(front: Front) -> str:
    count = len(front.points)
    what = f"{'1 mapping' if count == 1 else f'{count} mappings'} on the front of {_names(front)}"
    proven = [f"{p.backend} ({p.kind})" for p in front.proofs if p.status == "proven"]
    if front.status == "proven":
        return f"{what}, proven by {' and by '.join(proven)}"
    if front.status == "exact":
        return f"{what}; the search went through the whole space, no second way was taken (--certify)"
    if front.status == "infeasible":
        return "no mapping fits (mapsearch solve says why)"
    if front.status == "open":
        return f"{what} so far: not proven"
    return "the search stopped before it found a mapping"


def _names(front: Front) -> str:
    return ", ".join(name.replace("_", " ") for name in front.objectives)


def _shown(front: Front, verbose: bool) -> list[FrontPoint]:
    """All points, or evenly spread ones with both ends and the knee."""
    points = front.points
    if verbose or len(points) <= _MANY:
        return points
    last = len(points) - 1
    places = {round(number * last / (_MANY - 1)) for number in range(_MANY)}
    return [point for place, point in enumerate(points) if place in places or point.knee]


def _mark(point: FrontPoint) -> str:
    return ", ".join(word for word, said in (("knee", point.knee), ("open", not point.settled)) if said)


def _table(front: Front, points: list[FrontPoint], width: int) -> list[Text]:
    marks = [_mark(point) for point in points]
    columns = [
        Column("#", [str(point.rank) for point in points]),
        *(
            Column(TITLES[name], [value_text(name, point.objectives[name]) for point in points], style="bold")
            for name in front.objectives
        ),
        Column("", marks, left=True, style="cyan"),
    ]
    mappings = [point.mapping for point in points]
    sizes = Column("mapping", [sizes_text(mapping) for mapping in mappings], left=True)
    words = [f"{mapping.choices['schedule']}, {mapping.choices['recompute']}" for mapping in mappings]
    for wanted in ([*columns, sizes, Column("choices", words, left=True)], [*columns, sizes]):
        if grid_width(wanted) <= width:
            return grid(wanted)
    return grid(columns)


def _open(front: Front, width: int) -> list[Text]:
    """Where unseen mappings may lie."""
    lines = flowed("Open: unseen mappings may lie at or above", width=width, style="bold")
    for bound in front.open_region[:4]:
        text = ", ".join(f"{TITLES[name]} {value_text(name, value)}" for name, value in bound.items())
        lines += flowed(text, width=width, indent=2)
    more = len(front.open_region) - 4
    return [*lines, *flowed(f"or {more} more such corners", width=width, indent=2)] if more > 0 else lines


def _footer(front: Front, width: int, verbose: bool) -> list[Text]:
    facts = [f"Space: {searched(front.space)}"]
    if front.knee:
        chosen = f"Knee: point {front.knee.rank}, farthest from the chord between the extremes in scaled logarithms"
        facts = [chosen, f"It lives at {placement_text(front.knee.mapping)}", *facts]
    return resting_lines(facts, front, width, verbose=verbose)


def front_records(front: Front) -> list[dict[str, Any]]:
    """One record per point; numbers in SI units."""
    return [front_row(point) for point in front.points]


def front_markdown(front: Front) -> str:
    """The front as a Markdown document with one table."""
    lines = front_lines(front, width=10**6, verbose=True, footer=False)[:2]
    rows = [
        (
            str(point.rank),
            *(value_text(name, point.objectives[name]) for name in front.objectives),
            _mark(point),
            sizes_text(point.mapping),
            ", ".join(f"{name} {word}" for name, word in point.mapping.choices.items()),
            placement_text(point.mapping),
        )
        for point in front.points
    ]
    titles = ("#", *(TITLES[name] for name in front.objectives), "", "sizes", "choices", "placement")
    verdict, inputs = (line.plain for line in lines)
    body = [f"**{verdict}**", inputs, markdown_table(titles, rows) if rows else ""]
    body.append("\n".join(line.plain for line in _open(front, 10**6)) if front.open_region else "")
    body.append("\n".join(f"- {line.plain}" for line in _footer(front, 10**6, True) if line.plain))
    return "\n\n".join(part for part in body if part) + "\n"
