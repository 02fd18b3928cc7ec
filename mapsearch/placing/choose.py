"""Where a mapping's ranks go on a cluster as it is: its own placement, every other one, and what the graph allows.

Contents: Chosen, choose, fixed_order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import SIZES
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.improve import seated
from mapsearch.placing.loads import Cost, Demand, Routes, cost_of, demand_of, link_seconds, routes_of
from mapsearch.placing.placed import AXES, Placed, placed_of, rank_groups, same_groups
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.graph import graph_of, nodes_of_type
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.spec import Topology

Ints = NDArray[np.int64]

MOST_PLACEMENTS = 300
"""Other placements of the same sizes that are tried as starts."""
IMPROVED = 3
"""Starts from which exchanges are tried."""


@dataclass(frozen=True)
class Chosen:
    """Ranks on devices, and how that compares."""

    placed: Placed
    cost: Cost
    given: Cost | None
    """Cost of the mapping's own placement; None when it does not fit the cluster as it is."""
    fixed: Cost
    """Cost of the fixed order: ranks tp-cp-ep-dp-pp on the devices as the cluster lists them."""
    proven: str
    """`all`: no other bijection is better; `units`: none that exchanges whole units; empty: not proven."""
    start: str
    """What the seats were found from: `given`, `placement`, `packed` or `fixed`."""
    busiest: tuple[str, str]
    """The busiest link, from and to."""


def choose(mapping: Mapping, topology: Topology, sent_bytes: Dictionary[str, float]) -> Chosen:
    """The ranks of a mapping on the devices of a graph so that the busiest link is the least busy, then fewest hops.

    `sent_bytes`: bytes that a rank sends per step, by axis. Groups are those of the rank order tp-cp-ep-dp-pp; the
    mapping's own placement is tried too where its groups are others. Raises InputError: more ranks than devices that
    work, more devices than can be routed pair by pair, parts without a path.
    """
    graph = graph_of(topology)
    devices = nodes_of_type(graph, "device")
    if mapping.devices > len(devices):
        raise InputError(
            f"has {len(devices):,} devices that work, fewer than the mapping's {mapping.devices:,} ranks",
            file=topology.name,
        )
    routes = routes_of(graph, devices)
    place = {device: number for number, device in enumerate(devices)}
    fixed = fixed_order(mapping, devices)
    starts = [("fixed", fixed), *(("packed", one) for one in _packed(fixed, _units(topology)))]
    own = _given(mapping, topology)
    if own is not None:
        starts = [("given", own), *starts]
        starts += [
            ("placement", one) for one in _placements(mapping, topology) if same_groups(one.groups, fixed.groups)
        ]
    plain = demand_of(fixed.groups, sent_bytes)
    other = plain if own is None or same_groups(own.groups, fixed.groups) else demand_of(own.groups, sent_bytes)
    units = [[place[device] for device in unit] for unit in _units(topology)]
    tried = [
        (cost_of(routes, other if label == "given" else plain, _seats(one, place)), label, one) for label, one in starts
    ]
    best: Chosen | None = None
    for label, one, demand in _to_improve(tried, plain, other):
        found = seated(routes, demand, [_seats(one, place)], units)
        if best is None or found.cost.better(best.cost):
            best = Chosen(
                placed=_moved(one, [devices[seat] for seat in found.seats.tolist()], topology),
                cost=found.cost,
                given=next((cost for cost, name, _ in tried if name == "given"), None),
                fixed=next(cost for cost, name, _ in tried if name == "fixed"),
                proven=found.proven,
                start=label,
                busiest=_busiest(routes, demand, found.seats),
            )
    assert best is not None
    return best


def fixed_order(mapping: Mapping, devices: Sequence[str]) -> Placed:
    """Ranks tp-cp-ep-dp-pp on the first devices as they are listed."""
    sizes = {axis: int(getattr(mapping, axis)) for axis in AXES}
    return Placed(tuple(devices[: mapping.devices]), rank_groups(sizes))


def _to_improve(
    tried: Sequence[tuple[Cost, str, Placed]], plain: Demand, other: Demand
) -> Iterator[tuple[str, Placed, Demand]]:
    """The best starts of each kind of groups: `plain` is a question of its own, `other` only where groups differ."""
    ranked = sorted(tried, key=lambda one: one[0])
    seen: set[tuple[str, ...]] = set()
    for _, label, one in ranked:
        if label == "given" and other is not plain:
            yield label, one, other
        elif one.devices not in seen and len(seen) < IMPROVED:
            seen.add(one.devices)
            yield label, one, plain


