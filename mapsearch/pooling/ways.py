"""The way between the pools on the graph: what each side's devices get of it, its busiest link and its narrowest cut.

Contents: Way, Ways, relay_bytes_per_s, check_gateways, route.

Where one cluster is split, traffic crosses its outermost level: the links between outer units where that level is a
ring, torus or mesh or the cluster is given as a graph, each unit's uplink where it is a switch. Where rollout has a
cluster of its own it crosses the gateways and each side's way to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mapsearch.costs.transfer import Route, transfer_parts_s
from mapsearch.errors import InputError
from mapsearch.topologies.between import (
    MOST_PAIRS,
    Gateway,
    Ground,
    Spot,
    ends_of,
    first_spots,
    joined_ground,
    split_ground,
)
from mapsearch.topologies.fabric import Fabric, Level
from mapsearch.topologies.hierarchy import regular_members
from mapsearch.topologies.spec import Topology
from mapsearch.units import RATE, render

if TYPE_CHECKING:
    from mapsearch.pooling.layouts import Bytes
    from mapsearch.pooling.problem import Part, Pools
    from mapsearch.pooling.replicas import Offer
    from mapsearch.pooling.split import Pair

MOST_LINKED = 256
"""Outer units in a ring, torus or mesh between which traffic is routed."""
MOST_NODES = 2048
"""Nodes of an explicit graph on which it is."""
NAMED = 3
"""Links of a cut that are named one by one."""


_Spots = Sequence[Spot]
_Ends = tuple[_Spots, _Spots, tuple[_Spots, _Spots]]


class Way(NamedTuple):
    """One division's way between the pools, for traffic that is spread evenly over senders and receivers."""

    send_bytes_per_s: float
    """A training device's own way out."""
    receive_bytes_per_s: float
    relay_bytes_per_s: float
    """Between devices of neighbouring replicas."""
    link_s_per_byte: float = 0.0
    """Of the busiest link, as routed."""
    link: str = ""
    cut_s_per_byte: float = 0.0
    """Of the cut that the same traffic cannot pass faster, however it is routed."""
    cut: tuple[str, ...] = ()
    narrowest_bytes_per_s: float = math.inf
    """Of the cut between all devices of both pools."""
    narrowest: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ways:
    """The ways of one question, kept by division."""

    pools: Pools
    _kept: dict[tuple[object, ...], Way] = field(default_factory=dict)

    def way(self, part: Part, offer: Offer) -> Way:
        """The way from a division's training side to the replicas of an offer."""
        path = self.pools.rollout.publishing.path
        count = 1 if path == "tree" else offer.replicas
        used = self._used(part, offer.shape.devices, count)
        key = (
            part.key,
            part.training.fabric.devices,
            part.rollout_devices,
            used,
            offer.shape.rows[1] if path == "tree" else (),
        )
        if key not in self._kept:
            self._kept[key] = self._found(part, offer, used)
        return self._kept[key]

    def routed_s(self, pair: Pair, path: Route, table: Bytes) -> float | None:
        """The transfer with the pair's own layouts, routed on the graph. None where no graph is known, or with holes.

        Each rank's messages go where the ranks stand; a device's own way out and in count as in the model. Unit: s.
        """
        part, ground = pair.part, self._ground or self._drawn
        fabrics = part.training.fabric, part.serving.fabric
        if ground is None or part.trains or any(one.site or any(level.dims for level in one.levels) for one in fabrics):
            return None
        nodes = [
            _in_order(spots, topology, side, apart=self.pools.own is not None)
            for spots, topology, side in zip(
                self._spots(part, 0, ground)[2],
                (self.pools.built, self.pools.own or self.pools.built),
                ("training", "rollout"),
                strict=True,
            )
        ]
        each = fabrics[0].devices // len(nodes[0]), fabrics[1].devices // len(nodes[1])
        if len(nodes[0]) * len(nodes[1]) > MOST_PAIRS:
            return None
        from mapsearch.pooling.layouts import spot_bytes

        link_s = ground.carried_s(nodes[0], nodes[1], spot_bytes(self.pools, pair, table, each))
        parts = {**transfer_parts_s(path), "link": link_s}
        return max(seconds for name, seconds in parts.items() if name != "fill") + parts["fill"]

    def device_bytes_per_s(self, part: Part) -> float:
        """What one device of either pool has of the way between them, before links that it shares with others."""
        return self.pools.rollout.pool.link.bandwidth or min(self._own(part))

    @cached_property
    def _drawn(self) -> Ground | None:
        """Outer units around their switch, which the search knows without a graph."""
        pools = self.pools
        if pools.own is not None or pools.built.nodes or pools.rollout.pool.link.bandwidth is not None:
            return None
        return split_ground(pools.topology, (), pools.inputs.facts.profile.point_to_point.peak)

    def _used(self, part: Part, devices: int, replicas: int) -> int:
        """Devices of the rollout pool over which so many replicas lie: whole outer units where it is a split."""
        if self.pools.own is not None:
            return replicas * devices
        unit, count = self.pools.unit_devices, len(self._serving(part))
        span = -(-devices // unit)
        return unit * (min(count, replicas) if span == 1 and replicas < count else span * min(count // span, replicas))

    def _found(self, part: Part, offer: Offer, used: int) -> Way:
        relay = relay_bytes_per_s(offer, part.serving.fabric, part.serving.profile.point_to_point.peak)
        link = self.pools.rollout.pool.link
        if link.bandwidth is not None:
            return Way(link.bandwidth, link.bandwidth, relay)
        send, receive = self._own(part)
        ground = self._ground
        outer = self.pools.topology.levels[-1] if self.pools.own is None else None
        if ground is None:
            if outer is None or outer.kind != "switch" or self.pools.own is not None:
                return Way(send, receive, relay)
            return _switched(self._uplink(part), part, self._spots(part, used, ground), (send, receive, relay))
        sources, sinks, every = self._spots(part, used, ground)
        routed = ground.routed(sources, sinks)
        seconds, name = routed if routed is not None else (0.0, "")
        cut_s, cut = ground.tightest(sources, sinks)
        narrowest, links = ground.narrowest(*every)
        # A sum of shares is not exact: no routing is faster than the cut.
        return Way(send, receive, relay, max(seconds, cut_s), name, cut_s, cut, narrowest, links)

    def _own(self, part: Part) -> tuple[float, float]:
        """What one device has of its own cluster's levels on its way to the other pool, out and in."""
        fabrics = (part.training.fabric, part.serving.fabric)
        shares = [profile.point_to_point.peak for profile in (part.training.profile, part.serving.profile)]
        gateways = self.pools.rollout.pool.link.gateways
        if gateways and self.pools.own is not None:
            out = _crossed(self.pools.built, [gateway.training for gateway in gateways], fabrics[0])
            into = _crossed(self.pools.own, [gateway.rollout for gateway in gateways], fabrics[1])
            return out.bytes_per_s * shares[0], into.bytes_per_s * shares[1]
        if self.pools.own is None:
            outer = part.training.fabric.levels[-1] if part.trains else self.pools.outer
            return outer.bytes_per_s * shares[0], outer.bytes_per_s * shares[0]
        least = min(fabric.levels[-1].bytes_per_s * share for fabric, share in zip(fabrics, shares, strict=True))
        return least, least

    def _uplink(self, part: Part) -> float:
        return self.pools.outer.bytes_per_s * part.training.profile.point_to_point.peak * self.pools.unit_devices

    @cached_property
    def _ground(self) -> Ground | None:
        """The graph with both pools in it; None where levels say all of it, or it is too large to route on."""
        pools = self.pools
        share = pools.inputs.facts.profile.point_to_point.peak
        gateways = pools.rollout.pool.link.gateways
        if pools.own is not None:
            if not gateways:
                return None
            links = [Gateway(one.training, one.rollout, one.bytes_per_s, one.count) for one in gateways]
            serving = pools.part(0).serving.profile.point_to_point.peak
            return joined_ground(pools.built, pools.own, links, (share, serving))
        if pools.built.nodes:
            return split_ground(pools.built, pools.members, share) if len(pools.built.nodes) <= MOST_NODES else None
        outer = pools.topology.levels[-1]
        return split_ground(pools.topology, (), share) if outer.kind != "switch" and outer.size <= MOST_LINKED else None

    def _serving(self, part: Part) -> tuple[int, ...]:
        """Outer units of the rollout pool: those next to training, where some stay unused."""
        most = self.pools.units - part.units
        return part.serves or tuple(
            part.units + at for at in range(min(most, part.rollout_devices // self.pools.unit_devices))
        )

    def _spots(self, part: Part, used: int, ground: Ground | None) -> _Ends:
        """Senders, receivers, and all devices of both pools."""
        pools = self.pools
        if pools.own is not None and ground is not None:
            # Clusters of their own may be used in part.
            counts = part.training.fabric.devices, part.rollout_devices
            sites = part.training.fabric.site, part.serving.fabric.site
            sending, receiving = (
                spots if site else first_spots(spots, count)
                for spots, count, site in zip(ground.spots, counts, sites, strict=True)
            )
        else:
            units = ground.spots if ground is not None else self._sizes
            trains = part.trains or tuple(range(part.units))
            both = trains, self._serving(part)
            sending, receiving = (tuple(spot for at in side for spot in units[at]) for side in both)
        publishing = pools.rollout.publishing
        senders = sending if publishing.path == "all" else first_spots(sending, publishing.source_devices)
        return senders, first_spots(receiving, used), (sending, receiving)

    @cached_property
    def _sizes(self) -> list[tuple[Spot, ...]]:
        """Outer units around a switch, by their devices alone."""
        pools = self.pools
        counts = [unit.working for unit in pools.unlike] or [pools.unit_devices] * pools.units
        return [(Spot(str(at), count),) for at, count in enumerate(counts)]


def _in_order(spots: Sequence[Spot], topology: Topology, side: str, *, apart: bool) -> list[str]:
    """Nodes of spots in the order in which mappings fill the cluster; those of a split stand so already."""
    if not apart or topology.levels:
        return [spot.node for spot in spots]
    return [f"{side}:{name}" for name in regular_members(topology)]


def _switched(uplink_bytes_per_s: float, part: Part, spots: _Ends, own: tuple[float, float, float]) -> Way:
    """Outer units around one switch: the uplink of a unit of the smaller side is the busiest, without routing."""
    senders, receivers, _ = spots
    seconds = [
        max(spot.devices for spot in side) / sum(spot.devices for spot in side) / uplink_bytes_per_s
        for side in (senders, receivers)
    ]
    outer = part.training.fabric.levels[-1].name
    words = (f"a training unit's uplink to the {outer}", f"a rollout unit's uplink to the {outer}")
    worst = max(seconds)
    name = words[seconds.index(worst)]
    fewer = min(len(side) for side in spots[2])
    return Way(*own, worst, name, worst, (name,), fewer * uplink_bytes_per_s, (words[0],))


def _crossed(topology: Topology, names: Sequence[str], fabric: Fabric) -> Level:
    """The level that a device's traffic crosses to the gateways: a level's own where each of its units has one, else
    the outermost."""
    if not topology.levels:
        return fabric.levels[-1]
    called = {level.name for level in topology.levels}
    tiers = [ends_of(topology, name)[0] for name in names if name in called]
    return fabric.levels[min(tiers) - 1] if tiers else fabric.levels[-1]


def relay_bytes_per_s(offer: Offer, fabric: Fabric, share: float) -> float:
    """Bandwidth between devices of neighbouring replicas: of the outermost level with more than one of them inside."""
    outside = [
        level.bytes_per_s
        for level, ways in zip(fabric.levels, offer.shape.rows[1], strict=True)
        if level.size // ways > 1
    ]
    return share * (outside[-1] if outside else fabric.levels[-1].bytes_per_s)


def check_gateways(pools: Pools) -> None:
    """Refuse gateways of a cluster that is split, and those that join what is not there. Raises InputError."""
    gateways = pools.rollout.pool.link.gateways
    if pools.own is None and gateways:
        raise InputError(
            f"join two clusters, the first at {render(gateways[0].bytes_per_s, RATE)}, but rollout has no own one; "
            "name it as pool.topology, or leave the gateways out: a cluster that is split is joined by its own levels",
            file=pools.rollout_name,
            field="pool.link.gateways",
        )
    for at, gateway in enumerate(gateways):
        for side, topology in (("training", pools.built), ("rollout", pools.own or pools.built)):
            try:
                ends_of(topology, getattr(gateway, side))
            except ValueError as problem:
                where = f"pool.link.gateways[{at}].{side}"
                raise InputError(str(problem), file=pools.rollout_name, field=where) from None


def route(
    way: Way,
    *,
    path: str,
    volume_bytes: float,
    received_bytes: float,
    replica_bytes: float,
    replicas: int,
    sources: float,
    latency_s: float,
) -> Route:
    """A way with what goes over it."""
    return Route(
        path=path,
        volume_bytes=volume_bytes,
        received_bytes=received_bytes,
        replica_bytes=replica_bytes,
        replicas=replicas,
        sources=sources,
        bytes_per_s=way.send_bytes_per_s,
        latency_s=latency_s,
        receive_bytes_per_s=way.receive_bytes_per_s,
        relay_bytes_per_s=way.relay_bytes_per_s,
        link_s_per_byte=way.link_s_per_byte,
        narrowest_bytes_per_s=way.narrowest_bytes_per_s,
    )
