"""ASTRA-sim networks, node-link JSON and GraphML: contents checked by hand, and round trips through networkx."""

from __future__ import annotations

import json
from typing import Any

import networkx as nx
import pytest

from mapsearch.errors import InputError
from mapsearch.records import validate
from mapsearch.topologies import Topology, fabric_of, load_topology
from mapsearch.topologies.graph import graph_of, node_link
from mapsearch.topologies.importers import astra_sim, graphml, importer_of
from mapsearch.topologies.importers import node_link as node_link_format
from mapsearch.topologies.importers.base import Whole

DEVICE = {"name": "X", "hbm": "80 GB", "hbm_bandwidth": "3 TB/s", "peak": {"bf16": "400 TFLOP/s"}}
ASTRA = """
topology: [ Ring, FullyConnected, Switch ]
npus_count: [ 4, 8, 2 ]   # number of NPUs
bandwidth: [ 200.0, 10, 50.0 ]  # GB/s
latency: [ 50.0, 500.0, 2000.0 ]  # ns
"""
OLDER = {
    "topology-name": "Hierarchical", "topologies-per-dim": ["Ring", "Switch"], "dimension-type": ["N", "P"],
    "dimensions-count": 2, "units-count": [2, 4], "links-count": [2, 1], "link-latency": [500, 600],
    "link-bandwidth": [250, 12.5], "nic-latency": [0, 100], "hbm-scale": [0, 0],
}  # fmt: skip
GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="node" attr.name="type" attr.type="string"><default>device</default></key>
  <key id="d1" for="edge" attr.name="bandwidth" attr.type="string"/>
  <key id="d2" for="edge" attr.name="latency_s" attr.type="double"/>
  <graph edgedefault="undirected">
    <node id="g0"/>
    <node id="g1"/>
    <node id="sw"><data key="d0">switch</data></node>
    <edge source="g0" target="sw"><data key="d1">400 Gb/s</data><data key="d2">1e-6</data></edge>
    <edge source="g1" target="sw"><data key="d1">400 Gb/s</data></edge>
  </graph>
