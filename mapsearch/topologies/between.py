"""What joins two pools of devices, as one graph: the busiest link by routing, and the narrowest cut by maximum flow.

Contents: Gateway, Spot, Ground, first_spots, split_ground, drawn_side, joined_ground, ends_of.

Pools are sets of *spots*: nodes that stand for one device, or for a unit with all of its devices. Traffic between the
pools is spread evenly over the devices of either side and goes over shortest paths, split evenly (ECMP, routing.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from mapsearch.errors import InputError, listed, near_miss
from mapsearch.topologies.core import Tree
from mapsearch.topologies.graph import graph_of
from mapsearch.topologies.routing import Pairs, Router, busiest, router_of
from mapsearch.topologies.spec import Topology, unit_index, unit_words
from mapsearch.topologies.wires import Floats

MOST_PAIRS = 2**18
"""Pairs of spots that are routed; beyond them only the cut is known."""
AMPLE_BYTES_PER_S = 2.0**53
"""Between a unit's switch and its devices: never the narrowest."""


START, END = "\0sources", "\0sinks"
"""Nodes of the flow network, of names that no document holds."""


class Gateway(NamedTuple):
    """Links between the pools: from a unit, node or level of one cluster to one of the other."""

    training: str
    rollout: str
    bytes_per_s: float
    """Of all parallel links together, one way."""
    cables: int
    """Parallel links: they share traffic as so many equal paths."""


class Spot(NamedTuple):
    """A node of the graph, and how many devices it stands for."""

    node: str
    devices: int


@dataclass(frozen=True)
class Ground:
    """A graph with both pools in it."""

    graph: nx.Graph[str]
    spots: tuple[tuple[Spot, ...], ...]
    """By outer unit where one cluster is split; else those of training, then those of rollout."""

    @cached_property
    def _router(self) -> Router:
        cables = {frozenset((a, b)): facts.get("cables", 1) for a, b, facts in self.graph.edges(data=True)}
        return router_of(self.graph, cables)

    def routed(self, sources: Sequence[Spot], sinks: Sequence[Spot]) -> tuple[float, str] | None:
        """Seconds that one byte from all sources to all sinks keeps its busiest link busy, and that link's ends.

        The byte is spread evenly over the devices of either side. None with too many pairs. Unit: s per byte.
        """
        if len(sources) * len(sinks) > MOST_PAIRS:
            return None
        wires = self._router.wires
        sending, receiving = _shares(sources), _shares(sinks)
        source = np.repeat([wires.place[spot.node] for spot in sources], len(sinks))
        target = np.tile([wires.place[spot.node] for spot in sinks], len(sources))
        loads = self._router.loads_bytes([[Pairs(source, target, np.outer(sending, receiving).ravel())]])
        link, seconds = busiest(loads[0], wires)
        return seconds, self._named(wires.names[wires.tail[link]], wires.names[wires.head[link]])

    def carried_s(self, sources: Sequence[str], targets: Sequence[str], sent_bytes: Floats) -> float:
        """Seconds that the busiest link needs for bytes from each source to each target, routed. Unit: s."""
        wires = self._router.wires
        source, target = np.nonzero(sent_bytes)
        ends = [np.array([wires.place[name] for name in names]) for names in (sources, targets)]
        flow = Pairs(ends[0][source], ends[1][target], sent_bytes[source, target])
        return busiest(self._router.loads_bytes([[flow]])[0], wires)[1]

    def narrowest(self, sources: Sequence[Spot], sinks: Sequence[Spot]) -> tuple[float, tuple[str, ...]]:
        """Bytes/s that the links can carry from all sources to all sinks at most, and the links of that cut.

        Maximum flow, whoever sends how much to whom: no routing of any traffic carries more. Unit: B/s.
        """
        value, near = self._cut(sources, sinks, None)
        return value, self._crossing(near)

    def tightest(self, sources: Sequence[Spot], sinks: Sequence[Spot]) -> tuple[float, tuple[str, ...]]:
        """Most seconds of a cut, over all cuts, for one byte that is spread evenly over sources and sinks; its links.

        Bytes that must cross / capacity. No routing of that traffic is faster. Unit: s per byte. Method: a rate at
        which everything fits is the least ratio; each cut that a higher one breaks gives the next lower one.
        """
        rate, near = self._cut(sources, sinks, None)
        share = dict(zip((spot.node for spot in sources), _shares(sources).tolist(), strict=True))
        taken = dict(zip((spot.node for spot in sinks), _shares(sinks).tolist(), strict=True))
        while True:
            flow, found = self._cut(sources, sinks, rate)
            if flow >= rate * (1.0 - 1e-9):
                return 1.0 / rate, self._crossing(near)
            near = found
            through = sum(share.get(node, 0.0) - taken.get(node, 0.0) for node in near)
            rate = min(self._capacity(near) / through, rate * (1.0 - 1e-9))

    def _cut(self, sources: Sequence[Spot], sinks: Sequence[Spot], rate: float | None) -> tuple[float, set[str]]:
        """Maximum flow, and the nodes before its cut; `rate`: what all sources together send, evenly, and sinks get."""
        network = self._network.copy()
        for spots, shares, ends in ((sources, _shares(sources), (START, None)), (sinks, _shares(sinks), (None, END))):
            for spot, part in zip(spots, shares.tolist(), strict=True):
                limit = {} if rate is None else {"capacity": rate * part}
                network.add_edge(ends[0] or spot.node, ends[1] or spot.node, **limit)
        value, (near, _) = nx.minimum_cut(network, START, END)
        return float(value), near - {START}

    @cached_property
    def _network(self) -> nx.DiGraph[str]:
        network: nx.DiGraph[str] = nx.DiGraph()
        for a, b, facts in self.graph.edges(data=True):
            network.add_edge(a, b, capacity=facts["bytes_per_s"])
            network.add_edge(b, a, capacity=facts["bytes_per_s"])
        return network

    def _capacity(self, near: set[str]) -> float:
        adjacent = self._network.adj
        return float(sum(facts["capacity"] for a in near for b, facts in adjacent[a].items() if b not in near))

    def _crossing(self, near: set[str]) -> tuple[str, ...]:
        adjacent = self._network.adj
        return tuple(self._named(a, b) for a, b in sorted((a, b) for a in near for b in adjacent[a] if b not in near))

    def _named(self, a: str, b: str) -> str:
        return " - ".join(self.graph.nodes[node].get("name", node) for node in (a, b))


