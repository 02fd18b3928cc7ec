"""`mapsearch sensitivity`: what reaches the search, exit codes, formats, plots, bad input; real small runs."""

from __future__ import annotations

import csv
import io
import json
import sys
from types import ModuleType

import answers
import pytest
import yaml

from mapsearch.answer import Proof, Space
from mapsearch.parametric import Piece, Sensitivity

GB = 1e9
LEVELS = (
    "name: toy\ndevice: {name: X, hbm: 96 GB, hbm_bandwidth: 2 TB/s, peak: {bf16: 400 TFLOP/s}, "
    "host_memory: 192 GB, host_bandwidth: 25 GB/s}\n"
    "levels: [{name: board, size: 8, bandwidth: 100 GB/s, latency: 3 us, high_bandwidth: true}, "
    "{name: rack, size: 2, bandwidth: 25 GB/s, latency: 5 us}]\n"
)
SMALL = ("--model", "llama-3.1-8b", "--profile", "asic", "--sequence-length", 1024, "--global-batch", 16)
FIXED = ("--fix", "cp=1", "--fix", "schedule=1f1b", "--fix", "zero=1")


def result(**changes):
    pieces = [
        Piece(rank=1, low=64 * GB, high=80 * GB, interval="64 GB to below 80 GB", step_time_low_s=None,
              step_time_high_s=None, mapping=None),
        Piece(rank=2, low=80 * GB, high=256 * GB, interval="80 GB to 256 GB", changes_between=[80 * GB, 80 * GB],
              step_time_low_s=12.0, step_time_high_s=12.0, change="the first that fits",
              mapping=answers.mapping(1, step_s=12.0)),
    ]  # fmt: skip
    fields = {
        "status": "proven",
        "over": "hbm",
        "unit": "bytes",
        "low": 64 * GB,
        "high": 256 * GB,
        "breakpoints": "exact",
        "pieces": pieces,
        "solves": 1,
        "space": Space(mappings=10**9, cells=4321, pairs_evaluated=98_765),
        "proofs": [Proof(backend="exhaustive", status="proven", kind="exhaustion", detail="9 cells")],
        "provenance": answers.PROVENANCE,
    }
    return Sensitivity(**{**fields, **changes})


class FakeSensitivities:
    """Records the calls, and gives the result it was told to."""

    def __init__(self):
        self.result, self.calls = result(), []

    def sensitivity(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.result


@pytest.fixture
def fake(monkeypatch):
    fake = FakeSensitivities()
    module = ModuleType("mapsearch.sensitivities.api")
    module.sensitivity = fake.sensitivity
    monkeypatch.setitem(sys.modules, "mapsearch.sensitivities.api", module)
    return fake


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(LEVELS)
    return path


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"status": "exact", "proofs": []}, 0),
        ({"status": "open", "proofs": []}, 0),
        ({"interrupted": True}, 130),
        ({"status": "infeasible", "pieces": result().pieces[:1]}, 3),
        ({"status": "unknown", "pieces": []}, 4),
    ],
)
def test_exit_codes(mapsearch, fake, run_file, changes, code):
    fake.result = result(**changes)
    told = mapsearch("sensitivity", "--run", run_file, "--over", "hbm=64GB..256GB")
    assert told.code == code
    assert fake.result.status.upper() in told.out


def test_options_reach_the_search(mapsearch, fake, run_file):
    mapsearch(
        *("sensitivity", "--model", "m", "--run", run_file, "--topology", "t", "--profile", "p", "--devices", 64),
        *("--over", "capacity_factor=1..2", "--points", 3, "--tolerance", 0.1, "--certify", "--backend", "milp"),
        *("--time-limit", 2.5, "--at-most", "pp=2"),
    )
    (args, options), *_ = fake.calls
    assert (args[0], args[2]) == ("m", "t") and args[1].constraints.at_most == {"pp": 2}
    wanted = {"over": "capacity_factor=1..2", "points": 3, "tolerance": 0.1, "certify": True, "backend": "milp"}
    assert {**options, **wanted, "time_limit": 2.5, "profile": "p", "devices": 64} == options


