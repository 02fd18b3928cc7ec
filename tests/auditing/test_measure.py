"""Audited bandwidths: the level model where it holds, and cases by hand and from practice where it does not."""

from __future__ import annotations

import numpy as np
import pytest
from audit_graphs import leaf_spine, levels, links, racks

from mapsearch.auditing.measure import ground_of, measure
from mapsearch.auditing.traffic import product_groups
from mapsearch.inputs import read_inputs
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing import placed_of
from mapsearch.topologies import fabric_of, load_topology, scaled

MODEL, RUN, PROFILE = "deepseek-v3", "long-context-128k", "asic"


def audited(topology, relay=True, rings="levels", profile=PROFILE, **mapping):
    """Ratio and routed GB/s by axis."""
    facts = read_inputs(MODEL, RUN, topology, profile, None).facts
    measured = measure(Mapping.model_validate(mapping), facts, ground_of(topology, relay=relay, rings=rings))
    return {
        traffic.axis: (ratio, measured.sent_bytes(index) / measured.routed_unit_s[index] / 1e9)
        for index, (traffic, ratio) in enumerate(zip(measured.traffic, measured.ratios, strict=True))
    }


RINGS = ("ring", "hybrid")
TREE = levels(("board", "switch", 4, 100), ("rack", "switch", 4, 25), ("pod", "switch", 8, 12.5))


@pytest.mark.parametrize(
    "mapping",
    [
        {"tp": 4, "cp": 4, "dp": 8, "ep": 64, "edp": 2},
        {"tp": 2, "cp": 8, "dp": 2, "pp": 4, "ep": 32, "dispatcher": "deduplicated"},
        {"tp": 4, "dp": 16, "pp": 2, "ep": 16, "edp": 4, "cp_kind": "ring"},
        {"tp": 1, "cp": 16, "dp": 8, "ep": 8, "etp": 4, "edp": 4, "cp_kind": "ulysses"},
        {"tp": 2, "cp": 16, "dp": 4, "ep": 128, "cp_kind": "hybrid"},
        {"tp": 8, "cp": 4, "dp": 4, "ep": 16, "edp": 8, "cp_kind": "all-gather"},
    ],
)
def test_a_tree_gives_every_axis_what_the_level_model_assumes(mapping):
    found = audited(TREE, **mapping)

    assert set(found) >= {"ep", "dp"}
    for axis, (ratio, _) in found.items():
        # A ring that leaves a rack shares its uplink with devices that do not leave it.
        assert ratio == pytest.approx(1.0) or (ratio > 1.0 and axis == "cp" and mapping["cp_kind"] in RINGS), axis


@pytest.mark.parametrize("name", ["hgx-h100", "gb200-nvl72", "ascend"])
def test_groups_on_one_level_of_a_built_in_cluster_get_just_what_it_says(name):
    topology = scaled(load_topology(name), 288 if "72" in name else 256)
    inner, outer = fabric_of(topology).fan_outs[0], topology.device_count // fabric_of(topology).fan_outs[0]
    facts = read_inputs(MODEL, RUN, topology, PROFILE, None).facts
    placement = {"tp": {fabric_of(topology).level_names[0]: inner}, "ep": {fabric_of(topology).level_names[0]: inner}}
    mapping = Mapping(tp=inner, dp=outer, ep=inner, edp=outer, placement=placement)
    measured = measure(mapping, facts, ground_of(topology))

    assert measured.ratios == pytest.approx([1.0] * len(measured.traffic))
    assert measured.shares() == {}


# A vendor's measurements (oracle-quickstart/oci-gpu-quickstarts, nvidia/GB200 and nvidia/GB300, alltoall_perf of
# nccl-tests, bus bandwidth at the largest size). The rates below are from other tools on the same pages, none from an
# all-to-all: NVLink from nvbandwidth, both ways at once by copy kernels (total of
# device_to_device_bidirectional_memcpy_write_sm over the 12 ordered pairs of 4 GPUs, directions added), a port
# from ib_write_bw ("expected 380-385 Gb/sec").
NVLINK_GB = {"GB200": 16_948.66 / 24, "GB300": 16_950.46 / 24}
PORT_GB = 382.5 / 8
PORTS_OF_A_GPU = {"GB200": 1, "GB300": 2}
"""4 and 8 ports of 400 Gb/s on a host of 4 GPUs."""


