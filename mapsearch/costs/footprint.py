"""What each grid's options hold in memory, on every kind of stage.

Contents: dense_parameters, routed_parameters, in_flight, resident, attention_kept, routed_kept, attention_memory,
attention_host, attention_nvme, expert_memory, expert_host, expert_nvme.
"""

from __future__ import annotations

from typing import Any

from mapsearch import arrays as np
from mapsearch.axes import Offload
from mapsearch.costs import activations, memory, parameters, pipeline
from mapsearch.costs.data_parallel import shard_count
from mapsearch.costs.per_stage import per_stage
from mapsearch.costs.views import AttentionView, CellView, ExpertView, Facts, once_per_view
from mapsearch.quantity import Num, maximum


def _told(facts: Facts) -> dict[str, Any]:
    return {"model": facts.model, "run": facts.run}


@once_per_view
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
        result.append(held if np.all(here) else held * here)
    return result


def _may_offload(cell: CellView, *, nvme: bool) -> bool:
    """True when some candidate offloads to NVMe, or to host memory."""
    code = np.asarray(cell.offload)
    return bool(np.any((code != 0) & ((code & Offload.NVME != 0) == nvme)))


def in_flight(cell: CellView, kind: int) -> Num:
    """Microbatches that one kind of stage holds at its peak (F3.5); a dense model has no expert to wait for."""
    run, stage = cell.facts.run, cell.kinds[kind].stage
    overlap = cell.overlap if cell.facts.model.moe else 0
    return pipeline.in_flight(cell.pp, cell.vpp, cell.schedule, overlap, cell.microbatches, stage, run=run)


def resident(cell: CellView, kind: int) -> Num:
    """Microbatches in flight whose activations stay in HBM."""
    return memory.resident_microbatches(in_flight(cell, kind), cell.offload)


def _layer_bytes(view: AttentionView, rec: Num) -> tuple[Num, Num, Num]:
    """Activation bytes per token and layer: attention half, dense FFN half, MoE half without its routed rows (F3.3)."""
    model, told = view.facts.model, _told(view.facts)
    attention = activations.attention_activation_bytes(view.tp, rec, **told)
    if not view.facts.run.flash_attention:
        attention = attention + activations.score_matrix_activation_bytes(rec, **told)
    attention = attention + activations.ulysses_activation_bytes(view.tp, view.cp, view.cp_kind, rec, **told)
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


def _scratch_parameters(view: AttentionView) -> list[Num]:
    """Parameters of one layer of each kind on a stage, routed experts apart; the attention half is the same in both."""
    model = view.facts.model
    attention = parameters.attention_parameters(view.tp, model=model)
    dense = parameters.dense_ffn_parameters(view.tp, model=model) if model.ffn else 0.0 * view.tp
    shared = parameters.shared_expert_parameters(view.tp, model=model) if model.moe else 0.0 * view.tp
    return [attention + present(k.dense) * dense + present(k.moe) * shared for k in view.cell.kinds]


