"""Levels derived from small link graphs against what a hand computation says."""

from __future__ import annotations

import time

import clusters
import networkx as nx
import pytest
from clusters import fat_tree, leaf_spine, levels_of, product_graph, rails, wired
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.errors import InputError
from mapsearch.topologies.hierarchy import derived_levels


def test_leaf_spine_is_as_fast_as_its_uplinks():
    # 8 x 50 down, 4 x 50 up: half of it leaves the leaf. device-leaf-device 2 us; device-leaf-spine-leaf-device 6 us.
    assert levels_of(wired(*leaf_spine(4, 8, 4, 50, 50)))[0] == [("switch", 8, 50, 2), ("switch", 4, 25, 6)]
    assert levels_of(wired(*leaf_spine(4, 8, 4, 50, 100)))[0] == [("switch", 8, 50, 2), ("switch", 4, 50, 6)]


def test_fat_uplinks_do_not_help_beyond_the_devices_own_links():
    assert levels_of(wired(*leaf_spine(4, 8, 4, 50, 400)))[0][1] == ("switch", 4, 50, 6)
    # two tiers up: pods of 2 leaves, whose 2 x 8 devices bring 50 each whatever the core links carry
    links = [(f"{a}.{pod}", f"{b}.{pod}", rate, us) for pod in "xyz" for a, b, rate, us in leaf_spine(2, 8, 1, 50, 800)]
    links += [(f"spine0.{pod}", "core", 9000.0, 1.0) for pod in "xyz"]
    assert levels_of(wired(*links))[0] == [("switch", 8, 50, 2), ("switch", 2, 50, 6), ("switch", 3, 50, 8)]


def test_uplinks_straight_from_the_leaves_are_limited_by_the_devices_too():
    # pods joined at their leaves, not at a spine: 4 devices of 50 per leaf against an uplink of 400
    links = [(f"g{p}.{leaf}.{d}", f"leaf{p}.{leaf}", 50.0, 1.0) for p in "ab" for leaf in (0, 1) for d in range(4)]
    links += [(f"leaf{p}.{leaf}", f"spine{p}", 900.0, 1.0) for p in "ab" for leaf in (0, 1)]
    links += [(f"leaf{p}.{leaf}", "core", 400.0, 1.0) for p in "ab" for leaf in (0, 1)]
    for node in (graph := wired(*links)):
        if node.startswith("g"):
            graph.nodes[node]["unit"] = f"pod{node[1]}/leaf{node[3]}"
    assert levels_of(graph)[0] == [("switch", 4, 50, 2), ("switch", 2, 50, 4), ("switch", 2, 50, 4)]


