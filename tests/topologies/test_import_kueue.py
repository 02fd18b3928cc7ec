"""Kueue's Topology and labels of nodes: own look-alikes with contents checked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mapsearch.errors import InputError
from mapsearch.topologies.importers import importer_of, kueue, read_files
from mapsearch.topologies.importers.base import Between

TOPOLOGY = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: default}
spec:
  levels:
  - nodeLabel: example.com/block
  - nodeLabel: example.com/rack
  - nodeLabel: kubernetes.io/hostname
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: gpus}
spec: {topologyName: default, nodeLabels: {pool: gpu}}
"""


def node(name: str, block: str, rack: str, *, pool: str = "gpu", **spec: object) -> dict[str, object]:
    labels = {"example.com/block": block, "example.com/rack": rack, "pool": pool}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec,
        "status": {"allocatable": {"cpu": "96", "nvidia.com/gpu": "8"}},
    }  # fmt: skip


NODES = [node("n1", "b1", "r1"), node("n2", "b1", "r2"), node("n3", "b2", "r1"), node("cpu", "b1", "r1", pool="cpu")]


def listed(nodes: list[dict[str, object]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})


WITH_NODES = TOPOLOGY + kueue.JOINED_WITH + listed(NODES)


def read(text: str, *, repair: bool = False) -> Between:
    return kueue.read(text, file="nodes.yaml", repair=repair)


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(text)
    return str(caught.value)


def test_topology_with_flavor_and_nodes() -> None:
    fabric = read(TOPOLOGY + kueue.JOINED_WITH + listed(NODES))
    assert fabric.nodes == ("n1", "n2", "n3")
    # r1 of b1 and r1 of b2 are two racks: names of units count inside the unit around them.
    assert fabric.labels == {"n1": "b1/r1", "n2": "b1/r2", "n3": "b2/r1"}
    assert fabric.links == () and fabric.switches == () and fabric.blocks == ()
    assert "1 nodes are left out: not of the flavor (pool=gpu)" in fabric.notes
    assert "devices as Kubernetes counts them: 3 nodes with 8 x nvidia.com/gpu" in fabric.notes


def test_cordoned_and_tainted_nodes_are_down() -> None:
    taint = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
    late = node("n4", "b2", "r2")
    late["status"] = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    nodes = [NODES[0], node("n2", "b1", "r2", unschedulable=True), node("n3", "b2", "r1", taints=taint), late]
    assert read(TOPOLOGY + kueue.JOINED_WITH + listed(nodes)).down == ("n2", "n3", "n4")


def test_nvlink_domains_become_blocks() -> None:
    labels = [{"nvidia.com/gpu.clique": f"uuid.{index // 2}", "topology.kubernetes.io/zone": "z"} for index in range(5)]
    items = [{"metadata": {"name": f"n{index}", "labels": each}} for index, each in enumerate(labels)]
    fabric = read(json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": items}))
    assert [(block.name, block.nodes) for block in fabric.blocks] == [
        ("uuid.0", ("n0", "n1")), ("uuid.1", ("n2", "n3")), ("uuid.2", ("n4",)),
    ]  # fmt: skip
    assert fabric.labels["n4"] == "z"
    assert "no Topology is given: nodes are placed by topology.kubernetes.io/zone" in fabric.notes


def test_kind_cluster_names_its_workers() -> None:
    text = """
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
  - role: control-plane
  - {role: worker, labels: {cloud.provider.com/topology-block: b1, cloud.provider.com/topology-rack: r1}}
  - {role: worker, labels: {cloud.provider.com/topology-block: b2, cloud.provider.com/topology-rack: r1}}
"""
    assert read(text).labels == {"kind-worker": "b1/r1", "kind-worker2": "b2/r1"}


def test_a_missing_label_is_refused_or_the_node_left_out() -> None:
    bare = node("n9", "b1", "r1")
    bare["metadata"] = {"name": "n9", "labels": {"pool": "gpu", "example.com/block": "b1"}}
    text = TOPOLOGY + kueue.JOINED_WITH + listed([NODES[0], bare])
    assert "node n9 lacks the label example.com/rack; with --repair: left out, as Kueue does" in refusal(text)
    assert "line 17" in refusal(text)  # 14 lines of TOPOLOGY, the separator, then the list
    fabric = read(text, repair=True)
    assert fabric.nodes == ("n1",) and fabric.notes[0].startswith("repaired: line 17: node n9")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TOPOLOGY, "has no Node objects: a Topology names labels (example.com/block, example.com/rack or"),
        (listed(NODES), "names no Topology, and no node has a label that is known"),
        (TOPOLOGY + "---" + TOPOLOGY, "Topology 'default' stands twice"),
        (TOPOLOGY + "---" + TOPOLOGY.replace("default", "other") + "---\n" + listed(NODES), "names 2 topologies"),
        (TOPOLOGY.replace("example.com/rack", "example.com/block"), "line 8, column 5: nodeLabel stands twice"),
        (TOPOLOGY.replace("kubernetes.io/hostname", "x").replace("example.com/block", "kubernetes.io/hostname"),
         "can be the lowest level only"),
        ("apiVersion: v1\nkind: Node\nmetadata: {labels: {a: b}}\n", "line 1, column 1: a Node needs metadata.name"),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: [b]}\n", "line 3, column 29: labels are names"),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: &x {b: c}}\nspec: *x\n", "aliases"),
    ],
)  # fmt: skip
def test_refused(text: str, words: str) -> None:
    assert words in refusal(text)


def test_format_is_known() -> None:
    assert importer_of(TOPOLOGY, "t.yaml") is kueue
    assert importer_of(listed(NODES), "n.json") is kueue


def test_several_files_are_one_fabric_and_errors_name_the_file(tmp_path: Path) -> None:
    topology, nodes = tmp_path / "topology.yaml", tmp_path / "nodes.json"
    topology.write_text(TOPOLOGY)
    nodes.write_text(listed(NODES))
    [(file, fabric)] = read_files([str(topology), str(nodes)])
    assert isinstance(fabric, Between) and fabric.nodes == ("n1", "n2", "n3")
    assert file == f"{topology}, {nodes}"
    nodes.write_text("\n\n" + listed([*NODES, {"kind": "Node", "metadata": {}}]))
    with pytest.raises(InputError) as caught:
        read_files([str(topology), str(nodes)])
    assert str(caught.value).startswith(f"{nodes}: line 3, column ")
    nodes.write_text("\n\n" + listed(NODES))
    topology.write_text(TOPOLOGY.replace("example.com/rack", "example.com/block"))
    with pytest.raises(InputError) as caught:
        read_files([str(nodes), str(topology)])
    assert str(caught.value).startswith(f"{topology}: line 8, column 5")
