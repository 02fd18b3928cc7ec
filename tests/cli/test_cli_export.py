"""`mapsearch export` and `mapsearch import`: files, exit codes, what is said on stderr."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

MAPPING = {"tp": 4, "cp": 2, "dp": 8, "ep": 8, "edp": 8, "recompute": "full", "micro_batch": 1}
INPUTS = ("--model", "mixtral-8x7b", "--topology", "hgx-h100", "--devices", "64", "--run")
LAUNCH = Path(__file__).parents[2] / "benchmarks" / "launch_scripts" / "megatron-mixtral-8x7b-example.yaml"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "mapping.yaml").write_text(yaml.safe_dump(MAPPING))
    run = {"sequence_length": 4096, "global_batch": 64, "framework": "megatron", "name": "short"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    return tmp_path


def exported(mapsearch, files, *arguments):
    return mapsearch("export", files / "mapping.yaml", *INPUTS, files / "run.yaml", *arguments)


@pytest.mark.parametrize("to", ["megatron", "bridge", "torchtitan", "deepspeed", "mindspeed"])
def test_a_file_is_written_and_read_again(mapsearch, files, to):
    target = files / "out.txt"
    result = exported(mapsearch, files, "--to", to, "-o", target)
    assert result.code in (0, 3)
    again = mapsearch("import", target, "--from", to, "--as", "mapping", "--devices", 64)
    assert again.code == 0
    found = yaml.safe_load(again.out)
    assert {axis: found[axis] for axis in MAPPING} == MAPPING


def test_the_shell_file_is_one(mapsearch, files):
    """bash itself reads the array as the flags that were meant."""
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    exported(mapsearch, files, "--to", "megatron", "-o", files / "flags.sh")
    command = f'. {files / "flags.sh"}; echo $DEVICES; printf "%s\\n" "${{FLAGS[@]}}"'
    words = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout.split("\n")
    assert words[0] == "64"
    assert words[words.index("--tensor-model-parallel-size") + 1] == "4"
    assert words[words.index("--num-experts") + 1] == "8"


def test_json_carries_the_file_and_what_it_cannot_say(mapsearch, files):
    result = exported(mapsearch, files, "--to", "deepspeed", "--format", "json")
    document = json.loads(result.out)
    schema = json.loads(mapsearch("schema", "export").out)
    assert list(Draft202012Validator(schema).iter_errors(document)) == []
    assert {one["what"] for one in document["unexpressed"]} >= {"cp_kind", "sequence_parallel"}
    assert json.loads(document["text"])["zero_optimization"]["stage"] == 1
    assert not document["same"]
    assert "not expressed: cp_kind ring" in result.err
    assert result.code == 3  # DeepSpeed's own rule: CP is Ulysses
    assert "deepspeed refuses it" in result.err


def test_the_same_bytes_every_time(mapsearch, files):
    assert exported(mapsearch, files, "--to", "megatron").out == exported(mapsearch, files, "--to", "megatron").out


def test_a_mapping_that_has_no_place_is_refused_in_one_sentence(mapsearch, files):
    (files / "mapping.yaml").write_text(yaml.safe_dump({**MAPPING, "dp": 16, "edp": 16}))
    result = exported(mapsearch, files, "--to", "megatron")
    assert result.code == 2
    assert "uses 128 devices" in result.err
    assert "Traceback" not in result.err


def test_a_rank_is_of_an_answer(mapsearch, files):
    result = exported(mapsearch, files, "--to", "megatron", "--rank", "2")
    assert result.code == 2
    assert "#RANK picks nothing" in result.err


def test_import_judges_at_once(mapsearch, tmp_path):
    result = mapsearch("import", LAUNCH, "--check")
    assert result.code == 3
    assert result.out.startswith("INFEASIBLE: 8 devices are no multiple of ETP 1 x EP 8 x PP 4 = 32")
    written = mapsearch("import", LAUNCH, "-o", tmp_path / "case.yaml")
    assert written.code == 0
    assert mapsearch("check", tmp_path / "case.yaml").code == 3


def test_facts_from_outside_complete_a_case(mapsearch, tmp_path):
    (tmp_path / "flags").write_text("--tensor-model-parallel-size $TP --micro-batch-size 1 --num-experts 8")
    without = mapsearch("import", tmp_path / "flags")
    assert without.code == 2
    assert "line 1: --tensor-model-parallel-size: is $TP" in without.err
    given = ("--set", "TP=2", "--model", "Mixtral-8x7B", "--gpu", "H100", "--devices", "16")
    case = yaml.safe_load(mapsearch("import", tmp_path / "flags", *given).out)
    assert case["mapping"]["tp"] == 2
    assert case["hardware"] == {"gpus": 16, "gpu": "H100"}
    assert case["model"]["name"] == "Mixtral-8x7B"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--check", "--as", "run"), "judges a case; drop --as run"),
        (("--set", "TP"), "write it as --set TP=8"),
        (("--format", "csv"), "accepted: yaml or json"),
        (("--from", "torchtitan"), "is not valid TOML"),
    ],
)
def test_options_that_do_not_fit(mapsearch, arguments, problem):
    result = mapsearch("import", LAUNCH, *arguments)
    assert result.code == 2
    assert problem in result.err
