"""Weights from the training pool to the rollout pool: who sends what to whom, and how long it takes (FORMULAS 1.7).

Contents: Layout, shares, layout_bytes, sent_share, stage_shares, Route, transfer_parts_s, transfer_bound_s,
stages_s, publish_s.

A weight is cut by position: attention and dense layers along their TP width, experts by number and by width. Each
rollout rank receives what it holds; of the training ranks that hold a piece each sends an equal part.
"""

from __future__ import annotations

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


def stage_shares(model: Model, stages: Sequence[int]) -> Floats:
    """Share of all parameters on each pipeline stage; embedding on the first, head on the last. Source: F3.1."""
    book = parameters.ledger(model=model)
    kinds, place, found = model.layer_kinds, 0, []
    dense = float(parameters.dense_layer_parameters(1, model=model)) if "dense" in kinds else 0.0
    moe = 0.0
    if "moe" in kinds:
        moe = float(parameters.moe_layer_parameters(1, model=model) + parameters.expert_parameters(1, 1, model=model))
    for layers in stages:
        here = kinds[place : place + layers]
        found.append(here.count("dense") * dense + here.count("moe") * moe)
        place += layers
    found[0] += book.parts["input embedding"]
    found[-1] += book.parts["output head"]
    return np.array(found) / sum(found)


def sent_share(stage_share: Floats, devices: int) -> float:
    """Share of the weights that the busiest training rank sends for one copy: its stage's, over the stage's ranks.

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
    """Per device, one way."""
    latency_s: float = 0.0


def transfer_parts_s(route: Route) -> dict[str, float]:
    """Seconds that sending, receiving and the tree's filling take; the transfer is the longest of the first two, and
    the filling.

    push, all: replicas x V over all sources; tree: one V over the sources, and a receiver passes on to one more each
    round: depth x latency. Receiving: what a device holds, over its link (twice in a tree: it passes on as much, the
    other direction of the link is free, so once). Unit: s. Source: F1.7.
    """
    copies = 1 if route.path == "tree" else route.replicas
    depth = float(np.ceil(np.log2(route.replicas + 1.0))) if route.path == "tree" else 1.0
    return {
        "send": copies * route.volume_bytes / (route.sources * route.bytes_per_s),
        "receive": route.received_bytes / route.bytes_per_s,
        "fill": depth * route.latency_s,
    }


def transfer_bound_s(route: Route, training_devices: int) -> float:
    """No way is shorter: every weight leaves once, over all training links, and every device gets what it holds.

    max(V / (W B), received / B). Unit: s. Source: F1.7 (T_transfer >= V / B_e2e).
    """
    return max(route.volume_bytes / training_devices, route.received_bytes) / route.bytes_per_s


def stages_s(
    route: Route, *, parameters_sent: float, sending_bytes_per_s: float, receiving_bytes_per_s: float, switch_s: float
) -> dict[str, float]:
    """T_quant, T_reshard, T_transfer, T_verify, T_switch of the slowest device.

    Quantise: the busiest sender reads its BF16 weights and writes what it sends of one copy; reshard: a receiver reads
    and writes what came; verify: it reads it once more. `sending_bytes_per_s`, `receiving_bytes_per_s`: memory.
    Unit: s. Source: F1.7.
    """
    parts = transfer_parts_s(route)
    written = route.volume_bytes / route.sources
    return {
        "quantise": (2.0 * parameters_sent + written) / sending_bytes_per_s,
        "reshard": 2.0 * route.received_bytes / receiving_bytes_per_s,
        "transfer": max(parts["send"], parts["receive"]) + parts["fill"],
        "verify": route.received_bytes / receiving_bytes_per_s,
        "switch": switch_s,
    }


def publish_s(stages: dict[str, float], *, pipelined: bool, chunks: int) -> float:
    """T_pub of those stages, one after the other or in chunks. Unit: s. Source: F1.7."""
    told = {f"{name}_s": value for name, value in stages.items()}
    return pipelined_publish_s(**told, chunks=chunks) if pipelined else float(serial_publish_s(**told))
