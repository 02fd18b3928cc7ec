"""Weights from the training pool to the rollout pool: who sends what to whom, and how long it takes (FORMULAS 1.7).

Contents: Layout, shares, layout_bytes, stage_parts, sent_shares, sent_share, Route, transfer_parts_s,
transfer_s, bound_parts_s, transfer_bound_s, stages_s, publish_s.

A weight is cut by position: attention and dense layers along their TP width, experts by number and by width. Each
rollout rank receives what it holds; of the training ranks that hold a piece each sends an equal part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mapsearch.costs import parameters
from mapsearch.costs.publishing import pipelined_publish_s, serial_publish_s
from mapsearch.inventories.model import Model
from mapsearch.quantity import Floats


@dataclass(frozen=True)
class Layout:
    """How one side cuts the weights: `copies` ranks hold the same dense piece, `expert_copies` the same experts."""

    tp: int
    copies: int
    etp: int
    ep: int
    expert_copies: int
    stages: tuple[int, ...] = ()
    """Layers per pipeline stage; empty: all layers on every rank."""

    @property
    def ranks(self) -> int:
        """Ranks of one stage."""
        return self.tp * self.copies


def shares(sending: int, receiving: int) -> Floats:
    """Share of the whole that lies in piece i of `sending` equal pieces and piece j of `receiving`.

    Shape (sending, receiving); each column adds up to 1 / receiving. Unit: none.
    """
    low = np.maximum(np.arange(sending)[:, None] / sending, np.arange(receiving)[None, :] / receiving)
    high = np.minimum((np.arange(sending)[:, None] + 1) / sending, (np.arange(receiving)[None, :] + 1) / receiving)
    return np.asarray(np.maximum(high - low, 0.0))


def layout_bytes(sending: Layout, receiving: Layout, dense_bytes: float, expert_bytes: float) -> tuple[Floats, Floats]:
    """Bytes from a training rank of each kind to a rollout rank of each kind, for one stage's weights.

    Dense weights by (TP piece, TP piece), experts by (EP, ETP, EP, ETP); of the ranks that hold the same piece each
    sends an equal part, so a row is divided by `copies`. Unit: bytes. Source: F1.7 (reshard).
    """
    dense = shares(sending.tp, receiving.tp) * dense_bytes / sending.copies
    experts = np.einsum("ab,cd->acbd", shares(sending.ep, receiving.ep), shares(sending.etp, receiving.etp))
    return dense, experts * expert_bytes / sending.expert_copies


def stage_parts(model: Model, stages: Sequence[int]) -> tuple[Floats, Floats]:
    """Shares of all parameters on each pipeline stage: dense weights, and experts; embedding first, head last.

    Together they add up to 1. Unit: none. Source: F3.1.
    """
    book = parameters.ledger(model=model)
    kinds, place = model.layer_kinds, 0
    layer = float(parameters.dense_layer_parameters(1, model=model)) if "dense" in kinds else 0.0
    moe = float(parameters.moe_layer_parameters(1, model=model)) if "moe" in kinds else 0.0
    routed = float(parameters.expert_parameters(1, 1, model=model)) if "moe" in kinds else 0.0
    dense, experts = [], []
    for layers in stages:
        here = kinds[place : place + layers]
        dense.append(here.count("dense") * layer + here.count("moe") * moe)
        experts.append(here.count("moe") * routed)
        place += layers
    dense[0] += book.parts["input embedding"]
    dense[-1] += book.parts["output head"]
    total = sum(dense) + sum(experts)
    return np.array(dense) / total, np.array(experts) / total


def sent_shares(dense: Floats, experts: Floats, copies: float) -> Floats:
    """Share of each stage in what is sent, when dense weights go so many times beside the experts. Unit: none."""
    sent = copies * dense + experts
    return np.asarray(sent / sent.sum())


def sent_share(stage_share: Floats, devices: int) -> float:
    """Share of what is sent that the busiest training rank sends: its stage's, over the stage's ranks.

    Dense weights over TP x CP x DP and experts over ETP x EP x EDP, which are the same number (F5.1): only the
    pipeline makes ranks unequal. Unit: none.
    """
    return float(np.max(stage_share)) * len(stage_share) / devices


@dataclass(frozen=True)
class Route:
    """The way between the pools."""

    path: str
    volume_bytes: float
    """One copy of all published weights."""
    received_bytes: float
    """What the fullest rollout device holds of them."""
    replicas: int
    sources: float
    """Devices that send at once, the busiest counting as one: 1 / its share of the volume."""
    bytes_per_s: float
    """A training device's own way out, one way."""
    latency_s: float = 0.0
    receive_bytes_per_s: float | None = None
    """A rollout device's own way in; None: as a training device's way out."""
    relay_bytes_per_s: float | None = None
    """Between devices of neighbouring replicas, in a tree; None: as the way in."""
    link_s_per_byte: float = 0.0
    """Of the busiest link between the pools, for one byte that is spread evenly over both sides and routed."""
    replica_bytes: float | None = None
    """What one replica's devices get together: dense weights once for every copy of attention; None: the volume."""
    narrowest_bytes_per_s: float = math.inf
    """Through the narrowest cut between the pools, whoever sends how much to whom."""

    @property
    def way_in_bytes_per_s(self) -> float:
        """Bandwidth at which one rollout device receives."""
        return self.bytes_per_s if self.receive_bytes_per_s is None else self.receive_bytes_per_s

    @property
    def crossing_bytes(self) -> float:
        """What goes from pool to pool: all that every replica gets, or the first one down a tree. Source: F1.7."""
        each = self.volume_bytes if self.replica_bytes is None else self.replica_bytes
        return (1 if self.path == "tree" else self.replicas) * each


