"""Volumes and seconds of each class: FORMULAS 4.2, and the worked vectors E1 and DeepSeek-V3."""

import numpy as np
import pytest
from timing_facts import dsv3_model, e1_model, nodes, profile, run

from mapsearch.axes import CpKind, Dispatcher
from mapsearch.costs import collectives, communication, data_parallel, routing, volumes

TOKENS = 1024  # E1: one sequence of 4096 over TP 4
FACTS = {"model": e1_model(), "run": run(), "fabric": nodes(), "profile": profile()}
GQA = e1_model(hidden=8192, heads=64, kv_heads=8)
LONG = run(sequence_length=131072, global_batch=512)


def facts(**changes):
    return FACTS | changes


# --- bytes -------------------------------------------------------------------------------------------------------


def test_hybrid_shards_stay_inside_and_are_reduced_across():
    # 64 nodes of 8, one copy per node: 64 M parameters of 2 bytes over NVLink, and an eighth all-reduced over NICs.
    hybrid = facts(run=run(shard_replicas=64))
    inside, across = 128e6 * 7 / 8 / 450e9, 2 * 16e6 * 63 / 64 / 50e9
    assert data_parallel.dense_gather_s([8, 64], [1, 1], 64e6, 1, **hybrid) == pytest.approx(inside)
    reduced = data_parallel.dense_gradient_s([8, 64], [1, 1], 64e6, 1, **hybrid)
    assert reduced == pytest.approx(2 * (inside + across))  # gradients have four bytes
    stream = data_parallel.zero3_expert_s([8, 64], 64e6, **hybrid)
    assert stream == pytest.approx(2 * inside + reduced)
    # The outermost level is cut first. A number of copies that does not divide the group leaves those that do.
    halves = data_parallel.shard_and_replica_rows(np.array([8, 64]), run=run(shard_replicas=128))
    assert [row.tolist() for row in halves] == [[4, 1], [2, 64]]
    assert data_parallel.shard_count(np.array([512, 64, 6]), run=run(shard_replicas=128)).tolist() == [4, 1, 3]
    whole = data_parallel.dense_gradient_s([8, 64], [1, 1], 64e6, 0, **FACTS)
    assert data_parallel.dense_gradient_s([8, 64], [1, 1], 64e6, 0, **hybrid) == pytest.approx(whole)


@pytest.mark.parametrize("replicas", [1, 2, 3, 8, 12])
def test_rows_and_sizes_of_shards_agree(replicas):
    hybrid = run(shard_replicas=replicas)
    rows = np.array([(a, b, c) for a in (1, 2, 6) for b in (1, 3, 4) for c in (1, 2, 4)])
    shards, copies = data_parallel.shard_and_replica_rows(rows, run=hybrid)
    assert np.array_equal(shards * copies, rows)
    assert np.array_equal(shards.prod(axis=-1), data_parallel.shard_count(rows.prod(axis=-1), run=hybrid))


def test_volumes_of_e1():
    # F8: X 100.66 MB, wire 75.50 MB; dispatch 402.65 MB, remote 396.36, off-node 352.32; hop 25.17 MB.
    full = volumes.hidden_bytes(TOKENS, 4, model=e1_model())
    assert full / 1e6 == pytest.approx(100.66, abs=5e-3)
    assert collectives.crossing_bytes(full, [4, 1], fabric=nodes())[0] / 1e6 == pytest.approx(75.50, abs=5e-3)
    sent = volumes.ep_payload_bytes(TOKENS, 64, Dispatcher.ALL_TO_ALL, model=e1_model(), run=run(), element_bytes=2.0)
    assert sent / 1e6 == pytest.approx(402.65, abs=5e-3)
    crossing = collectives.crossing_bytes(sent, [8, 8], fabric=nodes(), exchange=True) / 1e6
    assert crossing == pytest.approx([396.36, 352.32], abs=5e-3)
    assert volumes.hidden_bytes(TOKENS, 1, model=e1_model()) / 1e6 == pytest.approx(25.17, abs=5e-3)


