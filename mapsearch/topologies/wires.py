"""Directed links as arrays, and the networks that they form: which of them two devices talk over.

Contents: Ints, Floats, Wires, wires_of, Stage, stages_of.

A *network* is what hangs together without going through a device: switches and NICs joined by links, or devices that
are linked directly. Two devices talk over the fastest kind of network that joins them, whatever slower ones do as
well: NVLink before the NICs, a slice's own links before the data-centre network. Source: NCCL's order of path types
(NVLink before PCIe before network).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from mapsearch.topologies.grouping import SAME_CLASS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Wires:
    """Nodes by number, and links in both directions: number 2e from the first end to the second, 2e + 1 back."""

    names: tuple[str, ...]
    place: Mapping[str, int]
    """Number of a node."""
    device: Bools
    """True for devices."""
    tail: Ints
    head: Ints
    bytes_per_s: Floats
    cables: Ints
    """Parallel links that one link stands for: each takes an equal share (ECMP)."""

    @property
    def count(self) -> int:
        """Directed links."""
        return len(self.tail)


def wires_of(graph: nx.Graph[str], cables: Mapping[frozenset[str], int] | None = None) -> Wires:
    """A graph's links as arrays. Hosts carry no traffic between devices and are left out.

    `cables`: parallel links by their two ends, where there are several.
    """
    names = tuple(node for node, facts in graph.nodes.items() if facts["type"] != "host")
    place = {name: number for number, name in enumerate(names)}
    pairs, rates, parallel = [], [], []
    for a, b, facts in graph.edges(data=True):
        if a in place and b in place:
            pairs.append((place[a], place[b]))
            rates.append(facts["bytes_per_s"])
            parallel.append((cables or {}).get(frozenset((a, b)), 1))
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    both = np.stack([ends, ends[:, ::-1]], axis=1).reshape(-1, 2)
    return Wires(
        names=names,
        place=place,
        device=np.array([graph.nodes[name]["type"] == "device" for name in names], dtype=np.bool_),
        tail=both[:, 0],
        head=both[:, 1],
        bytes_per_s=np.repeat(np.array(rates, dtype=np.float64), 2),
        cables=np.repeat(np.array(parallel, dtype=np.int64), 2),
    )


@dataclass(frozen=True)
class Stage:
    """All networks of one class of speed."""

    links: Ints
    """Numbers of their links, even ones (from first to second end)."""
    transit: Bools
    """Per node: True where messages may pass through. Switches and NICs; devices that are linked directly."""
    island: Ints
    """Per node: the lowest number among the devices that networks of this class or faster ones join; -1: no device."""


def stages_of(wires: Wires) -> list[Stage]:
    """Networks by class of speed, fastest first. A slower one of at least `SAME_CLASS` is of the same class."""
    network = _networks(wires)
    speeds = _speeds(wires, network)
    left, classes = sorted(set(speeds.values()), reverse=True), []
    while left:
        classes.append([speed for speed in left if speed >= SAME_CLASS * left[0]])
        left = left[len(classes[-1]) :]
    stages: list[Stage] = []
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(len(wires.names)))
    for members in classes:
        inside = {number for number, speed in speeds.items() if speed in members}
        links = np.flatnonzero(np.isin(network, sorted(inside)))
        joined.add_edges_from(zip(wires.tail[2 * links].tolist(), wires.head[2 * links].tolist(), strict=True))
        stages.append(Stage(2 * links, _transit(wires, 2 * links), _islands(wires, joined)))
    return stages


def _networks(wires: Wires) -> Ints:
    """The network of each link (pairs of directions counted once)."""
    tail, head, device = wires.tail[::2], wires.head[::2], wires.device
    straight = device[tail] & device[head]
    switched = ~device[tail] & ~device[head]
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(np.flatnonzero(~device).tolist())
    joined.add_edges_from(zip(tail[switched].tolist(), head[switched].tolist(), strict=True))
    # Devices that are linked directly stand in for their network under numbers of their own.
    direct: nx.Graph[int] = nx.Graph()
    direct.add_edges_from(zip(tail[straight].tolist(), head[straight].tolist(), strict=True))
    number = np.full(len(wires.names), -1, dtype=np.int64)
    parts = [*nx.connected_components(joined)]
    for index, part in enumerate(parts):
        number[list(part)] = index
    own = np.full(len(wires.names), -1, dtype=np.int64)
    for index, part in enumerate(nx.connected_components(direct), start=len(parts)):
        own[list(part)] = index
    return np.where(straight, own[tail], np.where(device[tail], number[head], number[tail]))


def _speeds(wires: Wires, network: Ints) -> dict[int, float]:
    """Bytes/s of a device into each network; networks of the very same devices (planes) count together."""
    into: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    ends = zip(
        network.tolist(),
        wires.tail[::2].tolist(),
        wires.head[::2].tolist(),
        wires.bytes_per_s[::2].tolist(),
        strict=True,
    )
    for number, a, b, rate in ends:
        for end in (a, b):
            if wires.device[end]:
                into[number][end] += rate
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, rates in into.items():
        alike[tuple(sorted(rates))].append(number)
    return {
        number: sum(max(into[other].values()) for other in numbers) for numbers in alike.values() for number in numbers
    }


def _transit(wires: Wires, links: Ints) -> Bools:
    """Nodes that pass messages on: no devices, but for those linked directly and where there is no other way."""
    transit = ~wires.device
    ends = np.stack([wires.tail[links], wires.head[links]])
    straight = wires.device[ends].all(axis=0)
    transit[ends[:, straight].ravel()] = True
    whole: nx.Graph[int] = nx.Graph()
    whole.add_edges_from(zip(*ends.tolist(), strict=True))
    passing = whole.subgraph(np.flatnonzero(transit).tolist())
    part_of: dict[int, int] = {}
    for index, part in enumerate(nx.connected_components(passing)):
        part_of |= dict.fromkeys(part, index)
    for part in nx.connected_components(whole):
        met = [
            {part_of[other] for other in (node, *whole.adj[node]) if other in part_of}
            for node in part
            if wires.device[node]
        ]
        if met and not set.intersection(*met):
            transit[list(part)] = True
    return transit


def _islands(wires: Wires, joined: nx.Graph[int]) -> Ints:
    island = np.full(len(wires.names), -1, dtype=np.int64)
    for part in nx.connected_components(joined):
        devices = [node for node in part if wires.device[node]]
        if devices:
            island[list(part)] = min(devices)
    return island
