"""Networks cut at the nodes that every path must pass: blocks in a tree, so that traffic adds up instead of pairing up.

Contents: Blocks, blocks_of, Demand, pair_demand, uniform_demand.

Between two nodes all shortest paths pass the same cut nodes, and where a message goes on from a cut node does not
depend on where it came from. So every block (a biconnected component) can be routed by itself, for the traffic between
its own nodes, whatever lies behind them. A tree of switches consists of blocks of one link; what is left are the cores
of fat trees, tori and meshes. Source: block-cut trees (Hopcroft and Tarjan, 1973).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import numpy as np

from mapsearch.topologies.wires import Bools, Floats, Ints, Stage, Wires

MOST_PAIRS = 2**22
"""Pairs of ports that are written out at a time."""


@dataclass(frozen=True)
class Blocks:
    """The block-cut tree of one stage, rooted in each of its parts."""

    above: Ints
    """Per node: the block towards the root; -1 at a root, -2 outside the stage."""
    gate: Ints
    """Per block: its node nearest to the root."""
    depth: Ints
    """Per node: blocks up to the root."""
    part: Ints
    """Per node: the connected part of the stage; -1 outside."""
    up: Ints
    """Per block of one link: the link towards the root, else -1; the one back is `up ^ 1`."""
    links: tuple[Ints, ...]
    """Per block: its links, both directions."""

    @property
    def single(self) -> Bools:
        """Per block: True where it is one link."""
        return self.up >= 0


def blocks_of(wires: Wires, stage: Stage) -> Blocks:
    """The blocks of a stage."""
    graph: nx.Graph[int] = nx.Graph()
    ends = zip(wires.tail[stage.links].tolist(), wires.head[stage.links].tolist(), stage.links.tolist(), strict=True)
    graph.add_weighted_edges_from(ends, weight="link")
    count = len(wires.names)
    above, depth, part = (np.full(count, fill, dtype=np.int64) for fill in (-2, 0, -1))
    members, links, of_node = [], [], [[] for _ in range(count)]  # type: ignore[var-annotated]
    for edges in nx.biconnected_component_edges(graph):
        listed = sorted(edges)
        nodes = sorted({node for edge in listed for node in edge})
        for node in nodes:
            of_node[node].append(len(members))
        members.append(nodes)
        each = np.array([graph.edges[edge]["link"] for edge in listed], dtype=np.int64)
        links.append(np.concatenate([each, each ^ 1]))
    gate = np.full(len(members), -1, dtype=np.int64)
    up = np.full(len(members), -1, dtype=np.int64)
    for number, nodes in enumerate(sorted(map(sorted, nx.connected_components(graph)))):
        part[nodes] = number
        # A switch that many links meet in keeps the tree flat.
        root = max(nodes, key=lambda node: (not wires.device[node], graph.degree[node], -node))
        above[root] = -1
        todo = [root]
        for node in todo:
            for block in of_node[node]:
                if gate[block] >= 0:
                    continue
                gate[block] = node
                inner = [other for other in members[block] if other != node]
                above[inner] = block
                depth[inner] = depth[node] + 1
                todo += inner
                if len(links[block]) == 2:
                    up[block] = next(link for link in links[block].tolist() if wires.head[link] == node)
    return Blocks(above, gate, depth, part, up, tuple(links))


@dataclass(frozen=True)
class Demand:
    """Traffic inside blocks, from port to port."""

    block: Ints
    source: Ints
    target: Ints
    sent_bytes: Floats


def pair_demand(blocks: Blocks, source: Ints, target: Ints, sent_bytes: Floats) -> Demand:
    """What messages between pairs of nodes are in each block on their way. Both ends must be in one part."""
    found: list[tuple[Ints, Ints, Ints, Floats]] = []
    a, b, sent = source, target, sent_bytes
    while True:
        apart = a != b
        a, b, sent = a[apart], b[apart], sent[apart]
        if not len(a):
            break
        meet = (blocks.above[a] == blocks.above[b]) & (blocks.above[a] >= 0)
        found.append((blocks.above[a[meet]], a[meet], b[meet], sent[meet]))
        a, b, sent = a[~meet], b[~meet], sent[~meet]
        lift_a, lift_b = blocks.depth[a] >= blocks.depth[b], blocks.depth[b] >= blocks.depth[a]
        block = blocks.above[a[lift_a]]
        found.append((block, a[lift_a], blocks.gate[block], sent[lift_a]))
        behind = blocks.above[b[lift_b]]
        found.append((behind, blocks.gate[behind], b[lift_b], sent[lift_b]))
        a, b = a.copy(), b.copy()
        a[lift_a], b[lift_b] = blocks.gate[block], blocks.gate[behind]
    return joined([Demand(*columns) for columns in found])


def joined(demands: list[Demand]) -> Demand:
    """Several demands as one."""
    nothing = np.empty(0, dtype=np.int64)
    columns = [
        np.concatenate([getattr(demand, name) for demand in demands] or [nothing])
        for name in ("block", "source", "target", "sent_bytes")
    ]
    return Demand(*columns)


def uniform_demand(blocks: Blocks, member: Ints, group: Ints, sent_bytes: Floats) -> Iterator[Demand]:
    """As `pair_demand` of all ordered pairs of members of a group, by counting members behind each port.

    `group`: number of each member's group. `sent_bytes`: per group, of one pair. A group must be in one part.
    """
    nodes = len(blocks.above)
    size = np.bincount(group, minlength=len(sent_bytes))
    keys, counts = np.unique(group * nodes + member, return_counts=True)
    here: list[tuple[Ints, Ints]] = []
    while len(keys):
        node = keys % nodes
        inside = blocks.above[node] >= 0
        keys, counts, node = keys[inside], counts[inside], node[inside]
        here.append((keys, counts))
        lifted = keys - node + blocks.gate[blocks.above[node]]
        keys, place = np.unique(lifted, return_inverse=True)
        counts = np.bincount(place.ravel(), weights=counts, minlength=len(keys)).astype(np.int64)
    keys, place = np.unique(np.concatenate([key for key, _ in here]), return_inverse=True)
    counts = np.bincount(place.ravel(), weights=np.concatenate([number for _, number in here])).astype(np.int64)
    owner, node = keys // nodes, keys % nodes
    block = blocks.above[node]
    alone = blocks.single[block]
    sent = sent_bytes[owner] * counts * (size[owner] - counts)
    for first, second in ((node, blocks.gate[block]), (blocks.gate[block], node)):
        yield Demand(block[alone], first[alone], second[alone], sent[alone])
    yield from _cores(blocks, owner[~alone], node[~alone], counts[~alone], size, sent_bytes)


def _cores(blocks: Blocks, owner: Ints, node: Ints, counts: Ints, size: Ints, sent_bytes: Floats) -> Iterator[Demand]:
    """Pairs of ports of blocks that are more than a link, a group at a time."""
    if not len(owner):
        return
    run = blocks.above[node] * len(size) + owner
    runs, first = np.unique(run, return_inverse=True)
    # What is behind the gate: the group's members that are behind no other port.
    behind = size[runs % len(size)] - np.bincount(first.ravel(), weights=counts).astype(np.int64)
    outside = behind > 0
    gates = blocks.gate[runs[outside] // len(size)]
    run = np.concatenate([run, runs[outside]])
    node, counts = np.concatenate([node, gates]), np.concatenate([counts, behind[outside]])
    order = np.argsort(run, kind="stable")
    run, node, counts = run[order], node[order], counts[order]
    starts = np.flatnonzero(np.diff(run, prepend=-1))
    lengths = np.diff(starts, append=len(run))
    ends = np.arange(0, int((lengths**2).sum()) + MOST_PAIRS, MOST_PAIRS)
    bounds = np.searchsorted(np.cumsum(lengths**2), ends, side="right")
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if low == high:
            continue
        each, begin = lengths[low:high], starts[low:high]
        one = np.repeat(np.arange(begin[0], begin[-1] + each[-1]), np.repeat(each, each))
        within = np.arange(len(one)) - np.repeat(np.cumsum(each**2) - each**2, each**2)
        other = np.repeat(begin, each**2) + within % np.repeat(each, each**2)
        apart = one != other
        one, other = one[apart], other[apart]
        sent = sent_bytes[run[one] % len(size)] * counts[one] * counts[other]
        yield Demand(run[one] // len(size), node[one], node[other], sent)
