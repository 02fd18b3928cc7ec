"""`mapsearch placement`: tables that fit, single groups, formats, and what is refused."""

from __future__ import annotations

import csv
import io
import json

import answers
import pytest

from mapsearch.placement import Placement
from mapsearch.solver.provenance import checksum
from mapsearch.topologies import load_topology, scaled

SIZES = {"tp": 4, "cp": 2, "dp": 8, "pp": 1, "etp": 1, "ep": 16, "edp": 4, "vpp": 1, "micro_batch": 1, "zero": 1}
PLACEMENT = {
    "tp": {"board": 4}, "cp": {"rack": 2}, "dp": {"board": 2, "rack": 4}, "ep": {"board": 4, "rack": 4},
    "edp": {"board": 2, "rack": 2},
}  # fmt: skip


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """An answer on 64 ASICs in the folder where the command runs; `change` edits its provenance."""
    monkeypatch.chdir(tmp_path)

    def write(**change):
        made = answers.optimal(2)
        about = made.provenance.model_copy(
            update={
                "topology": "asic-64",
                "profile": "asic",
                "input_sha256": {"topology": checksum(load_topology("asic-64"))},
                **change,
            }
        )
        choices = {
            "schedule": "1f1b", "recompute": "full", "offload": "none", "cp_kind": "ring", "dispatcher": "all-gather",
        }  # fmt: skip
        stated = {"sizes": SIZES, "placement": PLACEMENT, "choices": choices, "layout": [], "devices": 64}
        mappings = [one.model_copy(update=stated) for one in made.mappings]
        text = made.model_copy(update={"mappings": mappings, "provenance": about}).to_json()
        (tmp_path / "answer.json").write_text(text)
        return "answer.json"

    return write


@pytest.fixture
def mapping(tmp_path):
    path = tmp_path / "mapping.yaml"
    path.write_text("{tp: 4, dp: 16, ep: 16, edp: 4}\n")
    return str(path)


def test_every_axis_has_a_line_with_its_levels(mapsearch, answer):
    found = mapsearch("placement", answer())
    assert found.code == 0
    rows = {line.split()[0]: line.split() for line in found.out.splitlines() if line.startswith("  ")}
    assert rows["EP"] == ["EP", "16", "4", "4@board", "×", "4@rack", "rack", "board{0..3}/device{0..3}"]
    assert rows["TP"][1:5] == ["4", "16", "4@board", "board"]
    assert set(rows) == {"axis", "TP", "CP", "DP", "PP", "ETP", "EP", "EDP"}


@pytest.mark.parametrize("width", [40, 80, 120])
def test_tables_fit(mapsearch, answer, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for more in ([], ["--axis", "ep"], ["--of", "7"]):
        lines = mapsearch("placement", answer(), *more).out.splitlines()
        # Of the table itself no column is left out, so it needs 60.
        assert all(len(line) <= max(width, 60) for line in lines), max(lines, key=len)


def test_groups_of_an_axis_of_a_rank_and_of_a_device(mapsearch, answer):
    path = answer()
    listed = mapsearch("placement", path, "--axis", "tp").out
    assert "  0: ranks {0..3} on board0/device{0..3}" in listed
    assert "  15: ranks {60..63} on " in listed
    one = mapsearch("placement", path, "--axis", "tp", "--group", "1").out.splitlines()
    assert [line.split() for line in one[-4:]] == [[str(i), str(4 + i), f"board1/device{i}"] for i in range(4)]
    by_rank = mapsearch("placement", path, "--of", "5").out
    assert by_rank == mapsearch("placement", path, "--of", "board1/device1").out
    assert by_rank.count(" groups\n") == 7


def test_json_is_typed_and_complete(mapsearch, answer, tmp_path):
    found = mapsearch("placement", answer(), "--format", "json")
    placement = Placement.model_validate(json.loads(found.out))
    assert placement.to_json() == found.out
    assert sorted(placement.devices) == sorted(f"board{b}/device{d}" for b in range(8) for d in range(8))
    assert len(placement.groups["edp"]) == 16 and len(placement.groups["edp"][0]) == 4
    mapsearch("placement", answer(), "--export", "json", "-o", str(tmp_path / "map.json"))
    assert (tmp_path / "map.json").read_text() == found.out


def test_csv_has_a_line_per_rank(mapsearch, answer):
    rows = list(csv.DictReader(io.StringIO(mapsearch("placement", answer(), "-f", "csv").out)))
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(64)]
    groups = json.loads(mapsearch("placement", answer(), "-f", "json").out)["groups"]
    for row in rows:
        assert groups["ep"][int(row["ep_group"])][int(row["ep"])] == int(row["rank"])


