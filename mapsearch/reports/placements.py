"""The views of a placement: axes summed up by the levels that their groups cross, single groups, a line per rank.

Contents: placement_lines, placement_records, placement_markdown, narrowed.
"""

from __future__ import annotations

from typing import Any

from rich.text import Text

from mapsearch.errors import UsageError
from mapsearch.placement import AxisGroups, Pattern, Placement
from mapsearch.placing.patterns import short
from mapsearch.reports import human
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section

FEW = 24
"""Groups and kinds of groups that are listed without `--verbose`."""
MEMBERS = 64
"""Members of one group that are listed one by one without `--verbose`."""
_TITLES = ("axis", "size", "groups", "cut over", "inside one", "for example")


def placement_lines(placement: Placement, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """A placement as styled lines: one per axis and kind of group, then what was asked for."""
    width = max(width, 40)
    ranks, devices = len(placement.devices), set(placement.devices)
    order = placement.order.upper()
    head = f"{ranks:,} ranks on {len(devices):,} devices of {placement.topology}, counted {order} (first fastest)"
    lines = flowed(head, width=width, style="bold")
    lines += flowed(f"{placement.mapping} · {_shape(placement)}", width=width, style="dim")
    lines += [line for sentence in _seating(placement) for line in flowed(sentence, width=width)]
    lines += section("Groups", _summary(placement, width, verbose), width=width)
    for one in placement.axes:
        if one.axis in placement.listed:
            lines += section(f"{one.axis.upper()} groups", _groups(placement, one, width, verbose), width=width)
    if footer:
        lines += [line for note in placement.notes for line in flowed(f"Note: {note}", width=width, style="dim")]
    return lines


def _shape(placement: Placement) -> str:
    sizes = placement.sizes
    dense = " ".join(f"{axis.upper()} {sizes[axis]}" for axis in ("tp", "cp", "dp", "pp"))
    expert = " ".join(f"{axis.upper()} {sizes[axis]}" for axis in ("etp", "ep", "edp"))
    return f"{dense} | {expert}"


def _seating(placement: Placement) -> list[str]:
    found = placement.seating
    if found is None:
        return []
    link = " - ".join(found.busiest)
    given = "" if found.given_worst_s is None else f", as searched {human.seconds(found.given_worst_s)}"
    proof = {"all": "no other is better", "units": "no exchange of whole units is better", "": "not proven"}
    return [
        f"busiest link {link}: {human.seconds(found.worst_s)} per step{given}, in the fixed order "
        f"{human.seconds(found.fixed_worst_s)}; {proof[found.proven]}"
    ]


def _summary(placement: Placement, width: int, verbose: bool) -> list[Text]:
    rows = [row for one in placement.axes for row in _rows(one, FEW if verbose else 3)]
    columns = [
        Column(title, [row[place] for row in rows], left=place not in (1, 2), style="bold" if place == 0 else "")
        for place, title in enumerate(_TITLES)
    ]
    if grid_width(columns) + 2 <= width:
        return grid(columns, indent=2)
    examples = [f"{row[0] or '..'}: {row[-1]}" for row in rows]
    table = grid(columns[:-1], indent=2)
    return [table[0]] + [
        line
        for row, text in zip(table[1:], examples, strict=True)
        for line in (row, *flowed(text.partition(": ")[2], indent=6, width=width, style="dim"))
    ]


def _rows(one: AxisGroups, most: int) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for place, kind in enumerate(one.patterns[:most]):
        name, size = (one.axis.upper(), f"{one.size:,}") if place == 0 else ("", "")
        rows.append((name, size, f"{kind.groups:,}", ways_text(kind), kind.inside or "the cluster", kind.devices))
    if len(one.patterns) > most:
        left = one.patterns[most:]
        rows.append(("", "", f"{sum(kind.groups for kind in left):,}", f"{len(left)} other ways", "", ""))
    return rows


def ways_text(kind: Pattern) -> str:
    """`4@board x 4@rack`, `-` for groups of one."""
    return " × ".join(f"{ways:g}@{level}" for level, ways in kind.ways.items()) or "-"


def _groups(placement: Placement, one: AxisGroups, width: int, verbose: bool) -> list[Text]:
    """The groups that were asked for: each with its ranks and devices."""
    numbers = placement.listed[one.axis]
    table = placement.groups[one.axis]
    if len(numbers) == 1 and len(placement.listed) == 1:
        members = table[numbers[0]]
        shown = members if verbose else members[:MEMBERS]
        columns = [
            Column("place", [str(place) for place in range(len(shown))]),
            Column("rank", [f"{rank:,}" for rank in shown]),
            Column("device", [placement.devices[rank] for rank in shown], left=True),
        ]
        more = len(members) - len(shown)
        return [*grid(columns, indent=2), *([Text(f"  and {more:,} more (--verbose)", style="dim")] if more else [])]
    shown = numbers if verbose else numbers[:FEW]
    lines = []
    for number in shown:
        group = table[number]
        ranks = short([str(rank) for rank in group]).replace(" devices)", ")")
        text = f"{number:,}: ranks {ranks} on {short([placement.devices[rank] for rank in group])}"
        lines += flowed(text, indent=2, width=width, hang=4)
    if len(numbers) > len(shown):
        lines.append(Text(f"  and {len(numbers) - len(shown):,} more (--verbose, or --group N)", style="dim"))
    return lines


def narrowed(placement: Placement, *, axis: str | None, group: int | None, of: str | None) -> Placement:
    """The placement with the groups to list: of an axis, a single one, or those of a rank or device.

    Raises UsageError: no such group, rank or device.
    """
    rank = None if of is None else _rank(placement, of)
    listed: dict[str, list[int]] = {}
    for one in placement.axes:
        if axis is not None and one.axis != axis:
            continue
        numbers = list(range(one.groups))
        if group is not None:
            if group >= one.groups:
                raise UsageError(f"{axis} has groups 0 to {one.groups - 1:,}, not {group:,}", field="--group")
            numbers = [group]
        if rank is not None:
            table = placement.groups[one.axis]
            numbers = [number for number in numbers if rank in table[number]]
        listed[one.axis] = numbers
    return placement.listing(listed)


def _rank(placement: Placement, of: str) -> int:
    if of in placement.devices:
        return placement.devices.index(of)
    if of.isdecimal() and int(of) < len(placement.devices):
        return int(of)
    raise UsageError(
        f"{of!r} is neither a rank from 0 to {len(placement.devices) - 1:,} nor a device in use, such as "
        f"{placement.devices[0]}",
        field="--of",
    )


def placement_records(placement: Placement) -> list[dict[str, Any]]:
    """One record per rank: its device, and its group and its place in it on every axis."""
    ranks = len(placement.devices)
    columns: dict[str, list[int]] = {}
    for axis, table in placement.groups.items():
        numbers, places = [0] * ranks, [0] * ranks
        for number, group in enumerate(table):
            for place, rank in enumerate(group):
                numbers[rank], places[rank] = number, place
        columns[f"{axis}_group"], columns[axis] = numbers, places
    return [
        {"rank": rank, "device": device, **{name: column[rank] for name, column in columns.items()}}
        for rank, device in enumerate(placement.devices)
    ]


def placement_markdown(placement: Placement) -> str:
    """The summary by axis as a Markdown table."""
    rows = [row for one in placement.axes for row in _rows(one, FEW)]
    head = f"**{len(placement.devices):,} ranks on {placement.topology}**, counted {placement.order.upper()}"
    body = [head, _shape(placement), *_seating(placement), markdown_table(_TITLES, rows)]
    return "\n\n".join([*body, *placement.notes]) + "\n"
