"""Levels derived from a graph: fan-out, bandwidth per device by cut, latency, kind.

Contents: derived_levels, fabric_of_graph, regular_members, unit_nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import networkx as nx

from mapsearch.errors import InputError
from mapsearch.topologies.core import Core, Path, Tree, regular_core
from mapsearch.topologies.fabric import Fabric, Level
from mapsearch.topologies.graph import graph_of, nodes_of_type
from mapsearch.topologies.grouping import Grouping, grouped
from mapsearch.topologies.known import level_suspicions
from mapsearch.topologies.levels import resized
from mapsearch.topologies.spec import Topology
from mapsearch.topologies.wiring import Wiring, latency_across, wire_tier
from mapsearch.units import RATE, render

DOMAIN_SHARE = 0.5
"""Tiers at least this fast, against the innermost, count to the high-bandwidth domain unless the document says."""
NAMED = 4
"""Devices that a note names one by one."""


def fabric_of_graph(topology: Topology) -> Fabric:
    """The fabric of a topology whose levels are derived from its graph (either form). Raises InputError."""
    graph = graph_of(topology)
    down = [item for item in topology.down if isinstance(item, str)]
    try:
        levels, notes = derived_levels(graph, topology.level_names, down)
    except InputError as problem:
        raise problem.within(topology.name) from None
    levels = _with_domain(levels, topology.high_bandwidth)
    notes = [*topology.warnings(), *level_suspicions(topology.device.name, levels), *notes]
    return Fabric(
        name=topology.name,
        device=topology.device.device(),
        levels=tuple(levels),
        variable_all_to_all=topology.all_to_all == "variable",
        sources={**topology.sources, "levels": "derived from the graph"},
        notes=tuple(notes),
    )


def _with_domain(levels: list[Level], least: float | None) -> list[Level]:
    limit = DOMAIN_SHARE * levels[0].bytes_per_s if least is None else least
    result, inside = [], True
    for level in levels:
        inside = inside and level.bytes_per_s >= limit
        result.append(replace(level, high_bandwidth=inside))
    return result


def derived_levels(
    graph: nx.Graph[str], names: list[str] | None = None, down: Sequence[str] = ()
) -> tuple[list[Level], list[str]]:
    """Levels of a graph, innermost first, and notes on what is left out or approximated.

    `down`: what was taken out of the graph before, to be named with the rest.

    Raises InputError when the graph has fewer than two devices or nothing regular in it.
    """
    graph, cut_off = _largest_part(_without_hosts(graph))
    if len(nodes_of_type(graph, "device")) < 2:
        raise InputError("has a single device that can be reached, so there are no levels to derive", field="nodes")
    grouping = grouped(graph)
    tiers = _wired(grouping)
    core, paths = _core(grouping, tiers)
    if not core.fan_outs:
        raise InputError(
            "has no regular core: its rings or tori differ in size; take the odd ones out with down", field="nodes"
        )
    lost = {paths[path] for path in core.lost}
    named = _names(grouping, names)
    levels, notes = [], []
    for tier, fan_out in enumerate(core.fan_outs, start=1):
        if fan_out > 1:
            level, remarks = _level(grouping, tiers[tier - 1], fan_out, named[tier - 1], _inside(grouping, lost))
            levels.append(level)
            notes += remarks
    return levels, [*notes, *_left_out(grouping, core, lost, [*down, *cut_off])]


def regular_members(topology: Topology) -> list[str]:
    """Devices of the regular core of a topology's graph, unit by unit, outermost first. Raises InputError."""
    graph, _ = _largest_part(_without_hosts(graph_of(topology)))
    grouping = grouped(graph)
    tiers = _wired(grouping)
    core, paths = _core(grouping, tiers)
    lost = {paths[path] for path in core.lost}
    units = list(grouping.current)
    for tier in range(len(core.fan_outs), 0, -1):
        fan_out = core.fan_outs[tier - 1]
        units = [
            child
            for unit in units
            for child in [one for one in _in_order(grouping, tiers[tier - 1], unit) if one not in lost][:fan_out]
        ]
    return [grouping.units[unit].nodes[0] for unit in units]


