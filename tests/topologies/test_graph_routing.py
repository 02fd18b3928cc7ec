"""Loads of links: against an oracle pair by pair on random graphs, and cases by hand."""

from __future__ import annotations

from collections import defaultdict

import networkx as nx
import numpy as np
import pytest
from clusters import fat_tree, leaf_spine, rails, wired

from mapsearch.errors import InputError
from mapsearch.topologies.events import simulated_s, walked
from mapsearch.topologies.routing import Pairs, Uniform, busiest, router_of, written_out


def torus(*dims, rate=25.0):
    graph = nx.grid_graph(dim=list(dims), periodic=True)

    def name(place):
        return "g" + ".".join(map(str, place if isinstance(place, tuple) else (place,)))

    return [(name(a), name(b), rate, 1.0) for a, b in graph.edges]


def exchange(router, groups, sent=1.0):
    """Every member sends `sent` bytes in all, its own part included."""
    members = np.array([[router.wires.place[name] for name in group] for group in groups])
    size = members.shape[1]
    return Uniform(members.ravel(), np.repeat(np.arange(len(members)), size), np.full(len(members), sent / size))


def pairs(router, *messages):
    place = router.wires.place
    return Pairs(
        np.array([place[a] for a, _, _ in messages], dtype=np.int64),
        np.array([place[b] for _, b, _ in messages], dtype=np.int64),
        np.array([float(sent) for *_, sent in messages]),
    )


def load(router, *flows):
    """Bytes by (from, to)."""
    wires = router.wires
    found = router.loads_bytes([list(flows)])[0]
    return {
        (wires.names[a], wires.names[b]): value
        for a, b, value in zip(wires.tail.tolist(), wires.head.tolist(), found.tolist(), strict=True)
    }


def bandwidth(router, flow, sent):
    return sent / busiest(router.loads_bytes([[flow]])[0], router.wires)[1] / 1e9


def devices(router):
    return [name for name, here in zip(router.wires.names, router.wires.device.tolist(), strict=True) if here]


# --- an oracle that knows no blocks and no classes of networks ----------------------------------------------------


def oracle(graph, cables, messages):
    """Pair by pair: other devices taken out, unless devices are linked directly; even split per cable at each node."""
    direct = any(graph.nodes[a]["type"] == graph.nodes[b]["type"] == "device" for a, b in graph.edges)
    loads = defaultdict(float)
    for source, target, sent in messages:
        others = (
            [] if direct else [n for n, f in graph.nodes.items() if f["type"] == "device" and n not in (source, target)]
        )
        rest = graph.subgraph(set(graph) - set(others))
        far = nx.single_source_shortest_path_length(rest, target)
        at = {source: sent}
        for node in sorted(far, key=lambda each: -far[each]):
            if node == target or node not in at:
                continue
            onward = [other for other in rest.adj[node] if far[other] == far[node] - 1]
            weight = {other: cables.get(frozenset((node, other)), 1) for other in onward}
            for other in onward:
                part = at[node] * weight[other] / sum(weight.values())
                loads[node, other] += part
                at[other] = at.get(other, 0.0) + part
    return loads


def random_graph(random, direct):
    switches = [f"s{index}" for index in range(random.integers(2, 8))]
    links = {(a, b) for place, a in enumerate(switches) for b in switches[:place] if random.random() < 0.5}
    links |= set(zip(switches[1:], switches, strict=False))
    count = int(random.integers(3, 9))
    for index in range(count):
        homes = random.choice(switches, size=random.integers(1, 3), replace=False)
        links |= {(f"g{index}", home) for home in homes.tolist()}
    if direct:
        links = {(f"g{a[1:]}", f"g{b[1:]}") for a, b in links if a[0] == b[0] == "s"}
    graph = wired(*[(a, b, float(random.choice([100.0, 90.0])), 1.0) for a, b in sorted(links)])
    cables = {frozenset(link): int(random.integers(1, 4)) for link in sorted(links)}
    return graph, cables


@pytest.mark.parametrize("seed", range(60))
def test_loads_of_random_traffic_are_those_of_every_pair_by_itself(seed):
    random = np.random.default_rng(seed)
    graph, cables = random_graph(random, direct=seed % 3 == 0)
    router = router_of(graph, cables)
    names = devices(router)
    messages = [(a, b, random.integers(1, 9)) for a in names for b in names if a != b and random.random() < 0.7]

    found, expected = load(router, pairs(router, *messages)), oracle(graph, cables, messages)

    assert messages == [] or max(expected.values()) > 0.0
    for link, value in found.items():
        assert value == pytest.approx(expected.get(link, 0.0), abs=1e-9), link


@pytest.mark.parametrize("seed", range(60))
def test_groups_that_exchange_load_links_as_their_pairs_do(seed):
    random = np.random.default_rng(100 + seed)
    graph, cables = random_graph(random, direct=seed % 3 == 0)
    router = router_of(graph, cables)
    names = devices(router)
    size = len(names) // 2
    groups = [names[:size], names[size : 2 * size]]
    flow = exchange(router, groups, sent=float(size))

    assert size > 1 or not any(load(router, flow).values())
    written = [(a, b, 1.0) for group in groups for a in group for b in group if a != b]
    expected = oracle(graph, cables, written)
    for link, value in load(router, flow).items():
        assert value == pytest.approx(expected.get(link, 0.0), abs=1e-9), link
    if written:
        assert load(router, *written_out(flow)) == pytest.approx(load(router, flow))


