"""The level model against the graph: every built-in cluster, every axis, placements drawn at random, rings and tori.

A ratio is routed over assumed bandwidth. Where the model says it is exact it is 1; elsewhere it is never below 0.95, so
that no axis is thought faster than the graph lets it be.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from audit_graphs import leaf_spine, levels, racks

from mapsearch.auditing.measure import ground_of, measure
from mapsearch.costs import collectives
from mapsearch.costs.tori import axis_loads, reaches
from mapsearch.inputs import read_inputs
from mapsearch.inventories.mapping import Mapping
from mapsearch.solver.options import divisors, triples
from mapsearch.topologies import fabric_of, load_topology, scaled
from mapsearch.topologies.fabric import Level

MODEL, RUN = "deepseek-v3", "long-context-128k"
DENSE, EXPERT = ("tp", "cp", "dp"), ("etp", "ep", "edp")
KINDS = [
    {"cp_kind": kind, "dispatcher": dispatcher}
    for kind in ("ring", "all-gather", "ulysses", "hybrid")
    for dispatcher in ("all-to-all", "all-gather", "deduplicated")
]


def drawn(topology, seed, count):
    """Mappings that cut every level among all axes in some way, each with some kind of CP and of dispatcher."""
    rng, fabric = np.random.default_rng(seed), fabric_of(topology)
    for _ in range(count):
        placement = defaultdict(dict)
        for name, size in zip(fabric.level_names, fabric.fan_outs, strict=True):
            stages = int(rng.choice([n for n in divisors(size) if n <= 4])) if rng.random() < 0.3 else 1
            placement["pp"][name] = stages
            ways = triples(size // stages)
            for grid in (DENSE, EXPERT):
                for axis, cut in zip(grid, ways[rng.integers(len(ways))].tolist(), strict=True):
                    placement[axis][name] = cut
        sizes = {axis: math.prod(cuts.values()) for axis, cuts in placement.items()}
        kinds, cuts = KINDS[rng.integers(len(KINDS))], {axis: dict(cuts) for axis, cuts in placement.items()}
        yield Mapping.model_validate({**sizes, **kinds, "placement": cuts})


def ratios(topology, *, profile="asic", seed=0, count=25, **sending):
    """(axis, pattern, de-duplicated or not): all ratios that were found."""
    facts, ground = read_inputs(MODEL, RUN, topology, profile, None).facts, ground_of(topology, **sending)
    found = defaultdict(list)
    for mapping in drawn(topology, seed, count):
        measured = measure(mapping, facts, ground)
        for traffic, ratio in zip(measured.traffic, measured.ratios, strict=True):
            found[traffic.axis, traffic.pattern, bool(traffic.crossing)].append(ratio)
    return found


@pytest.mark.parametrize("profile", ["asic", "h100"])
@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("asic", 256), ("asic-64", 64), ("dgx-a100", 64), ("hgx-h100", 64), ("hgx-b200", 16), ("gb200-nvl72", 144),
        ("gb300-nvl72", 216), ("ascend", 64), ("tpu-torus", 64), ("tpu-torus", 128),
    ],
)  # fmt: skip
def test_built_in_clusters_give_every_axis_what_the_model_assumes(name, devices, profile):
    # `asic` sends gathers level by level, `h100` in flat rings.
    found = ratios(scaled(load_topology(name), devices), profile=profile)

    assert {axis for axis, _, _ in found} == {"tp", "cp", "dp", "pp", "etp", "ep", "edp"}
    assert any(deduplicated for _, _, deduplicated in found)
    for what, each in found.items():
        assert min(each) >= 0.95, what
        # A ring that leaves a unit is charged as if all of its devices left.
        assert what[1] == "hop" or max(each) <= 1.05, what


def test_two_slices_of_a_torus_of_512_agree_too():
    topology = scaled(load_topology("tpu-torus"), 1024)
    for what, each in ratios(topology, count=12).items():
        assert min(each) >= 0.95, what
        # Hops and exchanges that also go along an open axis choose where: the model takes the middle of it as fuller.
        assert max(each) <= (1.26 if what[1] == "hop" else 1.1), what


@pytest.mark.parametrize(
    ("kind", "dims"),
    [
        ("ring", (16,)),
        ("ring", (12,)),
        ("torus", (8, 4)),
        ("torus", (4, 8)),
        ("torus", (2, 4, 4)),
        ("torus", (4, 1, 4)),
    ],
)
def test_groups_that_lie_as_boxes_get_what_the_model_says(kind, dims):
    size = math.prod(dims)
    topology = levels(("slice", kind, size, 120, dims if kind == "torus" else ()), ("pod", "switch", 2, 10))
    for what, each in ratios(topology).items():
        assert min(each) >= 0.95, what
        assert max(each) <= (2.51 if what[1] == "hop" else 1.05), what


@pytest.mark.parametrize("dims", [(6, 6), (3, 4, 5), (12, 8), (3, 6, 6), (2, 3, 4), (8, 8), (16, 4)])
@pytest.mark.parametrize("seed", [1, 2])
def test_no_group_on_a_torus_is_thought_faster_than_it_is(dims, seed):
    topology = levels(("slice", "torus", math.prod(dims), 120, dims))
    for what, each in ratios(topology, seed=seed, count=30).items():
        assert min(each) >= 0.95, what


def test_nodes_on_a_torus_and_a_mesh_of_racks():
    for topology in (
        levels(("node", "switch", 4, 120), ("grid", "torus", 16, 20, (4, 4))),
        levels(("board", "switch", 4, 100), ("rack", "full_mesh", 4, 50), ("pod", "switch", 2, 10)),
    ):
        for what, each in ratios(topology).items():
            assert min(each) >= 0.95, what


@pytest.mark.parametrize("profile", ["asic", "h100"])
def test_trees_whose_leaves_carry_what_leaves_them(profile):
    # No NICs: a device's one link carries what stays under its leaf and what leaves it.
    topology = leaf_spine(4, 4, 4, 50, 50)
    assert fabric_of(topology).carries == (1, 1)
    assert fabric_of(racks(2, 8, 450, 50)).carries == (0, 1)  # each device has a NIC
    for what, each in ratios(topology, profile=profile).items():
        assert min(each) >= 0.95, what
        assert what[1] == "hop" or max(each) <= 1.05, what


def test_de_duplicated_copies_on_a_torus_are_bound_by_its_exchange():
    # 64 of 4 x 4 x 4 as one group; all links 20 GB/s each way: u bytes take u d / (8 W) along an axis of d = 4.
    facts = read_inputs(MODEL, RUN, levels(("slice", "torus", 64, 120, (4, 4, 4))), "asic", None).facts
    whole = facts.profile.model_copy(update={"all_to_all": facts.profile.all_to_all.model_copy(update={
        "peak": 1.0, "half_bytes": 0.0, "launch": 0.0, "high_bandwidth_peak": None})})  # fmt: skip
    away = 63e9
    took = collectives.loads_s([away], [64], fabric=facts.fabric, profile=whole)

    assert took == pytest.approx(64e9 * 4 / (8 * 20e9), rel=1e-4)


def test_what_leaves_at_nics_is_not_on_the_switch_inside():
    # F4.1, hierarchical: each of g devices in q nodes sends (g - 1)/g of the tensor inside, whatever q is.
    facts = read_inputs(MODEL, RUN, levels(("board", "switch", 4, 100), ("rack", "switch", 8, 100)), "asic", None).facts
    efficiency = facts.profile.all_gather.model_copy(update={"peak": 1.0, "high_bandwidth_peak": None, "launch": 0.0})
    profile = facts.profile.model_copy(update={"all_gather": efficiency})
    took = [
        collectives.all_gather_s(100e9, [4, 2], fabric=fabric, profile=profile)
        for fabric in (facts.fabric, fabric_of(levels(
            ("board", "switch", 4, 100), ("rack", "switch", 8, 100), shared=("rack",))))
    ]  # fmt: skip

    assert took == pytest.approx([3 / 4, 7 / 8], rel=1e-3)


@pytest.mark.parametrize("ways", [(4, 4), (8, 4), (2, 4, 8), (2, 1, 3)])
@pytest.mark.parametrize("rates", [(1.0, 1.0, 1.0), (0.25, 1.0, 1.0), (1.0, 0.5, 0.1)])
def test_parts_of_a_tensor_share_axes_so_that_the_slowest_ends_soonest(ways, rates):
    """Every order of axes is a corner of what can be: none of them, nor any mixture, ends sooner."""
    rates = rates[: len(ways)]
    loads = axis_loads(ways, rates)
    slowest = max(load / rate for load, rate in zip(loads, rates, strict=True))

    assert sum(loads) == pytest.approx(1 - 1 / math.prod(ways))
    rng = np.random.default_rng(0)
    for _ in range(200):
        mixture, weights = np.zeros(len(ways)), rng.dirichlet(np.ones(3))
        for weight in weights:
            done = 1
            for axis in rng.permutation(len(ways)):
                mixture[axis] += weight * (1 - 1 / ways[axis]) / done
                done *= ways[axis]
        assert max(mixture / rates) >= slowest * (1 - 1e-9)
    # And each set of axes has at least the bytes that the others cannot bring: so the loads can be had.
    for mask in range(1, 2 ** len(ways) - 1):
        inside = [axis for axis in range(len(ways)) if mask >> axis & 1]
        assert sum(loads[axis] for axis in inside) <= 1 - 1 / math.prod(ways[axis] for axis in inside) + 1e-9


def test_groups_lie_along_axes_in_the_written_order():
    level = Level("slice", "torus", 64, 1.0, 0.0, dims=(8, 8))
    (first, second), odd = reaches(8, 4, level)

    assert not odd
    assert (first.ways, first.apart, first.closed) == (2, 4, 1)  # places 0 and 4 of a row of 8, all round it
    assert (second.ways, second.apart, second.closed) == (4, 1, 0)  # of 4 rows that stop short
    assert reaches(4, 3, level)[1] == 1


@pytest.mark.parametrize("apart", [1, 2, 4])
def test_hops_run_over_each_other_where_members_stand_apart(apart):
    ring = levels(("ring", "ring", 16, 100))
    about = {"fabric": fabric_of(ring), "profile": read_inputs(MODEL, RUN, ring, "asic", None).facts.profile}
    near, far = (
        [f(1e12, [4], inner_row=row, **about) for f in (collectives.all_gather_s, collectives.all_to_all_s)]
        for row in (None, [apart])
    )
    # Four members 4 apart close the ring, which gives back half of what their hops cost each other.
    factor = apart / 2 if apart == 4 else apart
    assert far == pytest.approx([factor * each for each in near], rel=1e-3)


def test_a_search_on_a_torus_knows_that_places_apart_are_slower():
    import mapsearch

    topology = levels(("slice", "torus", 16, 60, (4, 4)), ("pod", "switch", 2, 25))
    run = {"name": "short", "sequence_length": 4096, "global_batch": 64, "precision": "bf16", "zero": [1],
           "schedule": ["1f1b"]}  # fmt: skip
    from mapsearch.inventories.run import Run

    about = {"profile": "asic", "top": 20}
    exact = mapsearch.solve("mixtral-8x7b", Run.model_validate(run), topology, backend="exhaustive", **about)
    found = mapsearch.solve("mixtral-8x7b", Run.model_validate(run), topology, **about)

    assert exact.status == found.status == "optimal"
    assert [one.step_time_s for one in found.mappings] == pytest.approx([one.step_time_s for one in exact.mappings])
