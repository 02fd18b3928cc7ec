"""`mapsearch explain`: what reaches the search, exit codes, formats, widths, bad input; real small runs."""

from __future__ import annotations

import csv
import io
import json
import sys
from types import ModuleType

import answers
import pytest
import yaml
from test_cli_sensitivity import FIXED, LEVELS, SMALL

from mapsearch.answer import Space
from mapsearch.comparison import Term
from mapsearch.explanation import Explanation, RulePrice, Stability, WhyNot, Win

GB = 1e9


def explanation(**changes):
    fields = {
        "status": "exact",
        "mapping": answers.mapping(1),
        "bindings": [answers.mapping(1).binding or answers.optimal().mappings[0].binding],
        "stability": [
            Stability(input="hbm", unit="bytes", now=96 * GB, until=91 * GB, tried=0, resolution=0, what="too small"),
            Stability(input="bandwidth.rack", unit="B/s", now=25 * GB, until=None, tried=3 * GB, resolution=0, what=""),
        ],
        "rules": [
            RulePrice(relation="tp_inside", origin="placement", words="TP inside", step_time_s=11.0, gain=0.1,
                      unlock="TP8 -> TP16"),
            RulePrice(relation="user_fix_pp", origin="user", words="you fix pp = 8", step_time_s=12.31, gain=0.0),
        ],
        "space": Space(mappings=10**9, cells=4321, pairs_evaluated=98_765),
        "provenance": answers.PROVENANCE,
    }  # fmt: skip
    return Explanation(**{**fields, **changes})


def slower():
    terms = [Term(name="ep", values=[1.0, 3.0], differences=[0.0, 2.0])]
    whole = Term(name="step time", values=[12.31, 14.31], differences=[0.0, 2.0])
    wins = [
        Win(input="bandwidth.pod", unit="B/s", now=12 * GB, value=20 * GB, tried=(12 * GB, 96 * GB), resolution=0.01,
            step_time_s=12.0, verified=True),
        Win(input="bandwidth.rack", unit="B/s", now=12 * GB, value=None, tried=(2 * GB, 96 * GB), resolution=0.01),
    ]  # fmt: skip
    why = WhyNot(
        wish="tp=8 ep=64", complete=False, mapping=answers.mapping(0, step_s=14.31), slower_by=0.16, wins=wins,
        step_time_s=[*terms, whole], memory_bytes=[*terms, whole], sentences=["it fits and takes 14.31 s"],
    )  # fmt: skip
    return explanation(mapping=None, bindings=[], stability=[], rules=[], why_not=why)


def impossible():
    why = WhyNot(
        wish="tp=16", complete=False, mapping=None, conflicts=answers.infeasible().conflicts, edit="tp 16 -> 8",
        edited=answers.mapping(1), sentences=["you ask for tp = 16", "the nearest that fits: tp 16 -> 8"],
    )  # fmt: skip
    return explanation(mapping=None, bindings=[], stability=[], rules=[], why_not=why)


def nothing():
    about = answers.infeasible()
    return explanation(
        status="infeasible", mapping=None, bindings=[], stability=[], rules=[], conflicts=about.conflicts,
        relaxations=about.relaxations, rejections=about.rejections,
    )  # fmt: skip


def explanations():
    return [explanation(), slower(), impossible(), nothing()]


class FakeExplanations:
    """Records the calls, and gives the explanation it was told to."""

    def __init__(self):
        self.result, self.calls = explanation(), []

    def explain(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.result


@pytest.fixture
def fake(monkeypatch):
    fake = FakeExplanations()
    module = ModuleType("mapsearch.explaining.api")
    module.explain = fake.explain
    monkeypatch.setitem(sys.modules, "mapsearch.explaining.api", module)
    return fake


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(LEVELS)
    return path


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (explanation(), 0),
        (explanation(status="feasible"), 0),
        (explanation(interrupted=True), 130),
        (slower(), 0),
        (impossible(), 3),
        (nothing(), 3),
        (explanation(status="unknown", mapping=None), 4),
    ],
)
def test_exit_codes(mapsearch, fake, run_file, found, code):
    fake.result = found
    told = mapsearch("explain", "--run", run_file)
    assert told.code == code
    assert found.status.upper() in told.out


def test_options_reach_the_search(mapsearch, fake, run_file):
    mapsearch(
        *("explain", "--model", "m", "--run", run_file, "--topology", "t", "--profile", "p", "--devices", 64),
        *("--rank", 2, "--why-not", "tp=8", "--stability", "--bindings", 5, "--time-limit", 2.5, "--at-most", "pp=2"),
    )
    (_, options), *_ = fake.calls
    assert (options["model"], options["topology"]) == ("m", "t") and options["run"].constraints.at_most == {"pp": 2}
    wanted = {"rank": 2, "why_not": "tp=8", "stable": True, "bindings": 5, "time_limit": 2.5, "profile": "p"}
    assert {**options, **wanted, "devices": 64} == options