def test_every_format_holds_every_piece(mapsearch, fake, run_file):
    def told(form):
        return mapsearch("sensitivity", "--run", run_file, "--over", "hbm=64GB..256GB", "--format", form).out

    assert Sensitivity.model_validate(json.loads(told("json"))).pieces == fake.result.pieces
    assert len(yaml.safe_load(told("yaml"))["pieces"]) == 2
    rows = list(csv.DictReader(io.StringIO(told("csv"))))
    assert [row["step_time_low_s"] for row in rows] == ["", "12.0"] and rows[1]["tp"]
    assert "| 64 GB to below 80 GB | nothing fits |" in told("md")
    assert "64 GB to 80 GB  nothing fits" in told("table") and "the first that fits" in told("table")


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_table_fits_the_width(mapsearch, fake, run_file, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = mapsearch("sensitivity", "--run", run_file, "--over", "hbm=64GB..256GB").out
    assert max(map(len, out.replace(str(run_file), "run.yaml").splitlines())) <= width


def test_a_breakpoint_is_rounded_up_so_that_the_mapping_fits():
    from mapsearch.reports.sensitivities import value_text

    assert value_text(result(), 65.5501 * GB) == "65.551 GB"
    assert value_text(result(), 256 * GB) == "256 GB"
    assert value_text(result(unit="share"), 0.05) == "0.05"
    assert value_text(result(unit="devices"), 8192.0) == "8,192"


@pytest.mark.parametrize(("ending", "start"), [(".html", b"<!doctype html>"), (".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_plots_need_no_network_and_are_the_same_bytes_again(mapsearch, fake, run_file, tmp_path, ending, start):
    pytest.importorskip("plotly" if ending == ".html" else "matplotlib")
    from mapsearch.reports.exports.steps import sensitivity_plot

    path = tmp_path / f"steps{ending}"
    call = ("sensitivity", "--run", run_file, "--over", "hbm=64GB..256GB", "--plot", path)
    assert mapsearch(*call).code == 0
    drawn = path.read_bytes()
    assert drawn.lstrip().lower().startswith(start.lower())
    fake.result = fake.result.model_copy(update={"provenance": answers.PROVENANCE})
    assert drawn == sensitivity_plot(fake.result, ending)
    if ending == ".html":
        assert b'<script src="http' not in drawn
    if ending == ".svg":
        assert b"hbm (GB)" in drawn


def test_real_steps_of_memory_are_proven_and_the_same_bytes_again(mapsearch, topology):
    call = ("sensitivity", *SMALL, *FIXED, "--topology", topology, "--over", "hbm=8GB..96GB", "--format", "json")
    first, second = (mapsearch(*call) for _ in range(2))
    assert first.code == 0 and first.out == second.out
    told = Sensitivity.model_validate(json.loads(first.out))
    assert told.status == "proven" and len(told.pieces) > 2
    again = mapsearch(
        *("solve", *SMALL, *FIXED, "--topology", topology, "--top", 1, "--format", "json"),
    )
    best = json.loads(again.out)["mappings"][0]
    assert best["step_time_s"] == pytest.approx(told.pieces[-1].step_time_low_s, rel=1e-9)


def test_devices_are_those_that_the_cluster_can_have(mapsearch, topology):
    call = ("sensitivity", *SMALL, *FIXED, "--topology", topology, "--format", "json")
    told = json.loads(mapsearch(*call, "--over", "devices=2..16").out)
    assert [piece["low"] for piece in told["pieces"]] == [2, 4, 8, 16] and told["status"] == "proven"
    assert all(piece["mapping"]["devices"] <= piece["low"] for piece in told["pieces"] if piece["mapping"])
    told = json.loads(mapsearch(*call, "--over", "devices=8,12,16").out)
    assert [piece["low"] for piece in told["pieces"]] == [8, 16]
    assert any(note.startswith("12 is left out: cannot have 12 devices") for note in told["notes"])
    assert mapsearch(*call, "--over", "devices=12,13").code == 2


def test_a_bandwidth_is_bracketed_and_says_so(mapsearch, topology):
    call = ("sensitivity", *SMALL, *FIXED, "--topology", topology)
    out = mapsearch(*call, "--over", "bandwidth.rack=1GB/s..200GB/s", "--points", 2).out
    words = " ".join(out.split())
    assert "breakpoints bracketed" in words and "per device and one way" in words


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--over", "hmb=64GB..256GB"), "did you mean 'hbm'"),
        (("--over", "hbm=256GB..64GB"), "the range runs backwards; write 64GB..256GB"),
        (("--over", "hbm=64..256"), "has no unit"),
        (("--over", "sequence_length=1024..2048", "--points", 0), "0 values cannot be solved"),
        (("--over", "bandwidth.rak=1GB/s..2GB/s"), "did you mean 'rack'"),
        (("--over", "hbm=64GB..256GB", "--plot", "x.pdf"), "accepted: .html, .svg or .png"),
        ((), "--over"),
    ],
)
def test_bad_input_is_one_sentence(mapsearch, topology, options, said):
    told = mapsearch("sensitivity", *SMALL, "--topology", topology, *options)
    assert told.code == 2 and said in told.err and len(told.err.splitlines()) == 1 and "Traceback" not in told.err


def test_ticks_of_a_plot_are_whole_numbers_that_its_values_need():
    from mapsearch.reports.exports.plots import plain_ticks

    narrow, wide = plain_ticks([8.68, 10.28]), plain_ticks([4.5, 107.0])
    inside = [text for tick, text in zip(narrow["tickvals"], narrow["ticktext"], strict=True) if 8.68 <= tick <= 10.28]
    assert inside == ["8.8", "9", "9.2", "9.4", "9.6", "9.8", "10", "10.2"]
    assert [tick for tick in wide["tickvals"] if 4.5 <= tick <= 107.0] == [5.0, 10.0, 20.0, 50.0, 100.0]
    assert "5" in wide["ticktext"] and "200" in wide["ticktext"] and wide["type"] == "log"
    # One value has no span.
    assert 10.0 in plain_ticks([10.0])["tickvals"]
