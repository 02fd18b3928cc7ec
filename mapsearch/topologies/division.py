"""The outer units of a cluster with holes or several types of device, and ways to divide them in two.

Contents: OuterUnit, outer_units, divisions, side_of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mapsearch.topologies.core import Tree
from mapsearch.topologies.spec import Topology, unit_index, unit_words
from mapsearch.topologies.types import of_one_type


class OuterUnit(NamedTuple):
    """One unit of the tier inside the cluster."""

    name: str
    down: tuple[str, ...]
    """What stands in `down` of a topology without it."""
    working: int
    """Devices that are not down."""
    types: tuple[str, ...]
    """Types of its devices, by name."""


def outer_units(topology: Topology) -> list[OuterUnit]:
    """All outer units in which some device works, in the order of the topology. Raises InputError as `fabric_of`."""
    return _of_levels(topology) if topology.levels else _of_graph(topology)


def _of_levels(topology: Topology) -> list[OuterUnit]:
    levels = topology.levels
    word = unit_words([level.name for level in levels])[0]
    tree = Tree(
        tuple(level.size for level in levels), broken=frozenset(unit_index(str(item), levels) for item in topology.down)
    )
    typed = {unit_index(place, levels): name for place, name in topology.types.items()}
    found = []
    for at in range(levels[-1].size):
        inside = {name for path, name in typed.items() if path[0] == at}
        types = inside if (at,) in typed else inside | {topology.device.name}
        name = f"{word}{at}"
        if working := tree.working((at,)):
            found.append(OuterUnit(name, (name,), working, tuple(sorted(types))))
    return found


def _of_graph(topology: Topology) -> list[OuterUnit]:
    from mapsearch.topologies.hierarchy import unit_nodes

    tiers = unit_nodes(topology)
    own = {node.id: node.device or topology.device.name for node in topology.nodes if node.type == "device"}
    down = {item for item in topology.down if isinstance(item, str)}
    home = tiers[-1] if tiers else {name: name for name in own}
    units: dict[str, list[str]] = {}
    for device in own:
        if device in home and device not in down:
            units.setdefault(home[device], []).append(device)
    return [
        OuterUnit(_shown(devices), tuple(devices), len(devices), tuple(sorted({own[device] for device in devices})))
        for devices in units.values()
    ]


def _shown(devices: Sequence[str]) -> str:
    return devices[0] if len(devices) == 1 else f"{devices[0]} .. {devices[-1]}"


def divisions(topology: Topology, units: Sequence[OuterUnit]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Numbers of the units on either side, at least one each; each division once.

    Of every number of units both ends are given: the fastest and most whole ones to the first side, and to the second.
    Between units of one type and size, the first come first. So one side at most has several types, and holes lie on
    one side as far as they can.
    """
    rate = {one.name: max(one.peak.values()) for one in (topology.device, *topology.other_devices)}

    def worth(at: int) -> tuple[float, int, int]:
        return -min(rate[name] for name in units[at].types), -units[at].working, at

    best_first = sorted(range(len(units)), key=worth)
    seen = set()
    for order in (best_first, [*reversed(best_first)]):
        for count in range(1, len(units)):
            pair = tuple(sorted(order[:count])), tuple(sorted(order[count:]))
            kinds = tuple(sorted((units[at].types, units[at].working) for at in pair[0]))
            if kinds not in seen or not _alike(topology):
                seen.add(kinds)
                yield pair


def _alike(topology: Topology) -> bool:
    """Whether units of one type with equally many devices are the same: not where holes may lie at other places."""
    return not topology.down and bool(topology.levels)


def side_of(topology: Topology, kept: Sequence[OuterUnit], others: Sequence[OuterUnit]) -> Topology:
    """The topology with some outer units alone: the others are down, and types of device that are theirs are gone."""
    names = [name for unit in others for name in unit.down]
    types = {name for unit in kept for name in unit.types}
    if len(types) > 1 or not topology.other_devices:
        new = [name for name in names if name not in topology.down]
        return topology.model_copy(update={"down": [*topology.down, *new]})
    return of_one_type(
        topology, next(one for one in (topology.device, *topology.other_devices) if one.name in types), names
    )
