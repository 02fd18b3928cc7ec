"""Launch files are read as they stand: scripts without running them, and the transcribed ones with a verdict each."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mapsearch.axes import CpKind, Dispatcher, Offload, Recompute, Schedule
from mapsearch.cli import export, importing
from mapsearch.errors import InputError
from mapsearch.inventories.base import validate
from mapsearch.inventories.case import Case
from mapsearch.inventories.run import Run
from mapsearch.judging.judge import judge
from mapsearch.launching.api import FORMATS, KINDS, read_launch
from mapsearch.launching.cases import case_document, case_of, named_by_shape, run_document
from mapsearch.launching.launch import mapping_of
from mapsearch.launching.shell import flags_of

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks" / "launch_scripts").glob("*.yaml"))
SCRIPT = """#!/bin/bash
#SBATCH --nodes=16
# don't stop at an apostrophe
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-16}
TP=${TP:-2}
PP=4; EP=8
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096   # of Mixtral
    --num-attention-heads 32 --num-query-groups 8
    --seq-length 4096
)
MOE_ARGS="
    --num-experts 8 \\
    --moe-router-topk 2 \\
    --moe-token-dispatcher-type alltoall
"
PARALLEL=(
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size $PP
    --num-layers-per-virtual-pipeline-stage 4
    --expert-model-parallel-size $EP
    --expert-tensor-parallel-size=1
    --recompute-granularity selective --recompute-modules moe_act layernorm
    --use-distributed-optimizer --sequence-parallel
    --micro-batch-size 1 --global-batch-size 256 --bf16
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py "${MODEL_ARGS[@]}" $MOE_ARGS "${PARALLEL[@]}"
"""


def read(tmp_path, text, name="run.sh", **options):
    path = tmp_path / name
    path.write_text(text)
    return read_launch(str(path), **options)


def test_there_are_28_transcribed_files():
    assert len(SCRIPTS) == 28


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_transcribed_file_is_read_and_gets_a_verdict(path):
    document = yaml.safe_load(path.read_text())
    launch = read_launch(str(path))
    case = case_of(launch, file=path.name)
    for name in ("tp", "cp", "pp", "ep", "etp"):
        if document["mapping"].get(name):
            assert getattr(case.mapping, name) == document["mapping"][name]
    assert case.run.micro_batch == document["run"].get("micro_batch", case.run.micro_batch)
    assert case.run.global_batch == document["run"].get("global_batch")
    found = judge(case, name=path.stem)
    assert found.verdict in ("feasible", "slow", "infeasible", "out of memory", "undetermined")
    assert found.because


def verdict(stem):
    path = next(path for path in SCRIPTS if path.stem == stem)
    return judge(case_of(read_launch(str(path)), file=stem), name=stem)


def test_what_runs_in_the_open_is_not_refused():
    """These recipes are published with their runs; the Mixtral example is one node short of its own grid."""
    broken = {path.stem: verdict(path.stem) for path in SCRIPTS}
    refused = {stem: found.relation for stem, found in broken.items() if found.verdict == "infeasible"}
    assert refused == {"megatron-mixtral-8x7b-example": "expert_grid"}
    assert broken["modelzoo-deepseek-v3-h100-seq128k"].verdict == "feasible"


def test_layers_that_do_nothing_are_taken_out():
    """MindSpeed's DeepSeek-V3: 64 layers with 61, 62 and 63 idle on PP 8."""
    launch = read_launch(str(next(path for path in SCRIPTS if path.stem == "mindspeed-deepseek3-a2")))
    assert launch.mapping["layout"] == [8, 8, 8, 8, 8, 8, 8, 5]
    assert launch.hardware["gpus"] == 512


def test_a_layout_in_letters_gives_virtual_stages_and_layers_per_stage():
    """`Et*4|(tttt|)*14tmL` on PP 4: 16 chunks, 61 layers."""
    launch = read_launch(str(next(path for path in SCRIPTS if path.stem == "modelzoo-deepseek-v3-256gb200")))
    assert launch.mapping["vpp"] == 4
    assert launch.mapping["layout"] == [16, 16, 16, 13]
    assert launch.mapping["schedule"] == Schedule.INTERLEAVED


def test_deepspeeds_ep_size_is_the_number_of_experts():
    launch = read_launch(str(next(path for path in SCRIPTS if path.stem == "deepspeed-gpt-1.3b-moe128")))
    assert (launch.mapping["ep"], launch.model["experts"]) == (64, 128)


def test_a_script_is_read_with_its_variables_defaults_and_sums(tmp_path):
    launch = read(tmp_path, SCRIPT)
    assert launch.format == "megatron"
    assert launch.hardware == {"gpus": 128, "nodes": 16, "gpus_per_node": 8}
    mapping = mapping_of(launch)
    assert (mapping.tp, mapping.pp, mapping.dp, mapping.ep, mapping.etp, mapping.edp) == (2, 4, 16, 8, 1, 4)
    assert (mapping.vpp, mapping.schedule) == (2, Schedule.INTERLEAVED)
    assert mapping.recompute == Recompute.NORM | Recompute.ACTIVATION
    assert (mapping.zero, mapping.dispatcher) == (1, Dispatcher.ALL_TO_ALL)
    assert launch.model == {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "experts": 8, "topk": 2}


def test_variables_from_outside_win(tmp_path):
    assert mapping_of(read(tmp_path, SCRIPT, preset={"TP": "4"})).tp == 4
    assert mapping_of(read(tmp_path, SCRIPT, preset={"NNODES": "32"})).dp == 32


def test_a_line_of_flags_is_enough(tmp_path):
    launch = read(tmp_path, "--tensor-model-parallel-size 8 --num-experts 64 --expert-model-parallel-size 4")
    assert launch.mapping["etp"] == 8  # Megatron's default
    assert launch.mapping["dispatcher"] == Dispatcher.ALL_GATHER
    assert launch.mapping["zero"] == 0
    assert "micro_batch" not in launch.mapping


def test_flags_that_disagree_are_said(tmp_path):
    text = f"{SCRIPT}\nif [ $BIG = 1 ]; then\nEXTRA='--tensor-model-parallel-size 8'\nfi\n"
    launch = read(tmp_path, text)
    assert launch.mapping["tp"] == 8
    assert any("--tensor-model-parallel-size is 2 on line 21 and 8 on line 33" in note for note in launch.notes)
    assert any("branches" in note for note in launch.notes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("--tensor-model-parallel-size $TP", r"line 1: --tensor-model-parallel-size: is \$TP.*--set NAME=VALUE"),
        ("\n--tensor-model-parallel-size two", "line 2: --tensor-model-parallel-size: takes a whole number, not 'two'"),
        ("--context-parallel-size 99999999999999999999999", "takes a whole number up to 1,099,511,627,776"),
        ("--context-parallel-size 0", "is 0; it must be at least 1"),
        ("--context-parallel-size 2 --cp-comm-type p3p", "takes p2p, allgather, a2a or a2a"),
        ("--tensor-model-parallel-size 2 'open", "line 1 opens a quote"),
        (
            "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et|t|tL'",
            "has 3 chunks, which are no multiple of PP 4",
        ),
        ("--pipeline-model-parallel-size 4 --num-layers 10 --decoder-first-pipeline-num-layers 2", "2 left"),
    ],
)
def test_what_a_script_says_wrongly_names_line_and_flag(tmp_path, text, problem):
    with pytest.raises(InputError, match=problem):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("flags", "layout"),
    [
        ("--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 2", [3, 4, 4, 2]),
        ("--decoder-last-pipeline-num-layers 1", [4, 4, 4, 1]),
        ("--pipeline-model-parallel-layout 'Et*4|t*4|t*3|ttL'", [4, 4, 3, 2]),
        ("", None),
    ],
)
def test_layouts_of_megatron(tmp_path, flags, layout):
    launch = read(tmp_path, f"--num-layers 13 --pipeline-model-parallel-size 4 {flags}")
    assert launch.mapping.get("layout") == layout


