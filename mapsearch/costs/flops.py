"""FLOP per token and per step, and KV-cache bytes (FORMULAS 1.5, 3.2).

Contents: attended_keys, mean_attended_keys, linear_flops, attention_core_flops, router_flops, forward_flops_per_token,
training_flops_per_token, torchtitan_flops_per_token, training_flops, executed_flops, step_flops,
kv_cache_bytes_per_token, kv_cache_bytes.

Model FLOP, as MFU counts them: no recompute, backward = twice forward. One multiply or add is one FLOP.
"""

from __future__ import annotations

from typing import NamedTuple

from mapsearch import arrays as np
from mapsearch.arrays import remembered
from mapsearch.axes import Recompute
from mapsearch.costs.recompute import again, mla_up_share, only
from mapsearch.inventories.model import Model, SlidingWindow
from mapsearch.inventories.run import Run
from mapsearch.quantity import Num, Quantity, quantity

ALL_LAYERS = (1.0, 1.0, 1.0)
"""Shares of all layers, dense layers and MoE layers on stages that recompute, where every stage does."""
BACKWARD_AND_FORWARD = 3.0
"""Forward once, input gradient once, weight gradient once (FORMULAS 3.2)."""


def attended_keys(length: Num, window: SlidingWindow | None = None) -> Num:
    """Mean number of keys that a query sees in a causal sequence of `length` tokens.

    Whole sequence: s/2. Sliding window w < s: w - w^2/(2s). Chunks of c: min(c, s)/2.
    Unit: keys. Source: FORMULAS 3.2 (causal half), integral of min(i, w) over the positions.
    """
    length = np.asarray(length, dtype=float)
    if window is None:
        return length / 2.0
    size = np.minimum(float(window.size), length)
    return size / 2.0 if window.chunked else size - size**2 / (2.0 * length)


def mean_attended_keys(length: Num, *, model: Model) -> Num:
    """Keys that a query sees, averaged over the layers (MTP modules not counted). Unit: keys."""
    return _mean_keys(model, length) if np.plain(length) else _keys(model, length)


def _keys(model: Model, length: Num) -> Num:
    window = model.sliding_window
    if window is None:
        return attended_keys(length)
    share = window.layers / model.layers
    return share * attended_keys(length, window) + (1.0 - share) * attended_keys(length)


_mean_keys = np.remembered()(_keys)


def _attention_weights(model: Model) -> float:
    """Matrix elements of one layer's attention projections."""
    if model.mla is None:
        return float(model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads))
    mla, heads = model.mla, model.heads
    query = mla.q_rank * (model.hidden + heads * model.qk_dim) if mla.q_rank else model.hidden * heads * model.qk_dim
    key_value = mla.kv_rank * (model.hidden + heads * (mla.nope_dim + mla.value_dim)) + model.hidden * mla.rope_dim
    return float(query + key_value + heads * mla.value_dim * model.hidden)


def _layer_counts(model: Model) -> tuple[int, int]:
    """Dense and MoE layers with the MTP modules' layers, which are of the last kind."""
    moe_last = model.layer_kinds[-1] == "moe"
    return (
        model.dense_layers + (0 if moe_last else model.mtp_layers),
        model.moe_layers + (model.mtp_layers if moe_last else 0),
    )


class _Weights(NamedTuple):
    """Matrix elements that one token meets, by what recomputation can repeat."""

    attention: float
    dense_ffn: float
    moe_ffn: float
    """Routed and shared experts; routers apart."""
    ends: float
    """Output heads and MTP projections, which are never repeated."""


@np.remembered()
def _weights(model: Model) -> _Weights:
    dense, moe = _layer_counts(model)
    width = model.moe.expert_ffn * model.moe.top_k + model.moe.shared_ffn if model.moe is not None else 0
    mtp = model.mtp_layers * (3.0 * model.hidden + 2.0 * model.hidden**2)
    return _Weights(
        attention=(dense + moe) * _attention_weights(model),
        dense_ffn=float(dense * model.ffn_matrices * model.hidden * model.ffn),
        moe_ffn=float(moe * model.ffn_matrices * model.hidden * width),
        ends=mtp + float(model.hidden) * model.vocab * (1 + model.mtp_layers),
    )


