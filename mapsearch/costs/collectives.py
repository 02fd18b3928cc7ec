"""Seconds of one collective of a group that is placed over the levels of a fabric (FORMULAS 4.1, 4.4).

Contents: all_gather_s, reduce_scatter_s, all_reduce_s, all_to_all_s, loads_s, point_to_point_s, ring_steps,
tree_steps, crossing_bytes, QUANTITIES.

How a group is charged. Cut a level: the bytes that must leave a unit of the level below, shared by the devices of
that unit, load the level's bandwidth (F4.4; all groups of an axis run at once, so every device of the unit is busy
for its own group). Traffic that goes further out is counted at every switch on its way, up to where devices have ports
of their own (`Fabric.carries`); links of a mesh, ring or torus carry what stays in their unit. The levels work at the
same time, so the transfer takes the *largest* load over bandwidth; start-up costs come on top. A group of one costs
nothing. Every message is charged `half_bytes` more than it carries, which is the saturation curve
V / (V + V_half) of F4.1; for an all-to-all that is the post cost a' of each peer.

Rings of gathers go level by level, or flat through the whole group, as the profile says (`Profile.rings`).

Rows are integer arrays with the level last, innermost first: S + (J,) where payloads have shape S. `inner_row`: ways of
what stands inside the group on each level, which is how far apart its members are on a ring or torus; without it they
are neighbours. Forms of rings and tori: tori.py.
Ignores: other axes' traffic on the same link (the caller adds loads), and dead links (the fabric's levels already show
them).
"""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass

from numpy.typing import NDArray

from mapsearch import arrays as np
from mapsearch.costs.tori import torus_cut
from mapsearch.inventories.profile import CollectiveEfficiency, Profile, Rings
from mapsearch.quantity import Floats, Num
from mapsearch.topologies.fabric import Fabric, Level


@dataclass(frozen=True)
class _Cut:
    """What a group sees of one level; every field has the shape of the group's size."""

    ways: Floats
    """Units of the level below that the group uses inside one unit of this level."""
    inside: Floats
    """Members in one unit of the level below."""
    outer_units: Floats
    """Units of this level that the group spans."""
    share: Floats
    """Share of the level's bandwidth that a pipelined collective can use."""
    exchange: Floats
    """All-to-all inside the level: seconds times bandwidth per byte that a member sends into the level's unit."""
    steps: Floats
    """Steps of a ring through the level's units."""
    hops: Floats
    """Latencies between the two farthest members of one unit of the level."""
    link: Floats
    """Share of the level's bandwidth on the way to the next member."""
    onward: Floats
    """Latencies to the next member."""
    tree: Floats
    """Steps of a tree through the level's units."""
    carried: Floats
    """Members inside the unit whose traffic goes through this level's ports: all where the outer levels' does."""

    @property
    def crossed(self) -> Floats:
        """1 where the group has members in more than one unit of the level below, in one unit of this level."""
        return _floats(self.ways > 1)

    def outside(self, size: Floats) -> Floats:
        """Share of the members that are outside one unit of the level below."""
        return 1.0 - self.inside / size


_floats = np.floats
_Shape = tuple[Floats, Floats, Floats, Floats, Floats, Floats]
"""share, exchange, steps, hops, link and onward of a cut."""


def _switch_cut(ways: Floats) -> _Shape:
    one = np.ones_like(ways)
    return one, (ways - 1.0) / ways, ways - 1.0, np.minimum(ways - 1.0, 1.0), one, one


def _mesh_cut(ways: Floats, size: int) -> _Shape:
    """A device has a link to each of size - 1 peers and uses those to its own group."""
    share = np.maximum(ways - 1.0, 1.0) / max(size - 1.0, 1.0)
    one, one_step = np.ones_like(ways), np.minimum(ways - 1.0, 1.0)
    return share, (ways - 1.0) / ways / share, one_step, one_step, one / max(size - 1.0, 1.0), one


def _cuts(row: Num, fabric: Fabric, inner_row: Num) -> tuple[list[_Cut], Floats]:
    """The cuts of a group at every level, and its size."""
    cut_ways = np.asarray(row, dtype=np.int64)
    count = len(fabric.levels)
    if cut_ways.shape[-1:] != (count,):
        raise ValueError(f"a row of shape {cut_ways.shape} does not fit {count} levels")
    apart = None if inner_row is None or not fabric.linked else np.asarray(inner_row, dtype=np.int64)
    if cut_ways.ndim > 1 or np.ndim(apart) > 1:
        return _every_cut(cut_ways, fabric, apart)
    return _cuts_of(fabric, None if apart is None else tuple(apart.tolist()), *cut_ways.tolist())