def test_deduplicated_volume_of_e1():
    loads = volumes.deduplicated_loads_bytes(TOKENS, [8, 8], model=e1_model(), run=run(), element_bytes=2.0)
    assert loads[1] / 1e6 == pytest.approx(156.30, abs=5e-3)
    # Sixteen copies in 64 devices of six experts: 14.51 distinct ones, and 7 of 8 lie behind a link.
    assert loads[0] / 1e6 == pytest.approx(402.65 * 14.508 / 16 * 7 / 8, abs=2e-2)


def test_gradient_and_weight_volumes_of_e1():
    # F8: dense RS 3.685 GB over 64, expert RS 14.44 GB over 4 (FP32); AG 1.843 + 7.219 GB (BF16).
    dense, experts = 0.43266e9 + 0.50332e9, 4.81296e9
    one = {"fabric": nodes(64, nic_gb=1.0, node_gb=1.0), "profile": profile(), "run": run(), "model": e1_model()}
    assert data_parallel.dense_gradient_s([8, 8], [1, 1], dense, 1, **one) == pytest.approx(3.685, abs=1e-3)
    assert data_parallel.dense_gather_s([8, 8], [1, 1], dense, 1, **one) == pytest.approx(1.843, abs=1e-3)
    assert data_parallel.expert_gradient_s([4, 1], experts, 1, **one) == pytest.approx(14.44, abs=5e-3)
    assert data_parallel.expert_gather_s([4, 1], experts, 1, **one) == pytest.approx(7.219, abs=1e-3)


@pytest.mark.parametrize(("model", "gigabytes"), [(GQA, 0.470), (dsv3_model(), 9.40)])
def test_ring_volumes_at_128k(model, gigabytes):
    # F4.2: s = 131072, CP = 8, TP = 1: seven blocks of K and V; MLA moves its expanded heads.
    block = volumes.kv_block_bytes(1, 8, 1, model=model, run=LONG)
    assert 7 * block / 1e9 == pytest.approx(gigabytes, abs=5e-3)


def test_latent_of_mla_would_be_71_times_less():
    mla = dsv3_model().mla
    latent = 7 * 16384 * (mla.kv_rank + mla.rope_dim) * 2
    assert latent / 1e9 == pytest.approx(0.132, abs=5e-4)
    expanded = 7 * volumes.kv_block_bytes(1, 8, 1, model=dsv3_model(), run=LONG)
    assert expanded / latent == pytest.approx(71, abs=0.5)


def test_ulysses_volume_at_128k():
    before, after = volumes.ulysses_bytes(1, 8, 1, model=GQA, run=LONG)
    assert 7 / 8 * (before + after) / 1e9 == pytest.approx(0.528, abs=1e-3)


def test_kv_heads_are_replicated_below_tp():
    blocks = volumes.kv_block_bytes(np.array([1, 8, 16, 64]), 8, 1, model=GQA, run=LONG)
    assert list(blocks / blocks[-1]) == [8, 1, 1, 1]


@pytest.mark.parametrize(
    ("model", "flops", "bandwidth", "tokens"),
    [(GQA, 600e12, 50e9, 3000), (GQA, 600e12, 450e9, 333), (dsv3_model(), 550e12, 50e9, 22000)],
)
def test_tokens_from_which_a_ring_step_hides(model, flops, bandwidth, tokens):
    # F4.2: causal, zig-zag average: n_q (d_qk + d_v) s_loc FLOP per query against one K, V block.
    heads = model.heads if model.mla else model.kv_heads
    per_token = heads * (model.qk_dim + model.v_dim) * 2
    work = model.heads * (model.qk_dim + model.v_dim)
    assert per_token / bandwidth * flops / work == pytest.approx(tokens, rel=2e-2)
    # The same from the quantities: a block of s_loc tokens takes as long as its share of the core.
    from mapsearch.costs import compute

    cp = 8
    here = run(sequence_length=cp * tokens, global_batch=8)
    step = volumes.kv_block_bytes(1, cp, 1, model=model, run=here) / bandwidth
    core = compute.attention_core_work(1, cp, 1, model=model, run=here) / cp / flops
    assert step == pytest.approx(core, rel=2e-2)


