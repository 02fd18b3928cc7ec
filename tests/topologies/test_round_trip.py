"""Levels drawn as a graph and derived again are the same levels."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.topologies import Topology, fabric_of, load_topology, names
from mapsearch.topologies.graph import graph_of
from mapsearch.topologies.hierarchy import derived_levels, fabric_of_graph

DEVICE = {"name": "toy", "hbm": "1 GB", "hbm_bandwidth": "1 TB/s", "peak": {"bf16": "1 TFLOP/s"}}


@st.composite
def level(draw, kinds):
    kind = draw(st.sampled_from(kinds))
    dims = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)) if kind == "torus" else []
    size = math.prod(dims) if dims else draw(st.integers(1, 6))
    return {"kind": kind, "size": size, "dims": dims}


@st.composite
def topologies(draw, kinds=("switch", "full_mesh", "ring", "torus"), *, faster_inside=False):
    levels = draw(
        st.lists(level(kinds), min_size=1, max_size=3).filter(
            lambda chosen: 2 <= math.prod(item["size"] for item in chosen) <= 600
        )
    )
    rates = sorted(draw(st.lists(st.integers(1, 900), min_size=3, max_size=3)), reverse=True)
    if not faster_inside:
        rates = draw(st.permutations(rates))
    latencies = draw(st.lists(st.integers(1, 30), min_size=3, max_size=3))
    latencies = sorted(latencies) if faster_inside else latencies
    domain = draw(st.integers(0, 3))
    named = [
        {**item, "name": f"l{i}", "bandwidth": f"{rates[i]} GB/s", "latency": f"{latencies[i]} us",
         "high_bandwidth": i < domain}
        for i, item in enumerate(levels)
    ]  # fmt: skip
    return Topology.model_validate({"name": "toy", "device": DEVICE, "levels": named})


def canonical(kind, size, dims):
    """One name for shapes that are the same graph: two axes of 2 are one of 4, a ring of 3 is a mesh."""
    if kind == "torus":
        axes = [extent for extent in dims if extent > 1]
        twos = axes.count(2)
        axes = [extent for extent in axes if extent != 2] + [4] * (twos // 2) + [2] * (twos % 2)
        kind, dims = ("torus", tuple(sorted(axes, reverse=True))) if len(axes) > 1 else ("ring", ())
    if kind == "ring" and size <= 3:
        kind = "full_mesh"
    return kind, size, tuple(dims) if kind == "torus" else ()


def seen(levels):
    """What a graph can show of levels: no tier of one unit, canonical kinds, figures."""
    return [
        (canonical(lv.kind, lv.size, lv.dims), pytest.approx(lv.bytes_per_s), pytest.approx(lv.latency_s, abs=1e-12))
        for lv in levels
        if lv.size > 1
    ]


def derived(topology, *, units):
    graph = graph_of(topology)
    if not units:
        for node in graph:
            graph.nodes[node]["unit"] = ""
    levels, notes = derived_levels(graph)
    assert notes == []
    return [(canonical(lv.kind, lv.size, lv.dims), lv.bytes_per_s, lv.latency_s) for lv in levels]


@settings(max_examples=150, deadline=None)
@given(topologies())
def test_levels_of_any_kind_come_back(topology):
    assert derived(topology, units=True) == seen(fabric_of(topology).levels)


@settings(max_examples=100, deadline=None)
@given(topologies(("switch",), faster_inside=True))
def test_switched_levels_come_back_from_the_links_alone(topology):
    assert derived(topology, units=False) == seen(fabric_of(topology).levels)


@pytest.mark.parametrize("name", names())
def test_catalogue(name):
    """Every built-in cluster: no warning, plausible, and the same whether read straight or off its graph."""
    topology = load_topology(name)
    straight, drawn = fabric_of(topology), fabric_of_graph(topology)
    assert straight.notes == drawn.notes == ()
    assert straight.name == name
    assert straight.domain_levels == drawn.domain_levels == 1
    assert (straight.devices, straight.level_names) == (drawn.devices, drawn.level_names)
    assert seen(drawn.levels) == seen(straight.levels)
    for level in straight.levels:
        assert straight.sources[f"{level.name}.bandwidth"]
    assert set(straight.device.sources) >= {"hbm", "hbm_bandwidth", "peak"}
