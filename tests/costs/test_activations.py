"""Activations: FORMULAS 3.3, 3.4, 3.7a and 8, the classic GPT arithmetic, flags, FP8 and sequence parallel."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from mapsearch.axes import CpKind, Dispatcher, Recompute
from mapsearch.costs import activations as act
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import Routing, Run

GIB, MIB = 2.0**30, 2.0**20
NONE, FULL = Recompute.NONE, Recompute.FULL
A2A, FIXED = Dispatcher.ALL_TO_ALL, Dispatcher.FIXED_ALL_TO_ALL


def model(name: str, **changes: Any) -> Model:
    return Model(**{**load_inventory(Model, name).model_dump(), **changes})


def run(**changes: Any) -> Run:
    return Run(**{"sequence_length": 4096, "global_batch": 4096, **changes})


MOE, DSV3 = model("moe-5t"), model("deepseek-v3")
GPT3 = model("gpt3-175b", dropout=True)
RUN = run()


def moe_layer(shape: Model, tokens: float, recompute: int = NONE, tp: int = 1, facts: Run = RUN) -> float:
    """Bytes of one MoE layer and one microbatch."""
    told = {"model": shape, "run": facts}
    per_token = act.attention_activation_bytes(tp, recompute, **told) + act.moe_base_activation_bytes(
        tp, recompute, **told
    )
    return float(tokens * per_token + act.routed_activation_bytes(tokens, 1, 64, recompute, A2A, **told))


def dense_layer(shape: Model, recompute: int = NONE, tp: int = 1, facts: Run = RUN) -> float:
    """Bytes per token of one dense layer."""
    told = {"model": shape, "run": facts}
    return float(
        act.attention_activation_bytes(tp, recompute, **told) + act.dense_ffn_activation_bytes(tp, recompute, **told)
    )


def test_e1_layer() -> None:
    """FORMULAS 8: attention 102,784 and MoE 864,000 B per token, 944.125 MiB per layer-microbatch of 1,024 tokens."""
    told = {"model": MOE, "run": RUN}
    assert act.attention_activation_bytes(4, NONE, **told) == 102_784
    routed = act.routed_activation_bytes(1024, 1, 64, NONE, A2A, **told) / 1024
    assert act.moe_base_activation_bytes(4, NONE, **told) + routed == 864_000
    plain = {"model": MOE, "run": run(memory_efficient_permutation=False)}
    assert act.routed_activation_bytes(1024, 1, 64, NONE, A2A, **plain) / 1024 - routed == 393_216
    assert moe_layer(MOE, 1024, tp=4) / MIB == 944.125
    assert 80 * moe_layer(MOE, 1024, tp=4) / GIB == pytest.approx(73.760, abs=5e-4)


def test_e1_full_recompute() -> None:
    """FORMULAS 8: 80 layer inputs are 1.875 GiB, and one live layer is 0.922 GiB."""
    kept = moe_layer(MOE, 1024, FULL, tp=4)
    assert 80 * kept / GIB == 1.875
    assert moe_layer(MOE, 1024, tp=4) / GIB == pytest.approx(0.922, abs=5e-4)


def test_logits() -> None:
    """FORMULAS 3.4 and 8: 2.96 GiB at 4K, 11.8 GiB at 128K over CP 8 (DeepSeek-V3), 0.9375 GiB (E1)."""
    assert act.logits_bytes(1, 1, 1, model=DSV3, run=RUN) / GIB == pytest.approx(2.96, abs=5e-3)
    long = run(sequence_length=131072)
    assert act.logits_bytes(1, 8, 1, model=DSV3, run=long) / GIB == pytest.approx(11.8, abs=5e-2)
    assert act.logits_bytes(4, 1, 1, model=MOE, run=RUN) / GIB == 0.9375
    fused = run(fused_cross_entropy=True)
    assert act.logits_bytes(4, 1, 1, model=MOE, run=fused) / GIB == 0.9375 * 2 / 6
    eager = run(loss_bytes=12.0)
    assert act.logits_bytes(4, 1, 1, model=MOE, run=eager) / GIB == 0.9375 * 2


def test_backward_of_the_head() -> None:
    """FORMULAS 3.4: the gradient of the logits, 2 bytes, and rows of 2h: 2 + 1/t of the group's tokens, 1 alone."""
    alone = act.output_backward_bytes(1, 1, 1, model=MOE, run=RUN)
    assert alone == 2 * 4096 * (MOE.vocab + MOE.hidden)
    split = act.output_backward_bytes(4, 1, 1, model=MOE, run=RUN)
    assert split == 2 * 4096 * (MOE.vocab / 4 + 2.25 * MOE.hidden)
    unsplit = act.output_backward_bytes(4, 1, 1, model=MOE, run=run(sequence_parallel=False))
    assert unsplit == 2 * 4096 * (MOE.vocab / 4 + MOE.hidden)


