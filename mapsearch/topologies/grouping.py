"""Units of a graph, from the inside out: which devices belong together, tier by tier.

Contents: Unit, Grouping, grouped.

Each round joins units along their strongest bundle of links, per device: links straight to other units, or through
switches that serve the same units. Switches that then lie inside a unit become part of it; when no two units share
a link or switch, every unit takes in its own switches first (a leaf joins its devices, then carries the uplinks).
So fat trees, rails over islands, meshes, rings and tori all come out, whatever cycles their links form.
Where devices say their `unit`, those units are the tiers, and links only tell how they are joined.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import networkx as nx

from mapsearch.errors import InputError
from mapsearch.topologies.graph import link_rates, nodes_of_type
from mapsearch.topologies.shapes import shape_of

SAME_CLASS = 0.6
"""Bundles at least this share of a unit's strongest one are of the same class as it."""


@dataclass
class Unit:
    """Devices that belong together at one tier, with the switches inside."""

    tier: int
    devices: int
    nodes: list[str]
    """All nodes inside: devices, switches, NICs."""
    children: list[int] = field(default_factory=list)
    transit: list[str] = field(default_factory=list)
    """Switches and NICs of its own, not inside a child."""
    formed_with: int = 0
    """How many of `transit` joined its children; the rest were taken in later and only lead outwards."""


@dataclass
class Grouping:
    """All units, and which of them each node belongs to at present."""

    graph: nx.Graph[str]
    links: list[tuple[str, str, float]]
    """Both ends and bytes/s of every link, read off the graph once."""
    units: list[Unit] = field(default_factory=list)
    unit_of: dict[str, int] = field(default_factory=dict)
    tiers: list[list[int]] = field(default_factory=list)
    """Units of each tier; the devices are tier 0."""

    @property
    def current(self) -> list[int]:
        """The units of the outermost tier so far."""
        return self.tiers[-1]


@dataclass
class _Links:
    """What leaves the current units."""

    direct: dict[tuple[int, int], float]
    """Bytes/s between two units, one way."""
    shared: dict[frozenset[int], dict[int, float]]
    """Units that share switches: bytes/s of each unit into those switches."""
    switches: dict[frozenset[int], list[str]]


def grouped(graph: nx.Graph[str]) -> Grouping:
    """Units of a connected graph up to the whole cluster. Raises InputError when given units do not hang together."""
    grouping = Grouping(graph, list(link_rates(graph)))
    for node in nodes_of_type(graph, "device"):
        grouping.unit_of[node] = len(grouping.units)
        grouping.units.append(Unit(0, 1, [node]))
    grouping.tiers.append(list(range(len(grouping.units))))
    for wanted in _given_tiers(graph):
        _join_given(grouping, wanted)
    while len(grouping.current) > 1:
        links = _links(grouping)
        pairs = _strongest(grouping, links)
        if pairs:
            groups = _components(grouping.current, pairs)
            within = _within(groups, pairs)
            parts = [_cliques(group, inside, links.direct) for group, inside in zip(groups, within, strict=True)]
            _form(grouping, [part for found in parts for part in found])
        elif not _take_in(grouping):
            raise InputError("falls into parts that no link joins")
    return grouping


def _links(grouping: Grouping) -> _Links:
    unit_of = grouping.unit_of
    direct: dict[tuple[int, int], float] = defaultdict(float)
    into: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for a, b, rate in grouping.links:
        first, second = unit_of.get(a), unit_of.get(b)
        if first is not None and second is not None:
            if first != second:
                direct[min(first, second), max(first, second)] += rate
        elif first is not None:
            into[b][first] += rate
        elif second is not None:
            into[a][second] += rate
    shared: dict[frozenset[int], dict[int, float]] = {}
    switches: dict[frozenset[int], list[str]] = defaultdict(list)
    for switch, rates in into.items():
        if len(rates) > 1:
            served = frozenset(rates)
            sums = shared.setdefault(served, dict.fromkeys(served, 0.0))
            for unit, rate in rates.items():
                sums[unit] += rate
            switches[served].append(switch)
    return _Links(dict(direct), shared, dict(switches))


