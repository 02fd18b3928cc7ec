"""Seconds of every class of communication, per layer and microbatch unless said otherwise (FORMULAS 4.2).

Contents: tp_attention_forward_s and its kin, cp_forward_s, cp_backward_s, ep_dispatch_s, ep_combine_s,
ep_backward_s, pp_hop_s, the names of data_parallel.py, QUANTITIES. Bytes: volumes.py.

Nothing here is hidden behind compute: windows belong to the caller (costs/step.py).
Ignores: tensor parallel of the embedding and the output head, one AG and one RS per microbatch on the end stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from mapsearch import arrays as np
from mapsearch.axes import CpKind, Dispatcher
from mapsearch.costs import collectives, data_parallel, routing, volumes
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.quantity import Floats, Num, quantity
from mapsearch.topologies.fabric import Fabric

Kind = TypeVar("Kind", CpKind, Dispatcher)


_floats = np.floats


def _size(row: Num) -> Floats:
    return _floats(np.prod(np.asarray(row), axis=-1))


# --- tensor parallel ---------------------------------------------------------------------------------------------


# Halves of a layer and both directions ask for the same transfers, on the same arrays.
@np.remembered(records=6, most=8)
def _tp_s(
    tp_row: Num, tokens: Num, model: Model, run: Run, fabric: Fabric, profile: Profile, gathers: float, scatters: float
) -> Floats:
    """`gathers` all-gathers of what a GEMM takes and `scatters` transfers of X in 16 bits.

    One all-reduce without sequence parallelism.
    """
    fabric = fabric.seen_by("tp")
    full = volumes.hidden_bytes(tokens, _size(tp_row), model=model)
    if not run.sequence_parallel:
        return collectives.all_reduce_s(full, tp_row, fabric=fabric, profile=profile)
    gathered = full * volumes.gathered_element_share(model=model, run=run)
    result: Num = 0.0
    for count, sent in ((gathers, gathered), (scatters, full)):
        for times, part in ((count // 1.0, 1.0), (1.0, count % 1.0)):
            if times and part:
                seconds = collectives.all_gather_s(part * sent, tp_row, fabric=fabric, profile=profile)
                result = result + times * seconds
    return np.asarray(result)


@quantity(unit="s", source="F4.2")
def tp_attention_forward_s(
    tp_row: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Tensor parallel of one attention block, forward: AG + RS of X (MLA: AG of its compressed part only).

    Without sequence parallelism one all-reduce. Axes: tp_row, tokens. Unit: s. Source: F4.2.
    """
    if model.mla is None:
        return _tp_s(tp_row, tokens, model, run, fabric, profile, 1.0, 1.0)
    # A norm stands between MLA's gathered compressed tensors and the product that quantises: they travel in 16 bits.
    return _tp_s(tp_row, tokens, model, run, fabric, profile, 0.0, 1.0 + volumes.gathered_share(model))


