"""`mapsearch topology` as a user types it."""

from __future__ import annotations

import json

import pytest

from mapsearch.cli.main import main
from mapsearch.topologies import names


@pytest.fixture
def run(capsys, monkeypatch):
    def call(*arguments, width=80):
        monkeypatch.setenv("COLUMNS", str(width))
        code = main(["topology", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize("width", [80, 120])
def test_list_names_all_and_fits(run, width):
    code, out, err = run("list", width=width)
    assert (code, err) == (0, "")
    assert all(name in out for name in names())
    assert max(map(len, out.splitlines())) <= width


@pytest.mark.parametrize("name", names())
def test_show_fits_a_narrow_screen(run, name):
    code, out, err = run("show", name)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith(f"{name}: ")


def test_show_gives_levels_device_sources_and_totals(run):
    _, out, _ = run("show", "asic", width=120)
    for text in ("64 × 8 × 8", "whole group only", "64 racks", "12.5 GB/s", "6.00 us", "high", "assumed", "393 TB",
                 "bf16 400 TFLOP/s", "1.64 EFLOP/s"):  # fmt: skip
        assert text in out, text
    code, out, _ = run("show", "gb200-nvl72", "--devices", 144, "--format", "json")
    data = json.loads(out)
    assert (code, data["schema"], data["devices"]) == (0, "mapsearch.topology/1", 144)
    assert [level["size"] for level in data["levels"]] == [72, 2]
    assert run("show", "gb200-nvl72", "--devices", 100)[0] == 2


def test_validate_goes_on_after_a_mistake(run, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\n")
    code, out, err = run("validate", "asic", bad, "hgx-h100")
    assert code == 2
    assert out.count(": ok, ") == 2 and "4,096 devices as 64 x 8 x 8" in out
    assert err.count("\n") == 1 and "bad.yaml" in err


def test_validate_warns_and_passes(run, tmp_path):
    odd = tmp_path / "odd.yaml"
    text = run("export", "hgx-h100")[1]
    odd.write_text(text.replace("bandwidth: 50 GB/s", "bandwidth: 400 GB/s"))
    code, out, err = run("validate", odd)
    assert code == 0 and ": ok, 1,024 devices" in out
    assert "odd.yaml: warning: level cluster: 400 GB/s is eight times" in err


def test_export_is_read_again(run, tmp_path):
    path = tmp_path / "half.yaml"
    assert run("export", "asic", "--devices", 2048, "-o", path)[0] == 0
    assert "2,048 devices as 32 x 8 x 8" in run("validate", path)[1]
    code, out, _ = run("export", "asic-64", "--format", "node-link")
    graph = json.loads(out)
    assert code == 0 and sum(node["type"] == "device" for node in graph["nodes"]) == 64
    assert len(graph["edges"]) == 3 * 64 and {"source", "target", "bytes_per_s"} <= set(graph["edges"][0])
    explicit = tmp_path / "graph.json"
    explicit.write_text(json.dumps({
        "name": "pair", "device": json.loads(json.dumps({"name": "X", "hbm": "1 GB", "hbm_bandwidth": "1 TB/s",
                                                         "peak": {"bf16": "1 TFLOP/s"}})),
        "nodes": [{"id": "a"}, {"id": "b"}], "links": [{"a": "a", "b": "b", "bandwidth": "1 GB/s"}],
    }))  # fmt: skip
    assert "kind: full_mesh" in run("export", explicit, "--format", "levels")[1]
