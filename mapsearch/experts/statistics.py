"""How uneven loads are: one pure function per figure, over the last axis.

Contents: skew, variation, spread, mean_spread, rank_loads, pair_loads, pair_skew, off_unit, accepted, CapacityUse,
capacity_use, least_factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.costs.routing import capacity_slots
from mapsearch.expert_load import Spread

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def skew(loads: Floats) -> Floats:
    """Largest over mean: rho_e of experts, rho_r of ranks. Unit: none. Source: F1.4."""
    return np.asarray(loads.max(axis=-1) / loads.mean(axis=-1))


def variation(loads: Floats) -> Floats:
    """CV = std / mean. Unit: none. Source: F1.4."""
    return np.asarray(loads.std(axis=-1) / loads.mean(axis=-1))


def spread(loads: Floats) -> Spread:
    """All figures of one set of loads. Unit: that of the loads."""
    return mean_spread(np.asarray(loads)[None])


def mean_spread(loads: Floats) -> Spread:
    """Figures of each set of loads (last axis), averaged over the sets."""
    return Spread(
        min=float(loads.min(axis=-1).mean()),
        mean=float(loads.mean()),
        p95=float(np.percentile(loads, 95, axis=-1).mean()),
        max=float(loads.max(axis=-1).mean()),
        variation=float(variation(loads).mean()),
        skew=float(skew(loads).mean()),
    )


def rank_loads(loads: Floats, placement: Ints) -> Floats:
    """Assignments of each rank: an expert on c ranks gives 1/c of its load to each.

    Axes: loads (.., experts), placement (ranks, slots) of expert numbers. Unit: that of the loads. Source: F1.4.
    """
    counts = np.bincount(placement.ravel(), minlength=loads.shape[-1])
    return np.asarray((loads / np.maximum(counts, 1))[..., placement].sum(axis=-1))


def pair_skew(loads: Floats, placement: Ints) -> Floats:
    """Largest over mean of the traffic matrix, sources by ranks: what a fixed-size all-to-all pads every pair to.

    Axes: loads (.., sources, experts). Unit: none. Source: F1.4 (M from the observed maximum).
    """
    pairs = rank_loads(loads, placement)
    return np.asarray(pairs.max(axis=(-2, -1)) / pairs.mean(axis=(-2, -1)))


def off_unit(loads: Floats, source_node: Ints, nodes: int) -> Floats:
    """Assignments to each expert that leave their source's node when the expert stands in a node.

    Axes: loads (sources, experts) to (experts, nodes). Unit: that of the loads.
    """
    inside = np.zeros((loads.shape[-1], nodes))
    np.add.at(inside.T, source_node, loads)
    return np.asarray(loads.sum(axis=0)[:, None] - inside)


@dataclass(frozen=True)
class CapacityUse:
    """Slots of an expert, share of them in use, and share of the assignments that is dropped, by set of loads."""

    slots: Floats
    use: Floats
    drop_rate: Floats


def capacity_use(loads: Floats, capacity_factor: float) -> CapacityUse:
    """One capacity for the whole domain: A_acc = sum min(n_e, C), use = A_acc / (E C), dropped = 1 - A_acc / A.

    Axes: loads (.., experts). Source: F1.4. Ignores: the ceil per source rank, which adds slots.
    """
    total = loads.sum(axis=-1)
    experts = loads.shape[-1]
    # A = N K is what the loads add up to, so K is 1 here.
    slots = np.asarray(capacity_slots(total, experts=experts, top_k=1, capacity_factor=capacity_factor))
    taken = np.minimum(loads, slots[..., None]).sum(axis=-1)
    return CapacityUse(slots, taken / (experts * slots), 1.0 - taken / total)


def least_factor(loads: Floats, drop_limit: float) -> float:
    """Least capacity factor, 1 at least, with which the assignments dropped over all sets stay within a share of all.

    Unit: none. Ignores: the ceil of the slots, which can only drop less.
    """
    sets = loads.reshape(-1, loads.shape[-1])
    mean = sets.mean(axis=-1, keepdims=True)
    ratios = np.sort((sets / mean).ravel())[::-1]
    weights = np.broadcast_to(mean, sets.shape).ravel()[np.argsort(-(sets / mean).ravel(), kind="stable")]
    allowed = drop_limit * sets.sum()
    # Dropped at factor f: sum of w (ratio - f) over ratios above f; piecewise linear, so the piece is found first.
    below = np.append(ratios[1:], 0.0)
    heavy, mass = np.cumsum(weights), np.cumsum(weights * ratios)
    dropped_at_next = mass - heavy * below
    piece = int(np.argmax(dropped_at_next >= allowed)) if dropped_at_next[-1] >= allowed else len(ratios) - 1
    return max(1.0, float((mass[piece] - allowed) / heavy[piece]))