@quantity(unit="s", source="F4.2")
def tp_attention_backward_s(
    tp_row: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Tensor parallel of one attention block, backward: mirror of forward, plus the input gathered again.

    AG(dX) + RS + AG of the saved input for the weight gradient. Axes: tp_row, tokens. Unit: s. Source: F4.2.
    """
    share = volumes.gathered_share(model)
    if model.mla is None or not run.sequence_parallel:
        return _tp_s(tp_row, tokens, model, run, fabric, profile, 2.0, 1.0)
    # MLA keeps its gathered compressed tensors (F3.3), so nothing is gathered again.
    return _tp_s(tp_row, tokens, model, run, fabric, profile, 1.0, share)


@quantity(unit="s", source="F4.2")
def tp_ffn_forward_s(tp_row: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Tensor parallel of one dense FFN, forward: AG + RS of X, or one all-reduce without sequence parallelism.

    Axes: tp_row, tokens. Unit: s. Source: F4.2.
    """
    return _tp_s(tp_row, tokens, model, run, fabric, profile, 1.0, 1.0)


@quantity(unit="s", source="F4.2")
def tp_ffn_backward_s(tp_row: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Tensor parallel of one dense FFN, backward: 2 AG + RS of X (the saved input is gathered again).

    Axes: tp_row, tokens. Unit: s. Source: F4.2.
    """
    return _tp_s(tp_row, tokens, model, run, fabric, profile, 2.0, 1.0)


def _has_shared(model: Model) -> float:
    return 1.0 if model.moe is not None and model.moe.shared_ffn else 0.0


@quantity(unit="s", source="F4.2")
def tp_shared_forward_s(
    tp_row: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Tensor parallel of the MoE half, forward: the shared expert's AG + RS; routed experts have none (ETP apart).

    Axes: tp_row, tokens. Unit: s. Source: F4.2.
    """
    return _has_shared(model) * _tp_s(tp_row, tokens, model, run, fabric, profile, 1.0, 1.0)


@quantity(unit="s", source="F4.2")
def tp_shared_backward_s(
    tp_row: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Tensor parallel of the MoE half, backward: the shared expert's 2 AG + RS.

    Axes: tp_row, tokens. Unit: s. Source: F4.2.
    """
    return _has_shared(model) * _tp_s(tp_row, tokens, model, run, fabric, profile, 2.0, 1.0)


# --- context parallel --------------------------------------------------------------------------------------------


def innermost_part(row: Num) -> tuple[Floats, Floats]:
    """A row split into the innermost level that it uses, and the rest."""
    ways = np.asarray(row, dtype=np.int64)
    first = (np.cumsum(ways > 1, axis=-1) == 1) & (ways > 1)
    return np.where(first, ways, 1), np.where(first, 1, ways)


def _ring_s(block: Num, row: Num, inner_row: Num, fabric: Fabric, profile: Profile) -> Floats:
    """CP - 1 steps of a block to the next rank; a step is as slow as the worst hop of the ring."""
    step = collectives.point_to_point_s(block, row, fabric=fabric, profile=profile, inner_row=inner_row)
    return (_size(row) - 1.0) * step


def _ulysses_s(payloads: tuple[Floats, Floats], row: Num, inner_row: Num, fabric: Fabric, profile: Profile) -> Floats:
    about = {"fabric": fabric, "profile": profile, "inner_row": inner_row}
    before, after = (collectives.all_to_all_s(sent, row, **about) for sent in payloads)
    return before + after


def _cp_s(
    kind: CpKind,
    tp: Num,
    cp_row: Num,
    micro_batch: Num,
    inner_row: Num,
    passes: float,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """One kind of context parallel, with `passes` times the K, V traffic; an Ulysses exchange is the same both ways."""
    fabric = fabric.seen_by("cp")
    cp = _size(cp_row)
    block = volumes.kv_block_bytes(tp, cp, micro_batch, model=model, run=run)
    if kind == CpKind.RING:
        return passes * _ring_s(block, cp_row, inner_row, fabric, profile)
    if kind == CpKind.ALL_GATHER:
        about = {"fabric": fabric, "profile": profile, "inner_row": inner_row}
        return passes * collectives.all_gather_s(cp * block, cp_row, **about)
    heads = volumes.ulysses_bytes(tp, cp, micro_batch, model=model, run=run)
    if kind == CpKind.ULYSSES:
        return _ulysses_s(heads, cp_row, inner_row, fabric, profile)
    inner, outer = innermost_part(cp_row)
    # Inside a hybrid's ring every rank holds 1/u of the heads of u times the tokens; heads below one are replicated.
    spread = np.maximum(_size(inner) / volumes.local_kv_heads(tp, model), 1.0)
    exchanged = _ulysses_s(heads, inner, inner_row, fabric, profile)
    return exchanged + passes * _ring_s(block * spread, outer, inner_row, fabric, profile)


def _chosen(codes: Num, kinds: Iterable[Kind], seconds: Callable[[Kind], Floats]) -> Floats:
    """Elementwise the seconds of the kind that each code names; kinds that do not occur are not computed."""
    chosen = np.asarray(codes)
    result = np.zeros(())
    for kind in kinds:
        if np.any(chosen == kind):
            result = np.where(chosen == kind, seconds(kind), result)
    return result


@quantity(unit="s", source="F4.2")
def cp_forward_s(
    tp: Num,
    cp_row: Num,
    cp_kind: Num,
    micro_batch: Num,
    inner_row: Num = None,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """Context parallel of one attention block, forward.

    Ring: CP-1 hops of the K, V block over the worst level the ring crosses; all-gather: the same bytes by the cuts;
    Ulysses: two all-to-alls; hybrid: Ulysses inside the innermost level of the row, ring across the others.
    Axes: tp, cp_row, cp_kind, micro_batch, inner_row (TP). Unit: s. Source: F4.2.
    """

    def seconds(kind: CpKind) -> Floats:
        about = {"model": model, "run": run, "fabric": fabric, "profile": profile}
        return _cp_s(kind, tp, cp_row, micro_batch, inner_row, 1.0, **about)  # type: ignore[arg-type]

    return _chosen(cp_kind, CpKind, seconds)


@quantity(unit="s", source="F4.2")
def cp_backward_s(
    tp: Num,
    cp_row: Num,
    cp_kind: Num,
    micro_batch: Num,
    inner_row: Num = None,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """Context parallel of one attention block, backward: K, V again and their gradients; Ulysses as forward.

    All-gather kinds gather K, V again and reduce-scatter dK, dV. Axes: tp, cp_row, cp_kind, micro_batch, inner_row
    (TP). Unit: s. Source: F4.2.
    """

    def seconds(kind: CpKind) -> Floats:
        about = {"model": model, "run": run, "fabric": fabric, "profile": profile}
        return _cp_s(kind, tp, cp_row, micro_batch, inner_row, 2.0, **about)  # type: ignore[arg-type]

    return _chosen(cp_kind, CpKind, seconds)


# --- expert parallel ---------------------------------------------------------------------------------------------


@np.remembered(records=8, most=4)
def _ep_s(
    tokens: Num,
    etp_row: Num,
    ep_row: Num,
    dispatcher: Num,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
    element_bytes: float,
) -> Floats:
    """One way through the dispatcher: exchange over EP, then the AG (or, backwards, RS) over ETP."""
    ep, etp = _size(ep_row), _size(etp_row)
    over_etp, fabric = fabric.seen_by("etp"), fabric.seen_by("ep")

    def seconds(kind: Dispatcher) -> Floats:
        if kind == Dispatcher.ALL_GATHER:
            full = _floats(tokens) * ep * etp * model.hidden * element_bytes
            group_row = np.asarray(etp_row) * np.asarray(ep_row)
            return collectives.all_gather_s(full, group_row, fabric=fabric, profile=profile)
        if kind == Dispatcher.DEDUPLICATED:
            loads = volumes.deduplicated_loads_bytes(tokens, ep_row, model=model, run=run, element_bytes=element_bytes)
            exchange = collectives.loads_s(loads, ep_row, fabric=fabric, profile=profile, inner_row=etp_row)
        else:
            sent = volumes.ep_payload_bytes(tokens, ep, kind, model=model, run=run, element_bytes=element_bytes)
            exchange = collectives.all_to_all_s(sent, ep_row, fabric=fabric, profile=profile, inner_row=etp_row)
        rows = routing.routed_rows(tokens, etp, ep, kind, model=model, run=run)
        gathered = rows * model.hidden * element_bytes
        return exchange + collectives.all_gather_s(gathered, etp_row, fabric=over_etp, profile=profile)

    return _chosen(dispatcher, Dispatcher, seconds)


@quantity(unit="s", source="F4.2")
def ep_dispatch_s(
    tokens: Num,
    etp_row: Num,
    ep_row: Num,
    dispatcher: Num,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """Tokens to their experts: all-to-all over EP and all-gather over ETP, or the dispatcher's own way.

    FP8 compute dispatches in FP8 with its scales. The all-gather dispatcher moves every token to all ETP*EP ranks.
    Axes: tokens, etp_row, ep_row, dispatcher. Unit: s. Source: F1.4, F2.3, F4.2.
    """
    element_bytes = volumes.dispatch_element_bytes(run=run)
    return _ep_s(tokens, etp_row, ep_row, dispatcher, model, run, fabric, profile, element_bytes)


@quantity(unit="s", source="F4.2")
def ep_combine_s(
    tokens: Num,
    etp_row: Num,
    ep_row: Num,
    dispatcher: Num,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """Expert outputs back to their tokens: reduce-scatter over ETP and all-to-all over EP, `combine_bytes` wide.

    Axes: tokens, etp_row, ep_row, dispatcher. Unit: s. Source: F1.4, F4.2.
    """
    return _ep_s(tokens, etp_row, ep_row, dispatcher, model, run, fabric, profile, run.routing.combine_bytes)


@quantity(unit="s", source="F4.2")
def ep_backward_s(
    tokens: Num,
    etp_row: Num,
    ep_row: Num,
    dispatcher: Num,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """Both transfers again for the gradients, mirrored: combine backwards is a dispatch, and the reverse.

    Axes: tokens, etp_row, ep_row, dispatcher. Unit: s. Source: F1.4 (four all-to-alls per MoE layer and microbatch).
    """
    forth = ep_dispatch_s(tokens, etp_row, ep_row, dispatcher, model=model, run=run, fabric=fabric, profile=profile)
    back = ep_combine_s(tokens, etp_row, ep_row, dispatcher, model=model, run=run, fabric=fabric, profile=profile)
    return forth + back


# --- pipeline parallel -------------------------------------------------------------------------------------------


@quantity(unit="s", source="F4.2")
def pp_hop_s(
    pp_row: Num, tokens: Num, inner_row: Num = None, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Hidden states of one microbatch to the next stage, at the worst level that neighbouring stages cross.

    tau * h * 2 bytes per rank. Axes: pp_row, tokens, inner_row (all other axes). Unit: s. Source: F4.2.
    Ignores: full tensors without sequence parallelism (they are sent in shards of TP and gathered).
    """
    sent = volumes.hidden_bytes(tokens, 1, model=model)
    return collectives.point_to_point_s(sent, pp_row, fabric=fabric.seen_by("pp"), profile=profile, inner_row=inner_row)


# Data parallel is a class of communication like the others; only its file is another.
dense_gradient_s = data_parallel.dense_gradient_s
dense_gather_s = data_parallel.dense_gather_s
expert_gradient_s = data_parallel.expert_gradient_s
expert_gather_s = data_parallel.expert_gather_s
zero3_dense_s = data_parallel.zero3_dense_s
zero3_expert_s = data_parallel.zero3_expert_s

QUANTITIES = (
    tp_attention_forward_s,
    tp_attention_backward_s,
    tp_ffn_forward_s,
    tp_ffn_backward_s,
    tp_shared_forward_s,
    tp_shared_backward_s,
    cp_forward_s,
    cp_backward_s,
    ep_dispatch_s,
    ep_combine_s,
    ep_backward_s,
    pp_hop_s,
    *data_parallel.QUANTITIES,
)