def test_all_to_all_context_parallelism_keeps_its_output_twice() -> None:
    """2 n_q d_v per token, with more than one rank and unless the layer is recomputed."""
    told = {"model": DSV3, "run": RUN}
    assert act.ulysses_activation_bytes(1, 8, CpKind.ULYSSES, NONE, **told) == 2 * 128 * 128
    for cp, kind, recompute in ((1, CpKind.ULYSSES, NONE), (8, CpKind.RING, NONE), (8, CpKind.ULYSSES, FULL)):
        assert act.ulysses_activation_bytes(1, cp, kind, recompute, **told) == 0.0


def test_inputs_that_are_saved_gathered() -> None:
    """The two norm outputs of a layer stay whole on every rank: 4h TP instead of 4h."""
    plain, gathered = (dense_layer(DSV3, NONE, 8, run(gathered_inputs_kept=kept)) for kept in (False, True))
    assert gathered - plain == 7 * 4 * 7168
    assert dense_layer(DSV3, FULL, 8, run(gathered_inputs_kept=True)) == 2 * 7168


def test_deepseek_v3_layer() -> None:
    """FORMULAS 3.7a: 572,416 B per token, 2236 MiB per layer and microbatch, without memory-efficient permutation."""
    plain = run(memory_efficient_permutation=False)
    assert moe_layer(DSV3, 4096, facts=plain) / 4096 == 572_416
    assert moe_layer(DSV3, 4096, facts=plain) / MIB == 2236
    layers = 60  # the layer-microbatches that the published table counts
    assert layers * moe_layer(DSV3, 4096, facts=plain) / GIB == pytest.approx(131.016, abs=5e-4)
    assert 76 * moe_layer(DSV3, 4096, facts=plain) / GIB == pytest.approx(165.95, abs=5e-2)
    saved = moe_layer(DSV3, 4096, facts=plain) - moe_layer(DSV3, 4096)
    assert layers * saved / GIB == 26.25
    up = moe_layer(DSV3, 4096) - moe_layer(DSV3, 4096, Recompute.MLA_UP)
    assert up / 4096 == 131_072
    assert layers * up / GIB == 30.0


def test_savings_of_single_modules() -> None:
    """FORMULAS 3.3: norms 4h, expert activation 2fK, attention core almost nothing (4 bytes per head)."""
    base = moe_layer(DSV3, 4096)
    assert (base - moe_layer(DSV3, 4096, Recompute.NORM)) / 4096 == 4 * 7168
    assert (base - moe_layer(DSV3, 4096, Recompute.ACTIVATION)) / 4096 == 2 * 2048 * 8
    assert (base - moe_layer(DSV3, 4096, Recompute.CORE_ATTENTION)) / 4096 == 4 * 128
    dense = dense_layer(DSV3)
    assert dense - dense_layer(DSV3, Recompute.ACTIVATION) == 2 * 18432
    assert dense - dense_layer(DSV3, Recompute.MLP) == 6 * 18432
    attention = act.attention_activation_bytes(1, NONE, model=DSV3, run=RUN)
    assert moe_layer(DSV3, 4096, Recompute.MOE) / 4096 == attention + 4 * 7168


