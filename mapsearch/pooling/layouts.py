"""Both sides' layouts of a pair: what every training rank sends to every rollout rank, and what crosses which level.

Contents: Bytes, bytes_of, between_ranks, LevelBytes, by_level, spot_bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mapsearch.costs import transfer
from mapsearch.costs.estimate import layers_per_stage
from mapsearch.costs.placement import rows_of
from mapsearch.costs.transfer import Layout
from mapsearch.placing.placed import coordinates
from mapsearch.pooling.problem import Pools
from mapsearch.pooling.split import Pair
from mapsearch.quantity import Floats

Ints = NDArray[np.int64]
ROWS = 2**12
"""Training ranks whose row of the matrix is written out at a time."""


@dataclass(frozen=True)
class Bytes:
    """Bytes from training devices to the devices of one replica, each holder of a piece sending an equal part.

    A row is the sum of two products, of dense weights and of experts: row(device) x column(kind of piece).
    """

    dense: Floats
    """(TP pieces of training, devices of a replica): share of a stage's dense weights, over the copies of the piece."""
    experts: Floats
    """(EP x ETP pieces of training, devices of a replica)."""
    dense_kind: Ints
    """Piece of each training device."""
    expert_kind: Ints
    dense_bytes: Floats
    """Dense weights of each training device's stage."""
    expert_bytes: Floats
    units: Ints
    """(training devices, levels): unit inside the next outer one, innermost level first."""

    @property
    def senders(self) -> int:
        """Training devices."""
        return len(self.dense_kind)

    def rows(self, begin: int, end: int) -> Floats:
        """The matrix of some training devices, (end - begin, devices of a replica). Unit: bytes."""
        chosen = slice(begin, end)
        dense = self.dense[self.dense_kind[chosen]] * self.dense_bytes[chosen, None]
        return np.asarray(dense + self.experts[self.expert_kind[chosen]] * self.expert_bytes[chosen, None])

    def summed(self, group: Ints, count: int) -> Floats:
        """Rows added up by group of training devices, (count, devices of a replica). Unit: bytes."""
        found = np.zeros((count, self.dense.shape[1]))
        for begin in range(0, self.senders, ROWS):
            end = min(begin + ROWS, self.senders)
            np.add.at(found, group[begin:end], self.rows(begin, end))
        return found

    @property
    def sent(self) -> Floats:
        """What each training device sends to one replica. Unit: bytes."""
        dense = self.dense.sum(axis=1)[self.dense_kind] * self.dense_bytes
        return np.asarray(dense + self.experts.sum(axis=1)[self.expert_kind] * self.expert_bytes)

    @property
    def received(self) -> Floats:
        """What each device of a replica receives. Unit: bytes."""
        dense = np.bincount(self.dense_kind, self.dense_bytes, len(self.dense)) @ self.dense
        return np.asarray(dense + np.bincount(self.expert_kind, self.expert_bytes, len(self.experts)) @ self.experts)


