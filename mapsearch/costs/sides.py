"""The two grids and the cell as sides of a step: which quantities they add, on which stages, how often.

Contents: cell_side, attention_times, attention_alone, expert_times, expert_alone.

A side's quantities never look at the other grid: that is what lets the search evaluate each grid's options once and
join them (docs/explanation/formulation.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mapsearch import arrays as np
from mapsearch.axes import Hidden, Offload, Recompute
from mapsearch.costs import communication, compute, data_parallel, memory, parameters, pipeline
from mapsearch.costs.footprint import attention_kept, dense_parameters, routed_kept, routed_parameters
from mapsearch.costs.per_stage import per_stage
from mapsearch.costs.recompute import (
    again,
    dense_activation_again_s,
    mla_up_share,
    moe_activation_again_s,
    norm_again_s,
    only,
)
from mapsearch.costs.step import Part, Side, Transfer, hosted, share, spread
from mapsearch.costs.views import AttentionView, CellView, ExpertView, Facts
from mapsearch.quantity import Num, maximum


def _timed(facts: Facts) -> dict[str, Any]:
    return {"model": facts.model, "run": facts.run, "fabric": facts.fabric, "profile": facts.profile}


def linear(name: str, counts: list[Num], forward: Num, repeat: Num) -> Part:
    """A linear layer: input and weight gradient cost a forward each (F3.2); recompute repeats the forward."""
    return Part(name, spread(counts, forward), spread(counts, forward * (1.0 + repeat)), spread(counts, forward))


def paired(name: str, counts: list[Num], forward: Num, backward: Num, repeat: Num, steady: Num = 1.0) -> Part:
    """Work without a weight gradient; recompute repeats the forward."""
    return Part(
        name,
        spread(counts, forward),
        spread(counts, backward + forward * repeat),
        spread(counts, 0.0 * forward),
        steady,
    )


def cell_side(cell: CellView) -> Side:
    """What the shared axes cost by themselves: pipeline hops (F4.2; twice as many in V-shaped schedules)."""
    facts = _timed(cell.facts)
    row, used = np.asarray(cell.pp_row), np.asarray(cell.used)
    hop = communication.pp_hop_s(row, cell.tokens, used // row, **facts)  # PP stands outermost on every level
    hops = hop * cell.vpp * pipeline.hops_per_chunk(cell.schedule)
    hidden = (np.asarray(cell.vpp) > 1) & cell.facts.run.overlap.pp
    everywhere: list[Num] = [1.0 for _ in cell.kinds]
    return Side(
        parts=[paired("pp", everywhere, hops, hops, 0.0, steady=np.where(hidden, 0.0, 1.0))],
        transfers=[Transfer("pp", everywhere, hops, hops, 0.0)],
    )


@per_stage
def attention_times(view: AttentionView) -> Side:
    """What an attention option adds in seconds: projections, attention core, FFN, router, heads, TP, CP, dense DP."""
    cell, facts = view.cell, _timed(view.facts)
    transfers = _attention_transfers(view, facts)
    core = _core(view, facts)
    parts = [*_attention_compute(view, core, facts), *_attention_communication(view, transfers, core)]
    hidden, in_line = _streamed(cell, _zero3_attention(view))
    return Side(
        parts=[*parts, *_activation_transfer(cell, lambda: attention_kept(view, cell.recompute)), *in_line],
        launches=_launches(view.facts, _attention_kernels(view), again(cell.recompute, 0)),
        once=_attention_once(view, facts),
        under_compute=hidden,
        transfers=transfers,
    )


@per_stage
def attention_alone(view: AttentionView) -> Side:
    """As `attention_times` without communication: what is left depends on sizes, not on rows, and is never more."""
    cell, facts = view.cell, _timed(view.facts)
    core = _core(view, facts)
    shards = data_parallel.shard_count(cell.dp * view.cp, run=view.facts.run)
    moved = _activation_transfer(cell, lambda: attention_kept(view, cell.recompute))
    return Side(
        parts=[*_attention_compute(view, core, facts), *moved],
        launches=_launches(view.facts, _attention_kernels(view), again(cell.recompute, 0)),
        once={"optimizer": _optimizer_s(dense_parameters(view), shards, cell, facts)},
    )


def _core(view: AttentionView, facts: dict[str, Any]) -> tuple[Num, Num]:
    """Seconds of the attention core of one layer and microbatch, forward and backward."""
    batch = view.cell.micro_batch
    return (
        compute.attention_core_s(view.tp, view.cp, batch, **facts),
        compute.attention_core_backward_s(view.tp, view.cp, batch, **facts),
    )


def _attention_kernels(view: AttentionView) -> list[Num]:
    """Kernels of one microbatch's forward on each kind of stage that the host launches for the attention grid."""
    half = 0.5 * view.facts.profile.kernels_per_layer
    captured = {"attention", "all"} & set(view.facts.run.graphs)
    dense = 0.0 if "all" in view.facts.run.graphs else half
    return [(k.dense + k.moe) * (0.0 if captured else half) + k.dense * dense for k in view.cell.kinds]