@pytest.mark.parametrize("k", [4, 8])
def test_fat_tree_is_three_tiers_at_full_rate(k):
    expected = [("switch", k // 2, 50, 2), ("switch", k // 2, 50, 4), ("switch", k, 50, 6)]
    assert levels_of(wired(*fat_tree(k))) == (expected, [])


def test_islands_on_rails():
    # 4 planes of 112.5; 8 NICs of 50 behind PCIe of 64; rails 2:1 oversubscribed at the spines.
    # across rails of one unit: 4 x 0.5 us; across spines: 2 + 2 us more
    expected = [("switch", 8, 450, 2), ("switch", 4, 50, 2), ("switch", 3, 25, 6)]
    assert levels_of(wired(*rails(3, 4))) == (expected, [])
    assert levels_of(wired(*rails(1, 4)))[0] == expected[:2]


def test_planes_as_slow_as_a_nic_are_still_one_island():
    # NVL72-like: 18 planes of 25 GB/s each, beside a NIC of 50 GB/s
    assert levels_of(wired(*rails(1, 4, devices=36, planes=18)))[0] == [("switch", 36, 450, 2), ("switch", 4, 50, 2)]


def test_mesh_boards_with_a_nic_per_device():
    board = [(f"g{b}.{i}", f"g{b}.{j}", 28.0, 1.0) for b in range(6) for i in range(8) for j in range(i)]
    nics = [(f"g{b}.{i}", "fabric", 25.0, 4.0) for b in range(6) for i in range(8)]
    assert levels_of(wired(*board, *nics)) == ([("full_mesh", 8, 196, 1), ("switch", 6, 25, 8)], [])


def test_ring_of_boards():
    board = [(f"g{b}.{i}", f"g{b}.{j}", 28.0, 1.0) for b in range(6) for i in range(4) for j in range(i)]
    cables = [(f"g{b}.{i}", f"g{(b + 1) % 6}.{i}", 6.0, 4.0) for b in range(6) for i in range(4)]
    assert levels_of(wired(*board, *cables)) == ([("full_mesh", 4, 84, 1), ("ring", 6, 12, 4)], [])


@pytest.mark.parametrize(
    ("graph", "kind", "dims", "rate"),
    [
        (nx.complete_graph(8), "full_mesh", (), 7 * 25),
        (nx.path_graph(2), "full_mesh", (), 25),
        (nx.cycle_graph(3), "full_mesh", (), 50),
        (nx.cycle_graph(8), "ring", (), 50),
        (nx.grid_graph((4, 4), periodic=True), "torus", (4, 4), 100),
        (nx.grid_graph((6, 4), periodic=True), "torus", (6, 4), 100),
        (nx.grid_graph((8, 5, 3), periodic=True), "torus", (8, 5, 3), 150),
        (nx.hypercube_graph(4), "torus", (4, 4), 100),
        (nx.hypercube_graph(3), "torus", (4, 2), 75),
    ],
)
def test_direct_links(graph, kind, dims, rate):
    (level,), notes = derived_levels(wired(*product_graph(graph)))
    assert (level.kind, level.dims, level.size, notes) == (kind, dims, len(graph), [])
    assert level.bytes_per_s == pytest.approx(rate * 1e9)
    assert level.latency_s == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("graph", "cut"),
    [
        # C (n - 1) / (n1 (n - n1)) of the middle cut: 1 link of a line of 8, 4 links of a 4 x 4 grid
        (nx.path_graph(8), 25 * 7 / 16),
        (nx.grid_2d_graph(4, 4), 100 * 15 / 64),
    ],
)
def test_no_regular_shape_is_its_narrowest_cut_and_says_so(graph, cut):
    (level,), notes = derived_levels(wired(*product_graph(graph)))
    assert (level.kind, level.size) == ("switch", len(graph))
    assert level.bytes_per_s == pytest.approx(cut * 1e9)
    assert len(notes) == 1 and "no regular shape" in notes[0]


def test_links_that_are_alike_are_told_apart_by_the_neighbours_in_common():
    # two cliques of 6 joined by one link of 25 for 6 devices; the first device is one hop from its end
    assert levels_of(wired(*product_graph(nx.barbell_graph(6, 0)))) == (
        [("full_mesh", 6, 125, 1), ("full_mesh", 2, 4.166667, 2)],
        [],
    )


def test_a_lost_uplink_and_a_slow_nic_are_the_slowest_unit():
    graph = wired(*leaf_spine(4, 8, 4, 50, 100))
    graph.remove_edge("leaf0", "spine0")
    assert levels_of(graph)[0][1] == ("switch", 4, 37.5, 6)
    graph = wired(*rails(1, 4))
    graph.edges["nic-g0.0.0", "rail0.0"]["bytes_per_s"] = 25e9
    shown, notes = levels_of(graph)
    assert shown[1] == ("switch", 4, 46.875, 2)  # (7 x 50 + 25) / 8
    assert "46.88 to 50 GB/s" in notes[0] and "g0.0.0" in notes[0]


def test_dead_devices_leave_the_largest_regular_core():
    graph = wired(*leaf_spine(4, 8, 4, 50, 100))
    graph.remove_node("g1.3")
    shown, notes = levels_of(graph)
    assert [size for _, size, _, _ in shown] == [7, 4]  # 28 of 31; 3 full leaves would be 24
    assert "28 of 31" in notes[-1]
    graph.remove_nodes_from([f"g1.{i}" for i in range(5) if i != 3])
    shown, notes = levels_of(graph)
    assert [size for _, size, _, _ in shown] == [8, 3]
    assert "g1.5 .. g1.7" in notes[-1]


def test_what_is_cut_off_is_left_out():
    graph = wired(*leaf_spine(4, 2, 1, 50, 100))
    graph.remove_edge("leaf3", "spine0")
    shown, notes = levels_of(graph)
    assert [size for _, size, _, _ in shown] == [2, 3]
    assert "6 of 6" in notes[-1] and "g3.0, g3.1" in notes[-1]


def test_rings_of_different_size_have_no_core_of_part_rings():
    rings = [(f"g{r}.{i}", f"g{r}.{(i + 1) % n}", 50.0, 1.0) for r, n in enumerate((8, 8, 6)) for i in range(n)]
    uplinks = [(f"g{r}.{i}", "fabric", 5.0, 1.0) for r, n in enumerate((8, 8, 6)) for i in range(n)]
    shown, notes = levels_of(wired(*rings, *uplinks))
    assert shown == [("ring", 8, 100, 1), ("switch", 2, 5, 2)]
    assert "16 of 22" in notes[-1] and "g2.0 .. g2.5" in notes[-1]


def test_hosts_carry_nothing_and_names_are_checked():
    graph = wired(*leaf_spine(2, 4, 1, 50, 200))
    graph.add_node("host", type="host", unit="", in_network_reduction=False)
    for device in ("g0.0", "g1.0"):
        graph.add_edge("host", device, bytes_per_s=900e9, latency_s=1e-6)
    assert levels_of(graph)[0] == [("switch", 4, 50, 2), ("switch", 2, 50, 6)]
    assert [level.name for level in derived_levels(graph, ["board", "rack"])[0]] == ["board", "rack"]
    with pytest.raises(InputError, match="names 1 tiers, but the graph has 2"):
        derived_levels(graph, ["board"])


def test_units_decide_the_tiers_where_links_cannot():
    """Equal links between all devices of a 4 x 3 grid of switches: only the document knows the boards."""
    links = [(f"g{b}.{i}", "fabric", 50.0, 1.0) for b in range(3) for i in range(4)]
    assert levels_of(wired(*links))[0] == [("switch", 12, 50, 2)]
    graph = wired(*product_graph(nx.grid_graph((4, 3), periodic=True)))
    for node in graph:
        graph.nodes[node]["unit"] = "board" + node[1]
    levels, notes = derived_levels(graph)
    assert [(level.name, level.kind, level.size) for level in levels] == [
        ("board", "ring", 4), ("cluster", "full_mesh", 3),
    ]  # fmt: skip
    assert [level.bytes_per_s for level in levels] == [50e9, 50e9] and notes == []


def test_units_must_hang_together():
    graph = wired(*leaf_spine(2, 4, 1, 50, 200))
    for node in graph:
        if node.startswith("g"):
            graph.nodes[node]["unit"] = "board" + str(int(node[-1]) % 2)
    with pytest.raises(InputError, match=r"board\d.*hangs together only through links that leave it"):
        derived_levels(graph)


@settings(max_examples=30, deadline=None)
@given(
    devices=st.integers(1, 6),
    scales=st.lists(st.floats(0.8, 1.2), min_size=2, max_size=5),
    planes=st.lists(st.floats(5.0, 60.0), min_size=1, max_size=4),
)
def test_bandwidth_is_the_maximum_flow_of_the_whole_graph(devices, scales, planes):
    """Independent oracle: flow over all links, from all devices of a leaf to all others."""
    links = [(f"g{leaf}.{d}", f"leaf{leaf}", 50.0, 1.0) for leaf in range(len(scales)) for d in range(devices)]
    links += [
        (f"leaf{leaf}", f"spine{s}", scale * rate, 2.0)
        for leaf, scale in enumerate(scales) for s, rate in enumerate(planes)
    ]  # fmt: skip
    graph = wired(*links)
    level = derived_levels(graph)[0][-1]
    flows = []
    for leaf in range(len(scales)):
        network = nx.DiGraph()
        for a, b, facts in graph.edges(data=True):
            network.add_edge(a, b, capacity=facts["bytes_per_s"])
            network.add_edge(b, a, capacity=facts["bytes_per_s"])
        for node in graph:
            if node.startswith("g"):
                network.add_edge(*(("from", node) if node.startswith(f"g{leaf}.") else (node, "to")))
        flows.append(nx.maximum_flow_value(network, "from", "to"))
    assert level.bytes_per_s == pytest.approx(min(flows) / devices, rel=1e-9)


@pytest.mark.slow
def test_a_large_graph_in_seconds():
    graph = wired(*clusters.rails(64, 32))
    start = time.process_time()
    shown, _ = levels_of(graph)
    assert [size for _, size, _, _ in shown] == [8, 32, 64]  # 16,384 devices
    assert time.process_time() - start < 5.0
