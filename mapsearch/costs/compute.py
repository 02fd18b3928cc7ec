"""Seconds of compute of one layer, one microbatch, FORWARD, on one rank (FORMULAS 3.2), and of the optimizer.

Contents: attention_linear_s, attention_core_work, attention_core_s, attention_core_backward_s, dense_ffn_s,
shared_expert_s, router_s, routed_experts_s, attention_elementwise_s, dense_elementwise_s, routed_elementwise_s,
output_s, embedding_s, mtp_projection_s, optimizer_s, QUANTITIES.

The backward pass of a linear layer is an input gradient and a weight gradient, each as long as forward; elementwise
kernels run twice as long: the caller adds both. Kernel launches are in the elementwise functions, half a layer each.
Ignores: reading the weights; the `half_rows` of a profile's curves stand for it, where few rows share a weight.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.costs import routing
from mapsearch.costs.flops import mean_attended_keys
from mapsearch.costs.kernels import (
    ELEMENT_BYTES,
    gemm_s,
    mean_linear_peak,
    memory_pass_s,
    quantise_s,
    saturated,
)
from mapsearch.costs.parameters import padded_vocab
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile, Saturation
from mapsearch.inventories.run import Run
from mapsearch.quantity import Floats, Num, quantity
from mapsearch.topologies.fabric import Fabric

RESIDUAL_ELEMENTS = 5.0
"""Per hidden element and half layer: norm reads and writes one, the residual sum reads two and writes one (F3.3)."""
BACKWARD_FLOPS = 2.5
"""FlashAttention executes five matrix products backward and two forward (F3.2)."""
LOSS_BYTES = {False: 14.0, True: 4.0}
"""Per logit: read BF16, write FP32, read it and write its gradient; fused: read and write BF16 in place (F3.4)."""
ALIGNMENT = {"fp8-tensor": 16.0, "fp8-block": 16.0, "mxfp8": 32.0, "nvfp4": 128.0}
"""Rows of an expert's GEMM are padded to a multiple of this (F2.3; Megatron-Core fp8_utils and fp4_utils)."""


_floats = np.floats


# --- building blocks ---------------------------------------------------------------------------------------------