def test_embedding_and_loss_may_count_as_layers(tmp_path):
    counted = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    launch = read(tmp_path, f"--num-layers 94 --pipeline-model-parallel-size 16 {counted}")
    assert launch.mapping["layout"] == [5, *[6] * 14, 5]


def test_a_script_that_never_ends_growing_is_stopped():
    with pytest.raises(InputError, match="over 2,000,000 characters"):
        flags_of("\n".join(["A=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", *["A=$A$A$A$A$A$A$A$A"] * 8, "--x $A"]), {})


def test_nothing_in_a_script_is_run(tmp_path):
    mark = tmp_path / "ran"
    text = f"X=$(touch {mark})\nY=`touch {mark}`\nZ=$((__import__('os').system('touch {mark}')))\n{SCRIPT}"
    read(tmp_path, text)
    assert not mark.exists()


def test_torchtitan(tmp_path):
    text = """
[model]
name = "deepseek_v3"
flavor = "16B"
[training]
local_batch_size = 4
seq_len = 4096
[parallelism]
data_parallel_shard_degree = -1
expert_parallel_degree = 8
[activation_checkpoint]
mode = "selective"
"""
    launch = read(tmp_path, text, "train.toml")
    assert launch.format == "torchtitan"
    assert launch.model == {"name": "deepseek_v3 16B"}
    case = case_of(launch, file="train.toml")
    assert (case.mapping.ep, case.mapping.zero, case.mapping.dp_shard, case.run.micro_batch) == (8, 3, "all", 4)
    assert mapping_of(launch, devices=64).dp == 64
    with pytest.raises(InputError, match="give --devices"):
        mapping_of(launch)


