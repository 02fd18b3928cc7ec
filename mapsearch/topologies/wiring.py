"""How the units of one tier are joined: kind, bandwidth out of each by cut, latency across.

Contents: Wiring, wire_tier, fastest_then_all, latency_across.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from mapsearch.topologies.confidence import NEAR, hops_across
from mapsearch.topologies.fabric import LevelKind
from mapsearch.topologies.grouping import SAME_CLASS, Grouping
from mapsearch.topologies.shapes import narrowest_cut, neighbourhoods, shape_of

ALL_PAIRS = 300
"""Units up to which every pair is checked for a switch in common."""


@dataclass
class Wiring:
    """One unit seen from its children."""

    kind: LevelKind
    dims: tuple[int, ...] = ()
    egress: dict[int, float] = field(default_factory=dict)
    """Child: bytes/s out of it towards its siblings, one way, by maximum flow from its devices."""
    regular: bool = True
    in_network_reduction: bool = False
    spread: tuple[float, float] | None = None
    """Weakest and strongest direct link between children, bytes/s one way; None where switches join them."""
    alone: float = 1.0
    """Of no regular shape: what the slowest child sends alone, over what the narrowest cut leaves it."""
    hops: int = 1
    """Of no regular shape: from its first child to the farthest one."""


Port = tuple[int, str, float, str | int]
"""A link out of a child: the child, its node, bytes/s, and the switch or sibling behind it."""


@dataclass
class _Inside:
    """Links inside one unit, between its children and its own switches."""

    linked: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    into: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    ports: list[Port] = field(default_factory=list)


def wire_tier(grouping: Grouping, tier: int, inner: Mapping[int, float]) -> tuple[dict[int, Wiring], dict[int, float]]:
    """The wiring of every unit of a tier that has more than one child, and bytes/s out of each child by any link.

    `inner`: bytes/s out of the units two tiers inside by any link, as found when the tier before was wired.
    """
    units = grouping.units
    parents = grouping.tiers[tier]
    child_of: dict[str, int] = {}
    home: dict[str, int] = {}
    for number in parents:
        for child in units[number].children:
            child_of |= dict.fromkeys(units[child].nodes, child)
            home |= dict.fromkeys(units[child].nodes, number)
        home |= dict.fromkeys(units[number].transit[: units[number].formed_with], number)
    inside: dict[int, _Inside] = {number: _Inside() for number in parents}
    within: dict[int, list[tuple[str, str, float]]] = defaultdict(list)
    leaving: list[Port] = []
    for a, b, rate in grouping.links:
        first, second = child_of.get(a), child_of.get(b)
        if first is not None and first == second:
            within[first].append((a, b, rate))
            continue
        leaving += [(child, node, rate, "") for child, node in ((first, a), (second, b)) if child is not None]
        inside_of = home.get(a)
        if inside_of is not None and inside_of == home.get(b):
            _note(inside[inside_of], (a, first), (b, second), rate)
    flows = _Flows(grouping, within, inner)
    wirings = {
        number: _wiring(grouping, number, inside[number], flows)
        for number in parents
        if len(units[number].children) > 1
    }
    return wirings, flows.egress([child for number in parents for child in units[number].children], leaving)


def _note(inside: _Inside, one: tuple[str, int | None], other: tuple[str, int | None], rate: float) -> None:
    for (node, child), (far, sibling) in ((one, other), (other, one)):
        if child is not None:
            inside.ports.append((child, node, rate, far if sibling is None else sibling))
            if sibling is None:
                inside.into[far][child] += rate
            else:
                inside.linked[child][sibling] += rate


def _wiring(grouping: Grouping, number: int, inside: _Inside, flows: _Flows) -> Wiring:
    """Kind by the stronger of direct links and switches; what has no regular shape becomes its narrowest cut."""
    children = grouping.units[number].children
    shared = {switch: rates for switch, rates in inside.into.items() if len(rates) > 1}
    straight = sum(sum(others.values()) for others in inside.linked.values())
    switched = sum(sum(rates.values()) for rates in shared.values())
    if straight > switched:
        for linked in fastest_then_all(inside.linked, children):
            shape = shape_of(linked)
            if shape:
                ports = [port for port in inside.ports if port[3] in linked[port[0]]]
                return Wiring(*shape, flows.egress(children, ports), spread=_spread(linked, shape[1]))
    for switches in (_own_switches(grouping, number, shared), list(shared)):
        if _all_meet(children, [shared[switch] for switch in switches]):
            chosen = set(switches)
            egress = flows.egress(children, [port for port in inside.ports if port[3] in chosen])
            reduces = all(grouping.graph.nodes[switch]["in_network_reduction"] for switch in switches)
            return Wiring("switch", (), egress, in_network_reduction=reduces)
    return _shapeless(children, inside, shared, flows)


def _spread(linked: Mapping[int, Mapping[int, float]], dims: tuple[int, ...]) -> tuple[float, float]:
    """Weakest and strongest link; an axis of 2 has both its links to one neighbour, which is no difference.

    Two axes of 2 are known as one of 4.
    """
    rates = {rate for others in linked.values() for rate in others.values()}
    low = min(rates)
    double = 2.0 * low if {2, 4} & {*dims} else float("inf")
    return low, max(rate / 2.0 if double <= rate * NEAR and rate <= double * NEAR else rate for rate in rates)


def _shapeless(
    children: list[int], inside: _Inside, shared: Mapping[str, Mapping[int, float]], flows: _Flows
) -> Wiring:
    """Units in no regular shape: a switch with the bandwidth that uniform traffic gets through the narrowest cut."""
    egress = flows.egress(children, inside.ports)
    switches = list(shared.values())
    linked = {child: inside.linked.get(child, {}) for child in children}
    joined = neighbourhoods(linked, switches)
    cut = narrowest_cut(linked, switches, joined)
    return Wiring(
        "switch",
        (),
        {child: min(rate, cut) for child, rate in egress.items()},
        regular=False,
        alone=min(egress.values()) / cut,
        hops=hops_across(joined, children[0]),
    )


def fastest_then_all(
    linked: Mapping[int, Mapping[int, float]], children: list[int]
) -> Iterator[dict[int, dict[int, float]]]:
    """Links between children: the fastest class alone, then all; slower links may only fill in a ring or mesh."""
    top = max(rate for others in linked.values() for rate in others.values())
    for least in (SAME_CLASS * top, 0.0):
        yield {
            child: {other: rate for other, rate in linked.get(child, {}).items() if rate >= least} for child in children
        }


def _own_switches(grouping: Grouping, number: int, shared: Mapping[str, Mapping[int, float]]) -> list[str]:
    """The switches that make this tier.

    When the fastest ones lead nowhere else, slower ones that do (the leaf of an island's NICs) belong further out.
    """
    unit = grouping.units[number]
    inside = {*unit.nodes[: len(unit.nodes) - len(unit.transit)], *unit.transit[: unit.formed_with]}
    outward = {switch for switch in shared if any(other not in inside for other in grouping.graph.adj[switch])}
    speed = {switch: sum(rates.values()) / len(rates) for switch, rates in shared.items()}
    top = max(speed.values(), default=0.0)
    fast = {switch for switch in shared if speed[switch] >= SAME_CLASS * top}
    if fast & outward:
        return list(shared)
    return [switch for switch in shared if switch in fast or switch not in outward]


def _all_meet(children: list[int], switches: list[Mapping[int, float]]) -> bool:
    """True when any two children share a switch."""
    at: dict[int, set[int]] = {child: set() for child in children}
    for index, rates in enumerate(switches):
        for child in rates:
            at[child].add(index)
    if set.intersection(*at.values()):
        return True
    if len(children) > ALL_PAIRS or not all(at.values()):
        return False
    return all(at[one] & at[other] for index, one in enumerate(children) for other in children[:index])


@dataclass
class _Flows:
    """Maximum flows out of units, remembered by wiring, since siblings are mostly alike."""

    grouping: Grouping
    within: Mapping[int, list[tuple[str, str, float]]]
    inner: Mapping[int, float]
    known: dict[object, float] = field(default_factory=dict)

    def egress(self, children: list[int], ports: Iterable[Port]) -> dict[int, float]:
        """Bytes/s from the devices of each child through its ports."""
        by_child: dict[int, dict[str, float]] = {child: defaultdict(float) for child in children}
        for child, node, rate, _ in ports:
            by_child[child][node] += rate
        return {child: self._flow(child, ports_of) for child, ports_of in by_child.items()}

    def _flow(self, number: int, ports: Mapping[str, float]) -> float:
        units, unit = self.grouping.units, self.grouping.units[number]
        total = sum(ports.values())
        parts = [(units[child].nodes, self.inner.get(child, float("inf"))) for child in unit.children]
        parts = parts or [(unit.nodes[:1], float("inf"))]  # a device, and the NICs and switches that it took in
        place: dict[str, int] = {}
        for index, (nodes, _) in enumerate(parts):
            place |= dict.fromkeys(nodes, index)
        place |= {node: index for index, node in enumerate(unit.transit, start=len(parts))}
        out: dict[int, float] = defaultdict(float)
        for node, rate in ports.items():
            out[place[node]] += rate
        links: dict[tuple[int, int], float] = defaultdict(float)
        for a, b, rate in self.within[number]:
            if place[a] != place[b]:
                links[min(place[a], place[b]), max(place[a], place[b])] += rate
        limits = [limit for _, limit in parts]
        if all(index < len(limits) and rate <= limits[index] for index, rate in out.items()):
            return total  # every port is at a child that can fill it
        key = (tuple(limits), tuple(sorted(links.items())), tuple(sorted(out.items())))
        if key not in self.known:
            self.known[key] = _maximum_flow(limits, links, out)
        return self.known[key]


def _maximum_flow(limits: list[float], links: Mapping[tuple[int, int], float], out: Mapping[int, float]) -> float:
    network: nx.DiGraph[Any] = nx.DiGraph()
    for index, limit in enumerate(limits):
        network.add_edge("devices", index, **({} if limit == float("inf") else {"capacity": limit}))
    for (a, b), rate in links.items():
        network.add_edge(a, b, capacity=rate)
        network.add_edge(b, a, capacity=rate)
    for index, rate in out.items():
        network.add_edge(index, "out", capacity=rate)
    return float(nx.maximum_flow_value(network, "devices", "out"))


def latency_across(grouping: Grouping, number: int, kind: LevelKind) -> float:
    """Seconds from a device to the nearest one of a sibling: the farthest sibling, or the next one if units are linked.

    The sum over the links of the quickest path inside the unit.
    """
    units, graph = grouping.units, grouping.graph
    unit = units[number]
    first, *siblings = unit.children
    sibling_of = {node: child for child in siblings for node in units[child].nodes}
    allowed = {*sibling_of, *units[first].nodes, *unit.transit[: unit.formed_with]}
    start = next(node for node in units[first].nodes if graph.nodes[node]["type"] == "device")
    nearest: dict[int, float] = {}
    done: set[str] = set()
    queue = [(0.0, start)]
    while queue and len(nearest) < len(siblings):
        seconds, node = heapq.heappop(queue)
        if node in done:
            continue
        done.add(node)
        child = sibling_of.get(node)
        if child is not None and graph.nodes[node]["type"] == "device" and child not in nearest:
            nearest[child] = seconds
            if kind != "switch":
                break
        for other, link in graph.adj[node].items():
            if other in allowed and other not in done:
                heapq.heappush(queue, (seconds + link["latency_s"], other))
    return max(nearest.values())
