"""Random fabrics, written in a format and read back: the same nodes and links."""

from __future__ import annotations

import json
import random
from collections import Counter

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.topologies.importers import graphml, ibnetdiscover, node_link, slurm_conf, slurm_yaml
from mapsearch.topologies.importers.base import Between, Repairs
from mapsearch.topologies.importers.hostlist import HostLists, Listed

SEEDS = st.integers(0, 2**32)


def folded(numbers: list[int], width: int) -> str:
    """Numbers as Slurm writes them: runs of neighbours as ranges."""
    parts: list[str] = []
    start = 0
    for place, number in enumerate(numbers):
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            first, last = str(numbers[start]).zfill(width), str(number).zfill(width)
            parts.append(first if start == place else f"{first}-{last}")
            start = place + 1
    return ",".join(parts)


@given(st.lists(st.lists(st.integers(0, 300), min_size=1, unique=True), min_size=1, max_size=2), st.integers(1, 4))
def test_host_lists_name_what_was_folded(groups: list[list[int]], width: int) -> None:
    text = "n" + "-x".join(f"[{folded(numbers, width)}]" for numbers in groups)
    named = HostLists(Repairs("f", False)).names(Listed(text, lambda offset: (1, offset + 1)), "node")
    words = [[str(number).zfill(width) for number in numbers] for numbers in groups]
    expected = [f"n{first}" for first in words[0]]
    if len(groups) > 1:
        expected = [f"{first}-x{second}" for first in expected for second in words[1]]
    assert named == expected


def random_tree(chance: random.Random) -> tuple[dict[str, list[int]], dict[str, list[str]]]:
    """Leaf switches with numbers of nodes, and switches above with their children."""
    fresh = iter(range(10_000))
    leaves = {f"leaf{i}": sorted(next(fresh) for _ in range(chance.randint(1, 9))) for i in range(chance.randint(1, 9))}
    tops: dict[str, list[str]] = {}
    below = list(leaves)
    for tier in range(chance.randint(0, 3)):
        names = [f"top{tier}x{i}" for i in range(chance.randint(1, 3))]
        for name in names:
            tops[name] = sorted(chance.sample(below, chance.randint(1, len(below))))
        below = names
    return leaves, tops


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_trees_in_both_forms_of_slurm(seed: int) -> None:
    leaves, tops = random_tree(random.Random(seed))
    conf = [f"SwitchName={name} Nodes=n[{folded(nodes, 3)}]" for name, nodes in leaves.items()]
    conf += [f"SwitchName={name} Switches={','.join(children)}" for name, children in tops.items()]
    switches: list[dict[str, str]] = [{"switch": name, "nodes": f"n[{folded(n, 3)}]"} for name, n in leaves.items()]
    switches += [{"switch": name, "children": ",".join(children)} for name, children in tops.items()]
    expected = Counter((f"n{node:03}", name) for name, nodes in leaves.items() for node in nodes)
    expected += Counter((child, name) for name, children in tops.items() for child in children)
    one = slurm_conf.read("\n".join(conf), file="f")
    other = slurm_yaml.read(json.dumps([{"topology": "t", "tree": {"switches": switches}}]), file="f")
    for fabric in (one, other):
        assert Counter((link.a, link.b) for link in fabric.links) == expected
        assert set(fabric.switches) == {*leaves, *tops}


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_cables_of_ibnetdiscover(seed: int) -> None:
    chance = random.Random(seed)
    kinds = {f"H-{i + 1:016x}": f"host{i // 2} mlx5_{i % 2}" for i in range(chance.randint(2, 8))}
    kinds |= {f"S-{i + 256:016x}": f"MF0;sw{i}:QM/U1" for i in range(chance.randint(1, 4))}
    switches = [guid for guid in kinds if guid[0] == "S"]
    ports: dict[str, list[tuple[str, int, str]]] = {guid: [] for guid in kinds}
    expected: Counter[frozenset[str]] = Counter()
    for guid in [*kinds, *switches]:
        other = chance.choice(switches)
        if other == guid:
            continue
        rate = chance.choice(("4xHDR", "4xNDR", "2xNDR"))
        ports[guid].append((other, len(ports[other]) + 1, rate))
        ports[other].append((guid, len(ports[guid]), rate))
        shown = [kinds[end].split()[0].removeprefix("MF0;").partition(":")[0] for end in (guid, other)]
        expected[frozenset(shown)] += {"4xHDR": 200, "4xNDR": 400, "2xNDR": 200}[rate]
    lines = []
    for guid, description in kinds.items():
        lines.append(f'{"Switch" if guid[0] == "S" else "Ca"}\t64 "{guid}"\t# "{description}"')
        for place, (other, port, rate) in enumerate(ports[guid], start=1):
            lines.append(f'[{place}]\t"{other}"[{port}]\t# "{kinds[other]}" lid 1 {rate}')
    fabric = ibnetdiscover.read("\n".join(lines), file="f")
    found: Counter[frozenset[str]] = Counter()
    for link in fabric.links:
        assert link.bytes_per_s is not None
        found[frozenset((link.a, link.b))] += round(link.bytes_per_s.value * link.count * 8 / 1e9)
    assert isinstance(fabric, Between) and found == expected


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_graphs_of_networkx(seed: int) -> None:
    chance = random.Random(seed)
    graph = nx.gnm_random_graph(chance.randint(2, 12), chance.randint(1, 30), seed=seed)
    for node in graph:
        graph.nodes[node]["type"] = chance.choice(("device", "switch", "nic"))
    for a, b in graph.edges:
        graph.edges[a, b].update(bytes_per_s=chance.uniform(1e8, 1e12), latency_s=chance.choice((0.0, 1e-6, 1.5e-6)))
    old = node_link.read(json.dumps(nx.node_link_data(graph, edges="links")), file="g").document
    new = node_link.read(json.dumps(nx.node_link_data(graph, edges="edges")), file="g").document
    xml = graphml.read("\n".join(nx.generate_graphml(graph)), file="g").document
    assert old == new == xml
    assert [node["type"] for node in new["nodes"]] == [facts["type"] for _, facts in graph.nodes(data=True)]
    assert [(link["a"], link["b"]) for link in new["links"]] == [(str(a), str(b)) for a, b in graph.edges]
