"""Every export says the same mapping when it is read again, or says what it cannot say."""

from __future__ import annotations

import re

import launch_plans as plans
import pytest

from mapsearch.inputs import read_inputs
from mapsearch.inventories.layouts import read_layout
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.models import load_model
from mapsearch.inventories.run import Run
from mapsearch.launching.api import FORMATS, KINDS, export, written
from mapsearch.launching.launch import COMPARED, Plan, canonical, differing, mapping_of
from mapsearch.launching.settings import layout_text

MEGATRON_SEARCHES = plans.NAMES[:3]


@pytest.mark.parametrize("to", sorted(KINDS))
@pytest.mark.parametrize("name", plans.NAMES)
def test_twenty_solved_mappings_round_trip(name, to):
    inputs, mappings = plans.solved(name)
    assert len(mappings) == 20
    for ranked in mappings:
        mapping = plans.mapping_of(ranked)
        found = export(mapping, to, **inputs)
        again = mapping_of(KINDS[to].read(found.text, {}), devices=mapping.devices)
        model, run = plan_facts(inputs)
        other = set(differing(canonical(mapping, model, run), canonical(again, model, run)))
        assert other == {one.what for one in found.unexpressed} & set(COMPARED)
        assert found.same == (not other)
        assert all(f"not expressed: {one.what} {one.value}" in found.text for one in found.unexpressed)


def plan_facts(inputs):
    return load_model(inputs["model"]), inputs["run"]


@pytest.mark.parametrize("to", ["megatron", "bridge"])
@pytest.mark.parametrize("name", MEGATRON_SEARCHES)
def test_megatron_says_all_of_what_it_was_searched_for_and_accepts_it(name, to):
    inputs, mappings = plans.solved(name)
    for ranked in mappings:
        found = export(plans.mapping_of(ranked), to, **inputs)
        assert found.same
        assert found.refused == []
        assert {one.what for one in found.unexpressed} <= {"placement"}


def test_the_searches_hold_what_they_are_there_for():
    told = {name: [plans.mapping_of(one) for one in plans.solved(name)[1]] for name in plans.NAMES}
    assert all(one.zero == 3 and one.offload for one in told["moe-5t sharded"][:3])
    assert all(one.vpp > 1 for one in told["moe-5t interleaved"])
    assert all(one.pp > 1 and 61 % (one.pp * one.vpp) for one in told["deepseek-v3 layouts"])
    assert len({one.schedule for one in told["mixtral everything"]}) >= 1


@pytest.mark.parametrize("block", range(10))
def test_random_mappings_lose_exactly_what_is_said(block):
    for seed in range(40 * block, 40 * (block + 1)):
        mapping, model, run = plans.random_plan(seed)
        plan = Plan.of(mapping, model, run)
        for kind in FORMATS:
            found = written(kind, plan)
            said = [one.what for one in found.draft.unexpressed]
            assert len(said) == len(set(said)), (seed, kind.name)
            other = set(differing(plan.mapping, found.mapping))
            assert other == set(said) & set(COMPARED), (seed, kind.name)


def test_a_file_that_says_something_else_is_a_bug_and_is_not_handed_out():
    inputs, mappings = plans.solved("moe-5t sharded")
    model, run = plan_facts(inputs)
    plan = Plan.of(plans.mapping_of(mappings[0]), model, run)
    kind = KINDS["megatron"]

    def wrong(one):
        text, draft = kind.write(one)
        return text.replace(f"--context-parallel-size {one.mapping.cp}", "--context-parallel-size 1"), draft

    with pytest.raises(RuntimeError, match="reads back with another cp"):
        written(type(kind)(**{**vars(kind), "write": wrong}), plan)


FLAGS_THAT_MATTER = (
    "tensor-model-parallel-size",
    "context-parallel-size",
    "expert-model-parallel-size",
    "cp-comm-type",
    "moe-token-dispatcher-type",
    "recompute-granularity",
    "use-megatron-fsdp",
    "optimizer-cpu-offload",
    "overlap-param-gather",
)


@pytest.mark.parametrize("flag", FLAGS_THAT_MATTER)
def test_every_flag_of_the_mapping_is_read(flag):
    inputs, mappings = plans.solved("moe-5t sharded")
    ranked = next(one for one in mappings if one.choices["cp_kind"] == "all-gather")
    text = export(plans.mapping_of(ranked), "megatron", **inputs).text
    text = text.replace("dispatcher-type allgather", "dispatcher-type alltoall")  # allgather is the default
    without = re.sub(rf"^  --{flag}( .*)?\n", "", text, flags=re.M)
    assert without != text
    model, run = plan_facts(inputs)
    read = [mapping_of(KINDS["megatron"].read(one, {}), devices=4096) for one in (text, without)]
    assert differing(*(canonical(one, model, run) for one in read))