# --- by hand ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("up", "across"), [(50.0, 4), (12.5, 4), (25.0, 2)])
def test_all_to_all_on_an_oversubscribed_fat_tree_is_the_cut(up, across):
    # 4 leaves of 8 devices at 50 GB/s, 2 spines: of what a device sends, (32 - 8)/32 leaves its leaf, over 2 up/8 each.
    router = router_of(wired(*leaf_spine(across, 8, 2, 50.0, up)))
    flow = exchange(router, [devices(router)])
    count = 8 * across
    leaving = (count - 8) / count
    expected = (count - 1) / count / max((count - 1) / count / 50.0, leaving / (2 * up / 8))

    assert bandwidth(router, flow, (count - 1) / count) == pytest.approx(expected)


def test_all_to_all_on_a_bidirectional_ring_is_n_u_over_8_w():
    router = router_of(wired(*torus(8)))

    assert bandwidth(router, exchange(router, [devices(router)]), 1.0) == pytest.approx(8 * 25.0 / 8)


def test_all_to_all_on_a_torus_is_that_of_its_longest_axis():
    router = router_of(wired(*torus(4, 8)))

    assert bandwidth(router, exchange(router, [devices(router)]), 1.0) == pytest.approx(8 * 25.0 / 8)


def test_neighbours_on_a_torus_have_their_link_to_themselves():
    router = router_of(wired(*torus(4, 4)))
    ring = [f"g{place}.0" for place in range(4)]
    flow = pairs(router, *[(a, b, 1.0) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)])

    assert bandwidth(router, flow, 1.0) == pytest.approx(25.0)


def test_a_full_fat_tree_carries_a_permutation_between_pods():
    router = router_of(wired(*fat_tree(4)))
    names = devices(router)
    shifted = names[4:] + names[:4]

    assert bandwidth(router, pairs(router, *[(a, b, 1.0) for a, b in zip(names, shifted, strict=True)]), 1.0) == 50.0


def test_an_island_keeps_its_traffic_off_slower_networks_and_its_planes_share_it():
    router = router_of(wired(*rails(1, 2)))
    found = load(router, exchange(router, [[f"g0.0.{device}" for device in range(8)]]))

    assert len(router.stages) == 2
    assert all(value == 0.0 for (a, b), value in found.items() if "nic" in a + b)
    planes = [found["g0.0.0", f"plane0.0.{plane}"] for plane in range(4)]
    assert planes == pytest.approx([7 / 8 / 4] * 4)


def test_rails_without_relay_cross_the_spine_and_with_it_stay_on_the_rail():
    # Device 0 of node 0 to device 1 of node 1 in the same unit: rail 0, spines, rail 1; or over device 1 of node 0.
    graph = wired(*rails(2, 2, devices=2))
    message = ("g0.0.0", "g0.1.1", 1.0)
    there, here = router_of(graph, relay=False), router_of(graph, relay=True)

    crossing = load(there, pairs(there, message))
    assert crossing["rail0.0", "spine0"] == pytest.approx(0.25)
    assert crossing["g0.0.0", "nic-g0.0.0"] == 1.0
    staying = load(here, pairs(here, message))
    assert sum(value for (_, b), value in staying.items() if b.startswith("spine")) == 0.0
    assert staying["nic-g0.0.1", "rail0.1"] == 1.0
    assert staying["g0.0.0", "plane0.0.0"] == pytest.approx(0.25)


def test_rails_without_a_spine_need_their_neighbours():
    router = router_of(wired(*rails(1, 2, devices=2)), relay=False)
    found = load(router, pairs(router, ("g0.0.0", "g0.1.1", 1.0)))

    assert found["nic-g0.0.1", "rail0.1"] == 1.0


def test_a_device_without_a_nic_uses_those_of_its_island():
    links = [("g0", "sw0", 400.0, 1.0), ("g1", "sw0", 400.0, 1.0), ("g2", "sw1", 400.0, 1.0), ("g3", "sw1", 400.0, 1.0)]
    links += [("g1", "n1", 50.0, 1.0), ("n1", "leaf", 50.0, 1.0), ("g3", "n3", 50.0, 1.0), ("n3", "leaf", 50.0, 1.0)]
    router = router_of(wired(*links))
    found = load(router, pairs(router, ("g0", "g2", 1.0)))

    way = [("g0", "sw0"), ("sw0", "g1"), ("g1", "n1"), ("n1", "leaf"), ("leaf", "n3"), ("n3", "g3"), ("g3", "sw1")]
    assert [found[link] for link in [*way, ("sw1", "g2")]] == [1.0] * 8
    assert sum(found.values()) == 8.0


