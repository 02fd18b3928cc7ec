"""A torus that is given by its links alone: axes found again, and ranks laid along them."""

from __future__ import annotations

import itertools
import random

import pytest

from mapsearch.auditing.measure import ground_of, measure
from mapsearch.errors import InputError
from mapsearch.inputs import read_inputs
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing import placed_of
from mapsearch.placing.choose import choose
from mapsearch.topologies import Topology, fabric_of
from mapsearch.topologies.torus import along_axes

DEVICE = {"name": "ASIC", "hbm": "96 GB", "hbm_bandwidth": "2.4 TB/s", "peak": {"bf16": "400 TFLOP/s"}}


def next_to(place, dims):
    for axis, extent in enumerate(dims):
        for step in {1, extent - 1}:
            yield (*place[:axis], (place[axis] + step) % extent, *place[axis + 1 :])


def shuffled(dims, seed):
    """Units of a torus under random numbers, and its links."""
    places = list(itertools.product(*map(range, dims)))
    numbers = list(range(len(places)))
    random.Random(seed).shuffle(numbers)
    number = dict(zip(places, numbers, strict=True))
    linked = {number[place]: {number[other]: 1.0 for other in next_to(place, dims)} for place in places}
    return dict(sorted(linked.items()))


SHAPES = [
    (5, 5), (4, 4), (3, 3), (4, 2), (3, 2), (5, 2), (8, 4), (7, 3), (4, 3), (6, 5), (4, 4, 4), (8, 4, 2), (5, 3, 3),
    (6, 4, 3), (8, 8, 2), (4, 4, 2), (5, 5, 5), (6, 4, 4), (3, 3, 3, 3), (5, 4, 3, 2), (4, 4, 4, 4),
]  # fmt: skip


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_axes_are_found_again_whatever_the_units_are_called(dims, seed):
    linked = shuffled(dims, seed)
    order = along_axes(linked, dims)

    assert order is not None and sorted(order) == sorted(linked) and order[0] == 0
    at = dict(zip(itertools.product(*map(range, dims)), order, strict=True))
    for place, unit in at.items():
        assert {at[other] for other in next_to(place, dims)} == set(linked[unit])


def test_what_is_no_torus_of_these_axes_is_not_taken_for_one():
    assert along_axes(shuffled((6, 4), 0), (8, 3)) is None
    assert along_axes(shuffled((6, 4), 0), (6, 4, 1)) is None
    twisted = shuffled((6, 5), 1)  # one crossing pair of links exchanged: the same degrees everywhere
    first, second = 0, next(unit for unit in twisted if unit not in (0, *twisted[0]))
    a = next(unit for unit in twisted[first] if unit not in twisted[second])
    b = next(unit for unit in twisted[second] if unit not in twisted[first] and unit != a and unit not in twisted[a])
    for one, old, new in ((first, a, b), (b, second, first), (second, b, a), (a, first, second)):
        del twisted[one][old]
        twisted[one][new] = 1.0
    assert along_axes(twisted, (6, 5)) is None


def by_cables(dims, seed, rate=50):
    """A torus of devices with nothing but links between them, listed at random."""
    linked = shuffled(dims, seed)
    pairs = {(min(unit, other), max(unit, other)) for unit in linked for other in linked[unit]}
    double = {pair for pair in pairs for extent in dims if extent == 2}
    assert not double
    return Topology.model_validate(
        {
            "name": "cables",
            "device": DEVICE,
            "nodes": [{"id": f"g{unit}"} for unit in linked],
            "links": [{"a": f"g{a}", "b": f"g{b}", "bandwidth": f"{rate} GB/s", "latency": "1 us"} for a, b in pairs],
        }
    )


def ratios(topology, mapping):
    facts = read_inputs("deepseek-v3", "long-context-128k", topology, "asic", None).facts
    measured = measure(mapping, facts, ground_of(topology))
    return {traffic.axis: ratio for traffic, ratio in zip(measured.traffic, measured.ratios, strict=True)}


def written(dims, rate=50):
    level = {
        "name": "slice", "kind": "torus", "size": 1, "bandwidth": f"{2 * len(dims) * rate} GB/s", "latency": "1 us",
        "dims": list(dims), "high_bandwidth": True,
    }  # fmt: skip
    for extent in dims:
        level["size"] *= extent
    return Topology.model_validate({"name": "written", "device": DEVICE, "levels": [level]})


