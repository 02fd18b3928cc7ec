"""The run of a published row: batch, precision, states, routing and overlap, by the customs of its framework.

Contents: family_of, run_of, dispatcher_of, recompute_of, FAMILIES.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from mapsearch.axes import Dispatcher, Recompute
from mapsearch.calibration.shapes import Unfit
from mapsearch.inventories.model import Model
from mapsearch.inventories.recipes import RECIPES
from mapsearch.inventories.run import ComputePrecision, Overlap, Routing, Run, StateRecipe, Vocabulary

Family = Literal["megatron", "megatron-deepspeed", "fsdp", "maxtext", "internevo", "mindspeed", "other"]
FAMILIES: dict[str, Family] = {
    "ascend_mindspeed": "mindspeed",
    "bigscience_a100": "megatron-deepspeed",
    "colossalai": "other",
    "fms_fsdp": "fsdp",
    "internevo": "internevo",
    "kempnerforge": "fsdp",
    "llama3_herd_2407.21783": "other",
    "llm_foundry": "fsdp",
    "maxtext_tpu_v5": "maxtext",
    "model_reports": "other",
    "nemo_automodel": "fsdp",
    "torchtitan": "fsdp",
    "torchtitan_dsv3_b200": "fsdp",
    "tpu_ironwood": "maxtext",
    "tpu_trillium": "maxtext",
    "tpu_v5p": "maxtext",
    "trainium1": "other",
}
"""Family of framework by source; sources that are not listed are of the Megatron family."""
BRIDGE_SOURCES = ("megatron_bridge_perf", "nemo_perf_summary", "dgxc_benchmarking", "megatron_bridge_skills")
"""NVIDIA's recipes: gradients in BF16 in the benchmark ones, data-parallel and tensor-parallel overlap on."""
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


def source_of(row: dict[str, Any]) -> str:
    """The name of the file that a row stands in."""
    return str(row["id"]).split("/", maxsplit=1)[0]


def family_of(row: dict[str, Any]) -> Family:
    """The family of frameworks a row was measured with."""
    return FAMILIES.get(source_of(row), "megatron")


def features_of(row: dict[str, Any]) -> dict[str, Any]:
    """The flags of a row, underscores for hyphens, prefixes of configuration groups taken off."""
    given = row["features"] if isinstance(row["features"], dict) else {}
    return {str(key).split(".")[-1].replace("-", "_"): value for key, value in given.items()}


def _on(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes", "on")


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
    framework: dict[str, Literal["megatron", "torchtitan", "deepspeed", "none"]] = {
        "megatron": "megatron",
        "megatron-deepspeed": "megatron",
    }
    return Run(
        name=str(row["id"]),
        sequence_length=int(row["model"]["seq_len"]),
        global_batch=int(batch),
        precision=PRECISIONS[precision],
        state=_states(row, features, PRECISIONS[precision]),
        routing=_routing(row),
        overlap=_overlap(row, features, model),
        framework=framework.get(family, "none"),
        sequence_parallel=bool(row["mapping"].get("sp")) or int(row["mapping"].get("tp") or 1) == 1,
        fused_cross_entropy=_fused_loss(row, features),
        flash_attention=_flash(row),
        graphs=_graphs(features),
        vocabulary=VOCABULARY[vocabulary],
        micro_batch=[1],
    )


UNFUSED_SOURCES = ("sc21", "bigscience", "korthikanti")
"""Megatron before it called FlashAttention (2021 and 2022)."""


def _flash(row: dict[str, Any]) -> bool:
    return not source_of(row).startswith(UNFUSED_SOURCES)


def _graphs(features: dict[str, Any]) -> list[Literal["attention", "router", "all"]]:
    """What the row says is captured as a CUDA graph."""
    if str(features.get("cuda_graph_impl")) == "none" or str(features.get("cuda_graph")) == "none":
        return []
    words = " ".join(str(features.get(key, "")) for key in ("cuda_graph_scope", "cuda_graph", "cuda_graph_impl"))
    flags = ("full_cuda_graph", "mcore_cuda_graph", "layer_cuda_graph")
    found: list[Literal["attention", "router", "all"]] = []
    if "full_iteration" in words or any(_on(features.get(flag)) for flag in flags):
        return ["all"]
    if "attn" in words:
        found.append("attention")
    if "moe_router" in words:
        found.append("router")
    return found


def _fused_loss(row: dict[str, Any], features: dict[str, Any]) -> bool:
    flags = ("cross_entropy_fusion", "cross_entropy_loss_fusion")
    if any(_on(features.get(flag)) for flag in flags):
        return True
    return source_of(row) in BRIDGE_SOURCES or source_of(row).startswith("mlperf")


def _states(row: dict[str, Any], features: dict[str, Any], precision: str) -> StateRecipe:
    """Bytes of states by framework (F3.6, SCHEMA.md)."""
    source, family, fp8 = source_of(row), family_of(row), "fp8" in precision
    if family == "fsdp":
        return _sharded_states(row, features)
    if family == "maxtext":
        moments = 4.0 if features.get("mu_dtype") else 8.0
        return FP32_SHARDS.replaced(gradient_reduce_bytes=2.0, moment_bytes=moments)
    recipe = RECIPES["BF16 weights, FP32 gradients"]
    if precision == "fp16":
        recipe = RECIPES["FP16 weights and gradients"]
    elif source in BRIDGE_SOURCES[:3] or source.startswith("mlperf") or row["mapping"].get("grad_dtype") == "bf16":
        recipe = RECIPES["BF16 weights and gradients"]
    if features.get("exp_avg_dtype") == "bf16":
        recipe = recipe.replaced(moment_bytes=4.0)
    if fp8 and (_on(features.get("fp8_params")) or _on(features.get("fp8_param_gather"))):
        recipe = recipe.replaced(fp8_primary_weights=True, fp8_weight_copies=2.0 if precision == "mxfp8" else 1.0)
    return recipe


FP32_SHARDS = StateRecipe(weight_bytes=2.0, master_bytes=2.0, fp8_weight_copies=0.0)
"""FP32 weights that are gathered in 16 bits: under ZeRO-3 two of the four bytes count as weights, two as master."""


def _sharded_states(row: dict[str, Any], features: dict[str, Any]) -> StateRecipe:
    """FSDP: llm-foundry's PURE mode reduces gradients in 16 bits, all others in 32; torchtitan's float8 gathers FP8."""
    if source_of(row) == "torchtitan" and row["precision"] == "fp8_tensorwise":
        return FP32_SHARDS.replaced(fp8_primary_weights=True, fp8_weight_copies=1.0, master_bytes=3.0)
    reduce = 2.0 if features.get("fsdp_mixed_precision") == "PURE" else 4.0
    return FP32_SHARDS.replaced(gradient_reduce_bytes=reduce)


def _routing(row: dict[str, Any]) -> Routing:
    words = str(row["moe_routing"] or "").lower()
    if "token_drop" in words:
        return Routing(capacity_factor=1.0)
    return Routing()


def _overlap(row: dict[str, Any], features: dict[str, Any], model: Model) -> Overlap:
    source, family = source_of(row), family_of(row)
    if source in SERIAL_SOURCES:
        return NO_OVERLAP
    expert = any(
        _on(features.get(flag))
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
        grad_reduce=default if reduce is None else _on(reduce),
        param_gather=default if gather is None else _on(gather),
        tp=_on(tp),
        cp=True,
        pp=_on(sends),
        expert_all_to_all=expert,
        shared_expert=_on(features.get("moe_shared_expert_overlap")),
    )


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
