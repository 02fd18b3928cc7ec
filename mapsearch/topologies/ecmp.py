"""Traffic between the ports of one block, split evenly over shortest paths (ECMP).

Contents: Mesh, mesh_of, spread, distances.

At each node a message goes on over all links that begin a shortest path (by links) to its target, in equal shares per
cable. Source: RFC 2992 (equal-cost multipath), without the hashing of single flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mapsearch.topologies.wires import Bools, Floats, Ints, Wires

MOST_STATES = 2**22
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


def _waves(mesh: Mesh, targets: Ints) -> tuple[Ints, list[Ints]]:
    """Links to each target, shape (targets, nodes), -1 where there is no way; and the states at each distance.

    A state is target index x nodes + node.
    """
    count = len(mesh.nodes)
    distance = np.full(len(targets) * count, -1, dtype=np.int64)
    states = np.arange(len(targets)) * count + targets
    distance[states] = 0
    waves = [states]
    mark = np.empty(len(distance), dtype=np.int64)
    while len(states):
        node = states % count
        through = mesh.transit[node] if len(waves) > 1 else np.ones(len(node), dtype=np.bool_)
        states, node = states[through], node[through]
        owner, place = _leaving(mesh, node)
        reached = states[owner] - node[owner] + mesh.head[place]
        reached = reached[distance[reached] < 0]
        mark[reached] = np.arange(len(reached))  # of those that meet, the last stays
        states = reached[mark[reached] == np.arange(len(reached))]
        distance[states] = len(waves)
        if len(states):
            waves.append(states)
    return distance, waves


def distances(mesh: Mesh, targets: Ints) -> Ints:
    """Links from every node to each target, shape (targets, nodes); -1 where there is no way."""
    return _waves(mesh, targets)[0].reshape(len(targets), -1)


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
        distance, waves = _waves(mesh, targets)
        for column, (source, target, sent) in enumerate(inside):
            place = np.minimum(np.searchsorted(targets, target), len(targets) - 1)
            here = targets[place] == target
            flow = np.zeros(len(distance))
            np.add.at(flow, place[here] * count + source[here], sent[here])
            _flow(mesh, distance, waves, flow, loads[column])


def _flow(mesh: Mesh, distance: Ints, waves: list[Ints], flow: Floats, loads: Floats) -> None:
    """Carry what is at each state to its target, the farthest first."""
    count = len(mesh.nodes)
    for far in range(len(waves) - 1, 0, -1):
        states = waves[far]
        states = states[flow[states] != 0.0]
        if not len(states):
            continue
        node = states % count
        owner, place = _leaving(mesh, node)
        onward = states[owner] - node[owner] + mesh.head[place]
        nearer = distance[onward] == far - 1
        if far > 1:
            nearer &= mesh.transit[mesh.head[place]]
        owner, place, onward = owner[nearer], place[nearer], onward[nearer]
        cables = mesh.cables[place]
        share = cables / np.bincount(owner, weights=cables, minlength=len(states))[owner]
        part = flow[states][owner] * share
        np.add.at(flow, onward, part)
        np.add.at(loads, mesh.link[place], part)
