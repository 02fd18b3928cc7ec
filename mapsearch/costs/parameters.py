"""Parameters: how many each part of a layer has, per rank and in total (FORMULAS 3.1).

Contents: attention_parameters, dense_ffn_parameters, shared_expert_parameters, router_parameters,
norm_parameters, dense_layer_parameters, moe_layer_parameters, expert_parameters, embedding_parameters,
output_parameters, tied_copy_parameters, mtp_parameters, dense_tensors, expert_tensors, Ledger, ledger.

Three buckets: divided by TP (attention, dense FFN, shared expert, vocabulary), divided by ETP*EP (routed
experts), replicated (router, norms, MLA down-projections, biases of row-parallel layers).
"""

from __future__ import annotations

from dataclasses import dataclass

from mapsearch import arrays as np
from mapsearch.inventories.model import Mla, Model
from mapsearch.quantity import Num, Quantity, quantity

_VOCAB_BLOCK = 128
"""Megatron pads the vocabulary to a multiple of 128*TP (its make-vocab-size-divisible-by)."""


@quantity(unit="parameters", source="FORMULAS 3.1")
def attention_parameters(tp: Num, *, model: Model) -> Num:
    """Attention parameters of one layer on one rank.

    GQA: h(n_q + 2 n_kv)d + n_q d h, divided by TP; KV heads are copied when TP exceeds them.
    MLA: r_q(h + n(d_n+d_r) + 1) + r_kv(h + n(d_n+d_v) + 1) + h d_r + n d_v h, of which the down-projections and
    their norms, r_q(h+1) + r_kv(h+1) + h d_r, are replicated on every TP rank.

    Axes: tp. Unit: parameters. Source: FORMULAS 3.1, Megatron-LM (attention.py, multi_latent_attention.py).
    """
    if model.mla is not None:
        return _mla_parameters(tp, model, model.mla)
    return _gqa_parameters(tp, model)


def _mla_parameters(tp: Num, model: Model, mla: Mla) -> Num:
    query_dim = mla.nope_dim + mla.rope_dim
    replicated = mla.kv_rank * (model.hidden + 1) + model.hidden * mla.rope_dim
    split = model.heads * (mla.kv_rank * (mla.nope_dim + mla.value_dim) + mla.value_dim * model.hidden)
    if mla.q_rank:
        replicated += mla.q_rank * (model.hidden + 1)
        split += mla.q_rank * model.heads * query_dim
    else:
        split += model.hidden * model.heads * query_dim
    sinks = model.heads if model.attention_sinks else 0
    return replicated + (split + sinks) / np.asarray(tp)


def _gqa_parameters(tp: Num, model: Model) -> Num:
    heads = model.heads / np.asarray(tp)
    kv_heads = np.maximum(model.kv_heads / np.asarray(tp), 1.0)
    columns = (heads + 2.0 * kv_heads) * model.head_dim
    total = model.hidden * columns + heads * model.head_dim * model.hidden
    if model.qkv_bias or model.linear_bias:
        total = total + columns
    if model.output_bias or model.linear_bias:
        total = total + model.hidden
    if model.attention_sinks:
        total = total + heads
    if model.qk_norm:
        per_head = 2.0 * model.head_dim
        total = total + (per_head if model.qk_norm_width == "head" else (heads + kv_heads) * model.head_dim)
    return total


def _ffn(width: float, split: Num, model: Model, bias: bool) -> Num:
    """One FFN: fc1 columns and fc2 rows divided by `split`; fc2's bias is replicated."""
    split = np.asarray(split)
    weights = model.ffn_matrices * model.hidden * width / split
    return weights + (((model.ffn_matrices - 1) * width / split + model.hidden) if bias else 0.0)


@quantity(unit="parameters", source="FORMULAS 3.1")
def dense_ffn_parameters(tp: Num, *, model: Model) -> Num:
    """FFN parameters of one dense layer on one rank: 3hF/TP gated, 2hF/TP otherwise, and its biases.

    Axes: tp. Unit: parameters. Source: FORMULAS 3.1.
    """
    return _ffn(model.ffn, tp, model, model.linear_bias)


@quantity(unit="parameters", source="FORMULAS 3.1")
def shared_expert_parameters(tp: Num, *, model: Model) -> Num:
    """Shared-expert parameters of one MoE layer on one rank: 3 h f_s / TP, and h for its gate.

    Axes: tp. Unit: parameters. Source: FORMULAS 3.1.
    """
    if model.moe is None or model.moe.shared_ffn == 0:
        return np.zeros_like(tp, dtype=float)
    return _ffn(model.moe.shared_ffn, tp, model, False) + (model.hidden if model.moe.shared_gate else 0.0)


