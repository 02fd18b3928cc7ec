"""Seconds of compute: FLOP of FORMULAS 3.2 over a peak, shapes, precision and HBM passes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_facts import dsv3_model, e1_model, fabric, level, nodes, profile, run

from mapsearch.axes import Dispatcher
from mapsearch.costs import compute, flops, kernels, parameters
from mapsearch.errors import MissingFact

TOKENS = 1024
FLAT = fabric(level("switch", 64, 100), bf16=600e12, fp8=1200e12)
FACTS = {"model": e1_model(), "run": run(), "fabric": FLAT, "profile": profile()}
PEAK = 600e12


def facts(**changes):
    return FACTS | changes


def test_experts_of_e1():
    # F8: 5257 GFLOP per rank and layer, 8.76 ms at 600 TF.
    took = compute.routed_experts_s(TOKENS, 1, 64, Dispatcher.ALL_TO_ALL, **FACTS)
    assert took * PEAK / 1e9 == pytest.approx(5257, abs=0.5)
    assert took * 1e3 == pytest.approx(8.76, abs=5e-3)


def test_padding_and_skew_are_computed_too():
    even = compute.routed_experts_s(TOKENS, 1, 64, Dispatcher.ALL_TO_ALL, **FACTS)
    padded = compute.routed_experts_s(TOKENS, 1, 64, Dispatcher.FIXED_ALL_TO_ALL, **FACTS)
    assert padded / even == pytest.approx(1.2656, abs=5e-5)
    skewed = facts(run=run(routing={"rank_skew": 1.4}))
    assert compute.routed_experts_s(TOKENS, 1, 64, Dispatcher.ALL_TO_ALL, **skewed) / even == pytest.approx(1.4)
    # ETP gathers twice the rows and halves their width.
    assert compute.routed_experts_s(TOKENS, 2, 32, Dispatcher.ALL_TO_ALL, **FACTS) == pytest.approx(even)


def test_fp8_rows_are_aligned():
    # F2.3: 85 rows per expert run as 96 with a block of 16 (or 32).
    tokens = 85 * 384 / 16
    plain = compute.routed_experts_s(tokens, 1, 1, Dispatcher.ALL_TO_ALL, **FACTS)
    for precision in ("fp8-tensor", "fp8-block", "mxfp8"):
        small = facts(run=run(precision=precision))
        took = compute.routed_experts_s(tokens, 1, 1, Dispatcher.ALL_TO_ALL, **small)
        assert took / plain == pytest.approx(96 / 85 / 2)


def layer_flops(model, tokens):
    """FLOP that one rank of one does in a forward layer, from the quantities."""
    here = facts(model=model, run=run(global_batch=1, micro_batch=[1]))
    parts = [
        compute.attention_linear_s(1, tokens, **here),
        compute.attention_core_s(1, 1, 1, **here),
    ]
    if model.moe:
        parts += [
            compute.router_s(tokens, **here),
            compute.shared_expert_s(1, tokens, **here),
            compute.routed_experts_s(tokens, 1, 1, Dispatcher.ALL_TO_ALL, **here),
        ]
    return float(sum(parts)) * PEAK


@pytest.mark.parametrize("model", [e1_model(), dsv3_model(dense_first=0, ffn=0)])
def test_parts_add_up_to_the_models_flops(model):
    # The independent count of costs/flops.py (F3.2), all layers MoE, the output head apart.
    here = facts(model=model, run=run())
    head = compute.output_s(1, 1, 1, **here) * PEAK
    loss = 4096 * parameters.padded_vocab(1, model) * 14.0 / 1e12 * PEAK
    total = model.layers * layer_flops(model, 4096.0) + head - loss
    expected = flops.forward_flops_per_token(model=model, length=4096) * 4096
    assert total == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_parallel_divides_the_work(tp):
    # Equal tokens of the group: tokens per rank fall by TP.
    for seconds in (compute.attention_linear_s, compute.mtp_projection_s):
        assert seconds(tp, TOKENS / tp, **FACTS) == pytest.approx(seconds(1, TOKENS, **FACTS) / tp)
    dense = facts(model=dsv3_model())
    for seconds in (compute.dense_ffn_s, compute.shared_expert_s):
        assert seconds(tp, TOKENS / tp, **dense) == pytest.approx(seconds(1, TOKENS, **dense) / tp)


def test_kv_heads_and_mla_down_projections_are_not_divided():
    # 8 KV heads at TP 16 are computed twice over.
    one, many = (compute.attention_linear_s(tp, TOKENS / tp, **FACTS) * PEAK * tp for tp in (1, 16))
    assert many - one == pytest.approx(2 * TOKENS * 12288 * 2 * 8 * 128)
    # MLA's down-projections work on the rank's own tokens with sequence parallelism, and on all without.
    mla = facts(model=dsv3_model())
    plain = facts(model=dsv3_model(), run=run(sequence_parallel=False))
    split = compute.attention_linear_s(4, TOKENS / 4, **mla) * PEAK
    repeated = compute.attention_linear_s(4, TOKENS / 4, **plain) * PEAK
    down = 2 * (TOKENS / 4) * 7168 * (1536 + 512 + 64)
    assert repeated - split == pytest.approx(3 * down)


def test_attention_core_forms():
    # F3.2: n_q (d_qk + d_v) s per token forward when causal; backward executes 2.5 times as much.
    core = compute.attention_core_s(4, 2, 3, **FACTS)
    assert core * PEAK == pytest.approx(3 * 4096 * 96 * 256 * 4096 / 8)
    assert compute.attention_core_backward_s(4, 2, 3, **FACTS) == pytest.approx(2.5 * core)
    packed = facts(run=run(mean_square_length=1024))
    assert compute.attention_core_s(4, 2, 3, **packed) == pytest.approx(core / 4)


def test_hardware_flops_of_full_recompute():
    # F3.2: linear parts 2 + 4 FLOP, one more forward: 4/3; attention 2 + 5 (+ 2) products against a model count of 6.
    linear = compute.attention_linear_s(1, TOKENS, **FACTS)
    assert (linear + (linear + linear) + linear) / (3 * linear) == pytest.approx(4 / 3)
    forward = compute.attention_core_s(1, 1, 1, **FACTS)
    backward = compute.attention_core_backward_s(1, 1, 1, **FACTS)
    assert (forward + backward) / (3 * forward) == pytest.approx(3.5 / 3)


def test_sliding_windows_are_averaged_over_layers():
    window = e1_model(sliding_window={"size": 1024, "layers": 40})
    full = compute.attention_core_s(1, 1, 1, **FACTS)
    mixed = compute.attention_core_s(1, 1, 1, **facts(model=window))
    # Keys seen with w = s/4: w - w^2/(2s) = 0.21875 s against s/2.
    assert mixed / full == pytest.approx(0.5 + 0.5 * 0.4375)


def test_fp8_runs_linear_layers_at_its_own_peak_and_nothing_else():
    small = facts(run=run(precision="fp8-block"))
    assert compute.attention_linear_s(1, TOKENS, **small) == pytest.approx(
        compute.attention_linear_s(1, TOKENS, **FACTS) / 2
    )
    assert compute.attention_core_s(1, 1, 1, **small) == compute.attention_core_s(1, 1, 1, **FACTS)
    assert compute.router_s(TOKENS, **small) == compute.router_s(TOKENS, **FACTS)
    assert compute.output_s(1, 1, 1, **small) == compute.output_s(1, 1, 1, **FACTS)


def test_fp8_pays_for_quantising():
    passes = facts(run=run(precision="fp8-block"), profile=profile(fp8_quantise_passes=2.0))
    free = facts(run=run(precision="fp8-block"))
    more = compute.mtp_projection_s(1, TOKENS, **passes) - compute.mtp_projection_s(1, TOKENS, **free)
    assert more == pytest.approx(2 * 2 * TOKENS * 2 * 12288 / 1e12)


FP4 = fabric(level("switch", 64, 100), bf16=600e12, fp8=1200e12, fp4=2400e12)


def test_nvfp4_runs_linear_layers_at_its_own_peak_and_nothing_else():
    small = facts(run=run(precision="nvfp4"), fabric=FP4, profile=profile(fp4_share=0.5, fp8_share=0.1))
    assert compute.attention_linear_s(1, TOKENS, **small) == pytest.approx(
        compute.attention_linear_s(1, TOKENS, **FACTS) / 2
    )
    assert compute.attention_core_s(1, 1, 1, **small) == compute.attention_core_s(1, 1, 1, **FACTS)
    assert compute.router_s(TOKENS, **small) == compute.router_s(TOKENS, **FACTS)
    assert compute.output_s(1, 1, 1, **small) == compute.output_s(1, 1, 1, **FACTS)


def test_nvfp4_pays_for_quantising_and_aligns_rows_to_128():
    # F2.3: three reads of 16 bits and two copies of 4.5 bits; 85 rows per expert run as 128.
    told = {"run": run(precision="nvfp4"), "fabric": FP4}
    passes = facts(**told, profile=profile(fp4_quantise_passes=3.5625, fp8_quantise_passes=9.0))
    more = compute.mtp_projection_s(1, TOKENS, **passes) - compute.mtp_projection_s(1, TOKENS, **facts(**told))
    assert more == pytest.approx((3 * 2 + 2 * 0.5625) * TOKENS * 2 * 12288 / 1e12)
    tokens = 85 * 384 / 16
    plain = compute.routed_experts_s(tokens, 1, 1, Dispatcher.ALL_TO_ALL, **FACTS)
    took = compute.routed_experts_s(tokens, 1, 1, Dispatcher.ALL_TO_ALL, **facts(**told))
    assert took / plain == pytest.approx(128 / 85 / 4)


@pytest.mark.parametrize(("precision", "faster"), [("mxfp8", 2), ("nvfp4", 4), ("bf16", 1)])
def test_layers_kept_in_16_bits_take_as_long_as_ever(precision, faster):
    # 20 of 80 layers in 16 bits: a quarter of them at the old rate, the rest at the new one.
    ideal = profile(fp8_quantise_passes=2.0, fp4_quantise_passes=2.0)
    mixed, narrow, plain = (
        compute.attention_linear_s(1, TOKENS, **facts(run=told, fabric=FP4, profile=ideal))
        for told in (run(precision=precision, half_precision_layers=20), run(precision=precision), run())
    )
    assert mixed == pytest.approx(0.25 * plain + 0.75 * narrow)
    bare = facts(run=run(precision=precision), fabric=FP4)
    assert compute.attention_linear_s(1, TOKENS, **bare) == pytest.approx(plain / faster)
    everything = facts(run=run(precision=precision, half_precision_layers=99), fabric=FP4, profile=ideal)
    assert compute.attention_linear_s(1, TOKENS, **everything) == pytest.approx(plain)


def test_missing_peak_is_said():
    only = facts(fabric=fabric(level("switch", 8, 100), bf16=1e12), run=run(precision="fp8-block"))
    with pytest.raises(MissingFact, match="no peak for fp8"):
        compute.attention_linear_s(1, TOKENS, **only)


def test_small_shapes_are_slower():
    curve = {"peak": 0.8, "half_rows": 128, "half_columns": 256}
    saturating = facts(profile=profile(grouped_gemm=curve, gemm=curve))
    # 128 rows: half of the peak, times columns.
    rate = kernels.gemm_s(128, 256, 4096, peak_flops=PEAK, curve=saturating["profile"].gemm)
    assert 2 * 128 * 256 * 4096 / rate / PEAK == pytest.approx(0.8 / 4)
    wide = compute.routed_experts_s(TOKENS, 1, 64, Dispatcher.ALL_TO_ALL, **saturating)
    narrow = compute.routed_experts_s(TOKENS, 4, 16, Dispatcher.ALL_TO_ALL, **saturating)
    assert narrow != wide


def test_elementwise_passes():
    # Attention of E1, TP 1: 5h and twice (96 + 8) * 128 elements of 2 bytes at 1 TB/s.
    took = compute.attention_elementwise_s(1, TOKENS, **FACTS)
    assert took == pytest.approx(TOKENS * 2 * (5 * 12288 + 2 * 104 * 128) / 1e12)
    dense = facts(model=dsv3_model())
    took = compute.dense_elementwise_s(1, TOKENS, **dense)
    assert took == pytest.approx(TOKENS * 2 * (5 * 7168 + 3 * 18432) / 1e12)
    routed = compute.routed_elementwise_s(TOKENS, 1, 64, Dispatcher.ALL_TO_ALL, **FACTS)
    rows = 16 * (3 + 4) * 12288 + 12288 + 16 * 3 * 4352 + 3 * 384
    assert routed == pytest.approx(TOKENS * 2 * (5 * 12288 + rows) / 1e12)
    # One expert per rank needs no sorting (Megatron: EP = E removes the local permutation).
    alone = compute.routed_elementwise_s(TOKENS, 1, 384, Dispatcher.ALL_TO_ALL, **FACTS)
    assert routed - alone == pytest.approx(TOKENS * 2 * 16 * 4 * 12288 / 1e12)


def test_launches_are_charged_once_per_layer():
    launching = facts(profile=profile(kernels_per_layer=20, kernel_launch="5 us"), model=dsv3_model())
    quiet = facts(model=dsv3_model())
    both = sum(
        f(1, TOKENS, **launching) - f(1, TOKENS, **quiet)
        for f in (compute.attention_elementwise_s, compute.dense_elementwise_s)
    )
    assert both == pytest.approx(100e-6)


def test_norms_are_repeated_without_sequence_parallelism():
    plain = facts(run=run(sequence_parallel=False))
    more = compute.attention_elementwise_s(4, TOKENS, **plain) - compute.attention_elementwise_s(4, TOKENS, **FACTS)
    assert more == pytest.approx(3 * TOKENS * 2 * 5 * 12288 / 1e12)


def test_loss_passes():
    fused = facts(run=run(fused_cross_entropy=True))
    saved = compute.output_s(4, 1, 1, **FACTS) - compute.output_s(4, 1, 1, **fused)
    assert saved == pytest.approx(4096 * 163840 / 4 * (14 - 4) / 1e12)


def test_optimizer_passes():
    # FP32 gradient read, master and moments both ways, BF16 weight written: 4 + 2 * 12 + 2 = 30 B.
    zero = np.array([0, 1, 2, 3])
    took = compute.optimizer_s(1e9, 8, zero, 0, **FACTS)
    assert took == pytest.approx(30e9 / 1e12 / np.array([1, 8, 8, 8]))


def test_embedding_reads_and_writes_each_token():
    assert compute.embedding_s(4, 2, 1, **FACTS) == pytest.approx(2048 * 12288 * 4 / 1e12)


@settings(max_examples=50, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    cp=st.sampled_from([1, 2, 8]),
    micro_batch=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 8, 64, 384]),
    etp=st.sampled_from([1, 2, 4]),
    dispatcher=st.sampled_from(list(Dispatcher)),
    model=st.sampled_from([e1_model(), dsv3_model(moe={"experts": 384, "top_k": 8, "expert_ffn": 2048})]),
)
def test_faster_parts_are_never_slower_and_all_take_time(tp, cp, micro_batch, ep, etp, dispatcher, model):
    tokens = micro_batch * 4096 / (tp * cp)

    def times(rate):
        device = fabric(level("switch", 8, 1), bf16=rate * PEAK, fp8=2 * rate * PEAK)
        here = facts(model=model, fabric=device, run=run(precision="fp8-block"))
        values = [
            compute.attention_linear_s(tp, tokens, **here),
            compute.attention_core_s(tp, cp, micro_batch, **here),
            compute.attention_core_backward_s(tp, cp, micro_batch, **here),
            compute.routed_experts_s(tokens, etp, ep, dispatcher, **here),
            compute.router_s(tokens, **here),
            compute.attention_elementwise_s(tp, tokens, **here),
            compute.routed_elementwise_s(tokens, etp, ep, dispatcher, **here),
            compute.output_s(tp, cp, micro_batch, **here),
            compute.embedding_s(tp, cp, micro_batch, **here),
        ]
        return np.array([float(value) for value in values])

    slow, fast = times(1.0), times(2.0)
    assert np.all(fast <= slow)
    assert np.all(fast > 0)


def test_arrays_are_evaluated_as_scalars_are():
    curve = {"peak": 0.7, "half_rows": 100, "half_columns": 200}
    here = facts(
        profile=profile(gemm=curve, grouped_gemm=curve), run=run(precision="mxfp8"), fabric=nodes(), model=dsv3_model()
    )
    tokens = np.array([64.0, 100.0, 2048.0])
    tp, cp, batch = np.array([1, 4, 16])[:, None], np.array([1, 2, 8]), np.array([4, 2, 1])
    ways = np.array([0, 1, 3])[:, None]
    etp, ep = np.array([1, 2, 4]), np.array([1, 64, 256])
    linear = compute.attention_linear_s(tp, tokens, **here)
    core = compute.attention_core_s(tp, cp, batch, **here)
    experts = compute.routed_experts_s(tokens, etp, ep, ways, **here)
    moved = compute.routed_elementwise_s(tokens, etp, ep, ways, **here)
    for i, j in np.ndindex(3, 3):
        assert linear[i, j] == compute.attention_linear_s(tp[i, 0], tokens[j], **here)
        assert core[i, j] == compute.attention_core_s(tp[i, 0], cp[j], batch[j], **here)
        assert experts[i, j] == compute.routed_experts_s(tokens[j], etp[j], ep[j], ways[i, 0], **here)
        assert moved[i, j] == compute.routed_elementwise_s(tokens[j], etp[j], ep[j], ways[i, 0], **here)
