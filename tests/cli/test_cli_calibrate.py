"""`mapsearch calibrate`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import sys

import pytest
import yaml

ROWS = """# Collective test starting: all_gather_perf
# nThread 1 nGpus 8 minBytes 1048576 maxBytes 1073741824 step: 4(factor)
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576         32768     float    none      -1    33.06   31.72   27.75      0    33.06   31.72   27.75      0
     4194304        131072     float    none      -1    42.23   99.32   86.90      0    42.23   99.32   86.90      0
    16777216        524288     float    none      -1    78.93  212.56  185.99      0    78.93  212.56  185.99      0
    67108864       2097152     float    none      -1    225.7  297.34  260.17      0    225.7  297.34  260.17      0
   268435456       8388608     float    none      -1    812.9  330.22  288.94      0    812.9  330.22  288.94      0
  1073741824      33554432     float    none      -1   3161.7  339.61  297.16      0   3161.7  339.61  297.16      0
"""
ONE_RANK = """# Collective test starting: alltoall_perf
#  Rank  0 Group  0 Pid 2 on host device  0 [0x1b] NVIDIA B200
     4299152       2149576      half    none      -1     7.09  605.97    0.00      0     0.79  5429.94    0.00    N/A
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "gather.log"
    path.write_text(ROWS)
    return path


def test_table(mapsearch, log):
    result = mapsearch("calibrate", "collectives", log)
    assert result.code == 0 and "all-gather" in result.out and "inside" in result.out
    assert "30.0 us" in result.out and "300" in result.out and max(map(len, result.out.splitlines())) <= 130


def test_json_and_part(mapsearch, log, tmp_path):
    part = tmp_path / "part.yaml"
    arguments = ("--bandwidth", "450 GB/s", "--latency", "3 us", "--format", "json", "--output", part)
    result = mapsearch("calibrate", "collectives", log, *arguments)
    assert result.code == 0
    data = json.loads(result.out)
    (entry,) = data["logs"]
    assert (entry["operation"], entry["ranks"], entry["level"]) == ("all_gather", 8, "inside")
    assert entry["usable"]["alpha_s"] == pytest.approx(30e-6, rel=0.02)
    assert entry["usable"]["bus_bytes_per_s"] == pytest.approx(300e9, rel=0.01)
    written = yaml.safe_load(part.read_text())
    assert written == data["profile"]
    assert written["all_gather"]["high_bandwidth_peak"]["value"] == pytest.approx(0.667, abs=0.01)
    assert written["all_gather"]["launch"]["source"] == "measured"


def test_shares_across_nodes_say_which_rings_they_are_counted_by(mapsearch, log, tmp_path):
    part = tmp_path / "part.yaml"
    options = ("--level", "across", "--ranks-per-node", "4", "--bandwidth", "100 GB/s", "-o", part)
    result = mapsearch("calibrate", "collectives", log, *options)
    assert result.code == 0 and "rings: flat" in result.out
    written = yaml.safe_load(part.read_text())
    assert written["all_gather"]["peak"]["value"] == pytest.approx(300 / 4 / 100, abs=0.01)
    assert written["rings"]["value"] == "flat"


def test_a_part_goes_into_a_profile(mapsearch, log, tmp_path):
    from mapsearch.inventories.profiles import load_profile

    part = tmp_path / "part.yaml"
    mapsearch("calibrate", "collectives", log, "--bandwidth", "450 GB/s", "-o", part)
    merged = load_profile("h100").all_gather.model_dump() | yaml.safe_load(part.read_text())["all_gather"]
    merged |= {"half_bytes": "0 B", "launch": "0 us"}
    assert load_profile("h100").replaced(all_gather=merged).all_gather.high_bandwidth_peak == pytest.approx(
        0.667, abs=0.01
    )


