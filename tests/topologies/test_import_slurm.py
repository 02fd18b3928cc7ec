"""Slurm's topology.conf and topology.yaml, and topograph's models: own look-alikes with contents checked by hand."""

from __future__ import annotations

import pytest

from mapsearch.errors import InputError
from mapsearch.topologies.importers import importer_of, slurm_conf, slurm_yaml, topograph
from mapsearch.topologies.importers.base import MAX_NODES, Between, Repairs
from mapsearch.topologies.importers.hostlist import HostLists, Listed

TREE = """
# two racks under one spine
SwitchName=spine Switches=rack[1-2]
switchname=rack1 nodes=n[08-10],login-a   # keys in any case, zeros kept
SwitchName=rack2 Nodes=\\
  n[11,13-14]
"""
BLOCKS = """
BlockName=r1 Nodes=gb[01-18]
BlockName=r2 Nodes=gb[19-36]
BlockName=r3 Nodes=gb[37-54]
BlockName=r4 Nodes=gb[55-71]
BlockSizes=17,34
"""
YAML = """
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - {switch: top, children: "leaf[1-2]"}
      - {switch: leaf1, nodes: "g[1-2]"}
      - switch: leaf2
        nodes: g[3-4]
- topology: racks
  block:
    block_sizes: [2]
    blocks: [{block: b1, nodes: "g[1-2]"}, {block: b2, nodes: "g[3-4]"}]
- topology: rest
  flat: true
"""
MODEL = """
switches:
  top: {switches: [l1, l2], labels: {zone: z}}
blocks:
- switch: l1
  nodes: ["n[1-2]"]
  annotations: {accelerator.topology.test/domain: nvl-1}
- switch: l2
  nodes: [n3, n4]
"""
TORUS = """
- topology: pod
  torus3d:
    toruses:
      - {name: p, dims: {x: 3, y: 2, z: 1}, nodes: "n[0-5]"}
"""
RINGS = "RingName=a Nodes=n[1-4]\nRingName=b Nodes=n[5-6]\n"


def conf(text: str, *, repair: bool = False) -> Between:
    return slurm_conf.read(text, file="topology.conf", repair=repair)


def refusal(text: str, *, repair: bool = False) -> str:
    with pytest.raises(InputError) as caught:
        importer_of(text, "topology").read(text, file="topology", repair=repair)
    return str(caught.value)


def pairs(fabric: Between) -> set[tuple[str, str]]:
    return {(link.a, link.b) for link in fabric.links}


def names(text: str) -> list[str]:
    lists = HostLists(Repairs("f", False))
    return lists.names(Listed(text, lambda offset: (1, offset + 1)), "node")