@np.remembered()
def _cuts_of(fabric: Fabric, apart: tuple[int, ...] | None, *ways: int) -> tuple[list[_Cut], Floats]:
    places = None if apart is None else np.asarray(apart, dtype=np.int64)
    return _every_cut(np.asarray(ways, dtype=np.int64), fabric, places)


# Several collectives of a table follow one another on the same rows.
@np.remembered(records=3, most=8)
def _every_cut(
    cut_ways: NDArray[np.int64], fabric: Fabric, apart: NDArray[np.int64] | None
) -> tuple[list[_Cut], Floats]:
    ways = [_floats(cut_ways[..., index]) for index in range(len(fabric.levels))]
    within = list(itertools.accumulate(ways, operator.mul))
    size = within[-1]
    cuts: list[_Cut] = []
    inside = np.ones_like(size)
    for index, level in enumerate(fabric.levels):
        here = ways[index]
        shape: _Shape
        if level.kind == "switch":
            shape = _switch_cut(here)
        elif level.kind == "full_mesh":
            shape = _mesh_cut(here, level.size)
        else:
            shape = torus_cut(cut_ways[..., index], 1 if apart is None else apart[..., index], level)
        # NCCL's trees are chains inside the innermost tier and binary outside of it.
        tree = np.ceil(np.log2(here)) if index else here - 1.0
        cuts.append(_Cut(here, inside, size / within[index], *shape, tree, within[fabric.carries[index]]))
        inside = within[index]
    return cuts, size


def _rate(level: Level, efficiency: CollectiveEfficiency) -> float:
    """Bytes per second and device that this kind of collective reaches on a level."""
    inner = efficiency.high_bandwidth_peak
    share = inner if level.high_bandwidth and inner is not None else efficiency.peak
    return level.bytes_per_s * share


def _pipelined(cut: _Cut, size: Floats, level: Level, rings: Rings) -> Floats:
    """Share of the full tensor that each device moves across a level in an all-gather, over the level's bandwidth.

    Level by level (1 - k/P) / k, with k members in the unit below and P in the one whose traffic goes through these
    ports: every unit must receive what it has not (F4.4). Flat rings, as many as members in the innermost unit, carry
    (1 - 1/p) of their parts of the tensor into every unit: (1 - 1/p) / k, less what goes on at other ports. Links of a
    mesh, ring or torus carry what stays in their unit.
    """
    lacking = (1.0 - cut.inside / cut.carried) / cut.inside
    if level.kind != "switch":
        return np.maximum(lacking, (1.0 - 1.0 / cut.ways) / (cut.inside * cut.share))
    if rings == "levels":
        return np.asarray(lacking)
    passing = np.where(cut.carried < size, 1.0 / cut.carried, 0.0)
    return np.asarray(_floats(cut.carried > cut.inside) * (1.0 - 1.0 / size) * (1.0 / cut.inside - passing))


def _exchanged(cut: _Cut, size: Floats, level: Level) -> Floats:
    """All-to-all bytes across a level, per byte that a rank sends, over the level's bandwidth.

    (P - k)/p, all that leaves the unit below through these ports. Mesh, ring, torus: also what stays in the level's
    unit, by the direct, ring or torus form of F4.1.
    """
    leaving = (cut.carried - cut.inside) / size
    if level.kind == "switch":
        return np.asarray(leaving)
    return np.maximum(leaving, cut.crossed * cut.exchange * cut.inside * cut.ways / size)


def crossing_bytes(payload_bytes: Num, row: Num, *, fabric: Fabric, exchange: bool = False) -> Floats:
    """Bytes that each device moves out of its unit at each level, shape S + (J,).

    All-gather or reduce-scatter of a full tensor: V (1 - k/p) / k; all-to-all of v sent bytes: v (1 - k/p), where k
    members share a unit of the level below. Unit: bytes. Source: F4.4.
    """
    cuts, size = _cuts(row, fabric, None)
    loads = [cut.outside(size) / (1.0 if exchange else cut.inside) for cut in cuts]
    return np.asarray(np.expand_dims(_floats(payload_bytes), -1) * np.stack(loads, axis=-1))


def ring_steps(row: Num, *, fabric: Fabric) -> Floats:
    """Steps of a ring that stays as long as it can inside each unit, by level, shape S + (J,).

    They add up to p - 1 on switches: 112 + 15 for 16 nodes of 8. Unit: steps. Source: F4.1.
    """
    return np.stack(_ring_steps(_cuts(row, fabric, None)[0]), axis=-1)