@per_stage
def attention_memory(view: AttentionView) -> dict[str, list[Num]]:
    """HBM bytes of an attention option by part and kind of stage (F3.3, F3.4, F3.6, F3.7b)."""
    cell, model, run, tokens = view.cell, view.facts.model, view.facts.run, view.cell.tokens
    told, kinds = _told(view.facts), range(len(cell.kinds))
    local = dense_parameters(view)
    result = _states(local, shard_count(cell.dp * view.cp, run=run), cell)

    kept = attention_kept(view, cell.recompute)
    ends = activations.output_activation_bytes(view.tp, **told) + model.mtp_layers * (
        activations.mtp_activation_bytes(view.tp, **told)
    )
    start = activations.embedding_activation_bytes(view.tp, **told)
    # A split head holds its part of the logits, but the hidden states of all tokens.
    split = run.splits_vocabulary
    result["activations"] = [
        resident(cell, i) * (kept[i] + k.embedding * tokens * start)
        + (present(k.output) if split else k.output) * tokens * ends
        for i, k in enumerate(cell.kinds)
    ]
    result["recomputed_layer"] = _recomputed(view)
    live = [memory.zero3_live_bytes(layer, cell.zero, cell.overlap, run=run) for layer in _largest_layers(view)]
    during = [back + whole for back, whole in zip(result["recomputed_layer"], live, strict=True)]
    result["logits_or_transient"] = _worst_moment(view, during)
    result["gradient_scratch"] = [
        memory.weight_gradient_scratch_bytes(layer, run=run) for layer in _scratch_parameters(view)
    ]
    result["gathered_weights"] = [a + b for a, b in zip(live, _gathered(view, local), strict=True)]
    result["workspace"] = [view.facts.profile.workspace_bytes for _ in kinds]
    communicators = memory.attention_communicator_bytes(view.tp, view.cp, cell.dp, cell.pp, profile=view.facts.profile)
    result["communicators"] = [communicators for _ in kinds]
    return result


def _recomputed(view: AttentionView) -> list[Num]:
    """One layer's activations that come back to life while its backward runs; a MoE layer where the stage has one."""
    recompute, tokens = view.cell.recompute, view.cell.tokens
    back = [f - k for f, k in zip(_layer_bytes(view, np.int64(0)), _layer_bytes(view, recompute), strict=True)]
    return [tokens * (back[0] + np.where(np.asarray(k.moe) > 0, back[2], back[1])) for k in view.cell.kinds]


def _worst_moment(view: AttentionView, during: list[Num]) -> list[Num]:
    """What is alive beside activations at the worst of three moments, beyond `during` (F3.4, F3.7b).

    The loss; the backward of the head; that of a layer, the only one beside `during`: a recomputed layer, and the
    layers that ZeRO-3 gathers.
    """
    cell, told = view.cell, _told(view.facts)
    ends = (view.tp, view.cp, cell.micro_batch)
    loss = activations.logits_bytes(*ends, **told)
    head = activations.output_backward_bytes(*ends, **told)
    scratch = memory.output_gradient_scratch_bytes(_head(view), run=view.facts.run)
    dense = activations.dense_backward_transient_bytes(cell.tokens, **told)
    moe = activations.moe_backward_transient_bytes(cell.tokens, **told)
    scores: Num = 0.0
    if not view.facts.run.flash_attention:
        scores = cell.tokens * activations.score_backward_transient_bytes(**told)
    result = []
    for kind, layer in zip(cell.kinds, during, strict=True):
        backward = maximum(dense * present(kind.dense), moe * present(kind.moe), scores)
        last = _share(kind.output, view)
        result.append(maximum(last * loss - layer, last * scratch + maximum(last * head - layer, backward)))
    return result


def _share(end: Num, view: AttentionView) -> Num:
    """How much of embedding or output head a stage holds: all of it where it lives, or its part where it is split."""
    return end if view.facts.run.splits_vocabulary else present(end)


def _head(view: AttentionView) -> Num:
    """Weights of the output head on one rank, tied or not."""
    model = view.facts.model
    return parameters.padded_vocab(view.tp, model) / np.asarray(view.tp) * model.hidden


def _gathered(view: AttentionView, local: list[Num]) -> list[Num]:
    """What ZeRO-3 holds whole all the time: the ends of the model, and what is gathered or reduced once per step."""
    cell, run, head = view.cell, view.facts.run, _head(view)
    result = []
    for kind, mine in zip(cell.kinds, local, strict=True):
        ends = (_share(kind.embedding, view) + _share(kind.output, view)) * head
        root = memory.zero3_root_bytes(ends, cell.zero, run=run)
        result.append(root + memory.unsharded_bytes(mine, cell.zero, run=run))
    return result


@per_stage
def attention_host(view: AttentionView) -> list[Num]:
    """Host memory bytes of an attention option per kind of stage; empty when nothing may be offloaded to it."""
    return _attention_offloaded(view, nvme=False)


