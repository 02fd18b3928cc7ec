"""Ranks on graphs: against all permutations, and against the fixed order."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.choose import choose
from mapsearch.placing.chosen import fixed_order
from mapsearch.placing.loads import Cost, cost_of, demand_of, link_seconds, routes_of
from mapsearch.topologies import Topology
from mapsearch.topologies.graph import graph_of, nodes_of_type
from tests.placing.test_placed import DEVICE, parts


def graph(links, down=()):
    """Devices are called g..., everything else is a switch; rates in GB/s."""
    ids = dict.fromkeys(end for a, b, _ in links for end in (a, b))
    nodes = [{"id": name, "type": "device" if name.startswith("g") else "switch"} for name in sorted(ids)]
    cables = [{"a": a, "b": b, "bandwidth": f"{rate} GB/s", "latency": "1 us"} for a, b, rate in links]
    document = {"name": "lab", "device": DEVICE, "nodes": nodes, "links": cables, "down": list(down)}
    return Topology.model_validate(document)


def random_graph(rng, count):
    """Devices on one or two of a few switches each, switches in a line with some extra links, uneven rates."""
    switches = rng.randint(2, 3)
    links = {}
    for device in range(count):
        for switch in rng.sample(range(switches), rng.randint(1, 2)):
            links[f"g{device}", f"s{switch}"] = rng.choice([25, 50, 100])
    for a, b in itertools.combinations(range(switches), 2):
        if b == a + 1 or rng.random() < 0.5:
            links[f"s{a}", f"s{b}"] = rng.choice([12, 50, 200])
    for a, b in itertools.combinations(range(count), 2):
        if rng.random() < 0.1:
            links[f"g{a}", f"g{b}"] = rng.choice([25, 100])
    return graph([(a, b, rate) for (a, b), rate in links.items()])


def random_mapping(rng, count):
    *dense, pp = rng.choice(parts(count, 4))
    expert = rng.choice(parts(count // pp, 3))
    return Mapping(**dict(zip(("tp", "cp", "dp", "pp", "etp", "ep", "edp"), (*dense, pp, *expert), strict=True)))


def all_bijections(mapping, topology, sent_bytes):
    """The least cost over all injections of ranks into devices, by trying them."""
    network = graph_of(topology)
    devices = nodes_of_type(network, "device")
    routes = routes_of(network, devices)
    demand = demand_of(fixed_order(mapping, devices).groups, sent_bytes)
    every = np.array(list(itertools.permutations(range(len(devices)), mapping.devices)))
    loads = np.zeros((len(every), len(routes.links)))
    hops = np.zeros(len(every))
    count = len(devices)
    share = np.array([[routes.spread(a, b) for b in range(count)] for a in range(count)])
    for source, target, sent in zip(demand.source, demand.target, demand.sent_bytes, strict=True):
        loads += sent * share[every[:, source], every[:, target]] / routes.bytes_per_s
        hops += sent * routes.hops[every[:, source], every[:, target]]
    worst = loads.max(axis=1)
    return Cost(worst.min(), hops[worst <= worst.min() * (1.0 + 1e-9)].min())


def assert_equals_brute_force(seed, count, spare=0):
    rng = random.Random(f"{seed}-{count}-{spare}")
    topology = random_graph(rng, count + spare)
    mapping = random_mapping(rng, count)
    sent = {axis: rng.randint(1, 20) * 1e9 for axis in ("tp", "cp", "dp", "pp", "etp", "ep", "edp")}
    chosen = choose(mapping, topology, sent)
    best = all_bijections(mapping, topology, sent)
    assert chosen.proven == "all"
    assert chosen.cost.worst_s == pytest.approx(best.worst_s, rel=1e-7)
    assert chosen.cost.byte_hops == pytest.approx(best.byte_hops, rel=1e-7)
    assert len(set(chosen.placed.devices)) == count
    # Counted again from the devices that are handed out.
    network = graph_of(topology)
    devices = nodes_of_type(network, "device")
    seats = np.array([devices.index(device) for device in chosen.placed.devices])
    again = cost_of(routes_of(network, devices), demand_of(chosen.placed.groups, sent), seats)
    assert again.worst_s == pytest.approx(chosen.cost.worst_s)


@pytest.mark.parametrize("seed", range(24))
def test_equals_all_permutations(seed):
    assert_equals_brute_force(seed, (4, 5, 6)[seed % 3], spare=seed % 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(120))
def test_equals_all_permutations_of_more_and_larger_graphs(seed):
    assert_equals_brute_force(seed, (6, 7, 8)[seed % 3], spare=1 if seed % 5 == 0 and seed % 3 != 2 else 0)


def leaf_spine(leaves, devices, down, up):
    links = [(f"g{leaf}.{device}", f"leaf{leaf}", down) for leaf in range(leaves) for device in range(devices)]
    return graph(links + [(f"leaf{leaf}", "spine", up) for leaf in range(leaves)])


HEAVY_DP = {"tp": 1e9, "cp": 1e9, "dp": 40e9, "pp": 1e9, "etp": 0.0, "ep": 4e9, "edp": 10e9}


def test_oversubscribed_leaves_keep_the_heavy_axis_inside():
    """Fixed order: members of DP are a leaf apart, though 4 fit one leaf, and TP, which sends 1/40, could cross."""
    topology = leaf_spine(4, 4, 100, 50)
    mapping = Mapping(tp=4, dp=4, etp=4, edp=4)
    sent = {"tp": 1e9, "dp": 40e9, "etp": 0.0, "edp": 0.0}
    chosen = choose(mapping, topology, sent)
    # Fixed: each leaf's 4 devices send 40 GB through 50 GB/s. Chosen: 40 GB over a device's 100 GB/s, and 1 GB of TP.
    assert chosen.fixed.worst_s == pytest.approx(4 * 40 / 50)
    assert chosen.cost.worst_s == pytest.approx(41 / 100)
    for group in chosen.placed.groups["dp"]:
        assert len({chosen.placed.devices[rank].split(".")[0] for rank in group}) == 1


@pytest.mark.parametrize("weak", [0, 1, 2, 3])
def test_a_degraded_leaf_gets_the_end_of_the_pipeline(weak):
    """Four stages on four leaves: the first and the last send half as much, and one of them is on the weak leaf."""
    links = [(f"g{leaf}.{device}", f"leaf{leaf}", 100) for leaf in range(4) for device in range(2)]
    links += [(f"leaf{leaf}", "spine", 10 if leaf == weak else 40) for leaf in range(4)]
    topology = graph(links)
    chosen = choose(Mapping(tp=2, pp=4, etp=2), topology, {"tp": 40e9, "pp": 10e9, "etp": 0.0})
    stages = [{chosen.placed.devices[rank].split(".")[0] for rank in group} for group in chosen.placed.groups["pp"].T]
    assert [len(stage) for stage in stages] == [1, 1, 1, 1]
    assert {f"leaf{weak}"[4:]} <= {min(stages[0])[1:], min(stages[3])[1:]}
    assert chosen.cost.worst_s == pytest.approx(2 * 5 / 10)
    assert chosen.proven == "all"


def test_holes_are_stepped_over_by_whole_blocks():
    """Three leaves of 4 with a device down in two of them: TP pairs do not straddle, though none is regular."""
    links = [(f"g{leaf}.{device}", f"leaf{leaf}", 100) for leaf in range(3) for device in range(4)]
    links += [(f"leaf{leaf}", "spine", 10) for leaf in range(3)]
    topology = graph(links, down=["g0.1", "g2.0"])
    chosen = choose(Mapping(tp=2, dp=4, ep=2, etp=1, edp=4), topology, {"tp": 10e9, "dp": 1e9, "ep": 10e9, "edp": 0.0})
    for axis in ("tp", "ep"):
        for group in chosen.placed.groups[axis]:
            assert len({chosen.placed.devices[rank].split(".")[0] for rank in group}) == 1
    assert not {"g0.1", "g2.0"} & set(chosen.placed.devices)
    assert chosen.placed.units.shape == (8, 2) and len(chosen.placed.level_names) == 2
    for group in chosen.placed.groups["tp"].tolist():
        assert chosen.placed.units[group[0], 1] == chosen.placed.units[group[1], 1]
    assert chosen.given is None  # the regular core of 3 x 3 has no 8 devices in equal parts


def test_more_ranks_than_working_devices_are_refused():
    topology = leaf_spine(2, 2, 100, 50).model_copy(update={"down": ["g0.0"]})
    with pytest.raises(InputError, match="has 3 devices that work, fewer than the mapping's 4 ranks"):
        choose(Mapping(tp=4, etp=4), topology, {"tp": 1.0})


def test_parallel_paths_share_messages():
    """Two spines: each leaf's message to another leaf goes half over either."""
    links = [("g0", "leaf0", 100), ("g1", "leaf1", 100)]
    links += [(f"leaf{leaf}", f"spine{spine}", 50) for leaf in (0, 1) for spine in (0, 1)]
    network = graph_of(graph(links))
    routes = routes_of(network, ["g0", "g1"])
    spread = dict(zip(routes.links, routes.spread(0, 1), strict=True))
    assert spread["g0", "leaf0"] == 1.0 and spread["leaf0", "spine0"] == spread["spine1", "leaf1"] == 0.5
    assert spread["leaf1", "spine0"] == 0.0 and routes.hops[0, 1] == 4


