"""Published rows become cases, or are refused with a reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapsearch.axes import CpKind, Dispatcher, Recompute, Schedule
from mapsearch.calibration.measured import DEFINITIONS, flops_per_step
from mapsearch.calibration.predict import (
    candidates_that_fit,
    point_for,
    point_step_s,
    predict,
    predict_memory,
    predict_step_s,
    profile_of,
    with_profile,
)
from mapsearch.calibration.rows import Case, Refused, case_of, load_cases, read_rows
from mapsearch.costs import parameters
from mapsearch.costs.estimate import estimate
from mapsearch.costs.placement import rows_of
from mapsearch.costs.views import Facts
from mapsearch.records import Record

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"


@pytest.fixture(scope="module")
def published() -> tuple[list[Case], list[Refused]]:
    return load_cases(PUBLISHED)


def made(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> Case:
    found = case_of(row, hardware)
    assert isinstance(found, Case), found
    return found


def one(published: tuple[list[Case], list[Refused]], name: str) -> Case:
    return next(case for case in published[0] if case.id == name)


def test_every_row_is_a_case_or_refused_with_a_reason(published: tuple[list[Case], list[Refused]]) -> None:
    rows, _ = read_rows(PUBLISHED)
    cases, refused = published
    assert len(rows) == 1058
    assert sorted([*(c.id for c in cases), *(r.id for r in refused)]) == sorted(row["id"] for row in rows)
    assert all(one.reason and one.kind in ("not represented", "incomplete", "not measured") for one in refused)
    assert len(cases) > 840


def test_every_case_stands_on_exactly_its_devices(published: tuple[list[Case], list[Refused]]) -> None:
    counts = {row["id"]: row["hardware"]["devices"] for row in read_rows(PUBLISHED)[0]}
    for case in published[0]:
        assert case.fabric.devices == counts[case.id], case.id
        for mapping in case.mappings:
            assert mapping.devices == case.devices, case.id
            assert math.prod(rows_of(mapping, case.fabric).used) == case.devices


def test_a_row_in_full(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> None:
    case = made(row, hardware)
    (mapping,) = case.mappings
    assert (mapping.tp, mapping.pp, mapping.dp, mapping.edp, mapping.vpp) == (2, 2, 4, 8, 4)
    assert mapping.schedule == Schedule.INTERLEAVED
    assert (case.fabric.fan_outs, case.fabric.device.peak("bf16")) == ((8, 2), 989.5e12)
    assert case.run.state.gradient_bytes == 4.0
    assert case.measured.step_time_s == 4.0


@pytest.mark.parametrize(
    ("measured", "seconds"),
    [
        # 64 sequences of 8192 tokens are 524,288 tokens; on 16 devices 32,768 each.
        ({"tokens_per_s_per_gpu": 8192.0}, 4.0),
        ({"tokens_per_s_total": 131072.0}, 4.0),
        ({"samples_per_s": 16.0}, 4.0),
        ({"samples_per_s_per_gpu": 1.0}, 4.0),
    ],
)
def test_rates_by_hand(
    row: dict[str, Any], hardware: dict[str, dict[str, Any]], measured: dict[str, Any], seconds: float
) -> None:
    row["measured"] = measured
    assert made(row, hardware).measured.step_time_s == pytest.approx(seconds)


def test_flops_definitions_by_hand(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> None:
    """Llama-3 8B at 8192: 7.5 G weights in products; attention 32 x 4 x 4096 x 8192 = 4.29 GFLOP forward, whole."""
    case = made(row, hardware)
    layer = 4096 * 128 * 2 * (32 + 8) + 3 * 4096 * 14336
    head = 4096 * 128256
    linear, square = 2.0 * (32 * layer + head), 32 * 4.0 * 4096 * 8192
    tokens = 64 * 8192
    expected = {
        "causal": 3 * (linear + square / 2),
        "whole square": 3 * (linear + square),
        "sc21": 3 * (linear + square),
        "sc21 with recompute": 4 * (linear + square - 2 * head) + 6 * head,
        "6N": 3 * linear,
    }
    for name, value in expected.items():
        assert DEFINITIONS[name](case.model, case.run, 0) == pytest.approx(tokens * value, rel=1e-12), name


def test_a_published_rate_in_flops(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> None:
    row["measured"] = {"tflops_per_gpu": 400.0, "flops_definition": "hardware FLOPs incl. recompute"}
    row["recompute"] = "full"
    case = made(row, hardware)
    assert case.measured.step_time_s == pytest.approx(
        flops_per_step(row, case.model, case.run, int(Recompute.FULL)) / (16 * 400e12)
    )
    row["measured"] = {"mfu": 0.4, "mfu_peak_tflops": 1000.0}
    assert made(row, hardware).measured.step_time_s == pytest.approx(
        DEFINITIONS["causal"](case.model, case.run, 0) / (16 * 400e12)
    )


def test_printed_flops_agree_with_the_printed_times(published: tuple[list[Case], list[Refused]]) -> None:
    """Sources that print both: our count of FLOP over the printed time is the printed rate."""
    rows = {row["id"]: row for row in read_rows(PUBLISHED)[0]}
    checked = {
        "bigscience_a100": 0.04,
        "llm_foundry": 0.02,
        "megascale_2402.15627": 0.02,
        "megatron_bridge_skills": 0.02,
    }
    seen: dict[str, int] = {}
    for case in published[0]:
        rate, within = rows[case.id]["normalized"].get("tflops_per_gpu"), checked.get(case.groups.source)
        if not rate or within is None or case.measured.step_time_basis in ("tflops_per_gpu", "mfu"):
            continue
        flops = flops_per_step(rows[case.id], case.model, case.run, int(case.mappings[-1].recompute))
        assert flops / (case.measured.step_time_s * case.devices * 1e12) == pytest.approx(rate, rel=within), case.id
        seen[case.groups.source] = seen.get(case.groups.source, 0) + 1
    assert min(seen.values()) > 10 and set(seen) == set(checked)


def test_what_a_row_does_not_say_is_enumerated(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> None:
    row["batch"]["micro_batch_seqs"] = None
    row["mapping"] |= {"vpp": None, "vpp_published": False}
    row["recompute"] = "unknown"
    case = made(row, hardware)
    # 64 sequences over DP 4 are 16 per replica; 32 layers on 2 stages are 16; recompute none, core, full.
    assert {m.micro_batch for m in case.mappings} == {1, 2, 4, 8}
    assert {m.vpp for m in case.mappings} == {1, 2, 4, 8}
    assert len(case.mappings) == 4 * 4 * 3
    profile = profile_of(case)
    assert profile is not None
    found = predict(case, profile)
    assert found.least_s <= found.step_time_s <= found.most_s
    assert found.candidates == len(candidates_that_fit(case, profile)) < len(case.mappings)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"precision": "int8"}, "not represented", "int8"),
        ({"workload": "lora"}, "not represented", "LoRA"),
        ({"measured": {}}, "not measured", "neither time nor memory"),
        ({"batch": {"global_batch_seqs": None}}, "incomplete", "global_batch_seqs"),
        ({"mapping": {"tp": 3, "pp": 1, "dp": 5}}, "incomplete", "does not divide"),
        ({"mapping": {"tp": 2, "pp": 8, "dp": 1, "vocab_method": "interlaced"}}, "not represented", "interlaced"),
        ({"mapping": {"tp": 2, "pp": 8, "dp": 1, "pp_schedule": "chimera"}}, "not represented", "chimera"),
    ],
)
def test_refusals(
    row: dict[str, Any], hardware: dict[str, dict[str, Any]], change: dict[str, Any], kind: str, words: str
) -> None:
    found = case_of(row | change, hardware)
    assert isinstance(found, Refused)
    assert found.kind == kind and words in found.reason


def test_hybrid_models_are_refused(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> None:
    row["model"]["arch"] = "hybrid_mamba_moe"
    found = case_of(row, hardware)
    assert isinstance(found, Refused) and found.kind == "not represented"


NEMOTRON = "nemo_perf_summary/24.09-H100-nemotron-8b-64-gbs256"


def test_customs_of_frameworks(published: tuple[list[Case], list[Refused]]) -> None:
    bridge = one(
        published, "megatron_bridge_perf/26.08-pretrain-gpt-oss-120b-GB300-64-fp8_mx-gbs1280-mbs4-tp1pp1cp1vp1ep16"
    )
    assert (bridge.run.precision, bridge.run.state.gradient_bytes) == ("mxfp8", 2.0)
    assert bridge.model.sliding_window is not None and bridge.model.sliding_window.layers == 18
    bloom = one(published, "bigscience_a100/L802-181B-tp4pp12dp8-mbs2-gbs2048-h64")
    assert (bloom.run.precision, bloom.run.overlap.grad_reduce, bloom.mappings[0].recompute) == ("fp16", False, 64)
    assert bloom.measured.memory_kind == "device"
    mpt = one(published, "llm_foundry/13b-A100-80GB-8-s8192-mbs5-gbs120-bf16-FULL_SHARD")
    assert (mpt.mappings[0].zero, mpt.mappings[0].micro_batch, mpt.run.state.gradient_reduce_bytes) == (3, 5, 4.0)
    # Rows that name a model without its shape: as many parameters as the names say.
    for name, size in (("kempnerforge/cfg-29b_32gpu_tp4_pp2", 28.7e9), (NEMOTRON, 8.5e9)):
        model = one(published, name).model
        ends = parameters.embedding_parameters(1, model=model) + parameters.output_parameters(1, model=model)
        layers = model.layers * parameters.dense_layer_parameters(1, model=model)
        assert float(layers + ends) == pytest.approx(size, rel=0.02)
    # 1,536 sequences on 256 chips of two JAX devices: six per chip at once.
    ironwood = one(published, "tpu_ironwood/llama3.1-405b-256-8192-bf16")
    assert (ironwood.mappings[0].dp, ironwood.mappings[0].micro_batch) == (256, 6)
    deepseek = one(published, "megatron_lm_moe_recipes/deepseek_v3-mxfp8_256GPU_TP1PP4EP64-GB200")
    assert deepseek.mappings[0].dispatcher == Dispatcher.DEDUPLICATED
    assert deepseek.run.overlap.expert_all_to_all and deepseek.run.state.moment_bytes == 4.0
    assert deepseek.mappings[0].recompute == Recompute.MLA_UP
    assert deepseek.fabric.fan_outs == (64, 4)
    llama = one(published, "mlperf_llama31_405b/v5.0-NVIDIA-eos-dfw_n1024_ngc25.01_nemo")
    assert llama.run.state.fp8_primary_weights and llama.mappings[0].cp_kind == CpKind.RING
    assert llama.measured.memory_place == "first"
    folded = one(published, "moe_parallel_folding_2504.14960/t1-mixtral-8x22b-128-mcore")
    assert folded.tuned and len(folded.mappings) > 1 and folded.mappings[0].etp == 2
    assert not one(published, "moe_parallel_folding_2504.14960/t1-mixtral-8x22b-128-fsdp").tuned
    maxtext = one(published, "tpu_v5p/llama4-maverick")
    assert (maxtext.model.moe_period, maxtext.model.moe_layers) == (2, 24)
    assert maxtext.fabric.levels[0].kind == "torus"


@pytest.mark.parametrize(
    ("name", "graphs", "overlap", "dispatcher", "fused"),
    [
        # A helper and a recipe that capture the iteration, one that says so, and one of 25.09 that drops tokens.
        ("26.08-pretrain-qwen3-30b-a3b-GB200-8-fp8_mx-gbs512-mbs4-tp1pp1cp1vp1ep8", ["all"], True, 3, True),
        ("26.08-pretrain-gpt-oss-120b-GB300-64-fp8_mx-gbs1280-mbs4-tp1pp1cp1vp1ep16", ["all"], True, 3, True),
        ("26.06-pretrain-deepseek-v3-GB200-256-fp8_mx-gbs4096-mbs1-tp1pp4cp1vp4ep64", ["all"], True, 3, True),
        ("25.09-pretrain-qwen3-30b-a3b-B200-8-fp8_cs-gbs512-mbs1-tp1pp1cp1vp1ep8", ["all"], False, 0, False),
        ("25.09-pretrain-qwen3-235b-a22b-H100-256-fp8_cs-gbs2048-mbs1-tp2pp8cp1vp4ep32", [], False, 0, False),
        # Joined with the recipe of another mapping, whose flag says that nothing is hidden.
        ("26.04.01-pretrain-deepseek-v3-B200-256-fp8_mx-gbs4096-mbs1-tp1pp8cp1vp2ep32", [], True, 3, False),
    ],
)
def test_what_bridge_recipes_set(
    published: tuple[list[Case], list[Refused]],
    name: str,
    graphs: list[str],
    overlap: bool,
    dispatcher: int,
    fused: bool,
) -> None:
    case = one(published, f"megatron_bridge_perf/{name}")
    run = case.run
    assert (run.graphs, run.overlap.expert_all_to_all, run.fused_experts) == (graphs, overlap, fused)
    assert (case.mappings[0].dispatcher, run.routing.dispatch_bytes) == (dispatcher, 2.0)


def test_how_states_are_sharded_and_tokens_dealt(published: tuple[list[Case], list[Refused]]) -> None:
    hybrid = one(published, "internevo/7b-tp1-zero1_8-1024")
    assert (hybrid.run.shard_replicas, hybrid.run.data_parallel_unit) == (128, "tensor")
    assert one(published, "internevo/7b-tp1-zero1_-1-1024").run.shard_replicas == 1
    assert one(published, "fms_fsdp/7b-A100-80GB").run.shard_replicas == 16
    assert one(published, "maxtext_tpu_v5/v5p-64b-2x128").run.shard_replicas == 2
    dealt = one(published, "nemo_automodel/pretrain-gpt-oss-120b-64")
    assert dealt.run.routing.consecutive and dealt.mappings[0].ep == 64
    assert one(published, "torchtitan/8b-cp1-32768").run.attention_kernel == "flash-2"


def test_pipelines_that_a_row_leaves_open(published: tuple[list[Case], list[Refused]]) -> None:
    # 126 layers and two slots for embedding and loss on 16 stages; torchtitan's default number of microbatches.
    herd = one(published, "llama3_herd_2407.21783/405b-16384-cp16")
    assert {mapping.vpp for mapping in herd.mappings} == {1, 2, 4, 8}
    titan = one(published, "torchtitan/405b-4d-cp1-32768")
    assert {mapping.micro_batch for mapping in titan.mappings} == {1}


def test_what_frameworks_hold(published: tuple[list[Case], list[Refused]]) -> None:
    """States, losses and shapes as the rows, or the sources of their frameworks, say."""
    bf16 = one(published, "bigscience_a100/L950-176B-tp4pp12dp8-mbs4-gbs2048-h64")
    assert bf16.run.state.gradient_bytes == 6.0
    hopper = one(published, "mlperf_llama31_405b/v5.0-NVIDIA-eos-dfw_n64_ngc25.01_nemo")
    blackwell = one(published, "mlperf_llama31_405b/v5.0-IBM+CoreWeave+NVIDIA-carina_ngpu512_ngc25.04_nemo")
    assert (hopper.run.state.fp8_weight_copies, blackwell.run.state.fp8_weight_copies) == (2.0, 1.0)
    forge = one(published, "kempnerforge/mfu-7-7B-8")
    assert (forge.run.loss_bytes, forge.run.sequence_parallel, forge.measured.memory_kind) == (32.0, True, "allocated")
    assert forge.run.state.unsharded_bytes == 4.0 and forge.run.state.moment_bytes == 4.0
    piped = one(published, "torchtitan/405b-512-1f1b")
    assert (piped.run.loss_bytes, piped.run.state.unsharded_bytes, piped.mappings[0].micro_batch) == (16.0, 5.0, 4)
    moonlight = one(published, "megatron_bridge_skills/moonlight-16b-none")
    assert moonlight.run.state.moment_bytes == 4.0
    assert moonlight.measured.memory_bytes == pytest.approx(36.618e9)
    bubble = one(published, "zero_bubble_2401.10241/1f1b-1.5b-m24")
    assert bubble.model.dropout and not bubble.run.flash_attention
    assert one(published, "simumax_b200/llama3_405b_l4_tp2_pp1_dp4_mbc4_cef").model.kv_heads == 16
    assert one(published, "simumax_b200/deepseekv2_tp1_ep8_pp1_dp8_l4_mbc4_cef").model.dense_first == 1
    assert one(published, "moe_parallel_folding_2504.14960/t1-llama3-8x70b-256-fsdp").built_whole


def test_a_prediction_is_the_estimate(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> None:
    case = made(row, hardware)
    profile = profile_of(case)
    assert profile is not None
    full = estimate(case.mappings[0], Facts(case.model, case.run, case.fabric, profile))
    assert predict(case, profile).step_time_s == pytest.approx(full.step_time_s, rel=1e-12)
    memory = predict_memory(case, case.mappings[0], profile)
    assert memory.needed == pytest.approx(full.peak_memory_bytes, rel=1e-12)


def stacked(records: Sequence[Any]) -> Any:
    """Several profiles as one whose numbers are arrays of shape (sets, 1), as the fit makes of several factors."""
    first = records[0]
    values: dict[str, Any] = {}
    for name in type(first).model_fields:
        column = [getattr(record, name) for record in records]
        if isinstance(column[0], Record):
            values[name] = stacked(column)
        elif isinstance(column[0], float | int) and not isinstance(column[0], bool):
            values[name] = np.array(column, dtype=np.float64)[:, None]
        else:
            # A peak that some sets leave out cannot be stacked beside numbers.
            if name == "high_bandwidth_peak" and any(value is not None for value in column):
                filled = [r.peak if r.high_bandwidth_peak is None else r.high_bandwidth_peak for r in records]
                values[name] = np.array(filled, dtype=np.float64)[:, None]
                continue
            values[name] = column[0]
    return type(first).model_construct(**values)


@pytest.mark.parametrize("every", [11])
def test_a_stacked_profile_is_every_profile_at_once(published: tuple[list[Case], list[Refused]], every: int) -> None:
    for case in published[0][::every]:
        profile = profile_of(case)
        if profile is None:
            continue
        curve = profile.gemm.model_copy(update={"peak": 0.5 * profile.gemm.peak})
        link = profile.all_gather.model_copy(update={"peak": 0.3, "high_bandwidth_peak": 0.2, "launch": 1e-4})
        slower = profile.model_copy(
            update={
                "gemm": curve,
                "all_gather": link,
                "kernel_launch": 1e-5,
                "overlap_slowdown": 0.5,
                "tp_overlap": 0.1,
            }
        )
        mapping = case.mappings[0]
        both = predict_step_s(case, mapping, stacked([profile, slower]))
        alone = [predict_step_s(case, mapping, each)[0] for each in (profile, slower)]
        np.testing.assert_allclose(both, alone, rtol=1e-12)
        assert alone[1] > alone[0], case.id
        kept = point_step_s(with_profile(point_for(case, mapping, profile), slower))
        assert float(kept[0]) == alone[1]
