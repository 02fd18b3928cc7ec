"""`mapsearch pareto`: what reaches the search, exit codes, formats, plots; one real run of a small space."""

from __future__ import annotations

import csv
import io
import json
import sys
from types import ModuleType

import fronts
import pytest
import yaml

from mapsearch.front import Front
from mapsearch.fronts import knee_of
from mapsearch.reports.exports.plots import plot_bytes

LEVELS = (
    "name: toy\ndevice: {name: X, hbm: 96 GB, hbm_bandwidth: 2 TB/s, peak: {bf16: 400 TFLOP/s}, "
    "host_memory: 192 GB, host_bandwidth: 25 GB/s%s}\n"
    "levels: [{name: board, size: 8, bandwidth: 100 GB/s, latency: 3 us, high_bandwidth: true}]\n"
)
SMALL = ("--model", "llama-3.1-8b", "--profile", "asic", "--sequence-length", 1024, "--global-batch", 16)


class FakeFronts:
    """Records the calls, and gives the front it was told to."""

    def __init__(self):
        self.front, self.calls = fronts.front(), []

    def pareto(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.front


@pytest.fixture
def fake(monkeypatch):
    fake = FakeFronts()
    module = ModuleType("mapsearch.fronts")
    module.pareto = fake.pareto
    monkeypatch.setitem(sys.modules, "mapsearch.fronts", module)
    return fake


@pytest.fixture
def topology(tmp_path):
    def written(facts=""):
        path = tmp_path / "toy.yaml"
        path.write_text(LEVELS % facts)
        return path

    return written


@pytest.mark.parametrize(
    ("front", "code"),
    [
        (fronts.front(), 0),
        (fronts.front(status="exact", proofs=[]), 0),
        (fronts.open_front(), 0),
        (fronts.front(interrupted=True), 130),
        (fronts.empty("infeasible"), 3),
        (fronts.empty("unknown"), 4),
    ],
)
def test_exit_codes(mapsearch, fake, run_file, front, code):
    fake.front = front
    result = mapsearch("pareto", "--run", run_file)
    assert result.code == code
    assert front.status.upper() in result.out


def test_options_reach_the_search(mapsearch, fake, run_file):
    mapsearch(
        *("pareto", "--model", "m", "--run", run_file, "--topology", "t", "--profile", "p", "--devices", 64),
        *("--objectives", "step_time,devices", "--certify", "--backend", "milp", "--time-limit", 2.5),
        *("--at-most", "pp=2"),
    )
    (args, options), *_ = fake.calls
    assert (args[0], args[2]) == ("m", "t")
    assert args[1].constraints.at_most == {"pp": 2}
    wanted = {"objectives": "step_time,devices", "certify": True, "backend": "milp", "time_limit": 2.5}
    assert {**options, **wanted, "profile": "p", "devices": 64} == options


def test_every_format_holds_every_point(mapsearch, fake, run_file):
    def told(form):
        return mapsearch("pareto", "--run", run_file, "--format", form).out

    assert Front.model_validate(json.loads(told("json"))).points == fake.front.points
    assert len(yaml.safe_load(told("yaml"))["points"]) == 4
    rows = list(csv.DictReader(io.StringIO(told("csv"))))
    assert [float(row["objective_step_time"]) for row in rows] == [10.0, 12.0, 20.0, 40.0]
    assert [row["knee"] for row in rows] == ["False", "True", "False", "False"]
    assert told("md").count("\n| ") == 5
    assert "knee" in told("table") and "29.0 GB" in told("table")


def test_a_stopped_front_says_which_region_is_open(mapsearch, fake, run_file):
    fake.front = fronts.open_front()
    out = mapsearch("pareto", "--run", run_file).out
    assert "OPEN: 4 mappings on the front of step time, peak memory so far: not proven" in out
    assert "step 11.0 s, worst HBM 20.0 GB" in out
    assert "knee, open" in out


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_table_fits_the_width(mapsearch, fake, run_file, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = mapsearch("pareto", "--run", run_file).out.replace(str(run_file), "run.yaml")
    assert max(map(len, out.splitlines())) <= width


def test_a_long_front_shows_both_ends_and_the_knee(mapsearch, fake, run_file):
    points = [(10.0 + number, 1e9 * (200 - number)) for number in range(150)]
    fake.front = fronts.front(points, knee=77)
    out, whole = (mapsearch("pareto", "--run", run_file, *more).out for more in ((), ("--verbose",)))
    shown = [line.split()[0] for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert {"1", "78", "150"} <= set(shown) and len(shown) < 50
    assert len([line for line in whole.splitlines() if line.strip()[:1].isdigit()]) == 150


def test_a_real_front_is_proven_and_the_same_bytes_again(mapsearch, topology):
    call = ("pareto", *SMALL, "--topology", topology(), "--fix", "cp=1", "--fix", "schedule=1f1b", "--fix", "zero=1")
    first, second = (mapsearch(*call, "--format", "json") for _ in range(2))
    assert first.code == 0 and first.out == second.out
    front = Front.model_validate(json.loads(first.out))
    assert front.status == "proven" and front.proofs[0].kind == "exhaustion"
    times, peaks = ([point.objectives[name] for point in front.points] for name in front.objectives)
    assert times == sorted(times) and peaks == sorted(peaks, reverse=True) and len(times) > 2
    for point in front.points:
        assert point.mapping.step_time_s == pytest.approx(point.objectives["step_time"], rel=1e-9)
        assert point.mapping.peak_memory_bytes == pytest.approx(point.objectives["peak_memory"], rel=1e-9)
        assert all(margin.margin >= 0.0 for margin in point.mapping.margins)


def test_parts_of_the_cluster_are_there_when_devices_are_an_objective(mapsearch, topology):
    call = ("pareto", *SMALL, "--topology", topology(), "--fix", "schedule=1f1b", "--fix", "zero=1")
    result = mapsearch(*call, "--objectives", "step_time,devices", "--format", "json")
    front = Front.model_validate(json.loads(result.out))
    assert [point.objectives["devices"] for point in front.points] == [8.0, 4.0, 2.0, 1.0]
    assert all(point.mapping.devices == point.objectives["devices"] for point in front.points)


@pytest.mark.parametrize(("name", "key"), [("energy", "power"), ("cost", "price_per_hour")])
def test_a_missing_fact_is_named(mapsearch, topology, name, key):
    result = mapsearch("pareto", *SMALL, "--topology", topology(), "--objectives", f"step_time,{name}")
    assert result.code == 2 and f"device.{key}" in result.err and "Traceback" not in result.err


def test_energy_and_cost_follow_from_the_topology(mapsearch, topology):
    path = topology(", power: 1 kW, price_per_hour: 3.6")
    call = ("pareto", *SMALL, "--topology", path, "--fix", "schedule=1f1b", "--fix", "zero=1")
    out = mapsearch(*call, "--objectives", "step_time,energy,cost", "--format", "json").out
    (point,) = Front.model_validate(json.loads(out)).points
    seconds = point.objectives["step_time"] * 8
    assert point.objectives["energy"] == pytest.approx(1000 * seconds)
    assert point.objectives["cost"] == pytest.approx(0.001 * seconds)


def test_objectives_and_plots_are_checked_before_the_search(mapsearch, topology, tmp_path):
    assert "did you mean 'devices'" in mapsearch("pareto", "--objectives", "step_time,device").err
    assert "accepted: .html, .svg or .png" in mapsearch("pareto", "--plot", tmp_path / "front.pdf").err


def test_a_missing_library_is_named(mapsearch, fake, run_file, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    result = mapsearch("pareto", "--run", run_file, "--plot", tmp_path / "front.svg")
    assert result.code == 5 and "pip install 'mapsearch[plots]'" in result.err
    assert not fake.calls


@pytest.mark.parametrize(("ending", "start"), [(".html", b"<!doctype html>"), (".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_plots_need_no_network_and_are_the_same_bytes_again(mapsearch, fake, run_file, tmp_path, ending, start):
    pytest.importorskip("plotly" if ending == ".html" else "matplotlib")
    path = tmp_path / f"front{ending}"
    assert mapsearch("pareto", "--run", run_file, "--plot", path).code == 0
    drawn = path.read_bytes()
    assert drawn.lstrip().lower().startswith(start.lower())
    assert drawn == plot_bytes([fake.front], [fake.front.provenance.topology], ending)
    if ending == ".html":
        assert b'<script src="http' not in drawn and b'<link href="http' not in drawn
    if ending == ".svg":
        assert b"knee #2" in drawn and b"worst HBM (GB)" in drawn


def test_the_knee_is_the_point_farthest_from_the_chord():
    import numpy as np

    assert knee_of(np.array([point for point in fronts.POINTS])) == 1
    assert knee_of(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
    assert knee_of(np.array([[1.0, 8.0, 4.0], [2.0, 1.0, 4.0], [8.0, 0.9, 4.0]])) == 1
    assert knee_of(np.array([[1.0, 1.0], [2.0, 0.2], [4.0, 0.0]])) == 1
