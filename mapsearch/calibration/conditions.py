"""The run of a published row: batch, precision, states, routing and overlap, by the customs of its framework.

Contents: run_of, with_defaults, built_whole, dispatcher_of, recompute_of.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from mapsearch.axes import Dispatcher, Recompute
from mapsearch.calibration.frameworks import BRIDGE_SOURCES, family_of, features_of, on, source_of
from mapsearch.calibration.shapes import Unfit
from mapsearch.calibration.states import states_of
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import ComputePrecision, Overlap, Routing, Run, Vocabulary

PRECISIONS: dict[str, ComputePrecision] = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8-tensor",
    "fp8_delayed": "fp8-tensor",
    "fp8_cs": "fp8-tensor",
    "fp8_current_scaling": "fp8-tensor",
    "fp8_cs_or_delayed": "fp8-tensor",
    "fp8_tensorwise": "fp8-tensor",
    "fp8_rowwise": "fp8-tensor",
    "fp8_blockwise": "fp8-block",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
}
VOCABULARY: dict[str, Vocabulary] = {
    "baseline": "last",
    "redis": "redistributed",
    "vocab-1": "split-1",
    "vocab-2": "split-2",
}
MODULES = {
    "layernorm": Recompute.NORM,
    "norm": Recompute.NORM,
    "rmsnorm": Recompute.NORM,
    "moe_act": Recompute.ACTIVATION,
    "act": Recompute.ACTIVATION,
    "mla_up_proj": Recompute.MLA_UP,
    "core_attn": Recompute.CORE_ATTENTION,
    "mlp": Recompute.MLP,
    "moe": Recompute.MOE,
}
NO_OVERLAP = Overlap(grad_reduce=False, param_gather=False, tp=False, cp=False, pp=False)
SERIAL_SOURCES = ("bigscience_a100", "sc21_megatron_2104.04473", "korthikanti_2205.05198", "colossalai")
"""Frameworks of their time hid no data-parallel and no pipeline communication."""


def run_of(row: dict[str, Any], model: Model) -> Run:
    """The run of a row. Raises Unfit."""
    precision = str(row["precision"])
    if precision not in PRECISIONS:
        raise Unfit("not represented", f"precision {precision} is not one that a run can have")
    if row["workload"] == "lora":
        raise Unfit("not represented", "LoRA: a frozen base without weight gradients and optimizer cannot be said")
    if row["workload"] == "layer_only":
        raise Unfit("not represented", "a single layer is no step")
    batch = row["batch"].get("global_batch_seqs")
    if not batch:
        raise Unfit("incomplete", "the row does not give batch.global_batch_seqs")
    vocabulary = str(row["mapping"].get("vocab_method") or "baseline")
    if vocabulary not in VOCABULARY:
        raise Unfit("not represented", f"vocabulary method {vocabulary}: its exchanges stand in the pipeline's way")
    features, family = features_of(row), family_of(row)
    framework = {
        "megatron": "megatron",
        "megatron-deepspeed": "megatron",
    }
    return Run(
        name=str(row["id"]),
        sequence_length=int(row["model"]["seq_len"]),
        global_batch=int(batch),
        precision=PRECISIONS[precision],
        state=states_of(row, features, PRECISIONS[precision]),
        routing=_routing(row),
        overlap=_overlap(row, features, model),
        framework=framework.get(family, "none"),
        sequence_parallel=_sequence_parallel(row),
        gathered_inputs_kept=family == "fsdp",
        fused_cross_entropy=_fused_loss(row, features),
        loss_bytes=_loss_bytes(row),
        flash_attention=_flash(row, features),
        attention_kernel=_attention_kernel(row),
        fused_experts=_fused_experts(row, features),
        graphs=_graphs(row, features),
        shard_replicas=_shard_replicas(row),
        data_parallel_unit=_data_parallel_unit(row),
        vocabulary=VOCABULARY[vocabulary],
        micro_batch=[1],
    )


def with_defaults(row: dict[str, Any], model: Model) -> Model:
    """The model with what its framework does unless told otherwise.

    Megatron-LM drops out 0.1 of GPT's scores and hidden states (arguments.py); later recipes turn it off.
    """
    drops = str(row["model"]["family"]) == "gpt" and source_of(row).startswith(UNFUSED_SOURCES)
    if not drops or row["model"].get("hidden_dropout") is not None:
        return model
    return model.model_copy(update={"dropout": True})


def _shard_replicas(row: dict[str, Any]) -> int:
    """Copies of the sharded states: replicas as printed, or data parallelism over the ranks of a shard group."""
    told, node = row["mapping"], row["hardware"].get("devices_per_node")
    given = told.get("replica_dp") or told.get("dcn_data_parallel")
    if given:
        return int(given)
    # FSDP's hybrid strategy shards inside a node where no size is given (torch.distributed.fsdp).
    shards = told.get("fsdp_shard_size") or told.get("zero1_shard_size") or (node if told.get("hsdp") else None)
    dp = int(told.get("dp") or 1)
    return dp // int(shards) if shards and dp % int(shards) == 0 else 1


def _data_parallel_unit(row: dict[str, Any]) -> Literal["stage", "layer", "tensor"]:
    """InternEvo gives whole tensors to ranks, each reduced to its owner and broadcast from it; FSDP gathers layers,
    and DeepSpeed's ZeRO-3 of 2021 one tensor at a time."""
    gathers = row["mapping"].get("zero_stage") == 3
    if family_of(row) == "internevo" or (gathers and source_of(row).startswith("sc21")):
        return "tensor"
    return "layer" if gathers else "stage"


