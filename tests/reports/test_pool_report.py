"""Reports about loops and router load, and the picture of divided devices."""

from __future__ import annotations

import json
import re

import pytest

from mapsearch.cli.main import main
from mapsearch.reports.exports.division import MOST, Divided, division_svg

LOOP = """
name: "a <b> loop"
training: {step: 30 s, batch_tokens: 4194304}
rollout: {tokens_per_s: 120000, concurrency: 128, lengths: {mean: 16384, cv: 0.8}}
publish: {time: 12 s, pause: 2 s}
queue: {most: 8388608}
budget: {versions: 4}
"""


@pytest.mark.parametrize("devices", [64, 4096, 131072])
def test_every_device_is_in_one_square(devices):
    train = 3 * devices // 4
    drawn = division_svg([Divided("train", train, "a & b"), Divided("roll out", devices - train, "rest")], 8)
    squares = re.findall(r"<title>([\d,]+) devices (train|roll out)</title>", drawn)
    assert len(squares) <= MOST
    for does, count in (("train", train), ("roll out", devices - train)):
        assert sum(int(each.replace(",", "")) for each, what in squares if what == does) == count
    assert "a &amp; b" in drawn


def test_a_loop_is_a_page_of_its_own(tmp_path, capsys):
    file, found, page = (tmp_path / name for name in ("loop.yaml", "loop.json", "loop.html"))
    file.write_text(LOOP)
    assert main(["loop", str(file), "--steps", "40", "--format", "json", "-o", str(found)]) in (0, 3)
    assert main(["report", str(found), "-o", str(page), "--figures", str(tmp_path / "figures")]) == 0
    text = page.read_text()
    for words in ("Queue and staleness over time", "Queue before training", "Versions behind at use", "Constraints"):
        assert words in text
    assert "a &lt;b&gt; loop" in text and "<script" not in text
    assert {one.name for one in (tmp_path / "figures").iterdir()} == {"queue.svg", "lag.svg", "age.svg"}
    simulated = {row["quantity"]: row for row in json.loads(found.read_text())["agreement"]}
    assert f"{100 * simulated['step_s']['apart']:+.1f} %" in text
    assert main(["report", str(found), "--front", str(found), "-o", str(page)]) == 2
    assert "does not go with a loop" in capsys.readouterr().err


def test_router_load_of_one_layer_is_drawn(tmp_path):
    load, page = tmp_path / "load.json", tmp_path / "load.html"
    made = ["experts", "--zipf", "0.8", "--layers", "1", "--experts", "16", "--top-k", "2", "--tokens", "4096",
            "--ranks", "4", "--backend", "none"]  # fmt: skip
    assert main([*made, "--format", "json", "-o", str(load)]) == 0
    assert main(["report", str(load), "-o", str(page)]) == 0
    text = page.read_text()
    assert "Worst rank over the mean" in text and "For the run file" in text
