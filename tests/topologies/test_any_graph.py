"""Whatever graph is given: levels that make sense or one sentence, whatever its nodes are called."""

from __future__ import annotations

import math

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.errors import InputError
from mapsearch.records import validate
from mapsearch.topologies import Topology, fabric_of
from mapsearch.topologies.hierarchy import derived_levels


@st.composite
def graphs(draw):
    """Connected graphs of devices, switches, NICs and hosts with links of a few speeds."""
    kinds = draw(st.lists(st.sampled_from(["device", "device", "switch", "nic", "host"]), min_size=2, max_size=14))
    graph = nx.Graph()
    for index, kind in enumerate(kinds):
        graph.add_node(f"n{index:02}", type=kind, unit="", in_network_reduction=draw(st.booleans()))
    names = list(graph)

    def join(a, b):
        rate = draw(st.sampled_from([10.0, 25.0, 50.0, 400.0]))
        graph.add_edge(a, b, bytes_per_s=rate * 1e9, latency_s=draw(st.sampled_from([0.0, 1e-6, 2e-6])))

    for index in range(1, len(names)):
        join(names[index], names[draw(st.integers(0, index - 1))])
    for a, b in draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=20)):
        if a != b:
            join(a, b)
    return graph


def derived(graph):
    try:
        return derived_levels(graph)
    except InputError as problem:
        return str(problem), []


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_levels_make_sense_or_a_sentence_says_why_not(graph):
    levels, _notes = derived(graph)
    devices = sum(kind == "device" for _, kind in graph.nodes(data="type"))
    if isinstance(levels, str):
        assert "single device" in levels or "no regular core" in levels
        return
    assert 2 <= math.prod(level.size for level in levels) <= devices
    for level in levels:
        assert level.size > 1 and level.bytes_per_s > 0 and level.latency_s >= 0
        assert not level.dims or math.prod(level.dims) == level.size


@settings(max_examples=100, deadline=None)
@given(graphs(), st.floats(0.1, 10.0), st.randoms(use_true_random=False))
def test_names_do_not_matter_and_speed_scales(graph, factor, random):
    levels, _ = derived(graph)
    names = sorted(graph)
    random.shuffle(names)
    renamed = nx.relabel_nodes(graph, dict(zip(sorted(graph), (f"m{name}" for name in names), strict=True)))
    for _, _, facts in renamed.edges(data=True):
        facts["bytes_per_s"] *= factor
    again, _ = derived(renamed)
    if isinstance(levels, str):
        assert again == levels
        return
    assert [(lv.kind, lv.size, lv.dims) for lv in again] == [(lv.kind, lv.size, lv.dims) for lv in levels]
    assert [lv.bytes_per_s for lv in again] == pytest.approx([factor * lv.bytes_per_s for lv in levels])


def test_what_is_left_without_slow_units_may_be_a_single_device():
    """Two devices on a switch, one on another: without the slow unit one device is left, which is no cluster."""
    spec = {
        "name": "three",
        "device": {"name": "X", "hbm": "96 GB", "hbm_bandwidth": "2.4 TB/s", "peak": {"bf16": "400 TFLOP/s"}},
        "nodes": [*({"id": name} for name in ("a0", "a1", "b0")), *({"id": s, "type": "switch"} for s in ("s0", "s1"))],
        "links": [
            {"a": a, "b": b, "bandwidth": "50 GB/s", "latency": "1 us"}
            for a, b in (("a0", "s0"), ("a1", "s0"), ("b0", "s1"), ("s0", "s1"))
        ],
    }
    fabric = fabric_of(validate(Topology, spec, file="three"))
    assert fabric.devices == 2
    assert all(other.levels for other in fabric.alternatives)