UNFUSED_SOURCES = ("sc21", "bigscience", "korthikanti", "zero_bubble")
"""Megatron before it called FlashAttention (2021 and 2022), and the fork of it that zero bubble was measured with: its
appendix counts s b h (34 + 5 a s/h) per layer."""


FLASH_2_SOURCES = ("torchtitan", "llm_foundry", "fms_fsdp", "kempnerforge")
"""Of PyTorch's or Tri Dao's FlashAttention-2; NVIDIA's frameworks call cuDNN."""


def _attention_kernel(row: dict[str, Any]) -> Literal["best", "flash-2"]:
    hopper = str(row["hardware"]["device"]).startswith(("H100", "H200", "H800"))
    return "flash-2" if hopper and source_of(row) in FLASH_2_SOURCES else "best"


def _flash(row: dict[str, Any], features: dict[str, Any]) -> bool:
    return not source_of(row).startswith(UNFUSED_SOURCES) and features.get("attention_backend") != "unfused"


def _fused_experts(row: dict[str, Any], features: dict[str, Any]) -> bool:
    """Megatron-Bridge's MXFP8 recipes with full-iteration graphs fuse the experts' MLP (cutedsl_fused_grouped_mlp)."""
    full = str(features.get("cuda_graph_impl")) == "full_iteration"
    return full and row["precision"] == "mxfp8" and source_of(row) in BRIDGE_SOURCES


BLACKWELL = ("B200", "B300", "GB200", "GB300")


def _graphs(row: dict[str, Any], features: dict[str, Any]) -> list[Literal["attention", "router", "all"]]:
    """What the row says is captured as a CUDA graph.

    Experts padded to a capacity have static shapes: NVIDIA's token-drop recipes of 25.09 capture the whole iteration
    on Blackwell and nothing on Hopper (Megatron-Bridge, scripts/performance/configs/qwen3).
    """
    if "token_drop" in str(row["moe_routing"]).lower() and not features:
        return ["all"] if str(row["hardware"]["device"]) in BLACKWELL else []
    if str(features.get("cuda_graph_impl")) == "none" or str(features.get("cuda_graph")) == "none":
        return []
    words = " ".join(str(features.get(key, "")) for key in ("cuda_graph_scope", "cuda_graph", "cuda_graph_impl"))
    flags = ("full_cuda_graph", "mcore_cuda_graph", "layer_cuda_graph")
    found: list[Literal["attention", "router", "all"]] = []
    if "full_iteration" in words or any(on(features.get(flag)) for flag in flags):
        return ["all"]
    if "attn" in words:
        found.append("attention")
    if "moe_router" in words:
        found.append("router")
    return found


def _fused_loss(row: dict[str, Any], features: dict[str, Any]) -> bool:
    flags = ("cross_entropy_fusion", "cross_entropy_loss_fusion")
    if any(on(features.get(flag)) for flag in flags):
        return True
    return source_of(row) in BRIDGE_SOURCES or source_of(row).startswith("mlperf")


def _sequence_parallel(row: dict[str, Any]) -> bool:
    """As the row says; KempnerForge splits the sequence unless there are pipelines (distributed/tensor_parallel.py)."""
    told = row["mapping"]
    always = source_of(row) == "kempnerforge" and int(told.get("pp") or 1) == 1
    return bool(told.get("sp")) or int(told.get("tp") or 1) == 1 or always


def _loss_bytes(row: dict[str, Any]) -> float | None:
    """Bytes per logit of PyTorch's own loss: log probabilities, their gradient and that of the logits.

    torchtitan computes it on an FP32 copy and frees the logits (loss.py, train.py); split by vocabulary it holds one
    copy more (torch.distributed.tensor.parallel.loss). KempnerForge computes it in 16 bits, holds the logits too and
    gathers all of them on every tensor-parallel rank (training/loss.py, distributed/tensor_parallel.py).
    """
    tp = int(row["mapping"].get("tp") or 1)
    parallel = 16.0 if tp > 1 else 12.0
    return {"torchtitan": parallel, "torchtitan_dsv3_b200": parallel, "kempnerforge": 8.0 * tp}.get(source_of(row))


