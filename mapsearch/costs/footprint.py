"""What each grid's options hold in memory, on every kind of stage.

Contents: dense_parameters, routed_parameters, in_flight, resident, attention_kept, routed_kept, attention_memory,
attention_host, attention_nvme, expert_memory, expert_host, expert_nvme.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mapsearch.axes import Offload
from mapsearch.costs import activations, memory, parameters, pipeline
from mapsearch.costs.views import AttentionView, CellView, ExpertView, Facts
from mapsearch.quantity import Num, maximum


def _told(facts: Facts) -> dict[str, Any]:
    return {"model": facts.model, "run": facts.run}


def dense_parameters(view: AttentionView) -> list[Num]:
    """Parameters per rank and kind of stage that dense data parallelism shards: all but routed experts."""
    model, kinds = view.facts.model, view.cell.kinds
    dense = parameters.dense_layer_parameters(view.tp, model=model) if model.ffn else 0.0 * view.tp
    moe = parameters.moe_layer_parameters(view.tp, model=model) if model.moe else 0.0 * view.tp
    embedding = parameters.embedding_parameters(view.tp, model=model)
    output = parameters.output_parameters(view.tp, model=model)
    # A split tied table is on every stage once, as on a single one.
    stages = 1 if view.facts.run.splits_vocabulary else view.cell.pp
    output = output - parameters.tied_copy_parameters(view.tp, stages, model=model)
    if model.mtp_layers:
        output = output + model.mtp_layers * parameters.mtp_parameters(view.tp, model=model)
    return [k.dense * dense + k.moe * moe + k.embedding * embedding + k.output * output for k in kinds]


def _states(local: list[Num], shards: Num, cell: CellView) -> dict[str, list[Num]]:
    """Weights, gradients and optimizer states of local parameters that stay in HBM (F3.6)."""
    run, copies = cell.facts.run, pipeline.model_copies(cell.schedule)
    return {
        "weights": [copies * memory.weight_bytes(p, shards, cell.zero, run=run) for p in local],
        "gradients": [copies * memory.gradient_bytes(p, shards, cell.zero, run=run) for p in local],
        "optimizer": [
            memory.optimizer_bytes(p, shards, cell.zero, run=run)
            - memory.offloaded_optimizer_bytes(p, shards, cell.zero, cell.offload, run=run)
            for p in local
        ],
    }


def _offloaded(local: list[Num], shards: Num, kept: list[Num], cell: CellView, *, nvme: bool) -> list[Num]:
    """Bytes on NVMe, or in host memory, per kind of stage: optimizer states, and activations beyond those resident."""
    run, code = cell.facts.run, np.asarray(cell.offload)
    moved = (code & Offload.ACTIVATIONS) != 0
    here = (code & Offload.NVME != 0) == nvme
    result = []
    for kind, parameters_here in enumerate(local):
        held = memory.offloaded_optimizer_bytes(parameters_here, shards, cell.zero, cell.offload, run=run)
        if np.any(moved):
            held = held + np.where(moved, in_flight(cell, kind) - resident(cell, kind), 0.0) * kept[kind]
        result.append(held if here.all() else held * here)
    return result


def _may_offload(cell: CellView, *, nvme: bool) -> bool:
    """True when some candidate offloads to NVMe, or to host memory."""
    code = np.asarray(cell.offload)
    return bool(np.any((code != 0) & ((code & Offload.NVME != 0) == nvme)))


def in_flight(cell: CellView, kind: int) -> Num:
    """Microbatches that one kind of stage holds at its peak (F3.5)."""
    run, stage = cell.facts.run, cell.kinds[kind].stage
    return pipeline.in_flight(cell.pp, cell.vpp, cell.schedule, cell.microbatches, stage, run=run)


def resident(cell: CellView, kind: int) -> Num:
    """Microbatches in flight whose activations stay in HBM."""
    return memory.resident_microbatches(in_flight(cell, kind), cell.offload)


def _layer_bytes(view: AttentionView, rec: Num) -> tuple[Num, Num, Num]:
    """Activation bytes per token and layer: attention half, dense FFN half, MoE half without its routed rows (F3.3)."""
    model, told = view.facts.model, _told(view.facts)
    attention = activations.attention_activation_bytes(view.tp, rec, **told)
    if not view.facts.run.flash_attention:
        attention = attention + activations.score_matrix_activation_bytes(rec, **told)
    dense = activations.dense_ffn_activation_bytes(view.tp, rec, **told) if model.dense_layers else 0.0
    moe = activations.moe_base_activation_bytes(view.tp, rec, **told) if model.moe else 0.0
    return attention, dense, moe


def attention_kept(view: AttentionView, rec: Num) -> list[Num]:
    """Activation bytes of one microbatch per kind of stage, attention side."""
    attention, dense, moe = _layer_bytes(view, rec)
    tokens = view.cell.tokens
    return [tokens * ((k.dense + k.moe) * attention + k.dense * dense + k.moe * moe) for k in view.cell.kinds]


def present(count: Num) -> Num:
    """1 on kinds of stage that have something, 0 elsewhere; DualPipe counts halves, each of them is there in full."""
    return np.where(np.asarray(count) > 0, 1.0, 0.0)


def _largest_layers(view: AttentionView) -> list[Num]:
    """Parameters, routed experts apart, of the largest layer that each kind of stage has."""
    model = view.facts.model
    dense = parameters.dense_layer_parameters(view.tp, model=model) if model.ffn else 0.0 * view.tp
    moe = parameters.moe_layer_parameters(view.tp, model=model) if model.moe else 0.0 * view.tp
    return [maximum(present(k.dense) * dense, present(k.moe) * moe) for k in view.cell.kinds]


def attention_memory(view: AttentionView) -> dict[str, list[Num]]:
    """HBM bytes of an attention option by part and kind of stage (F3.3, F3.4, F3.6, F3.7b)."""
    cell, model, run, tokens = view.cell, view.facts.model, view.facts.run, view.cell.tokens
    told, kinds = _told(view.facts), range(len(cell.kinds))
    result = _states(dense_parameters(view), cell.dp * view.cp, cell)

    kept = attention_kept(view, cell.recompute)
    logits = activations.logits_bytes(view.tp, view.cp, cell.micro_batch, **told)
    ends = activations.output_activation_bytes(view.tp, **told) + model.mtp_layers * (
        activations.mtp_activation_bytes(view.tp, **told)
    )
    start = activations.embedding_activation_bytes(view.tp, **told)
    dense_transient = activations.dense_backward_transient_bytes(tokens, **told)
    moe_transient = activations.moe_backward_transient_bytes(tokens, **told)
    layers = _largest_layers(view)
    # A split head holds its part of the logits, but the hidden states of all tokens.
    split = run.splits_vocabulary
    result["activations"] = [
        resident(cell, i) * (kept[i] + k.embedding * tokens * start)
        + (present(k.output) if split else k.output) * tokens * ends
        for i, k in enumerate(cell.kinds)
    ]
    # One layer's activations come back to life while its backward runs; a MoE layer where the stage has one.
    back = [f - k for f, k in zip(_layer_bytes(view, np.int64(0)), _layer_bytes(view, cell.recompute), strict=True)]
    result["recomputed_layer"] = [
        tokens * (back[0] + np.where(np.asarray(k.moe) > 0, back[2], back[1])) for k in cell.kinds
    ]
    result["logits_or_transient"] = [
        maximum(
            dense_transient * present(k.dense),
            moe_transient * present(k.moe),
            (k.output if split else present(k.output)) * logits,
        )
        for k in cell.kinds
    ]
    result["gradient_scratch"] = [memory.weight_gradient_scratch_bytes(layer, run=run) for layer in layers]
    result["gathered_weights"] = [memory.zero3_live_bytes(layer, cell.zero, run=run) for layer in layers]
    communicators = memory.attention_communicator_bytes(view.tp, view.cp, cell.dp, cell.pp, profile=view.facts.profile)
    result["communicators"] = [communicators for _ in kinds]
    return result


def attention_host(view: AttentionView) -> list[Num]:
    """Host memory bytes of an attention option per kind of stage; empty when nothing may be offloaded to it."""
    return _attention_offloaded(view, nvme=False)


def attention_nvme(view: AttentionView) -> list[Num]:
    """NVMe bytes of an attention option per kind of stage; empty when nothing may be offloaded to it."""
    return _attention_offloaded(view, nvme=True)


def _attention_offloaded(view: AttentionView, *, nvme: bool) -> list[Num]:
    cell = view.cell
    if not _may_offload(cell, nvme=nvme):
        return []
    kept = attention_kept(view, cell.recompute)
    return _offloaded(dense_parameters(view), cell.dp * view.cp, kept, cell, nvme=nvme)


def routed_parameters(view: ExpertView) -> list[Num]:
    """Routed-expert parameters per rank and kind of stage."""
    each = parameters.expert_parameters(view.etp, view.ep, model=view.facts.model)
    return [k.moe * each for k in view.cell.kinds]


def routed_kept(view: ExpertView, rec: Num) -> list[Num]:
    """Activation bytes of one microbatch per kind of stage, expert side (F3.3)."""
    told = _told(view.facts)
    each = activations.routed_activation_bytes(view.cell.tokens, view.etp, view.ep, rec, view.dispatcher, **told)
    return [k.moe * each for k in view.cell.kinds]


def expert_memory(view: ExpertView) -> dict[str, list[Num]]:
    """HBM bytes of an expert option by part and kind of stage (F3.3, F3.6)."""
    if view.facts.model.moe is None:
        return {"weights": [0.0 * view.ep for _ in view.cell.kinds]}
    cell, model, run = view.cell, view.facts.model, view.facts.run
    told = _told(view.facts)
    result = _states(routed_parameters(view), view.edp, cell)
    kept, full = routed_kept(view, cell.recompute), routed_kept(view, np.int64(0))
    layer = parameters.expert_parameters(view.etp, view.ep, model=model)
    here = [present(k.moe) for k in cell.kinds]
    result["activations"] = [resident(cell, i) * kept[i] for i in range(len(cell.kinds))]
    result["recomputed_layer"] = [(full[i] - kept[i]) / maximum(k.moe, 1.0) for i, k in enumerate(cell.kinds)]
    live = memory.zero3_live_bytes(layer, cell.zero, run=run)
    result["gathered_weights"] = [p * live for p in here]
    buffers = memory.dispatcher_buffer_bytes(cell.tokens, view.etp, view.ep, view.dispatcher, **told)
    result["dispatcher_buffers"] = [p * buffers for p in here]
    communicators = memory.expert_communicator_bytes(view.etp, view.ep, view.edp, profile=view.facts.profile)
    result["communicators"] = [p * communicators for p in here]
    return result


def expert_host(view: ExpertView) -> list[Num]:
    """Host memory bytes of an expert option per kind of stage; empty when nothing may be offloaded to it."""
    return _expert_offloaded(view, nvme=False)


def expert_nvme(view: ExpertView) -> list[Num]:
    """NVMe bytes of an expert option per kind of stage; empty when nothing may be offloaded to it."""
    return _expert_offloaded(view, nvme=True)


def _expert_offloaded(view: ExpertView, *, nvme: bool) -> list[Num]:
    cell = view.cell
    if view.facts.model.moe is None or not _may_offload(cell, nvme=nvme):
        return []
    return _offloaded(routed_parameters(view), view.edp, routed_kept(view, cell.recompute), cell, nvme=nvme)