def test_what_groups_send_by_hand():
    """TP pairs exchange; PP sends half onward and half back, the ends only one way; EP sends to all others alike."""
    groups = fixed_order(Mapping(tp=2, pp=2, ep=2), ["a", "b", "c", "d"]).groups
    demand = demand_of(groups, {"tp": 8.0, "pp": 4.0, "ep": 6.0})
    sent = {(a, b): x for a, b, x in zip(demand.source, demand.target, demand.sent_bytes, strict=True)}
    assert sent == {
        (0, 1): 14.0,
        (1, 0): 14.0,
        (2, 3): 14.0,
        (3, 2): 14.0,
        (0, 2): 2.0,
        (2, 0): 2.0,
        (1, 3): 2.0,
        (3, 1): 2.0,
    }


def test_equal_inputs_give_equal_seats():
    topology = leaf_spine(4, 4, 100, 50)
    mapping = Mapping(tp=4, dp=4, ep=8, edp=2)
    one, two = (choose(mapping, topology, HEAVY_DP) for _ in range(2))
    assert one.placed.devices == two.placed.devices
    assert one.cost.worst_s <= min(one.fixed.worst_s, one.given.worst_s)


def test_loads_of_links_add_up():
    """Every byte enters and leaves once: loads of device links are what devices send."""
    topology = leaf_spine(2, 4, 100, 50)
    network = graph_of(topology)
    devices = nodes_of_type(network, "device")
    placed = fixed_order(Mapping(tp=2, dp=4, ep=8), devices)
    demand = demand_of(placed.groups, {"tp": 3.0, "dp": 5.0, "ep": 7.0})
    routes = routes_of(network, devices)
    busy = link_seconds(routes, demand, np.arange(8)) * routes.bytes_per_s
    out = {device: 0.0 for device in devices}
    for (a, _), bytes_ in zip(routes.links, busy, strict=True):
        if a in out:
            out[a] += bytes_
    assert list(out.values()) == pytest.approx([15.0] * 8)