@quantity(unit="parameters", source="FORMULAS 3.1")
def router_parameters(*, model: Model) -> Num:
    """Router parameters of one MoE layer, the same on every rank: hE, and E for its bias.

    Axes: none. Unit: parameters. Source: FORMULAS 3.1.
    """
    if model.moe is None:
        return 0.0
    return float(model.moe.experts * (model.hidden + (1 if model.moe.router_bias else 0)))


@quantity(unit="parameters", source="FORMULAS 3.1")
def norm_parameters(*, model: Model) -> Num:
    """Norm parameters of one layer, the same on every rank: h per norm, twice that with biases.

    Axes: none. Unit: parameters. Source: FORMULAS 3.1.
    """
    return float(model.norms_per_layer * _norm(model))


def _norm(model: Model) -> int:
    return model.hidden * (2 if model.norm_bias else 1)


@quantity(unit="parameters", source="FORMULAS 3.1")
def dense_layer_parameters(tp: Num, *, model: Model) -> Num:
    """All parameters of one dense layer on one rank.

    Axes: tp. Unit: parameters. Source: FORMULAS 3.1.
    """
    attention = attention_parameters(tp, model=model)
    return attention + dense_ffn_parameters(tp, model=model) + norm_parameters(model=model)


@quantity(unit="parameters", source="FORMULAS 3.1")
def moe_layer_parameters(tp: Num, *, model: Model) -> Num:
    """Parameters of one MoE layer on one rank without its routed experts.

    Axes: tp. Unit: parameters. Source: FORMULAS 3.1.
    """
    attention = attention_parameters(tp, model=model)
    shared = shared_expert_parameters(tp, model=model)
    return attention + shared + router_parameters(model=model) + norm_parameters(model=model)


@quantity(unit="parameters", source="FORMULAS 3.1")
def expert_parameters(etp: Num, ep: Num, *, model: Model) -> Num:
    """Routed-expert parameters of one MoE layer on one rank: (E/EP) 3hf/ETP, and their biases.

    Axes: etp, ep. Unit: parameters. Source: FORMULAS 3.1.
    """
    if model.moe is None:
        return np.zeros(np.broadcast_shapes(np.shape(etp), np.shape(ep)))
    one = _ffn(model.moe.expert_ffn, etp, model, model.moe.expert_bias)
    return model.moe.experts / np.asarray(ep) * one


@quantity(unit="parameters", source="FORMULAS 3.1, 3.4")
def embedding_parameters(tp: Num, *, model: Model) -> Num:
    """Input-embedding parameters on a rank of the first stage: h V'/TP, V' = ceil(V/(128 TP)) 128 TP.

    A learned position table is added whole: Megatron keeps it on every rank.

    Axes: tp. Unit: parameters. Source: FORMULAS 3.1 (padded vocabulary), 3.4.
    """
    return model.hidden * (padded_vocab(tp, model) / np.asarray(tp) + model.learned_positions)


@quantity(unit="parameters", source="FORMULAS 3.1, 3.4")
def output_parameters(tp: Num, *, model: Model) -> Num:
    """Output head and final norm on a rank of the last stage: h V'/TP + h.

    A tied head counts too, since the last stage keeps a copy of its own; `tied_copy_parameters` says what to
    take off when both ends are on one stage.

    Axes: tp. Unit: parameters. Source: FORMULAS 3.1, 3.4.
    """
    bias = 1 if model.head_bias else 0
    return (model.hidden + bias) * padded_vocab(tp, model) / np.asarray(tp) + _norm(model)


@quantity(unit="parameters", source="FORMULAS 3.4")
def tied_copy_parameters(tp: Num, pp: Num, *, model: Model) -> Num:
    """What a tied model on a single stage does not hold twice: the head's h V'/TP; 0 when untied or PP > 1.

    Axes: tp, pp. Unit: parameters. Source: FORMULAS 3.4.
    """
    head = model.hidden * padded_vocab(tp, model) / np.asarray(tp)
    return np.where((np.asarray(pp) == 1) & model.tied_embeddings, head, 0.0)


def padded_vocab(tp: Num, model: Model) -> Num:
    """Rows of the vocabulary as it is stored over a TP group: ceil(V/(128 TP)) 128 TP (FORMULAS 3.1)."""
    block = _VOCAB_BLOCK * np.asarray(tp)
    return np.ceil(model.vocab / block) * block