@per_stage
def attention_nvme(view: AttentionView) -> list[Num]:
    """NVMe bytes of an attention option per kind of stage; empty when nothing may be offloaded to it."""
    return _attention_offloaded(view, nvme=True)


def _attention_offloaded(view: AttentionView, *, nvme: bool) -> list[Num]:
    cell = view.cell
    if not _may_offload(cell, nvme=nvme):
        return []
    kept = attention_kept(view, cell.recompute)
    shards = shard_count(cell.dp * view.cp, run=view.facts.run)
    return _offloaded(dense_parameters(view), shards, kept, cell, nvme=nvme)


@once_per_view
def routed_parameters(view: ExpertView) -> list[Num]:
    """Routed-expert parameters per rank and kind of stage."""
    each = parameters.expert_parameters(view.etp, view.ep, model=view.facts.model)
    return [k.moe * each for k in view.cell.kinds]


def routed_kept(view: ExpertView, rec: Num) -> list[Num]:
    """Activation bytes of one microbatch per kind of stage, expert side (F3.3)."""
    told = _told(view.facts)
    each = activations.routed_activation_bytes(view.cell.tokens, view.etp, view.ep, rec, view.dispatcher, **told)
    return [k.moe * each for k in view.cell.kinds]


@per_stage
def expert_memory(view: ExpertView) -> dict[str, list[Num]]:
    """HBM bytes of an expert option by part and kind of stage (F3.3, F3.6)."""
    if view.facts.model.moe is None:
        return {"weights": [0.0 * view.ep for _ in view.cell.kinds]}
    cell, model, run = view.cell, view.facts.model, view.facts.run
    told = _told(view.facts)
    result = _states(routed_parameters(view), shard_count(view.edp, run=run), cell)
    kept, full = routed_kept(view, cell.recompute), routed_kept(view, np.int64(0))
    layer = parameters.expert_parameters(view.etp, view.ep, model=model)
    here = [present(k.moe) for k in cell.kinds]
    result["activations"] = [resident(cell, i) * kept[i] for i in range(len(cell.kinds))]
    result["recomputed_layer"] = [(full[i] - kept[i]) / maximum(k.moe, 1.0) for i, k in enumerate(cell.kinds)]
    live = memory.zero3_live_bytes(layer, cell.zero, cell.overlap, run=run)
    whole = [memory.unsharded_bytes(p, cell.zero, run=run) for p in routed_parameters(view)]
    result["gathered_weights"] = [p * live + w for p, w in zip(here, whole, strict=True)]
    one = parameters.expert_parameters(view.etp, view.facts.model.moe.experts, model=model)
    result["gradient_scratch"] = [p * memory.weight_gradient_scratch_bytes(one, run=run) for p in here]
    buffers = memory.dispatcher_buffer_bytes(cell.tokens, view.etp, view.ep, view.dispatcher, **told)
    result["dispatcher_buffers"] = [p * buffers for p in here]
    communicators = memory.expert_communicator_bytes(view.etp, view.ep, view.edp, profile=view.facts.profile)
    result["communicators"] = [p * communicators for p in here]
    return result


@per_stage
def expert_host(view: ExpertView) -> list[Num]:
    """Host memory bytes of an expert option per kind of stage; empty when nothing may be offloaded to it."""
    return _expert_offloaded(view, nvme=False)


@per_stage
def expert_nvme(view: ExpertView) -> list[Num]:
    """NVMe bytes of an expert option per kind of stage; empty when nothing may be offloaded to it."""
    return _expert_offloaded(view, nvme=True)


def _expert_offloaded(view: ExpertView, *, nvme: bool) -> list[Num]:
    cell = view.cell
    if view.facts.model.moe is None or not _may_offload(cell, nvme=nvme):
        return []
    shards = shard_count(view.edp, run=view.facts.run)
    return _offloaded(routed_parameters(view), shards, routed_kept(view, cell.recompute), cell, nvme=nvme)