def exchanged(part, count, ports):
    """GB/s of an all-to-all over racks of 64 GPUs, of which each has so many ports out of the rack."""
    topology = racks(count, 64, round(NVLINK_GB[part], 3), round(ports * PORT_GB, 4))
    ratio, routed = audited(topology, dp=64 * count, ep=64 * count)["ep"]
    assert ratio == pytest.approx(1.0)  # the level model says the same
    return routed


@pytest.mark.parametrize(("part", "measured"), [("GB200", 622.9), ("GB300", 666.9)])
def test_all_to_all_inside_a_rack_follows_from_the_rate_of_two_gpus(part, measured):
    topology = racks(2, 64, round(NVLINK_GB[part], 3), 47.8)
    inside = audited(topology, dp=128, ep=64, edp=2)["ep"][1]

    assert inside == pytest.approx(measured, rel=0.15)
    assert inside > measured  # copies between two GPUs are the best case


@pytest.mark.parametrize(("count", "measured"), [(2, 89.7), (3, 62.5)])
def test_all_to_all_across_racks_follows_from_the_rate_of_a_port(count, measured):
    assert exchanged("GB200", count, PORTS_OF_A_GPU["GB200"]) == pytest.approx(measured, rel=0.15)


def test_a_measured_all_to_all_may_be_a_quarter_of_what_the_cables_carry():
    # GB300, two racks: 47.67 GB/s measured. All eight ports of a host would give four times that, one for each GPU
    # (all that NCCL 2.14 took for an all-to-all, NVIDIA/nccl#804) twice; two of the eight give it. The page does not
    # say how many carried traffic (NCCL_IB_HCA lists all eight), so this tells how much is missing, and not why.
    measured, ports = 47.67, PORTS_OF_A_GPU["GB300"]
    whole, one, half = (exchanged("GB300", 2, share) for share in (ports, 1, 1 / 2))

    assert measured / whole == pytest.approx(1 / 4, rel=0.02)
    assert measured / one == pytest.approx(1 / 2, rel=0.02)
    assert half == pytest.approx(measured, rel=0.02)


def test_a_degraded_uplink_costs_more_than_its_share_of_the_cut():
    # 2 x 8 devices at 50 GB/s, 4 uplinks of 100: one at 25 leaves 325 of 400 in the cut, 40.6 GB/s per device; even
    # split puts a fourth of what leaves on it: 8 x 1/2 / 4 = 1 byte of 16 sent for 8 at 25 GB/s.
    topology = leaf_spine(2, 8, 4, 50, 100, {(0, 0): 25}.items())
    ratio, routed = audited(topology, dp=16, ep=16)["ep"]

    assert routed == pytest.approx((15 / 16) / (1 / 25))
    assert ratio == pytest.approx((15 / 16) / 50 / (1 / 25))  # the cut still lets the level model fill the 50 GB/s
    assert audited(leaf_spine(2, 8, 4, 50, 100), dp=16, ep=16)["ep"][0] == pytest.approx(1.0)


def test_parallel_cables_take_equal_shares():
    # Uplinks of 1 and 3 cables of 50: a cable each in four is what an even split over cables loads alike.
    written = [(f"g{leaf}.{device}", f"leaf{leaf}", 50) for leaf in range(2) for device in range(4)]
    written += [(f"leaf{leaf}", f"spine{spine}", 50, 1 + 2 * spine) for leaf in range(2) for spine in range(2)]

    assert audited(links(*written, level_names=["leaf", "cluster"]), dp=8, ep=8)["ep"][0] == pytest.approx(1.0)