def _strongest(grouping: Grouping, links: _Links) -> list[Iterable[int]]:
    """Sets of units to join: those whose common bundle is the strongest, or nearly so, for most of them."""
    size = {unit: grouping.units[unit].devices for unit in grouping.current}
    classes = _classes({pair: rate / max(size[pair[0]], size[pair[1]]) for pair, rate in links.direct.items()})
    straight: dict[tuple[int, int], float] = defaultdict(float)
    for pair, number in classes.items():
        for unit in pair:
            straight[unit, number] += links.direct[pair] / size[unit]
    best: dict[int, float] = defaultdict(float)
    for (unit, _), rate in straight.items():
        best[unit] = max(best[unit], rate)
    for served, rates in links.shared.items():
        for unit in served:
            best[unit] = max(best[unit], rates[unit] / size[unit])
    joined: list[Iterable[int]] = [
        pair
        for pair, number in classes.items()
        if all(straight[unit, number] >= SAME_CLASS * best[unit] for unit in pair)
    ]
    for served, rates in links.shared.items():
        content = sum(rates[unit] / size[unit] >= SAME_CLASS * best[unit] for unit in served)
        if 2 * content >= len(served):
            joined.append(served)
    if joined or not best:
        return joined
    top = max(best.values())  # every bundle is second best for someone: take the strongest of all
    return [served for served, rates in links.shared.items() if any(rates[u] / size[u] >= top for u in served)] or [
        pair for pair, number in classes.items() if any(straight[unit, number] >= top for unit in pair)
    ]


def _classes(rates: dict[tuple[int, int], float]) -> dict[tuple[int, int], int]:
    """Number the links by speed: a class reaches down to a share of its fastest link."""
    number, fastest = -1, 0.0
    result: dict[tuple[int, int], int] = {}
    for pair, rate in sorted(rates.items(), key=lambda item: (-item[1], item[0])):
        if number < 0 or rate < SAME_CLASS * fastest:
            number, fastest = number + 1, rate
        result[pair] = number
    return result


def _components(units: list[int], joined: Iterable[Iterable[int]]) -> list[list[int]]:
    """Units joined directly or by way of others, in the order of their first one."""
    parent = {unit: unit for unit in units}

    def root(unit: int) -> int:
        while parent[unit] != unit:
            parent[unit] = parent[parent[unit]]
            unit = parent[unit]
        return unit

    for members in joined:
        first, *others = sorted(members)
        for other in others:
            parent[max(root(first), root(other))] = min(root(first), root(other))
    groups: dict[int, list[int]] = defaultdict(list)
    for unit in units:
        groups[root(unit)].append(unit)
    return list(groups.values())


def _within(groups: list[list[int]], joined: Iterable[Iterable[int]]) -> list[list[Iterable[int]]]:
    """The joined sets of each group: all units of one stand in the same group."""
    home = {unit: number for number, group in enumerate(groups) for unit in group}
    found: list[list[Iterable[int]]] = [[] for _ in groups]
    for members in joined:
        found[home[next(iter(members))]].append(members)
    return found


def _cliques(group: list[int], joined: list[Iterable[int]], direct: dict[tuple[int, int], float]) -> list[list[int]]:
    """The parts of a group that are linked all to all among themselves, where its links do not tell by their speed.

    A dragonfly whose local and far links are alike: ends of a local link have neighbours in common, those of a far
    one have none. The group itself when it has a regular shape, when switches join it, or when there are no such parts.
    `joined`: the sets of joined units that stand in this group.
    """
    linked: dict[int, dict[int, float]] = {unit: {} for unit in group}
    for pair in joined:
        first, *others = pair
        if len(others) != 1 or (min(first, others[0]), max(first, others[0])) not in direct:
            return [group]
        linked[first][others[0]] = linked[others[0]][first] = direct[min(first, others[0]), max(first, others[0])]
    common = {
        (unit, other): len(linked[unit].keys() & linked[other].keys())
        for unit in group
        for other in linked[unit]
        if unit < other
    }
    most = max(common.values(), default=0)
    inside = [pair for pair, count in common.items() if 2 * count > most]
    if not most or len(inside) == len(common) or shape_of(linked):
        return [group]
    parts = _components(group, inside)
    where = {unit: number for number, part in enumerate(parts) for unit in part}
    pairs = Counter(where[first] for first, _ in inside)
    dense = all(
        len(part) > 1 and 2 * pairs[number] >= SAME_CLASS * len(part) * (len(part) - 1)
        for number, part in enumerate(parts)
    )
    return parts if dense else [group]