def first_spots(spots: Sequence[Spot], devices: float) -> tuple[Spot, ...]:
    """The first so many devices of some spots; all of them where there are fewer."""
    found: list[Spot] = []
    for spot in spots:
        if devices <= 0:
            break
        found.append(Spot(spot.node, min(spot.devices, math.ceil(devices))))
        devices -= spot.devices
    return tuple(found)


def _shares(spots: Sequence[Spot]) -> Floats:
    devices = np.array([spot.devices for spot in spots], dtype=np.float64)
    return np.asarray(devices / devices.sum())


def split_ground(topology: Topology, units: Sequence[Sequence[str]], share: float) -> Ground:
    """One cluster that is split: its outer units as nodes in the levels form, else its own graph.

    `units`: devices of each outer unit in the explicit form. `share`: what large messages reach of a link.
    """
    if topology.levels:
        side = drawn_side(topology, len(topology.levels) - 1, share, forward=False)
        return Ground(side.graph, tuple((spot,) for spot in side.spots[0]))
    graph = _scaled(graph_of(topology), share)
    return Ground(graph, tuple(tuple(Spot(device, 1) for device in devices) for devices in units))


def drawn_side(topology: Topology, tier: int, share: float, *, forward: bool = True, prefix: str = "") -> Ground:
    """One cluster with its units of a tier (0: devices) as nodes, or an explicit one as it is.

    `forward`: each unit gets a switch of its own, so that what is not for its devices can pass. Names get the prefix.
    """
    if not topology.levels:
        whole = _scaled(graph_of(topology), share)
        found = [Spot(node, 1) for node, facts in whole.nodes.items() if facts["type"] == "device"]
        return _prefixed(Ground(whole, (tuple(found),)), prefix)
    graph = _drawn_units(topology, tier, share)
    sizes = tuple(level.size for level in topology.levels)
    tree = Tree(sizes, broken=frozenset(unit_index(str(item), topology.levels) for item in topology.down))
    spots = []
    for node, facts in list(graph.nodes.items()):
        if facts["type"] == "device":
            working = tree.working(unit_index(facts["name"], topology.levels) if tier < len(sizes) else ())
            if working:
                spots.append(Spot(node, working))
            else:
                graph.remove_node(node)
    return _prefixed(Ground(_forwarding(graph, spots) if forward else graph, (tuple(spots),)), prefix)