def test_a_degraded_uplink_holds_up_all_that_is_hashed_onto_it():
    links = leaf_spine(2, 8, 4, 50.0, 100.0)
    slow = [(a, b, 25.0 if (a, b) == ("leaf0", "spine0") else rate, us) for a, b, rate, us in links]
    whole, hurt = router_of(wired(*links)), router_of(wired(*slow))
    shifted = [(f"g0.{place}", f"g1.{place}", 1.0) for place in range(8)]

    assert bandwidth(whole, pairs(whole, *shifted), 1.0) == 50.0
    # A quarter of 8 messages on 25 GB/s, although the cut still has 325 of 400 GB/s.
    assert bandwidth(hurt, pairs(hurt, *shifted), 1.0) == pytest.approx(12.5)


def test_parts_that_nothing_joins_are_refused():
    router = router_of(
        wired(("g0", "s0", 50.0, 1.0), ("g1", "s0", 50.0, 1.0), ("g2", "s1", 50.0, 1.0), ("g3", "s1", 50.0, 1.0))
    )

    with pytest.raises(InputError, match="no path joins"):
        router.loads_bytes([[pairs(router, ("g0", "g2", 1.0))]])
    with pytest.raises(InputError, match="no path joins"):
        router.loads_bytes([[exchange(router, [["g0", "g1", "g2"]])]])


def random_cluster(random):
    """Islands on one or two NVSwitches, some devices without a NIC, NICs on random leaves, leaves on spines or none."""
    links, leaves = [], [f"leaf{index}" for index in range(random.integers(1, 4))]
    for island in range(random.integers(2, 4)):
        names = [f"g{island}.{device}" for device in range(random.integers(2, 5))]
        for plane in range(random.integers(1, 3)):
            links += [(name, f"nv{island}.{plane}", 400.0, 1.0) for name in names]
        with_nic = [name for name in names if random.random() < 0.7] or names[:1]
        for name in with_nic:
            home = leaves[random.integers(len(leaves))]
            links += [(name, f"nic-{name}", 50.0, 1.0), (f"nic-{name}", home, 50.0, 1.0)]
    links += [(leaf, f"spine{spine}", 100.0, 1.0) for leaf in leaves for spine in range(2)]
    return wired(*links)


@pytest.mark.parametrize("relay", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_blocks_counts_and_relays_load_links_as_single_messages_walked_through_the_graph(seed, relay):
    random = np.random.default_rng(seed)
    router = router_of(random_cluster(random), relay=relay)
    names = devices(router)
    random.shuffle(names)
    flow = exchange(router, [names[: len(names) // 2], names[len(names) // 2 : len(names) // 2 * 2]])
    messages = next(iter(written_out(flow)))
    owner, link, share = walked(router, messages)
    expected = np.bincount(link, weights=share * messages.sent_bytes[owner], minlength=router.wires.count)

    assert router.loads_bytes([[flow]])[0] == pytest.approx(expected)
    assert router.loads_bytes([[messages]])[0] == pytest.approx(expected)
    # Every message leaves its source whole and arrives whole: what links bring less what they take is nothing between.
    balance = np.zeros(len(router.wires.names))
    np.add.at(balance, router.wires.head, expected)
    np.subtract.at(balance, router.wires.tail, expected)
    own = np.bincount(messages.target, weights=messages.sent_bytes, minlength=len(balance))
    own -= np.bincount(messages.source, weights=messages.sent_bytes, minlength=len(balance))
    assert balance == pytest.approx(own, abs=1e-9)


# --- the discrete-event check -------------------------------------------------------------------------------------

GRAPHS = {
    "switch": leaf_spine(1, 8, 1, 50.0, 50.0),
    "oversubscribed": leaf_spine(4, 8, 2, 50.0, 25.0),
    "fat tree": fat_tree(4),
    "rails": rails(2, 2, devices=4),
    "torus": torus(4, 4),
    "ring": torus(12),
    "degraded": [
        (a, b, 10.0 if (a, b) == ("leaf0", "spine0") else r, u) for a, b, r, u in leaf_spine(3, 4, 2, 50.0, 50.0)
    ],
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("size", [2, 4, None])
def test_messages_simulated_in_time_take_as_long_as_the_busiest_link(name, size):
    router = router_of(wired(*GRAPHS[name]))
    names = devices(router)
    size = size or len(names)
    groups = [names[begin : begin + size] for begin in range(0, len(names) - size + 1, size)]
    flow = exchange(router, groups)
    routed = busiest(router.loads_bytes([[flow]])[0], router.wires)[1]
    messages = next(iter(written_out(flow)))

    assert simulated_s(router, messages) == pytest.approx(routed, rel=0.1)
    assert simulated_s(router, messages) >= routed * (1.0 - 1e-6)


def test_fair_shares_by_hand():
    # Two messages over one link of 10, one of them on over a link of 4: 4 and 6 GB/s, then 4 alone.
    router = router_of(
        wired(("g0", "s0", 10.0, 1.0), ("s0", "s1", 10.0, 1.0), ("s1", "g1", 4.0, 1.0), ("s1", "g2", 10.0, 1.0))
    )
    messages = pairs(router, ("g0", "g1", 8e9), ("g0", "g2", 6e9))

    assert simulated_s(router, messages) == pytest.approx(2.0, rel=1e-5)