@pytest.mark.parametrize(
    ("chunks", "mtp", "text"),
    [
        ((3, 4, 4, 3), 0, "Ettt|(tttt|)*2tttL"),
        ((1, 2, 2, 2, 1), 1, "Et|(tt|)*3tmL"),
        ((0, 2, 2), 0, "E|tt|ttL"),
        ((5,), 0, "EtttttL"),
    ],
)
def test_layouts_in_megatrons_letters(chunks, mtp, text):
    assert layout_text(chunks, mtp) == text
    assert read_layout(text) == list(chunks)


def test_an_interleaved_layout_is_written_chunk_by_chunk_and_read_stage_by_stage():
    """61 layers on PP 4 x VPP 2: stages of 16, 15, 15, 15 are chunks of 8, 8, 8, 8, 8, 7, 7, 7."""
    model, run = load_model("deepseek-v3"), Run(sequence_length=4096, global_batch=64)
    sizes = {"pp": 4, "vpp": 2, "schedule": "interleaved", "layout": [16, 15, 15, 15]}
    found = written(KINDS["megatron"], Plan.of(Mapping.model_validate(sizes), model, run))
    assert found.same
    assert "--pipeline-model-parallel-layout 'E" in found.text
    layout = re.search(r"layout '([^']+)'", found.text)[1]
    assert read_layout(layout) == [8, 8, 8, 8, 8, 7, 7, 7]
    assert layout.endswith("mL")  # its MTP module stands before the loss


def test_what_no_other_framework_has_is_said_with_what_it_does_instead():
    model, run = load_model("mixtral-8x7b"), Run(sequence_length=4096, global_batch=64)
    chosen = {
        "pp": 4, "dp": 2, "edp": 2, "schedule": "zb-h1", "offload": "optimizer+nvme", "recompute_stages": 2,
        "recompute": "full",
    }  # fmt: skip
    found = written(KINDS["megatron"], Plan.of(Mapping.model_validate(chosen), model, run))
    said = {one.what: (one.value, one.why) for one in found.draft.unexpressed}
    assert said["schedule"] == ("zb-h1", "Megatron core runs 1F1B, and interleaved 1F1B with virtual stages")
    assert said["offload"][0] == "optimizer+nvme"
    assert said["recompute_stages"][0] == "2"
    assert set(said) == {"schedule", "offload", "recompute_stages"}


def test_mindspeed_takes_its_own_flags_where_it_has_them():
    model, run = load_model("deepseek-v3"), Run(sequence_length=4096, global_batch=128)
    chosen = {
        "tp": 2, "pp": 4, "dp": 8, "ep": 16, "schedule": "dualpipe-v", "offload": "optimizer",
        "recompute": "norm+activation", "layout": [8, 8, 8, 8, 8, 7, 7, 7], "overlap": "none",
    }  # fmt: skip
    text, draft = KINDS["mindspeed"].write(Plan.of(Mapping.model_validate(chosen), model, run))
    flags = set(re.findall(r"--[\w-]+", text))
    own = {"--schedules-method", "--swap-optimizer", "--recompute-norm", "--recompute-activation-function"}
    assert own <= flags
    assert not flags & {"--overlap-grad-reduce", "--optimizer-cpu-offload", "--recompute-modules"}
    assert {one.what for one in draft.unexpressed} == {"layout", "overlap.grad_reduce"}


def test_rules_of_another_framework_are_held_against_the_mapping():
    inputs, mappings = plans.solved("moe-5t sharded")
    found = export(plans.mapping_of(mappings[0]), "deepspeed", **inputs)
    assert found.framework == "deepspeed"
    assert "deepspeed_dispatcher" in {one.relation for one in found.refused}
    assert "refused by DeepSpeed 0.18" in found.text


def test_ranks_in_the_usual_order_need_no_placement():
    """TP inside the domain, then CP, DP, PP: what frameworks count anyway; CP outside DP is said."""
    run = Run(sequence_length=4096, global_batch=64, framework="megatron")
    inputs = {"model": "mixtral-8x7b", "run": run, "topology": "hgx-h100", "devices": 64}
    usual = Mapping.model_validate({"tp": 4, "cp": 2, "dp": 8, "ep": 8, "edp": 8})
    assert export(usual, "megatron", **inputs).unexpressed == []
    inner, outer = read_inputs(**inputs, profile=None).facts.fabric.level_names
    moved = usual.model_copy(update={"placement": {"cp": {outer: 2}, "dp": {inner: 2, outer: 4}}})
    (lost,) = export(moved, "megatron", **inputs).unexpressed
    assert lost.what == "placement"
    assert f"cp 2@{outer}" in lost.value