LAUNCHES_PER_EXPERT = {"bf16": 2.0, "fp16": 2.0, "fp8-tensor": 4.0, "fp8-block": 4.0, "mxfp8": 6.0}
"""Kernels per local expert, forward: both products are launched expert by expert (TransformerEngine,
nvte_multi_stream_cublas_gemm); MXFP8 reorders the scales of both inputs of each (TransformerEngine PR 1525), other FP8
quantises an input of each (assumed)."""


def _expert_kernels(view: ExpertView) -> list[Num]:
    """Kernels of one microbatch's forward on each kind of stage that the host launches for the MoE halves."""
    run, model = view.facts.run, view.facts.model
    if "all" in run.graphs or model.moe is None:
        return [0.0 for _ in view.cell.kinds]
    # A captured router and preprocessing take their kernels, about half of those around the experts, off the host.
    share = 0.5 if "router" in run.graphs else 1.0
    each = LAUNCHES_PER_EXPERT.get(run.precision, LAUNCHES_PER_EXPERT["mxfp8"])
    own = each * model.moe.experts / view.ep
    return [k.moe * (share * view.facts.profile.moe_kernels + own) for k in view.cell.kinds]


def _launches(facts: Facts, kernels: list[Num], repeat: Num) -> tuple[list[Num], list[Num]] | None:
    """Host seconds to launch one microbatch's kernels, forward and backward; None when none are launched one by one.

    Backward launches twice as many kernels as forward, and recompute those of forward again. Source: F2.2 (CPU wall).
    """
    each = facts.profile.host_launch
    if not hosted(facts):
        return None
    return [count * each for count in kernels], [count * each * (2.0 + repeat) for count in kernels]


def _streams(cell: CellView) -> bool:
    """True when some candidate moves parameters or gradients for every microbatch (ZeRO-2, ZeRO-3)."""
    return bool(np.any(np.asarray(cell.zero) >= 2))


def _streamed(cell: CellView, streams: list[Num]) -> tuple[dict[str, list[Num]], list[Part]]:
    """Streams as what runs under compute, or in line where the run hides no gathering of parameters."""
    if not _streams(cell):
        return {}, []
    away = cell.hides(Hidden.PARAM_GATHER)
    hidden = {"dp": [share(stream, away) for stream in streams]} if np.any(away) else {}
    if np.all(away):
        return hidden, []
    nothing = [0.0 * stream for stream in streams]
    return hidden, [Part("dp", nothing, [share(stream, 1.0 - away) for stream in streams], nothing)]


