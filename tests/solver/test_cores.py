"""Irregular clusters: the units a search may use, the fastest over all of them, and the devices that are behind it."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.api import check, read_inputs, solve
from mapsearch.costs.placement import core_fan_outs, stepped_counts
from mapsearch.errors import InputError, UsageError
from mapsearch.explaining.api import explain
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.run import Run
from mapsearch.solver.backends.packing import common_places
from mapsearch.solver.cores import taken_units
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search
from mapsearch.topologies import fabric_of, load_topology
from mapsearch.topologies.core import Site, Tree, regular_cores

THREE = ["rack3/board2/device5", "rack17/board0/device0", "rack40/board7/device1"]


def test_steps_between_powers_of_two():
    assert stepped_counts(61) == [61, 60, 56, 52, 48, 44, 40, 36, 32]
    assert stepped_counts(7) == [7, 6, 5, 4]
    assert stepped_counts(71) == [71, 64]
    assert stepped_counts(1) == [1]


def test_what_is_offered_of_asic_with_a_dead_device_in_three_racks():
    fabric = fabric_of(load_topology("asic").replaced(down=THREE))
    assert fabric.cores == ((8, 8, 61), (8, 7, 64), (7, 8, 64))
    assert (fabric.fan_outs, fabric.devices, fabric.regular.fan_outs) == ((8, 8, 64), 3904, (8, 8, 61))
    offered = core_fan_outs(fabric)
    assert offered[0] == (8, 8, 61) and {(8, 8, 60), (8, 8, 32), (8, 7, 64), (7, 8, 64)} <= set(offered)
    assert all(fabric.holds(used) for used in offered) and not fabric.holds((8, 8, 62))


def test_what_is_offered_of_nvl72_with_a_dead_device():
    fabric = fabric_of(load_topology("gb200-nvl72").replaced(down=["rack3/device5"]))
    assert fabric.cores == ((71, 16), (72, 15))
    assert {(71, 16), (72, 15), (64, 16)} <= set(core_fan_outs(fabric))


def test_the_fastest_of_all_cores_is_that_of_each_by_itself():
    """The one search over all choices of units against a search of each regular cluster alone."""
    down = ["rack1/board0/device3", "rack2"]
    whole = load_topology("asic").replaced(levels=_sized((4, 2, 8)))
    facts = read_inputs("mixtral-8x7b", "long-context-128k", whole.replaced(down=down), None, None).facts
    facts = _short(facts)
    problem = problem_of(facts)
    found = search(problem, 1)
    alone = []
    for used in problem.used:
        regular = _short(
            read_inputs("mixtral-8x7b", "long-context-128k", whole.replaced(levels=_sized(used)), None, None).facts
        )
        best = search(problem_of(regular), 1).top
        alone += [best[0].step_time_s] if best else []
    assert len(problem.used) > 4 and found.top
    assert found.top[0].step_time_s == pytest.approx(min(alone), rel=1e-9)


def _sized(sizes):
    levels = load_topology("asic").levels
    return [level.model_copy(update={"size": size}) for level, size in zip(levels, sizes, strict=True)]


def _short(facts):
    from dataclasses import replace

    return replace(facts, run=facts.run.replaced(sequence_length=4096, global_batch=64))


def test_the_answer_names_what_it_takes_and_what_it_leaves():
    answer = solve(topology=load_topology("asic").replaced(down=THREE), top=1, proof="none")
    core, best = answer.core, answer.mappings[0]
    assert core.devices == best.devices == math.prod(core.units.values())
    assert core.stranded == ["rack3", "rack17", "rack40"] and core.stranded_devices == 3 * 63
    assert core.spare_devices == 4096 - 3 * 64 - core.devices
    assert any("stranded" in note and "rack40" in note for note in answer.notes)
    assert "core" in answer.to_json()
    # more than the largest core alone would give: a search of the regular cluster that it is
    regular = load_topology("asic").replaced(levels=_sized((8, 8, 61)))
    assert best.step_time_s < 0.8 * solve(topology=regular, top=1, proof="none").mappings[0].step_time_s


def test_a_regular_cluster_says_nothing_of_cores():
    answer = solve("mixtral-8x7b", topology="asic-8", top=1, proof="none")
    assert answer.core is None and "core" not in answer.model_dump()


def test_a_mapping_with_more_units_than_stand_together_is_refused():
    topology = load_topology("asic").replaced(down=THREE)
    mapping = solve(topology="asic", top=1, proof="none").mappings[0]
    with pytest.raises(InputError, match=r"4,096 devices|holds no more than"):
        check(mapping, topology=topology)


def test_holes_cost_what_the_repaired_cluster_gains():
    """Against searches of each repaired cluster by itself."""
    down = ["rack1/board0/device3", "rack2"]
    whole = load_topology("asic").replaced(levels=_sized((4, 2, 8)))
    run = load_inventory(Run, "long-context-128k").replaced(sequence_length=4096, global_batch=64)

    def tokens_per_s(broken):
        found = solve("mixtral-8x7b", run, whole.replaced(down=broken), top=1, proof="none")
        return found.mappings[0].tokens_per_s

    told = explain("mixtral-8x7b", run, whole.replaced(down=down), holes=True)
    assert [hole.hole for hole in told.holes] == ["all 2", *down]
    now = tokens_per_s(down)
    for hole, left in zip(told.holes, ([], down[1:], down[:1]), strict=True):
        assert hole.tokens_per_s == pytest.approx(now)
        assert hole.repaired_tokens_per_s == pytest.approx(max(now, tokens_per_s(left)))
        assert hole.gain == pytest.approx(hole.repaired_tokens_per_s / now - 1.0)
    assert told.holes[0].gain > 0.05 and "holes" in told.to_json()
    with pytest.raises(UsageError, match="nothing of asic is down"):
        explain("mixtral-8x7b", run, whole, holes=True)


def site(sizes, broken):
    tree = Tree(tuple(sizes), broken=frozenset(broken))
    return Site(tree, tuple(range(1, len(sizes) + 1)), lambda path: "/".join(map(str, path)))


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    dead=st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=6),
    depths=st.lists(st.integers(1, 3), min_size=6, max_size=6),
)
def test_a_core_takes_whole_units_that_work(sizes, dead, depths):
    outer_first = sizes[::-1]
    broken = [
        path[: min(depth, len(sizes))]
        for path, depth in zip(dead, depths, strict=False)
        if all(i < n for i, n in zip(path, outer_first, strict=False))
    ]
    place = site(sizes, broken)
    for core in regular_cores(place.tree):
        if not core.fan_outs:
            continue
        taken = taken_units(place, core.fan_outs)
        devices = taken.devices()
        assert len(devices) == len(set(devices)) == core.devices
        assert not any(path[:length] in place.tree.broken for path in devices for length in range(1, len(path) + 1))
        for depth in range(len(sizes)):
            inside = {}
            for path in {device[: depth + 1] for device in devices}:
                inside[path[:-1]] = inside.get(path[:-1], 0) + 1
            assert set(inside.values()) == {core.fan_outs[len(sizes) - depth - 1]}
        left = taken.working(taken.spares) + taken.working(taken.stranded)
        assert core.devices + left == taken.working([()])


@settings(max_examples=100, deadline=None)
@given(
    units=st.dictionaries(st.frozensets(st.integers(0, 5), min_size=3), st.integers(1, 5), min_size=1, max_size=5),
    count=st.integers(1, 3),
)
def test_places_serve_the_most_units(units, count):
    def served(places):
        return sum(weight for good, weight in units.items() if set(places) <= good)

    found = common_places(units, count, [0] * 6)
    assert len(found) == count
    assert served(found) == max(served(places) for places in itertools.combinations(range(6), count))


def test_dead_devices_on_different_rails_leave_out_one_rail_where_that_serves_most():
    # 6 nodes of 4; device 1 dead on two nodes, device 2 on one: leaving out place 1 suits five nodes
    place = site((4, 6), [(0, 1), (3, 1), (5, 2)])
    taken = taken_units(place, (3, 6))
    assert taken.places[0] == (0, 2, 3) and taken.out_of_place == 1
    assert taken.children((5,)) == ([0, 1, 3], [])
    assert (1, 1) in taken.spares and taken.stranded == []
