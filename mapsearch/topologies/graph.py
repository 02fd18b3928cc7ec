"""A topology as one networkx graph: devices, switches and NICs, joined by full-duplex links.

Contents: graph_of, node_link, link_rates, nodes_of_type, neighbours, MAX_GRAPH_DEVICES.

Nodes carry `type` (device, switch, nic, host), `unit` (where a device sits, outermost first) and
`in_network_reduction`; edges carry `bytes_per_s` (one way) and `latency_s`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import networkx as nx

from mapsearch.errors import InputError
from mapsearch.topologies.levels import Attachment, attachments
from mapsearch.topologies.spec import LevelSpec, LinkName, Topology, unit_words

MAX_GRAPH_DEVICES = 2**19


def graph_of(topology: Topology) -> nx.Graph[str]:
    """The graph of either form, without what is down. Raises InputError when the levels form is too large for it."""
    if topology.levels:
        if topology.device_count > MAX_GRAPH_DEVICES:
            raise InputError(
                f"has {topology.device_count:,} devices, too many to draw as a graph (limit {MAX_GRAPH_DEVICES:,}); "
                "the levels form works without one",
                file=topology.name,
            )
        graph = _Builder(topology.levels, attachments(topology.levels)).built()
        for item in topology.down:
            inside = f"{item}/".replace(".", "/")
            below = [node for node in graph if f"{node}/".replace(".", "/").startswith(inside)]
            graph.remove_nodes_from(below)
        return graph
    graph = nx.Graph()
    for node in topology.nodes:
        graph.add_node(node.id, type=node.type, unit=node.unit, in_network_reduction=node.in_network_reduction)
    for link in topology.links:
        _join(graph, link.a, link.b, link.bytes_per_s, link.latency)
    for item in topology.down:
        if isinstance(item, LinkName):
            graph.remove_edges_from([(item.a, item.b)])
        else:
            graph.remove_nodes_from([item])
    return graph


def node_link(topology: Topology) -> dict[str, Any]:
    """The graph as plain data in networkx's node-link form."""
    data: dict[str, Any] = nx.node_link_data(graph_of(topology), edges="edges")
    return data


def link_rates(graph: nx.Graph[str]) -> Iterator[tuple[str, str, float]]:
    """Both ends of every link, and its bytes/s one way."""
    for a, others in graph.adj.items():
        for b, facts in others.items():
            if a < b:
                yield a, b, facts["bytes_per_s"]


def nodes_of_type(graph: nx.Graph[str], kind: str) -> list[str]:
    """Nodes of one type, in the order of the graph."""
    return [node for node, facts in graph.nodes.items() if facts["type"] == kind]


def _join(graph: nx.Graph[str], a: str, b: str, bytes_per_s: float, latency_s: float) -> None:
    """Add a link; parallel links add up."""
    if graph.has_edge(a, b):
        bytes_per_s += graph.edges[a, b]["bytes_per_s"]
        latency_s = min(latency_s, graph.edges[a, b]["latency_s"])
    graph.add_edge(a, b, bytes_per_s=bytes_per_s, latency_s=latency_s)


@dataclass
class _Unit:
    """A unit while it is built: the nodes at which outer tiers attach, all alike."""

    ports: list[str]
    devices: list[str]
    port_latency_s: float = 0.0
    """From a device to its port."""


@dataclass
class _Builder:
    """The levels form, drawn out: every unit has the same wiring."""

    levels: list[LevelSpec]
    attachments: list[Attachment]
    graph: nx.Graph[str] = field(default_factory=nx.Graph)

    def built(self) -> nx.Graph[str]:
        self._unit(len(self.levels), "")
        return self.graph

    def _unit(self, tier: int, name: str) -> _Unit:
        if tier == 0:
            place = name.rpartition("/")[0]
            self._node(name, "device", unit=f"{self.levels[-1].name}/{place}" if place else self.levels[-1].name)
            return _Unit(ports=[name], devices=[name])
        level = self.levels[tier - 1]
        word = unit_words([spec.name for spec in self.levels])[len(self.levels) - tier]
        prefix = f"{name}/" if name else ""
        children = [self._unit(tier - 1, f"{prefix}{word}{index}") for index in range(level.size)]
        if level.size == 1:
            return children[0]  # nothing crosses this tier
        nics_needed = self.attachments[tier - 1] == "nic"
        children = [self._attached(child, level, nics_needed=nics_needed) for child in children]
        if level.kind == "switch":
            return self._switched(level, children, name or level.name)
        for first, second, share in neighbours(level):
            self._linked(level, children[first], children[second], share)
        return _Unit(
            ports=[port for child in children for port in child.ports],
            devices=[device for child in children for device in child.devices],
            port_latency_s=children[0].port_latency_s,
        )

    def _node(self, name: str, kind: str, **facts: Any) -> None:
        self.graph.add_node(name, **{"type": kind, "unit": "", "in_network_reduction": False, **facts})

    def _attached(self, child: _Unit, level: LevelSpec, *, nics_needed: bool) -> _Unit:
        """Outer tiers attach at the unit's own switch, or at a NIC of each device (`levels.attachments`)."""
        if not nics_needed:
            return child
        nics = []
        for device in child.devices:
            nic = f"{device}.{level.name}-nic"
            self._node(nic, "nic")
            _join(self.graph, device, nic, level.bytes_per_s, 0.0)
            nics.append(nic)
        return _Unit(ports=nics, devices=child.devices)

    def _switched(self, level: LevelSpec, children: list[_Unit], name: str) -> _Unit:
        switch = f"{name}.switch"
        self._node(switch, "switch", in_network_reduction=level.in_network_reduction)
        for child in children:
            rate = level.bytes_per_s * len(child.devices) / len(child.ports)
            for port in child.ports:
                _join(self.graph, port, switch, rate, level.latency / 2.0 - child.port_latency_s)
        return _Unit(
            ports=[switch],
            devices=[device for child in children for device in child.devices],
            port_latency_s=level.latency / 2.0,
        )

    def _linked(self, level: LevelSpec, first: _Unit, second: _Unit, share: float) -> None:
        rate = share * level.bytes_per_s * len(first.devices) / len(first.ports)
        for a, b in zip(first.ports, second.ports, strict=True):
            _join(self.graph, a, b, rate, level.latency - 2.0 * first.port_latency_s)


def neighbours(level: LevelSpec) -> Iterator[tuple[int, int, float]]:
    """Pairs of linked units of a mesh, ring or torus, with the share of a unit's bandwidth on that link.

    Each axis of a torus longer than 1 carries an equal share, half of it to either side; an axis of 2 has both its
    links to the one neighbour.
    """
    if level.kind == "full_mesh":
        for second in range(level.size):
            for first in range(second):
                yield first, second, 1.0 / (level.size - 1)
        return
    dims = level.dims if level.kind == "torus" else [level.size]
    axes = sum(extent > 1 for extent in dims)
    strides = [1]
    for extent in reversed(dims[1:]):
        strides.insert(0, strides[0] * extent)
    for place in product(*(range(extent) for extent in dims)):
        here = sum(index * stride for index, stride in zip(place, strides, strict=True))
        for index, extent, stride in zip(place, dims, strides, strict=True):
            if extent > 1 and not (extent == 2 and index == 1):
                there = here + ((index + 1) % extent - index) * stride
                yield here, there, 1.0 / axes if extent == 2 else 0.5 / axes