def _attention_compute(view: AttentionView, core: tuple[Num, Num], facts: dict[str, Any]) -> list[Part]:
    cell, model, rec = view.cell, view.facts.model, view.cell.recompute
    tokens, kinds = cell.tokens, cell.kinds
    layers = [k.dense + k.moe for k in kinds]
    dense = [k.dense for k in kinds]
    moe = [k.moe for k in kinds]
    output = [k.output for k in kinds]
    heads = [k.output * (1.0 + model.mtp_layers) for k in kinds]
    hbm = {key: facts[key] for key in ("model", "fabric", "profile")}
    elementwise = compute.attention_elementwise_s(view.tp, tokens, **facts)
    embedding = compute.embedding_s(view.tp, view.cp, cell.micro_batch, **facts)
    norm = norm_again_s(tokens, **hbm) * only(rec, Recompute.NORM)
    projections = again(rec, 0) + mla_up_share(model) * only(rec, Recompute.MLA_UP)
    parts = [
        linear("attention_linear", layers, compute.attention_linear_s(view.tp, tokens, **facts), projections),
        paired("attention_core", layers, *core, again(rec, Recompute.CORE_ATTENTION)),
        Part(
            "elementwise",
            spread(layers, elementwise),
            spread(layers, elementwise * (2.0 + again(rec, 0)) + norm),
            spread(layers, 0.0 * elementwise),
        ),
        linear("output", heads, compute.output_s(view.tp, view.cp, cell.micro_batch, **facts), 0.0),
        paired("embedding", [k.embedding for k in kinds], embedding, embedding, 0.0),
    ]
    if model.mtp_layers:
        projection = compute.mtp_projection_s(view.tp, tokens, **facts)
        parts.append(linear("mtp_projection", output, model.mtp_layers * projection, 0.0))
    if model.dense_layers:
        mlp = again(rec, Recompute.MLP)
        ffn_elementwise = compute.dense_elementwise_s(view.tp, tokens, **facts)
        activation = dense_activation_again_s(view.tp, tokens, **hbm) * only(rec, Recompute.ACTIVATION)
        parts.append(linear("dense_ffn", dense, compute.dense_ffn_s(view.tp, tokens, **facts), mlp))
        parts.append(paired("dense_elementwise", dense, ffn_elementwise, 2.0 * ffn_elementwise + activation, mlp))
    if model.moe:
        mlp = again(rec, Recompute.MOE)
        parts.append(linear("router", moe, compute.router_s(tokens, **facts) + 0.0 * view.tp, mlp))
        if model.moe.shared_ffn:
            shared = compute.shared_expert_s(view.tp, tokens, **facts)
            parts.append(linear("shared_expert", moe, shared, mlp))
    return parts


def _attention_transfers(view: AttentionView, facts: dict[str, Any]) -> list[Transfer]:
    """Tensor and context parallel communication of each layer and microbatch; the last one is context parallel."""
    cell, model, rec = view.cell, view.facts.model, view.cell.recompute
    tokens, kinds = cell.tokens, cell.kinds
    layers = [k.dense + k.moe for k in kinds]
    forward = communication.tp_attention_forward_s(view.tp_row, tokens, **facts)
    backward = communication.tp_attention_backward_s(view.tp_row, tokens, **facts)
    found = [Transfer("tp", layers, forward, backward, again(rec, 0))]
    if model.dense_layers:
        forward = communication.tp_ffn_forward_s(view.tp_row, tokens, **facts)
        backward = communication.tp_ffn_backward_s(view.tp_row, tokens, **facts)
        found.append(Transfer("tp", [k.dense for k in kinds], forward, backward, again(rec, Recompute.MLP)))
    if model.moe and model.moe.shared_ffn:
        forward = communication.tp_shared_forward_s(view.tp_row, tokens, **facts)
        backward = communication.tp_shared_backward_s(view.tp_row, tokens, **facts)
        found.append(Transfer("tp", [k.moe for k in kinds], forward, backward, again(rec, Recompute.MOE)))
    context = (view.tp, view.cp_row, view.cp_kind, cell.micro_batch, view.tp_row)
    ring, ring_back = communication.cp_forward_s(*context, **facts), communication.cp_backward_s(*context, **facts)
    found.append(Transfer("cp", layers, ring, ring_back, again(rec, Recompute.CORE_ATTENTION)))
    return found


def _attention_communication(view: AttentionView, transfers: list[Transfer], core: tuple[Num, Num]) -> list[Part]:
    """Tensor and context parallel communication in line with the layer, less what its own GEMM or core hides."""
    profile = view.facts.profile
    shown = 1.0 - (profile.tp_overlap if view.facts.run.overlap.tp else 0.0)
    *tp, cp = transfers
    parts = [paired("tp", t.counts, t.forward * shown, t.backward * shown, t.repeat) for t in tp]
    exposed = exposed_ring_s(cp.forward, core[0], view, profile.overlap_slowdown)
    exposed_back = exposed_ring_s(cp.backward, core[1], view, profile.overlap_slowdown)
    parts.append(paired("cp", cp.counts, exposed, exposed_back, cp.repeat))
    return parts


def exposed_ring_s(transfer: Num, core: Num, view: AttentionView, gamma: float) -> Num:
    """Context-parallel time that is left in line: only ring steps hide, behind cp-1 of the cp attention blocks.

    Unit: s. Source: FORMULAS 4.3 (p2p hides, all-gather and Ulysses are exposed).
    """
    left = maximum(transfer / gamma - core * (view.cp - 1.0) / view.cp, 0.0)
    hides = view.facts.run.overlap.cp
    return np.where((np.asarray(view.cp_kind) == 0) & hides, left, transfer)


