"""Which framework a published row was measured with, and the flags that it names.

Contents: Family, FAMILIES, BRIDGE_SOURCES, source_of, family_of, features_of, on.
"""

from __future__ import annotations

import re
from typing import Any, Literal

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


def source_of(row: dict[str, Any]) -> str:
    """The name of the file that a row stands in."""
    return str(row["id"]).split("/", maxsplit=1)[0]


def family_of(row: dict[str, Any]) -> Family:
    """The family of frameworks a row was measured with."""
    return FAMILIES.get(source_of(row), "megatron")


FULL_ITERATION = {
    "cuda_graph_impl": "full_iteration",
    "moe_flex_dispatcher_backend": "hybridep",
    "overlap_moe_expert_parallel_comm": True,
}
"""What the helpers `_enable_*_full_iteration_*` of Megatron-Bridge's recipes set (its perf_recipes/*/common.py)."""
FULL_ITERATION_SIGNS = ("full_iteration", r"gpt_oss_120b_pretrain_\w+_gb[23]00_fp8mx")
"""Helpers and recipes that do: those of GPT-OSS call theirs by another name (perf_recipes/gpt_oss/common.py)."""


def features_of(row: dict[str, Any]) -> dict[str, Any]:
    """The flags of a row, underscores for hyphens, prefixes of configuration groups taken off; helpers spelled out."""
    given = row["features"] if isinstance(row["features"], dict) else {}
    flags = {str(key).split(".")[-1].replace("-", "_"): value for key, value in given.items()}
    words = f"{flags.get('helpers')} {flags.get('recipe_join')}"
    # A helper is called last, so what it sets wins over the flags written before it.
    return flags | FULL_ITERATION if any(re.search(sign, words) for sign in FULL_ITERATION_SIGNS) else flags


def on(value: Any) -> bool:
    """True for what means yes, as flags write it."""
    return str(value).lower() in ("true", "1", "yes", "on")
