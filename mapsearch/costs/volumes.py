"""Bytes of every class of communication, per layer and microbatch unless said otherwise (FORMULAS 1.4, 4.2).

Contents: hidden_bytes, gathered_element_share, gathered_share, local_kv_heads, kv_block_bytes, ulysses_bytes,
dispatch_element_bytes, transfer_skew, ep_payload_bytes, deduplicated_loads_bytes, padded_parameters,
gathered_weight_bytes.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import Dispatcher
from mapsearch.costs import routing
from mapsearch.costs.activations import saved_input_bytes
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import Run
from mapsearch.quantity import Floats, Num

ACTIVATION_BYTES = 2.0
"""Activations and their gradients travel in BF16 (F4.2), but for FP8 dispatch and what TP gathers for a GEMM."""
SCALE_SHARE = {"fp8-tensor": 0.0, "fp8-block": 4.0 / 128.0, "mxfp8": 1.0 / 32.0}
"""Bytes of scales per FP8 byte: one FP32 per 128, or one E8M0 per 32 (F2.3)."""


_floats = np.floats


def hidden_bytes(tokens: Num, tp: Num, *, model: Model) -> Floats:
    """X: the hidden states of a whole tensor-parallel group, tokens * TP * h * 2. Unit: bytes. Source: F4.2."""
    return np.asarray(_floats(tokens) * tp * model.hidden * ACTIVATION_BYTES)


def gathered_element_share(*, model: Model, run: Run) -> float:
    """Bytes of what tensor parallel gathers for a GEMM, over 16 bits: it is quantised first (F2.3, F4.2).

    Unit: share. Source: TransformerEngine, `gather_along_first_dim` (pytorch/distributed.py) for FP8, MXFP8, NVFP4.
    """
    return saved_input_bytes(model, run) / ACTIVATION_BYTES


def gathered_share(model: Model) -> float:
    """What tensor parallel gathers before attention, over X: MLA gathers the compressed tensors only (F4.2)."""
    if model.mla is None:
        return 1.0
    # Without a query down-projection the queries need the hidden states themselves.
    width = (model.mla.q_rank or model.hidden) + model.mla.kv_rank + model.mla.rope_dim
    return width / model.hidden


def local_kv_heads(tp: Num, model: Model) -> Floats:
    """KV heads of one rank: MLA expands K and V to every head; fewer heads than TP are replicated (F4.2)."""
    heads = model.heads if model.mla is not None else model.kv_heads
    return np.maximum(heads / _floats(tp), 1.0)


def kv_block_bytes(tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run) -> Floats:
    """K and V of one rank's tokens, the block that a context-parallel ring passes on.

    b * (s/CP) * n_kv (d_qk + d_v) * 2 / TP. Unit: bytes. Source: F4.2.
    Ignores: absorbed or latent gathering of MLA, which would send 71 times less for DeepSeek-V3.
    """
    local = _floats(micro_batch) * run.sequence_length / cp
    return np.asarray(local * local_kv_heads(tp, model) * (model.qk_dim + model.v_dim) * ACTIVATION_BYTES)


def ulysses_bytes(tp: Num, cp: Num, micro_batch: Num, *, model: Model, run: Run) -> tuple[Floats, Floats]:
    """What one rank sends before (Q, K, V) and after (O) the core attention, own share included.

    b * (s/CP) * (n_q d_qk + n_kv (d_qk + d_v)) * 2 / TP, and b * (s/CP) * n_q d_v * 2 / TP. Unit: bytes.
    Source: F4.2, F1.6 (half of one printed equation).
    """
    local = _floats(micro_batch) * run.sequence_length / cp
    query_heads = model.heads / _floats(tp)
    before = query_heads * model.qk_dim + local_kv_heads(tp, model) * (model.qk_dim + model.v_dim)
    return local * before * ACTIVATION_BYTES, local * query_heads * model.v_dim * ACTIVATION_BYTES


def dispatch_element_bytes(*, run: Run) -> float:
    """Bytes per element that is dispatched: as the run says, else 2, or 1 and its scales in FP8.

    Unit: bytes. Source: F2.3.
    """
    if run.routing.dispatch_bytes:
        return run.routing.dispatch_bytes
    return 1.0 + SCALE_SHARE[run.precision] if run.fp8 else ACTIVATION_BYTES


def transfer_skew(ep: Num, *, model: Model, run: Run) -> Floats:
    """Busiest transfer over the mean of a dropless dispatcher: the larger of rank and pair skew, and at most what
    every token choosing that rank would give. Unit: none. Source: F1.4, F4.4.
    """
    moe = routing.routed(model)
    worst = routing.worst_case_amplification(ep, experts=moe.experts, top_k=moe.top_k)
    return np.minimum(np.maximum(*routing.skews(ep, run=run)), worst)


def ep_payload_bytes(tokens: Num, ep: Num, dispatcher: Num, *, model: Model, run: Run, element_bytes: float) -> Floats:
    """What the busiest rank sends (or receives) in one expert all-to-all, own share included.

    Variable: tau K h e times the skew; fixed whole-group: R buffers of M = (E/R) C_src slots, which is E C_src h e.
    Unit: bytes. Source: F1.4, F4.2, F4.4 (pair skew on the hottest link).
    """
    fixed = np.asarray(dispatcher) == Dispatcher.FIXED_ALL_TO_ALL
    rows = routing.sent_rows(tokens, dispatcher, model=model, run=run)
    skew = np.where(fixed, 1.0, transfer_skew(ep, model=model, run=run))
    return np.asarray(rows * skew * model.hidden * element_bytes)


def deduplicated_loads_bytes(tokens: Num, ep_row: Num, *, model: Model, run: Run, element_bytes: float) -> list[Floats]:
    """Bytes per device at each level when one copy travels to each distinct unit and is forwarded inside it.

    Level j > 0: tau h e u_R (R-1)/R with R the units of the level below that the group spans; innermost: one copy
    for each of the u_R devices with an expert of the token, (r_0 - 1)/r_0 of them to another device. Unit: bytes.
    Source: F1.4, F4.1; DeepEP (a token is sent once to each rank).
    """
    ways = np.asarray(ep_row, dtype=np.int64)
    skew = transfer_skew(np.prod(ways, axis=-1), model=model, run=run)
    one_copy = _floats(tokens) * model.hidden * element_bytes * skew
    spanned = np.cumprod(ways[..., ::-1], axis=-1)[..., ::-1]
    inner = _floats(ways[..., 0])
    dealt = run.routing.consecutive
    reached = routing.distinct_units(spanned[..., 0], model=model, consecutive=dealt)
    loads = [one_copy * reached * (inner - 1.0) / inner]
    for level in range(1, ways.shape[-1]):
        loads.append(one_copy * routing.remote_units(spanned[..., level], model=model, consecutive=dealt))
    return loads


def padded_parameters(parameters: Num, ranks: Num) -> Floats:
    """Parameters rounded up so that every rank of the group holds an equal shard. Unit: parameters."""
    return np.asarray(np.ceil(_floats(parameters) / ranks) * ranks)


def gathered_weight_bytes(*, run: Run) -> float:
    """Bytes per parameter that a weight all-gather moves: FP8 primary weights halve it, MXFP8 does not (F2.3)."""
    halved = run.state.fp8_primary_weights and run.fp8 and run.precision != "mxfp8"
    return 1.0 if halved else run.state.weight_bytes