@pytest.mark.parametrize(
    ("text", "written_out"),
    [
        ("a", ["a"]),
        ("a,b-2", ["a", "b-2"]),
        ("n[3]", ["n3"]),
        ("n[008-010,2]", ["n008", "n009", "n010", "n2"]),
        ("n[9-10]", ["n9", "n10"]),
        ("n[1-2]-ib,x", ["n1-ib", "n2-ib", "x"]),
        ("r[0-1]n[1-2]", ["r0n1", "r0n2", "r1n1", "r1n2"]),
        (" a , b", ["a", "b"]),
    ],
)
def test_host_lists(text: str, written_out: list[str]) -> None:
    assert names(text) == written_out


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("a,n[5-3]", 5, "runs backwards"),
        ("n[1-2", 2, "bracket without its partner"),
        ("n1]", 3, "bracket without its partner"),
        ("n[1-x]", 3, "neither a number nor a range"),
        ("n[000x333]", 3, "neither a number nor a range"),
        ("n[1-99999999999999999999]", 3, "neither a number"),
        ("a,n[1-999999999]", 3, "names 999,999,999 nodes"),
        ("n[0-999]m[0-999]k[0-999]", 1, "names 1,000,000,000 nodes"),
        ("a b", 2, "is no name of a node"),
        ("x" * 300, 1, "300 letters"),
    ],
)
def test_host_lists_refused(text: str, column: int, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        names(text)
    assert caught.value.field == f"line 1, column {column}"


def test_tree() -> None:
    fabric = conf(TREE)
    assert fabric.nodes == ("n08", "n09", "n10", "login-a", "n11", "n13", "n14")
    assert fabric.switches == ("spine", "rack1", "rack2")
    assert pairs(fabric) == {
        ("n08", "rack1"), ("n09", "rack1"), ("n10", "rack1"), ("login-a", "rack1"),
        ("n11", "rack2"), ("n13", "rack2"), ("n14", "rack2"),
        ("rack1", "spine"), ("rack2", "spine"),
    }  # fmt: skip
    assert all(link.bytes_per_s is None and link.kind == "network" for link in fabric.links)
    assert fabric.notes == ("uneven: leaf switches have 3 to 4 nodes",)


def test_several_parents_and_link_speed() -> None:
    fabric = conf("SwitchName=s0 Nodes=n[0-1] LinkSpeed=900\nSwitchName=s1 Nodes=n[2-3] LinkSpeed=900\n"
                  "SwitchName=t0 Switches=s[0-1] LinkSpeed=1800\nSwitchName=t1 Switches=s[0-1]\n")  # fmt: skip
    assert pairs(fabric) >= {("s0", "t0"), ("s0", "t1"), ("s1", "t0"), ("s1", "t1")}
    assert fabric.notes == (
        "LinkSpeed (900 or 1,800) has no unit in Slurm and is not taken as a bandwidth",
        "several roots: s0 and 1 more have 2 parents",
    )


def test_no_common_root_is_noted() -> None:
    fabric = conf("SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[4-5]\n")
    assert len(fabric.nodes) == 5
    assert "in 2 parts that no switch joins (n1 and 2 more; n4 and 1 more)" in fabric.notes[-1]


def test_unbalanced_tree_is_noted() -> None:
    fabric = conf("SwitchName=a Switches=b,c\nSwitchName=b Switches=d\nSwitchName=c Nodes=n1\nSwitchName=d Nodes=n2\n")
    assert "unbalanced: nodes stand 2 to 3 switches below the top" in fabric.notes


def test_blocks() -> None:
    fabric = conf(BLOCKS)
    assert [(block.name, len(block.nodes)) for block in fabric.blocks] == [
        ("r1", 18),
        ("r2", 18),
        ("r3", 18),
        ("r4", 17),
    ]
    assert fabric.blocks[3].nodes[0] == "gb55"
    assert fabric.links == () and fabric.switches == ()
    assert [fabric.labels[node] for node in ("gb01", "gb36", "gb37", "gb71")] == [
        "blocks34-0/r1", "blocks34-0/r2", "blocks34-1/r3", "blocks34-1/r4",
    ]  # fmt: skip
    assert fabric.notes == (
        "uneven: blocks have 17 to 18 nodes",
        "blocks have up to 18 nodes, of which 17 are planned with: the others are spare",
        "says which nodes form a block, not what joins the blocks",
    )


def test_rings() -> None:
    fabric = conf(RINGS)
    assert pairs(fabric) == {("n1", "n2"), ("n2", "n3"), ("n3", "n4"), ("n4", "n1"), ("n5", "n6")}


def test_guids_in_the_place_of_hosts() -> None:
    text = "SwitchName=a Nodes=0x1000000033ff7d,0x1000000033ffbd\n"
    assert "names 2 nodes by GUIDs of ports, and does not say which ports are of one host" in refusal(text)
    assert len(conf(text, repair=True).nodes) == 2


def test_scontrol_output_repeats_nodes_in_upper_switches() -> None:
    fabric = conf(
        "SwitchName=l Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=t Level=1 LinkSpeed=1 Nodes=n[1-2] Switches=l\n"
    )
    assert pairs(fabric) == {("n1", "l"), ("n2", "l"), ("l", "t")}


@pytest.mark.parametrize(
    ("text", "where", "words", "kept"),
    [
        ("SwitchName=a Nodes=n1,n1\n", "line 1, column 20", "n1 stands twice under a", {("n1", "a")}),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\n", "line 2, column 20",
         "n1 stands under b and under a", {("n1", "a"), ("n2", "b")}),
        ("SwitchName=a Nodes=n1 Switches=b\nSwitchName=b Nodes=n2\n", "line 1, column 1", "both nodes and child",
         {("n1", "a"), ("b", "a"), ("n2", "b")}),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "line 2, column 1", "switch a stands twice",
         {("n1", "a"), ("n2", "a")}),
        ("SwitchName=t Switches=a,b\nSwitchName=a Nodes=n1\n", "line 1, column 1", "has the child b",
         {("n1", "a"), ("a", "t")}),
        ("SwitchName=t Switches=a,t\nSwitchName=a Nodes=n1\n", "line 1, column 1", "its own child",
         {("n1", "a"), ("a", "t")}),
        ("SwitchName=t Switches=a,b\nSwitchName=a Switches=t,c\nSwitchName=b Nodes=n1\nSwitchName=c Nodes=n2\n",
         "line 1, column 1", "t and a each name the other",
         {("a", "t"), ("b", "t"), ("c", "a"), ("n1", "b"), ("n2", "c")}),
        ("SwitchName=a Nodes=n1,,n2\n", "line 1, column 23", "an empty name", {("n1", "a"), ("n2", "a")}),
        ("SwitchName=a Nodes=n1 Knodes=n2\n", "line 1, column 23", "unknown key Knodes (did you mean 'Nodes'?)",
         {("n1", "a")}),
        ("SwitchName=a Nodes=n1 LinkSpeed=fast\n", "line 1, column 33", "no whole number", {("n1", "a")}),
    ],
)  # fmt: skip
def test_conflicts_are_refused_or_repaired(text: str, where: str, words: str, kept: set[tuple[str, str]]) -> None:
    message = refusal(text)
    assert message.startswith(f"topology: {where}: ") and words in message and "; with --repair: " in message
    fabric = conf(text, repair=True)
    assert pairs(fabric) == kept
    assert fabric.notes[0].startswith("repaired: line ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "BlockSizes=-1\n",
            "line 1, column 12: block size -1 is no number of nodes (1 or more), and the file names no block",
        ),
        (
            "SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a\n",
            "a > b > c > a stand above each",
        ),
        ("SwitchName=a\n", "names no nodes"),
        ("SwitchName=a Nodes=n1\nInclude other.conf\n", "line 2, column 1: 'Include' is not KEY=VALUE; paste the text"),
        ("SwitchName=a Nodes=n1\nNodes=n2\n", "line 2, column 1: a line must say SwitchName"),
        ("SwitchName=a Nodes=\\\n n[1-9\n", "line 2, column 3: n[1-9 has a bracket without its partner"),
        ("SwitchName=a[1-2] Nodes=n1\n", "SwitchName is the name of one switch"),
        ("SwitchName=a Nodes=a\n", "a is the name of a node and of a switch"),
        ("SwitchName=a Nodes=n[1-200000]\n", f"names over {MAX_NODES:,} nodes"),
    ],
)
def test_refused_with_and_without_repair(text: str, words: str) -> None:
    assert words in refusal(text)
    assert words in refusal(text, repair=True)


