"""Ranks on graphs: against all permutations, and against the fixed order."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.choose import choose, fixed_order
from mapsearch.placing.loads import Cost, cost_of, demand_of, routes_of
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
    for source, target, sent in zip(demand.source, demand.target, demand.sent_bytes, strict=True):
        loads += sent * routes.share[every[:, source], every[:, target]] / routes.bytes_per_s
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
