"""Named recipes of model state: bytes per parameter of weights, gradients, master weights and moments.

Contents: RECIPES, FP8_RECIPES.
"""

from __future__ import annotations

from mapsearch.inventories.run import StateRecipe

RECIPES: dict[str, StateRecipe] = {
    "BF16 weights, FP32 gradients": StateRecipe(),
    "BF16 weights and gradients": StateRecipe(gradient_bytes=2.0, gradient_reduce_bytes=2.0),
    "BF16 moments, FP32 gradients": StateRecipe(moment_bytes=4.0),
    # Megatron's FP16 optimizer makes an FP32 copy of the gradients beside the FP32 master weights.
    "FP16 weights and gradients": StateRecipe(gradient_bytes=2.0, master_bytes=8.0, gradient_reduce_bytes=2.0),
    "FP32 weights and gradients": StateRecipe(weight_bytes=4.0, master_bytes=0.0),
}
"""The rows of FORMULAS 3.6: 18, 16, 14, 20 and 16 bytes per parameter without sharding."""

FP8_RECIPES: dict[str, StateRecipe] = {
    "FP8 compute, BF16 weights kept": StateRecipe(fp8_weight_copies=2.0),
    "FP8 weights only": StateRecipe(fp8_primary_weights=True, fp8_weight_copies=1.0),
}
"""The same with FP8 GEMMs: the row and column copies come on top of BF16 weights, or one FP8 copy is all."""