def unit_nodes(topology: Topology) -> list[dict[str, str]]:
    """For every tier, innermost first: the unit of each node inside one, called after its first device."""
    graph, _ = _largest_part(_without_hosts(graph_of(topology)))
    grouping = grouped(graph)
    found = []
    for tier in grouping.tiers[1:-1]:
        units = [grouping.units[number] for number in tier]
        found.append({node: f"unit of {unit.nodes[0]}" for unit in units for node in unit.nodes})
    return found


def _in_order(grouping: Grouping, wirings: Mapping[int, Wiring], number: int) -> list[int]:
    """Children of a unit as numbered; those of a ring along it."""
    children = grouping.units[number].children
    wiring = wirings.get(number)
    if wiring is None or wiring.kind != "ring":
        return children
    home = {node: child for child in children for node in grouping.units[child].nodes}
    linked: dict[int, set[int]] = {child: set() for child in children}
    for a, b, _ in grouping.links:
        if a in home and b in home and home[a] != home[b]:
            linked[home[a]].add(home[b])
            linked[home[b]].add(home[a])
    walk = [children[0]]
    while len(walk) < len(children):
        onward = sorted(linked[walk[-1]] - set(walk))
        if not onward:
            return children
        walk.append(onward[0])
    return walk


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


def _core(grouping: Grouping, tiers: list[dict[int, Wiring]]) -> tuple[Core, dict[Path, int]]:
    """The largest regular core, and the unit of each path."""
    root = grouping.current[0]
    paths: dict[Path, int] = {(): root}
    listed: dict[Path, int] = {}
    todo: list[tuple[Path, int]] = [((), root)]
    for path, number in todo:
        children = grouping.units[number].children
        if children:
            listed[path] = len(children)
        for index, child in enumerate(children):
            paths[*path, index] = child
            todo.append(((*path, index), child))
    whole = tuple(any(wiring.kind in ("ring", "torus") for wiring in wirings.values()) for wirings in tiers)
    return regular_core(Tree(sizes=(0,) * len(tiers), listed=listed, whole=whole)), paths


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
    rates = {
        child: rate / grouping.units[child].devices
        for wiring in kept.values()
        for child, rate in wiring.egress.items()
        if child not in lost
    }
    slowest, fastest = min(rates.values()), max(rates.values())
    size = len(grouping.units[first].children)
    level = Level(
        name=name,
        kind=kind,
        size=size,
        bytes_per_s=slowest,
        latency_s=latency_across(grouping, first, kind),
        dims=dims if size == fan_out else (),
        in_network_reduction=all(wiring.in_network_reduction for wiring in kept.values()),
    )
    notes = []
    if not all(wiring.regular for wiring in kept.values()):
        notes.append(
            f"level {name}: units are joined in no regular shape (mesh, ring, torus or switch); taken as a switch at "
            f"{render(float(f'{slowest:.4g}'), RATE)} per device, the narrowest cut found"
        )
    if fastest > slowest * 1.01:
        weak = min(rates, key=lambda child: rates[child])
        notes.append(
            f"level {name}: bandwidth per device is from {slowest / 1e9:,.4g} to {fastest / 1e9:,.4g} GB/s; the lowest "
            f"counts (at {_label(grouping, weak)})"
        )
    if len({wiring.kind for wiring in kept.values()}) > 1:
        notes.append(f"level {name}: units differ in kind; taken as {kind}, the commonest")
    return resized(level, fan_out), notes


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


def _left_out(grouping: Grouping, core: Core, lost: set[int], gone: list[str]) -> list[str]:
    """`gone`: devices that are not in the grouping at all, and other nodes that are down."""
    present = len(grouping.tiers[0])
    if present == core.devices and not gone:
        return []
    labels = [*gone, *(_label(grouping, number) for number in sorted(lost))]
    shown = ", ".join(labels[:NAMED]) + (f" and {len(labels) - NAMED:,} more" if len(labels) > NAMED else "")
    spare = "the last units of those that have more" if any(core.spare) else ""
    parts = " and ".join(part for part in (shown, spare) if part)
    shape = " x ".join(str(size) for size in reversed(core.fan_outs))
    return [
        f"uses {core.devices:,} of {present:,} devices that work and are joined, as {shape} so that fan-outs are "
        f"equal; left out: {parts}"
    ]
