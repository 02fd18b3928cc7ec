"""Bytes of weights, gradients and optimizer states of a published row, by the customs of its framework.

Contents: states_of.
"""

from __future__ import annotations

from typing import Any

from mapsearch.calibration.frameworks import BRIDGE_SOURCES, family_of, on, source_of
from mapsearch.inventories.recipes import RECIPES
from mapsearch.inventories.run import StateRecipe


def states_of(row: dict[str, Any], features: dict[str, Any], precision: str) -> StateRecipe:
    """Bytes of states by framework (F3.6, SCHEMA.md)."""
    source, family, fp8 = source_of(row), family_of(row), "fp8" in precision
    if family == "fsdp":
        return _sharded_states(row, features)
    if family == "maxtext":
        moments = 4.0 if features.get("mu_dtype") else 8.0
        return FP32_SHARDS.replaced(gradient_reduce_bytes=2.0, moment_bytes=moments)
    recipe = RECIPES["BF16 weights, FP32 gradients"]
    if precision == "fp16":
        # The FP32 copy of the gradients lives in the optimizer step only, when no activations do (Float16Optimizer).
        recipe = RECIPES["FP16 weights and gradients"].replaced(master_bytes=4.0)
    elif family == "megatron-deepspeed":
        # DeepSpeed's BF16_Optimizer keeps the 16-bit gradients beside the FP32 ones, both whole.
        recipe = recipe.replaced(gradient_bytes=6.0)
    elif (
        source in BRIDGE_SOURCES[:3]
        or source.startswith(("mlperf", "internevo"))
        or row["mapping"].get("grad_dtype") == "bf16"
    ):
        recipe = RECIPES["BF16 weights and gradients"]
    if str(row["mapping"].get("strategy")).startswith("fsdp"):
        # PyTorch's FSDP reduces in the type of the parameters unless it is told otherwise.
        recipe = recipe.replaced(gradient_reduce_bytes=2.0)
    if source in BRIDGE_SOURCES and str(row["model"]["name"]).startswith("moonlight"):
        # Its recipe: grad_reduce_in_fp32=False, exp_avg_dtype and exp_avg_sq_dtype BF16 (recipes/moonlight).
        recipe = RECIPES["BF16 weights and gradients"].replaced(moment_bytes=4.0)
    if features.get("exp_avg_dtype") == "bf16":
        recipe = recipe.replaced(moment_bytes=4.0)
    if fp8 and (on(features.get("fp8_params")) or on(features.get("fp8_param_gather"))):
        recipe = recipe.replaced(fp8_primary_weights=True, fp8_weight_copies=_fp8_copies(row, precision))
    return recipe


def _fp8_copies(row: dict[str, Any], precision: str) -> float:
    """Bytes per FP8 weight: MXFP8 quantises rows and columns; Hopper's FP8 products take transposed operands only.

    Source: TransformerEngine (is_non_tn_fp8_gemm_supported: from Blackwell on one copy serves both).
    """
    hopper = str(row["hardware"]["device"]).startswith(("H100", "H200", "H800", "H20"))
    return 2.0 if hopper or precision == "mxfp8" else 1.0


FP32_SHARDS = StateRecipe(weight_bytes=2.0, master_bytes=2.0, fp8_weight_copies=0.0)
"""FP32 weights that are gathered in 16 bits: under ZeRO-3 two of the four bytes count as weights, two as master."""
HALF_SHARDS = StateRecipe(gradient_bytes=2.0, master_bytes=0.0, moment_bytes=4.0, fp8_weight_copies=0.0)
"""Weights, gradients and moments all in 16 bits."""

BF16_STATES = StateRecipe(gradient_bytes=2.0, master_bytes=0.0, moment_bytes=4.0, gradient_reduce_bytes=4.0)
"""Weights, gradients and moments in BF16; gradients are reduced in FP32."""


def _sharded_states(row: dict[str, Any], features: dict[str, Any]) -> StateRecipe:
    """FSDP: llm-foundry's PURE mode reduces gradients in 16 bits, all others in 32; torchtitan's float8 gathers FP8.

    With pipelines torchtitan keeps stages gathered and reduces FP32 gradients once per step
    (reshard_after_forward "default"); KempnerForge reduces once per step and keeps everything else in 16 bits
    (distributed/parallel.py, training/grad.py).
    """
    pipelined = int(row["mapping"].get("pp") or 1) > 1
    if source_of(row) == "kempnerforge":
        several = pipelined or int(row["batch"].get("grad_accum") or 2) > 1
        return HALF_SHARDS.replaced(unsharded_bytes=4.0 * several + 2.0 * pipelined)
    if source_of(row) == "torchtitan" and row["precision"] == "fp8_tensorwise":
        recipe = FP32_SHARDS.replaced(fp8_primary_weights=True, fp8_weight_copies=1.0, master_bytes=3.0)
        return recipe.replaced(unsharded_bytes=5.0 if pipelined else 0.0)
    if source_of(row) == "nemo_automodel":
        # Its recipes build the model in the checkpoint's BF16, and torch.optim.Adam keeps moments in that format.
        return BF16_STATES
    reduce = 2.0 if features.get("fsdp_mixed_precision") == "PURE" else 4.0
    return FP32_SHARDS.replaced(gradient_reduce_bytes=reduce)