</graphml>
"""
SMALL = {
    "directed": False, "multigraph": False, "graph": {"name": "small"},
    "nodes": [{"id": 0, "type": "device"}, {"id": 1, "type": "device"}],
    "links": [{"source": 0, "target": 1, "bytes_per_s": 5e10, "latency_s": 1e-06}],
}  # fmt: skip
OLDER_TEXT = json.dumps(OLDER, indent=1)
SMALL_TEXT = json.dumps(SMALL, indent=1)
BOMB = """<?xml version="1.0"?><!DOCTYPE graphml [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><graphml><graph><node id="&c;"/></graph></graphml>"""


def topology(whole: Whole) -> Topology:
    return validate(Topology, {"device": DEVICE, **whole.document}, file="imported")


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        importer_of(text, "net").read(text, file="net", repair=True)
    return str(caught.value)


def test_astra_sim_levels() -> None:
    whole = astra_sim.read(ASTRA, file="some/net.yml")
    levels = topology(whole).levels
    assert [(level.name, level.kind, level.size) for level in levels] == [
        ("dim1", "ring", 4), ("dim2", "full_mesh", 8), ("dim3", "switch", 2),
    ]  # fmt: skip
    # Per device: both links of the ring, seven of the mesh, one to the switch; 1 GB is 2^30 B in ASTRA-sim.
    assert [level.bytes_per_s for level in levels] == [2 * 200 * 2.0**30, 7 * 10 * 2.0**30, 50 * 2.0**30]
    assert [level.latency for level in levels] == pytest.approx([50e-9, 500e-9, 4000e-9])
    assert levels[0].sources["bandwidth"] == "file: 2 links of 200 GB/s, 1 GB = 2^30 B"
    assert whole.document["name"] == "net" and "device" not in whole.document


def test_astra_sim_ring_of_two_has_one_link() -> None:
    text = ASTRA.replace("[ 4, 8, 2 ]", "[ 2, 8, 2 ]")
    assert topology(astra_sim.read(text, file="n")).levels[0].bytes_per_s == 200 * 2.0**30


def test_astra_sim_older_form_counts_links_itself() -> None:
    whole = astra_sim.read(json.dumps(OLDER), file="n.json")
    assert [level.bytes_per_s for level in topology(whole).levels] == [500 * 2.0**30, 12.5 * 2.0**30]
    assert whole.notes[0] == "nic-latency: not read"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Ring", "Rong", "line 2, column 13: 'Rong' is no building block (did you mean 'Ring'?)"),
        ("[ 4, 8, 2 ]", "[ 4, 8 ]", "npus_count has 2 values, but the topology 3 dimensions"),
        ("[ 4, 8, 2 ]", "[ 4, 1, 2 ]", "line 3, column 18: npus_count 1 is no whole number from 2"),
        ("200.0", "-1", "bandwidth -1 is no number above 0"),
        ("[ 50.0, 500.0, 2000.0 ]", "50", "line 5, column 10: latency holds '50'; a list"),
        ("latency", "latencies", "unknown key 'latencies' (did you mean 'latency'?)"),
        ("[ 4, 8, 2 ]", "[ 100000, 100000, 2 ]", "at most 1,073,741,824"),
        ("200.0", ".inf", "inf is not a finite number"),
        ("[ 4, 8, 2 ]", f"[ {'9, ' * 5000} 9 ]", "npus_count has 5,001 values; at most 16 dimensions"),
    ],
)
def test_astra_sim_refused(old: str, new: str, words: str) -> None:
    assert words in refusal(ASTRA.replace(old, new, 1))


def test_astra_sim_named_torus_is_refused() -> None:
    assert "by name only" in refusal('{"topology-name": "Torus2D_AllToAll", "dims-count": 2}')


@pytest.mark.parametrize("name", ["hgx-h100", "asic-64"])
def test_our_own_export_comes_back_as_it_was(name: str) -> None:
    original = load_topology(name)
    text = json.dumps(node_link(original))
    back = topology(node_link_format.read(text, file="out.json"))
    first, second = graph_of(original), graph_of(back)
    assert dict(second.nodes(data=True)) == dict(first.nodes(data=True))
    assert {frozenset((a, b)): facts for a, b, facts in second.edges(data=True)} == {
        frozenset((a, b)): facts for a, b, facts in first.edges(data=True)
    }
    assert fabric_of(back).fan_outs == fabric_of(topology(node_link_format.read(text, file="again.json"))).fan_outs
    assert fabric_of(back).devices == fabric_of(original).devices


def test_node_link_of_older_networkx_with_numbers_for_names() -> None:
    whole = node_link_format.read(json.dumps(SMALL), file="x.json")
    assert whole.document == {
        "name": "small",
        "nodes": [{"id": "0", "type": "device"}, {"id": "1", "type": "device"}],
        "links": [{"a": "0", "b": "1", "bandwidth": "50 GB/s", "latency": "1 us"}],
    }


def changed(**changes: Any) -> str:
    return json.dumps({**SMALL, **changes}, indent=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed(nodes=[{"id": 0}]), "node '0' has no type; device, switch, nic or host are known"),
        (changed(nodes=[{"id": 0, "type": "gpu"}]), "node '0' has the type 'gpu'"),
        (changed(nodes=[{"id": 0, "type": "device"}, {"id": "0", "type": "device"}]), "node '0' stands 2 times"),
        (changed(links=[{"source": 0, "target": 2, "bytes_per_s": 1.0}]), "a link leads to '2', and no node"),
        (changed(links=[{"source": 0, "target": 0, "bytes_per_s": 1.0}]), "joins '0' to itself"),
        (changed(links=[{"source": 0, "target": 1, "bandwidth": 400}]), "400 has no unit; write a bandwidth"),
        (changed(links=[{"source": 0, "target": 1, "weight": 400}]), "has no bandwidth ('weight' has no unit"),
        (changed(links=[{"source": 0, "target": 1, "bytes_per_s": -1}]), "is no number above 0"),
        (changed(directed=True), "the graph is directed and 0 -> 1 has no way back"),
        (changed(nodes=7), "nodes is no list"),
        (changed(nodes=[]), "has no nodes"),
        (changed(nodes=["a"]), "nodes holds 'a', which is no object"),
    ],
)
def test_node_link_refused(text: str, words: str) -> None:
    message = refusal(text)
    assert words in message


def test_node_link_names_the_line() -> None:
    # indent=1: line 8 holds the first node's brace.
    assert refusal(changed(nodes=[{"id": 0}])).startswith("net: line 8, column 3: node '0'")


def test_directed_pairs_become_one_link() -> None:
    both = [*SMALL["links"], {"source": 1, "target": 0, "bytes_per_s": 5e10, "latency_s": 1e-06}]  # type: ignore[misc]
    assert len(node_link_format.read(changed(directed=True, links=both), file="x").document["links"]) == 1
    both[1] = {**both[1], "bytes_per_s": 1e10}
    assert "differs from the way back" in refusal(changed(directed=True, links=both))


def test_graphml() -> None:
    assert graphml.read(GRAPHML, file="net.graphml").document == {
        "name": "net",
        "nodes": [{"id": "g0", "type": "device"}, {"id": "g1", "type": "device"}, {"id": "sw", "type": "switch"}],
        "links": [
            {"a": "g0", "b": "sw", "bandwidth": "50 GB/s", "latency": "1 us"},
            {"a": "g1", "b": "sw", "bandwidth": "50 GB/s"},
        ],
    }


def test_graphml_as_networkx_writes_it() -> None:
    original = graph_of(load_topology("asic-64"))
    text = "\n".join(nx.generate_graphml(original))
    back = graph_of(topology(graphml.read(text, file="out.graphml")))
    assert dict(back.nodes(data=True)) == dict(original.nodes(data=True))
    assert nx.is_isomorphic(back, original) and back.number_of_edges() == original.number_of_edges()
    assert all(back.edges[a, b] == facts for a, b, facts in original.edges(data=True))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "document type, which are not accepted"),
        (GRAPHML.replace('target="sw"', 'target="sx"', 1), "line 10, column 5: a link leads to 'sx'"),
        (GRAPHML.replace("400 Gb/s", "400", 1), "line 10, column 5: link g0 - sw: bandwidth '400' has no unit"),
        (GRAPHML.replace("</graph>", "<graph/></graph>"), "a second or nested graph"),
        (GRAPHML.replace('<node id="g0"/>', "<hyperedge/>"), "line 7, column 5: <hyperedge> is not read"),
        (GRAPHML.replace('<node id="g0"/>', "<node/>"), "line 7, column 5: a node has no id"),
        (GRAPHML.replace("</graph>", ""), "is not well-formed XML"),
        ("<graphml/>", "holds no graph"),
    ],
)
def test_graphml_refused(text: str, words: str) -> None:
    assert words in refusal(text)


@pytest.mark.parametrize(
    ("text", "importer"),
    [
        (ASTRA, astra_sim), (json.dumps(OLDER), astra_sim), (json.dumps(SMALL), node_link_format), (GRAPHML, graphml),
        ('{"npus_count": [8], "topology": ["Ring"], "bandwidth": [1], "latency": [1]}', astra_sim),
    ],
)  # fmt: skip
def test_formats_are_known(text: str, importer: object) -> None:
    assert importer_of(text, "anything") is importer
