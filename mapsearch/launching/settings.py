"""A plan as arguments of Megatron core, by the name of the flag: what Megatron-LM, Megatron-Bridge and MindSpeed share.

Contents: DISPATCHERS, CP_COMM, MODULES, SHARDING, FP8, draft_of, layout_text.

Source: NVIDIA/Megatron-LM, megatron/training/arguments.py, megatron/core/transformer/transformer_config.py and
docs/user-guide/parallelism-guide.md (core 0.16).
"""

from __future__ import annotations

from itertools import groupby

from mapsearch.axes import CpKind, Dispatcher, Hidden, Offload, Recompute, Schedule
from mapsearch.inventories.run import Run
from mapsearch.launching.launch import Draft, Plan

DISPATCHERS = {
    int(Dispatcher.ALL_TO_ALL): "alltoall",
    int(Dispatcher.FIXED_ALL_TO_ALL): "alltoall",
    int(Dispatcher.ALL_GATHER): "allgather",
    int(Dispatcher.DEDUPLICATED): "flex",
}
CP_COMM = {
    int(CpKind.RING): "p2p",
    int(CpKind.ALL_GATHER): "allgather",
    int(CpKind.ULYSSES): "a2a",
    int(CpKind.HYBRID): "a2a+p2p",
}
MODULES = {
    int(Recompute.CORE_ATTENTION): "core_attn",
    int(Recompute.ACTIVATION): "moe_act",
    int(Recompute.NORM): "layernorm",
    int(Recompute.MLA_UP): "mla_up_proj",
    int(Recompute.MLP): "mlp",
    int(Recompute.MOE): "moe",
}
SHARDING = {1: "optim", 2: "optim_grads", 3: "optim_grads_params"}
"""--data-parallel-sharding-strategy by ZeRO stage (Megatron-FSDP)."""
FP8 = {"fp8-tensor": ("hybrid", "tensorwise"), "fp8-block": ("e4m3", "blockwise"), "mxfp8": ("e4m3", "mxfp8")}
"""--fp8-format and --fp8-recipe."""
MOMENT_DTYPES = {8.0: "fp32", 4.0: "bf16", 2.0: "fp8"}
MASTER_DTYPES = {4.0: "fp32", 2.0: "fp16"}


def draft_of(plan: Plan) -> Draft:
    """Every setting of the plan that has an argument, in the order of a readable file, and what has none."""
    draft = Draft()
    for part in (_sizes, _pipeline, _batch, _context, _experts, _recompute, _states, _overlap, _precision, _rest):
        part(plan, draft)
    return draft


def _sizes(plan: Plan, draft: Draft) -> None:
    mapping, put = plan.mapping, draft.settings
    put["tensor-model-parallel-size"] = mapping.tp
    if mapping.tp > 1 and plan.run.sequence_parallel:
        put["sequence-parallel"] = True
    put["context-parallel-size"] = mapping.cp
    put["pipeline-model-parallel-size"] = mapping.pp
    put["expert-model-parallel-size"] = mapping.ep
    put["expert-tensor-parallel-size"] = mapping.etp


def _pipeline(plan: Plan, draft: Draft) -> None:
    mapping, put = plan.mapping, draft.settings
    if mapping.pp == 1 and mapping.vpp == 1:
        return
    if mapping.schedule not in (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED):
        draft.lose(plan, "schedule", "Megatron core runs 1F1B, and interleaved 1F1B with virtual stages")
    if plan.folded:
        draft.lose(plan, "layout", "a layout of a V-shaped schedule has two chunks on every stage")
    elif not plan.even or plan.run.vocabulary == "redistributed":
        put["pipeline-model-parallel-layout"] = layout_text(plan.chunks, plan.model.mtp_layers)
    elif mapping.vpp > 1:
        put["num-virtual-stages-per-pipeline-rank"] = mapping.vpp
    if mapping.vpp > 1 and not plan.run.overlap.pp:
        put["no-overlap-p2p-communication"] = True
    if plan.run.splits_vocabulary:
        draft.leave("vocabulary", plan.run.vocabulary, "Megatron core keeps embedding and head on the end stages")