def test_markdown_has_a_table(mapsearch, answer):
    assert "| EP | 16 | 4 | 4@board × 4@rack | rack |" in mapsearch("placement", answer(), "-f", "md").out


@pytest.mark.parametrize("format_", ["megatron", "torchrun", "slurm", "rankfile", "nccl"])
def test_exports_write_their_files(mapsearch, mapping, tmp_path, format_):
    folder = tmp_path / "launch"
    folder.mkdir()
    found = mapsearch("placement", mapping, "-t", "asic-64", "--export", format_, "-o", str(folder))
    assert found.code == 0, found.err
    assert any("board7 " in path.read_text() or "=board7" in path.read_text() for path in folder.iterdir())


def test_hosts_under_their_own_names(mapsearch, mapping, tmp_path):
    names = tmp_path / "hosts.txt"
    names.write_text("".join(f"node{i:02}\n" for i in range(8)))
    found = mapsearch("placement", mapping, "-t", "asic-64", "--export", "nccl", "--hosts", str(names))
    assert found.out.splitlines()[7] == ("node07 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 RANKS=56,57,58,59,60,61,62,63")


def test_links_say_what_is_gained(mapsearch, answer):
    found = mapsearch("placement", answer(), "--links", "--model", "mixtral-8x22b", "--run", "long-context-128k")
    assert found.code == 0, found.err
    assert "busiest link" in found.out and "in the fixed order" in found.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MAPPING"], "is a mapping and names no cluster; give one with --topology"),
        (["ANSWER#1", "--rank", "2"], "the mapping is named twice"),
        (["ANSWER#9"], "has no mapping of rank 9; it holds 2"),
        (["ANSWER", "--group", "1"], "--group: numbers the groups of one axis; say which with --axis"),
        (["ANSWER", "--axis", "ep", "--group", "4"], "--group: ep has groups 0 to 3, not 4"),
        (["ANSWER", "--of", "board9"], "--of: 'board9' is neither a rank from 0 to 63 nor a device in use"),
        (["ANSWER", "-t", "asic-8"], "was made for a topology with SHA-256"),
        (["ANSWER", "--export", "slurm"], "slurm is 4 files: tasks, devices, launch.sh, task.sh; name their folder"),
        (["ANSWER", "--export", "slurm", "-o", "/no/such/folder/x"], "cannot be written"),
    ],
)
def test_what_is_refused(mapsearch, answer, mapping, arguments, message):
    path = answer()
    given = [word.replace("ANSWER", path).replace("MAPPING", mapping) for word in arguments]
    found = mapsearch("placement", *given)
    assert found.code == 2
    assert message in found.err and found.err.count("\n") == 1


def test_a_topology_that_has_changed_or_is_gone(mapsearch, answer, tmp_path):
    cluster = tmp_path / "cluster.yaml"
    path = answer(topology=str(cluster))
    assert "which cannot be read here" in mapsearch("placement", path).err
    assert mapsearch("placement", path, "-t", "asic-64").code == 0


def test_an_answer_of_a_scaled_cluster(mapsearch, answer):
    sha = checksum(scaled(load_topology("asic"), 64))
    found = mapsearch("placement", answer(topology="asic", devices=64, input_sha256={"topology": sha}))
    assert found.code == 0, found.err
    assert "64 ranks on 64 devices of asic" in found.out


def test_a_cluster_with_holes_is_placed_on_the_units_that_the_search_takes(mapsearch, mapping, tmp_path):
    """A device down on one board: the whole board is spare where seven boards are enough."""
    text = "".join(
        f"  - {{name: {name}, size: {size}, bandwidth: {rate} GB/s, latency: 1 us}}\n"
        for name, size, rate in (("board", 8, 100), ("rack", 9, 25))
    )
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "name: holes\ndevice: {name: part, hbm: 8 GB, hbm_bandwidth: 1 TB/s, peak: {bf16: 1 TFLOP/s}}\n"
        f"levels:\n{text}down: [board3/device5]\n"
    )
    found = mapsearch("placement", mapping, "-t", str(cluster), "-f", "csv")
    assert found.code == 0, found.err
    devices = [line.split(",")[1] for line in found.out.splitlines()[1:]]
    assert len(devices) == 64 and not any(device.startswith("board3/") for device in devices)
