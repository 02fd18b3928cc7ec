"""What ranks send each other, and what that loads onto the links when they stand on given devices.

Contents: Demand, demand_of, partners_of, Routes, routes_of, link_seconds, Cost, cost_of, MAX_ROUTED_DEVICES.

Messages take the paths that an audit takes: the fastest kind of network that joins two devices, there all shortest
paths in equal shares (`topologies.routing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mapsearch.errors import InputError
from mapsearch.topologies.routing import Pairs, router_of

if TYPE_CHECKING:
    import networkx as nx

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

RINGS = ("tp", "cp", "dp", "etp", "edp")
"""Axes whose groups gather, scatter and reduce in rings in the order of the axis."""
MAX_ROUTED_DEVICES = 512
"""Devices up to which shares of all pairs on all links are kept."""


@dataclass(frozen=True)
class Demand:
    """Messages of one step, summed by pair of ranks."""

    source: Ints
    target: Ints
    sent_bytes: Floats


def demand_of(groups: Mapping[str, Ints], sent_bytes: Mapping[str, float], part: Ints | None = None) -> Demand:
    """Who sends what to whom, all groups of all axes at once.

    `sent_bytes`: bytes that one rank sends per step, by axis. TP, CP, DP, ETP and EDP send to the next member, round
    the ring; EP sends to all others alike; PP sends half of it to the next stage and half to the one before.
    `part`: a number per rank; ranks of a part are taken as one, and what they send each other is left out.
    """
    part = np.arange(1 + max(int(table.max(initial=0)) for table in groups.values())) if part is None else part
    size = 1 + int(part.max(initial=0))
    total = np.zeros(size * size)
    for axis, bytes_ in sent_bytes.items():
        table = part[groups[axis]]
        members = table.shape[1]
        if members == 1 or bytes_ == 0.0:
            continue
        for source, target, share in partners_of(axis, table):
            total += bytes_ * share * np.bincount(source * size + target, minlength=size * size)
    total[:: size + 1] = 0.0
    keys = np.flatnonzero(total)
    return Demand(keys // size, keys % size, total[keys])


def partners_of(axis: str, groups: Ints) -> Iterator[tuple[Ints, Ints, float]]:
    """Who sends to whom in the groups of an axis, and what share of what it sends. `groups`: (groups, members)."""
    for step, share in _steps(axis, groups.shape[1]):
        source, target = groups, np.roll(groups, -step, axis=1)
        if axis == "pp":  # a line, not a ring
            kept = slice(None, -1) if step == 1 else slice(1, None)
            source, target = source[:, kept], target[:, kept]
        yield source.ravel(), target.ravel(), share


def _steps(axis: str, members: int) -> list[tuple[int, float]]:
    """How many places on a member sends to, and what share of its bytes."""
    if axis in RINGS:
        return [(1, 1.0)]
    if axis == "pp":
        return [(1, 0.5), (-1, 0.5)]
    return [(step, 1.0 / (members - 1)) for step in range(1, members)]


@dataclass(frozen=True)
class Routes:
    """How messages between devices spread over links; links are directed, each cable counts twice."""

    devices: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    bytes_per_s: Floats
    first: Ints
    """(devices x devices + 1): where the entries of a pair begin; pairs count through the targets fastest."""
    link: Ints
    """(entries): number of the link."""
    share: Floats
    """(entries): share of the pair's messages on that link."""
    hops: Floats
    """(devices, devices): links on the way, on average over the paths."""

    def loads_bytes(self, source: Ints, target: Ints, sent_bytes: Floats) -> Floats:
        """Bytes on every link when devices, by index, send to devices."""
        pair = source * len(self.devices) + target
        begin, many = self.first[pair], self.first[pair + 1] - self.first[pair]
        owner = np.repeat(np.arange(len(pair)), many)
        place = np.arange(len(owner)) + np.repeat(begin - np.cumsum(many) + many, many)
        weights = sent_bytes[owner] * self.share[place]
        return np.bincount(self.link[place], weights=weights, minlength=len(self.links)).astype(np.float64)

    def spread(self, source: int, target: int) -> Floats:
        """Share of the messages of one pair on every link."""
        return self.loads_bytes(np.array([source]), np.array([target]), np.ones(1))


def routes_of(graph: nx.Graph[str], devices: Sequence[str]) -> Routes:
    """Routes between the given devices, as an audit takes them (`topologies.routing`).

    Raises InputError: too many devices, or two without a path.
    """
    if len(devices) > MAX_ROUTED_DEVICES:
        raise InputError(
            f"has {len(devices):,} devices that work, too many to route pair by pair (limit {MAX_ROUTED_DEVICES})"
        )
    router = router_of(graph)
    wires = router.wires
    node = np.array([wires.place[device] for device in devices], dtype=np.int64)
    one = np.ones(1)
    first, links, parts = [np.zeros(1, dtype=np.int64)], [], []
    hops = np.zeros((len(devices), len(devices)))
    for start in range(len(devices)):
        columns = [
            [] if end == start else [Pairs(node[start : start + 1], node[end : end + 1], one)]
            for end in range(len(devices))
        ]
        share = router.loads_bytes(columns)
        end, link = np.nonzero(share)
        links.append(link.astype(np.int64))
        parts.append(share[end, link])
        first.append(np.bincount(end, minlength=len(devices)))
        hops[start] = share.sum(axis=1)
    ends = [(wires.names[a], wires.names[b]) for a, b in zip(wires.tail.tolist(), wires.head.tolist(), strict=True)]
    return Routes(
        devices=tuple(devices),
        links=tuple(ends),
        bytes_per_s=wires.bytes_per_s,
        first=np.cumsum(np.concatenate(first)).astype(np.int64),
        link=np.concatenate(links),
        share=np.concatenate(parts),
        hops=hops,
    )


def link_seconds(routes: Routes, demand: Demand, seats: Ints) -> Floats:
    """Seconds that each link is busy per step. `seats`: the index of each rank's device."""
    return routes.loads_bytes(seats[demand.source], seats[demand.target], demand.sent_bytes) / routes.bytes_per_s


@dataclass(frozen=True, order=True)
class Cost:
    """What is minimised: first the seconds of the busiest link, then bytes times links on the way."""

    worst_s: float
    byte_hops: float

    def better(self, other: Cost) -> bool:
        """True when it is less, rounding aside."""
        if not np.isclose(self.worst_s, other.worst_s, rtol=1e-9, atol=0.0):
            return self.worst_s < other.worst_s
        return self.byte_hops < other.byte_hops * (1.0 - 1e-9)


def cost_of(routes: Routes, demand: Demand, seats: Ints) -> Cost:
    """The cost of ranks on seats."""
    hops = routes.hops[seats[demand.source], seats[demand.target]]
    return Cost(float(link_seconds(routes, demand, seats).max(initial=0.0)), float(demand.sent_bytes @ hops))
