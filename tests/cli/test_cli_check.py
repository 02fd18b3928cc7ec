"""`mapsearch check`: reading mappings and answers, verdicts, formats."""

from __future__ import annotations

import csv
import io
import json

import answers
import pytest

MAPPING = "tp: 8\ndp: 4\nep: 32\nplacement: {tp: {board: 8}}\n"


@pytest.fixture
def mapping_file(tmp_path):
    path = tmp_path / "mapping.yaml"
    path.write_text(MAPPING)
    return path


def test_fits(mapsearch, api, run_file, mapping_file):
    result = mapsearch("check", mapping_file, "--run", run_file)
    assert result.code == 0
    assert "FITS: all 5 relations hold" in result.out
    assert api.calls[0][0][0].ep == 32


def test_broken_exits_3_and_says_why(mapsearch, api, run_file, mapping_file):
    api.report = answers.report(feasible=False)
    result = mapsearch("check", mapping_file, "--run", run_file)
    assert result.code == 3
    assert "BROKEN: 1 of 5 relations does not hold" in result.out
    assert "stage 0 needs 90.2 GB of 81.6 GB" in result.out
    assert "-8.60 GB" in result.out


@pytest.mark.parametrize(("suffix", "recompute"), [("", "norm+activation"), ("#1", "norm+activation"), ("#2", "full")])
def test_an_answer_is_read_by_rank(mapsearch, api, run_file, tmp_path, suffix, recompute):
    from mapsearch.axes import RECOMPUTE

    path = tmp_path / "answer.json"
    path.write_text(answers.optimal().to_json())
    assert mapsearch("check", f"{path}{suffix}", "--run", run_file).code == 0
    (mapping,), options = api.calls[0]
    assert mapping.recompute == RECOMPUTE.read(recompute)
    assert mapping.placement["cp"] == {"rack": 8, "pod": 2}
    assert (options["model"], options["topology"], options["profile"]) == ("moe-5t", "asic", "asic-assumed")


def test_other_inputs_than_the_answer_was_solved_for_are_named(mapsearch, api, run_file, tmp_path):
    path = tmp_path / "answer.json"
    path.write_text(answers.optimal().to_json())
    assert mapsearch("check", path, "--run", run_file).err == ""
    other = answers.PROVENANCE.model_copy(update={"input_sha256": {"model": "1" * 64}})
    api.report = answers.report().model_copy(update={"provenance": other})
    assert "not the same model as the answer" in mapsearch("check", path, "--run", run_file).err


def test_options_win_over_the_answer(mapsearch, api, run_file, tmp_path):
    path = tmp_path / "answer.json"
    path.write_text(answers.optimal().to_json())
    mapsearch("check", path, "--run", run_file, "--topology", "asic-64", "--profile", "other")
    assert (api.calls[0][1]["topology"], api.calls[0][1]["profile"]) == ("asic-64", "other")


@pytest.mark.parametrize(
    ("suffix", "hint"), [("#11", "no mapping of rank 11"), ("#0", "no mapping of rank 0"), ("#x", "whole number")]
)
def test_a_rank_that_is_not_there(mapsearch, api, run_file, tmp_path, suffix, hint):
    path = tmp_path / "answer.json"
    path.write_text(answers.optimal().to_json())
    result = mapsearch("check", f"{path}{suffix}", "--run", run_file)
    assert result.code == 2
    assert hint in result.err


def test_formats(mapsearch, api, run_file, mapping_file):
    def shown(format_):
        return mapsearch("check", mapping_file, "--run", run_file, "--format", format_).out

    assert json.loads(shown("json"))["schema"] == "mapsearch.check/1"
    rows = list(csv.DictReader(io.StringIO(shown("csv"))))
    assert [row["relation"] for row in rows] == [margin.relation for margin in answers.margins()]
    assert "| hbm | holds | 74.1 GB | 81.6 GB | 7.50 GB | physics |" in shown("md")


def solved_with(tmp_path, **changes):
    path = tmp_path / "answer.json"
    about = answers.PROVENANCE.model_copy(update=changes)
    path.write_text(answers.optimal().model_copy(update={"provenance": about}).to_json())
    return path


OVERRIDES = {"sequence_length": ["4096"], "framework": ["none"], "fix": ["tp=8"], "inside": ["rack:ep"]}


def test_an_answer_is_judged_with_the_options_it_was_solved_with(mapsearch, api, tmp_path):
    mapsearch("check", solved_with(tmp_path, overrides=OVERRIDES, devices=2048))
    run, options = api.calls[0][1]["run"], api.calls[0][1]
    assert (run.sequence_length, run.framework, options["devices"]) == (4096, "none", 2048)
    assert str(run.constraints.fix["tp"]) == "8"
    assert run.constraints.inside == {"rack": ["ep"]}


def test_options_of_the_check_win_over_those_of_the_answer(mapsearch, api, run_file, tmp_path):
    path = solved_with(tmp_path, overrides=OVERRIDES, devices=2048)
    mapsearch("check", path, "--sequence-length", 8192, "--devices", 1024)
    run = api.calls[0][1]["run"]
    assert (run.sequence_length, run.framework, api.calls[0][1]["devices"]) == (8192, "none", 1024)
    mapsearch("check", path, "--run", run_file, "--topology", "asic-64")
    run, options = api.calls[1][1]["run"], api.calls[1][1]
    assert (run.name, run.framework, run.constraints.inside) == ("small", "megatron", {"board": ["tp"]})
    assert (options["devices"], options["profile"]) == (None, None)
