"""Golden numbers of FORMULAS 1.4 and 1.6."""

import numpy as np
import pytest

from mapsearch.axes import Dispatcher
from mapsearch.costs import routing
from mapsearch.inventories.base import validate
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import Run

N, E, K = 131072, 384, 16


def moe_model(**changes):
    moe = {"experts": E, "top_k": K, "expert_ffn": 4352, **changes}
    shape = {"name": "t", "layers": 80, "hidden": 12288, "heads": 96, "kv_heads": 8, "head_dim": 128, "vocab": 163840}
    return validate(Model, {**shape, "moe": moe}, file="t")


def run(**changes):
    return validate(Run, {"sequence_length": 4096, "global_batch": 4096, "routing": changes}, file="r")


@pytest.mark.parametrize(
    ("factor", "slots", "amplified"), [(1.00, 5462, 1.00012), (1.25, 6827, 1.25006), (1.50, 8192, 1.50000)]
)
def test_capacity_table(factor, slots, amplified):
    got = routing.capacity_slots(N, experts=E, top_k=K, capacity_factor=factor)
    assert got == slots
    assert E * got / (N * K) == pytest.approx(amplified, abs=5e-6)
    assert routing.amplification(N, model=moe_model(), run=run(capacity_factor=factor)) == pytest.approx(
        amplified, abs=5e-6
    )


def test_capacity_per_source_rank():
    tokens = np.array([2048, 1024, 256, 128, 64])
    assert list(routing.capacity(tokens, model=moe_model(), run=run())) == [107, 54, 14, 7, 4]
    assert routing.amplification(tokens, model=moe_model(), run=run()) == pytest.approx(
        [1.2539, 1.2656, 1.3125, 1.3125, 1.5], abs=5e-5
    )


def test_deepspeed_minimum_capacity():
    limited = run(min_capacity=8)
    assert routing.capacity(128, model=moe_model(), run=limited) == 8
    assert routing.amplification(128, model=moe_model(), run=limited) == 1.5


def test_capacity_is_not_rounded_up_by_float_noise():
    # 1.1 * 1000 * 2 / 20 is 110.00000000000001 in floats; the exact product is 110.
    assert routing.capacity_slots(1000, experts=20, top_k=2, capacity_factor=1.1) == 110


@pytest.mark.parametrize(("hidden", "gigabytes"), [(8192, 68.72), (7168, 60.13)])
def test_ideal_volume(hidden, gigabytes):
    volume = routing.ideal_volume_bytes(N, top_k=K, hidden=hidden, element_bytes=2)
    assert volume / 1e9 == pytest.approx(gigabytes, abs=5e-3)


def test_fixed_volume():
    volume = routing.fixed_volume_bytes(N, experts=E, top_k=K, hidden=8192, element_bytes=2, capacity_factor=1.25)
    assert volume / 1e9 == pytest.approx(85.90, abs=1e-2)


def test_whole_group_volume_and_its_amplification():
    pair_slots = E / 64 * routing.capacity(2048, model=moe_model(), run=run())
    assert pair_slots == 642
    group = routing.group_volume_bytes(64, pair_slots, hidden=8192, element_bytes=2)
    ideal = routing.ideal_volume_bytes(64 * 2048, top_k=K, hidden=8192, element_bytes=2)
    assert group / ideal == pytest.approx(1.2539, abs=5e-5)
    wire = routing.group_volume_bytes(64, pair_slots, hidden=8192, element_bytes=2, wire=True)
    assert wire / group == pytest.approx(63 / 64)


def test_worst_case_of_a_dropless_group():
    ranks = np.array([8, 16, 32, 64, 384])
    assert list(routing.worst_case_amplification(ranks, experts=E, top_k=K)) == [8, 16, 24, 24, 24]


def test_distinct_units():
    assert routing.distinct_units(np.array([8, 64, 384]), model=moe_model()) == pytest.approx(
        [7.10, 14.51, 16.0], abs=5e-3
    )
    assert routing.remote_units(8, model=moe_model()) == pytest.approx(6.21, abs=5e-3)
    assert routing.remote_units(1, model=moe_model()) == 0


