"""`mapsearch topology import` and `compose` as a user types them, up to a search on what they write."""

from __future__ import annotations

import json

import node_texts as texts
import pytest

from mapsearch.cli.main import main
from mapsearch.topologies import fabric_of, load_topology
from mapsearch.topologies.spec import Topology


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node.txt").write_text(texts.nvswitch())
    (tmp_path / "topology.conf").write_text(texts.SLURM)
    (tmp_path / "torn.txt").write_text("\n".join(texts.nvswitch().splitlines()[:6]))

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


COMPOSE = ("topology", "compose", "--node", "node.txt", "--fabric", "topology.conf", "--device", "h100")


def test_a_node_is_imported_and_shown(run):
    code, out, err = run("topology", "import", "node.txt", "--device", "h100", "-o", "node.yaml")
    assert (code, out, err) == (0, "", "written to node.yaml\n")
    code, out, _ = run("topology", "show", "node.yaml")
    assert code == 0 and "node   8 devices        8   450 GB/s" in out


def test_a_cluster_is_composed_and_searched(run):
    code, out, err = run(*COMPOSE, "-o", "cluster.yaml")
    assert code == 0 and out == ""
    assert "note: lists no NICs: one of 50 GB/s for each device is taken (datasheet: DGX H100" in err
    fabric = fabric_of(load_topology("cluster.yaml"))
    assert [(level.name, level.size, level.bytes_per_s) for level in fabric.levels] == [
        ("node", 8, 450e9), ("leaf", 4, 50e9), ("cluster", 2, 50e9),
    ]  # fmt: skip
    solve = ("solve", "--topology", "cluster.yaml", "--model", "llama-3.1-8b", "--top", 1, "--format", "json")
    code, out, err = run(*solve)
    assert code == 0, err
    answer = json.loads(out)
    assert answer["status"] == "optimal" and answer["provenance"]["topology"] == "cluster.yaml"
    assert any("non-blocking" in line for line in answer["provenance"]["assumptions"])


def test_the_same_files_give_the_same_bytes_and_both_commands_agree(run):
    _, first, _ = run(*COMPOSE, "--name", "lab")
    _, second, _ = run(*COMPOSE, "--name", "lab")
    _, third, _ = run("topology", "import", "topology.conf", "node.txt", "--device", "h100", "--name", "lab")
    assert first == second == third and first.startswith("name: lab\n")


def test_json_is_written_where_the_name_says_so(run):
    assert run(*COMPOSE, "-o", "cluster.json")[0] == 0
    assert isinstance(load_topology("cluster.json"), Topology)
    with open("cluster.json", encoding="utf-8") as file:
        assert json.load(file)["name"] == "topology"


def test_uplinks_and_forms(run):
    assert run(*COMPOSE, "--uplink", "2:1", "--form", "levels", "-o", "cluster.yaml")[0] == 0
    topology = load_topology("cluster.yaml")
    assert [level.bandwidth for level in topology.levels] == [450e9, 50e9, 25e9]
    assert topology.levels[2].sources["bandwidth"] == "command line: 2:1 oversubscribed"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("import", "torn.txt"), "torn.txt: line 6: has no row for GPU5, GPU6, GPU7, though the header names them"),
        (("import", "node.txt"), "node.txt: does not say what its devices are; name it with --device: v100"),
        (("import", "topology.conf"), "says how nodes are joined and nothing of what is in them"),
        (("import", "none.txt"), "none.txt: no such file"),
        (("import", "node.txt", "--device", "h100", "--link-rate", "25"), "--link-rate: '25' has no unit"),
        (("compose", "--node", "topology.conf", "--fabric", "topology.conf"), "does not say what is in a node"),
        (("compose", "--node", "node.txt", "--fabric", "node.txt", "--device", "h100"), "is no fabric between nodes"),
        (("compose", "--node", "node.txt", "--fabric", "topology.conf", "--uplink", "x"), "--uplink: 'x' is neither"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence_and_exit_2(run, arguments, sentence):
    code, out, err = run("topology", *arguments)
    assert code == 2 and out == "" and sentence in err
    assert err.startswith("mapsearch: ") and "Traceback" not in err


def test_repairs_are_done_when_told_and_said(run):
    code, _, err = run("topology", "import", "torn.txt", "--device", "h100", "--repair", "-o", "node.yaml")
    assert code == 0 and "note: repaired: line 6: has no row for GPU5, GPU6, GPU7" in err
    assert "note: repaired: line 1: GPU5 and GPU6 have no link between them" in err
    assert fabric_of(load_topology("node.yaml")).devices == 8
