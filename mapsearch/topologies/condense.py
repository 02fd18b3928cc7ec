"""Units of any graph with their devices, and a large graph with units for devices.

Contents: device_tiers, Condensed, condensed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import networkx as nx

from mapsearch.errors import InputError
from mapsearch.topologies.graph import graph_of, nodes_of_type
from mapsearch.topologies.spec import Topology


@dataclass(frozen=True)
class Condensed:
    """A graph of units: what is inside a unit is one node, cables in parallel are one link."""

    graph: nx.Graph[str]
    units: dict[str, list[str]]
    """Node of each unit: its devices, in the order of the topology."""
    tiers: list[list[list[str]]]
    """The units inside each unit of the tiers outside them, innermost tier first."""


def device_tiers(topology: Topology) -> list[list[list[str]]]:
    """Devices that work and are joined, by unit, for every tier from the innermost to the one inside the cluster."""
    graph = graph_of(topology)
    return [list(_held(graph, home).values()) for home in _homes(topology, graph)]


def condensed(topology: Topology, most: int) -> Condensed:
    """The graph with the innermost units of which there are at most so many, each as one node.

    What limits traffic inside a unit is not seen any more. Raises InputError when there are no such units.
    """
    graph = graph_of(topology)
    homes = _homes(topology, graph)
    for tier, home in enumerate(homes):
        units = _held(graph, home)
        if len(units) <= most:
            outer = []
            for coarse in homes[tier + 1 :]:
                inside: dict[str, list[str]] = {}
                for unit, devices in units.items():
                    inside.setdefault(coarse[devices[0]], []).append(unit)
                outer.append(list(inside.values()))
            return Condensed(_contracted(graph, home), units, outer)
    raise InputError(f"has no level with at most {most} units to look at the links between them", file=topology.name)


def _held(graph: nx.Graph[str], home: Mapping[str, str]) -> dict[str, list[str]]:
    units: dict[str, list[str]] = {}
    for device in nodes_of_type(graph, "device"):
        if device in home:
            units.setdefault(home[device], []).append(device)
    return units


def _homes(topology: Topology, graph: nx.Graph[str]) -> list[dict[str, str]]:
    """For every tier, innermost first: the unit of each node that is inside one."""
    if topology.levels:
        return [_by_name(graph, depth) for depth in range(len(topology.levels) - 1, 0, -1)]
    from mapsearch.topologies.hierarchy import unit_nodes

    return unit_nodes(topology)


def _by_name(graph: nx.Graph[str], depth: int) -> dict[str, str]:
    """The levels form: nodes of a unit have its path in front of their names, its own switch behind a dot."""
    home = {}
    for node in graph:
        parts = node.split("/")
        if len(parts) > depth or (len(parts) == depth and "." in parts[-1]):
            home[node] = "/".join(parts[:depth]).split(".")[0]
    return home


def _contracted(graph: nx.Graph[str], home: Mapping[str, str]) -> nx.Graph[str]:
    result: nx.Graph[str] = nx.Graph()
    for node, facts in graph.nodes.items():
        result.add_node(home.get(node, node), type="device" if node in home else facts["type"])
    for a, b, facts in graph.edges(data=True):
        first, second = home.get(a, a), home.get(b, b)
        if first != second:
            before = result.edges[first, second]["bytes_per_s"] if result.has_edge(first, second) else 0.0
            result.add_edge(first, second, bytes_per_s=before + facts["bytes_per_s"], latency_s=facts["latency_s"])
    return result
