"""What the groups of an axis send: the pattern that the cost model charges, as messages between devices.

Contents: Traffic, traffic_of, flows_by_level, every_level.

Patterns, for a unit payload (FORMULAS 4.1, 4.4):

- gather: an all-gather or reduce-scatter of one full tensor as the cost model counts it, level by level from the
  outermost: members at the same place of sibling units form a ring in the order of the axis, used both ways. In a full
  mesh every member sends to each of the others; in a torus every axis has a ring, and parts of the tensor take the axes
  in turn. With flat rings instead: on switches, rings through the whole group in the order of the axis, as NCCL has
  them, one for each member of the innermost unit, which they enter and leave at different members.
- exchange: every member sends one byte in all, an equal part to every member, its own part included.
- hop: every member sends one byte to the next one, round the ring.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import CpKind, Dispatcher
from mapsearch.costs.estimate import Point
from mapsearch.costs.tori import axis_loads
from mapsearch.inventories.profile import Rings
from mapsearch.placing.placed import Placed
from mapsearch.topologies.fabric import Fabric, Level
from mapsearch.topologies.routing import Flows, Pairs, Uniform

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Pattern = Literal["gather", "exchange", "hop"]


@dataclass(frozen=True)
class Traffic:
    """All groups of an axis, and what they send."""

    axis: str
    pattern: Pattern
    row: tuple[int, ...]
    """Ways per level, innermost first."""
    groups: Ints
    """(groups, members) of ranks: places of members count through the levels, the innermost fastest."""
    rings: Rings = "levels"
    crossing: tuple[float, ...] = ()
    """De-duplicated exchange: bytes of a device that cross each level, as the cost model has them; else empty."""
    inner_row: tuple[int, ...] | None = None
    """Ways per level of the axes that stand inside the groups."""

    @property
    def members(self) -> int:
        """Members of a group."""
        return int(self.groups.shape[1])

    def staying(self, level: int) -> float:
        """De-duplicated exchange: bytes of a device that cross a level and none further out.

        Copies from outside are passed on inside the innermost units, which is in that level's bytes as it stands.
        """
        beyond = self.crossing[level + 1] if 0 < level < len(self.row) - 1 else 0.0
        return max(self.crossing[level] - beyond, 0.0)


def traffic_of(point: Point, placed: Placed, rings: Rings | None = None) -> list[Traffic]:
    """What every axis of a mapping sends that has more than one member; FORMULAS 4.2 says which pattern.

    `rings`: other than the profile's.
    """
    rings = rings or point.facts.profile.rings
    rows, mapping = point.rows, point.mapping
    found = [Traffic("tp", "gather", rows["tp"], placed.groups["tp"])]
    found += _context(CpKind(int(mapping.cp_kind)), rows["cp"], placed.groups["cp"], rows["tp"])
    if point.facts.model.moe is not None:
        both = _times(rows["etp"], rows["ep"])
        if int(mapping.dispatcher) == Dispatcher.ALL_GATHER:
            found.append(Traffic("ep", "gather", both, product_groups(placed, rows, "etp", "ep")))
        else:
            loads = _deduplicated(point)
            groups = placed.groups["ep"]
            found.append(Traffic("ep", "exchange", rows["ep"], groups, crossing=loads, inner_row=rows["etp"]))
            found.append(Traffic("etp", "gather", rows["etp"], placed.groups["etp"]))
        found.append(Traffic("edp", "gather", rows["edp"], placed.groups["edp"], inner_row=both))
    replicas = _times(rows["cp"], rows["dp"])
    together = product_groups(placed, rows, "cp", "dp")
    found.append(Traffic("dp", "gather", replicas, together, inner_row=rows["tp"]))
    others = tuple(used // ways for used, ways in zip(point.cell.used, rows["pp"], strict=True))
    found.append(Traffic("pp", "hop", rows["pp"], placed.groups["pp"], inner_row=others))
    return [replace(each, rings=rings) for each in found if each.members > 1]


def _times(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a * b for a, b in zip(one, other, strict=True))


def _context(kind: CpKind, row: tuple[int, ...], groups: Ints, inside: tuple[int, ...]) -> list[Traffic]:
    if kind != CpKind.HYBRID:
        patterns: dict[CpKind, Pattern] = {
            CpKind.RING: "hop",
            CpKind.ALL_GATHER: "gather",
            CpKind.ULYSSES: "exchange",
        }
        return [Traffic("cp", patterns[kind], row, groups, inner_row=inside)]
    used = [level for level, ways in enumerate(row) if ways > 1]
    inner = tuple(ways if used and level == used[0] else 1 for level, ways in enumerate(row))
    outer = tuple(1 if used and level == used[0] else ways for level, ways in enumerate(row))
    # The innermost level in use runs fastest in the order of the axis.
    first = math.prod(inner)
    across = groups.reshape(len(groups), -1, first).swapaxes(1, 2).reshape(-1, math.prod(outer))
    return [
        Traffic("cp", "exchange", inner, groups.reshape(-1, first), inner_row=inside),
        Traffic("cp", "hop", outer, across, inner_row=inside),
    ]


def _deduplicated(point: Point) -> tuple[float, ...]:
    """Bytes per device and level of a de-duplicated dispatch, by the cost model; empty for other dispatchers."""
    if int(point.mapping.dispatcher) != Dispatcher.DEDUPLICATED:
        return ()
    from mapsearch.costs.volumes import deduplicated_loads_bytes

    loads = deduplicated_loads_bytes(
        point.cell.tokens,
        point.expert.ep_row,
        model=point.facts.model,
        run=point.facts.run,
        element_bytes=1.0 / point.facts.model.hidden,
    )
    return tuple(float(np.asarray(load)) for load in loads)


def product_groups(placed: Placed, rows: dict[str, tuple[int, ...]], fast: str, slow: str) -> Ints:
    """Groups over two axes of one grid together, in the order of the levels; on a level the first axis is faster."""
    first, second = placed.groups[fast], placed.groups[slow]
    group_of = np.empty(first.size, dtype=np.int64)
    group_of[first.ravel()] = np.repeat(np.arange(len(first)), first.shape[1])
    place = np.empty(first.size, dtype=np.int64)
    place[first.ravel()] = np.tile(np.arange(first.shape[1]), len(first))
    outer = second[place[second[:, 0]] == 0]
    table = first[group_of[outer]]  # (groups, slow, fast)
    at = np.zeros((second.shape[1], first.shape[1]), dtype=np.int64)
    inside = 1
    i, j = np.arange(second.shape[1])[:, None], np.arange(first.shape[1])[None, :]
    for ways, more in zip(rows[fast], rows[slow], strict=True):
        at += inside * (j % ways + ways * (i % more))
        i, j, inside = i // more, j // ways, inside * ways * more
    result = np.empty((len(table), first.shape[1] * second.shape[1]), dtype=np.int64)
    result[:, at.ravel()] = table.reshape(len(table), -1)
    return result


def every_level(traffic: Traffic, fabric: Fabric, node: Ints, units: Ints) -> list[Pairs | Uniform]:
    """All messages of a unit payload, whatever level they cross."""
    return [flow for flows in flows_by_level(traffic, fabric, node, units) for flow in flows]


def flows_by_level(traffic: Traffic, fabric: Fabric, node: Ints, units: Ints) -> list[list[Pairs | Uniform]]:
    """Messages of a unit payload by the outermost level that they cross, innermost first.

    `node`: number of the node of each rank. `units`: as `Placed.units`.
    """
    if traffic.pattern == "gather":
        flat = _flat(traffic, node) if traffic.rings == "flat" else None
        return [
            flat[place] if flat and level.kind == "switch" else list(_gathered(traffic, place, fabric, node, units))
            for place, level in enumerate(fabric.levels)
        ]
    if traffic.pattern == "hop":
        return _hops(traffic, node)
    return _exchanged(traffic, node)


def _inside(row: Sequence[int], level: int) -> int:
    """Members in one unit of the level below."""
    return math.prod(row[:level])


def _gathered(traffic: Traffic, level: int, fabric: Fabric, node: Ints, units: Ints) -> Iterator[Pairs]:
    """Rings of members at the same place of sibling units: each device passes on (1 - 1/ways)/k of the tensor."""
    ways, inside = traffic.row[level], _inside(traffic.row, level)
    if ways == 1:
        return
    slices = traffic.groups.reshape(-1, ways, inside).swapaxes(1, 2).reshape(-1, ways)
    kind = fabric.levels[level].kind
    if kind == "full_mesh":
        sent = np.full(slices.size, 1.0 / (inside * ways))
        for step in range(1, ways):
            yield Pairs(node[slices.ravel()], node[np.roll(slices, -step, axis=1).ravel()], sent)
        return
    shape = fabric.levels[level]
    axes = _axes(slices, level, shape, units) if kind in ("ring", "torus") else [_Axis(ways, 1.0)]
    extents = [axis.extent for axis in axes]
    grids = slices.reshape(-1, *reversed(extents))  # the first axis is the last dimension
    for axis, load in enumerate(axis_loads(extents, [axis.rate for axis in axes])):
        if load == 0.0:
            continue
        sent = np.full(slices.size, 0.5 * load / inside)
        for step in (1, -1):
            onward = np.roll(grids, step, axis=grids.ndim - 1 - axis)
            yield Pairs(node[grids.ravel()], node[onward.ravel()], sent)


@dataclass(frozen=True)
class _Axis:
    """An axis of a torus as the slices of groups use it."""

    extent: int
    """Members along it."""
    rate: float
    """What it carries of their rings: less where hops pass over others' places, half where they have to turn back."""