def tree_steps(row: Num, *, fabric: Fabric) -> Floats:
    """Steps from the leaves to the root of a tree, by level: a chain innermost, binary outside, shape S + (J,).

    Unit: steps. Source: F4.1.
    """
    return np.stack([cut.tree for cut in _cuts(row, fabric, None)[0]], axis=-1)


def _ring_steps(cuts: list[_Cut]) -> list[Floats]:
    return [cut.steps * cut.outer_units for cut in cuts]


def _latency_s(steps: list[Floats], fabric: Fabric) -> Floats:
    """Steps by level times the latency of the level. Unit: s."""
    each = (count * level.latency_s for count, level in zip(steps, fabric.levels, strict=True))
    return np.asarray(sum(each))


def _alone(size: Floats) -> bool:
    """True for one group of one, whose collectives cost nothing."""
    return np.plain(size) and bool(size == 1)


def _priced(time: Floats, size: Floats, efficiency: CollectiveEfficiency) -> Floats:
    """Add the launch, and make a group of one free."""
    return np.where(size > 1, time + efficiency.launch, 0.0)


def all_gather_s(payload_bytes: Num, row: Num, *, fabric: Fabric, profile: Profile, inner_row: Num = None) -> Floats:
    """Seconds of an all-gather whose result is `payload_bytes` (the FULL tensor).

    launch + sum_j steps_j a_j + max_j V' (1 - k/p) / k / B_j, V' = V + p * half_bytes; on one switch that is
    (n-1) a + (n-1)/n * V/B. Flat rings: (1 - 1/p) / k. Unit: s. Source: F4.1, F4.4 (NCCL has rings only).
    """
    efficiency = profile.all_gather
    cuts, size = _cuts(row, fabric, inner_row)
    payload = _floats(payload_bytes) + size * efficiency.half_bytes
    if _alone(size):
        return np.zeros_like(payload)
    transfer = np.zeros_like(payload)
    for cut, level in zip(cuts, fabric.levels, strict=True):
        time = payload * _pipelined(cut, size, level, profile.rings) / _rate(level, efficiency)
        transfer = np.maximum(transfer, time)
    return _priced(_latency_s(_ring_steps(cuts), fabric) + transfer, size, efficiency)


def reduce_scatter_s(
    payload_bytes: Num, row: Num, *, fabric: Fabric, profile: Profile, inner_row: Num = None
) -> Floats:
    """Seconds of a reduce-scatter of `payload_bytes` (the FULL tensor): an all-gather backwards.

    Unit: s. Source: F4.1. Ignores: the additions.
    """
    return all_gather_s(payload_bytes, row, fabric=fabric, profile=profile, inner_row=inner_row)


def all_reduce_s(payload_bytes: Num, row: Num, *, fabric: Fabric, profile: Profile, inner_row: Num = None) -> Floats:
    """Seconds of an all-reduce of `payload_bytes` (the FULL tensor): the faster of ring and tree.

    Ring: 2 sum_j steps_j a_j + max_j 2 V' (1 - k/p) / k / B_j. Tree: 2 sum_j tree_j a_j + max_j 2 V' / k / B_j, half of
    that between two units, each of which sends the tensor once (NCCL issue 812). A level that reduces in the network
    takes V' / k in 2 steps instead, where that is less. Unit: s. Source: F4.1.
    """
    efficiency = profile.all_reduce
    cuts, size = _cuts(row, fabric, inner_row)
    payload = _floats(payload_bytes) + size * efficiency.half_bytes
    if _alone(size):
        return np.zeros_like(payload)
    ring_transfer = tree_transfer = np.zeros_like(payload)
    steps = [2.0 * count for count in _ring_steps(cuts)]
    for index, (cut, level) in enumerate(zip(cuts, fabric.levels, strict=True)):
        ring_share = 2.0 * _pipelined(cut, size, level, profile.rings)
        passes = np.where((level.kind == "switch") & (cut.carried == 2.0 * cut.inside), 1.0, 2.0)
        tree_share = passes * _floats(ring_share > 0) / (cut.inside * cut.share)
        if level.in_network_reduction:
            ring_share = np.minimum(ring_share, 1.0 / cut.inside)
            steps[index] = np.minimum(steps[index], 2.0)
        rate = _rate(level, efficiency)
        ring_transfer = np.maximum(ring_transfer, payload * ring_share / rate)
        tree_transfer = np.maximum(tree_transfer, payload * tree_share / rate)
    ring = _latency_s(steps, fabric) + ring_transfer
    tree = 2.0 * _latency_s([cut.tree for cut in cuts], fabric) + tree_transfer
    return _priced(np.minimum(ring, tree), size, efficiency)