def _given(mapping: Mapping, topology: Topology) -> Placed | None:
    """The mapping's own placement on the regular part; None where it does not fit."""
    try:
        return placed_of(mapping, topology)
    except InputError:
        return None


def _placements(mapping: Mapping, topology: Topology) -> Iterator[Placed]:
    """The mapping's sizes in every placement that fills all devices of the regular part, up to a number."""
    fabric = fabric_of(topology)
    if fabric.devices != mapping.devices:
        return
    sizes = tuple(int(getattr(mapping, axis)) for axis in SIZES)
    for rows in itertools.islice(_rows(sizes, fabric), MOST_PLACEMENTS):
        placement = {
            axis: {level: cuts[place] for level, cuts in zip(fabric.level_names, rows, strict=True)}
            for place, axis in enumerate(SIZES)
        }
        yield placed_of(mapping.model_copy(update={"placement": placement}), topology, fabric)


def _rows(sizes: tuple[int, ...], fabric: Fabric, level: int = 0) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Cuts of all axes level by level, innermost first, so that both grids fill every level."""
    if level == len(fabric.levels):
        if max(sizes) == 1:
            yield ()
        return
    fan_out = fabric.fan_outs[level]
    dense, pp, expert = sizes[:3], sizes[3], sizes[4:]
    for cut in _divisors(math.gcd(pp, fan_out)):
        for first in _filling(dense, fan_out // cut):
            for second in _filling(expert, fan_out // cut):
                here = (*first, cut, *second)
                left = tuple(size // ways for size, ways in zip(sizes, here, strict=True))
                for rest in _rows(left, fabric, level + 1):
                    yield (here, *rest)


def _filling(sizes: tuple[int, ...], product: int) -> Iterator[tuple[int, ...]]:
    """Divisors of the sizes with this product, the first as large as it can be first."""
    if not sizes:
        if product == 1:
            yield ()
        return
    for ways in reversed(_divisors(math.gcd(sizes[0], product))):
        for rest in _filling(sizes[1:], product // ways):
            yield (ways, *rest)


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _packed(fixed: Placed, units: Sequence[Sequence[str]]) -> Iterator[Placed]:
    """Ranks in blocks that do not straddle units: for each block size that fits, units filled one after the other."""
    ranks = len(fixed.devices)
    for block in reversed(_divisors(ranks)[1:]):
        if sum(len(unit) // block for unit in units) * block >= ranks:
            whole = [device for unit in units for device in unit[: len(unit) // block * block]]
            yield replace(fixed, devices=tuple(whole[:ranks]))


def _units(topology: Topology) -> list[list[str]]:
    """All devices that work, those of each innermost unit together."""
    if not topology.levels:
        from mapsearch.topologies.hierarchy import innermost_units

        return innermost_units(topology)
    units: dict[str, list[str]] = {}
    for device in nodes_of_type(graph_of(topology), "device"):
        units.setdefault(device.rpartition("/")[0], []).append(device)
    return list(units.values())


def _seats(placed: Placed, place: Dictionary[str, int]) -> Ints:
    return np.array([place[device] for device in placed.devices], dtype=np.int64)


def _moved(placed: Placed, devices: Sequence[str], topology: Topology) -> Placed:
    """The same groups on other devices; units are known where all devices are of the regular part."""
    from mapsearch.topologies.members import members

    try:
        fabric = fabric_of(topology)
        names = members(topology, fabric)
    except InputError:
        return replace(placed, devices=tuple(devices), units=np.empty((0, 0), dtype=np.int64), level_names=())
    at = {str(name): index[::-1] for index, name in np.ndenumerate(names)}
    if any(device not in at for device in devices):
        return replace(placed, devices=tuple(devices), units=np.empty((0, 0), dtype=np.int64), level_names=())
    units = np.array([at[device] for device in devices], dtype=np.int64).reshape(len(devices), -1)
    return replace(placed, devices=tuple(devices), units=units, level_names=fabric.level_names)


def _busiest(routes: Routes, demand: Demand, seats: Ints) -> tuple[str, str]:
    return routes.links[int(np.argmax(link_seconds(routes, demand, seats)))]