def _drawn_units(topology: Topology, tier: int, share: float) -> nx.Graph[str]:
    """The levels outside a tier, with its units as devices that have all their devices' bandwidth."""
    inside = math.prod(level.size for level in topology.levels[:tier])
    rates = [{"bandwidth": inside * share * level.bandwidth} for level in topology.levels]
    outer = [level.model_copy(update=rate) for level, rate in zip(topology.levels, rates, strict=True)][tier:]
    if not outer:
        graph: nx.Graph[str] = nx.Graph()
        graph.add_node("cluster", type="device", unit="", in_network_reduction=False, name=topology.levels[-1].name)
        return graph
    plain = {"levels": outer, "down": [], "types": {}, "other_devices": []}
    graph = graph_of(topology.model_copy(update=plain))
    word = unit_words([level.name for level in topology.levels])[len(outer) - 1]
    for node, facts in graph.nodes.items():
        if facts["type"] == "device":
            place, _, last = node.rpartition("/")
            facts["name"] = f"{place}/{word}{last.removeprefix('device')}".lstrip("/")
    return graph


def _scaled(graph: nx.Graph[str], share: float) -> nx.Graph[str]:
    for _, _, facts in graph.edges(data=True):
        facts["bytes_per_s"] *= share
    return graph


def _forwarding(graph: nx.Graph[str], spots: Iterable[Spot]) -> nx.Graph[str]:
    """Every spot's node as a switch, behind which its devices are another node of the spot's name."""
    changed = nx.relabel_nodes(graph, {spot.node: f"{spot.node}.gate" for spot in spots})
    for spot in spots:
        gate = changed.nodes[f"{spot.node}.gate"]
        changed.add_node(spot.node, **{**gate, "type": "device"})
        gate["type"] = "switch"
        gate.setdefault("name", spot.node)
        changed.add_edge(spot.node, f"{spot.node}.gate", bytes_per_s=AMPLE_BYTES_PER_S, latency_s=0.0)
    return changed


def _prefixed(side: Ground, prefix: str) -> Ground:
    if not prefix:
        return side
    for node, facts in side.graph.nodes.items():
        facts["name"] = f"{prefix} {facts.get('name', node)}"
    names = {node: f"{prefix}:{node}" for node in side.graph}
    spots = tuple(tuple(Spot(names[spot.node], spot.devices) for spot in group) for group in side.spots)
    return Ground(nx.relabel_nodes(side.graph, names), spots)


def ends_of(topology: Topology, name: str) -> tuple[int, list[str]]:
    """Tier and names of the units that one end of a gateway means; tier 0 and the node in the explicit form.

    A level's name means all its units, the path of a unit that unit. Raises ValueError with what is accepted.
    """
    if not topology.levels:
        ids = [node.id for node in topology.nodes]
        if name not in ids:
            raise ValueError(f"no node of {topology.name} is called {name!r}{near_miss(name, ids)}")
        return 0, [name]
    names = [level.name for level in topology.levels]
    if name in names:
        tier = names.index(name) + 1
        paths = _units(topology, tier)
        down = [unit_index(str(item), topology.levels) for item in topology.down]
        return tier, [path for path in paths if unit_index(path, topology.levels) not in down] if paths != [""] else [
            ""
        ]
    try:
        index = unit_index(name, topology.levels)
    except ValueError as problem:
        raise ValueError(
            f"{str(problem).removeprefix('down: ')}; a level ({listed(names)}) means all its units"
        ) from None
    return len(names) - len(index), [name]


def _units(topology: Topology, tier: int) -> list[str]:
    """Paths of all units of a tier; one empty path for the whole cluster."""
    words = unit_words([level.name for level in topology.levels])
    found = [""]
    for word, level in zip(words, list(reversed(topology.levels))[: len(topology.levels) - tier], strict=False):
        found = [f"{path}/{word}{index}".lstrip("/") for path in found for index in range(level.size)]
    return found