# --- seconds -----------------------------------------------------------------------------------------------------


def test_tensor_parallel_counts_its_collectives():
    x = volumes.hidden_bytes(TOKENS, 4, model=e1_model())
    one = collectives.all_gather_s(x, [4, 1], fabric=nodes(), profile=profile())
    assert communication.tp_attention_forward_s([4, 1], TOKENS, **FACTS) == pytest.approx(2 * one)
    assert communication.tp_attention_backward_s([4, 1], TOKENS, **FACTS) == pytest.approx(3 * one)
    assert communication.tp_ffn_forward_s([4, 1], TOKENS, **FACTS) == pytest.approx(2 * one)
    assert communication.tp_ffn_backward_s([4, 1], TOKENS, **FACTS) == pytest.approx(3 * one)
    assert communication.tp_shared_forward_s([4, 1], TOKENS, **FACTS) == 0  # E1 has no shared expert


def test_tensor_parallel_without_sequence_parallel_all_reduces():
    x = volumes.hidden_bytes(TOKENS, 4, model=e1_model())
    one = collectives.all_reduce_s(x, [4, 1], fabric=nodes(), profile=profile())
    plain = facts(run=run(sequence_parallel=False))
    assert communication.tp_attention_forward_s([4, 1], TOKENS, **plain) == pytest.approx(one)
    assert communication.tp_ffn_backward_s([4, 1], TOKENS, **plain) == pytest.approx(one)


@pytest.mark.parametrize(("precision", "share"), [("fp8-tensor", 0.5), ("mxfp8", 33 / 64), ("nvfp4", 9 / 32)])
def test_what_a_product_takes_is_gathered_in_its_own_format(precision, share):
    """F4.2, F2.3: gathers are quantised, reduce-scatters are not; 20 of 80 layers in 16 bits leave three quarters."""
    one = communication.tp_ffn_forward_s([4, 1], TOKENS, **FACTS) / 2
    narrow, some = facts(run=run(precision=precision)), facts(run=run(precision=precision, half_precision_layers=20))
    assert communication.tp_ffn_forward_s([4, 1], TOKENS, **narrow) == pytest.approx((1 + share) * one)
    assert communication.tp_attention_backward_s([4, 1], TOKENS, **narrow) == pytest.approx((1 + 2 * share) * one)
    assert communication.tp_ffn_forward_s([4, 1], TOKENS, **some) == pytest.approx((1.25 + 0.75 * share) * one)
    latent = facts(model=dsv3_model())
    assert communication.tp_attention_forward_s([4, 1], TOKENS, **latent | {"run": narrow["run"]}) == pytest.approx(
        communication.tp_attention_forward_s([4, 1], TOKENS, **latent)
    )


def test_tensor_parallel_of_mla_gathers_the_compressed_part():
    model = dsv3_model()
    assert volumes.gathered_share(model) == pytest.approx(0.295, abs=1e-3)
    x = volumes.hidden_bytes(TOKENS, 4, model=model)
    one = collectives.all_gather_s(x, [4, 1], fabric=nodes(), profile=profile())
    took = communication.tp_attention_forward_s([4, 1], TOKENS, **facts(model=model))
    assert took == pytest.approx((1 + volumes.gathered_share(model)) * one)
    assert communication.tp_attention_backward_s([4, 1], TOKENS, **facts(model=model)) == pytest.approx(took)
    assert communication.tp_shared_forward_s([4, 1], TOKENS, **facts(model=model)) == pytest.approx(2 * one)


def test_flat_transfers_of_e1_at_45_gb():
    # F8: two flat off-node transfers at 45 GB/s take 15.66 ms.
    slow = facts(fabric=nodes(nic_gb=45.0))
    both = communication.ep_dispatch_s(TOKENS, [1, 1], [8, 8], Dispatcher.ALL_TO_ALL, **slow)
    both = both + communication.ep_combine_s(TOKENS, [1, 1], [8, 8], Dispatcher.ALL_TO_ALL, **slow)
    assert both * 1e3 == pytest.approx(15.66, abs=5e-3)
    backward = communication.ep_backward_s(TOKENS, [1, 1], [8, 8], Dispatcher.ALL_TO_ALL, **slow)
    assert backward == pytest.approx(both)