def _axes(slices: Ints, level: int, shape: Level, units: Ints) -> list[_Axis]:
    """How far slices of groups reach along each axis of a torus, where they are boxes in it; else one ring."""
    ways = slices.shape[1]
    if (shape.dims and math.prod(shape.dims) != shape.size) or units.shape[1] <= level:
        return [_Axis(ways, 1.0)]
    at = units[slices, level]
    axes = []
    for length in shape.dims or (shape.size,):
        where, at = np.sort(at % length, axis=1), at // length
        steps = np.diff(where, axis=1)
        counts = 1 + (steps > 0).sum(axis=1)
        if (counts != counts[0]).any():
            return [_Axis(ways, 1.0)]
        extent, apart = int(counts[0]), int(steps[steps > 0].min(initial=length))
        axes.append(_Axis(extent, 1.0 / (apart if apart * extent == length else 2 * apart)))
    return axes if math.prod(axis.extent for axis in axes) == ways else [_Axis(ways, 1.0)]


def _exchanged(traffic: Traffic, node: Ints) -> list[list[Pairs | Uniform]]:
    """All pairs; those inside a unit of a level, less those inside one of the level below."""
    groups, members = traffic.groups, traffic.members
    found: list[list[Pairs | Uniform]] = []
    for level, ways in enumerate(traffic.row):
        inside = _inside(traffic.row, level)
        if ways == 1:
            found.append([])
            continue
        each = 1.0 / members
        if traffic.crossing:
            each = traffic.staying(level) / (inside * (ways - 1))
        flows: list[Pairs | Uniform] = []
        for sign, size in ((1.0, inside * ways), (-1.0, inside)):
            if size > 1:
                count = groups.size // size
                number = np.repeat(np.arange(count), size)
                flows.append(Uniform(node[groups.ravel()], number, np.full(count, sign * each)))
        found.append(flows)
    return found


