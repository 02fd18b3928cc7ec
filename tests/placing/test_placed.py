"""Ranks on the regular part: golden cases by hand, and the matrices as properties."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.axes import ATTENTION_GRID, EXPERT_GRID, SIZES
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing import placed_of
from mapsearch.placing.placed import rank_groups, same_groups
from mapsearch.topologies import Topology, fabric_of
from mapsearch.topologies.graph import graph_of

DEVICE = {"name": "test part", "hbm": "8 GB", "hbm_bandwidth": "1 TB/s", "peak": {"bf16": "100 TFLOP/s"}}


def cluster(*sizes, kinds=(), dims=(), down=()):
    """Levels l0, l1, ... innermost first."""
    levels = [
        {"name": f"l{place}", "size": size, "bandwidth": f"{100 // 2**place} GB/s", "latency": "1 us"}
        for place, size in enumerate(sizes)
    ]
    for place, kind in enumerate(kinds):
        levels[place]["kind"] = kind
    for place, extents in enumerate(dims):
        levels[place] |= {"dims": extents} if extents else {}
    return Topology.model_validate({"name": "lab", "device": DEVICE, "levels": levels, "down": list(down)})


def parts(number, count):
    """Ways to write a number as a product of `count` factors."""
    if count == 1:
        return [(number,)]
    return [(d, *rest) for d in range(1, number + 1) if number % d == 0 for rest in parts(number // d, count - 1)]


@st.composite
def placements(draw):
    """A cluster and a mapping with a placement on it: both matrices drawn level by level, PP alike in both."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3))
    rows = {axis: [] for axis in SIZES}
    for size in sizes:
        *dense, pp = draw(st.sampled_from(parts(size, 4)))
        expert = draw(st.sampled_from(parts(size // pp, 3)))
        for axis, cut in zip(SIZES, (*dense, pp, *expert), strict=True):
            rows[axis].append(cut)
    mapping = Mapping.model_validate(
        {
            **{axis: math.prod(cuts) for axis, cuts in rows.items()},
            "placement": {axis: {f"l{i}": cut for i, cut in enumerate(cuts)} for axis, cuts in rows.items()},
        }
    )
    return cluster(*sizes), mapping, rows


@given(placements())
@settings(deadline=None, max_examples=150)
def test_both_matrices_are_realised(drawn):
    topology, mapping, rows = drawn
    placed = placed_of(mapping, topology)
    assert len(set(placed.devices)) == len(placed.devices) == mapping.devices
    for axis in SIZES:
        groups = placed.groups[axis]
        assert groups.shape == (mapping.devices // getattr(mapping, axis), getattr(mapping, axis))
        assert sorted(groups.ravel()) == list(range(mapping.devices))
        for group in groups:
            at = placed.units[group]
            for level, ways in enumerate(rows[axis]):
                assert len(set(at[:, level])) == ways
            # A product of its cuts: no two members at one place, so all combinations occur, the innermost fastest.
            places = [tuple(place[::-1]) for place in at]
            assert len(set(places)) == len(group)
            assert places == sorted(places)


@given(placements())
@settings(deadline=None, max_examples=100)
def test_stages_and_rings_of_context_run_in_the_order_of_ranks(drawn):
    topology, mapping, _ = drawn
    placed = placed_of(mapping, topology)
    for axis in ("cp", "pp"):
        assert (np.diff(placed.groups[axis], axis=1) > 0).all()


@given(placements())
@settings(deadline=None, max_examples=100)
def test_ranks_count_through_both_grids_in_one_order_where_that_is_said(drawn):
    topology, mapping, _ = drawn
    placed = placed_of(mapping, topology)
    if placed.counted:
        assert same_groups(placed.groups, rank_groups(placed.sizes, placed.order))


@given(placements())
@settings(deadline=None, max_examples=60)
def test_groups_of_one_grid_meet_in_one_rank(drawn):
    topology, mapping, _ = drawn
    groups = placed_of(mapping, topology).groups
    for grid in (ATTENTION_GRID, EXPERT_GRID):
        number = np.zeros((mapping.devices, 4), dtype=int)
        for place, axis in enumerate(grid):
            for index, group in enumerate(groups[axis]):
                number[group, place] = index
        # Two ranks in one group of an axis are in different groups of every other axis longer than one.
        for place, axis in enumerate(grid):
            for group in groups[axis]:
                for other in range(4):
                    if other != place:
                        assert len(set(number[group, other])) == len(group)


def test_usual_order_on_whole_levels_counts_devices_in_order():
    topology = cluster(2, 2, 4)
    placed = placed_of(Mapping(tp=2, cp=2, dp=2, pp=2, ep=8), topology)
    assert list(placed.devices) == _names(topology)
    assert placed.groups["tp"][0].tolist() == [0, 1]
    assert placed.groups["cp"][0].tolist() == [0, 2]
    assert placed.groups["dp"][0].tolist() == [0, 4]
    assert placed.groups["ep"].tolist() == [list(range(8)), list(range(8, 16))]
    assert placed.groups["pp"][0].tolist() == [0, 8]


def _names(topology):
    return [node for node, facts in graph_of(topology).nodes.items() if facts["type"] == "device"]


def test_expert_groups_cross_levels_that_dense_groups_do_not():
    placement = {"tp": {"l0": 2}, "dp": {"l1": 4}, "ep": {"l1": 4}, "edp": {"l0": 2}}
    placed = placed_of(Mapping(tp=2, dp=4, ep=4, edp=2, placement=placement), cluster(2, 4))
    assert placed.devices[:3] == ("l00/device0", "l00/device1", "l01/device0")
    assert placed.devices_of("ep", 1) == tuple(f"l0{i}/device1" for i in range(4))
    assert placed.devices_of("edp", 0) == ("l00/device0", "l00/device1")


def test_a_level_in_part_uses_its_first_units():
    placed = placed_of(Mapping(tp=8, dp=2, ep=16), cluster(9, 2))
    assert placed.devices == tuple(f"l0{node}/device{device}" for node in range(2) for device in range(8))


def test_units_that_are_down_are_stepped_over_and_rails_kept():
    """Device 0 of one board is down: the other board leaves its own device 0 out as well."""
    placed = placed_of(Mapping(tp=3, dp=2, ep=6), cluster(4, 3, down=("l01", "l02/device0")))
    assert placed.devices == tuple(f"l0{board}/device{i}" for board in (0, 2) for i in (1, 2, 3))


def test_devices_are_nodes_of_the_graph_that_work():
    topology = cluster(4, 4, down=("l01/device2", "l03/device1"))
    placed = placed_of(Mapping(dp=fabric_of(topology).devices, ep=1, edp=fabric_of(topology).devices), topology)
    assert set(placed.devices) <= set(_names(topology))


@pytest.mark.parametrize("dims", [[2, 4], [4, 2], [4, 4]])
def test_axes_fill_a_torus_as_the_cost_model_lays_them(dims):
    size = math.prod(dims)
    topology = cluster(size, kinds=("torus",), dims=(dims,))
    placed = placed_of(Mapping(tp=dims[0], dp=dims[1], edp=size), topology)
    graph = graph_of(topology)
    for axis in ("tp", "dp"):
        for group in placed.groups[axis]:
            row = [placed.devices[rank] for rank in group]
            assert all(graph.has_edge(a, b) for a, b in itertools.pairwise(row)), row


def test_a_graph_gives_the_same_devices_as_its_levels():
    names = [f"{node}{device}" for node in "ab" for device in range(4)]
    nodes = [{"id": name} for name in names] + [{"id": f"leaf-{node}", "type": "switch"} for node in "ab"]
    links = [{"a": name, "b": f"leaf-{name[0]}", "bandwidth": "50 GB/s"} for name in names]
    links.append({"a": "leaf-a", "b": "leaf-b", "bandwidth": "100 GB/s"})
    topology = Topology.model_validate({"name": "lab", "device": DEVICE, "nodes": nodes, "links": links})
    assert placed_of(Mapping(tp=4, dp=2, ep=8), topology).devices == tuple(names)
    without = topology.model_copy(update={"down": ["a1"]})
    placed = placed_of(Mapping(tp=3, dp=2, ep=6), without)
    assert placed.devices == ("a0", "a2", "a3", "b0", "b1", "b2")


def test_a_ring_of_cables_is_followed_whatever_its_devices_are_called():
    order = ["d", "a", "f", "c", "b", "e"]
    links = [{"a": a, "b": b, "bandwidth": "50 GB/s"} for a, b in zip(order, order[1:] + order[:1], strict=True)]
    nodes = [{"id": name} for name in sorted(order)]
    topology = Topology.model_validate({"name": "lab", "device": DEVICE, "nodes": nodes, "links": links})
    devices = placed_of(Mapping(tp=6, etp=6), topology).devices
    at = [order.index(name) for name in devices]
    assert all((b - a) % 6 in (1, 5) for a, b in zip(at, at[1:] + at[:1], strict=True))
