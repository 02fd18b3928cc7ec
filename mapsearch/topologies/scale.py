"""The same kind of cluster with another number of devices.

Contents: scaled.
"""

from __future__ import annotations

import math
from typing import Any

from mapsearch.errors import InputError
from mapsearch.topologies.fabric import resized
from mapsearch.topologies.levels import level_of, with_ports
from mapsearch.topologies.spec import LevelSpec, Topology
from mapsearch.topologies.types import readings_of
from mapsearch.units import RATE, render


def scaled(topology: Topology, devices: int) -> Topology:
    """The topology with exactly this many devices: its outermost tiers shrink, or the outermost one grows.

    Tiers of which only one unit is left are dropped. Raises InputError naming the nearest counts that exist.
    """
    if devices < 1:
        raise InputError(f"{devices} devices are not a cluster; give at least 1", file=topology.name, field="devices")
    if topology.nodes and not topology.other_devices:
        topology = levels_form(topology)
    if devices == topology.device_count and not topology.down:
        return topology
    if topology.other_devices:
        raise InputError(
            "has several types of device, so another number of devices is not defined; keep one under `device` and "
            "take `other_devices` out first",
            file=topology.name,
            field="devices",
        )
    if topology.down:
        raise InputError(
            "has units that are down, so another number of devices is not defined; take `down` out first",
            file=topology.name,
            field="down",
        )
    levels = _levels(topology.levels, devices)
    if levels is None:
        near = " or ".join(f"{count:,}" for count in _nearest(topology.levels, devices))
        raise InputError(
            f"cannot have {devices:,} devices in equal units; the nearest counts are {near}",
            file=topology.name,
            field="devices",
        )
    return topology.model_copy(update={"levels": levels})


def levels_form(topology: Topology) -> Topology:
    """An explicit topology written as the levels that were derived from it (its largest regular core).

    Several types of device are then the slower of them in every number.
    """
    from mapsearch.topologies.load import fabric_of

    if topology.levels:
        return topology
    if topology.other_devices:
        topology = readings_of(topology)[0][1]
    fabric = fabric_of(topology).regular
    levels = [
        LevelSpec(
            name=level.name,
            kind=level.kind,
            size=level.size,
            bandwidth=render(level.bytes_per_s, RATE),
            latency=f"{level.latency_s!r} s",
            high_bandwidth=level.high_bandwidth,
            dims=list(level.dims),
            in_network_reduction=level.in_network_reduction,
        )
        for level in fabric.levels
    ]
    empty: dict[str, Any] = {"nodes": [], "links": [], "down": [], "level_names": [], "high_bandwidth": None}
    written = with_ports(levels, [level.own_ports for level in fabric.levels])
    return topology.model_copy(update={**empty, "levels": written})


def _levels(levels: list[LevelSpec], devices: int) -> list[LevelSpec] | None:
    """The levels for this many devices, or None when no outermost fan-out gives it."""
    for count in range(len(levels), 0, -1):
        inner = math.prod(level.size for level in levels[: count - 1])
        if devices >= inner and (devices > inner or count == 1):
            fan_out, rest = divmod(devices, inner)
            outer = levels[count - 1]
            if rest or (fan_out > outer.size and not _grows(levels, count)):
                return None
            return [*levels[: count - 1], *_with_size(outer, fan_out)]
        if devices == inner:
            return levels[: count - 1]
    return None


def _grows(levels: list[LevelSpec], count: int) -> bool:
    """Only the outermost tier grows, and a high-bandwidth switch or mesh is as large as it was built."""
    outer = levels[-1]
    return count == len(levels) and (not outer.high_bandwidth or outer.kind in ("ring", "torus"))


def _with_size(level: LevelSpec, size: int) -> list[LevelSpec]:
    if size == level.size:
        return [level]
    if level.kind != "torus":
        bandwidth = (
            2.0 * resized(level_of(level), size).bytes_per_s
            if level.direction == "both"
            else (resized(level_of(level), size).bytes_per_s)
        )
        return [level.model_copy(update={"size": size, "bandwidth": bandwidth})]
    dims = _cube(size, len(level.dims))
    axes = sum(extent > 1 for extent in level.dims)
    share = sum(extent > 1 for extent in dims) / axes if axes and size > 1 else 1.0
    return [level.model_copy(update={"size": size, "dims": dims, "bandwidth": level.bandwidth * share})]


def _cube(size: int, axes: int) -> list[int]:
    """The most cube-like cut of `size` into `axes` factors, smallest first."""
    if axes == 1:
        return [size]
    root = round(size ** (1.0 / axes))
    first = next(extent for extent in range(max(root, 1), 0, -1) if size % extent == 0)
    return sorted([first, *_cube(size // first, axes - 1)])


def _nearest(levels: list[LevelSpec], devices: int) -> list[int]:
    """The largest possible count below and the smallest above."""
    counts = set()
    for count in range(1, len(levels) + 1):
        inner = math.prod(level.size for level in levels[: count - 1])
        for fan_out in (devices // inner, devices // inner + 1, 1, levels[count - 1].size):
            wanted = inner * fan_out
            if wanted >= 1 and _levels(levels, wanted) is not None:
                counts.add(wanted)
    below = [count for count in counts if count < devices]
    above = [count for count in counts if count > devices]
    return [*([max(below)] if below else []), *([min(above)] if above else [])]
