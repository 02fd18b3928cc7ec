"""Small link graphs built by hand, rates in GB/s and latencies in microseconds."""

from __future__ import annotations

import networkx as nx

from mapsearch.topologies.hierarchy import derived_levels

KINDS = {"g": "device", "n": "nic"}


def wired(*links):
    """A graph from (a, b, GB/s, us); names that start with g are devices, with n NICs, others switches."""
    graph = nx.Graph()
    for a, b, rate, latency in links:
        for node in (a, b):
            graph.add_node(node, type=KINDS.get(node[0], "switch"), unit="", in_network_reduction=False)
        graph.add_edge(a, b, bytes_per_s=rate * 1e9, latency_s=latency * 1e-6)
    return graph


def leaf_spine(leaves, devices, spines, down, up):
    links = [(f"g{leaf}.{device}", f"leaf{leaf}", down, 1.0) for leaf in range(leaves) for device in range(devices)]
    return links + [(f"leaf{leaf}", f"spine{spine}", up, 2.0) for leaf in range(leaves) for spine in range(spines)]


def fat_tree(k, rate=50.0):
    """The k-ary fat tree: k pods of k/2 edges of k/2 devices, every link alike."""
    half = range(k // 2)
    links = []
    for pod in range(k):
        for edge in half:
            links += [(f"g{pod}.{edge}.{device}", f"edge{pod}.{edge}", rate, 1.0) for device in half]
            links += [(f"edge{pod}.{edge}", f"agg{pod}.{agg}", rate, 1.0) for agg in half]
        links += [(f"agg{pod}.{agg}", f"core{agg}.{core}", rate, 1.0) for agg in half for core in half]
    return links


def rails(units, nodes, devices=8, planes=4, up=0.5):
    """Islands of devices on NVSwitch planes; device i of each node on rail i of its unit; spines over all rails."""
    links = []
    for unit in range(units):
        for node in range(nodes):
            for device in range(devices):
                name = f"g{unit}.{node}.{device}"
                links += [(name, f"plane{unit}.{node}.{plane}", 450.0 / planes, 1.0) for plane in range(planes)]
                links += [(name, f"nic-{name}", 64.0, 0.5), (f"nic-{name}", f"rail{unit}.{device}", 50.0, 0.5)]
        if units > 1:
            for device in range(devices):
                trunk = 50.0 * nodes * up / 4
                links += [(f"rail{unit}.{device}", f"spine{spine}", trunk, 2.0) for spine in range(4)]
    return links


def product_graph(graph, rate=25.0):
    def name(place):
        return "g" + ".".join(map(str, place)) if isinstance(place, tuple) else f"g{place}"

    return [(name(a), name(b), rate, 1.0) for a, b in graph.edges]


def levels_of(graph, **options):
    """(kind, size, GB/s, us) of each derived level, innermost first, and the notes."""
    levels, notes = derived_levels(graph, **options)
    shown = [(lv.kind, lv.size, round(lv.bytes_per_s / 1e9, 6), round(lv.latency_s * 1e6, 6)) for lv in levels]
    return shown, notes
