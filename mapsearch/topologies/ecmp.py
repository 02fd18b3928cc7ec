"""Traffic between the ports of one block, split evenly over shortest paths (ECMP).

Contents: Mesh, mesh_of, distances, spread.

At each node a message goes on over all links that begin a shortest path (by links) to its target, in equal shares per
cable. Source: RFC 2992 (equal-cost multipath), without the hashing of single flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.topologies.wires import Bools, Floats, Ints, Wires

Whole = NDArray[np.int32]
MOST_STATES = 2**23
"""Pairs of target and node that are kept at a time."""


@dataclass(frozen=True)
class Mesh:
    """One block under numbers of its own; links sorted by the node that they leave."""

    nodes: Ints
    """Number in the graph, ascending."""
    first: Ints
    """Per node: its first link; one more at the end."""
    head: Ints
    link: Ints
    cables: Floats
    transit: Bools


def mesh_of(wires: Wires, links: Ints, transit: Bools) -> Mesh:
    """The block made of these links."""
    nodes, ends = np.unique(np.stack([wires.tail[links], wires.head[links]]), return_inverse=True)
    tail, head = ends.reshape(2, -1)
    order = np.lexsort((head, tail))
    first = np.concatenate([[0], np.cumsum(np.bincount(tail, minlength=len(nodes)))])
    return Mesh(
        nodes=nodes,
        first=first.astype(np.int64),
        head=head[order],
        link=links[order],
        cables=wires.cables[links][order].astype(np.float64),
        transit=transit[nodes],
    )


def _leaving(mesh: Mesh, node: Ints) -> tuple[Ints, Ints]:
    """Of each of some nodes all links: which of the nodes, and the place of the link."""
    begin, many = mesh.first[node], mesh.first[node + 1] - mesh.first[node]
    owner = np.repeat(np.arange(len(node)), many)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(begin, many)
    return owner, place


def distances(mesh: Mesh, targets: Ints) -> Whole:
    """Links from every node to each target, shape (targets, nodes); -1 where there is no way.

    Breadth first from all targets at once, 64 of them in a word; a counter of several words (bit planes) holds for how
    many steps a node has not been reached.
    """
    count, words = len(mesh.nodes), -(-len(targets) // 64)
    reached = np.zeros((count, words), dtype=np.uint64)
    place = np.arange(len(targets))
    np.bitwise_or.at(reached, (targets, place // 64), np.uint64(1) << (place % 64).astype(np.uint64))
    seed = reached.copy()
    planes: list[NDArray[np.uint64]] = []
    while True:
        passing = np.where(mesh.transit[:, None], reached, seed)
        met = reached | np.bitwise_or.reduceat(passing[mesh.head], mesh.first[:-1], axis=0)
        if np.array_equal(met, reached):
            break
        carry = ~reached
        for number, plane in enumerate(planes):
            planes[number], carry = plane ^ carry, plane & carry
            if not carry.any():
                break
        else:
            planes.append(carry)
        reached = met
    found = np.zeros((count, words * 64), dtype=np.int32)
    for number, plane in enumerate(planes):
        found += _bits(plane).astype(np.int32) << number
    found[_bits(reached) == 0] = -1
    return np.ascontiguousarray(found[:, : len(targets)].T)


def _bits(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Bits of words, the lowest first, along the last axis."""
    return np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, bitorder="little")


def spread(mesh: Mesh, columns: Sequence[tuple[Ints, Ints, Floats]], loads: Floats) -> None:
    """Add to `loads`, shape (columns, links of the graph), what each column's traffic puts on the block's links.

    A column: sources, targets (numbers in the graph), bytes.
    """
    count = len(mesh.nodes)
    inside = [(np.searchsorted(mesh.nodes, a), np.searchsorted(mesh.nodes, b), sent) for a, b, sent in columns]
    every = np.unique(np.concatenate([b for _, b, _ in inside]))
    step = max(1, MOST_STATES // count)
    for begin in range(0, len(every), step):
        targets = every[begin : begin + step]
        distance = distances(mesh, targets).ravel()
        for column, (source, target, sent) in enumerate(inside):
            place = np.minimum(np.searchsorted(targets, target), len(targets) - 1)
            here = targets[place] == target
            flow = np.zeros(len(distance))
            states = place[here] * count + source[here]
            np.add.at(flow, states, sent[here])
            _flow(mesh, distance, np.unique(states), flow, loads[column])


def _flow(mesh: Mesh, distance: Whole, begin: Ints, flow: Floats, loads: Floats) -> None:
    """Carry what is at each state to its target, the farthest first. A state is target index x nodes + node.

    `begin`: states that have something at the start.
    """
    count = len(mesh.nodes)
    order = np.argsort(distance[begin], kind="stable")
    begin, starts = begin[order], distance[begin[order]]
    moved = begin[:0]
    mark = np.empty(len(flow), dtype=np.int64)
    for far in range(int(starts.max(initial=0)), 0, -1):
        states = np.concatenate([moved, begin[slice(*np.searchsorted(starts, [far, far + 1]))]])
        mark[states] = np.arange(len(states))  # of those that meet, the last stays
        states = states[mark[states] == np.arange(len(states))]
        node = states % count
        owner, place = _leaving(mesh, node)
        onward = states[owner] - node[owner] + mesh.head[place]
        nearer = distance[onward] == far - 1
        if far > 1:
            nearer &= mesh.transit[mesh.head[place]]
        owner, place, moved = owner[nearer], place[nearer], onward[nearer]
        cables = mesh.cables[place]
        share = cables / np.bincount(owner, weights=cables, minlength=len(states))[owner]
        part = flow[states][owner] * share
        np.add.at(flow, moved, part)
        loads += np.bincount(mesh.link[place], weights=part, minlength=len(loads))