def test_a_log_that_cannot_be_used_says_why(mapsearch, log, tmp_path):
    bad = tmp_path / "bad.log"
    bad.write_text(ONE_RANK)
    result = mapsearch("calibrate", "collectives", bad)
    assert result.code == 2 and "one rank" in result.err and result.out == ""
    both = mapsearch("calibrate", "collectives", log, bad)
    assert both.code == 0 and "Not used" in both.out and "one rank" in both.out
    missing = mapsearch("calibrate", "collectives", tmp_path / "none.log")
    assert missing.code == 2 and "no such file" in missing.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bandwidth", "450"), "has no unit"),
        (("--bandwidth", "0 GB/s"), "--bandwidth"),
        (("--bandwidth", "100 GB/s"), "times the bandwidth that was given"),
        (("--operation", "all-gater"), "did you mean 'all_gather'"),
        (("--level", "across", "--bandwidth", "50 GB/s", "--ranks-per-node", "3"), "not a multiple"),
        (("-o", "part.yaml"), "give --bandwidth"),
        (("--from-size", "1 TB"), "no out-of-place time"),
    ],
)
def test_options_that_are_refused(mapsearch, log, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = mapsearch("calibrate", "collectives", log, *arguments)
    assert result.code == 2 and words in result.err and len(result.err.splitlines()) == 1


def test_gemm(mapsearch, tmp_path):
    path = tmp_path / "gemm.csv"
    path.write_text("m,n,k,dtype,time_us\n4096,4096,4096,bf16,200\n8192,8192,8192,bf16,1500\n256,8192,8192,bf16,70\n")
    result = mapsearch("calibrate", "gemm", path, "--peak", "989 TFLOP/s")
    assert result.code == 0 and "gemm.peak" in result.out
    data = json.loads(mapsearch("calibrate", "gemm", path, "--peak", "989 TFLOP/s", "-f", "json").out)
    assert 0.6 < data["curve"]["peak"] <= 1.0 and data["rows"] == 3
    above = mapsearch("calibrate", "gemm", path, "--peak", "300 TFLOP/s")
    assert above.code == 2 and "2.44 times the peak" in above.err
    assert mapsearch("calibrate", "gemm", path).code == 2


def test_without_scipy(mapsearch, log, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    result = mapsearch("calibrate", "collectives", log)
    assert result.code == 5 and "pip install 'mapsearch[calibrate]'" in result.err


STEPS = """model: mixtral-8x7b
run: long-context-128k
topology: hgx-h100
devices: 64
sequence_length: 4096
global_batch: 256
steps:
  - {name: four stages, step_time: 3.4 s, mapping: {tp: 4, dp: 4, pp: 4, ep: 8, edp: 2}}
  - {name: one stage, step_time: 3.9 s, mapping: {tp: 8, dp: 8, ep: 8, edp: 8, micro_batch: 2}}
"""


def test_measured_steps_make_a_profile(mapsearch, tmp_path):
    path, profile = tmp_path / "steps.yaml", tmp_path / "mine.yaml"
    path.write_text(STEPS)
    result = mapsearch("calibrate", "steps", path, "-o", profile)
    assert result.code == 0 and "four stages" in result.out and "left out" in result.out
    data = json.loads(mapsearch("calibrate", "steps", path, "-f", "json").out)
    assert data["schema"] == "mapsearch.calibration-steps/1" and len(data["steps"]) == 2
    before, after = (
        max(abs(one[key] / one["measured_s"] - 1.0) for one in data["steps"]) for key in ("before_s", "fitted_s")
    )
    assert after < before
    mapping = tmp_path / "m.yaml"
    mapping.write_text("{tp: 4, dp: 4, pp: 4, ep: 8, edp: 2}")
    inputs = ("--model", "mixtral-8x7b", "--topology", "hgx-h100", "--devices", 64, "--sequence-length", 4096)
    checked = mapsearch("check", mapping, *inputs, "--global-batch", 256, "--profile", profile, "-f", "json")
    step = json.loads(checked.out)["mapping"]["step_time_s"]
    assert checked.code == 0 and step == pytest.approx(data["steps"][0]["fitted_s"], rel=2e-3)


def test_measured_steps_that_cannot_be_read(mapsearch, tmp_path):
    path = tmp_path / "steps.yaml"
    path.write_text(STEPS.replace("step_time: 3.4 s", "step_time: fast"))
    result = mapsearch("calibrate", "steps", path)
    assert result.code == 2 and "steps.0.step_time" in result.err and "Traceback" not in result.err
    assert mapsearch("calibrate", "steps", tmp_path / "none.yaml").code == 2