def test_deepspeed(tmp_path):
    text = """{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8,
     "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}, "bf16": {"enabled": true}}"""
    launch = read(tmp_path, text, "ds.json")
    mapping = mapping_of(launch)
    assert (mapping.dp, mapping.zero, mapping.micro_batch) == (16, 3, 2)
    assert mapping.offload == Offload.OPTIMIZER | Offload.NVME
    with pytest.raises(InputError, match="256 is no multiple of"):
        read(tmp_path, text.replace("8,", "7,"), "ds.json")


def test_overrides_of_a_recipe_in_both_forms(tmp_path):
    nested = "model:\n  tensor_model_parallel_size: 2\n  context_parallel_size: 4\n  cp_comm_type: a2a\n"
    dotted = "model.tensor_model_parallel_size=2 model.context_parallel_size=4\nmodel.cp_comm_type=a2a\n"
    for text in (nested, dotted):
        launch = read(tmp_path, text, "overrides.yaml")
        assert (launch.format, launch.mapping["tp"], launch.mapping["cp"]) == ("bridge", 2, 4)
        assert launch.mapping["cp_kind"] == CpKind.ULYSSES
        assert case_of(launch, file="x").mapping.ulysses_sp == 4


def test_mindspeed_is_told_from_megatron_by_its_own_flags(tmp_path):
    text = "--tensor-model-parallel-size 2 --context-parallel-size 4 --context-parallel-algo ulysses_cp_algo"
    launch = read(tmp_path, text)
    assert (launch.format, launch.mapping["cp_kind"]) == ("mindspeed", CpKind.ULYSSES)
    assert read(tmp_path, text.replace("ulysses_cp_algo", "megatron_cp_algo")).mapping["cp_kind"] == CpKind.RING


def test_what_is_no_launch_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no launch file that is known; --from takes"):
        read(tmp_path, "echo hello", "hello.sh")
    with pytest.raises(InputError, match="'megatrom' is none of"):
        read(tmp_path, "framework: megatrom\nmapping: {tp: 1}\n", "launch.yaml")
    with pytest.raises(InputError, match=r"mapping.tp: takes a whole number"):
        read(tmp_path, "framework: megatron-lm\nmapping: {tp: many}\n", "launch.yaml")
    with pytest.raises(InputError, match="has no framework with a mapping"):
        read(tmp_path, "tp: 8\n", "launch.yaml", kind="launch")


def test_the_run_of_a_launch_can_be_searched_again(tmp_path):
    launch = read(tmp_path, SCRIPT)
    run = validate(Run, run_document(launch, file="x"), file="x")
    assert (run.sequence_length, run.global_batch, run.vpp, run.framework) == (4096, 256, [2], "megatron")
    assert run.recompute == [Recompute.NORM | Recompute.ACTIVATION]


def test_a_model_is_named_by_its_shape():
    assert named_by_shape({"layers": 32, "hidden": 4096, "heads": 32, "experts": 8, "topk": 2}) == "mixtral-8x7b"
    assert named_by_shape({"layers": 32, "hidden": 4096, "heads": 32, "experts": 9, "topk": 2}) is None
    assert named_by_shape({"layers": 32}) is None


def test_every_format_is_found_by_its_own_files():
    import launch_plans as plans

    from mapsearch.launching.launch import Plan

    for seed in range(20):
        plan = Plan.of(*plans.random_plan(seed))
        for kind in FORMATS:
            text, _ = kind.write(plan)
            found = next(one for one in FORMATS if one.detect(text))
            assert found is kind or {found.name, kind.name} == {"megatron", "mindspeed"}
    assert set(KINDS) == set(export.TO) == set(importing.FROM) - {"launch"}


def test_documents_of_cases_are_valid_cases(tmp_path):
    for path in SCRIPTS:
        validate(Case, yaml.safe_load(yaml.safe_dump(case_document(read_launch(str(path))))), file=path.name)