def _hops(traffic: Traffic, node: Ints) -> list[list[Pairs | Uniform]]:
    """To the next member, round the ring."""
    place = np.arange(traffic.members)
    return _sorted(traffic, node, place, np.roll(place, -1), 1.0)


def _flat(traffic: Traffic, node: Ints) -> list[list[Pairs | Uniform]]:
    """Rings through all members, turned by one member of the innermost unit each.

    Every other unit is passed backwards, so that a ring leaves a unit and enters the next one at the same place (NCCL
    does so to stay on a rail). Each carries an equal part of the tensor.
    """
    inside = next(ways for ways in traffic.row if ways > 1)
    units = traffic.members // inside
    step, ring, unit = np.arange(inside), np.arange(inside)[:, None, None], np.arange(units)[:, None]
    places = np.where(unit % 2 == 0, ring + step, ring - 1 - step) % inside + inside * unit
    order = places.reshape(inside, -1)
    onward = np.roll(order, -1, axis=1)
    return _sorted(traffic, node, order.ravel(), onward.ravel(), (1.0 - 1.0 / traffic.members) / inside)


def _sorted(traffic: Traffic, node: Ints, here: Ints, there: Ints, sent: float) -> list[list[Pairs | Uniform]]:
    """Messages between places of every group, by the outermost level on which the two places differ."""
    groups, crossed = traffic.groups, np.zeros(len(here), dtype=np.int64)
    a, b = here, there
    for level, ways in enumerate(traffic.row):
        crossed[a % ways != b % ways] = level
        a, b = a // ways, b // ways
    found: list[list[Pairs | Uniform]] = []
    for level in range(len(traffic.row)):
        chosen = crossed == level
        source, target = groups[:, here[chosen]].ravel(), groups[:, there[chosen]].ravel()
        found.append([Pairs(node[source], node[target], np.full(len(source), sent))] if len(source) else [])
    return found


def flows_of_groups(traffic: Traffic, chosen: Sequence[int]) -> Traffic:
    """The traffic of some of the groups only."""
    return replace(traffic, groups=traffic.groups[list(chosen)])


__all__ = ["Flows", "Traffic", "every_level", "flows_by_level", "flows_of_groups", "product_groups", "traffic_of"]
