"""Every digit that FORMULAS 1 and 8 print stands in a contract: hand-derived, so no part of the program."""

from __future__ import annotations

import pytest
from contracts import ASIC_MAPPING, e1_contract

from mapsearch.contracting.api import contract_of
from mapsearch.contracting.case import Pool
from mapsearch.inventories.mapping import Mapping

GIB, MIB = 2.0**30, 2.0**20
LONG = {"sequence_length": 131072, "global_batch": 128}
E1 = {
    # id: (printed digits, unit of the print, tolerance of the last digit)
    "model.expert_parameters": (160_432_128, 1, 0.5),
    "model.parameters.routed_experts": (4.92847, 1e12, 5e-6),
    "model.parameters": (4.959053, 1e12, 5e-7),
    "model.shared_parameters": (30.578, 1e9, 5e-4),
    "model.shared_ratio": (0.616619, 1e-2, 5e-7),
    "model.active_parameters": (235.9316, 1e9, 5e-5),
    "model.flops_per_token": (1425.39, 1e9, 5e-3),
    "model.router_flops_per_token": (2.26, 1e9, 5e-3),
    "model.six_active": (1415.6, 1e9, 5e-2),
    "model.local_experts": (4.81296, 1e9, 5e-6),
    "model.local_dense": (0.43266, 1e9, 5e-6),
    "model.local_embedding": (0.50332, 1e9, 5e-6),
    "step.microbatches": (64, 1, 0),
    "state.stage_0.states_bytes": (45.735, GIB, 5e-4),
    "state.stage_8.states_bytes": (42.835, GIB, 5e-4),
    "state.layer_activation_bytes": (944.125, MIB, 5e-4),
    "state.activations_bytes": (73.760, GIB, 5e-4),
    "state.in_flight": (16, 1, 0),
    "state.logits_bytes": (0.9375, GIB, 5e-5),
    "routing.rank_tokens": (1024, 1, 0),
    "routing.source_slots": (54, 1, 0),
    "routing.source_amplification": (1.2656, 1, 5e-5),
    "routing.distinct_ranks": (14.51, 1, 5e-3),
    "routing.remote_units.net": (6.21, 1, 5e-3),
    "place.tp.hidden_bytes": (100.66, 1e6, 5e-3),
    "place.tp.wire_bytes": (75.50, 1e6, 5e-3),
    "ep.dispatch_bytes": (402.65, 1e6, 5e-3),
    "ep.level.node_plain_bytes": (396.36, 1e6, 5e-3),
    "ep.level.net_plain_bytes": (352.32, 1e6, 5e-3),
    "ep.level.net_deduplicated_bytes": (156.30, 1e6, 5e-3),
    "place.pp.forward_bytes": (25.17, 1e6, 5e-3),
    "place.dp.reduce_bytes": (3.685, 1e9, 5e-4),
    "place.edp.reduce_bytes": (14.44, 1e9, 5e-3),
    "place.dp.gather_bytes": (1.843, 1e9, 5e-4),
    "place.edp.gather_bytes": (7.219, 1e9, 5e-4),
    "step.bubble_of_ideal": (23.44, 1e-2, 5e-3),
    "step.bubble_of_total": (18.99, 1e-2, 5e-3),
    "ep.ratio.node.peak": (3.016, 1, 5e-4),
    "ep.ratio.net.peak": (0.335, 1, 5e-4),
    "ep.ratio.node.balanced_ffn": (1466, 1, 0.5),
    "ep.ratio.net.balanced_ffn": (13192, 1, 0.5),
    "ep.expert_flops": (5257, 1e9, 0.5),
    "ep.fixed.worst_amplification": (24, 1, 0),
}
ONE_SEQUENCE = {
    # FORMULAS 1.4, one sequence of 131,072 tokens.
    "routing.assignments": (2_097_152, 0),
    "routing.mean_load": (5461.33, 5e-3),
    "routing.cf_1.slots": (5462, 0),
    "routing.cf_1.use": (0.99988, 5e-6),
    "routing.cf_1.amplification": (1.00012, 5e-6),
    "routing.cf_1.25.slots": (6827, 0),
    "routing.cf_1.25.use": (0.79996, 5e-6),
    "routing.cf_1.25.amplification": (1.25006, 5e-6),
    "routing.cf_1.5.slots": (8192, 0),
    "routing.cf_1.5.use": (0.66667, 5e-6),
    "routing.cf_1.5.amplification": (1.5, 0),
    # FORMULAS 1.5, CP 8.
    "context.longest_tokens": (131072, 0),
    "context.local_tokens": (16384, 0),
    "context.chunk_tokens": (8192, 0),
    "context.kv_layer_bytes": (536_870_912, 0),
    # FORMULAS 1.2 and 1.7, at the nominal 5e12 parameters.
    "state.total_weights_bytes_nominal": (10e12, 0),
    "state.total_gradients_bytes_nominal": (10e12, 0),
    "state.total_master_bytes_nominal": (20e12, 0),
    "state.total_moments_bytes_nominal": (40e12, 0),
    "state.total_bytes_nominal": (80e12, 0),
    "publish.bf16_bytes_nominal": (10e12, 0),
    "publish.fp8-tensor_bytes_nominal": (5e12, 0),
    "publish.fp8-block-fp16-scale_scale_bytes_nominal": (0.610e9, 5e5),
    "publish.fp8-block_scale_bytes_nominal": (1.221e9, 5e5),
    "publish.fp8-row-fp16-scale_scale_bytes_nominal": (78.1e9, 5e7),
    "publish.fp8-row_scale_bytes_nominal": (156.25e9, 0),
    "publish.mxfp8_scale_bytes_nominal": (156.25e9, 0),
    "publish.nvfp4_bytes_nominal": (0.5625 * 5e12, 0),
    # FORMULAS 8 at 128K.
    "model.flops_per_token_longest": (2174.33e9, 5e6),
    "model.six_active_shortfall": (0.349, 5e-4),
}


