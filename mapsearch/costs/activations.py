"""Activations: bytes that one layer keeps for the backward pass (FORMULAS 3.3, 3.4).

Contents: attention_activation_bytes, dense_ffn_activation_bytes, moe_base_activation_bytes,
routed_activation_bytes, score_matrix_activation_bytes, ulysses_activation_bytes, embedding_activation_bytes,
output_activation_bytes, mtp_activation_bytes, logits_bytes, output_backward_bytes, dense_backward_transient_bytes,
moe_backward_transient_bytes, score_backward_transient_bytes, saved_input_bytes, QUANTITIES.

Everything but the routed rows and the logits is counted per token of `tokens`, the tokens of one microbatch on one
rank: micro_batch * sequence_length / (tp * cp). With sequence parallel every row is divided by TP; without it,
what lies outside the split GEMMs (residual, norms, dropout masks) stays whole on each rank and counts TP times.

Recompute flags drop rows; the layer that is alive again while it is recomputed is the difference between these
functions without and with the flags, and is added by the composition. A full recompute keeps 2h per token and
layer, the layer's input.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import CpKind, Recompute
from mapsearch.costs.parameters import padded_vocab
from mapsearch.costs.routing import routed_amplification
from mapsearch.inventories.model import Mla, Model
from mapsearch.inventories.run import Run
from mapsearch.quantity import Num, Quantity, quantity

HALF = 2.0
"""Bytes per element of a 16-bit tensor."""
_NARROW_BYTES = {
    "fp8-tensor": 1.0,
    "fp8-block": 1.0 + 4.0 / 128.0,
    "mxfp8": 1.0 + 1.0 / 32.0,
    "nvfp4": 0.5 + 1.0 / 16.0,
}
"""Bytes per element with scales: none per element, FP32 per 1x128, E8M0 per 1x32, E4M3 per 1x16 (FORMULAS 2.3)."""


def saved_input_bytes(model: Model, run: Run) -> float:
    """Bytes per element of a GEMM input kept for backward, mean over the layers: 2 in 16 bits, 1 in FP8, 1/2 in NVFP4,
    and its scales (FORMULAS 2.3, 3.3).
    """
    narrow = run.narrow_share(model.layers)
    return narrow * _NARROW_BYTES.get(run.precision, HALF) + (1.0 - narrow) * HALF


def _dropped(recompute: Num, flags: int) -> Num:
    """True where one of the flags, or a full recompute, is set."""
    return (np.asarray(recompute) & (flags | Recompute.FULL)) != 0


def _kept(recompute: Num, flags: int) -> Num:
    """1 where the rows stay, 0 where they are computed again."""
    return np.where(_dropped(recompute, flags), 0.0, 1.0)


def _spread(tp: Num, run: Run) -> Num:
    """How often a rank holds a row outside the split GEMMs: once with sequence parallel, TP times without."""
    return np.ones_like(np.asarray(tp, dtype=float)) if run.sequence_parallel else np.asarray(tp, dtype=float)


def _gathered(tp: Num, run: Run) -> Num:
    """How often a rank holds the input of a column-parallel layer: TP times where it is saved gathered."""
    return np.asarray(tp, dtype=float) if run.gathered_inputs_kept else _spread(tp, run)


def _post_norms(model: Model) -> float:
    """Bytes per half layer of the inputs of norms beyond the usual two (sandwich norms)."""
    return HALF * model.hidden * max(0, model.norms_per_layer - 2) / 2.0


def _mask(model: Model) -> float:
    """Bytes per half layer of the dropout mask behind it, 1 per element."""
    return 1.0 * model.hidden if model.dropout else 0.0


@quantity(unit="bytes per token", source="FORMULAS 3.3")
def attention_activation_bytes(tp: Num, recompute: Num, *, model: Model, run: Run) -> Num:
    """What the attention half of a layer keeps, per token.

    2h residual + 2h norm output + [GQA] 2(n_q + 2 n_kv)d + 2 n_q d + 4 n_q (softmax statistics), or
    [MLA] 4 r_q + 2 r_kv + 2 r_kv TP (the normed KV is gathered) + 2n[2(d_n+d_r)+d_v] + 2 n d_v + 4n.
    FP8 keeps the norm output, the normed q and kv and the attention output in 1 byte plus scale.
    NORM drops the norm output, MLA_UP the up-projected Q, K, V, CORE_ATTENTION the softmax statistics.

    Axes: tp, recompute. Unit: bytes per token. Source: FORMULAS 3.3; [K22] for dropout masks (1 byte per element).
    Ignores: attention without a flash kernel (`score_matrix_activation_bytes` says what it would add); tensors that
    an all-gather or Ulysses context parallel holds in passing; a query-key norm's reciprocal deviations.
    """
    saved, kv_heads = saved_input_bytes(model, run), np.maximum(model.kv_heads, np.asarray(tp))
    normed = saved * model.hidden * _kept(recompute, Recompute.NORM) * _gathered(tp, run)
    outside = HALF * model.hidden + (_post_norms(model) + _mask(model)) * _kept(recompute, 0)
    if model.mla is not None:
        inside = _mla_rows(tp, recompute, model.mla, model, run)
    else:
        inside = HALF * (model.heads + 2.0 * kv_heads) * model.head_dim
        if model.qk_norm:
            inside = inside + HALF * (model.heads + kv_heads) * model.head_dim
    inside = inside + saved * model.heads * model.v_dim
    inside = inside + 4.0 * model.heads * _kept(recompute, Recompute.CORE_ATTENTION)
    return outside * _spread(tp, run) + (normed + inside) * _kept(recompute, 0)


def _mla_rows(tp: Num, recompute: Num, mla: Mla, model: Model, run: Run) -> Num:
    compressed = HALF * (mla.q_rank + mla.kv_rank) + saved_input_bytes(model, run) * mla.q_rank
    gathered = saved_input_bytes(model, run) * mla.kv_rank * np.asarray(tp)
    expanded = HALF * model.heads * (2.0 * (mla.nope_dim + mla.rope_dim) + mla.value_dim)
    return compressed * _spread(tp, run) + gathered + expanded * _kept(recompute, Recompute.MLA_UP)


@quantity(unit="bytes per token", source="FORMULAS 3.3")
def score_matrix_activation_bytes(recompute: Num, *, model: Model, run: Run) -> Num:
    """What attention without a flash kernel would add, per token: softmax, its mask and its output, 5 n_q s.

    2 n_q s without dropout. Added where a run says that its attention is not fused.

    Axes: recompute. Unit: bytes per token. Source: [K22] (5 a s / h per s b h), quoted in FORMULAS 3.3.
    """
    per_score = 5.0 if model.dropout else HALF
    return per_score * model.heads * run.sequence_length * _kept(recompute, Recompute.CORE_ATTENTION)


@quantity(unit="bytes per token", source="TransformerEngine context_parallel.py (AttnFuncWithCPAndQKVOA2A)")
def ulysses_activation_bytes(tp: Num, cp: Num, cp_kind: Num, recompute: Num, *, model: Model, run: Run) -> Num:
    """What all-to-all context parallelism keeps beside the attention half, per token: the output twice, 2 n_q d_v.

    The kernel saves its output by heads; the projection saves it by sequence, after the exchange. Rings and gathers
    keep one tensor for both.

    Axes: tp, cp, cp_kind, recompute. Unit: bytes per token. Source: TransformerEngine, confirmed by the peaks of
    FORMULAS 3.7b (12 layers of 70B at CP 8: 0.75 GiB; measured 0.7).
    """
    exchanged = (np.asarray(cp) > 1) & (np.asarray(cp_kind) == CpKind.ULYSSES)
    rows = HALF * model.heads * model.v_dim * _kept(recompute, 0)
    return np.where(exchanged, rows, 0.0) * np.ones_like(np.asarray(tp, dtype=float))


def _ffn_rows(width: float, recompute: Num, flags: int, model: Model, run: Run) -> Num:
    """fc1 output and activation output of one FFN; `flags` say what drops the activation output."""
    first = HALF * width * (model.ffn_matrices - 1)
    return first + saved_input_bytes(model, run) * width * _kept(recompute, flags)


def _ffn_entrance(tp: Num, recompute: Num, whole: int, model: Model, run: Run) -> Num:
    """Residual and norm output of the FFN half; a module recomputed whole keeps its input in 16 bits."""
    if model.norms_per_layer < 2:
        return _mask(model) * _kept(recompute, 0) * _spread(tp, run)
    normed = np.where(_dropped(recompute, whole), HALF, saved_input_bytes(model, run)) * model.hidden
    rows = (HALF * model.hidden + _post_norms(model) + _mask(model)) * _spread(tp, run)
    return (rows + normed * _kept(recompute, Recompute.NORM) * _gathered(tp, run)) * _kept(recompute, 0)


@quantity(unit="bytes per token", source="FORMULAS 3.3")
def dense_ffn_activation_bytes(tp: Num, recompute: Num, *, model: Model, run: Run) -> Num:
    """What the dense FFN half of a layer keeps, per token: 2h + 2h + 4F + 2F gated, 2h + 2h + 2F + 2F otherwise.

    FP8 keeps norm and activation outputs in 1 byte plus scale. NORM drops the norm output, ACTIVATION the
    activation output, MLP both FFN tensors; FULL everything.

    Axes: tp, recompute. Unit: bytes per token. Source: FORMULAS 3.3; [K22] for the dropout mask.
    """
    inside = _ffn_rows(model.ffn, recompute, Recompute.ACTIVATION, model, run) * _kept(recompute, Recompute.MLP)
    return _ffn_entrance(tp, recompute, Recompute.MLP, model, run) + inside


@quantity(unit="bytes per token", source="FORMULAS 3.3")
def moe_base_activation_bytes(tp: Num, recompute: Num, *, model: Model, run: Run) -> Num:
    """What the MoE half of a layer keeps without its routed rows, per token.

    2h residual + 2h norm output + 2E router probabilities + 8E permutation map + 4 f_s + 2 f_s shared expert.
    NORM drops the norm output; MOE drops the router, the map and the shared expert and keeps the module's input.

    Axes: tp, recompute. Unit: bytes per token. Source: FORMULAS 3.3.
    Ignores: FP32 router probabilities (4E); a kept routing map under MOE or FULL (8E), since the router runs again.
    """
    if model.moe is None:
        return np.zeros(np.broadcast_shapes(np.shape(tp), np.shape(recompute)))
    router = (HALF + 8.0) * model.moe.experts * _spread(tp, run)
    shared = _ffn_rows(model.moe.shared_ffn, recompute, Recompute.MOE, model, run)
    entrance = _ffn_entrance(tp, recompute, Recompute.MOE, model, run)
    return entrance + (router + shared) * _kept(recompute, Recompute.MOE)


@quantity(unit="bytes", source="FORMULAS 3.3, 1.4")
def routed_activation_bytes(
    tokens: Num, etp: Num, ep: Num, recompute: Num, dispatcher: Num, *, model: Model, run: Run
) -> Num:
    """What the routed experts of one layer keep of one microbatch, on the busiest rank.

    Per routed row: 2h ETP permuted input (gathered over ETP) + 4f + 2f (2f + 2f without gate; ETP cancels)
    + 2h of the second GEMM's output unless permutation is memory-efficient. Rows: K per
    token, times the rank skew, or the padding of a fixed capacity (`routed_amplification`).
    FP8 keeps permuted input and activation output in 1 byte plus scale. ACTIVATION drops the activation output,
    MOE and FULL everything.

    Axes: tokens, etp, ep, recompute, dispatcher. Unit: bytes (all `tokens`, one layer). Source: FORMULAS 3.3, 1.4.
    Ignores: alignment padding of FP8 groups.
    """
    if model.moe is None:
        return np.zeros(np.broadcast(tokens, etp, ep, recompute, dispatcher).shape)
    rows = np.asarray(tokens) * model.moe.top_k * routed_amplification(tokens, ep, dispatcher, model=model, run=run)
    per_row = saved_input_bytes(model, run) * model.hidden * np.asarray(etp)
    per_row = per_row + _ffn_rows(model.moe.expert_ffn, recompute, Recompute.ACTIVATION, model, run)
    if not run.memory_efficient_permutation:
        per_row = per_row + HALF * model.hidden
    return rows * per_row * _kept(recompute, Recompute.MOE)


@quantity(unit="bytes per token", source="FORMULAS 3.3, 3.4")
def embedding_activation_bytes(tp: Num, *, model: Model, run: Run) -> Num:
    """What the input embedding keeps on the first stage, per token: its dropout mask, 1 byte per element.

    Axes: tp. Unit: bytes per token. Source: [K22]. Ignores: token ids (8 bytes per token of the whole sequence).
    """
    return _mask(model) * _spread(tp, run)


@quantity(unit="bytes per token", source="FORMULAS 3.3, 3.4")
def output_activation_bytes(tp: Num, *, model: Model, run: Run) -> Num:
    """What the final norm and the head keep on the last stage, per token: 2h norm input + 2h head input.

    One microbatch at a time: on the last stage the backward pass follows at once.

    Axes: tp. Unit: bytes per token. Source: FORMULAS 3.4, residual and norm rows of 3.3.
    """
    return 2.0 * HALF * model.hidden * _spread(tp, run)


@quantity(unit="bytes per token", source="FORMULAS 3.1, 3.3")
def mtp_activation_bytes(tp: Num, *, model: Model, run: Run) -> Num:
    """What one MTP module keeps beside its layer, per token.

    Three norm inputs (2h each), the projection's input of width 2h (4h, saved like other GEMM inputs) and the
    head's input (2h). 0 without modules.

    Axes: tp. Unit: bytes per token. Source: shape of a module in FORMULAS 3.1, rows of 3.3.
    """
    norms_and_head = 4.0 * HALF * model.hidden
    one = (norms_and_head + 2.0 * saved_input_bytes(model, run) * model.hidden) * _spread(tp, run)
    return one if model.mtp_layers else np.zeros_like(one)


def _logits(tp: Num, cp: Num, micro_batch: Num, model: Model, run: Run) -> Num:
    """Logits of one microbatch on one rank. Split by vocabulary, not by sequence: those of the whole TP group's
    tokens."""
    tokens = np.asarray(micro_batch) * run.sequence_length / np.asarray(cp)
    return tokens * padded_vocab(tp, model) / np.asarray(tp)


@quantity(unit="bytes", source="FORMULAS 3.4")
def logits_bytes(tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run) -> Num:
    """What the loss of one microbatch holds on the last stage: b s/CP * V'/TP * (2 + 4), 2 with a fused loss.

    16-bit logits and their FP32 copy, in which Megatron's loss works; TransformerEngine's fused loss overwrites the
    logits with their gradient. `Run.loss_bytes` says otherwise: PyTorch's own loss on an FP32 copy holds the log
    probabilities, their gradient and that of the logits, 12. MTP modules repeat it one after the other.

    Axes: tp, cp, micro_batch. Unit: bytes. Source: FORMULAS 3.4.
    """
    per_logit = run.loss_bytes or (HALF if run.fused_cross_entropy else 6.0)
    return _logits(tp, cp, micro_batch, model, run) * per_logit


@quantity(unit="bytes", source="FORMULAS 3.4, 3.7b")
def output_backward_bytes(tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run) -> Num:
    """What the backward of the output head holds beside its weight gradient: the logits' gradient and its own.

    2 bytes per logit, and 2h per token of the whole TP group: the input's gradient, and with sequence parallel the
    gathered input and the scattered gradient.

    Axes: tp, cp, micro_batch. Unit: bytes. Source: Megatron-LM (tensor_parallel/layers.py); met by the measured peaks
    of FORMULAS 3.7b within 0.1 GiB.
    """
    tokens, ranks = np.asarray(micro_batch) * run.sequence_length / np.asarray(cp), np.asarray(tp)
    rows = np.where((ranks > 1) & run.sequence_parallel, 2.0 + 1.0 / ranks, 1.0)
    return HALF * (_logits(tp, cp, micro_batch, model, run) + tokens * model.hidden * rows)


@quantity(unit="bytes", source="FORMULAS 3.7b")
def dense_backward_transient_bytes(tokens: Num, *, model: Model, run: Run) -> Num:
    """Gradients alive in the backward of one dense FFN, less what it has freed: tokens (4F + 2h), 2F + 2h without gate.

    The gradient of the first GEMM's output stays beside that of the layer; the gradient of the activation takes the
    place of the activation.

    Axes: tokens. Unit: bytes. Source: FORMULAS 3.7b.
    Ignores: that without sequence parallel the 2h stay whole.
    """
    return np.asarray(tokens) * HALF * ((model.ffn_matrices - 1) * model.ffn + model.hidden)


@quantity(unit="bytes", source="FORMULAS 3.7b")
def moe_backward_transient_bytes(tokens: Num, *, model: Model, run: Run) -> Num:
    """Gradients alive in the backward of one layer's routed experts: tokens (K (4f + 8h) + 2h), 2f without gate.

    Rows come back through an exchange and a sort and leave through another pair, 2h per row on each side of both;
    the gradient of the first grouped GEMM's output stays beside them.

    Axes: tokens. Unit: bytes. Source: FORMULAS 3.7b, for each of the K rows; the four copies are calibrated on peaks.
    Ignores: rank skew, padding and ETP, so that the largest transient of a stage is known without the expert grid.
    """
    if model.moe is None:
        return 0.0 * np.asarray(tokens)
    per_row = HALF * ((model.ffn_matrices - 1) * model.moe.expert_ffn + 4.0 * model.hidden)
    return np.asarray(tokens) * (model.moe.top_k * per_row + HALF * model.hidden)


@quantity(unit="bytes per token", source="[K22], quoted in FORMULAS 3.3")
def score_backward_transient_bytes(*, model: Model, run: Run) -> Num:
    """Gradients alive in the backward of attention without a flash kernel, per token: those of the softmax's output
    and input, 4 n_q s.

    Unit: bytes per token. Source: shapes of [K22]. Ignores: that the FFN half of the layer is gone by then.
    """
    return np.asarray(2.0 * HALF * model.heads * run.sequence_length)


QUANTITIES: tuple[Quantity[..., Num], ...] = (
    attention_activation_bytes,
    dense_ffn_activation_bytes,
    moe_base_activation_bytes,
    routed_activation_bytes,
    score_matrix_activation_bytes,
    ulysses_activation_bytes,
    embedding_activation_bytes,
    output_activation_bytes,
    mtp_activation_bytes,
    logits_bytes,
    output_backward_bytes,
    dense_backward_transient_bytes,
    moe_backward_transient_bytes,
    score_backward_transient_bytes,
)
