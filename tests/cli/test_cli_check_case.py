"""`mapsearch check CASE.yaml`: a case is recognised by its keys; exit codes, formats, and what is wrong with a case."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml
from jsonschema import Draft202012Validator

CASE = {
    "source": "https://github.com/NVIDIA/Megatron-LM/issues/783",
    "model": {"name": "Llama-2-70B", "layers": 80},
    "hardware": {"gpu": "H100", "mem_gb": 80, "gpus": 8, "gpus_per_node": 8},
    "mapping": {"tp": 8},
    "run": {"seq": 4096, "micro_batch": 1, "recompute": "full"},
}


@pytest.fixture
def written(tmp_path):
    def write(**changes):
        document = {key: {**value, **changes.get(key, {})} if isinstance(value, dict) else value
                    for key, value in CASE.items()}  # fmt: skip
        document |= {key: value for key, value in changes.items() if key not in CASE}
        path = tmp_path / "case.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


def test_out_of_memory_exits_3_and_says_what_takes_it(mapsearch, written):
    result = mapsearch("check", written())
    assert result.code == 3
    assert result.out.startswith("OUT OF MEMORY: the worst stage needs")
    assert "decided by states" in result.out
    assert "rules and defaults of megatron: reported to NVIDIA/Megatron-LM" in result.out


def test_feasible_exits_0_and_undetermined_4(mapsearch, written):
    assert mapsearch("check", written(mapping={"tp": 8, "pp": 2}, hardware={"gpus": 64})).code == 0
    result = mapsearch("check", written(hardware={"gpu": None, "mem_gb": None, "gpus": 32}, mapping={"zero": 2}))
    assert result.code == 4
    assert "hardware.mem_gb  nothing" in result.out
    assert "hardware.mem_gb 40: out of memory" in result.out


def test_a_framework_may_be_given(mapsearch, written):
    path = written(model={"name": "Qwen3-235B-A22B", "layers": 94}, hardware={"gpus": 64}, mapping={"pp": 2, "ep": 8})
    old, none = (mapsearch("check", path, "--framework", name) for name in ("megatron@0.15", "none"))
    assert (old.code, "megatron_kv_heads" in old.out) == (3, True)
    assert "megatron_kv_heads" not in none.out
    wrong = mapsearch("check", path, "--framework", "megaton")
    assert (wrong.code, "did you mean 'megatron'" in wrong.err) == (2, True)


def test_formats(mapsearch, written):
    shown = {name: mapsearch("check", written(), "--format", name).out for name in ("json", "yaml", "csv", "md")}
    found = json.loads(shown["json"])
    assert (found["schema"], found["verdict"], found["relation"]) == ("mapsearch.verdict/1", "out of memory", "states")
    assert yaml.safe_load(shown["yaml"]) == found
    assert next(csv.DictReader(io.StringIO(shown["csv"])))["verdict"] == "out of memory"
    assert shown["md"].startswith("**out of memory**: the worst stage")
    schema = json.loads(mapsearch("schema", "verdict").out)
    assert list(Draft202012Validator(schema).iter_errors(found)) == []


def test_a_wrong_key_names_the_right_one(mapsearch, written):
    assert "not read: mapping.tpx" in mapsearch("check", written(mapping={"tpx": 8})).out
    result = mapsearch("check", written(model={"kv_head": 8}))
    assert result.code == 2
    assert "case.yaml: model: 'kv_head' is not a known key (did you mean 'kv_heads'?)" in result.err


def test_a_key_beside_the_records_is_refused(mapsearch, written):
    result = mapsearch("check", written(becuse="x"))
    assert (result.code, "did you mean 'because'" in result.err) == (2, True)


def test_a_missing_file(mapsearch):
    result = mapsearch("check", "no-such-case.yaml")
    assert result.code == 2
    assert result.err.strip() == "mapsearch: no-such-case.yaml: no such file"


def test_an_unknown_gpu_is_said_and_memory_judged(mapsearch, written):
    result = mapsearch("check", written(hardware={"gpu": "H10O"}))
    assert result.code == 3
    assert "'H10O' is not a known device (did you mean 'H100'?)" in " ".join(result.out.split())


def test_options_that_a_case_brings_itself_are_refused(mapsearch, written):
    for option, value in (("--model", "mixtral-8x7b"), ("--devices", 8), ("--sequence-length", 4096)):
        result = mapsearch("check", written(), option, value)
        assert result.code == 2
        assert f"drop {option}" in result.err


def test_the_schema_accepts_the_case_and_refuses_a_strange_key(mapsearch):
    schema = json.loads(mapsearch("schema", "case").out)
    Draft202012Validator.check_schema(schema)
    judge = Draft202012Validator(schema)
    assert list(judge.iter_errors(CASE)) == []
    assert list(judge.iter_errors({**CASE, "becuse": "x"})) != []
