"""Reading topologies: units, directions, both forms, what is down, usual slips, other sizes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch import documents
from mapsearch.errors import InputError
from mapsearch.records import validate
from mapsearch.topologies import Topology, fabric_of, load_topology, names, scaled
from mapsearch.topologies.graph import graph_of
from mapsearch.topologies.scale import levels_form

H100 = {"name": "H100", "hbm": "80 GB", "hbm_bandwidth": "3.35 TB/s", "peak": {"bf16": "989.4 TFLOP/s"}}


def levels(*items, device=H100, **more):
    data = {"name": "toy", "device": device, "levels": list(items), **more}
    return validate(Topology, data, file="toy.yaml")


def tier(name="node", size=8, bandwidth="450 GB/s", **more):
    return {"name": name, "size": size, "bandwidth": bandwidth, "latency": "3 us", **more}


def leafs(**more):
    nodes = [{"id": f"gpu{i}"} for i in range(8)] + [{"id": name, "type": "switch"} for name in ("a", "b", "top")]
    links = [{"a": f"gpu{i}", "b": "ab"[i // 4], "bandwidth": "400 Gb/s", "latency": "1 us"} for i in range(8)]
    links += [{"a": leaf, "b": "top", "bandwidth": "100 GB/s", "latency": "1 us"} for leaf in "ab"]
    return validate(Topology, {"name": "toy", "device": H100, "nodes": nodes, "links": links, **more}, file="toy.yaml")


def test_bits_bytes_and_both_directions():
    topology = levels(
        tier(bandwidth="900 GB/s", direction="both"),
        tier("fabric", 4, "400 Gb/s"),
        tier("wan", 2, {"value": "100 Gb/s", "source": "measured", "note": "iperf"}),
    )
    fabric = fabric_of(topology)
    assert [level.bytes_per_s for level in fabric.levels] == [450e9, 50e9, 12.5e9]
    assert fabric.sources == {"wan.bandwidth": "measured: iperf"}
    assert fabric.notes == ()
    graph = leafs()
    links = [*graph.model_dump()["links"][:-1], {"a": "b", "b": "top", "bandwidth": "50 GB/s", "count": 4,
                                                 "direction": "both"}]  # fmt: skip
    assert graph_of(graph.replaced(links=links)).edges["b", "top"]["bytes_per_s"] == 100e9


def test_the_explicit_form_is_derived():
    fabric = fabric_of(leafs(level_names=["rack", "row"], all_to_all="fixed"))
    assert fabric.level_names == ("rack", "row") and fabric.fan_outs == (4, 2)
    assert [level.bytes_per_s for level in fabric.levels] == [50e9, 25e9]
    assert [level.latency_s for level in fabric.levels] == pytest.approx([2e-6, 4e-6])
    assert not fabric.variable_all_to_all
    assert fabric.domain_levels == 2  # half as fast as the innermost still counts
    assert fabric_of(leafs(high_bandwidth="30 GB/s")).domain_levels == 1
    assert fabric_of(leafs(high_bandwidth="1 TB/s")).domain_levels == 0


def test_down_in_both_forms():
    fabric = fabric_of(leafs(down=["gpu2", {"a": "gpu7", "b": "b"}]))
    assert fabric.fan_outs == (3, 2)
    assert "6 of 6 devices that work" in fabric.notes[-1] and "left out: gpu2, gpu7" in fabric.notes[-1]
    whole = load_topology("asic")
    fabric = fabric_of(whole.replaced(down=["rack3/board2/device5", "rack7", "rack9/board1"]))
    assert fabric.regular.fan_outs == (8, 8, 61)
    assert "3,904 of 4,096 devices as 61 x 8 x 8" in fabric.notes[0] and "rack3, rack7, rack9" in fabric.notes[0]
    graph = graph_of(whole.replaced(down=["rack3/board2/device5", "rack7"]))
    assert sum(kind == "device" for _, kind in graph.nodes(data="type")) == 4096 - 1 - 64
    everywhere = [f"rack{i}/board{i % 8}/device0" for i in range(64)]
    assert fabric_of(whole.replaced(down=everywhere)).regular.fan_outs == (8, 7, 64)


def test_a_mesh_loses_the_links_of_the_dead_and_a_torus_is_whole_or_nothing():
    mesh = fabric_of(load_topology("ascend").replaced(down=[f"node{i}/device3" for i in range(128)]))
    assert mesh.fan_outs == (7, 128)
    assert mesh.levels[0].bytes_per_s == pytest.approx(6 * 28e9)
    torus = load_topology("tpu-torus")
    assert fabric_of(torus.replaced(down=["slice2/device9"])).fan_outs == (512, 7)
    with pytest.raises(InputError, match=r"down: leaves no regular cluster .* describe what is left"):
        fabric_of(scaled(torus, 512).replaced(down=["device9"]))


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("rack64", "rack0 to rack63"),
        ("shelf1", "rack0/board0/device0"),
        ("rack1/board1/device1/x", "at most 3"),
        ({"a": "x", "b": "y"}, "only the explicit form"),
    ],
)
def test_down_names_are_checked(item, says):
    with pytest.raises(InputError, match=says):
        load_topology("asic").replaced(down=[item])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hbm_bandwidth": "26.8 TB/s"}, ["hbm_bandwidth", "eight times", "bits"]),
        ({"peak": {"bf16": "1979 TFLOP/s"}}, ["peak.bf16", "twice the dense", "sparsity"]),
        ({"peak": {"bf16": "989 TFLOP/s", "fp8": "3958 TFLOP/s"}}, ["peak.fp8", "sparsity"]),
        ({}, None),
    ],
)
def test_slips_in_the_device(changes, says):
    notes = levels(tier(), tier("net", 4, "50 GB/s"), device={**H100, **changes}).warnings()
    assert len(notes) == (says is not None)
    assert says is None or all(word in notes[0] for word in says)


@pytest.mark.parametrize(
    ("inner", "outer", "says"),
    [
        ("900 GB/s", "50 GB/s", ["level node", "twice", "direction: both"]),
        ("225 GB/s", "50 GB/s", ["level node", "half"]),
        ("450 GB/s", "400 GB/s", ["level net", "eight times", "Gb/s"]),
        ("450 GB/s", "6.25 GB/s", ["level net", "an eighth"]),
        ("450 GB/s", "3.6 TB/s", ["level net", "more than", "inside it"]),
        ("450 GB/s", "33 GB/s", None),
    ],
)
def test_slips_in_the_levels(inner, outer, says):
    notes = fabric_of(levels(tier(bandwidth=inner, high_bandwidth=True), tier("net", 4, outer))).notes
    assert len(notes) == (says is not None), notes
    assert says is None or all(word in notes[0] for word in says)


def test_slips_are_seen_in_derived_levels_too():
    nodes = [{"id": "gpu0"}, {"id": "gpu1"}]
    links = [{"a": "gpu0", "b": "gpu1", "bandwidth": "900 GB/s"}]
    graph = validate(Topology, {"name": "toy", "device": H100, "nodes": nodes, "links": links}, file="toy")
    assert "twice the 450 GB/s of H100" in fabric_of(graph).notes[0]


@pytest.mark.parametrize(
    ("name", "devices", "fan_outs"),
    [
        ("gb200-nvl72", 1152, (72, 16)),
        ("gb200-nvl72", 36, (36,)),
        ("hgx-h100", 1024, (8, 128)),
        ("hgx-h100", 16384, (8, 2048)),
        ("hgx-h100", 8, (8,)),
        ("hgx-h100", 4, (4,)),
        ("hgx-h100", 1, (1,)),
        ("asic", 131072, (8, 8, 2048)),
        ("asic", 40, (8, 5)),
        ("tpu-torus", 1024, (512, 2)),
        ("tpu-torus", 64, (64,)),
    ],
)
def test_scaled(name, devices, fan_outs):
    fabric = fabric_of(scaled(load_topology(name), devices))
    assert (fabric.fan_outs, fabric.devices) == (fan_outs, devices)
    kept = fabric_of(load_topology(name)).levels
    assert [level.bytes_per_s for level in fabric.levels] == [level.bytes_per_s for level in kept[: len(fan_outs)]]


def test_scaled_meshes_and_tori_keep_their_links():
    assert fabric_of(scaled(load_topology("ascend"), 4)).levels[0].bytes_per_s == pytest.approx(3 * 28e9)
    assert fabric_of(scaled(load_topology("tpu-torus"), 64)).levels[0].dims == (4, 4, 4)
    assert fabric_of(scaled(load_topology("tpu-torus"), 7)).levels[0].bytes_per_s == pytest.approx(200e9)


@pytest.mark.parametrize(
    ("name", "devices", "near"),
    [("asic", 136, "128 or 192"), ("gb200-nvl72", 100, "72 or 144"), ("asic-8", 16, "8"), ("hgx-h100", 12, "8 or 16")],
)
def test_counts_that_do_not_exist_name_their_neighbours(name, devices, near):
    with pytest.raises(InputError, match=rf"{name}: devices: cannot have {devices} .* {near}$"):
        scaled(load_topology(name), devices)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(names()), devices=st.integers(1, 20_000))
def test_scaled_is_exact_or_names_counts_that_work(name, devices):
    topology = load_topology(name)
    try:
        assert fabric_of(scaled(topology, devices)).devices == devices
    except InputError as problem:
        counts = [int(word.replace(",", "")) for word in problem.problem.rsplit(" are ", 1)[1].split(" or ")]
        assert counts and all(fabric_of(scaled(topology, count)).devices == count for count in counts)


def test_a_graph_can_be_scaled_and_written_as_levels():
    topology = leafs(level_names=["rack", "row"], high_bandwidth="30 GB/s")
    assert fabric_of(scaled(topology, 32)).fan_outs == (4, 8)
    written = documents.dump(levels_form(topology).model_dump(mode="json", exclude_defaults=True))
    again = fabric_of(validate(Topology, documents.parse(written, file="x"), file="x"))
    assert again.levels == fabric_of(topology).levels


@pytest.mark.parametrize("name", names())
def test_the_catalogue_survives_writing(name):
    topology = load_topology(name)
    text = documents.dump(topology.model_dump(mode="json", exclude_defaults=True))
    assert fabric_of(validate(Topology, documents.parse(text, file=name), file=name)) == fabric_of(topology)


@pytest.mark.parametrize(
    ("name", "bf16", "fp8", "hbm_rate", "inner", "outer"),
    [
        # dense TFLOP/s, TB/s, GB/s one way per device: vendors' datasheets
        ("dgx-a100", 312, None, 2.039, 300, 25),
        ("hgx-h100", 989.4, 1978.9, 3.35, 450, 50),
        ("hgx-h200", 989.4, 1978.9, 4.8, 450, 50),
        ("hgx-b200", 2250, 4500, 8, 900, 50),
        ("gb200-nvl72", 2450, 4900, 8, 900, 50),
        ("gb300-nvl72", 2500, 5000, 8, 900, 100),
        ("tpu-torus", 459, 459, 2.765, 600, 6.25),
        ("asic", 400, 800, 2.4, 100, 25),
    ],
)
def test_datasheet_figures(name, bf16, fp8, hbm_rate, inner, outer):
    fabric = fabric_of(load_topology(name))
    assert fabric.device.peak("bf16") == pytest.approx(bf16 * 1e12)
    assert fabric.device.peak_flops.get("fp8", 0) == pytest.approx((fp8 or 0) * 1e12)
    assert fabric.device.hbm_bytes_per_s == pytest.approx(hbm_rate * 1e12)
    assert [level.bytes_per_s / 1e9 for level in fabric.levels[:2]] == pytest.approx([inner, outer])


def test_both_forms_in_the_documentation_are_one_cluster():
    page = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "topology.md"
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)
    written, drawn, broken, mixed = (
        fabric_of(validate(Topology, documents.parse(text, file=str(page)), file=str(page))) for text in blocks
    )
    joined = [replace(level, kind="switch") for level in drawn.levels]
    assert joined == list(written.levels) and drawn.domain_levels == written.domain_levels == 1
    assert (broken.regular.fan_outs, broken.devices) == ((8, 8, 61), 3904)
    assert broken.cores == ((8, 8, 61), (8, 7, 63), (7, 8, 62))
    assert [(one.device.name, one.devices) for one in mixed.alternatives] == [("H100", 112), ("H200", 16)]