def transfer_parts_s(route: Route) -> dict[str, float]:
    """Seconds that each cut on the way takes, and the tree's filling; the transfer is the longest of the cuts, and it.

    send: the busiest training device's share of what all replicas get (one of them down a tree: F1.7's q V or V where
    attention has one copy in a replica), over its own way out; link: all that
    goes from pool to pool, over the busiest link between them; receive: what a device holds, over its way in; relay: as
    much on to the next replica, in a tree alone (the other direction of its link is free). Fill: depth x latency.
    Unit: s. Source: F1.7.
    """
    tree = route.path == "tree"
    depth = float(np.ceil(np.log2(route.replicas + 1.0))) if tree else 1.0
    relay_bytes_per_s = route.relay_bytes_per_s or route.way_in_bytes_per_s
    return {
        "send": route.crossing_bytes / (route.sources * route.bytes_per_s),
        "link": route.crossing_bytes * route.link_s_per_byte,
        "receive": route.received_bytes / route.way_in_bytes_per_s,
        "relay": route.received_bytes / relay_bytes_per_s if tree and route.replicas > 1 else 0.0,
        "fill": depth * route.latency_s,
    }


def transfer_s(route: Route) -> float:
    """The slowest cut, and filling. Unit: s. Source: F1.7."""
    parts = transfer_parts_s(route)
    return max(seconds for name, seconds in parts.items() if name != "fill") + parts["fill"]


def bound_parts_s(route: Route, training_devices: int) -> dict[str, float]:
    """Seconds of three cuts that no way avoids: bytes that must pass / capacity.

    send: every weight leaves once, over all training devices' ways out; link: through the narrowest cut between the
    pools; receive: every device gets what it holds. Unit: s. Source: F1.7 (T_transfer >= V / B_e2e).
    """
    return {
        "send": route.volume_bytes / (training_devices * route.bytes_per_s),
        "link": route.volume_bytes / route.narrowest_bytes_per_s,
        "receive": route.received_bytes / route.way_in_bytes_per_s,
    }


def transfer_bound_s(route: Route, training_devices: int) -> float:
    """No way is shorter than the slowest cut that each must pass. Unit: s. Source: F1.7."""
    return max(bound_parts_s(route, training_devices).values())


def stages_s(
    route: Route,
    *,
    parameters_sent: float,
    sending_bytes_per_s: float,
    receiving_bytes_per_s: float,
    switch_s: float,
    written_bytes: float | None = None,
    snapshot_s: float = 0.0,
    held_bytes: float | None = None,
) -> dict[str, float]:
    """T_quant, T_reshard, T_transfer, T_verify, T_switch of the slowest device.

    Quantise: the busiest sender reads its BF16 weights and writes what it sends of one copy (`written_bytes`; a delta
    takes `snapshot_s` besides, to compare); reshard: a receiver reads and writes what came; verify: it reads what it
    then holds (`held_bytes`: more than came of a delta). `sending_bytes_per_s`, `receiving_bytes_per_s`: memory.
    Unit: s. Source: F1.7.
    """
    written = route.volume_bytes / route.sources if written_bytes is None else written_bytes
    held = route.received_bytes if held_bytes is None else held_bytes
    return {
        "quantise": (2.0 * parameters_sent + written) / sending_bytes_per_s + snapshot_s,
        "reshard": 2.0 * route.received_bytes / receiving_bytes_per_s,
        "transfer": transfer_s(route),
        "verify": held / receiving_bytes_per_s,
        "switch": switch_s,
    }


def publish_s(stages: dict[str, float], *, pipelined: bool, chunks: int) -> float:
    """T_pub of those stages, one after the other or in chunks. Unit: s. Source: F1.7."""
    told = {f"{name}_s": value for name, value in stages.items()}
    return pipelined_publish_s(**told, chunks=chunks) if pipelined else float(serial_publish_s(**told))
