"""Clusters that can be read in several ways: two types of device, units of unequal bandwidth."""

from __future__ import annotations

import pytest

from mapsearch.api import check, mapping_given, solve
from mapsearch.calibration.shipped import default_profile
from mapsearch.errors import InputError
from mapsearch.explaining.api import explain
from mapsearch.inputs import decided, read_inputs
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.run import Run
from mapsearch.topologies import Topology, fabric_of, load_topology
from mapsearch.topologies.types import readings_of

H100 = load_topology("hgx-h100")
H200 = load_topology("hgx-h200").device
RUN = load_inventory(Run, "long-context-128k").replaced(sequence_length=4096, global_batch=64)


def mixed(types, nodes=8):
    levels = [H100.levels[0], H100.levels[1].model_copy(update={"size": nodes})]
    return H100.replaced(levels=levels, other_devices=[H200.model_dump()], types=types)


def test_two_types_are_read_as_the_slower_and_as_each_alone():
    fabric = fabric_of(mixed(dict.fromkeys(("node0", "node5", "node2/device3"), H200.name)))
    assert fabric.devices == 64 and not fabric.cores
    assert (fabric.device.name, fabric.device.hbm_bytes) == (H100.device.name, H100.device.hbm)
    assert "47 x H100" in fabric.notes[0] and "17 x H200" in fabric.notes[0] and "43% of its memory" in fabric.notes[0]
    first, second = fabric.alternatives
    assert (first.reading, first.devices) == (f"the 47 x {H100.device.name} alone", 6 * 7)  # or 5 x 8
    assert (second.device.name, second.device.hbm_bytes, second.devices) == (H200.name, H200.hbm, 16)
    assert default_profile(second) != default_profile(first)


def test_the_slower_type_is_so_in_every_number():
    odd = H200.model_copy(update={"hbm": 40e9, "peak": {"bf16": 2e15, "fp8": 1e15}, "power": 1000.0})
    topology = H100.replaced(
        device={**H100.device.model_dump(), "power": "700 W"},
        other_devices=[odd.model_dump()],
        types={"node0": odd.name},
    )
    shared = readings_of(topology)[0][1].device
    assert shared.hbm == 40e9 and shared.hbm_bandwidth == H100.device.hbm_bandwidth
    assert shared.peak == {"bf16": H100.device.peak["bf16"], "fp8": 1e15}  # fp16 is not known of both
    assert shared.power == pytest.approx((700.0 * 127 + 1000.0) / 128)


def test_types_of_which_only_one_is_there_are_one():
    plain = H100.replaced(other_devices=[H200.model_dump()])
    assert fabric_of(plain) == fabric_of(H100)
    everywhere = {f"node{n}": H200.name for n in range(128)}
    fabric = fabric_of(H100.replaced(other_devices=[H200.model_dump()], types=everywhere))
    assert (fabric.device.name, fabric.devices, fabric.alternatives) == (H200.name, 1024, ())


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"node0": "H20O"}, "node0 is of type 'H20O'"),
        ({"rack0": H200.name}, "'rack0'.*is not node<number>"),
    ],
)
def test_unknown_types_and_units_are_refused(types, words):
    with pytest.raises(InputError, match=words):
        mixed(types)


def test_nodes_say_their_type():
    nodes = [{"id": f"g{n}.{d}", **({"device": H200.name} if n == 0 else {})} for n in range(3) for d in range(4)]
    links = [{"a": node["id"], "b": f"s{node['id'][1]}", "bandwidth": "450 GB/s"} for node in nodes]
    links += [{"a": f"s{n}", "b": "top", "bandwidth": "200 GB/s"} for n in range(3)]
    nodes += [{"id": name, "type": "switch"} for name in ("s0", "s1", "s2", "top")]
    device = H100.device.model_dump()
    topology = Topology.model_validate(
        {"name": "few", "device": device, "other_devices": [H200.model_dump()], "nodes": nodes, "links": links}
    )
    fabric = fabric_of(topology)
    assert [(one.device.name, one.devices) for one in (fabric, *fabric.alternatives)] == [
        (H100.device.name, 12), (H100.device.name, 8), (H200.name, 4),
    ]  # fmt: skip
    assert topology.replaced(name="again").nodes[0].device == H200.name


def test_the_fastest_reading_is_searched():
    """One node of slow devices: seven fast nodes beat eight slow ones; half of them slow: all of them count."""
    slow = H100.device.model_copy(update={"name": "H100-slow", "peak": {"bf16": 1e14, "fp16": 1e14, "fp8": 2e14}})

    def answer(count):
        types = {f"node{n}": slow.name for n in range(count)}
        topology = mixed({}).replaced(other_devices=[slow.model_dump()], types=types)
        return solve("mixtral-8x7b", RUN, topology, profile="h100", top=1, proof="none")

    one = answer(1)
    alone = mixed({}).replaced(other_devices=[], down=["node0"])
    best = solve("mixtral-8x7b", RUN, alone, profile="h100", top=1, proof="none").mappings[0]
    assert one.mappings[0].step_time_s == best.step_time_s
    assert "read in 3 ways" in one.notes[0] and "the 56 x H100" in one.notes[0]
    assert one.core.stranded_devices == 0 and one.core.devices == best.devices