def all_to_all_s(payload_bytes: Num, row: Num, *, fabric: Fabric, profile: Profile, inner_row: Num = None) -> Floats:
    """Seconds of an all-to-all in which one rank sends `payload_bytes` in total, its own share included.

    launch + max_j a_j (all messages are posted at once) + max_j v' (1 - k/p) / B_j, v' = v + p * half_bytes;
    `half_bytes` is of ONE peer's message, so a' = half_bytes / B per peer. Ring d v/(8 W), torus max_i d_i v/(8 W_i),
    full mesh direct. Unit: s. Source: F4.1, F4.4.
    """
    efficiency = profile.all_to_all
    cuts, size = _cuts(row, fabric, inner_row)
    payload = _floats(payload_bytes) + size * efficiency.half_bytes
    if _alone(size):
        return np.zeros_like(payload)
    transfer, latency = np.zeros_like(payload), np.zeros_like(size)
    for cut, level in zip(cuts, fabric.levels, strict=True):
        transfer = np.maximum(transfer, payload * _exchanged(cut, size, level) / _rate(level, efficiency))
        latency = np.maximum(latency, cut.crossed * cut.hops * level.latency_s)
    return _priced(latency + transfer, size, efficiency)


def loads_s(loads_bytes: list[Num], row: Num, *, fabric: Fabric, profile: Profile, inner_row: Num = None) -> Floats:
    """Seconds of an all-to-all whose bytes per device at each level are already known (de-duplicated dispatch).

    `loads_bytes` go out of a unit of the level below: those of the innermost level apart, which are all that devices of
    a unit pass on to each other, whatever came from outside. launch + max_j a_j + max_j (load_j + peers beyond the cut
    * half_bytes) / B_j; a mesh, ring or torus takes what stays in its unit as an all-to-all. Unit: s. Source: F4.1,
    F4.4.
    """
    efficiency = profile.all_to_all
    cuts, size = _cuts(row, fabric, inner_row)
    transfer, latency = np.zeros_like(size), np.zeros_like(size)
    for index, (cut, level) in enumerate(zip(cuts, fabric.levels, strict=True)):
        load = _load_to(fabric.carries[index], index, loads_bytes)
        time = load + (cut.carried - cut.inside) * efficiency.half_bytes
        if level.kind != "switch":
            staying = _load_to(index, index, loads_bytes) / np.maximum(cut.ways - 1.0, 1.0)
            time = np.maximum(time, (staying + cut.inside * efficiency.half_bytes) * cut.ways * cut.exchange)
        transfer = np.maximum(transfer, time / _rate(level, efficiency))
        latency = np.maximum(latency, cut.crossed * cut.hops * level.latency_s)
    return _priced(latency + transfer, size, efficiency)


def _load_to(last: int, index: int, loads_bytes: list[Num]) -> Floats:
    """Bytes of a device across one level that go no further out than another."""
    beyond = _floats(loads_bytes[last + 1]) if last + 1 < len(loads_bytes) else 0.0
    if index:
        return _floats(loads_bytes[index]) - beyond
    passing = _floats(loads_bytes[1]) - beyond if last else 0.0
    return _floats(loads_bytes[0]) + passing


def point_to_point_s(
    payload_bytes: Num, row: Num, *, fabric: Fabric, profile: Profile, inner_row: Num = None
) -> Floats:
    """Seconds for every member of a group to send `payload_bytes` to the next one, at the worst level on the way.

    launch + max_j over the levels the group crosses of (a_j + (V + half_bytes) / B_j); one link in a mesh, ring or
    torus, which members that stand apart share with those between. Unit: s. Source: F4.1.
    """
    efficiency = profile.point_to_point
    cuts, size = _cuts(row, fabric, inner_row)
    payload = _floats(payload_bytes) + efficiency.half_bytes
    if _alone(size):
        return np.zeros_like(payload)
    worst = np.zeros(np.broadcast_shapes(np.shape(payload), np.shape(size)))
    for cut, level in zip(cuts, fabric.levels, strict=True):
        time = cut.onward * level.latency_s + payload / (_rate(level, efficiency) * cut.link)
        worst = np.maximum(worst, cut.crossed * time)
    return _priced(worst, size, efficiency)


QUANTITIES: tuple[()] = ()
"""The collectives are helpers of communication.py: a row of any axis fits, so none is a quantity of its own."""