def _form(grouping: Grouping, groups: list[list[int]]) -> None:
    """Make each group one unit of a new tier, with the switches that lie wholly inside it."""
    tier = len(grouping.tiers)
    parent: dict[int, int] = {}
    new: list[int] = []
    for children in groups:
        number = len(grouping.units)
        members = [grouping.units[child] for child in children]
        nodes = [node for member in members for node in member.nodes]
        grouping.units.append(Unit(tier, sum(member.devices for member in members), nodes, list(children)))
        parent |= dict.fromkeys(children, number)
        new.append(number)
    links = _links(grouping)
    grouping.unit_of = {node: parent[unit] for node, unit in grouping.unit_of.items()}
    for served, switches in links.switches.items():
        homes = {parent[unit] for unit in served}
        if len(homes) == 1:
            home = homes.pop()
            for switch in switches:
                _give(grouping, switch, home)
    _take_enclosed(grouping)
    for number in new:
        grouping.units[number].formed_with = len(grouping.units[number].transit)
    grouping.tiers.append(new)


def _give(grouping: Grouping, node: str, number: int) -> None:
    grouping.unit_of[node] = number
    unit = grouping.units[number]
    unit.nodes.append(node)
    unit.transit.append(node)


def _take_enclosed(grouping: Grouping) -> None:
    """Give each unit the switches and NICs from which no path leaves it."""
    graph, unit_of = grouping.graph, grouping.unit_of
    waiting = [node for node in graph if node not in unit_of]
    outside = graph.subgraph(waiting)
    for part in list(nx.connected_components(outside)):
        around = {unit_of[other] for node in part for other in graph[node] if other in unit_of}
        if len(around) == 1:
            for node in sorted(part):
                _give(grouping, node, next(iter(around)))


def _take_in(grouping: Grouping) -> bool:
    """Give each unit the switches and NICs that touch no other unit. False when there are none."""
    touching: dict[str, set[int]] = {}
    for node in grouping.graph:
        if node not in grouping.unit_of:
            around = {grouping.unit_of[other] for other in grouping.graph[node] if other in grouping.unit_of}
            if len(around) == 1:
                touching[node] = around
    for node, around in touching.items():
        _give(grouping, node, around.pop())
    return bool(touching)


def _given_tiers(graph: nx.Graph[str]) -> list[dict[str, str]]:
    """Unit of every device at each tier that the document names, innermost first; empty when it names none."""
    given: dict[str, str] = {node: graph.nodes[node]["unit"] for node in nodes_of_type(graph, "device")}
    if not any(given.values()):
        return []
    depths = Counter(len(path.split("/")) if path else 0 for path in given.values())
    if len(depths) > 1:
        node = next(node for node in given if (len(given[node].split("/")) if given[node] else 0) != max(depths))
        raise InputError(
            f"device {node!r} has the unit {given[node]!r}, others have {max(depths)} parts; name all units to the "
            "same depth, or none",
            field="nodes",
        )
    depth = next(iter(depths))
    return [
        {node: "/".join(path.split("/")[:length]) for node, path in given.items()} for length in range(depth, 0, -1)
    ]


def _join_given(grouping: Grouping, wanted: dict[str, str]) -> None:
    """Form the units that the document names, after they have taken in the switches that join them."""
    name_of = {unit: wanted[_first_device(grouping, unit)] for unit in grouping.current}
    groups: dict[str, list[int]] = defaultdict(list)
    for unit in grouping.current:
        groups[name_of[unit]].append(unit)
    while True:
        links = _links(grouping)
        together: list[Iterable[int]] = [*links.direct, *links.shared]
        inside = [members for members in together if len({name_of[unit] for unit in members}) == 1]
        parts = _components(grouping.current, inside)
        if len(parts) == len(groups):
            break
        if not _take_in(grouping):
            broken = Counter(name_of[part[0]] for part in parts).most_common(1)[0][0]
            raise InputError(
                f"unit {broken!r} hangs together only through links that leave it; name larger units", field="nodes"
            )
    _form(grouping, list(groups.values()))


def _first_device(grouping: Grouping, unit: int) -> str:
    return grouping.units[unit].nodes[0]