@pytest.mark.parametrize(("experts", "top_k"), [(256, 8), (384, 16), (48, 8), (12, 5)])
def test_consecutive_experts_are_counted_as_they_fall(experts, top_k):
    model = moe_model().replaced(moe={"experts": experts, "top_k": top_k, "expert_ffn": 64})
    picks = np.arange(experts * top_k).reshape(-1, top_k) % experts
    for units in (1, 2, 4, 6, 12):
        seen = [len(set(row // (experts // units))) for row in picks] if experts % units == 0 else None
        if seen:
            found = routing.distinct_units(units, model=model, consecutive=True)
            assert found == pytest.approx(np.mean(seen)), (units, seen)


def test_distinct_units_of_four_to_eight_nodes_of_deepseek_shape():
    # F4.1: HybridEP at EP32 and EP64 reaches 2.71 and 4.63 remote nodes of 4 and 8 under uniform routing, K = 8.
    model = moe_model(experts=256, top_k=8)
    assert routing.remote_units(np.array([4, 8]), model=model) == pytest.approx([2.71, 4.63], abs=2e-2)


def test_group_limited_routing_against_sampling():
    model = moe_model(experts=64, top_k=6, groups=8, top_groups=3)
    random = np.random.default_rng(0)
    counts = {units: [] for units in (2, 4, 8, 16, 64)}
    for _ in range(4000):
        groups = random.choice(8, 3, replace=False)
        experts = random.choice((groups[:, None] * 8 + np.arange(8)).ravel(), 6, replace=False)
        for units, seen in counts.items():
            seen.append(len(set(experts * units // 64)))
    for units, seen in counts.items():
        assert routing.distinct_units(units, model=model) == pytest.approx(np.mean(seen), abs=0.06), units


def test_routed_rows_skew_and_padding():
    skewed = run(rank_skew=1.3)
    dispatchers = np.array([Dispatcher.ALL_TO_ALL, Dispatcher.FIXED_ALL_TO_ALL, Dispatcher.DEDUPLICATED])
    rows = routing.routed_rows(1024, 2, 64, dispatchers, model=moe_model(), run=skewed)
    assert rows == pytest.approx([1024 * 16 * 2 * 1.3, 384 * 54 * 2, 1024 * 16 * 2 * 1.3])
    # A rank that holds every expert receives its own tokens and no more, however skewed the router.
    assert routing.routed_rows(1024, 1, 1, Dispatcher.ALL_TO_ALL, model=moe_model(), run=skewed) == 1024 * 16


@pytest.mark.parametrize(
    ("bandwidth", "peak", "ranks", "expected"),
    [
        (450e9, 989.4e12, np.inf, 1.397),
        (450e9, 989.4e12, 8, 1.597),
        (450e9, 989.4e12, 64, 1.419),
        (50e9, 989.4e12, np.inf, 0.155),
        (50e9, 989.4e12, 8, 0.177),
        (50e9, 989.4e12, 64, 0.158),
        (900e9, 2.5e15, np.inf, 1.106),
    ],
)
def test_compute_communication_ratio(bandwidth, peak, ranks, expected):
    ratio = routing.compute_communication_ratio(2048, bytes_per_s=bandwidth, flops_per_s=peak, ranks=ranks)
    assert ratio == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(("bandwidth", "expected"), [(450e9, 3.016), (50e9, 0.335)])
def test_ratio_of_vector_e1(bandwidth, expected):
    ratio = routing.compute_communication_ratio(4352, bytes_per_s=bandwidth, flops_per_s=989.4e12, ranks=64)
    assert ratio == pytest.approx(expected, abs=6e-4)


def test_width_that_balances_a_link():
    assert round(routing.balanced_ffn_width(bytes_per_s=450e9, flops_per_s=989.4e12)) == pytest.approx(1466, abs=1)
    assert routing.balanced_ffn_width(bytes_per_s=50e9, flops_per_s=989.4e12) == pytest.approx(13192, abs=1)


def test_precision_changes_the_ratio():
    # F1.6: coefficients 3/2, 2 and 3; with FP8 GEMM at twice the peak FP8 dispatch + BF16 combine is 0.67x.
    def ratio(dispatch, combine, peak=1.0):
        return float(
            routing.compute_communication_ratio(
                1, bytes_per_s=1, flops_per_s=peak, dispatch_bytes=dispatch, combine_bytes=combine
            )
        )

    assert [ratio(2, 2), ratio(1, 2), ratio(1, 1)] == [1.5, 2.0, 3.0]
    assert ratio(1, 2, peak=2.0) / ratio(2, 2) == pytest.approx(0.667, abs=1e-3)