def _routing(row: dict[str, Any]) -> Routing:
    """Megatron passes 16-bit tokens to every dispatcher, FP8 or not (NVIDIA/Megatron-LM issue 3578)."""
    sent = 2.0 if family_of(row) in ("megatron", "megatron-deepspeed", "mindspeed") else 0.0
    words = str(row["moe_routing"] or "").lower()
    if "token_drop" in words:
        return Routing(capacity_factor=1.0, dispatch_bytes=sent)
    # NeMo AutoModel's FakeBalancedGate deals experts in turn: token i takes i K to i K + K - 1 modulo E.
    return Routing(dispatch_bytes=sent, consecutive="fake" in words)


def _overlap(row: dict[str, Any], features: dict[str, Any], model: Model) -> Overlap:
    source, family = source_of(row), family_of(row)
    if source in SERIAL_SOURCES:
        return NO_OVERLAP
    expert = any(
        on(features.get(flag))
        for flag in ("moe_a2a_overlap", "ep_a2a_overlap", "overlap_moe_expert_parallel_comm", "moe_fb_overlap")
    )
    tp = features.get("tp_comm_overlap", features.get("tp_overlap", features.get("async_tp")))
    if tp is None:
        # Userbuffers are on in NVIDIA's dense recipes; Megatron-LM's own default is off, and MoE layers have none.
        tp = (source in BRIDGE_SOURCES or source.startswith(("mlperf", "megascale"))) and model.moe is None
    sends = features.get("pp_comm_async", features.get("overlap_p2p_comm", True))
    reduce = features.get("overlap_grad_reduce", features.get("dp_grad_overlap"))
    gather = features.get("overlap_param_gather", features.get("dp_param_gather_overlap"))
    default = family != "megatron" or source not in ("megatron_lm_golden_values", "simumax_b200")
    return Overlap(
        grad_reduce=default if reduce is None else on(reduce),
        param_gather=default if gather is None else on(gather),
        tp=on(tp),
        cp=True,
        pp=on(sends),
        expert_all_to_all=expert or _hidden_unsaid(row),
        shared_expert=on(features.get("moe_shared_expert_overlap")),
    )


def _hidden_unsaid(row: dict[str, Any]) -> bool:
    """Flags joined from another mapping's recipe do not count: NVIDIA's recipes of interleaved pipelines hide an
    expert exchange that leaves the high-bandwidth domain (DeepSeek-V3 and Qwen3-235B on B200 and H100).
    """
    told = row["mapping"]
    leaves = int(told.get("ep") or 1) * int(told.get("etp") or 1) > int(row["hardware"].get("scale_up_domain") or 1)
    return leaves and int(told.get("vpp") or 1) > 1 and "join is approximate" in str(row.get("notes"))


def built_whole(row: dict[str, Any]) -> bool:
    """Whether a rank's stage stands whole on the device before FSDP shards it.

    Megatron-LM moves the model there first unless it is built on the host or on the meta device (training.py,
    get_model), for which it had no option before 2025.
    """
    return family_of(row) == "megatron" and str(row["mapping"].get("strategy")).startswith("fsdp")


def dispatcher_of(row: dict[str, Any]) -> int:
    """How tokens reach their experts; the plain all-to-all where the row names no other."""
    features = features_of(row)
    flags = ("moe_flex_dispatcher_backend", "dispatcher", "moe_token_dispatcher_type", "kernels")
    words = " ".join(str(features.get(flag)) for flag in flags).lower()
    if "deepep" in words or "hybridep" in words:
        return int(Dispatcher.DEDUPLICATED)
    if "allgather" in words:
        return int(Dispatcher.ALL_GATHER)
    return int(Dispatcher.ALL_TO_ALL)


PLAIN = ("none", "none_in_recipe", "None")
PARTIAL = ("full_block", "selective_ac")
"""Only some layers or products are computed again."""
ELEMENTWISE = ("minimal", "save_dot_except_logits", "save_dot_except_logits_ffn1")
"""MaxText policies that keep all products."""
WHOLE = ("full", "custom", "qkv_proj_offloaded")
"""Custom MaxText policies keep or offload single tensors of a layer that is otherwise computed again."""


def recompute_of(row: dict[str, Any], model: Model) -> list[int]:
    """What may have been computed again: one value, or the legal ones where the row does not say.

    Where only some layers are computed again both ends are candidates.
    """
    said = row["recompute"]
    given = said if isinstance(said, dict) else {"mode": said}
    mode = str(given.get("mode"))
    none, full = int(Recompute.NONE), int(Recompute.FULL)
    fine = int(Recompute.NORM | Recompute.ACTIVATION)
    if mode in PARTIAL or given.get("method") == "block":
        return [none, full]
    for modes, code in ((PLAIN, none), (WHOLE, full), (ELEMENTWISE, fine)):
        if mode in modes:
            return [code]
    if mode.startswith("selective"):
        return [_modules(given.get("modules"))]
    return [none, fine if model.moe else int(Recompute.CORE_ATTENTION), full]


def _modules(names: Any) -> int:
    """The code of modules as rows write them: a list, or words in one text; Megatron's default is the core."""
    code = int(Recompute.NONE)
    for word in re.findall(r"\w+", str(names or "core_attn")):
        code |= int(MODULES.get(word, Recompute.NONE))
    return code
