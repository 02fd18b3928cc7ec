"""`mapsearch solve`: what reaches the solver, exit codes, formats, files."""

from __future__ import annotations

import csv
import io
import json

import answers
import pytest
import yaml


@pytest.mark.parametrize(
    ("answer", "options", "code"),
    [
        (answers.optimal(), (), 0),
        (answers.optimal(), ("--require-proof",), 0),
        (answers.feasible(), (), 0),
        (answers.feasible(), ("--require-proof",), 4),
        (answers.feasible(interrupted=True), (), 130),
        (answers.infeasible(), (), 3),
        (answers.infeasible(), ("--require-proof",), 3),
        (answers.unknown(), (), 4),
        (answers.unknown(interrupted=True), (), 130),
    ],
)
def test_exit_codes(mapsearch, api, run_file, answer, options, code):
    api.answer = answer
    result = mapsearch("solve", "--run", run_file, *options)
    assert result.code == code
    assert answer.status.upper() in result.out


def test_ctrl_c_during_the_search_prints_the_best_so_far(mapsearch, api, run_file, monkeypatch):
    import os
    import signal
    import sys

    from mapsearch.interrupts import requested

    def interrupted_solve(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)
        assert requested()
        return answers.feasible()

    monkeypatch.setattr(sys.modules["mapsearch.api"], "solve", interrupted_solve)
    result = mapsearch("solve", "--run", run_file)
    assert result.code == 130
    assert "gap 7.1 %" in result.out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_options_reach_the_solver(mapsearch, api, run_file):
    mapsearch(
        *("solve", "--model", "m", "--run", run_file, "--topology", "t", "--profile", "p", "--devices", 64, "--top", 3),
        *("--backend", "milp", "--proof", "none", "--time-limit", 2.5, "--require-proof"),
        "--certify",
    )
    (args, options), *_ = api.calls
    assert (args[0], args[2]) == ("m", "t")
    assert options == {
        "profile": "p",
        "devices": 64,
        "top": 3,
        "backend": "milp",
        "proof": "none",
        "certify": True,
        "time_limit": 2.5,
        "require_proof": True,
        "progress": None,
    }


def test_priced_axes_reach_the_run_in_place_of_a_hard_rule(mapsearch, api, run_file):
    mapsearch("solve", "--price", "ep", "--price", "TP")
    run = api.calls[0][0][1]
    assert run.placement == {"tp": "priced", "ep": "priced"}

    result = mapsearch("solve", "--run", run_file, "--price", "exp")
    assert (result.code, result.out) == (2, "")
    assert "--price" in result.err and "'exp' is not an axis (did you mean 'ep'?)" in result.err


def test_overrides_and_constraints_reach_the_run_and_win_over_its_file(mapsearch, api, run_file):
    mapsearch(
        *("solve", "--run", run_file, "--sequence-length", 8192, "--global-batch", 32, "--precision", "fp8-block"),
        *("--framework", "none", "--fix", "tp=8", "--fix", "schedule=1f1b", "--allow", "ep=32,64"),
        *("--at-most", "pp=16", "--at-least", "dp=2", "--inside", "rack:ep,etp", "--inside", "rack:cp"),
    )
    run = api.calls[0][0][1]
    assert (run.sequence_length, run.global_batch, run.precision, run.framework) == (8192, 32, "fp8-block", "none")
    user = run.constraints
    assert {axis: str(value) for axis, value in user.fix.items()} == {"tp": "8", "schedule": "1f1b"}
    assert [str(value) for value in user.allow["ep"]] == ["32", "64"]
    assert (user.at_most, user.at_least) == ({"pp": 16.0}, {"dp": 2.0})
    assert user.inside == {"board": ["tp"], "rack": ["ep", "etp", "cp"]}


def named(answer, run_file):
    """The answer with the run as the command line named it."""
    about = answer.provenance.model_copy(update={"run": str(run_file)})
    return answer.model_copy(update={"provenance": about})


def test_json_is_the_versioned_answer(mapsearch, api, run_file):
    result = mapsearch("solve", "--run", run_file, "--format", "json")
    assert json.loads(result.out)["schema"] == "mapsearch.answer/1"
    assert result.out == named(api.answer, run_file).to_json()


def test_yaml_holds_the_same_as_json(mapsearch, api, run_file):
    text = mapsearch("solve", "--run", run_file, "--format", "yaml").out
    assert yaml.safe_load(text) == json.loads(named(api.answer, run_file).to_json())


def test_csv_has_a_row_per_mapping_in_si_units(mapsearch, api, run_file):
    rows = list(csv.DictReader(io.StringIO(mapsearch("solve", "--run", run_file, "--format", "csv").out)))
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, 11)]
    assert float(rows[0]["peak_memory_bytes"]) == 74.1e9


def test_markdown_is_one_table_with_its_cells_escaped(mapsearch, api, run_file):
    text = mapsearch("solve", "--run", run_file, "--format", "md").out
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 12
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    api.answer = answers.infeasible()
    assert "| devices 64 -> 1,024 |" in mapsearch("solve", "--run", run_file, "--format", "md").out


@pytest.mark.parametrize(("name", "start"), [("a.json", "{"), ("a.yaml", "schema:"), ("a.csv", "rank,"), ("a", "OPT")])
def test_output_file_takes_its_format_from_its_name(mapsearch, api, run_file, tmp_path, name, start):
    result = mapsearch("solve", "--run", run_file, "-o", tmp_path / name)
    assert (result.code, result.out) == (0, "")
    assert (tmp_path / name).read_text().startswith(start)
    assert name in result.err


def test_quiet_leaves_only_the_result(mapsearch, api, run_file):
    result = mapsearch("solve", "--run", run_file, "--quiet")
    assert result.err == ""
    assert "Rests on" not in result.out


def test_help_names_every_precision_and_framework(mapsearch):
    from typing import get_args

    from mapsearch.inventories.run import Run

    text = " ".join(mapsearch("solve", "--help").out.split())
    for field in ("precision", "framework"):
        assert all(word in text for word in get_args(Run.model_fields[field].annotation))


def test_the_answer_keeps_the_options_that_changed_the_run(mapsearch, api, run_file):
    options = ("--sequence-length", 8192, "--fix", "tp=8", "--fix", "pp=2", "--inside", "rack:ep")
    about = json.loads(mapsearch("solve", "--run", run_file, *options, "-f", "json").out)["provenance"]
    assert about["run"] == str(run_file)
    assert about["overrides"] == {"sequence_length": ["8192"], "fix": ["tp=8", "pp=2"], "inside": ["rack:ep"]}


def test_csv_of_what_does_not_fit_lists_the_changes_that_help(mapsearch, api, run_file):
    api.answer = answers.infeasible()
    result = mapsearch("solve", "--run", run_file, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert result.code == 3
    assert [row["lever"] for row in rows] == [one.lever for one in api.answer.relaxations]
    api.answer = answers.unknown()
    assert mapsearch("solve", "--run", run_file, "--format", "csv").out == ""


@pytest.mark.parametrize("name", ["", "missing/a.json", "file/a.json", "a" * 300])
def test_a_path_that_cannot_be_written_is_refused_before_the_search(mapsearch, api, run_file, tmp_path, name):
    (tmp_path / "file").write_text("")
    result = mapsearch("solve", "--run", run_file, "-o", tmp_path / name)
    assert (result.code, result.out, api.calls) == (2, "", [])
    assert len(result.err.splitlines()) == 1
    assert "--output" in result.err