def _attention_once(view: AttentionView, facts: dict[str, Any]) -> dict[str, list[Num]]:
    cell, group, told = view.cell, (view.dp_row, view.cp_row), facts | {"inner_row": view.tp_row}
    copies = pipeline.model_copies(cell.schedule)
    local = dense_parameters(view)
    shards = data_parallel.shard_count(cell.dp * view.cp, run=view.facts.run)
    tail = np.where(np.asarray(cell.zero) <= 1, 1.0, 0.0)
    calls = list(zip(_dense_calls(view), local, strict=True))
    return {
        "reduce": [
            tail * copies * n * communication.dense_gradient_s(*group, p / n, cell.zero, **told) for n, p in calls
        ],
        "gather": [copies * n * communication.dense_gather_s(*group, p / n, cell.zero, **told) for n, p in calls],
        "optimizer": _optimizer_s(local, shards, cell, facts),
    }


def _zero3_attention(view: AttentionView) -> list[Num]:
    """Per-microbatch streams of the dense states: gathers under ZeRO-3, gradient reduction from ZeRO-2 on."""
    cell, told = view.cell, _timed(view.facts) | {"inner_row": view.tp_row}
    if not _streams(cell):
        return []
    zero, group = np.asarray(cell.zero), (view.dp_row, view.cp_row)
    calls = zip(_dense_calls(view), dense_parameters(view), strict=True)
    return [
        np.where(zero == 3, n * communication.zero3_dense_s(*group, p / n, **told), 0.0)
        + np.where(zero == 2, n * communication.dense_gradient_s(*group, p / n, cell.zero, **told), 0.0)
        for n, p in calls
    ]


def _dense_calls(view: AttentionView) -> list[Num]:
    """Data-parallel calls for the dense weights of each kind of stage."""
    layers = [k.dense + k.moe for k in view.cell.kinds]
    return _calls(view.facts, layers, parameters.dense_tensors(model=view.facts.model))


def _calls(facts: Facts, layers: list[Num], tensors: Num) -> list[Num]:
    """Calls per kind of stage: one, one per layer, or one per tensor."""
    each = {"stage": 0.0, "layer": 1.0, "tensor": tensors}[facts.run.data_parallel_unit]
    return [maximum(count * each, 1.0) for count in layers]


def _activation_transfer(cell: CellView, kept: Callable[[], list[Num]]) -> list[Part]:
    """Offloaded activations go out in forward and come back in backward, on the critical path (F1.1)."""
    moved = (np.asarray(cell.offload) & Offload.ACTIVATIONS) != 0
    if not np.any(moved):
        return []
    fabric = cell.facts.fabric
    way = [np.where(moved, memory.offload_transfer_s(k, cell.offload, fabric=fabric), 0.0) for k in kept()]
    return [Part("offload", way, way, [0.0 * w for w in way])]


def _optimizer_s(local: list[Num], shards: Num, cell: CellView, facts: dict[str, Any]) -> list[Num]:
    """Optimizer step, with the way of offloaded states to the device and back."""
    run, fabric = cell.facts.run, cell.facts.fabric
    return [
        compute.optimizer_s(p, shards, cell.zero, cell.offload, **facts)
        + memory.optimizer_offload_s(p, shards, cell.zero, cell.offload, run=run, fabric=fabric)
        for p in local
    ]