def test_dispatchers_of_e1():
    kinds = np.array(list(Dispatcher))
    took = communication.ep_dispatch_s(TOKENS, [1, 1], [8, 8], kinds, **FACTS)
    by = dict(zip(Dispatcher, took, strict=True))
    assert by[Dispatcher.ALL_TO_ALL] == pytest.approx(352.32e6 / 50e9, rel=1e-4)
    # C_src = 54 for 1024 tokens: 1.2656 (F1.4).
    assert by[Dispatcher.FIXED_ALL_TO_ALL] / by[Dispatcher.ALL_TO_ALL] == pytest.approx(1.2656, abs=5e-5)
    assert by[Dispatcher.DEDUPLICATED] == pytest.approx(156.30e6 / 50e9, rel=1e-4)
    # Every token to every rank: V = 64 X/TP, and (1 - 8/64)/8 of it over each network card.
    assert by[Dispatcher.ALL_GATHER] == pytest.approx(64 * 25.17e6 * 0.875 / 8 / 50e9, rel=1e-3)


def test_gather_moves_less_than_all_to_all_inside_a_small_group():
    # F1.4: K = 16, EP = 8: R-1 = 7 copies per token against K(R-1)/R = 14.
    flat = communication.ep_dispatch_s(TOKENS, [1, 1], [8, 1], Dispatcher.ALL_TO_ALL, **FACTS)
    gather = communication.ep_dispatch_s(TOKENS, [1, 1], [8, 1], Dispatcher.ALL_GATHER, **FACTS)
    assert flat / gather == pytest.approx(2.0)


def test_fp8_halves_dispatch_and_pays_its_scales():
    plain = communication.ep_dispatch_s(TOKENS, [1, 1], [8, 8], Dispatcher.ALL_TO_ALL, **FACTS)
    for precision, scale in (("fp8-tensor", 1.0), ("fp8-block", 1 + 4 / 128), ("mxfp8", 1 + 1 / 32)):
        small = facts(run=run(precision=precision))
        took = communication.ep_dispatch_s(TOKENS, [1, 1], [8, 8], Dispatcher.ALL_TO_ALL, **small)
        assert took / plain == pytest.approx(0.5 * scale)
        combine = communication.ep_combine_s(TOKENS, [1, 1], [8, 8], Dispatcher.ALL_TO_ALL, **small)
        assert combine == pytest.approx(plain)


def test_expert_tensor_parallel_gathers_after_the_exchange():
    # F4.2: (ETP-1) tau K h e more comes in, inside the node here.
    alone = communication.ep_dispatch_s(TOKENS, [1, 1], [1, 32], Dispatcher.ALL_TO_ALL, **FACTS)
    pair = communication.ep_dispatch_s(TOKENS, [2, 1], [1, 32], Dispatcher.ALL_TO_ALL, **FACTS)
    assert pair - alone == pytest.approx((2 - 1) * TOKENS * 16 * 12288 * 2 / 450e9)


def test_skew_slows_the_dropless_exchange_only():
    skewed = facts(run=run(routing={"rank_skew": 1.2, "pair_skew": 1.5}))
    for kind, factor in ((Dispatcher.ALL_TO_ALL, 1.5), (Dispatcher.FIXED_ALL_TO_ALL, 1.0)):
        even = communication.ep_dispatch_s(TOKENS, [1, 1], [8, 8], kind, **FACTS)
        assert communication.ep_dispatch_s(TOKENS, [1, 1], [8, 8], kind, **skewed) == pytest.approx(factor * even)


