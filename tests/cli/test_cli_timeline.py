"""`mapsearch timeline`: a mapping's pipeline drawn, beside its closed form and its estimate."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

import mapsearch as package
from mapsearch.api import solve
from mapsearch.cli.main import main

RUN = "name: short\nsequence_length: 4096\nglobal_batch: 128\nschedule: [1f1b, zb-v, dualpipe]\nframework: none\n"
MAPPING = "{{dp: 8, pp: 8, ep: 8, schedule: {schedule}, vpp: {vpp}}}"
MODEL, TOPOLOGY = "mixtral-8x7b", "hgx-h100"


@pytest.fixture
def ask(mapsearch, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "run.yaml").write_text(RUN)

    def asked(*options, schedule="1f1b", vpp=1):
        path = tmp_path / "mapping.yaml"
        path.write_text(MAPPING.format(schedule=schedule, vpp=vpp))
        return mapsearch("timeline", path, "-m", MODEL, "-t", TOPOLOGY, "-r", tmp_path / "run.yaml", *options)

    return asked


SCHEDULES = [
    ("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb-h1", 1), ("zb-v", 1), ("zb-2p", 1), ("dualpipe", 1),
    ("dualpipe-v", 1),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "vpp"), SCHEDULES)
def test_every_schedule_is_drawn_and_compared(ask, schedule, vpp):
    shown = ask(schedule=schedule, vpp=vpp)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert sum(bool(re.match(r"stage \d \|.*\|$", line)) for line in lines) == 8
    assert "Closed form on the same times:" in shown.out
    assert "Estimated step:" in shown.out


@pytest.mark.parametrize(("schedule", "vpp"), SCHEDULES)
def test_the_document_agrees_with_the_estimate(ask, schedule, vpp):
    found = json.loads(ask("-f", "json", schedule=schedule, vpp=vpp).out)
    assert found["schema"] == "mapsearch.simulation/1"
    slowest = max(s["forward_s"] + s["input_grad_s"] + s["weight_grad_s"] for s in found["stages"])
    rounds = found["estimate_s"] - found["estimate_bubble_s"]
    assert rounds == pytest.approx(found["microbatches"] * slowest)
    if schedule != "zb-2p":
        charged = [stage["closed_form_microbatches"] for stage in found["stages"]]
        assert [stage["peak_microbatches"] for stage in found["stages"]] == pytest.approx(charged)
    ends = [op["end_s"] for op in found["ops"]]
    assert max(ends) == found["makespan_s"]
    for stage in found["stages"]:
        ops = [op for op in found["ops"] if op["stage"] == stage["stage"]]
        assert sum(op["end_s"] - op["start_s"] for op in ops) == pytest.approx(stage["busy_s"])
        total = stage["forward_s"] + stage["input_grad_s"] + stage["weight_grad_s"]
        assert stage["busy_s"] == pytest.approx(found["microbatches"] * total)
    assert found["step_time_s"] > found["estimate_s"]
    assert max(stage["busy_s"] for stage in found["stages"]) <= found["least_s"] <= found["makespan_s"]


def test_given_times_take_the_place_of_the_mappings_own(ask):
    found = json.loads(ask("--stage-times", "1 s, 1 s, 1 s", "-f", "json").out)
    assert found["estimate_s"] is None
    assert found["makespan_s"] == found["closed_form_s"] == 3.0 * (16 + 7)
    assert found["gap"] == "exact: stages are equal"
    each = "/".join(["1 s,1 s,1 s"] * 7 + ["2 s,2 s,2 s"])
    assert json.loads(ask("--stage-times", each, "-f", "json").out)["makespan_s"] == 15 * 6.0 + 7 * 3.0 + 6.0
    hops = json.loads(ask("--stage-times", "1 s,1 s,1 s", "--hop", "500 ms", "-f", "json").out)
    assert hops["makespan_s"] > found["makespan_s"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--stage-times", "1 s,2 s"), "has 2 times; write FORWARD,INPUT-GRADIENT,WEIGHT-GRADIENT"),
        (("--stage-times", "1 s,2 s,3"), "write a time with its unit"),
        (("--stage-times", "0 s,0 s,0 s"), "takes no time"),
        (("--stage-times", "1 s,1 s,1 s/2 s,2 s,2 s"), "times of 2 stages, but PP is 8; give 1 or 8"),
        (("--hop", "fast"), "--hop: 'fast' is not a time"),
        (("--rank", "2"), "is not an answer"),
        (("-f", "csv"), "'csv' is not one of"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_sentence(ask, options, words):
    shown = ask(*options)
    assert shown.code == 2
    assert shown.out == ""
    assert words in shown.err
    assert shown.err.count("\n") == 1


def test_a_schedule_without_an_order_for_these_microbatches_is_said(ask, tmp_path):
    few = "name: few\nsequence_length: 4096\nglobal_batch: 64\nschedule: [dualpipe]\nframework: none\n"
    (tmp_path / "few.yaml").write_text(few)
    shown = ask("-r", tmp_path / "few.yaml", schedule="dualpipe")
    assert shown.code == 2
    assert "schedule dualpipe takes at least 2 PP = 16 microbatches, not 8" in shown.err


def test_svg_and_html_by_the_name_of_the_file(ask, tmp_path):
    assert ask("-o", tmp_path / "pipe.svg").code == 0
    drawing = (tmp_path / "pipe.svg").read_text()
    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    assert ask("-o", tmp_path / "pipe.html").code == 0
    page = (tmp_path / "pipe.html").read_text()
    assert drawing in page
    assert "Closed form on the same times" in page
    assert ask("-f", "svg").out == drawing


def test_an_answers_mapping_by_rank_with_its_inputs(capsys, tmp_path):
    """The whole way: solve, then draw what was solved, with the step time that the answer has."""
    (tmp_path / "run.yaml").write_text(RUN)
    answer = solve(MODEL, str(tmp_path / "run.yaml"), TOPOLOGY, devices=64, top=2)
    path = tmp_path / "answer.json"
    path.write_text(answer.to_json())
    assert main(["timeline", str(path), "--rank", "2", "-f", "json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["step_time_s"] == pytest.approx(answer.mappings[1].step_time_s)
    assert captured.err == ""
    assert main(["timeline", f"{path}#1", "--rank", "2"]) == 2
    assert "the mapping is named twice" in capsys.readouterr().err
    drawn = package.timeline(answer.mappings[1], model=MODEL, run=str(tmp_path / "run.yaml"), topology=TOPOLOGY)
    assert drawn.simulation.makespan_s > 0.0
