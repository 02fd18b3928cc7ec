"""Verdicts on cases: named outcomes of published reports, what is missing, and what the judgement may not read."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from mapsearch.costs.parameters import ledger
from mapsearch.inventories.case import Case, is_case
from mapsearch.judging.devices import hardware_of
from mapsearch.judging.judge import judge
from mapsearch.judging.models import _shapes, known_model, shape_of
from mapsearch.judging.words import billions_in, said

H100 = {"gpu": "H100", "mem_gb": 80, "gpus_per_node": 8}


def case(**parts) -> Case:
    return Case.model_validate({"model": {}, "hardware": {}, "mapping": {}, "run": {}} | parts)


def verdict(**parts):
    return judge(case(**parts))


def hy3(gpus, **mapping):
    """PEERS A6 (NVIDIA-NeMo/Automodel pull request 2546), H100 nodes of 8."""
    return verdict(
        source="https://github.com/NVIDIA-NeMo/Automodel/pull/2546",
        model={"name": "Hy3"},
        hardware={**H100, "gpus": gpus},
        mapping=mapping,
        run={"micro_batch": 1, "seq": 4096},
    )


def test_a6_hy3_pp4_ep8_on_32_devices_runs_out_of_memory_in_its_states():
    found = hy3(32, pp=4, ep=8)
    assert (found.verdict, found.relation) == ("out of memory", "states")
    assert "EP 8 leaves expert DP 1" in found.because


def test_a6_hy3_twice_the_devices_as_replicas_still_run_out_of_memory():
    found = hy3(64, pp=4, ep=8, dp_replicate=2)
    assert (found.verdict, found.relation) == ("out of memory", "states")


def test_a6_hy3_pp4_ep16_fits_but_its_exchange_leaves_the_node():
    found = hy3(64, pp=4, ep=16)
    assert found.verdict in ("feasible", "slow")
    assert "ep_crosses" in found.relations
    assert any("EP 16 spans 16 ranks, more than the 8" in one.sentence for one in found.found)


def test_a6_hy3_pp8_ep8_trains():
    found = hy3(64, pp=8, ep=8)
    assert found.verdict == "feasible"
    assert "ep_crosses" not in found.relations


def test_c21_the_expert_exchange_across_racks_is_named():
    """PEERS C21: EP over more than one rack of 72 stalls; inside one it does not."""
    racks = {"gpu": "GB300", "gpus_per_node": 4, "nvlink_domain": 72}
    across = verdict(hardware=racks, mapping={"ep": 128})
    assert (across.verdict, across.relation) == ("slow", "ep_crosses")
    assert "EP 128 spans 128 ranks, more than the 72" in across.because
    assert "ep_crosses" not in verdict(hardware=racks, mapping={"ep": 64}).relations
    whole = {"model": {"name": "DeepSeek-V3"}, "hardware": {**racks, "gpus": 256}, "run": {"seq": 4096}}
    assert "ep_crosses" in verdict(**whole, mapping={"pp": 2, "ep": 128}).relations
    assert "ep_crosses" not in verdict(**whole, mapping={"pp": 4, "ep": 64}).relations


def test_b14_tp8_pp8_ep8_on_64_devices_is_legal():
    found = verdict(
        source="https://github.com/NVIDIA/Megatron-LM/issues/1",
        model={"name": "Qwen3-235B-A22B", "layers": 96, "kv_heads": 8},
        hardware={"gpu": "H200", "gpus": 64, "gpus_per_node": 8},
        mapping={"tp": 8, "pp": 8, "ep": 8, "etp": 1},
        run={"framework": "megatron", "micro_batch": 1, "seq": 4096},
    )
    assert found.verdict == "feasible", found.because
    assert "megatron_folding" in found.relations
    old = verdict(
        model={"layers": 96},
        hardware={"gpus": 64},
        mapping={"tp": 8, "pp": 8, "ep": 8, "etp": 1},
        run={"framework": "megatron@0.9"},
    )
    assert (old.verdict, old.relation) == ("infeasible", "megatron_folding")


@pytest.mark.parametrize(("more", "legal"), [({}, False), ({"first_stage_layers": 6}, True), ({"layout": "L*7"}, True)])
def test_d27_30_layers_on_pp4_need_a_layout(more, legal):
    found = verdict(source="github.com/NVIDIA/Megatron-LM/issues/1304", model={"layers": 30}, mapping={"pp": 4, **more})
    assert (found.relation != "even_stages") is legal
    if not legal:
        assert found.verdict == "infeasible"
        assert "7 per chunk make 28, 2 are left over" in found.because


def test_b17_256_experts_on_ep3_do_not_divide():
    for gpus in (6, 8):
        found = verdict(
            source="https://github.com/vllm-project/vllm/issues/52435",
            model={"experts": 256, "topk": 8},
            hardware={"gpus": gpus},
            mapping={"ep": 3},
        )
        assert (found.verdict, found.relation) == ("infeasible", "experts_divide")
        assert "256 routed experts do not split evenly over EP 3: 1 left over" in found.because


# --- what may be read, and what is missing -------------------------------------------------------------------------

FULL = {
    "source": "https://github.com/NVIDIA/Megatron-LM/issues/783",
    "model": {"name": "Llama-2-70B"},
    "hardware": {**H100, "gpus": 8},
    "mapping": {"tp": 8},
    "run": {"seq": 4096, "micro_batch": 1, "recompute": "full"},
}


def test_what_came_of_a_case_is_never_read():
    told = {"verdict": "feasible", "because": "x", "what_happened": "ran", "relation": "x"}
    assert verdict(**FULL) == verdict(**FULL, **told, known_numbers={"peak_gb": 1})


def test_the_same_case_gives_the_same_bytes():
    assert verdict(**FULL).to_json() == verdict(**FULL).to_json()


def test_missing_facts_are_listed_and_tried():
    few = {**FULL, "hardware": {"gpus": 32}, "mapping": {"tp": 8, "dp": 4, "zero": 2}, "run": {"seq": 4096}}
    found = verdict(**few)
    assert (found.verdict, found.relation, found.firm) == ("undetermined", "hardware.mem_gb", False)
    assert {one.fact for one in found.missing} == {"hardware.mem_gb", "run.micro_batch", "run.recompute"}
    tried = {one.value: one.verdict for one in found.tried}
    assert tried == {"40": "out of memory", "80": "feasible", "141": "feasible"}
    assert "out of memory at 1, feasible at 2" in found.because


def test_a_verdict_that_all_values_share_is_given():
    found = verdict(**{**FULL, "hardware": {"gpus": 1}, "mapping": {"tp": 1}})
    assert (found.verdict, found.firm) == ("out of memory", True)
    assert "at every legal value of hardware.mem_gb" in found.because


def test_nothing_said_is_undetermined():
    found = verdict()
    assert (found.verdict, found.relation) == ("undetermined", "model")


@pytest.mark.parametrize(
    ("run", "relation"),
    [({"phase": "cold start"}, "routing_imbalance"), ({}, "hbm")],
)
def test_an_untrained_router_needs_room_for_imbalance(run, relation):
    found = verdict(
        source="github.com/NVIDIA-NeMo/Megatron-Bridge",
        model={"name": "Qwen3-30B-A3B"},
        hardware={**H100, "gpus": 16},
        mapping={"ep": 16, "tp": 1},
        run={"seq": 4096, "micro_batch": 1, "recompute": "none", **run},
    )
    assert found.relation == relation, found.because


def test_host_memory_of_a_node():
    offload = {"seq": 4096, "optimizer_cpu_offload": True, "task": "RL"}
    facts = {**FULL, "model": {"name": "Qwen3-30B-A3B"}, "mapping": {"ep": 8, "etp": 1}, "run": offload}
    assert verdict(**facts).relation == "hardware.host_gb"
    small = verdict(**{**facts, "hardware": {**H100, "gpus": 8, "host_gb": 900}})
    assert (small.verdict, small.relation) == ("out of memory", "host_memory")
    assert verdict(**{**facts, "hardware": {**H100, "gpus": 8, "host_gb": 2000}}).verdict == "feasible"


def test_a_captured_iteration_needs_room_in_the_allocator():
    run = {"seq": 4096, "micro_batch": 8, "precision": "mxfp8"}
    facts = {
        "source": "github.com/NVIDIA-NeMo/Megatron-Bridge",
        "model": {"name": "Qwen3-30B-A3B"},
        "hardware": {"gpu": "B300", "gpus": 8},
        "mapping": {"tp": 1, "ep": 8},
    }
    captured = verdict(**facts, run={**run, "cuda_graph": "full iteration"})
    assert (captured.verdict, captured.relation) == ("out of memory", "allocator")
    assert verdict(**facts, run={**run, "recompute": "none"}).verdict == "feasible"


# --- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "number"),
    [(8, 8), ("> 5000", 5001), (">1", 2), ("2 intended", 2), ("4 x nodes", 32), ("large", None), ("128k", 131072)],
)
def test_numbers_as_people_write_them(given, number):
    found = said(given, nodes=8)
    assert (found.value if found else None) == number


def test_parameters_in_names():
    assert billions_in("Qwen2.5-32B") == 32
    assert billions_in("BERT 1-10 B") == pytest.approx(10**0.5)
    assert billions_in("gpt-oss") is None


def test_known_shapes_have_the_published_parameters():
    for name, shape in _shapes().items():
        assert ledger(model=known_model(name)).total / 1e9 == pytest.approx(shape["billions"], rel=0.03), name


@pytest.mark.parametrize(
    ("given", "name", "billions"),
    [
        ({"name": "Qwen3-235B-A22B"}, "qwen3-235b", 235),
        ({"name": "DeepSeek-V3 first 8 layers"}, "deepseek-v3", 61),
        ({"name": "14 B dense (Qwen class)"}, "14 B dense (Qwen class)", 14),
        ({"layers": 32, "hidden": 4096, "params_b": 7}, "model", 7),
        ({"layers": 32, "hidden": 4096, "params_b": 46.7, "experts": 8, "topk": 2}, "model", 46.7),
    ],
)
def test_models_by_name_or_by_numbers(given, name, billions):
    model = shape_of(case(model=given).model).model
    assert model is not None and model.name == name
    assert ledger(model=model).total / 1e9 == pytest.approx(billions, rel=0.08)


def test_an_unknown_device_is_said_and_judged_by_its_memory():
    found = hardware_of(case(hardware={"gpu": "H10O", "mem_gb": 80}).hardware)
    assert found.kind is None and found.memory_bytes is not None
    assert "'H10O' is not a known device (did you mean 'H100'?)" in found.notes[0]


def test_a_slip_of_a_key_is_refused_and_a_strange_one_noted():
    with pytest.raises(ValidationError, match="did you mean 'kv_heads'"):
        case(model={"kv_head": 8})
    assert any("not read: run.weather" in note for note in verdict(run={"weather": "fine"}).notes)


def test_other_words_for_a_key_are_read():
    read = case(run={"seq_len": 8192, "micro_batch_size": 2}, model={"top_k": 4}, mapping={"edp": 2})
    assert (read.run.seq, read.run.micro_batch, read.model.topk, read.mapping.unread) == (8192, 2, 4, [])


def test_what_is_a_case():
    assert is_case({"model": {}, "hardware": {}, "mapping": {}, "run": {}})
    assert not is_case({"tp": 8, "dp": 2})
    assert not is_case(["mapping"])


def test_the_transcribed_cases():
    """Every decided case right, none that runs refused; the figures are in the documentation."""
    from benchmarks.verdicts import CASES, compared, summary

    told = summary(compared(CASES))
    assert told["n"] == 45
    assert told["wrong"] == [] and told["feasible_but_refused"] == []
    assert told["cause_right"] >= 0.9 * (told["n"] - told["undecidable"])
    assert told["undecidable"] <= 10