SLOW = H100.device.model_copy(update={"name": "H100-slow", "peak": {"bf16": 1e14, "fp16": 1e14, "fp8": 2e14}})


def with_slow_nodes(count, **more):
    types = {f"node{n}": SLOW.name for n in range(count)}
    return mixed({}).replaced(other_devices=[SLOW.model_dump()], types=types, **more)


def test_an_answer_is_audited_placed_and_checked_on_the_reading_that_it_was_found_on():
    from mapsearch.auditing.api import audit
    from mapsearch.placing.api import placing_of

    topology = with_slow_nodes(1)
    answer = solve("mixtral-8x7b", RUN, topology, profile="h100", top=1, proof="none")
    best = answer.mappings[0]
    about = {"model": "mixtral-8x7b", "run": RUN, "topology": topology, "profile": "h100"}
    audited = audit(best, **about, answer_notes=answer.notes)
    checked = check(best, **about, answer_notes=answer.notes)
    placed = placing_of(mapping_given(best), topology, notes=answer.notes).placed
    linked = placing_of(mapping_given(best), topology, notes=answer.notes, sent_bytes={"dp": 1e9, "ep": 1e9}).placed

    assert audited.step_time_s == best.step_time_s == checked.mapping.step_time_s and checked.feasible
    assert audited.devices == best.devices and len(audited.axes) > 0
    assert all(not device.startswith("node0/") for one in (placed, linked) for device in one.devices)
    # The first reading (all at the slower type) is another cluster, on which the mapping fits as well.
    assert check(best, **about).mapping.step_time_s > best.step_time_s


def test_one_type_can_be_chosen_in_the_topology():
    alone = mixed({}).replaced(other_devices=[], down=["node0"])
    chosen = with_slow_nodes(1, only_type=H100.device.name)
    fabric = fabric_of(chosen)

    assert fabric.levels == fabric_of(alone).levels and fabric.cores == fabric_of(alone).cores
    assert not fabric.alternatives
    assert "only_type: the 56 x" in fabric.notes[0] and "8 other devices left out" in fabric.notes[0]
    other = fabric_of(with_slow_nodes(2, only_type=SLOW.name))
    assert (other.device.name, other.devices) == (SLOW.name, 16)


def test_a_type_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="only_type is 'H100-slo'"):
        with_slow_nodes(1, only_type="H100-slo")
    with pytest.raises(InputError, match=r"no device is of that type; here are"):
        fabric_of(with_slow_nodes(0, only_type=SLOW.name))


def test_the_note_on_readings_says_what_is_not_searched():
    answer = solve("mixtral-8x7b", RUN, with_slow_nodes(1), profile="h100", top=1, proof="none")

    assert "not searched: stages or replicas on devices of different types" in answer.notes[0]


def degraded(rate):
    nodes, links = [{"id": "leaf", "type": "switch"}], []
    for n in range(8):
        nodes.append({"id": f"nv{n}", "type": "switch"})
        for d in range(8):
            nodes.append({"id": f"g{n}.{d}"})
            links.append({"a": f"g{n}.{d}", "b": f"nv{n}", "bandwidth": "450 GB/s", "latency": "1 us"})
            uplink = rate if n == 5 else "50 GB/s"
            links.append({"a": f"g{n}.{d}", "b": "leaf", "bandwidth": uplink, "latency": "2 us"})
    return Topology.model_validate(
        {"name": "degraded", "device": H100.device.model_dump(), "nodes": nodes, "links": links}
    )


@pytest.mark.parametrize(("rate", "devices"), [("0.1 GB/s", 56), ("45 GB/s", 64)])
def test_a_node_on_a_slow_link_is_left_out_where_that_is_faster(rate, devices):
    fabric = fabric_of(degraded(rate))
    (other,) = fabric.alternatives
    assert fabric.levels[1].bytes_per_s == pytest.approx(float(rate.split()[0]) * 1e9)
    assert other.levels[1].bytes_per_s == 50e9 and other.cores == ((8, 7),)
    found = decided(read_inputs("mixtral-8x7b", RUN, degraded(rate), None, None))
    answer = solve("mixtral-8x7b", RUN, degraded(rate), top=1, proof="none")
    assert answer.mappings[0].devices == devices
    assert (found.facts.fabric.reading == other.reading) == (devices < 64)
    # every reading searched by itself is no faster
    for one in (fabric, other):
        alone = solve("mixtral-8x7b", RUN, one, top=1, proof="none")
        assert answer.mappings[0].step_time_s <= alone.mappings[0].step_time_s


def test_explanations_are_of_the_fastest_reading_too():
    told = explain("mixtral-8x7b", RUN, degraded("0.1 GB/s"))
    assert "read in 2 ways" in told.notes[0]
    assert told.mapping.devices < 64
