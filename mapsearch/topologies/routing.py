"""What traffic between devices loads onto the links of a graph: shortest paths, split evenly (ECMP).

Contents: Pairs, Uniform, Flows, Router, router_of, written_out, busiest.

Two devices talk over the fastest class of networks that joins them (wires.py); there, messages take all shortest paths
in equal shares. A device passes messages on only where devices are linked directly, and for its neighbours: where
another device of the same faster island is nearer to the target, the message first goes to that one (NCCL's PXN, rails)
and where a device has no port of its own, it uses those of its island.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import networkx as nx
import numpy as np

from mapsearch.errors import InputError
from mapsearch.topologies.blocks import Blocks, Demand, blocks_of, joined, pair_demand, uniform_demand
from mapsearch.topologies.ecmp import Mesh, mesh_of, spread
from mapsearch.topologies.relays import Relays, relays_of
from mapsearch.topologies.wires import Floats, Ints, Stage, Wires, stages_of

MOST_WRITTEN = 2**20
"""Pairs of devices that are written out at a time; each is held against all devices of an island."""


@dataclass(frozen=True)
class Pairs:
    """Messages from device to device, by number of the node."""

    source: Ints
    target: Ints
    sent_bytes: Floats


@dataclass(frozen=True)
class Uniform:
    """Every member of a group sends the same to every other one."""

    member: Ints
    """Number of the node."""
    group: Ints
    """Number of the group of each member, from 0 on."""
    sent_bytes: Floats
    """Per group: from one member to one other; negative to take something away."""


Flows = Sequence[Pairs | Uniform]


@dataclass
class Router:
    """A graph, made ready to route any traffic on it."""

    wires: Wires
    relay: bool = True
    """Devices pass on what starts at a neighbour of their island that is farther from its target (PXN)."""
    stages: list[Stage] = field(init=False)
    blocks: list[Blocks] = field(init=False)
    _relays: dict[int, Relays | None] = field(init=False, default_factory=dict)
    _meshes: dict[tuple[int, int], Mesh] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.stages = stages_of(self.wires)
        self.blocks = [blocks_of(self.wires, stage) for stage in self.stages]

    def loads_bytes(self, columns: Sequence[Flows]) -> Floats:
        """Bytes on every directed link, shape (columns, links). Raises InputError when two devices are not joined."""
        loads = np.zeros((len(columns), self.wires.count))
        waiting = [list(flows) for flows in columns]
        self._refuse_torn([flow for flows in columns for flow in flows])
        for level in range(len(self.stages) - 1, -1, -1):
            cores: list[list[Demand]] = [[] for _ in columns]
            for column, flows in enumerate(waiting):
                later: list[Pairs | Uniform] = []
                for flow in flows:
                    for demand in self._demands(level, flow, later):
                        cores[column].append(self._carried(level, demand, loads[column]))
                waiting[column] = later
            self._spread(level, cores, loads)
        # What is taken away again leaves rounding behind.
        loads[np.abs(loads) < 1e-9 * np.abs(loads).max(axis=1, initial=0.0)[:, None]] = 0.0
        return loads

    def _refuse_torn(self, flows: Flows) -> None:
        """Refuse traffic between parts that nothing joins."""
        part = self.stages[-1].island
        for flow in flows:
            if isinstance(flow, Pairs):
                apart = np.flatnonzero(part[flow.source] != part[flow.target])
                ends = [(flow.source[apart[0]], flow.target[apart[0]])] if len(apart) else []
            else:
                first = np.zeros(len(flow.sent_bytes), dtype=np.int64)
                first[flow.group] = flow.member
                apart = np.flatnonzero(part[first[flow.group]] != part[flow.member])
                ends = [(first[flow.group[apart[0]]], flow.member[apart[0]])] if len(apart) else []
            for a, b in ends:
                raise InputError(
                    f"no path joins {self.wires.names[a]!r} and {self.wires.names[b]!r}; add the link, or take one of "
                    "them out with down",
                    field="links",
                )

    def _demands(self, level: int, flow: Pairs | Uniform, later: list[Pairs | Uniform]) -> Iterator[Demand]:
        """What of a flow this stage's blocks carry; what faster stages carry goes to `later`."""
        blocks = self.blocks[level]
        inner = self.stages[level - 1].island if level else np.arange(len(self.wires.names))
        relays = self.relays_at(level) if level else None
        if isinstance(flow, Uniform):
            if relays is None:
                outer = self.stages[level].island
                for sign, island in ((1.0, outer), (-1.0, inner)):
                    if island is inner and not level:
                        continue
                    member, group, sent = _parted(flow, island)
                    yield from uniform_demand(blocks, member, group, sign * sent)
                if level:
                    later.append(Uniform(*_parted(flow, inner)))
                return
            for pairs in written_out(flow):
                yield from self._demands(level, pairs, later)
            return
        near = inner[flow.source] == inner[flow.target]
        if level and near.any():
            later.append(Pairs(flow.source[near], flow.target[near], flow.sent_bytes[near]))
        source, target, sent = flow.source[~near], flow.target[~near], flow.sent_bytes[~near]
        if relays is not None and len(source):
            source, target, sent, legs = relays.relayed(source, target, sent)
            later += [Pairs(*leg) for leg in legs]
        yield pair_demand(blocks, source, target, sent)

    def relays_at(self, level: int) -> Relays | None:
        """Devices that pass on messages of their neighbours at a stage; None where that does not occur."""
        if level not in self._relays:
            inner = self.stages[level - 1].island
            self._relays[level] = relays_of(self.wires, self.stages[level], self.blocks[level], inner, self.relay)
        return self._relays[level]

    def _carried(self, level: int, demand: Demand, loads: Floats) -> Demand:
        """Put on single links what crosses them; the rest."""
        blocks = self.blocks[level]
        alone = blocks.single[demand.block]
        up = blocks.up[demand.block[alone]]
        link = np.where(demand.target[alone] == blocks.gate[demand.block[alone]], up, up ^ 1)
        loads += np.bincount(link, weights=demand.sent_bytes[alone], minlength=len(loads))
        rest = ~alone
        return Demand(demand.block[rest], demand.source[rest], demand.target[rest], demand.sent_bytes[rest])

    def _spread(self, level: int, cores: list[list[Demand]], loads: Floats) -> None:
        """Route what is inside blocks of more than a link."""
        blocks, nodes = self.blocks[level], len(self.wires.names)
        by_block: dict[int, list[tuple[int, Ints, Ints, Floats]]] = {}
        for column, demands in enumerate(cores):
            if not sum(len(demand.block) for demand in demands):
                continue
            every = joined(demands)
            keys, place = np.unique(every.source * nodes + every.target, return_inverse=True)
            # Two ports are in one block only, so the pair names it.
            where = np.zeros(len(keys), dtype=np.int64)
            where[place.ravel()] = every.block
            total = np.bincount(place.ravel(), weights=every.sent_bytes).astype(np.float64)
            order = np.argsort(where, kind="stable")
            cuts = np.flatnonzero(np.diff(where[order])) + 1
            for chosen in np.split(order, cuts):
                entry = (column, keys[chosen] // nodes, keys[chosen] % nodes, total[chosen])
                by_block.setdefault(int(where[chosen[0]]), []).append(entry)
        for number, entries in by_block.items():
            if (level, number) not in self._meshes:
                self._meshes[level, number] = mesh_of(self.wires, blocks.links[number], self.stages[level].transit)
            rows = [column for column, *_ in entries]
            found = np.zeros((len(rows), self.wires.count))
            spread(self._meshes[level, number], [(a, b, sent) for _, a, b, sent in entries], found)
            loads[rows] += found


def _parted(flow: Uniform, island: Ints) -> tuple[Ints, Ints, Floats]:
    """Groups parted by island: members, numbers of the parts, bytes per part."""
    count = int(island.max(initial=0)) + 2
    keys, part = np.unique(flow.group * count + island[flow.member] + 1, return_inverse=True)
    return flow.member, part.ravel().astype(np.int64), flow.sent_bytes[keys // count]


def written_out(flow: Uniform) -> Iterator[Pairs]:
    """All ordered pairs of members, a few groups at a time."""
    order = np.argsort(flow.group, kind="stable")
    member, group = flow.member[order], flow.group[order]
    size = np.bincount(group, minlength=len(flow.sent_bytes))
    first = np.cumsum(size) - size
    total = int((size**2).sum())
    ends = np.searchsorted(np.cumsum(size**2), np.arange(0, total + MOST_WRITTEN, MOST_WRITTEN), side="right")
    for low, high in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        each = size[low:high]
        if not each.sum():
            continue
        one = np.repeat(np.arange(first[low], first[low] + each.sum()), np.repeat(each, each))
        within = np.arange(len(one)) - np.repeat(np.cumsum(each**2) - each**2, each**2)
        other = np.repeat(first[low:high], each**2) + within % np.repeat(each, each**2)
        apart = one != other
        yield Pairs(member[one[apart]], member[other[apart]], flow.sent_bytes[group[one[apart]]])


def busiest(loads_bytes: Floats, wires: Wires) -> tuple[int, float]:
    """The link that takes longest to carry its load, and how long, s."""
    seconds = loads_bytes / wires.bytes_per_s
    worst = int(np.argmax(seconds))
    return worst, float(seconds[worst])


def router_of(graph: nx.Graph[str], cables: dict[frozenset[str], int] | None = None, *, relay: bool = True) -> Router:
    """A graph, made ready for routing; `cables`: parallel links by their ends, where there are several."""
    from mapsearch.topologies.wires import wires_of

    return Router(wires_of(graph, cables), relay)