def test_classic_gpt_formulas() -> None:
    """FORMULAS 3.3 [K22]: 34h with TP and SP, (10 + 24/t)h with TP alone, 5 a s/h on top, 2h recomputed in full.

    CORE_ATTENTION is what the paper calls selective recomputation: it drops the softmax statistics, which a layer
    without flash attention does not have.
    """
    h, selective = 12288, Recompute.CORE_ATTENTION
    facts = run(sequence_length=2048)
    assert dense_layer(GPT3, selective, 1, facts) == 34 * h
    assert dense_layer(GPT3, selective, 8, facts) == 34 * h  # per token of the rank's own s*b/t
    unsplit = run(sequence_length=2048, sequence_parallel=False)
    for t in (1, 2, 8):
        assert dense_layer(GPT3, selective, t, unsplit) / t == pytest.approx((10 + 24 / t) * h)
    assert dense_layer(GPT3, FULL, 8, facts) == 2 * h
    assert dense_layer(GPT3, FULL, 8, unsplit) / 8 == 2 * h
    scores = act.score_matrix_activation_bytes(NONE, model=GPT3, run=facts)
    assert scores / h == 80
    whole = dense_layer(GPT3, selective, 1, facts) + scores
    assert whole * 2048 / MIB == 2736
    assert dense_layer(GPT3, selective, 1, facts) * 2048 / MIB == 816


def test_context_parallel_gathers_only_what_mla_must() -> None:
    """FORMULAS 3.3: per rank, the normed KV of MLA is not divided by TP, everything else is."""
    one = act.attention_activation_bytes(1, NONE, model=DSV3, run=RUN)
    eight = act.attention_activation_bytes(8, NONE, model=DSV3, run=RUN)
    assert eight - one == 7 * 2 * 512


def test_few_kv_heads_are_copied_beyond_their_number() -> None:
    base = act.attention_activation_bytes(8, NONE, model=MOE, run=RUN)
    assert act.attention_activation_bytes(16, NONE, model=MOE, run=RUN) - base == 2 * 2 * 8 * 128


@pytest.mark.parametrize(
    ("precision", "element"),
    [("fp8-tensor", 1.0), ("fp8-block", 1 + 4 / 128), ("mxfp8", 1 + 1 / 32), ("nvfp4", 0.5 + 1 / 16)],
)
def test_narrow_formats_shrink_saved_gemm_inputs_only(precision: str, element: float) -> None:
    """FORMULAS 2.3 and 3.3: norm outputs, normed q and kv, permuted input, activation and attention outputs."""
    inputs = 2 * 7168 + 1536 + 512 + 128 * 128 + 7168 * 8 + 2048 * 8 + 2048
    saved = moe_layer(DSV3, 4096) - moe_layer(DSV3, 4096, facts=run(precision=precision))
    assert saved / 4096 == pytest.approx((2 - element) * inputs)
    some = run(precision=precision, half_precision_layers=12)
    assert saved - (moe_layer(DSV3, 4096) - moe_layer(DSV3, 4096, facts=some)) == pytest.approx(saved * 12 / 61)


def test_routed_rows_grow_with_skew_padding_and_etp() -> None:
    told = {"model": MOE, "run": run(routing=Routing(rank_skew=1.3, capacity_factor=1.25))}
    even = act.routed_activation_bytes(2048, 1, 64, NONE, A2A, model=MOE, run=RUN)
    assert act.routed_activation_bytes(2048, 1, 64, NONE, A2A, **told) / even == pytest.approx(1.3)
    assert act.routed_activation_bytes(2048, 1, 1, NONE, A2A, **told) == even
    # FORMULAS 1.4: C_src = 107 slots of 85.33 for 2,048 tokens per source.
    padded = act.routed_activation_bytes(2048, 1, 64, NONE, FIXED, **told)
    assert padded / even == pytest.approx(384 * 107 / (2048 * 16))
    assert padded / even == pytest.approx(1.2539, abs=5e-5)
    two = act.routed_activation_bytes(2048, 2, 64, NONE, A2A, model=MOE, run=RUN)
    assert two - even == 2048 * 16 * 2 * 12288