def test_many_repairs_are_not_all_listed() -> None:
    notes = conf("SwitchName=a Nodes=n1\n" + "SwitchName=a\n" * 100, repair=True).notes
    assert len(notes) == 41 and notes[-1] == "repaired: more of this kind, not listed"


def test_block_sizes_are_powers_of_two_times_the_base() -> None:
    text = "BlockName=a Nodes=n[1-4]\nBlockSizes=4,12,16\n"
    assert "line 2, column 12: block size 12 is not a larger power of two times the base, 4" in refusal(text)
    fabric = conf(text, repair=True)
    assert fabric.labels["n1"] == "blocks16-0/a"
    mended = conf("BlockName=a Nodes=n[1-4]\nBlockSizes=-1\n", repair=True)
    assert len(mended.blocks) == 1 and "the block sizes left out" in mended.notes[0]


def test_yaml_joins_the_default_tree_with_blocks_of_its_nodes() -> None:
    fabric = slurm_yaml.read(YAML, file="topology.yaml")
    assert fabric.nodes == ("g1", "g2", "g3", "g4")
    assert pairs(fabric) == {
        ("g1", "leaf1"), ("g2", "leaf1"), ("g3", "leaf2"), ("g4", "leaf2"), ("leaf1", "top"), ("leaf2", "top"),
    }  # fmt: skip
    assert [(block.name, block.nodes) for block in fabric.blocks] == [("b1", ("g1", "g2")), ("b2", ("g3", "g4"))]
    assert fabric.labels == {}
    assert fabric.notes == (
        "topology 'racks' (block) is taken with it",
        "topology 'rest' (flat) is not read: cluster_default is true on 'fabric'",
    )