@pytest.mark.parametrize("name", E1)
def test_vector_e1(e1, name):
    printed, unit, digit = E1[name]
    assert e1.row(name).predicted / unit == pytest.approx(printed, abs=digit or 1e-9)


@pytest.mark.parametrize("name", ONE_SEQUENCE)
def test_one_longest_sequence(asic, name):
    printed, digit = ONE_SEQUENCE[name]
    assert asic.row(name).predicted == pytest.approx(printed, abs=digit, rel=0 if digit else 1e-12)


def test_e1_by_full_recompute_and_without_memory_efficient_permutation(e1):
    full = e1_contract({"recompute": "full"})
    kept = full.row("state.layer_activation_bytes").predicted
    assert full.row("state.recomputed_layer_bytes").predicted + kept == pytest.approx(944.125 * MIB, rel=1e-6)
    assert full.row("state.recomputed_layer_bytes").predicted == pytest.approx(0.922 * GIB, rel=0.03)

    wasteful = e1_contract(memory_efficient_permutation=False).row("state.layer_activation_bytes").predicted
    assert wasteful - e1.row("state.layer_activation_bytes").predicted == 1024 * 393_216


def test_e1_keeps_the_inputs_of_its_layers_under_full_recompute():
    # FORMULAS 8: 1.875 GiB.
    kept = e1_contract({"recompute": "full"}).row("state.activations_bytes").predicted
    assert kept == pytest.approx(1.875 * GIB, rel=1e-9)


def test_e1_experts_at_600_teraflops_and_transfers_at_45_gigabytes():
    # FORMULAS 8: 8.76 ms of experts, 15.66 ms of two flat off-node transfers.
    profile = {
        "grouped_gemm": {"peak": 600 / 989.4, "half_rows": 0, "half_columns": 0},
        "all_to_all": {"peak": 0.9, "half_bytes": "0 B", "launch": "0 us"},
    }
    contract = e1_contract(profile=profile)
    assert contract.row("ep.expert_s").predicted * 1e3 == pytest.approx(8.76, abs=5e-3)
    both = contract.row("ep.dispatch_s").predicted + contract.row("ep.combine_s").predicted
    assert both * 1e3 == pytest.approx(15.66, abs=5e-3)
    assert contract.row("ep.ratio.net.reached").predicted == pytest.approx(8.76 / 15.66, abs=1e-3)


def test_e1_says_what_the_wrong_divisor_would_give(e1):
    # FORMULAS 8: DP=64 for experts too gives 30.23 GiB in the middle.
    assert "30.23 GiB" in e1.row("state.stage_8.states_bytes").recipe.compute