def test_ends_of_the_model() -> None:
    told = {"model": DSV3, "run": RUN}
    assert act.output_activation_bytes(8, **told) == 4 * 7168
    assert act.mtp_activation_bytes(8, **told) == 12 * 7168
    assert act.mtp_activation_bytes(8, model=MOE, run=RUN) == 0
    assert act.embedding_activation_bytes(8, **told) == 0
    assert act.embedding_activation_bytes(8, model=GPT3, run=RUN) == 12288


def test_backward_transients() -> None:
    """FORMULAS 3.7b: tau (4F + 2h), without gate 2F + 2h; of a MoE layer 4f + 8h for each routed row and 2h."""
    told = {"model": DSV3, "run": RUN}
    assert act.dense_backward_transient_bytes(4096, **told) == 4096 * (4 * 18432 + 2 * 7168)
    assert act.moe_backward_transient_bytes(4096, **told) == 4096 * (8 * (4 * 2048 + 8 * 7168) + 2 * 7168)
    assert act.dense_backward_transient_bytes(1, model=GPT3, run=RUN) == 2 * 49152 + 2 * 12288
    assert act.moe_backward_transient_bytes(4096, model=GPT3, run=RUN) == 0
    assert act.score_backward_transient_bytes(model=GPT3, run=RUN) == 4 * 96 * 4096


FLAGS = np.array([sum(flags) for flags in product(*((0, int(flag)) for flag in Recompute))])


@pytest.mark.parametrize("precision", ["bf16", "fp8-tensor"])
@pytest.mark.parametrize("shape", [MOE, DSV3, GPT3], ids=lambda m: m.name)
def test_more_recompute_never_keeps_more(shape: Model, precision: str) -> None:
    """Every pair of flag sets where one holds the other, in one broadcast, on each kind of layer of the shape."""
    told = {"model": shape, "run": run(precision=precision)}
    rows = act.attention_activation_bytes(4, FLAGS, **told)
    halves = [rows]
    if shape.ffn:
        halves.append(rows + act.dense_ffn_activation_bytes(4, FLAGS, **told))
    if shape.moe:
        routed = act.routed_activation_bytes(1024, 1, 8, FLAGS, A2A, **told) / 1024
        halves.append(rows + act.moe_base_activation_bytes(4, FLAGS, **told) + routed)
    larger = (FLAGS[:, None] & FLAGS[None, :]) == FLAGS[None, :]
    for half in halves:
        assert half.shape == FLAGS.shape
        assert (np.where(larger, half[:, None] - half[None, :], 0.0) <= 1e-6).all()
        assert half[0] > half[list(FLAGS).index(FULL)]


def test_more_shards_never_more_bytes_per_rank() -> None:
    """With the rank's tokens s*b/(tp*cp), no half of a layer grows with TP; with or without sequence parallel."""
    tp = np.array([1, 2, 4, 8, 16])
    for shape, split in product((MOE, DSV3, GPT3), (True, False)):
        told = {"model": shape, "run": run(sequence_parallel=split)}
        for quantity in (
            act.attention_activation_bytes,
            act.dense_ffn_activation_bytes,
            act.moe_base_activation_bytes,
            act.output_activation_bytes,
        ):
            axes = (tp, NONE) if len(quantity.scope) == 2 else (tp,)
            per_rank = quantity(*axes, **told) * 4096 / tp
            assert (np.diff(per_rank) <= 1e-6).all(), (shape.name, quantity.name)


def test_every_quantity_is_listed() -> None:
    declared = {
        value.name
        for value in vars(act).values()
        if isinstance(value, act.Quantity) and value.function.__module__ == act.__name__
    }
    assert declared == {quantity.name for quantity in act.QUANTITIES}