def test_an_axis_that_skips_places_of_a_ring_gets_less_than_one_that_does_not():
    # A ring of 16: TP 4 takes neighbours; CP 4 stands 4 places apart and its hops run over each other, 4 on a link.
    ring = levels(("board", "ring", 16, 100), ("pod", "switch", 2, 10))
    found = audited(ring, tp=4, cp=4, dp=2, ep=2, edp=16)

    assert found["tp"][0] == pytest.approx(1.0)
    assert found["cp"] == (pytest.approx(1.0), pytest.approx(12.5))


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_flat_rings_carry_nearly_the_whole_tensor_out_of_every_node(nodes):
    # 8 devices with a NIC each: 8 rings, each with 1/8 of the tensor, leave a node at different NICs. Level by level
    # only what the node lacks has to come in: (1 - 8/n)/8 of the tensor instead of (1 - 1/n)/8.
    n = 8 * nodes
    about = {"dp": n, "ep": 1, "edp": n}
    whole, flat = (audited(racks(nodes, 8, 1000, 50), rings=rings, **about)["dp"] for rings in ("levels", "flat"))

    assert whole[0] == pytest.approx(1.0)
    assert flat[0] == pytest.approx((1 - 8 / n) / (1 - 1 / n))
    assert flat[1] == pytest.approx(8 * 50)
    # A profile whose library sends so is charged so.
    assert audited(racks(nodes, 8, 1000, 50), rings=None, profile="h100", **about)["dp"] == pytest.approx((1.0, 8 * 50))


def test_gathers_on_a_torus_use_all_its_axes():
    torus = levels(("slice", "torus", 64, 120, (4, 4, 4)), ("pod", "switch", 2, 10))
    found = audited(torus, dp=128, ep=1, edp=128)

    assert found["dp"] == (pytest.approx(1.0), pytest.approx((127 / 128) / (63 / 64) * 120))


def test_exchange_on_a_torus_is_bound_by_its_longest_axis():
    torus = levels(("slice", "torus", 32, 120, (8, 4)), ("pod", "switch", 2, 10))
    ratio, routed = audited(torus, dp=64, ep=32, edp=2)["ep"]

    assert ratio == pytest.approx(1.0)
    assert routed == pytest.approx((31 / 32) * 8 * 30 / 8)  # u d / (8 W), W = 120 / 4


def test_shares_make_the_level_model_take_as_long_as_the_busiest_link():
    topology = leaf_spine(2, 8, 4, 50, 100, {(0, 0): 25}.items())
    facts = read_inputs(MODEL, RUN, topology, PROFILE, None).facts
    mapping = Mapping(tp=2, dp=8, ep=16)
    measured = measure(mapping, facts, ground_of(topology))
    shares = measured.shares()

    from mapsearch.auditing.ideal import ideal_facts, unit_seconds
    from mapsearch.auditing.measure import with_shares

    assert set(shares) == {"ep"}
    for index, traffic in enumerate(measured.traffic):
        seconds = unit_seconds(traffic, ideal_facts(with_shares(facts, shares)))
        assert seconds == pytest.approx(measured.routed_unit_s[index], rel=1e-9)


def test_groups_over_two_axes_hold_every_rank_once_and_share_the_rest():
    mapping = Mapping(tp=4, cp=4, dp=8, ep=64, edp=2)
    placed = placed_of(mapping, TREE)
    rows = {"cp": (1, 4, 1), "dp": (1, 1, 8)}
    groups = product_groups(placed, rows, "cp", "dp")

    assert sorted(groups.ravel().tolist()) == list(range(128))
    assert groups.shape == (4, 32)
    for group in groups:
        assert len(set(group % 4)) == 1  # all of one place on TP
        racks_of = [placed.devices[rank].split("/")[0] for rank in group]
        assert racks_of == sorted(racks_of, key=lambda name: int(name[4:]))  # inside a rack first
    assert np.unique(groups).size == 128