@quantity(unit="FLOP per token", source="FORMULAS 3.2")
def linear_flops(*, model: Model) -> Num:
    """Forward FLOP per token of all linear layers but the router, output heads and MTP included.

    2 x [L attn_linear + 3F h L_dense + (3fK + 3f_s) h L_moe + mtp(3h + 2h^2) + hV(1+mtp)]; gated FFNs, else 2.

    Axes: none. Unit: FLOP per token. Source: FORMULAS 3.2, Megatron-LM num_floating_point_operations.
    Ignores: biases, norms, vocabulary padding.
    """
    return 2.0 * sum(_weights(model))


@quantity(unit="FLOP per token", source="FORMULAS 3.2")
def router_flops(*, model: Model) -> Num:
    """Forward FLOP per token of all routers: 2hE per MoE layer.

    Axes: none. Unit: FLOP per token. Source: FORMULAS 3.2, 9 (Megatron leaves them out; published totals do not).
    """
    experts = model.moe.experts if model.moe is not None else 0
    return 2.0 * model.hidden * experts * _layer_counts(model)[1]


@quantity(unit="FLOP per token", source="FORMULAS 3.2")
def attention_core_flops(*, model: Model, length: Num) -> Num:
    """Forward FLOP per token of all attention cores: 2 n_q(d_qk + d_v) x keys seen, causal.

    `length` is sum(L_i^2)/sum(L_i) when documents are packed. MTP modules attend to the whole sequence.

    Axes: none. Unit: FLOP per token. Source: FORMULAS 3.2.
    Ignores: softmax; packed documents shorter than a sliding window are taken at their mean length.
    """
    per_key = 2.0 * model.heads * (model.qk_dim + model.v_dim)
    layers = model.layers * mean_attended_keys(length, model=model) + model.mtp_layers * attended_keys(length)
    return per_key * layers


@quantity(unit="FLOP per token", source="FORMULAS 3.2")
def forward_flops_per_token(*, model: Model, length: Num, router: bool = True) -> Num:
    """Forward model FLOP per token at a sequence length, causal.

    Axes: none. Unit: FLOP per token. Source: FORMULAS 3.2.
    """
    routers = router_flops(model=model) if router else 0.0
    return linear_flops(model=model) + routers + attention_core_flops(model=model, length=length)


@quantity(unit="FLOP per token", source="FORMULAS 3.2")
def training_flops_per_token(*, model: Model, length: Num, router: bool = True) -> Num:
    """Model FLOP per token of one training step: three times forward.

    `router=False` is Megatron's own count; published DeepSeek-V3 totals include the router.

    Axes: none. Unit: FLOP per token. Source: FORMULAS 3.2.
    """
    return BACKWARD_AND_FORWARD * forward_flops_per_token(model=model, length=length, router=router)


@quantity(unit="FLOP per token", source="FORMULAS 3.2")
def torchtitan_flops_per_token(*, model: Model, length: Num, router: bool = True) -> Num:
    """Training FLOP per token as torchtitan counts them: 6 N_matmul + 6 L n_q(d_qk + d_v) s, not causal.

    Twice the attention of `training_flops_per_token`, so MFU of the two cannot be compared.

    Axes: none. Unit: FLOP per token. Source: FORMULAS 3.2.
    Ignores: sliding windows, as torchtitan does.
    """
    linear = BACKWARD_AND_FORWARD * (linear_flops(model=model) + (router_flops(model=model) if router else 0.0))
    layers = model.layers + model.mtp_layers
    return linear + 6.0 * layers * model.heads * (model.qk_dim + model.v_dim) * np.asarray(length, dtype=float)