@per_stage
def expert_times(view: ExpertView) -> Side:
    """What an expert option adds in seconds: grouped GEMMs, dispatch and combine, expert DP. Bytes: footprint.py."""
    cell, facts, run, rec = view.cell, _timed(view.facts), view.facts.run, view.cell.recompute
    moe = [k.moe for k in cell.kinds]
    if view.facts.model.moe is None:
        nothing = [0.0 * view.ep for _ in cell.kinds]
        return Side(parts=[Part("experts", nothing, nothing, nothing)])
    tokens, repeat, parts = cell.tokens, again(rec, Recompute.MOE), _expert_compute(view, facts)
    forward = communication.ep_dispatch_s(tokens, view.etp_row, view.ep_row, view.dispatcher, **facts)
    forward = forward + communication.ep_combine_s(tokens, view.etp_row, view.ep_row, view.dispatcher, **facts)
    backward = communication.ep_backward_s(tokens, view.etp_row, view.ep_row, view.dispatcher, **facts)
    exchange = [count * (forward * (1.0 + repeat) + backward) for count in moe]
    away = cell.hides(Hidden.EXPERT_ALL_TO_ALL)
    here = 1.0 - away
    under_compute = {"ep": [share(value, away) for value in exchange]} if np.any(away) else {}
    under_shared = None
    if np.any(here) and run.overlap.shared_expert:
        under_shared = [share(value, here) for value in exchange]
    elif np.any(here):
        parts.append(paired("ep", moe, share(forward, here), share(backward, here), repeat))
    hidden, in_line = _streamed(cell, _zero3_expert(view, facts) if _streams(cell) else [])
    under_compute |= hidden
    return Side(
        parts=[*parts, *_activation_transfer(cell, lambda: routed_kept(view, cell.recompute)), *in_line],
        launches=_launches(view.facts, _expert_kernels(view), repeat),
        once=_expert_once(view, facts),
        under_compute=under_compute,
        under_shared=under_shared,
        transfers=[Transfer("ep", moe, forward, backward, repeat)],
    )


@per_stage
def expert_alone(view: ExpertView) -> Side:
    """As `expert_times` without communication: what is left depends on sizes, not on rows, and is never more."""
    cell, facts = view.cell, _timed(view.facts)
    if view.facts.model.moe is None:
        return expert_times(view)
    shards = data_parallel.shard_count(view.edp, run=view.facts.run)
    moved = _activation_transfer(cell, lambda: routed_kept(view, cell.recompute))
    return Side(
        parts=[*_expert_compute(view, facts), *moved],
        launches=_launches(view.facts, _expert_kernels(view), again(cell.recompute, Recompute.MOE)),
        once={"optimizer": _optimizer_s(routed_parameters(view), shards, cell, facts)},
    )


def _expert_compute(view: ExpertView, facts: dict[str, Any]) -> list[Part]:
    cell, rec = view.cell, view.cell.recompute
    moe = [k.moe for k in cell.kinds]
    tokens, repeat = cell.tokens, again(rec, Recompute.MOE)
    gemm = compute.routed_experts_s(tokens, view.etp, view.ep, view.dispatcher, **facts)
    elementwise = compute.routed_elementwise_s(tokens, view.etp, view.ep, view.dispatcher, **facts)
    activation = moe_activation_again_s(
        tokens, model=view.facts.model, fabric=view.facts.fabric, profile=view.facts.profile
    )
    backward = 2.0 * elementwise + activation * only(rec, Recompute.ACTIVATION)
    return [linear("experts", moe, gemm, repeat), paired("routed_elementwise", moe, elementwise, backward, repeat)]


def _expert_once(view: ExpertView, facts: dict[str, Any]) -> dict[str, list[Num]]:
    cell, local, row, told = view.cell, routed_parameters(view), view.edp_row, facts | {"inner_row": view.inside_edp}
    copies = pipeline.model_copies(cell.schedule)
    shards = data_parallel.shard_count(view.edp, run=view.facts.run)
    tail = np.where(np.asarray(cell.zero) <= 1, 1.0, 0.0)
    calls = list(zip(_expert_calls(view), local, strict=True))
    return {
        "reduce": [
            tail * copies * n * communication.expert_gradient_s(row, p / n, cell.zero, **told) for n, p in calls
        ],
        "gather": [copies * n * communication.expert_gather_s(row, p / n, cell.zero, **told) for n, p in calls],
        "optimizer": _optimizer_s(local, shards, cell, facts),
    }


def _zero3_expert(view: ExpertView, facts: dict[str, Any]) -> list[Num]:
    zero, row, told = np.asarray(view.cell.zero), view.edp_row, facts | {"inner_row": view.inside_edp}
    calls = zip(_expert_calls(view), routed_parameters(view), strict=True)
    return [
        np.where(zero == 3, n * communication.zero3_expert_s(row, p / n, **told), 0.0)
        + np.where(zero == 2, n * communication.expert_gradient_s(row, p / n, zero, **told), 0.0)
        for n, p in calls
    ]


def _expert_calls(view: ExpertView) -> list[Num]:
    """Data-parallel calls for the routed experts of each kind of stage."""
    tensors = parameters.expert_tensors(view.ep, model=view.facts.model)
    return _calls(view.facts, [k.moe for k in view.cell.kinds], tensors)