def layout_text(chunks: tuple[int, ...], mtp_layers: int) -> str:
    """A --pipeline-model-parallel-layout: E embedding, t layer, m MTP module, L loss, | the next chunk."""
    words = ["t" * count for count in chunks]
    words[0] = f"E{words[0]}"
    words[-1] = f"{words[-1]}{'m' * mtp_layers}L"
    parts = []
    for word, run in groupby(words[:-1]):
        times = len(list(run))
        parts.append(f"({word}|)*{times}" if times > 1 else f"{word}|")
    return "".join(parts) + words[-1]


def _batch(plan: Plan, draft: Draft) -> None:
    draft.settings |= {
        "micro-batch-size": plan.mapping.micro_batch,
        "global-batch-size": plan.run.global_batch,
        "seq-length": plan.run.sequence_length,
    }


def _context(plan: Plan, draft: Draft) -> None:
    mapping, put = plan.mapping, draft.settings
    if mapping.cp == 1:
        return
    put["cp-comm-type"] = CP_COMM[mapping.cp_kind]
    if mapping.cp_kind == CpKind.HYBRID:
        inner = plan.inner_cp or mapping.cp
        put["hierarchical-context-parallel-sizes"] = [inner, mapping.cp // inner]


def _experts(plan: Plan, draft: Draft) -> None:
    moe, put, kind = plan.model.moe, draft.settings, plan.mapping.dispatcher
    if moe is None:
        return
    put["moe-token-dispatcher-type"] = DISPATCHERS[kind]
    if kind == Dispatcher.DEDUPLICATED:
        put["moe-flex-dispatcher-backend"] = "deepep"
        draft.notes.append("the flex dispatcher's backend is DeepEP; on NVL72 racks it is hybridep")
    if kind == Dispatcher.FIXED_ALL_TO_ALL:
        put["moe-expert-capacity-factor"] = plan.run.routing.capacity_factor
        put["moe-pad-expert-input-to-capacity"] = True
    put["moe-grouped-gemm"] = True
    if moe.top_groups < moe.groups:
        put["moe-router-num-groups"] = moe.groups
        put["moe-router-group-topk"] = moe.top_groups


def _recompute(plan: Plan, draft: Draft) -> None:
    code, put = plan.mapping.recompute, draft.settings
    if code & Recompute.FULL:
        put |= {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    elif code:
        if code & Recompute.ACTIVATION and plan.model.moe is None:
            draft.lose(plan, "recompute", "Megatron core recomputes the activation of MoE layers only (moe_act)")
            code &= ~int(Recompute.ACTIVATION)
        elif code & Recompute.ACTIVATION and plan.model.dense_layers:
            draft.notes.append(f"moe_act leaves the activation of {plan.model.dense_layers} dense layers as it is")
        modules = [name for bit, name in MODULES.items() if code & bit]
        if modules:
            put |= {"recompute-granularity": "selective", "recompute-modules": modules}
    if plan.mapping.recompute_stages:
        draft.lose(plan, "recompute_stages", "Megatron core recomputes the same on every stage")


def _states(plan: Plan, draft: Draft) -> None:
    mapping, put, run = plan.mapping, draft.settings, plan.run
    if mapping.zero:
        put["use-distributed-optimizer"] = True
    if mapping.zero >= 2:
        put |= {
            "use-megatron-fsdp": True,
            "data-parallel-sharding-strategy": SHARDING[mapping.zero],
            "no-gradient-accumulation-fusion": True,
            "ckpt-format": "fsdp_dtensor",
        }
        draft.notes.append("Megatron-FSDP starts only while CUDA_DEVICE_MAX_CONNECTIONS is not 1: unset it")
    if run.shard_replicas > 1:
        put["num-distributed-optimizer-instances"] = run.shard_replicas
    if mapping.offload & Offload.OPTIMIZER:
        put |= {
            "optimizer-cpu-offload": True,
            "optimizer-offload-fraction": 1.0,
            "use-precision-aware-optimizer": True,
            "overlap-cpu-optimizer-d2h-h2d": True,
        }
    if mapping.offload & Offload.ACTIVATIONS:
        put["cpu-offloading-num-layers"] = plan.model.layers - 1
        draft.notes.append("Megatron core offloads the activations of all layers but the last")
    if mapping.offload & Offload.NVME:
        draft.lose(plan, "offload", "Megatron core offloads to host memory, not to NVMe")


def _overlap(plan: Plan, draft: Draft) -> None:
    mapping, put, hidden = plan.mapping, draft.settings, plan.run.overlap
    gather = bool(mapping.overlap & Hidden.PARAM_GATHER) if mapping.overlap else False
    if gather and not hidden.grad_reduce:
        draft.leave("overlap.grad_reduce", "false", "Megatron core overlaps the gather only beside the reduction")
    if hidden.grad_reduce or gather:
        put["overlap-grad-reduce"] = True
    if gather:
        put["overlap-param-gather"] = True
    if (mapping.overlap or 0) & Hidden.EXPERT_ALL_TO_ALL:
        put["overlap-moe-expert-parallel-comm"] = True
    if hidden.tp and mapping.tp > 1 and plan.run.sequence_parallel:
        put["tp-comm-overlap"] = True
    if hidden.shared_expert and plan.model.moe and plan.model.moe.shared_ffn:
        put["moe-shared-expert-overlap"] = True


def _precision(plan: Plan, draft: Draft) -> None:
    run, put = plan.run, draft.settings
    put["fp16" if run.precision == "fp16" else "bf16"] = True
    if run.fp8:
        put["fp8-format"], put["fp8-recipe"] = FP8[run.precision]
    if run.fp4:
        put |= {"fp4-format": "e2m1", "fp4-recipe": "nvfp4"}
    if run.fp8 and run.state.fp8_primary_weights:
        put["fp8-param-gather"] = True
    if run.half_precision_layers:
        start = (run.half_precision_layers + 1) // 2
        put |= {
            "first-last-layers-bf16": True,
            "num-layers-at-start-in-bf16": start,
            "num-layers-at-end-in-bf16": run.half_precision_layers - start,
        }
    _formats(run, draft, sharded=plan.mapping.zero > 0)


def _formats(run: Run, draft: Draft, *, sharded: bool) -> None:
    """Formats of gradients, moments and master weights; those of the optimizer need the distributed one."""
    state, put = run.state, draft.settings
    if state.gradient_bytes == 2.0 and run.half_format == "bf16":
        put["grad-reduce-in-bf16"] = True
    elif run.half_format == "bf16":
        put["accumulate-allreduce-grads-in-fp32"] = True
    moment, master = MOMENT_DTYPES.get(state.moment_bytes), MASTER_DTYPES.get(state.master_bytes)
    if run.half_format == "bf16" and (moment is None or master is None):
        said = f"{state.moment_bytes:g} B of moments, {state.master_bytes:g} B of master weights per parameter"
        draft.leave("state", said, "Megatron core has no such formats; its optimizer keeps FP32")
    elif run.half_format == "bf16" and (moment != "fp32" or master != "fp32"):
        if not sharded:
            draft.leave("state", f"moments in {moment}", "the precision-aware optimizer needs ZeRO 1 at least")
            return
        put["use-precision-aware-optimizer"] = True
        put |= {"main-params-dtype": master, "exp-avg-dtype": moment, "exp-avg-sq-dtype": moment}
    if "grad-reduce-in-bf16" in put and "use-precision-aware-optimizer" in put:
        put["main-grads-dtype"] = "bf16"


def _rest(plan: Plan, draft: Draft) -> None:
    put = draft.settings
    if plan.run.fused_cross_entropy:
        put |= {"cross-entropy-loss-fusion": True, "cross-entropy-fusion-impl": "te"}
    scopes = {"attention": "attn", "router": "moe_router", "all": "full_iteration"}
    if plan.run.graphs:
        whole = "all" in plan.run.graphs
        put["cuda-graph-impl"] = "local" if whole else "transformer_engine"
        put["cuda-graph-scope"] = [scopes[one] for one in plan.run.graphs]