@quantity(unit="parameters", source="FORMULAS 3.1")
def mtp_parameters(tp: Num, *, model: Model) -> Num:
    """Parameters of one MTP module beside its layer: projection 2h*h/TP and three norms.

    Embedding and head are shared with the main model. 0 when there are no modules.

    Axes: tp. Unit: parameters. Source: FORMULAS 3.1.
    """
    one = 2.0 * model.hidden**2 / np.asarray(tp) + 3.0 * _norm(model)
    return one if model.mtp_layers else np.zeros_like(one)


def dense_tensors(*, model: Model) -> float:
    """Parameter tensors of one layer, routed experts apart: QKV, output, FFN, two norms, and their biases.

    12 for GPT, 7 with a gated FFN and neither. Unit: tensors. Source: Megatron-LM (transformer_layer.py).
    Ignores: what MLA, a router and norms of queries and keys add.
    """
    weights = 2 + model.ffn_matrices
    return float(weights + (weights if model.linear_bias else 0) + (4 if model.norm_bias else 2))


def expert_tensors(ep: Num, *, model: Model) -> Num:
    """Parameter tensors of one layer's experts on one rank, each expert apart. Unit: tensors. Source: F3.1."""
    return (model.moe.experts * model.ffn_matrices if model.moe else 0.0) / np.asarray(ep)


@dataclass(frozen=True)
class Ledger:
    """Parameter counts of a whole model, vocabulary not padded (FORMULAS 1.3, 3.1)."""

    parts: dict[str, float]
    """Parameters by part, MTP apart; they add up to `total`."""
    total: float
    active: float
    """Parameters one token passes through, both embeddings counted: P_act = P_sh + P_exp K/E."""
    active_without_input_embedding: float
    active_without_embeddings: float
    shared: float
    """P_sh: everything but the routed experts."""
    experts: float
    """P_exp: the routed experts."""
    mtp: float
    """All MTP modules with their layers, embedding and head not repeated."""
    assignments_per_token: int
    """Experts that one token is sent to in each MoE layer, K: a token is not one assignment."""

    @property
    def shared_ratio(self) -> float:
        """sigma = P_sh / P."""
        return self.shared / self.total


@quantity(unit="parameters", source="FORMULAS 1.3, 3.1")
def ledger(*, model: Model) -> Ledger:
    """Parameters by part, in total and active per token.

    sigma = P_sh/P; P_act = [sigma + (1-sigma) K/E] P.

    Axes: none. Unit: parameters. Source: FORMULAS 1.3, 3.1.
    Ignores: vocabulary padding; MTP modules (counted apart).
    """
    dense, moe = model.dense_layers, model.moe_layers
    experts = moe * float(expert_parameters(1, 1, model=model))
    embedding = float(model.hidden * (model.vocab + model.learned_positions))
    head = 0.0 if model.tied_embeddings else float(model.hidden * model.vocab)
    head += model.vocab if model.head_bias else 0
    parts = {
        "attention": model.layers * float(attention_parameters(1, model=model)),
        "dense FFN": dense * float(dense_ffn_parameters(1, model=model)),
        "routed experts": experts,
        "shared experts": moe * float(shared_expert_parameters(1, model=model)),
        "router": moe * float(router_parameters(model=model)),
        "norms": model.layers * float(norm_parameters(model=model)) + _norm(model),
        "input embedding": embedding,
        "output head": head,
    }
    total = sum(parts.values())
    share = model.moe.top_k / model.moe.experts if model.moe else 0.0
    active = total - experts + experts * share
    # A tied table is used by the head, so it stays in the count that leaves the input embedding out.
    looked_up = model.hidden * (model.learned_positions + (0 if model.tied_embeddings else model.vocab))
    without_input = active - looked_up
    return Ledger(
        parts=parts,
        total=total,
        active=active,
        active_without_input_embedding=without_input,
        active_without_embeddings=active - embedding - head,
        shared=total - experts,
        experts=experts,
        mtp=model.mtp_layers * _mtp_module(model),
        assignments_per_token=model.moe.top_k if model.moe else 0,
    )


def _mtp_module(model: Model) -> float:
    layer = dense_layer_parameters(1, model=model)
    if model.layer_kinds[-1] == "moe":
        layer = moe_layer_parameters(1, model=model) + expert_parameters(1, 1, model=model)
    return float(layer + mtp_parameters(1, model=model))


QUANTITIES: tuple[Quantity[..., Num], ...] = (
    attention_parameters,
    dense_ffn_parameters,
    shared_expert_parameters,
    router_parameters,
    norm_parameters,
    dense_layer_parameters,
    moe_layer_parameters,
    expert_parameters,
    embedding_parameters,
    output_parameters,
    tied_copy_parameters,
    mtp_parameters,
    ledger,
)
