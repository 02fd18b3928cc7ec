"""Devices that pass on messages of their neighbours: onto the target's rail, or from those without a port of their own.

Contents: Relays, relays_of.

Source: NCCL's PXN (a GPU hands its message over NVLink to the GPU on the target's rail).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapsearch.errors import InputError
from mapsearch.topologies.blocks import Blocks
from mapsearch.topologies.ecmp import distances, mesh_of
from mapsearch.topologies.wires import Floats, Ints, Stage, Wires

FAR = 2**30
"""Links to where no way leads."""
Leg = tuple[Ints, Ints, Floats]


@dataclass(frozen=True)
class Relays:
    """Who passes on what at one stage."""

    island: Ints
    """Per node: the island of faster networks that it is in."""
    port: Ints
    """Per node: where its way through this stage begins to branch, as a number from 0 on; -1: it has no port."""
    hops: Ints
    """(ports, ports): links between them; FAR where no way leads."""
    seats: Ints
    """(islands, most devices of one): devices, -1 beyond the last."""
    place: Ints
    """Per node: row of `seats`."""
    relay: bool
    """Also where a device could send itself, over more links."""

    def relayed(self, source: Ints, target: Ints, sent: Floats) -> tuple[Ints, Ints, Floats, list[Leg]]:
        """The messages as this stage carries them, and the legs inside islands before and after.

        Raises InputError when there is no way.
        """
        legs: list[Leg] = []
        portless = self.port[target] < 0
        if portless.any():
            (source, via, sent), origin = self._fanned(source, target, sent, portless, reverse=True)
            moved = via != target[origin]
            legs.append((via[moved], target[origin][moved], sent[moved]))
            target = via
        direct = self._hops(source, target)
        seats = self.seats[self.place[source]]
        others = np.where(seats >= 0, self._hops(seats, target[:, None]), FAR)
        best = others.min(axis=1, initial=FAR)
        if (np.minimum(best, direct) >= FAR).any():
            raise InputError(
                "has devices that no path joins, not even through a neighbour; add the link", field="links"
            )
        stays = direct <= best if self.relay else direct < FAR
        chosen = np.where(stays[:, None], seats == source[:, None], others == best[:, None])
        row, column = np.nonzero(chosen)
        share = sent[row] / chosen.sum(axis=1)[row]
        via = seats[row, column]
        moved = via != source[row]
        legs.append((source[row][moved], via[moved], share[moved]))
        return via, target[row], share, legs

    def _fanned(
        self, source: Ints, target: Ints, sent: Floats, portless: np.ndarray, *, reverse: bool
    ) -> tuple[tuple[Ints, Ints, Floats], Ints]:
        """Messages to devices without a port, to all devices of the same island that have one, in equal shares."""
        seats = self.seats[self.place[target]]
        chosen = np.where(portless[:, None], (seats >= 0) & (self.port[seats] >= 0), seats == target[:, None])
        if not chosen.any(axis=1).all():
            raise InputError("has devices that no path joins; add the link, or take them out with down", field="links")
        row, column = np.nonzero(chosen)
        return (source[row], seats[row, column], sent[row] / chosen.sum(axis=1)[row]), row

    def _hops(self, source: Ints, target: Ints) -> Ints:
        a, b = self.port[source], self.port[target]
        return np.where((a >= 0) & (b >= 0), self.hops[a, b], FAR)


def relays_of(wires: Wires, stage: Stage, blocks: Blocks, island: Ints, relay: bool) -> Relays | None:
    """Relays of a stage; None where all devices of an island stand alike, so that none has anything to pass on."""
    devices = np.flatnonzero(wires.device)
    behind = _devices_behind(wires, blocks)
    port = np.full(len(wires.names), -1, dtype=np.int64)
    at = devices[blocks.above[devices] > -2]
    node = at.copy()
    while True:
        above = blocks.above[node]
        climbs = (above >= 0) & (behind[node] <= 1)
        climbs[climbs] &= blocks.single[above[climbs]]
        if not climbs.any():
            break
        node[climbs] = blocks.gate[above[climbs]]
    if len(at) == len(devices):
        alike = np.stack([island[at], node])
        if len(np.unique(alike, axis=1).T) == len(np.unique(island[at])):
            return None
    ports, place = np.unique(node, return_inverse=True)
    port[at] = place.ravel()
    groups, row = np.unique(island[devices], return_inverse=True)
    row = row.ravel()
    size = np.bincount(row)
    seats = np.full((len(groups), int(size.max())), -1, dtype=np.int64)
    order = np.argsort(row, kind="stable")
    seats[row[order], np.arange(len(order)) - np.repeat(np.cumsum(size) - size, size)] = devices[order]
    where = np.zeros(len(wires.names), dtype=np.int64)
    where[devices] = row
    return Relays(island, port, _hops_between(wires, stage, blocks, ports), seats, where, relay)


def _devices_behind(wires: Wires, blocks: Blocks) -> Ints:
    """Devices at and beyond each node, seen from the root."""
    behind = wires.device.astype(np.int64) * (blocks.above > -2)
    for depth in range(int(blocks.depth.max(initial=0)), 0, -1):
        nodes = np.flatnonzero((blocks.depth == depth) & (blocks.above >= 0))
        np.add.at(behind, blocks.gate[blocks.above[nodes]], behind[nodes])
    return behind


def _hops_between(wires: Wires, stage: Stage, blocks: Blocks, ports: Ints) -> Ints:
    """Links between ports, by way of the whole stage."""
    mesh = mesh_of(wires, np.concatenate([stage.links, stage.links ^ 1]), stage.transit)
    local = np.searchsorted(mesh.nodes, ports)
    step = max(1, 2**22 // len(mesh.nodes))
    found = [distances(mesh, local[begin : begin + step])[:, local] for begin in range(0, len(local), step)]
    hops = np.concatenate(found)
    return np.where(hops < 0, FAR, hops).T