def joined_ground(
    training: Topology, rollout: Topology, gateways: Sequence[Gateway], shares: Sequence[float]
) -> Ground:
    """Two clusters and the links between them. `shares`: what large messages reach of each cluster's own links.

    Raises InputError, which names the gateway.
    """
    sides, ends = [], []
    for topology, share, prefix in ((training, shares[0], "training"), (rollout, shares[1], "rollout")):
        named = [_checked(topology, getattr(gateway, prefix), prefix, at) for at, gateway in enumerate(gateways)]
        tier = min(tier for tier, _ in named)
        side = drawn_side(topology, tier, share, prefix=prefix)
        sides.append(
            side if topology.levels else _open(side, {f"{prefix}:{name}" for _, names in named for name in names})
        )
        ends.append([_nodes(sides[-1], topology, prefix, tier, *one) for one in named])
    graph: nx.Graph[str] = nx.union(sides[0].graph, sides[1].graph)
    for at, (gateway, one, two) in enumerate(zip(gateways, *ends, strict=True)):
        rate = {"bytes_per_s": gateway.bytes_per_s, "latency_s": 0.0, "cables": gateway.cables}
        if len(one) == len(two) == 1:
            _add(graph, one[0], two[0], rate)
            continue
        middle = f"gateway {at}"
        if len(one) > 1 and len(two) > 1:
            graph.add_node(middle, type="switch", unit="", in_network_reduction=False)
            for node in (*one, *two):
                _add(graph, node, middle, rate)
        else:
            for node in one if len(one) > 1 else two:
                _add(graph, node, two[0] if len(one) > 1 else one[0], rate)
    return Ground(graph, (sides[0].spots[0], sides[1].spots[0]))


def _add(graph: nx.Graph[str], a: str, b: str, rate: dict[str, Any]) -> None:
    """A link; what joins the same nodes already adds up."""
    before = graph.edges[a, b] if graph.has_edge(a, b) else {"bytes_per_s": 0.0, "cables": 0}
    sums = {key: before[key] + rate[key] for key in ("bytes_per_s", "cables")}
    graph.add_edge(a, b, **{**rate, **sums})


def _checked(topology: Topology, name: str, prefix: str, at: int) -> tuple[int, list[str]]:
    try:
        return ends_of(topology, name)
    except ValueError as problem:
        raise InputError(str(problem), field=f"pool.link.gateways[{at}].{prefix}") from None


def _open(side: Ground, nodes: set[str]) -> Ground:
    """An explicit graph in which devices that have a gateway pass on what comes from others."""
    spots = [spot for spot in side.spots[0] if spot.node in nodes]
    return Ground(_forwarding(side.graph, spots), side.spots)


def _nodes(side: Ground, topology: Topology, prefix: str, tier: int, own: int, names: list[str]) -> list[str]:
    """The nodes at which a gateway of a tier attaches, where units of `tier` are drawn."""
    if not topology.levels:
        node = f"{prefix}:{names[0]}"
        return [f"{node}.gate" if f"{node}.gate" in side.graph else node]
    by_name = {facts["name"].removeprefix(f"{prefix} "): node for node, facts in side.graph.nodes.items()
               if node.endswith(".gate")}  # fmt: skip
    if own == tier:
        return [
            by_name[name] if name else next(iter(by_name.values())) for name in names if name in by_name or not name
        ]
    found = []
    for name in names:
        switch = f"{prefix}:{name or topology.levels[-1].name}.switch"
        inside = [node for unit, node in sorted(by_name.items()) if not name or unit.startswith(f"{name}/")]
        if switch in side.graph:
            found.append(switch)
            continue
        # Units that are linked directly have no switch in common: the gateway is one, on each of them.
        port = f"{prefix}:{name or topology.levels[-1].name}.port"
        side.graph.add_node(port, type="switch", unit="", in_network_reduction=False, name=f"{prefix} {name}".strip())
        rates = [facts["bytes_per_s"] for _, _, facts in side.graph.edges(data=True)]
        side.graph.add_edges_from((node, port, {"bytes_per_s": max(rates), "latency_s": 0.0}) for node in inside)
        found.append(port)
    return found