@pytest.mark.parametrize(("ep", "distinct"), [(8, 7.10), (64, 14.51)])
def test_distinct_ranks(ep, distinct):
    row = e1_contract({"ep": ep, "edp": 256 // ep}).row("routing.distinct_ranks")
    assert row.predicted == pytest.approx(distinct, abs=5e-3)


@pytest.mark.parametrize(("ep", "worst"), [(8, 8), (16, 16), (32, 24), (64, 24)])
def test_worst_case_amplification(ep, worst):
    contract = e1_contract({"ep": ep, "edp": 256 // ep})
    assert contract.row("ep.fixed.worst_amplification").predicted == worst


@pytest.mark.parametrize(
    ("tokens", "slots", "amplification"),
    [(2048, 107, 1.2539), (1024, 54, 1.2656), (256, 14, 1.3125), (128, 7, 1.3125), (64, 4, 1.5)],
)
def test_capacity_of_a_source_rank(tokens, slots, amplification):
    contract = e1_contract(sequence_length=4 * tokens)
    assert contract.row("routing.source_slots").predicted == slots
    assert contract.row("routing.source_amplification").predicted == pytest.approx(amplification, abs=5e-5)
    if tokens == 2048:
        assert contract.row("ep.fixed.pair_slots").predicted == 642
        assert contract.row("ep.fixed.amplification").predicted == pytest.approx(1.2539, abs=5e-5)


@pytest.mark.parametrize(("hidden", "ideal", "fixed"), [(8192, 68.72, 85.90), (7168, 60.13, None)])
def test_volumes_of_one_sequence(hidden, ideal, fixed):
    contract = e1_contract(model={"hidden": hidden}, **LONG)
    assert contract.row("ep.volume_ideal_bytes").predicted / 1e9 == pytest.approx(ideal, abs=5e-3)
    if fixed:
        assert contract.row("ep.volume_fixed_bytes").predicted / 1e9 == pytest.approx(fixed, abs=5e-3)


@pytest.mark.parametrize(("ep", "node", "endless", "net"), [(8, 1.597, 1.397, None), (64, 1.419, 1.397, 0.158)])
def test_ratio_from_peaks(ep, node, endless, net):
    # FORMULAS 1.6: H100, f = 2048.
    moe = {"experts": 384, "top_k": 16, "expert_ffn": 2048}
    contract = e1_contract({"ep": ep, "edp": 256 // ep}, model={"moe": moe})
    assert contract.row("ep.ratio.node.peak").predicted == pytest.approx(node, abs=5e-4)
    assert contract.row("ep.ratio.node.peak_endless").predicted == pytest.approx(endless, abs=5e-4)
    if net:
        assert contract.row("ep.ratio.net.peak").predicted == pytest.approx(net, abs=5e-4)


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({"routing": {"dispatch_bytes": 1.0}}, 2 / 1.5),
        ({"routing": {"dispatch_bytes": 1.0, "combine_bytes": 1.0}}, 2.0),
    ],
)
def test_ratio_follows_the_bytes_of_dispatch_and_combine(e1, changes, factor):
    # FORMULAS 1.6: coefficient 3/2 in BF16, 2 with FP8 dispatch, 3 with FP8 both ways.
    other = e1_contract(**changes).row("ep.ratio.net.peak").predicted
    assert other / e1.row("ep.ratio.net.peak").predicted == pytest.approx(factor, rel=1e-9)


def test_ratio_reached_is_what_is_measured_of_it(e1):
    """Rcc reached is the ratio of seconds, and the product of its factors (F1.6)."""
    for level in ("node", "net"):
        row = e1.row(f"ep.ratio.{level}.reached")
        product = 1.0
        for name, power in row.factors.items():
            product *= e1.row(name).predicted ** power
        assert row.predicted == pytest.approx(product, rel=1e-9)
    both = e1.row("ep.dispatch_s").predicted + e1.row("ep.combine_s").predicted
    # The slower level alone takes as long as both but for latencies, which E1 has not.
    assert e1.row("ep.ratio.net.reached").predicted == pytest.approx(e1.row("ep.expert_s").predicted / both, rel=1e-6)


@pytest.mark.parametrize(("states", "per_device"), [(2.0, 1.25e12), (4.0, 1.40625e12)])
def test_states_on_64_devices(states, per_device):
    # FORMULAS 1.2: 16 bytes or 18 with persistent FP32 gradients, over 64 devices.
    mapping = {"tp": 8, "cp": 8, "ep": 64, "recompute": "full"}
    from mapsearch.inventories.base import load_inventory
    from mapsearch.inventories.run import Run

    run = load_inventory(Run, "long-context-128k")
    run = run.replaced(state={**run.state.model_dump(exclude={"sources"}), "gradient_bytes": states})
    contract = contract_of(Mapping.model_validate(mapping), run=run, topology="asic-64")
    row = contract.row("state.ideal_device_bytes_nominal")
    assert row.predicted == pytest.approx(per_device, rel=1e-12)
    assert row.verdict == "broken"
    assert contract.verdict == "broken"


@pytest.mark.parametrize(("rate", "fp8_s", "bf16_s"), [(50e9, 100, 200), (100e9, 50, 100), (400e9, 12.5, 25)])
def test_transfer_of_published_weights(rate, fp8_s, bf16_s):
    # FORMULAS 1.7: 5 TB and 10 TB at 50, 100, 400 GB/s.
    for form, seconds in (("fp8-tensor", fp8_s), ("bf16", bf16_s)):
        pool = Pool(bytes_per_s=rate, replicas=4, weight_format=form)
        contract = contract_of(Mapping.model_validate(ASIC_MAPPING), pool=pool)
        assert contract.row("publish.transfer_s").predicted == pytest.approx(seconds, rel=1e-12)


def test_supply_of_rollout():
    # FORMULAS 1.8: 2^22 tokens at 1e5 per second are supplied in 41.94 s.
    pool = Pool(rollout_tokens_per_s=1e5)
    contract = e1_contract_with(pool, sequence_length=4096, global_batch=1024)
    step = contract.mapping.step_time_s
    assert contract.row("async.supply_s").predicted == pytest.approx(41.94, abs=5e-3)
    assert contract.row("async.wait_s").predicted == pytest.approx(41.94304 - step, abs=1e-5)
    assert contract.row("async.duty").predicted == pytest.approx(step / 41.94304, rel=1e-6)
    assert contract.row("async.rollout_tokens_per_s").verdict == "broken"


def e1_contract_with(pool, **run):
    from tiny_cases import E1_MAPPING, e1_facts

    facts = e1_facts(**run)
    wanted = Mapping.model_validate(E1_MAPPING)
    told = {"model": facts.model, "run": facts.run, "topology": facts.fabric, "profile": facts.profile}
    return contract_of(wanted, **told, pool=pool)