def _linear_s(rows: Num, inputs: Num, outputs: Num, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """One linear layer in the run's precision, quantisation included."""
    peak = mean_linear_peak(model, run, fabric, profile)
    product = gemm_s(rows, inputs, outputs, peak_flops=peak, curve=profile.gemm)
    return product + quantise_s(_floats(rows) * inputs, model=model, run=run, fabric=fabric, profile=profile)


def _ffn_s(tp: Num, tokens: Num, width: float, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Both products of an FFN whose width is split over TP, on the tokens of the whole TP group."""
    rows, local = _floats(tokens) * tp, width / _floats(tp)
    first = _linear_s(rows, model.hidden, (model.ffn_matrices - 1) * local, model, run, fabric, profile)
    return first + _linear_s(rows, local, model.hidden, model, run, fabric, profile)


def _launch_s(profile: Profile) -> float:
    """Host time of the kernels of half a layer (attention or FFN)."""
    return 0.5 * profile.kernels_per_layer * profile.kernel_launch


def _unsplit_tokens(tp: Num, tokens: Num, run: Run) -> Floats:
    """Tokens that norms and residuals of one rank see: its own with sequence parallelism, else the whole group's."""
    return _floats(tokens) * (1.0 if run.sequence_parallel else _floats(tp))


# --- attention ---------------------------------------------------------------------------------------------------


@quantity(unit="s", source="F3.2, F3.1")
def attention_linear_s(tp: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Projections of one attention block, forward.

    2 FLOP per weight and token; KV heads below TP are replicated; MLA's down-projections are not split, and work on
    the rank's own tokens with sequence parallelism. Axes: tp, tokens. Unit: s. Source: F3.2, F3.1, F2.3.
    """
    rows, split = _floats(tokens) * tp, _floats(tp)
    heads = model.heads / split
    facts = (model, run, fabric, profile)
    out = _linear_s(rows, heads * model.v_dim, model.hidden, *facts)
    if model.mla is None:
        kv_heads = np.maximum(model.kv_heads / split, 1.0)
        return out + _linear_s(rows, model.hidden, (heads + 2.0 * kv_heads) * model.head_dim, *facts)
    mla, own = model.mla, _unsplit_tokens(tp, tokens, run)
    down = _linear_s(own, model.hidden, mla.kv_rank + mla.rope_dim, *facts)
    up = _linear_s(rows, mla.kv_rank, heads * (mla.nope_dim + mla.value_dim), *facts)
    if mla.q_rank:
        query = _linear_s(own, model.hidden, mla.q_rank, *facts)
        query = query + _linear_s(rows, mla.q_rank, heads * model.qk_dim, *facts)
    else:
        query = _linear_s(rows, model.hidden, heads * model.qk_dim, *facts)
    return out + down + up + query


def attention_core_work(tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run) -> Floats:
    """FLOP of one causal attention core, forward, on one rank, averaged over layers with and without a window.

    b (s/CP) (n_q/TP) * 2 (d_qk + d_v) * keys seen; s/2 keys in a causal sequence. Unit: FLOP. Source: F3.2.
    Ignores: imbalance between CP ranks (zig-zag halves balance it).
    """
    queries = _floats(micro_batch) * run.sequence_length / cp * model.heads / tp
    keys = mean_attended_keys(run.attended_length, model=model)
    return np.asarray(queries * 2.0 * (model.qk_dim + model.v_dim) * keys)


def _core_s(work: Floats, cp: Num, curve: Saturation, model: Model, run: Run, fabric: Fabric) -> Floats:
    peak = fabric.device.peak(run.half_format)
    return work / (peak * saturated(curve, run.sequence_length / _floats(cp), model.qk_dim))


def _executed(run: Run) -> float:
    """Executed over model FLOP of an attention forward: unfused kernels compute the masked half as well."""
    return 1.0 if run.flash_attention else 2.0


SCORE_PASSES_FORWARD = 6.0
"""Unfused attention, forward: write scores, read and write the softmax, read and write dropout, read for values."""
SCORE_PASSES_BACKWARD = 8.0
"""Backward: read probabilities and write their gradient, dropout and softmax each read and write, two products read."""


def _unfused_s(
    passes: float, tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """HBM passes of the score matrix, 16 bits, where attention is not fused; 0 under FlashAttention. Unit: s."""
    if run.flash_attention:
        return np.zeros(np.broadcast(tp, cp, micro_batch).shape)
    scores = _floats(micro_batch) * model.heads / tp * float(run.sequence_length) ** 2 / cp
    return memory_pass_s(passes * ELEMENT_BYTES * scores, fabric=fabric, profile=profile)


FLASH_2_SHARE = 0.35 / 0.75
"""Rate of FlashAttention-2 over that of the kernel written for Hopper: shares of the peak in arXiv 2407.08608."""


def _kernel_share(run: Run) -> float:
    """Share of the profile's attention rate that the run's kernel reaches."""
    return FLASH_2_SHARE if run.attention_kernel == "flash-2" else 1.0


@quantity(unit="s", source="F3.2")
def attention_core_s(
    tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Attention core of one layer, forward, in 16 bits.

    n_q (d_qk + d_v) s FLOP per token when causal, over TP*CP. Axes: tp, cp, micro_batch. Unit: s. Source: F3.2.
    """
    work = _executed(run) / _kernel_share(run) * attention_core_work(tp, cp, micro_batch, model=model, run=run)
    facts = {"model": model, "run": run, "fabric": fabric, "profile": profile}
    scores = _unfused_s(SCORE_PASSES_FORWARD, tp, cp, micro_batch, **facts)  # type: ignore[arg-type]
    return _core_s(work, cp, profile.attention_forward, model, run, fabric) + scores


@quantity(unit="s", source="F3.2")
def attention_core_backward_s(
    tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Attention core of one layer, backward: 2.5 times the forward FLOP are executed.

    Axes: tp, cp, micro_batch. Unit: s. Source: F3.2.
    """
    factor = BACKWARD_FLOPS if run.flash_attention else 2.0 * _executed(run)
    work = factor / _kernel_share(run) * attention_core_work(tp, cp, micro_batch, model=model, run=run)
    facts = {"model": model, "run": run, "fabric": fabric, "profile": profile}
    scores = _unfused_s(SCORE_PASSES_BACKWARD, tp, cp, micro_batch, **facts)  # type: ignore[arg-type]
    return _core_s(work, cp, profile.attention_backward, model, run, fabric) + scores


@quantity(unit="s", source="F3.3")
def attention_elementwise_s(
    tp: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Norm, residual and rotary position of one attention block, forward, and the launches of its kernels.

    Each kernel reads its inputs and writes its outputs once: 5h, and twice the rotated queries and keys (MLA: and
    its two inner norms). Axes: tp, tokens. Unit: s. Source: F3.3 (tensors), counted.
    """
    own, rows, split = _unsplit_tokens(tp, tokens, run), _floats(tokens) * tp, _floats(tp)
    if model.mla is None:
        rotated = (model.heads / split + np.maximum(model.kv_heads / split, 1.0)) * model.head_dim
        compressed = 0.0
    else:
        rotated = 2.0 * model.heads / split * model.qk_dim
        compressed = 2.0 * (model.mla.q_rank + model.mla.kv_rank)
    elements = own * (RESIDUAL_ELEMENTS * model.hidden + compressed) + rows * 2.0 * rotated
    return memory_pass_s(ELEMENT_BYTES * elements, fabric=fabric, profile=profile) + _launch_s(profile)


# --- feed-forward ------------------------------------------------------------------------------------------------


@quantity(unit="s", source="F3.2")
def dense_ffn_s(tp: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Both products of one dense FFN, forward. Axes: tp, tokens. Unit: s. Source: F3.2."""
    if not model.ffn:
        return np.zeros(np.broadcast_shapes(np.shape(tp), np.shape(tokens)))
    return _ffn_s(tp, tokens, float(model.ffn), model, run, fabric, profile)


@quantity(unit="s", source="F3.2")
def shared_expert_s(tp: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Both products of the shared experts of one MoE layer, forward; 0 without any.

    Axes: tp, tokens. Unit: s. Source: F3.2. Ignores: the gate's h products.
    """
    if model.moe is None or not model.moe.shared_ffn:
        return np.zeros(np.broadcast_shapes(np.shape(tp), np.shape(tokens)))
    return _ffn_s(tp, tokens, float(model.moe.shared_ffn), model, run, fabric, profile)


@quantity(unit="s", source="F3.2, F2.3")
def router_s(tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Router product of one MoE layer, forward, never quantised. Axes: tokens. Unit: s. Source: F3.2.

    Ignores: that some frameworks run it in FP32; it is 0.25 % of the work.
    """
    experts = routing.routed(model).experts
    peak = fabric.device.peak(run.half_format)
    return gemm_s(tokens, model.hidden, float(experts), peak_flops=peak, curve=profile.gemm)


@quantity(unit="s", source="F3.2, F1.4, F2.3")
def routed_experts_s(
    tokens: Num, etp: Num, ep: Num, dispatcher: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Grouped GEMM of the local experts of one MoE layer, forward, on the busiest rank.

    E/EP experts with routed_rows/(E/EP) rows each (skew or capacity padding, F1.4), rounded up to 16 or 32 in FP8
    and 128 in NVFP4 (F2.3); the width is split over ETP. Axes: tokens, etp, ep, dispatcher. Unit: s. Source: F3.2.
    Ignores: uneven experts on one rank; the grouped kernel balances them.
    """
    moe = routing.routed(model)
    local_experts = moe.experts / _floats(ep)
    rows = routing.routed_rows(tokens, etp, ep, dispatcher, model=model, run=run)
    each = rows / local_experts
    if run.narrow_share(model.layers):
        block = ALIGNMENT[run.precision]
        each = np.ceil(each / block) * block
    width = moe.expert_ffn / _floats(etp)
    peak = mean_linear_peak(model, run, fabric, profile)
    first = gemm_s(each, model.hidden, (model.ffn_matrices - 1) * width, peak_flops=peak, curve=profile.grouped_gemm)
    second = gemm_s(each, width, model.hidden, peak_flops=peak, curve=profile.grouped_gemm)
    # Fused kernels quantise the second product's input on the way out of the first.
    inputs = local_experts * each * (model.hidden + (0.0 if run.fused_experts else width))
    return local_experts * (first + second) + quantise_s(inputs, model=model, run=run, fabric=fabric, profile=profile)


def _half_layer_s(tokens: Num, moved_elements: Num, model: Model, fabric: Fabric, profile: Profile) -> Floats:
    elements = _floats(tokens) * RESIDUAL_ELEMENTS * model.hidden + moved_elements
    return memory_pass_s(ELEMENT_BYTES * elements, fabric=fabric, profile=profile) + _launch_s(profile)


@quantity(unit="s", source="F3.3")
def dense_elementwise_s(tp: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Norm, residual and activation of one dense FFN, forward, and the launches of its kernels.

    5h per token, and the activation reads one or two widths and writes one. Axes: tp, tokens. Unit: s.
    Source: F3.3 (tensors), counted.
    """
    own = _unsplit_tokens(tp, tokens, run)
    return _half_layer_s(own, _floats(tokens) * model.ffn_matrices * model.ffn, model, fabric, profile)


@quantity(unit="s", source="F3.3")
def routed_elementwise_s(
    tokens: Num, etp: Num, ep: Num, dispatcher: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Norm, residual, permutations and activations of one MoE half, forward, and the launches of its kernels.

    Source rank: permute reads and writes its rows, unpermute reads them and writes h per token. Expert rank: the
    rows are sorted by local expert and back (not with one local expert), and the activation reads one or two widths
    and writes one; the shared experts' activation likewise. Router scores: read, soft-maxed, written.
    Axes: tokens, etp, ep, dispatcher. Unit: s. Source: F3.3 (tensors), counted.
    """
    moe = routing.routed(model)
    sent = routing.sent_rows(tokens, dispatcher, model=model, run=run)
    received = routing.routed_rows(tokens, etp, ep, dispatcher, model=model, run=run)
    sorts = np.where(_floats(ep) < moe.experts, 4.0, 0.0)
    routed = 0.0 if run.fused_experts else received * moe.expert_ffn / _floats(etp)
    activation = model.ffn_matrices * (routed + _floats(tokens) * moe.shared_ffn)
    scores = _floats(tokens) * 3.0 * moe.experts
    moved = 3.0 * sent * model.hidden + _floats(tokens) * model.hidden + sorts * received * model.hidden
    return _half_layer_s(tokens, (moved + activation + scores) * profile.routed_passes, model, fabric, profile)


# --- ends of the model and of the step ---------------------------------------------------------------------------


@quantity(unit="s", source="F3.2, F3.4")
def output_s(tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Output head and loss of one microbatch, forward, in 16 bits.

    h V'/TP product on b s/CP tokens (vocabulary padded), and the loss's passes over the logits.
    Axes: tp, cp, micro_batch. Unit: s. Source: F3.2, F3.4.
    """
    rows = _floats(micro_batch) * run.sequence_length / cp
    vocab = padded_vocab(tp, model) / _floats(tp)
    peak = fabric.device.peak(run.half_format)
    product = gemm_s(rows, model.hidden, vocab, peak_flops=peak, curve=profile.gemm)
    moved = rows * vocab * LOSS_BYTES[run.fused_cross_entropy]
    return product + memory_pass_s(moved, fabric=fabric, profile=profile)


@quantity(unit="s", source="F3.4")
def embedding_s(
    tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Embedding of one microbatch, forward: each TP rank reads and writes h per token of the group.

    Axes: tp, cp, micro_batch. Unit: s. Source: F3.4, counted.
    """
    rows = _floats(micro_batch) * run.sequence_length / cp + 0.0 * _floats(tp)
    return memory_pass_s(rows * model.hidden * 2.0 * ELEMENT_BYTES, fabric=fabric, profile=profile)


@quantity(unit="s", source="F3.1, F3.2")
def mtp_projection_s(tp: Num, tokens: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """The 2h x h projection in front of one MTP module's layer, forward. Axes: tp, tokens. Unit: s. Source: F3.1."""
    rows = _floats(tokens) * tp
    return _linear_s(rows, 2.0 * model.hidden, model.hidden / _floats(tp), model, run, fabric, profile)


@quantity(unit="s", source="F3.6")
def optimizer_s(
    parameters: Num, shards: Num, zero: Num, offload: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    """Optimizer update, once per step: gradients read, master and moments read and written, weights written.

    Over `shards` from ZeRO-1 on. Axes: parameters, shards, zero, offload. Unit: s. Source: F3.6 (bytes of state).
    Ignores: the way to the host and back of offloaded states, which costs/memory.py counts.
    """
    state = run.state
    each = state.gradient_bytes + 2.0 * (state.master_bytes + state.moment_bytes) + state.weight_bytes
    owned = _floats(parameters) / np.where(np.asarray(zero) >= 1, _floats(shards), 1.0) + 0.0 * _floats(offload)
    return memory_pass_s(run.optimizer_memory_passes * each * owned, fabric=fabric, profile=profile)


QUANTITIES = (
    attention_linear_s,
    attention_core_s,
    attention_core_backward_s,
    dense_ffn_s,
    shared_expert_s,
    router_s,
    routed_experts_s,
    attention_elementwise_s,
    dense_elementwise_s,
    routed_elementwise_s,
    output_s,
    embedding_s,
    mtp_projection_s,
    optimizer_s,
)