def test_context_parallel_kinds():
    long = facts(model=GQA, run=LONG)
    block = volumes.kv_block_bytes(1, 8, 1, model=GQA, run=LONG)
    inside, across = [8, 1], [1, 8]
    ring = communication.cp_forward_s(1, inside, CpKind.RING, 1, **long)
    assert ring == pytest.approx(7 * block / 450e9)
    assert communication.cp_forward_s(1, across, CpKind.RING, 1, **long) == pytest.approx(7 * block / 50e9)
    assert communication.cp_backward_s(1, inside, CpKind.RING, 1, **long) == pytest.approx(2 * ring)
    gather = communication.cp_forward_s(1, inside, CpKind.ALL_GATHER, 1, **long)
    assert gather == pytest.approx(ring)  # the same bytes
    ulysses = communication.cp_forward_s(1, inside, CpKind.ULYSSES, 1, **long)
    assert ulysses == pytest.approx(0.528e9 / 450e9, rel=2e-3)
    assert communication.cp_backward_s(1, inside, CpKind.ULYSSES, 1, **long) == pytest.approx(ulysses)


def test_ring_is_as_slow_as_its_slowest_hop_and_a_gather_shares_the_uplink():
    long = facts(model=GQA, run=LONG)
    block = volumes.kv_block_bytes(1, 16, 1, model=GQA, run=LONG)
    ring = communication.cp_forward_s(1, [8, 2], CpKind.RING, 1, **long)
    assert ring == pytest.approx(15 * block / 50e9)
    gather = communication.cp_forward_s(1, [8, 2], CpKind.ALL_GATHER, 1, **long)
    assert gather == pytest.approx(max(16 * block * 0.5 / 8 / 50e9, 15 * block / 450e9))


def test_hybrid_exchanges_heads_inside_and_rings_across():
    long = facts(model=GQA, run=LONG)
    hybrid = communication.cp_forward_s(1, [8, 2], CpKind.HYBRID, 1, **long)
    before, after = volumes.ulysses_bytes(1, 16, 1, model=GQA, run=LONG)
    block = volumes.kv_block_bytes(1, 16, 1, model=GQA, run=LONG)
    assert hybrid == pytest.approx(7 / 8 * (before + after) / 450e9 + block / 50e9)
    # Inside one level it is Ulysses alone.
    assert communication.cp_forward_s(1, [8, 1], CpKind.HYBRID, 1, **long) == communication.cp_forward_s(
        1, [8, 1], CpKind.ULYSSES, 1, **long
    )


def test_pipeline_hop_crosses_the_worst_level():
    assert communication.pp_hop_s([1, 16], TOKENS, **FACTS) == pytest.approx(25.17e6 / 50e9, rel=1e-3)
    assert communication.pp_hop_s([4, 1], TOKENS, **FACTS) == pytest.approx(25.17e6 / 450e9, rel=1e-3)
    assert communication.pp_hop_s([1, 1], TOKENS, **FACTS) == 0


def test_zero_stages():
    zero = np.array([0, 1, 2, 3])
    reduce = data_parallel.dense_gradient_s([1, 64], [1, 1], 64e6, zero, **FACTS)
    assert list(reduce / reduce[1]) == pytest.approx([2, 1, 1, 0])
    gather = data_parallel.dense_gather_s([1, 64], [1, 1], 64e6, zero, **FACTS)
    assert list(gather / gather[1]) == pytest.approx([0, 1, 1, 0])
    assert reduce[1] / gather[1] == pytest.approx(2.0)  # FP32 gradients, BF16 weights
    each = data_parallel.zero3_dense_s([1, 64], [1, 1], 64e6, **FACTS)
    assert each == pytest.approx(2 * gather[1] + reduce[1])
    assert data_parallel.zero3_expert_s([1, 64], 64e6, **FACTS) == pytest.approx(each)


def test_dense_weights_are_replicated_over_dp_and_cp_together():
    joint = data_parallel.dense_gradient_s([1, 8], [8, 1], 64e6, 1, **FACTS)
    assert joint == data_parallel.dense_gradient_s([8, 8], [1, 1], 64e6, 1, **FACTS)