@quantity(unit="FLOP", source="FORMULAS 3.2")
def training_flops(*, model: Model, run: Run) -> Num:
    """Model FLOP of one optimizer step, all devices together: tokens x FLOP per token. The numerator of MFU.

    Axes: none. Unit: FLOP. Source: FORMULAS 3.2.
    Ignores: recompute (MFU counts none).
    """
    return run.tokens_per_step * training_flops_per_token(model=model, length=run.attended_length)


@quantity(unit="FLOP", source="FORMULAS 3.2")
def executed_flops(recompute: Num, *, model: Model, run: Run, shares: tuple[float, float, float] = ALL_LAYERS) -> Num:
    """FLOP that devices execute in one step: model FLOP, what is computed again, and FlashAttention's fifth product.

    FlashAttention runs 5 matrix products backward where the model counts 4: half a forward core more. Recompute adds
    the forward of what it repeats: everything in the layers (`full`), the core, the dense FFN, the MoE layer, or the
    share of the projections that MLA's up-projections are. The numerator of HFU. `shares`: of all layers, dense layers
    and MoE layers, those on stages that recompute.

    Axes: recompute. Unit: FLOP. Source: FORMULAS 3.2.
    Ignores: padding of rows and vocabulary; norms and activation functions.
    """
    weights, core = _weights(model), attention_core_flops(model=model, length=run.attended_length)
    moe = 2.0 * weights.moe_ffn + router_flops(model=model)
    projections = again(recompute, 0) + mla_up_share(model) * only(recompute, Recompute.MLA_UP)
    attention = 2.0 * weights.attention * projections + core * again(recompute, Recompute.CORE_ATTENTION)
    repeated = (
        shares[0] * attention
        + shares[1] * 2.0 * weights.dense_ffn * again(recompute, Recompute.MLP)
        + shares[2] * moe * again(recompute, Recompute.MOE)
    )
    return training_flops(model=model, run=run) + run.tokens_per_step * (0.5 * core + repeated)


@remembered(2)
def step_flops(model: Model, run: Run, recompute: int | None, shares: tuple[float, float, float] = ALL_LAYERS) -> float:
    """FLOP of one step as a number: of the model, or executed with what those shares of its layers compute again."""
    if recompute is None:
        return float(training_flops(model=model, run=run))
    return float(executed_flops(recompute, model=model, run=run, shares=shares))


@quantity(unit="bytes", source="FORMULAS 1.5")
def kv_cache_bytes_per_token(*, model: Model, element_bytes: float = 2.0) -> Num:
    """KV-cache bytes that one token adds to one layer: 2 n_kv d e; MLA (r_kv + d_r) e.

    Axes: none. Unit: bytes. Source: FORMULAS 1.5.
    """
    if model.mla is not None:
        return (model.mla.kv_rank + model.mla.rope_dim) * element_bytes
    return 2.0 * model.kv_heads * model.head_dim * element_bytes


@quantity(unit="bytes", source="FORMULAS 1.5")
def kv_cache_bytes(*, model: Model, length: Num, element_bytes: float = 2.0) -> Num:
    """KV-cache bytes of one sequence over all layers; a windowed layer keeps its window only.

    Axes: none. Unit: bytes. Source: FORMULAS 1.5.
    Ignores: MTP modules.
    """
    length = np.asarray(length, dtype=float)
    windowed = model.sliding_window.layers if model.sliding_window else 0
    size = model.sliding_window.size if model.sliding_window else 0
    tokens = (model.layers - windowed) * length + windowed * np.minimum(length, size)
    return kv_cache_bytes_per_token(model=model, element_bytes=element_bytes) * tokens


QUANTITIES: tuple[Quantity[..., Num], ...] = (
    linear_flops,
    router_flops,
    attention_core_flops,
    forward_flops_per_token,
    training_flops_per_token,
    torchtitan_flops_per_token,
    training_flops,
    executed_flops,
    kv_cache_bytes_per_token,
    kv_cache_bytes,
)