@pytest.mark.parametrize("dims", [(8, 4), (4, 4, 4)])
def test_groups_on_a_torus_of_cables_get_what_they_get_on_one_that_is_written_down(dims):
    cables, plain = by_cables(dims, 5), written(dims)
    count = plain.device_count
    assert fabric_of(cables).levels[0].dims == dims
    for mapping in (
        Mapping(tp=4, cp=4, dp=count // 16, ep=8, edp=count // 8),
        Mapping(tp=dims[0], dp=count // dims[0], ep=count // 4, edp=4),
        Mapping(tp=1, cp=8, dp=count // 8, ep=4, etp=4, edp=count // 16),
    ):
        assert ratios(cables, mapping) == pytest.approx(ratios(plain, mapping)), mapping


def test_ranks_along_the_axes_gain_what_the_audit_says(monkeypatch):
    cables = by_cables((8, 8), 3)
    mapping = Mapping(tp=8, dp=8, ep=8, edp=8)
    along = ratios(cables, mapping)
    neighbours = {frozenset((link.a, link.b)) for link in cables.links}
    placed = placed_of(mapping, cables)
    for group in placed.groups["tp"]:
        ring = [placed.devices[rank] for rank in group]
        assert all(frozenset(pair) in neighbours for pair in zip(ring, [*ring[1:], ring[0]], strict=True))

    monkeypatch.setattr("mapsearch.topologies.hierarchy.along_axes", lambda _linked, _dims: None)
    listed = ratios(cables, mapping)
    assert along["tp"] == pytest.approx(1.0)
    assert listed["tp"] < 0.6 * along["tp"]
    assert listed["ep"] < 0.9 * along["ep"]


HEAVY_TP = {"tp": 40e9, "cp": 2e9, "dp": 5e9, "pp": 0.0, "etp": 0.0, "ep": 6e9, "edp": 2e9}


def test_links_lay_the_heaviest_axis_round_a_whole_ring():
    # 8 x 4: filled along the 8 first, TP 4 has half of a ring, whose end is 4 hops back over the same links; along the
    # 4 it has a ring. The fixed order is that of a random list.
    mapping = Mapping(tp=4, dp=8, ep=4, edp=8)
    chosen = choose(mapping, by_cables((8, 4), 7), HEAVY_TP)

    assert chosen.given is not None
    assert chosen.cost.worst_s < 0.8 * chosen.given.worst_s < 0.8 * chosen.fixed.worst_s
    neighbours = {frozenset((link.a, link.b)) for link in by_cables((8, 4), 7).links}
    for group in range(8):
        ring = chosen.placed.devices_of("tp", group)
        assert all(frozenset(pair) in neighbours for pair in zip(ring, [*ring[1:], ring[0]], strict=True))


def test_a_torus_of_more_devices_than_are_routed_pair_by_pair_is_laid_out_as_a_whole():
    topology, mapping = by_cables((16, 8, 8), 2), Mapping(tp=8, dp=128, ep=32, edp=32)
    chosen = choose(mapping, topology, HEAVY_TP)

    assert (chosen.start, chosen.proven) == ("axes", "")
    assert sorted(chosen.placed.devices) == sorted(node.id for node in topology.nodes)
    assert chosen.given is not None
    assert chosen.cost.worst_s < 0.8 * chosen.given.worst_s < 0.4 * chosen.fixed.worst_s
    # The audit says so: TP goes round rings of 8 both ways, where half of a ring of 16 has one way.
    facts = read_inputs("deepseek-v3", "long-context-128k", topology, "asic", None).facts
    before, after = (
        dict(zip([t.axis for t in m.traffic], m.ratios, strict=True))
        for m in (measure(mapping, facts, ground_of(topology), one) for one in (None, chosen.placed))
    )
    assert after["tp"] == pytest.approx(2.0 * before["tp"])


def test_a_torus_too_large_to_be_routed_as_a_whole_is_refused(monkeypatch):
    monkeypatch.setattr("mapsearch.placing.whole.MOST_DEVICES", 512)
    with pytest.raises(InputError, match=r"576 devices are too many to route as a whole \(limit 512\)"):
        choose(Mapping(tp=8, dp=72, ep=8, edp=72), by_cables((9, 8, 8), 2), HEAVY_TP)