def test_a_large_graph_is_looked_at_unit_by_unit():
    """Five racks of 128 for four stages; rack 1's uplink is a tenth: it is the spare one."""
    places = itertools.product(range(5), range(8), range(16))
    links = [(f"g{rack:02}.{leaf}.{device}", f"leaf{rack}.{leaf}", 100) for rack, leaf, device in places]
    links += [(f"leaf{rack}.{leaf}", f"rack{rack}", 800) for rack in range(5) for leaf in range(8)]
    links += [(f"rack{rack}", "spine", 40 if rack == 1 else 400) for rack in range(5)]
    topology = graph(links)
    sent = {"tp": 10e9, "dp": 20e9, "pp": 8e9, "ep": 5e9, "etp": 0.0, "edp": 1e9}
    placement = {
        "tp": {"tier1": 16}, "dp": {"tier2": 8}, "pp": {"tier3": 4}, "ep": {"tier1": 16}, "edp": {"tier2": 8},
    }  # fmt: skip
    mapping = Mapping(tp=16, dp=8, pp=4, ep=16, edp=8, placement=placement)
    chosen = choose(mapping, topology, sent)
    assert len(set(chosen.placed.devices)) == 512
    assert not any(device.startswith("g01.") for device in chosen.placed.devices)
    for axis, depth in (("tp", 2), ("ep", 2), ("dp", 1)):
        for group in chosen.placed.groups[axis].tolist():
            assert len({tuple(chosen.placed.devices[rank].split(".")[:depth]) for rank in group}) == 1
    # 128 ranks of a middle stage send 4 GB to either side through 400 GB/s; rack 1 would take ten times as long.
    assert chosen.cost.worst_s == pytest.approx(128 * 8 / 400)
    assert chosen.given.worst_s > 2 * chosen.cost.worst_s