def test_fp8_primary_weights_halve_the_gather_but_not_with_mxfp8():
    def gather(**changes):
        return data_parallel.dense_gather_s([1, 64], [1, 1], 64e6, 1, **facts(run=run(**changes)))

    primary = {"fp8_primary_weights": True}
    assert gather(precision="fp8-block", state=primary) == pytest.approx(gather() / 2)
    assert gather(precision="mxfp8", state=primary) == gather()
    assert gather(precision="fp8-block") == gather()


def test_parameters_are_padded_to_equal_shards():
    assert list(volumes.padded_parameters(np.array([1000, 1024]), 64)) == [1024, 1024]


ONE = [1, 1]


@pytest.mark.parametrize(
    "seconds",
    [
        lambda f: communication.tp_attention_forward_s(ONE, TOKENS, **f),
        lambda f: communication.tp_attention_backward_s(ONE, TOKENS, **f),
        lambda f: communication.tp_ffn_forward_s(ONE, TOKENS, **f),
        lambda f: communication.tp_ffn_backward_s(ONE, TOKENS, **f),
        lambda f: communication.tp_shared_forward_s(ONE, TOKENS, **f),
        lambda f: communication.tp_shared_backward_s(ONE, TOKENS, **f),
        lambda f: communication.cp_forward_s(2, ONE, np.array(list(CpKind)), 1, **f),
        lambda f: communication.cp_backward_s(2, ONE, np.array(list(CpKind)), 1, **f),
        lambda f: communication.ep_dispatch_s(TOKENS, ONE, ONE, np.array(list(Dispatcher)), **f),
        lambda f: communication.ep_combine_s(TOKENS, ONE, ONE, np.array(list(Dispatcher)), **f),
        lambda f: communication.ep_backward_s(TOKENS, ONE, ONE, np.array(list(Dispatcher)), **f),
        lambda f: communication.pp_hop_s(ONE, TOKENS, **f),
        lambda f: data_parallel.dense_gradient_s(ONE, ONE, 1e6, np.arange(4), **f),
        lambda f: data_parallel.dense_gather_s(ONE, ONE, 1e6, np.arange(4), **f),
        lambda f: data_parallel.expert_gradient_s(ONE, 1e6, np.arange(4), **f),
        lambda f: data_parallel.expert_gather_s(ONE, 1e6, np.arange(4), **f),
        lambda f: data_parallel.zero3_dense_s(ONE, ONE, 1e6, **f),
        lambda f: data_parallel.zero3_expert_s(ONE, 1e6, **f),
    ],
)
def test_groups_of_one_are_free(seconds):
    launched = {"peak": 0.5, "launch": "9 us", "half_bytes": "1 MB"}
    names = ("all_gather", "all_reduce", "all_to_all", "point_to_point")
    for model in (e1_model(), dsv3_model()):
        assert np.all(seconds(facts(model=model, profile=profile(**dict.fromkeys(names, launched)))) == 0)


def test_arrays_are_evaluated_as_scalars_are():
    rows = np.array([[1, 1], [8, 1], [4, 4], [1, 8]])
    kinds = np.array(list(CpKind))[:, None]
    tp = np.array([1, 4, 16, 64])
    together = communication.cp_backward_s(tp, rows, kinds, 2, **facts(model=GQA, run=LONG))
    ways = np.array(list(Dispatcher))[:, None]
    tokens = np.array([64.0, 1024.0, 100.0, 2048.0])
    etp_rows = rows[::-1]
    dispatched = communication.ep_dispatch_s(tokens, etp_rows, rows, ways, **FACTS)
    for i, j in np.ndindex(4, 4):
        alone = communication.cp_backward_s(tp[j], rows[j], kinds[i, 0], 2, **facts(model=GQA, run=LONG))
        assert together[i, j] == alone
        assert dispatched[i, j] == communication.ep_dispatch_s(tokens[j], etp_rows[j], rows[j], ways[i, 0], **FACTS)


def test_models_without_experts_are_refused_by_name():
    with pytest.raises(ValueError, match="E1 has no experts"):
        routing.capacity(128, model=e1_model(moe=None, ffn=1024), run=run())
