"""Two pools on one graph: routing and cuts against closed forms and against every cut of small graphs."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.errors import InputError
from mapsearch.records import validate
from mapsearch.topologies import load_topology
from mapsearch.topologies.between import Gateway, Ground, Spot, ends_of, first_spots, joined_ground, split_ground
from mapsearch.topologies.core import Tree, block_count
from mapsearch.topologies.division import divisions, outer_units, side_of
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.spec import Topology

DEVICE = {"name": "X", "hbm": "80 GB", "hbm_bandwidth": "2 TB/s", "peak": {"bf16": "100 TFLOP/s"}}
UNIT = 4 * 10e9
"""Bytes/s out of one outer unit of `cluster`."""


def cluster(units: int = 8, kind: str = "switch", **changes: object) -> Topology:
    levels = [
        {"name": "node", "size": 4, "bandwidth": "100 GB/s", "latency": "1 us"},
        {"name": "pod", "kind": kind, "size": units, "bandwidth": "10 GB/s", "latency": "2 us"},
    ]
    return validate(Topology, {"name": "c", "device": DEVICE, "levels": levels, **changes}, file="c")


def sides(ground: Ground, train: int) -> tuple[list[Spot], list[Spot]]:
    units = ground.spots
    return [s for unit in units[:train] for s in unit], [s for unit in units[train:] for s in unit]


@pytest.mark.parametrize("train", [1, 3, 4, 7])
def test_outer_units_around_a_switch_are_bound_by_the_smaller_sides_uplinks(train):
    ground = split_ground(cluster(), (), 1.0)
    sources, sinks = sides(ground, train)
    wanted = 1.0 / (min(train, 8 - train) * UNIT)
    assert ground.routed(sources, sinks)[0] == pytest.approx(wanted)
    assert ground.tightest(sources, sinks)[0] == pytest.approx(wanted)
    assert ground.narrowest(sources, sinks)[0] == pytest.approx(1.0 / wanted)


@pytest.mark.parametrize("train", [1, 3, 4, 7])
def test_two_arcs_of_a_ring_have_two_links_between_them_however_long(train):
    ground = split_ground(cluster(kind="ring"), (), 1.0)
    sources, sinks = sides(ground, train)
    assert ground.narrowest(sources, sinks)[0] == pytest.approx(UNIT)
    assert ground.tightest(sources, sinks)[0] == pytest.approx(1.0 / UNIT)
    assert ground.routed(sources, sinks)[0] >= 1.0 / UNIT * (1 - 1e-9)


@pytest.mark.parametrize("train", [1, 3, 4])
def test_a_mesh_gives_the_direct_links_alone(train):
    ground = split_ground(cluster(kind="full_mesh"), (), 0.5)
    sources, sinks = sides(ground, train)
    links = train * (8 - train)
    assert ground.routed(sources, sinks)[0] == pytest.approx(7.0 / (links * 0.5 * UNIT))
    assert ground.narrowest(sources, sinks)[0] == pytest.approx(links * 0.5 * UNIT / 7.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 7), st.integers(1, 3))
def test_the_tightest_cut_is_that_of_all_cuts_and_routing_is_no_faster(seed, count, train):
    base = nx.gnp_random_graph(count, 0.5, seed=seed)
    if not nx.is_connected(base):
        base = nx.compose(base, nx.path_graph(count))
    graph: nx.Graph[str] = nx.Graph()
    # Every device hangs on a switch, so that routes are not narrowed to devices.
    for node in base:
        graph.add_node(f"s{node}", type="switch", unit="", in_network_reduction=False)
        graph.add_node(f"d{node}", type="device", unit="", in_network_reduction=False)
        graph.add_edge(f"s{node}", f"d{node}", bytes_per_s=1.0 + (seed + node) % 5, latency_s=0.0)
    for at, (a, b) in enumerate(base.edges):
        graph.add_edge(f"s{a}", f"s{b}", bytes_per_s=1.0 + (seed // 7 + at) % 4, latency_s=0.0)
    spots = [Spot(f"d{node}", 1 + (seed + node) % 2) for node in base]
    sources, sinks = spots[:train], spots[train:]
    ground = Ground(graph, (tuple(sources), tuple(sinks)))
    sent = {spot.node: spot.devices / sum(s.devices for s in sources) for spot in sources}
    got = {spot.node: spot.devices / sum(s.devices for s in sinks) for spot in sinks}
    worst, flow = 0.0, float("inf")
    nodes = sorted(graph)
    for size in range(1, len(nodes)):
        for near in map(set, itertools.combinations(nodes, size)):
            capacity = sum(f["bytes_per_s"] for a in near for b, f in graph.adj[a].items() if b not in near)
            through = sum(sent.get(node, 0.0) - got.get(node, 0.0) for node in near)
            worst = max(worst, through / capacity)
            if set(sent) <= near and not set(got) & near:
                flow = min(flow, capacity)
    found, links = ground.tightest(sources, sinks)
    assert found == pytest.approx(worst)
    assert links
    assert ground.narrowest(sources, sinks)[0] == pytest.approx(flow)
    assert ground.routed(sources, sinks)[0] >= worst * (1 - 1e-9)


def test_one_gateway_in_a_corner_is_bound_by_the_way_to_it():
    """All 32 devices send through node 0: 28 of them over its uplink of 40 GB/s, though the gateway has 400."""
    ground = joined_ground(cluster(), cluster(2), [Gateway("node0", "pod", 400e9, 1)], (1.0, 1.0))
    seconds, name = ground.routed(*ground.spots)
    assert seconds == pytest.approx(7 / 8 / UNIT)
    assert name == "training pod.switch - training node0"
    assert ground.tightest(*ground.spots)[0] == pytest.approx(seconds)


def test_a_narrow_gateway_binds_itself():
    ground = joined_ground(cluster(), cluster(2), [Gateway("pod", "pod", 5e9, 2)], (1.0, 1.0))
    seconds, name = ground.routed(*ground.spots)
    assert seconds == pytest.approx(1 / 5e9)
    assert "training pod" in name
    assert "rollout pod" in name
    assert ground.narrowest(*ground.spots) == (5e9, (name,))


def test_a_gateway_of_a_level_is_one_for_each_of_its_units():
    ground = joined_ground(cluster(), cluster(4), [Gateway("node", "pod", 5e9, 1)], (1.0, 1.0))
    assert ground.narrowest(*ground.spots)[0] == pytest.approx(8 * 5e9)
    both = joined_ground(cluster(), cluster(4), [Gateway("node", "node", 5e9, 1)], (1.0, 1.0))
    assert both.narrowest(*both.spots)[0] == pytest.approx(4 * 5e9)


def test_gateways_between_nodes_of_graphs():
    nodes = [{"id": f"g{i}"} for i in range(4)] + [{"id": "leaf", "type": "switch"}]
    links = [{"a": f"g{i}", "b": "leaf", "bandwidth": "10 GB/s"} for i in range(4)]
    graph = validate(Topology, {"name": "g", "device": DEVICE, "nodes": nodes, "links": links}, file="g")
    ground = joined_ground(graph, graph, [Gateway("leaf", "leaf", 20e9, 1)], (1.0, 1.0))
    assert ground.routed(*ground.spots)[0] == pytest.approx(1 / 20e9)
    at_device = joined_ground(graph, graph, [Gateway("g0", "leaf", 200e9, 1)], (1.0, 1.0))
    assert at_device.routed(*at_device.spots)[0] == pytest.approx(3 / 4 / 10e9)


@pytest.mark.parametrize("name", ["rack9", "node9", "pots", "node0/device9"])
def test_what_a_gateway_cannot_join_is_named(name):
    with pytest.raises(InputError, match=r"gateways\[0\]\.training") as found:
        joined_ground(cluster(), cluster(), [Gateway(name, "pod", 1e9, 1)], (1.0, 1.0))
    assert "level" in str(found.value)


def test_ends_are_levels_units_or_the_whole():
    assert ends_of(cluster(), "pod") == (2, [""])
    assert ends_of(cluster(2), "node") == (1, ["node0", "node1"])
    assert ends_of(cluster(), "node3/device1") == (0, ["node3/device1"])
    assert ends_of(cluster(2, down=["node1"]), "node") == (1, ["node0"])


def test_the_first_devices_of_some_spots():
    assert first_spots([Spot("a", 4), Spot("b", 4)], 6) == (Spot("a", 4), Spot("b", 2))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_blocks_are_counted_as_one_by_one(data):
    sizes = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)))
    every = [path for length in (1, 2, 3) for path in itertools.product(*(range(n) for n in sizes[::-1][:length]))]
    broken = frozenset(data.draw(st.lists(st.sampled_from(every), max_size=4)))
    tree = Tree(sizes, broken=broken)
    tier = data.draw(st.integers(0, 3))
    ways = data.draw(st.integers(2, sizes[tier - 1])) if tier and sizes[tier - 1] > 1 else 1
    row = tuple(sizes[: tier - 1]) + (ways,) + (1,) * (3 - tier) if tier and ways > 1 else (1, 1, 1)

    def whole(path):
        if any(path[:length] in broken for length in range(len(path) + 1)):
            return False
        return len(path) == 3 or all(whole((*path, child)) for child in range(sizes[2 - len(path)]))

    top = max((tier for tier, count in enumerate(row, start=1) if count > 1), default=0)
    wanted = 0
    for path in itertools.product(*(range(n) for n in sizes[::-1][: 3 - top])):
        if top == 0:
            wanted += whole(path)
        elif not any(path[:length] in broken for length in range(len(path) + 1)):
            wanted += sum(whole((*path, child)) for child in range(sizes[top - 1])) // row[top - 1]
    assert block_count(tree, sizes, row) == wanted


def test_holes_lie_on_either_side_and_a_side_names_what_is_down():
    spec = cluster(6, down=["node1/device0", "node4"])
    units = outer_units(spec)
    assert [(unit.name, unit.working) for unit in units] == [
        ("node0", 4), ("node1", 3), ("node2", 4), ("node3", 4), ("node5", 4),
    ]  # fmt: skip
    found = list(divisions(spec, units))
    assert ((0,), (1, 2, 3, 4)) in found
    assert ((1,), (0, 2, 3, 4)) in found
    side = side_of(spec, [units[0], units[1]], [units[2], units[3], units[4]])
    assert set(side.down) == {"node1/device0", "node4", "node2", "node3", "node5"}
    assert fabric_of(side).cores


def test_types_go_to_a_side_each_with_the_rest_on_one_of_them():
    spec = cluster(4, other_devices=[{**DEVICE, "name": "Y", "peak": {"bf16": "400 TFLOP/s"}}],
                   types={"node0": "Y", "node3": "Y"})  # fmt: skip
    units = outer_units(spec)
    assert [unit.types for unit in units] == [("Y",), ("X",), ("X",), ("Y",)]
    found = list(divisions(spec, units))
    mixed = [sum(len({units[at].types for at in side}) > 1 for side in pair) for pair in found]
    assert max(mixed) <= 1
    assert ((0, 3), (1, 2)) in found
    assert ((1, 2), (0, 3)) in found
    fast = side_of(spec, [units[0], units[3]], [units[1], units[2]])
    assert fast.device.name == "Y"
    assert not fast.other_devices
    assert fabric_of(fast).devices == 8


def test_a_large_cluster_with_gateways_is_joined_by_units():
    asic = load_topology("asic")
    ground = joined_ground(asic, asic, [Gateway("rack", "pod", 100e9, 1)], (1.0, 1.0))
    assert len(ground.spots[0]) == 64
    assert ground.narrowest(*ground.spots)[0] == pytest.approx(64 * 100e9)
