"""Fabrics as they are built, against cut capacities computed by hand (the computation stands beside each number)."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest
from clusters import levels_of, product_graph, rails, wired


def dragonfly(groups, routers, devices, ports, *, device=25.0, local=50.0, far=25.0):
    """Devices on routers, routers of a group all linked, one link between any two groups, spread over the routers."""
    links, used = [], dict.fromkeys(range(groups), 0)
    for group in range(groups):
        for router in range(routers):
            links += [(f"g{group}.{router}.{d}", f"r{group}.{router}", device, 1.0) for d in range(devices)]
            links += [(f"r{group}.{router}", f"r{group}.{other}", local, 1.0) for other in range(router)]
    for one, two in itertools.combinations(range(groups), 2):
        ends = [f"r{group}.{used[group] // ports}" for group in (one, two)]
        links.append((*ends, far, 5.0))
        used[one], used[two] = used[one] + 1, used[two] + 1
    return links


def pcie_node(name, links=25.0, socket=20.0):
    """Two devices to a PCIe switch, two switches to a socket, two sockets on one link between them."""
    found = []
    for switch in range(4):
        found += [(f"g{name}.{switch}.{d}", f"sw{name}.{switch}", links, 0.5) for d in range(2)]
        found.append((f"sw{name}.{switch}", f"root{name}.{switch // 2}", links, 0.5))
    return [*found, (f"root{name}.0", f"root{name}.1", socket, 0.5)]


def test_a_dragonfly_is_routers_groups_and_all_groups():
    # 9 groups of 4 routers of 2 devices, 2 far ports each: 4 x 2 = 8 far links, one to each other group.
    # router: 3 local links of 50 carry more than its 2 devices of 25 send; group: 8 links of 25 for 8 devices
    shown, notes = levels_of(wired(*dragonfly(9, 4, 2, 2)))
    assert shown == [("switch", 2, 25, 2), ("full_mesh", 4, 25, 3), ("full_mesh", 9, 25, 7)]
    assert notes == []


def test_thin_links_of_a_dragonfly_count():
    # local links of 10: 3 x 10 for 2 devices; far links of 10: 8 x 10 for 8 devices
    shown, _ = levels_of(wired(*dragonfly(9, 4, 2, 2, local=10.0, far=10.0)))
    assert shown == [("switch", 2, 25, 2), ("full_mesh", 4, 15, 3), ("full_mesh", 9, 10, 7)]


def test_a_pcie_tree_narrows_at_every_switch():
    # a switch's two devices share one uplink of 25; a socket's four share the link of 20
    shown, notes = levels_of(wired(*pcie_node("a")))
    assert shown == [("switch", 2, 25, 1), ("switch", 2, 12.5, 2), ("full_mesh", 2, 5, 2.5)]
    assert notes == []


def test_pcie_nodes_meet_at_the_nics_behind_their_switches():
    # one NIC of 12.5 behind each of the 4 switches of a node: 4 x 12.5 for 8 devices
    links = [link for node in "abc" for link in pcie_node(node)]
    links += [(f"n{node}.{s}", f"sw{node}.{s}", 25.0, 0.5) for node in "abc" for s in range(4)]
    links += [(f"n{node}.{s}", "fabric", 12.5, 2.0) for node in "abc" for s in range(4)]
    assert levels_of(wired(*links))[0][-1] == ("switch", 3, 6.25, 6)


def test_a_fat_tree_of_many_roots_narrows_at_every_layer():
    # leaf: 8 x 50 down, 2 x 100 up: 25 each; pod of 4 leaves: 4 x 100 up for 32 devices: 12.5 each
    links = []
    for pod, leaf in itertools.product(range(4), range(4)):
        links += [(f"g{pod}.{leaf}.{d}", f"leaf{pod}.{leaf}", 50.0, 1.0) for d in range(8)]
        links += [(f"leaf{pod}.{leaf}", f"agg{pod}.{agg}", 100.0, 1.0) for agg in range(2)]
    for pod, agg, core in itertools.product(range(4), range(2), range(2)):
        links.append((f"agg{pod}.{agg}", f"core{agg}.{core}", 100.0, 1.0))
    assert levels_of(wired(*links)) == ([("switch", 8, 50, 2), ("switch", 4, 25, 4), ("switch", 4, 12.5, 6)], [])


def test_blocks_of_72_on_rails():
    # 18 planes of 25 are 450; a NIC of 50 each; rails of 4 racks meet at spines for half of it
    shown, notes = levels_of(wired(*rails(2, 4, devices=72, planes=18)))
    assert shown == [("switch", 72, 450, 2), ("switch", 4, 50, 2), ("switch", 2, 25, 6)]
    assert notes == []


def test_rails_that_never_meet_are_still_one_level():
    # no spines: what leaves a node on rail i reaches rail i of the others; the rest hops inside the node first
    assert levels_of(wired(*rails(1, 8)))[0] == [("switch", 8, 450, 2), ("switch", 8, 50, 2)]


@pytest.mark.parametrize(
    ("dims", "cut", "hops"),
    [
        # middle cut of C links of 25 with half of n units on either side: C x 25 (n - 1) / (n / 2)^2
        ((4, 4), 4 * 25 * 15 / 64, 6),
        ((8, 8), 8 * 25 * 63 / 1024, 14),
        ((4, 4, 4), 16 * 25 * 63 / 1024, 9),
        ((8, 4, 2), 8 * 25 * 63 / 1024, 11),
    ],
)
def test_a_mesh_without_wrap_is_its_bisection_and_says_how_far_that_goes(dims, cut, hops):
    shown, notes = levels_of(wired(*product_graph(nx.grid_graph(dims))))
    assert shown[0][:3] == (
        "switch",
        sum(1 for _ in itertools.product(*map(range, dims))),
        pytest.approx(cut, rel=1e-6),
    )
    assert len(notes) == 1 and f"1 to {hops} hops apart" in notes[0]


def test_a_mesh_says_what_a_unit_alone_gets():
    # a corner of the 4 x 4 mesh has 2 links of 25 against 23.4375 at the bisection
    assert "gets up to 2.13 times that" in levels_of(wired(*product_graph(nx.grid_graph((4, 4)))))[1][0]


def test_a_torus_wrapped_along_one_axis_is_no_torus():
    # the cut across the open axis: 4 links of 25
    shown, notes = levels_of(wired(*product_graph(nx.grid_graph((4, 4), periodic=(True, False)))))
    assert shown[0][2] == pytest.approx(4 * 25 * 15 / 64, rel=1e-6) and "no regular shape" in notes[0]


def test_direct_links_of_unequal_speed_say_so():
    # a cube mesh as in the first DGX: pairs on one link or on two; 6 links of 25 out of every device
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    links = [(f"g{a}", f"g{b}", 50.0 if a + b == 3 else 25.0, 1.0) for a, b in pairs]
    shown, notes = levels_of(wired(*links))
    assert shown == [("full_mesh", 4, 100, 1)]
    assert len(notes) == 1 and "links between units carry from 25 to 50 GB/s" in notes[0]


def test_mixed_nic_counts_count_as_the_fewest_and_say_how_many():
    # nodes with 8 NICs of 50 and one with 4: 25 per device
    links = [
        (a, b, rate, us)
        for a, b, rate, us in rails(1, 4)
        if not (a.startswith("g0.3.") and b.startswith("n") and int(a[-1]) % 2)
        and not (a.startswith("nic-g0.3.") and int(a[-1]) % 2)
    ]
    shown, notes = levels_of(wired(*links))
    assert shown == [("switch", 8, 450, 2), ("switch", 4, 25, 2)]
    assert "from 25 to 50 GB/s" in notes[0] and "1 of 4 units are below the fastest" in notes[0]


def test_racks_of_unequal_size_are_a_choice():
    # racks of 8, 8, 6 and 4 nodes of 2 devices: 2 racks of 8, 3 of 6, 4 of 4
    links = []
    for rack, nodes in enumerate((8, 8, 6, 4)):
        for node in range(nodes):
            links += [(f"g{rack}.{node}.{d}", f"nvs{rack}.{node}", 450.0, 1.0) for d in range(2)]
            links += [(f"g{rack}.{node}.{d}", f"leaf{rack}", 50.0, 1.0) for d in range(2)]
        links.append((f"leaf{rack}", "core", 50.0 * nodes, 2.0))
    shown, notes = levels_of(wired(*links))
    assert [size for _, size, _, _ in shown] == [2, 6, 3]
    assert "36 of 52 devices" in notes[-1] and "2 x 8 x 2 (32) or 4 x 4 x 2 (32)" in notes[-1]
