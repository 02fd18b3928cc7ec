"""Levels derived from a graph: fan-out, bandwidth per device by cut, latency, kind.

Contents: Derived, derived, derived_levels, fabric_of_graph, regular_members, unit_nodes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx

from mapsearch.errors import InputError
from mapsearch.topologies.confidence import NEAR, remarks
from mapsearch.topologies.core import LEAST, Core, Path, Site, Tree, regular_cores
from mapsearch.topologies.fabric import Fabric, Level, resized
from mapsearch.topologies.graph import graph_of, nodes_of_type
from mapsearch.topologies.grouping import Grouping, grouped
from mapsearch.topologies.known import level_suspicions
from mapsearch.topologies.levels import other_cores, shape_words
from mapsearch.topologies.spec import Topology
from mapsearch.topologies.torus import along_axes
from mapsearch.topologies.wiring import Wiring, fastest_then_all, latency_across, wire_tier

DOMAIN_SHARE = 0.5
"""Tiers at least this fast, against the innermost, count to the high-bandwidth domain unless the document says."""
NAMED = 4
"""Devices that a note names one by one."""
SLOWEST = "every unit at the bandwidth of the slowest"
MOST_READINGS = 2
"""Classes of slow units at one tier that are tried without; each is a search of its own."""


def fabric_of_graph(topology: Topology) -> Fabric:
    """The fabric of a topology whose levels are derived from its graph (either form). Raises InputError."""
    graph = graph_of(topology)
    down = [item for item in topology.down if isinstance(item, str)]
    try:
        found = derived(graph, topology.level_names, down)
    except InputError as problem:
        raise problem.within(topology.name) from None
    fabric, *others = (_fabric(topology, one) for one in (found, *found.alternatives))
    return replace(fabric, alternatives=tuple(others))


def _fabric(topology: Topology, found: Derived) -> Fabric:
    levels = _with_domain(found.levels, topology.high_bandwidth)
    notes = [*topology.warnings(), *level_suspicions(topology.device.name, levels), *found.notes]
    return Fabric(
        name=topology.name,
        device=topology.device.device(),
        levels=tuple(levels),
        variable_all_to_all=topology.all_to_all == "variable",
        sources={**topology.sources, "levels": "derived from the graph"},
        notes=tuple(notes),
        cores=found.cores,
        site=found.site,
        reading=found.reading,
    )


def _with_domain(levels: list[Level], least: float | None) -> list[Level]:
    limit = DOMAIN_SHARE * levels[0].bytes_per_s if least is None else least
    result, inside = [], True
    for level in levels:
        inside = inside and level.bytes_per_s >= limit
        result.append(replace(level, high_bandwidth=inside))
    return result


@dataclass(frozen=True)
class Derived:
    """What a graph was read as."""

    levels: list[Level]
    """Innermost first, with the most units that some regular part has of each."""
    notes: list[str]
    cores: tuple[tuple[int, ...], ...] = ()
    """The regular parts, when units differ in size or something is missing."""
    site: Site | None = None
    reading: str = ""
    """What is used of it, where there are alternatives."""
    alternatives: tuple[Derived, ...] = ()
    """The same graph without its slow units, whose bandwidth otherwise counts for all."""

    @property
    def devices(self) -> int:
        """Devices of the largest regular part."""
        return math.prod(self.cores[0] if self.cores else (level.size for level in self.levels))


def derived_levels(
    graph: nx.Graph[str], names: list[str] | None = None, down: Sequence[str] = ()
) -> tuple[list[Level], list[str]]:
    """Levels of the largest regular part of a graph, innermost first, and notes. Raises InputError as `derived`."""
    found = derived(graph, names, down)
    if not found.cores:
        return found.levels, found.notes
    sizes = zip(found.levels, found.cores[0], strict=True)
    return [resized(level, size) for level, size in sizes if size > 1], found.notes


def derived(graph: nx.Graph[str], names: list[str] | None = None, down: Sequence[str] = ()) -> Derived:
    """Levels of a graph, its regular parts, and notes on what is left out or approximated.

    `down`: what was taken out of the graph before, to be named with the rest.

    Raises InputError when the graph has fewer than two devices or nothing regular in it.
    """
    graph, cut_off = _largest_part(_without_hosts(graph))
    if len(nodes_of_type(graph, "device")) < 2:
        raise InputError("has a single device that can be reached, so there are no levels to derive", field="nodes")
    grouping = grouped(graph)
    tiers = _wired(grouping)
    tree, paths = _tree(grouping, tiers)
    graph_read = _Read(grouping, tiers, tree, paths, _names(grouping, names), (*down, *cut_off))
    whole = graph_read.of(tree)
    if whole is None:
        raise InputError(
            "has no regular core: its rings or tori differ in size; take the odd ones out with down", field="nodes"
        )
    others = [
        replace(found, reading=name)
        for name, slow in graph_read.slow_units()
        for found in [graph_read.of(replace(tree, broken=slow), LEAST * whole.devices)]
        if found is not None
    ]
    return replace(
        whole, reading="every unit at the bandwidth of the slowest" if others else "", alternatives=(*others,)
    )


@dataclass(frozen=True)
class _Read:
    """A grouped graph, from which its levels are read with or without some units."""

    grouping: Grouping
    tiers: list[dict[int, Wiring]]
    tree: Tree
    paths: dict[Path, int]
    names: list[str]
    gone: tuple[str, ...]

    def of(self, tree: Tree, least: float = 1.0) -> Derived | None:
        """Levels and regular parts without the broken units of the tree; None with too few devices in the largest."""
        grouping, cores = self.grouping, regular_cores(tree)
        if not cores[0].fan_outs or cores[0].devices < max(least, 2):  # one device alone has no levels
            return None
        lost = [{self.paths[path] for path in core.lost} for core in cores]
        never = set.intersection(*(_inside(grouping, units) for units in lost))
        most = [max(sizes) for sizes in zip(*(core.fan_outs for core in cores), strict=True)]
        kept = tuple(tier for tier, size in enumerate(most, start=1) if size > 1)
        levels, notes = [], []
        for tier in kept:
            level, about = _level(grouping, self.tiers[tier - 1], most[tier - 1], self.names[tier - 1], never)
            levels.append(level)
            notes += about
        if len(grouping.tiers[0]) == cores[0].devices and not self.gone:
            return Derived(levels, notes)
        notes += _left_out(grouping, cores, lost[0], self.gone)
        site = Site(tree, kept, lambda path: _label(grouping, self.paths[path]), self.gone)
        return Derived(levels, notes, tuple(tuple(core.fan_outs[tier - 1] for tier in kept) for core in cores), site)

    def slow_units(self) -> Iterator[tuple[str, frozenset[Path]]]:
        """Units that hold back their level: those slower than the median, the slowest class alone first."""
        path_of = {number: path for path, number in self.paths.items()}
        for tier, wirings in enumerate(self.tiers):
            if not all(wiring.regular for wiring in wirings.values()):
                continue
            rates = _rates(self.grouping, wirings, set())
            if not rates:
                continue
            median = sorted(rates.values())[len(rates) // 2]
            limits = _classes([rate for rate in rates.values() if rate * NEAR < median])
            for limit in limits[:MOST_READINGS]:
                slow = [unit for unit, rate in rates.items() if rate <= limit]
                units = f"{len(slow):,} unit{'s' if len(slow) > 1 else ''}"
                name = f"without {units} of at most {limit / 1e9:,.4g} GB/s per device at {self.names[tier]}"
                yield name, frozenset(path_of[unit] for unit in slow)


def _classes(rates: list[float]) -> list[float]:
    """The fastest rate of each class of nearly equal ones, slowest class first."""
    ends: list[float] = []
    start = 0.0
    for rate in sorted(rates):
        if ends and rate <= start * NEAR:
            ends[-1] = rate
        else:
            ends.append(rate)
            start = rate
    return ends


def _without_hosts(graph: nx.Graph[str]) -> nx.Graph[str]:
    """Hosts carry no traffic between devices."""
    hosts = nodes_of_type(graph, "host")
    if not hosts:
        return graph
    rest = graph.copy()
    rest.remove_nodes_from(hosts)
    return rest


def _largest_part(graph: nx.Graph[str]) -> tuple[nx.Graph[str], list[str]]:
    """The connected part with the most devices, and the devices of the others."""

    def devices(part: set[str]) -> list[str]:
        return [node for node in graph if node in part and graph.nodes[node]["type"] == "device"]

    parts = sorted((devices(part) for part in nx.connected_components(graph)), key=len, reverse=True)
    if len([part for part in parts if part]) <= 1:
        return graph, []
    kept = nx.node_connected_component(graph, parts[0][0])
    return nx.Graph(graph.subgraph([node for node in graph if node in kept])), [
        device for part in parts[1:] for device in part
    ]


def _wired(grouping: Grouping) -> list[dict[int, Wiring]]:
    """Wiring of the units of each tier, innermost first."""
    result: list[dict[int, Wiring]] = []
    inner: dict[int, float] = {}
    for tier in range(1, len(grouping.tiers)):
        wirings, inner = wire_tier(grouping, tier, inner)
        result.append(wirings)
    return result


def _tree(grouping: Grouping, tiers: list[dict[int, Wiring]]) -> tuple[Tree, dict[Path, int]]:
    """The units as a tree, and the unit of each path."""
    root = grouping.current[0]
    paths: dict[Path, int] = {(): root}
    listed: dict[Path, int] = {}
    todo: list[tuple[Path, int]] = [((), root)]
    for path, number in todo:
        children = _in_order(grouping, tiers[len(tiers) - len(path) - 1], number) if len(path) < len(tiers) else []
        if children:
            listed[path] = len(children)
        for index, child in enumerate(children):
            paths[*path, index] = child
            todo.append(((*path, index), child))
    whole = tuple(any(wiring.kind in ("ring", "torus") for wiring in wirings.values()) for wirings in tiers)
    return Tree(sizes=(0,) * len(tiers), listed=listed, whole=whole), paths


def _in_order(grouping: Grouping, wirings: Mapping[int, Wiring], number: int) -> list[int]:
    """Children of a unit as numbered; those of a ring along it, those of a torus row by row, its last axis fastest."""
    children = grouping.units[number].children
    wiring = wirings.get(number)
    if wiring is None or wiring.kind not in ("ring", "torus"):
        return children
    home = {node: child for child in children for node in grouping.units[child].nodes}
    linked: dict[int, dict[int, float]] = {child: defaultdict(float) for child in children}
    for node, child in home.items():
        for other, link in grouping.graph.adj[node].items():
            if home.get(other, child) != child:
                linked[child][home[other]] += link["bytes_per_s"]
    if wiring.kind == "torus":
        tried = (along_axes(each, wiring.dims) for each in fastest_then_all(linked, children))
        return next((found for found in tried if found), children)
    walk = [children[0]]
    while len(walk) < len(children):
        onward = sorted(linked[walk[-1]].keys() - set(walk))
        if not onward:
            return children
        walk.append(onward[0])
    return walk


def regular_members(topology: Topology) -> list[str]:
    """Devices of a graph without holes, unit by unit, outermost first; units of a ring along it, of a torus row by row.

    Raises InputError.
    """
    grouping = grouped(_largest_part(_without_hosts(graph_of(topology)))[0])
    tiers = _wired(grouping)
    units = list(grouping.current)
    for wirings in reversed(tiers):
        units = [child for unit in units for child in _in_order(grouping, wirings, unit)]
    return [grouping.units[unit].nodes[0] for unit in units]


def unit_nodes(topology: Topology) -> list[dict[str, str]]:
    """For every tier, innermost first: the unit of each node inside one, called after its first device."""
    grouping = grouped(_largest_part(_without_hosts(graph_of(topology)))[0])
    found = []
    for tier in grouping.tiers[1:-1]:
        units = [grouping.units[number] for number in tier]
        found.append({node: f"unit of {unit.nodes[0]}" for unit in units for node in unit.nodes})
    return found


def _inside(grouping: Grouping, lost: set[int]) -> set[int]:
    """The lost units and all units inside them."""
    every = set(lost)
    todo = list(lost)
    while todo:
        children = grouping.units[todo.pop()].children
        every.update(children)
        todo.extend(children)
    return every


def _level(
    grouping: Grouping, wirings: Mapping[int, Wiring], fan_out: int, name: str, lost: set[int]
) -> tuple[Level, list[str]]:
    """One level: the commonest kind, the slowest child that is kept, the latency of the first unit."""
    kept = {number: wiring for number, wiring in wirings.items() if number not in lost} or dict(wirings)
    kind, dims = Counter((wiring.kind, wiring.dims) for wiring in kept.values()).most_common(1)[0][0]
    first = next(number for number, wiring in kept.items() if wiring.kind == kind)
    rates = _rates(grouping, kept, lost)
    size = len(grouping.units[first].children)
    level = Level(
        name=name,
        kind=kind,
        size=size,
        bytes_per_s=min(rates.values()),
        latency_s=latency_across(grouping, first, kind),
        dims=dims,
        in_network_reduction=all(wiring.in_network_reduction for wiring in kept.values()),
        own_ports=_own_ports(grouping, first),
    )
    labels = {child: _label(grouping, child) for child in (min(rates, key=lambda child: rates[child]),)}
    return resized(level, fan_out), remarks(name, kind, kept, rates, labels)


def _own_ports(grouping: Grouping, number: int) -> bool:
    """Whether devices of a unit's first child get out of it without the switches that join what is inside it.

    False also where nothing tells: a child that no switches of its own join.
    """
    child = grouping.units[number].children[0]
    joining: set[str] = set()
    todo = [child]
    while todo:
        unit = grouping.units[todo.pop()]
        if unit.children and not unit.formed_with:
            return False
        joining.update(unit.transit[: unit.formed_with])
        todo.extend(unit.children)
    nodes = {*grouping.units[child].nodes}
    way = grouping.graph.subgraph(nodes - joining)
    for part in nx.connected_components(way):
        leads_out = any(other not in nodes for node in part for other in grouping.graph.adj[node])
        if not leads_out and any(grouping.graph.nodes[node]["type"] == "device" for node in part):
            return False
    return True


def _rates(grouping: Grouping, wirings: Mapping[int, Wiring], lost: set[int]) -> dict[int, float]:
    """Bytes/s per device out of each unit that is not lost."""
    return {
        child: rate / grouping.units[child].devices
        for wiring in wirings.values()
        for child, rate in wiring.egress.items()
        if child not in lost
    }


def _label(grouping: Grouping, number: int) -> str:
    """A name for a unit: its device, or its first and last one."""
    unit = grouping.units[number]
    devices = [node for node in unit.nodes if grouping.graph.nodes[node]["type"] == "device"]
    return devices[0] if len(devices) == 1 else f"{devices[0]} .. {devices[-1]}"


def _names(grouping: Grouping, given: list[str] | None) -> list[str]:
    """Names of the tiers: those given, else the words of the devices' units, else tier1, tier2, ..."""
    count = len(grouping.tiers) - 1
    if given:
        if len(given) != count:
            raise InputError(
                f"names {len(given)} tiers, but the graph has {count}; give {count}, innermost first",
                field="level_names",
            )
        return list(given)
    device = grouping.units[0].nodes[0]
    words = [part.rstrip("0123456789-_") for part in reversed(grouping.graph.nodes[device]["unit"].split("/")) if part]
    names = [*words, *(["cluster"] if words else [])]
    names += [f"tier{tier}" for tier in range(len(names) + 1, count + 1)]
    return names[:count] if len(set(names[:count])) == count else [f"tier{tier}" for tier in range(1, count + 1)]


def _left_out(grouping: Grouping, cores: list[Core], lost: set[int], gone: Sequence[str]) -> list[str]:
    """`lost`: of the largest core; `gone`: devices that are not in the grouping at all, and other nodes down."""
    present, core = len(grouping.tiers[0]), cores[0]
    labels = [*gone, *(_label(grouping, number) for number in sorted(lost))]
    shown = ", ".join(labels[:NAMED]) + (f" and {len(labels) - NAMED:,} more" if len(labels) > NAMED else "")
    spare = "the last units of those that have more" if any(core.spare) else ""
    parts = " and ".join(part for part in (shown, spare) if part)
    return [
        f"uses at most {core.devices:,} of {present:,} devices that work and are joined, as "
        f"{shape_words(core.fan_outs)} so that fan-outs are equal; left out: {parts}{other_cores(cores)}"
    ]
