"""Routing of tokens to experts: capacity, padding, skew, copies and the compute/communication ratio.

Contents: capacity_slots, capacity, amplification, routed_amplification, routed_rows, sent_rows, skews, received_skew,
ideal_volume_bytes, fixed_volume_bytes, group_volume_bytes, worst_case_amplification, distinct_units,
remote_units, compute_communication_ratio, balanced_ffn_width, QUANTITIES.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from mapsearch import arrays as np
from mapsearch.axes import Dispatcher
from mapsearch.inventories.model import Model, Moe
from mapsearch.inventories.run import Run
from mapsearch.quantity import Floats, Num, quantity

_ROUNDING = 1e-12
"""Share taken off before a ceil, so that 1.1 * 10 slots are 11 and not 12."""


_floats = np.floats


def routed(model: Model) -> Moe:
    """The MoE record of a model that has one. Raises ValueError otherwise: callers ask only about MoE layers."""
    if model.moe is None:
        raise ValueError(f"{model.name} has no experts, so nothing is routed")
    return model.moe


def capacity_slots(tokens: Num, *, experts: int, top_k: int, capacity_factor: float, min_capacity: int = 0) -> Floats:
    """Slots of one expert for a routing domain (or one source rank) of `tokens` tokens.

    C = max(ceil(cf * N * K / E), min_capacity). Unit: slots. Source: F1.4; the source rank's tokens count, and
    K belongs in the formula (Megatron and DeepSpeed have it, one printed equation has not).
    """
    mean = capacity_factor * _floats(tokens) * top_k / experts
    return np.maximum(np.ceil(mean * (1.0 - _ROUNDING)), float(min_capacity))


@quantity(unit="slots", source="F1.4")
def capacity(tokens: Num, *, model: Model, run: Run) -> Floats:
    """Slots that one source rank of `tokens` tokens reserves at each expert.

    Axes: tokens. Unit: slots. Source: F1.4.
    """
    moe, routing = routed(model), run.routing
    return capacity_slots(
        tokens,
        experts=moe.experts,
        top_k=moe.top_k,
        capacity_factor=routing.capacity_factor,
        min_capacity=routing.min_capacity,
    )


@quantity(unit="1", source="F1.4")
def amplification(tokens: Num, *, model: Model, run: Run) -> Floats:
    """Padded slots over routed assignments, when every source rank pads to its capacity.

    E * C_src / (N_src * K); at least 1 for cf >= 1. Axes: tokens. Unit: none. Source: F1.4.
    Ignores: dropped tokens, which leave their slots empty.
    """
    moe = routed(model)
    return moe.experts * capacity(tokens, model=model, run=run) / (_floats(tokens) * moe.top_k)


def worst_case_amplification(ep: Num, *, experts: int, top_k: int) -> Floats:
    """Slots over assignments when every pair of ranks may hold all that one source can send it (dropless).

    R * min(K, E/R) / K: 8, 16, 24 for R = 8, 16, >= 32 with E = 384, K = 16. Unit: none. Source: F1.4.
    """
    ranks = _floats(ep)
    return np.asarray(ranks * np.minimum(float(top_k), experts / ranks) / top_k)


def skews(ep: Num, *, run: Run) -> tuple[Floats, Floats]:
    """Rank and pair skew that the run states for so many expert ranks: its two numbers, or its table `by_ranks`.

    A number of ranks that the table lacks takes the next larger one's: merging ranks only evens them out. Above the
    largest nothing is known, so the worst case is left to bound it. Axes: ep. Unit: none. Source: F1.4.
    """
    stated = run.routing
    if stated.loads:
        raise ValueError(f"run {run.name} names routing.loads {stated.loads}, which nobody has read yet")
    if not stated.by_ranks:
        return np.asarray(stated.rank_skew), np.asarray(stated.pair_skew)
    table = stated.by_ranks
    ranks = sorted(table)
    rank, pair = (
        [*(float(getattr(table[size], name)) for size in ranks), math.inf] for name in ("rank_skew", "pair_skew")
    )
    if np.plain(ep):
        place = bisect_left(ranks, ep)
        return np.asarray(rank[place]), np.asarray(pair[place])
    places = np.searchsorted(np.asarray(ranks), ep)
    return np.asarray(rank)[places], np.asarray(pair)[places]


@quantity(unit="1", source="F1.4")
def received_skew(ep: Num, *, model: Model, run: Run) -> Floats:
    """Load of the busiest expert rank over the mean, of a dropless dispatcher.

    `routing.rank_skew`, but never more than every token choosing that rank; 1 for a group of one.
    Axes: ep. Unit: none. Source: F1.4 (rho_r).
    """
    moe = routed(model)
    most = worst_case_amplification(ep, experts=moe.experts, top_k=moe.top_k)
    return np.minimum(skews(ep, run=run)[0], most)


def _is_fixed(dispatcher: Num) -> Floats:
    return _floats(np.asarray(dispatcher) == Dispatcher.FIXED_ALL_TO_ALL)


@quantity(unit="1", source="F1.4, F3.3")
def routed_amplification(tokens: Num, ep: Num, dispatcher: Num, *, model: Model, run: Run) -> Floats:
    """Rows of the busiest expert rank over its even share of the assignments.

    Fixed all-to-all: capacity padding; every other dispatcher: rank skew.
    Axes: tokens, ep, dispatcher. Unit: none. Source: F1.4, F3.3.
    """
    fixed = _is_fixed(dispatcher)
    if np.plain(fixed) and not fixed:
        return received_skew(ep, model=model, run=run)
    padded = amplification(tokens, model=model, run=run)
    return fixed * padded + (1.0 - fixed) * received_skew(ep, model=model, run=run)


@quantity(unit="rows", source="F3.3")
def routed_rows(tokens: Num, etp: Num, ep: Num, dispatcher: Num, *, model: Model, run: Run) -> Floats:
    """Rows that enter the expert GEMMs of the busiest rank, FP8 alignment apart.

    tokens * K * ETP * amplification: after the all-gather over ETP. Axes: tokens, etp, ep, dispatcher. Unit: rows.
    Source: F3.3, F4.2.
    """
    rows = routed_amplification(tokens, ep, dispatcher, model=model, run=run) * _floats(tokens)
    return rows * routed(model).top_k * _floats(etp)


@quantity(unit="rows", source="F1.4")
def sent_rows(tokens: Num, dispatcher: Num, *, model: Model, run: Run) -> Floats:
    """Rows that one source rank permutes and sends: its assignments, or its padded slots.

    Axes: tokens, dispatcher. Unit: rows. Source: F1.4.
    """
    fixed = _is_fixed(dispatcher)
    assignments = _floats(tokens) * routed(model).top_k
    if np.plain(fixed) and not fixed:
        return assignments
    return assignments * (fixed * amplification(tokens, model=model, run=run) + (1.0 - fixed))


def ideal_volume_bytes(tokens: Num, *, top_k: int, hidden: int, element_bytes: float) -> Floats:
    """Dispatch plus combine of one MoE layer over the whole domain, nothing padded, local share included.

    V_ideal = 2 * N * K * h * e. Unit: bytes. Source: F1.4.
    """
    return 2.0 * _floats(tokens) * top_k * hidden * element_bytes


def fixed_volume_bytes(
    tokens: Num, *, experts: int, top_k: int, hidden: int, element_bytes: float, capacity_factor: float
) -> Floats:
    """Dispatch plus combine with one capacity for the whole domain: a lower bound of padded schemes.

    V_fix = 2 * E * C * h * e. Unit: bytes. Source: F1.4. Ignores: the ceil per source, which adds more.
    """
    slots = capacity_slots(tokens, experts=experts, top_k=top_k, capacity_factor=capacity_factor)
    return 2.0 * experts * slots * hidden * element_bytes


def group_volume_bytes(ep: Num, pair_slots: Num, *, hidden: int, element_bytes: float, wire: bool = False) -> Floats:
    """Dispatch plus combine of a whole-group all-to-all with one buffer of M slots per pair of ranks.

    V_group = 2 * R^2 * M * h * e, on the wire 2 * R * (R - 1) * M * h * e. Unit: bytes. Source: F1.4.
    """
    ranks = _floats(ep)
    return 2.0 * ranks * (ranks - float(wire)) * _floats(pair_slots) * hidden * element_bytes


def _missed(unit_experts: Floats, reachable: float, top_k: int) -> Floats:
    """Chance that K experts out of `reachable`, drawn without repetition, all miss `unit_experts` of them."""
    missed = np.ones_like(unit_experts)
    for drawn in range(top_k):
        missed = missed * np.clip((reachable - unit_experts - drawn) / max(reachable - drawn, 1.0), 0.0, 1.0)
    return missed


def distinct_units(units: Num, *, model: Model, consecutive: bool = False) -> Floats:
    """Expected distinct units (ranks, nodes, racks) that the K experts of a token live in.

    u_R = R * [1 - binom(E - E/R, K) / binom(E, K)] for uniform routing; with group-limited routing the K experts
    come from `top_groups` groups drawn first; consecutive ones, token i taking i K to i K + K - 1 modulo E, span
    1 + (K - gcd(K, E/R)) / (E/R) units, and K at most. Unit: units. Source: F1.4; NeMo AutoModel (FakeBalancedGate).
    Ignores: skew, which lowers it.
    """
    moe = routed(model)
    if consecutive:
        held = np.maximum(moe.experts / _floats(units), 1.0)
        spanned = 1.0 + (moe.top_k - np.gcd(moe.top_k, np.asarray(held, dtype=np.int64))) / held
        return np.minimum(spanned, np.minimum(float(moe.top_k), _floats(units)))
    if np.plain(units):
        return _distinct_of(moe, float(units))
    # Few different counts occur in large arrays, and the product over K is the costly part.
    count, place = np.unique(_floats(units), return_inverse=True)
    return np.asarray(_distinct(count, moe)[place].reshape(np.shape(units)))


@np.remembered()
def _distinct_of(moe: Moe, count: float) -> Floats:
    return _distinct(_floats(count), moe)


def _distinct(count: Floats, moe: Moe) -> Floats:
    held = moe.experts / count
    group_experts = moe.experts / moe.groups
    reachable = group_experts * moe.top_groups
    if moe.top_groups == moe.groups:
        return np.asarray(count * (1.0 - _missed(held, reachable, moe.top_k)))
    # A unit holds whole groups (few units) or a part of one group (many units): condition on the groups drawn.
    whole = np.maximum(np.round(held / group_experts), 1.0)
    inside = np.minimum(held, group_experts)
    missed = np.zeros_like(held)
    for drawn in range(moe.top_groups + 1):
        chance = _hypergeometric(drawn, whole, moe.groups, moe.top_groups)
        missed = missed + chance * _missed(drawn * inside, reachable, moe.top_k)
    return np.asarray(count * (1.0 - missed))


def _hypergeometric(drawn: int, marked: Floats, total: int, sample: int) -> Floats:
    """Chance that `drawn` of `sample` draws, without repetition, are among `marked` of `total`."""

    def choose(n: Floats, k: int) -> Floats:
        result = np.ones_like(n)
        for i in range(k):
            result = result * np.maximum(n - i, 0.0) / (i + 1)
        return result

    everything = choose(np.asarray(float(total)), sample)
    return choose(marked, drawn) * choose(total - marked, sample - drawn) / everything


def remote_units(units: Num, *, model: Model, consecutive: bool = False) -> Floats:
    """Expected distinct units other than the token's own: u_R * (R - 1) / R.

    6.21 of 8 nodes for E = 384, K = 16, against 14 remote copies. Unit: units. Source: F1.4.
    """
    count = _floats(units)
    return distinct_units(count, model=model, consecutive=consecutive) * (count - 1.0) / count


def compute_communication_ratio(
    ffn: Num,
    *,
    bytes_per_s: float,
    flops_per_s: float,
    ranks: float = np.inf,
    dispatch_bytes: float = 2.0,
    combine_bytes: float = 2.0,
) -> Floats:
    """Rcc: expert compute time over dispatch-plus-combine time, forward; above 1 the transfers can hide.

    Rcc = 6 f / (e_d + e_c) * B / F * n / (n - 1); forward and backward together 1.5 times that. Unit: none.
    Source: F1.6 (3/2 * f * B / F when both transfers are BF16).
    Ignores: padding, skew and de-duplication; K, E and h cancel.
    """
    remote = 1.0 if np.isinf(ranks) else (ranks - 1.0) / ranks
    return 6.0 * _floats(ffn) / (dispatch_bytes + combine_bytes) * bytes_per_s / flops_per_s / remote


def balanced_ffn_width(*, bytes_per_s: float, flops_per_s: float, element_bytes: float = 2.0) -> float:
    """Expert FFN width at which Rcc is 1 in a large group: 2 e F / (6 B). Unit: columns. Source: F1.6."""
    return 2.0 * element_bytes * flops_per_s / (6.0 * bytes_per_s)


QUANTITIES = (capacity, amplification, received_skew, routed_amplification, routed_rows, sent_rows)