def test_every_format_holds_every_finding(mapsearch, fake, run_file):
    def told(form):
        return mapsearch("explain", "--run", run_file, "--format", form).out

    assert Explanation.model_validate(json.loads(told("json"))).rules == fake.result.rules
    assert len(yaml.safe_load(told("yaml"))["stability"]) == 2
    rows = list(csv.DictReader(io.StringIO(told("csv"))))
    assert {"binding", "stability", "rule", "margin"} <= {row["finding"] for row in rows}
    for form in ("md", "table"):
        text = told(form)
        assert "TP8 → TP16" in text and "cost nothing: you fix pp = 8" in text and "3.00 GB/s and further" in text


def test_a_page_stands_alone(mapsearch, fake, run_file, tmp_path):
    fake.result = slower()
    page = tmp_path / "why.html"
    mapsearch("explain", "--run", run_file, "--output", page)
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>") and "<title>EXACT: why not" in text
    assert "it is then the fastest of all" in text and not {"<script", "http"} & set(text.split())


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_view_fits_the_width(mapsearch, fake, run_file, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for found in explanations():
        fake.result = found
        out = mapsearch("explain", "--run", run_file).out
        lines = out.replace(str(run_file), "run.yaml").splitlines()
        assert max(map(len, lines)) <= width


def test_when_it_would_win_is_told_nearest_first(mapsearch, fake, run_file):
    fake.result = slower()
    out = mapsearch("explain", "--run", run_file).out
    assert "bandwidth.pod 12.0 GB/s → 20.0 GB/s: it is then the fastest of all" in out
    assert "not by any one of: bandwidth.rack from 2.00 GB/s to 96.0 GB/s" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--why-not", "tpp=8"), "did you mean 'tp'"),
        (("--why-not", "tp=8,tp=4"), "given twice"),
        (("--why-not", "nowhere.yaml"), "nowhere.yaml"),
        (("--rank", 0), "0"),
        (("--topology", "asics"), "did you mean"),
    ],
)
def test_bad_input(mapsearch, topology, arguments, said):
    told = mapsearch("explain", *SMALL, *FIXED, *(() if "--topology" in arguments else ("-t", topology)), *arguments)
    assert told.code == 2 and said in told.err and "Traceback" not in told.err


def test_a_small_run_is_explained(mapsearch, topology):
    told = mapsearch("explain", *SMALL, *FIXED, "-t", topology, "-q")
    assert told.code == 0 and told.out.startswith("EXACT: mapping 1 takes")
    assert "What rules cost" in told.out and "How far inputs may worsen" in told.out


def test_an_answer_names_the_inputs_and_its_ranking_is_taken(mapsearch, topology, tmp_path):
    answer = tmp_path / "answer.json"
    assert mapsearch("solve", *SMALL, "-t", topology, "-q", "--fix", "cp=1", "-o", answer).code == 0
    told = mapsearch("explain", answer, "-q", "--why-not", "tp=4,dp=4", "--format", "json")
    stored = json.loads(told.out)
    fresh = mapsearch("explain", *SMALL, "-t", topology, "-q", "--fix", "cp=1", "--why-not", "tp=4,dp=4", "-f", "json")
    plain = json.loads(fresh.out)
    assert stored["why_not"] == plain["why_not"] and stored["provenance"] == plain["provenance"]
    assert any("the ranking is the answer's, proven by" in note for note in stored["notes"])
    other = mapsearch("explain", answer, "--why-not", "tp=4", "--global-batch", 32, "--format", "json")
    assert "solved for another run" in json.loads(other.out)["notes"][-1] and "not the same run" in other.err
    told = mapsearch("explain", topology, "--why-not", "tp=4")
    assert told.code == 2 and "is no mapsearch.answer/1" in told.err


def test_a_wish_that_fits_and_one_that_does_not(mapsearch, topology, tmp_path):
    told = mapsearch("explain", *SMALL, "-t", topology, "-q", "--fix", "cp=1", "--why-not", "tp=4,dp=4")
    assert told.code == 0
    assert "than the fastest mapping" in told.out or "it is the fastest mapping" in told.out
    told = mapsearch("explain", *SMALL, "-t", topology, "-q", "--fix", "cp=1", "--why-not", "tp=3")
    assert told.code == 3 and "you ask for tp = 3" in told.out and "the nearest that fits: tp 3 →" in told.out
    mapping = tmp_path / "mine.yaml"
    mapping.write_text("tp: 8\ndp: 2\nep: 1\nedp: 16\n")
    told = mapsearch("explain", *SMALL, "-t", topology, "-q", "--why-not", mapping, "--format", "json")
    assert json.loads(told.out)["why_not"]["complete"] is True