def test_yaml_leaves_out_topologies_of_other_nodes() -> None:
    text = YAML.replace('b2, nodes: "g[3-4]"', 'b2, nodes: "x[3-4]"')
    fabric = slurm_yaml.read(text, file="topology.yaml")
    assert fabric.blocks == () and fabric.nodes == ("g1", "g2", "g3", "g4")
    assert "topology 'racks' (block, 4 nodes) is not read: cluster_default is true on 'fabric'" in fabric.notes


def test_yaml_default_by_blocks_takes_the_tree_that_holds_them() -> None:
    text = YAML.replace("  cluster_default: true\n", "").replace("racks\n", "racks\n  cluster_default: true\n")
    fabric = slurm_yaml.read(text, file="topology.yaml")
    assert len(fabric.links) == 6 and len(fabric.blocks) == 2


def test_yaml_torus() -> None:
    fabric = slurm_yaml.read(TORUS, file="topology.yaml")
    # x runs fastest: n0 n1 n2 are a ring along x, n0 n3 one along y, whose two links go to the one neighbour.
    assert {(link.a, link.b, link.count) for link in fabric.links} == {
        ("n0", "n1", 1), ("n1", "n2", 1), ("n2", "n0", 1), ("n3", "n4", 1), ("n4", "n5", 1), ("n5", "n3", 1),
        ("n0", "n3", 2), ("n1", "n4", 2), ("n2", "n5", 2),
    }  # fmt: skip
    twice = TORUS + TORUS.splitlines()[-1] + "\n"
    assert "torus p stands 2 times" in refusal(twice, repair=True)
    empty = TORUS + "      - {name: q, dims: {x: 1, y: 1, z: 1}}\n"
    assert "torus q has no nodes; with --repair: left out" in refusal(empty)
    assert slurm_yaml.read(empty, file="topology.yaml", repair=True).links == fabric.links
    assert "has 5 nodes, but dims 3 x 2 x 1 = 6" in refusal(TORUS.replace("0-5", "0-4"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- topology: a\n  block: {blocks: 'b1=n[1-4]'}\n", "line 2, column 19: blocks holds 'b1=n[1-4]'; a list"),
        ("- topology: a\n  block: {blocks: [{block: b, nodes: n1}]}\n  tree: {switches: []}\n",
         "line 3, column 9: topology 'a' has block and tree; exactly one of"),
        ("- topology: a\n", "line 1, column 3: topology 'a' has none"),
        ("- topology: a\n  flat: true\n", "line 1, column 3: topology 'a' is flat"),
        ("- topology: a\n  tree: {switches: [{switch: s, knot: n1}]}\n", "unknown key 'knot'"),
        ("- topology: a\n  tree: {switches: [{switch: s, nodes: 'n[1-'}]}\n", "line 2, column 42: n[1- has a bracket"),
        ("- topology: a\n  flat: true\n- topology: a\n  flat: true\n", "line 3, column 13: topology 'a' stands twice"),
        ("- topology: a\n  cluster_default: 7\n  flat: true\n", "cluster_default is '7'; true or false are"),
        ("- topology: a\n  block: {block_sizes: [x], blocks: [{block: b, nodes: n1}]}\n", "whole numbers are"),
        ("- &a {topology: a, flat: true}\n- *a\n- topology: b\n  flat: true\n", "aliases (*name) are not accepted"),
        ("- topology: " + "[" * 200 + "\n", "nested more than"),
    ],
)  # fmt: skip
def test_yaml_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        slurm_yaml.read(text, file="topology.yaml", repair=True)
    assert words in str(caught.value)


def test_topograph_model_has_tree_and_blocks() -> None:
    fabric = topograph.read(MODEL, file="nvl.yaml")
    assert pairs(fabric) == {("n1", "l1"), ("n2", "l1"), ("n3", "l2"), ("n4", "l2"), ("l1", "top"), ("l2", "top")}
    assert [(block.name, block.nodes) for block in fabric.blocks] == [("nvl-1", ("n1", "n2")), ("block1", ("n3", "n4"))]


@pytest.mark.parametrize(
    ("text", "importer"), [(TREE, slurm_conf), (BLOCKS, slurm_conf), (YAML, slurm_yaml), (MODEL, topograph)]
)
def test_formats_are_known(text: str, importer: object) -> None:
    assert importer_of(text, "anything") is importer