def bytes_of(pools: Pools, pair: Pair) -> Bytes:
    """The matrix of a pair, for one version as it is usually sent."""
    mapping, shape, facts = pair.mapping, pair.offer.shape, pair.part.training
    at, units, _, _ = coordinates(rows_of(mapping, facts.fabric))
    dense, experts = transfer.stage_parts(pools.model, layers_per_stage(mapping, facts))
    volume, device = pools.sent.usual_bytes, np.arange(shape.devices)
    copies = mapping.cp * mapping.dp
    sending = Layout(mapping.tp, copies, mapping.etp, mapping.ep, mapping.edp)
    receiving = Layout(shape.tp, 1, shape.devices // shape.ep, shape.ep, 1)
    # A piece of experts has the number of the rollout device that holds it: width innermost.
    by_tp, by_expert = transfer.layout_bytes(sending, receiving, 1.0, 1.0)
    return Bytes(
        dense=by_tp[:, device % shape.tp],
        experts=by_expert.reshape(-1, shape.devices),
        dense_kind=at["tp"],
        expert_kind=at["ep"] * mapping.etp + at["etp"],
        dense_bytes=volume * dense[at["pp"]],
        expert_bytes=volume * experts[at["pp"]],
        units=units,
    )


def between_ranks(table: Bytes) -> tuple[int, float]:
    """Ranks of one replica that a training rank sends to, and the bytes of its largest message. Unit: ranks, bytes."""
    peers, largest = 0, 0.0
    for begin in range(0, table.senders, ROWS):
        rows = table.rows(begin, min(begin + ROWS, table.senders))
        peers = max(peers, int((rows > 0.0).sum(axis=1).max()))
        largest = max(largest, float(rows.max()))
    return peers, largest


class LevelBytes(NamedTuple):
    """What crosses one level of one side: out of or into each of the units that it joins, for all replicas."""

    side: str
    level: str
    units: int
    """Units in use."""
    mean_bytes: float
    most_bytes: float


def by_level(pair: Pair, table: Bytes) -> list[LevelBytes]:
    """The matrix summarised: training's units by what leaves them for all replicas, then rollout's by what they get."""
    training, serving, shape = pair.part.training.fabric, pair.part.serving.fabric, pair.offer.shape
    copies, found = pair.offer.replicas, []
    sent, flat, count = table.sent * copies, _flat(table.units), table.units.max(axis=0) + 1
    for tier, level in enumerate(training.levels):
        unit = flat // math.prod(count[:tier].tolist())
        out = np.bincount(unit, sent)
        found.append(LevelBytes("training", level.name, len(out), float(out.mean()), float(out.max())))
    sides = list(zip(serving.fan_outs, shape.rows[1], strict=True))
    for tier, level in enumerate(serving.levels):
        block = math.prod(ways for _, ways in sides[:tier])
        beside = math.prod(size // ways for size, ways in sides[:tier])
        into = table.received.reshape(-1, block).sum(axis=1) * min(beside, copies)
        # Around holes not all units are as full: as few as hold all replicas.
        units = math.ceil(table.received.sum() * copies / into.max() - 1e-9)
        mean = float(table.received.sum() * copies / units)
        found.append(LevelBytes("rollout", level.name, units, mean, float(into.max())))
    return found


def _flat(units: Ints) -> Ints:
    """One number per device, the innermost level fastest."""
    strides = np.concatenate([[1], np.cumprod(units.max(axis=0) + 1)[:-1]])
    return np.asarray(units @ strides, dtype=np.int64)


def spot_bytes(pools: Pools, pair: Pair, table: Bytes, each: tuple[int, int]) -> Floats:
    """The matrix between spots of so many devices on either side, replicas added up; down a tree the first one alone.

    Shape: (spots of training, spots of rollout); devices in order, the innermost level fastest. Unit: bytes.
    """
    training, serving, shape = pair.part.training.fabric, pair.part.serving.fabric, pair.offer.shape
    stride = np.concatenate([[1], np.cumprod(training.fan_outs)[:-1]])
    spot = (table.units @ stride) // each[0]
    rows = table.summed(spot.astype(np.int64), int(training.devices // each[0]))
    ways = np.array(shape.rows[1])
    counts = np.array(serving.fan_outs) // ways
    inner = np.concatenate([[1], np.cumprod(ways)[:-1]])
    stride = np.concatenate([[1], np.cumprod(serving.fan_outs)[:-1]])
    inside = (np.arange(shape.devices)[:, None] // inner % ways) @ stride
    outside = np.concatenate([[1], np.cumprod(counts)[:-1]])
    copies = 1 if pools.rollout.publishing.path == "tree" else pair.offer.replicas
    begin = (np.arange(copies)[:, None] // outside % counts * ways) @ stride
    place = (begin[:, None] + inside[None, :]) // each[1]
    found = np.zeros((rows.shape[1], int(serving.devices // each[1])))
    np.add.at(found, (np.broadcast_to(np.arange(shape.devices), place.shape), place), 1.0)
    return np.asarray(rows @ found)
