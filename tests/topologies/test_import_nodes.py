"""Importers of what is in a node: own look-alikes with contents checked by hand, and refusals that name the place."""

from __future__ import annotations

import node_texts as texts
import pytest

from mapsearch.errors import InputError
from mapsearch.topologies.importers import importer_of, read_text
from mapsearch.topologies.importers.base import Inside


def read(text: str, *, repair: bool = False) -> Inside:
    inside = read_text(text, file="node.txt", repair=repair)
    assert isinstance(inside, Inside)
    return inside


def refused(text: str, *, repair: bool = False) -> str:
    with pytest.raises(InputError) as caught:
        read_text(text, file="node.txt", repair=repair)
    return str(caught.value)


def links(inside: Inside, *kinds: str) -> dict[tuple[str, str], int]:
    return {(one.a, one.b): one.count for one in inside.links if not kinds or one.kind in kinds}


def spot(text: str, line: int, word: str) -> str:
    """Where a word stands on a line, as messages write it."""
    return f"line {line}, column {text.splitlines()[line - 1].index(word) + 1}"


@pytest.mark.parametrize(
    ("name", "known_as"),
    [("nvswitch", "nvidia-smi topo -m"), ("nics", "nvidia-smi topo -m"), ("rocm", "rocm-smi --showtopo"),
     ("rocm pcie", "rocm-smi --showtopo"), ("npu", "npu-smi info -t topo"), ("npu dies", "npu-smi info -t topo"),
     ("nccl", "NCCL topology XML"), ("graphs", "NCCL topology XML")],
)  # fmt: skip
def test_the_format_is_told_from_the_text(name, known_as):
    assert known_as == importer_of(texts.TEXTS[name], "any").FORMAT


def test_nvswitch_is_told_from_more_links_than_a_device_has():
    inside = read(texts.nvswitch())
    assert links(inside) == {(f"GPU{place}", "nvlink-switch"): 18 for place in range(8)}
    assert [one.numa for one in inside.of_kind("device")] == ["0"] * 4 + ["1"] * 4


def test_a_mesh_of_few_links_is_direct():
    inside = read(texts.smi(texts.gpus(4), lambda a, b: "NV4"))
    assert len(inside.links) == 6 and all(one.count == 4 for one in inside.links)


def test_a_degraded_device_keeps_its_own_count():
    degraded = read(texts.smi(texts.gpus(4), lambda a, b: "NV16" if "GPU2" in (a, b) else "NV18"))
    assert links(degraded)[("GPU2", "nvlink-switch")] == 16
    assert links(degraded)[("GPU0", "nvlink-switch")] == 18
    assert degraded.notes == ("GPU2 has 16 of 18 links",)


def test_nics_and_the_tree_with_colours_a_prompt_and_legends():
    inside = read(texts.with_nics())
    assert [(one.name, one.hint) for one in inside.of_kind("nic")] == [(f"NIC{n}", f"mlx5_{n + 2}") for n in range(5)]
    tree = links(inside, "pcie")
    assert {end for (end, switch) in tree if switch == "pcie0"} == {"GPU0", "GPU1", "NIC0", "NIC1"}
    assert {end for (end, switch) in tree if switch == "pcie1"} == {"GPU2", "GPU3", "NIC2", "NIC3"}
    assert len(links(inside, "smp")) == 3  # two sockets, and the storage NIC that is near to nothing


def test_nearness_becomes_a_tree_of_switches_and_sockets():
    inside = read(texts.pcie_pairs())
    assert links(inside, "pcie") == {
        ("GPU2", "pcie0"): 1,
        ("GPU3", "pcie0"): 1,
        ("GPU0", "pcie1"): 1,
        ("GPU1", "pcie1"): 1,
    }
    assert len(links(inside, "smp")) == 1


def test_root_complexes_of_a_socket_meet_as_widely_as_their_ports():
    def relation(a, b):
        return "PHB" if int(a[3:]) // 2 == int(b[3:]) // 2 else "NODE"

    inside = read(texts.smi(texts.gpus(4), relation))
    assert links(inside) == {
        ("GPU0", "root0"): 1, ("GPU1", "root0"): 1, ("GPU2", "root1"): 1, ("GPU3", "root1"): 1,
        ("root0", "numa0"): 2, ("root1", "numa0"): 2,
    }  # fmt: skip


def test_islands_have_a_switch_each_and_meet_at_the_sockets():
    inside = read(texts.islands())
    fast = links(inside, "nvlink")
    assert fast[("GPU0", "nvlink-switch0")] == fast[("GPU7", "nvlink-switch1")] == 18
    assert links(inside, "smp") == {("numa0", "numa1"): 1}


def test_affinities_that_ran_together_are_taken_apart_where_only_one_way_is_even():
    text = texts.smi(texts.gpus(2), lambda a, b: "SYS", ["0-45,92-1370", "46-91,138-1831"])
    inside = read(text)
    assert [one.numa for one in inside.of_kind("device")] == ["0", "1"]
    assert "0-45,92-1370 is read as CPUs 0-45,92-137 and NUMA node 0" in inside.notes[0]


def test_wrapped_rows_are_joined():
    text = texts.nvswitch(4).replace("\tNV18\tNV18\t0-15", "\tNV18\n\tNV18\t0-15").replace("\tCPU Aff", "\n\tCPU Aff")
    assert read(text).links == read(texts.nvswitch(4)).links


def test_both_halves_must_agree_or_the_weaker_is_taken_when_told():
    text = texts.nvswitch(4)
    lines = text.splitlines()
    lines[2] = lines[2].replace("NV18", "NV12", 1)  # GPU1 to GPU0
    broken = "\n".join(lines)
    message = refused(broken)
    assert message.startswith(f"node.txt: {spot(broken, 3, 'NV12')}: GPU0 to GPU1 is NV18 (line 2, column")
    assert "but GPU1 to GPU0 is NV12; with --repair: taken as NV12, the weaker" in message
    assert any("taken as NV12" in note for note in read(broken, repair=True).notes)


def test_a_tree_that_is_none_is_refused():
    near = {frozenset({"GPU0", "GPU1"}): "PIX", frozenset({"GPU1", "GPU2"}): "PIX"}
    text = texts.smi(texts.gpus(3), lambda a, b: near.get(frozenset({a, b}), "SYS"))
    assert "GPU0 and GPU2 are SYS, but through others they are PIX or nearer" in refused(text)
    assert {switch for _, switch in links(read(text, repair=True))} == {"pcie0"}


def test_links_through_a_switch_that_do_not_fit_are_refused():
    text = texts.smi(texts.gpus(4), lambda a, b: "NV12" if {a, b} == {"GPU0", "GPU1"} else "NV18")
    assert "GPU0 and GPU1 have 12 links between them, though both reach the same switches with 18" in refused(text)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: "\n".join(t.splitlines()[:4]), "has no row for GPU3, though the header names it"),
        (lambda t: t.replace("NV18\t0-15\t0\t\tN/A", "0-15\t0\t\tN/A", 1), "row GPU0 has 3 relations where the header"),
        (lambda t: t.replace("NV18", "NV0", 1), "'NV0' is no relation of GPU0 and GPU1; accepted: X, NV1 to NV99"),
        (lambda t: t.replace(" X ", "NV18", 1), "GPU0 to itself is 'NV18' and not X"),
        (lambda t: t.replace("\tGPU2\t", "\tGPU1\t", 1), "column GPU1 stands twice"),
        (lambda t: t + t.replace("NV18", "NV12"), "holds two tables that differ (lines 1 and 6)"),
        (lambda t: t.replace("NV18\t0-15", "NV18\tNV18\t0-15", 1), "row GPU0 has more relations than the header"),
        (lambda t: t + t.splitlines()[1].replace("NV18", "SYS"), "row GPU0 stands twice (first on line 2)"),
    ],
)  # fmt: skip
def test_torn_and_contradicting_tables_name_the_place(change, problem):
    message = refused(change(texts.nvswitch(4)))
    assert problem in message and "line " in message


def test_a_cut_off_table_is_completed_from_its_other_half_when_told():
    text = "\n".join(texts.nvswitch(4).splitlines()[:4])
    inside = read(text, repair=True)
    assert links(inside) == links(read(texts.nvswitch(4)))
    assert inside.notes[-1].startswith("repaired: line 4: has no row for GPU3")


def test_rocm_hops_tell_direct_links_from_ways_through_others():
    inside = read(texts.ROCM)
    assert sorted(links(inside, "xgmi")) == [("GPU0", "GPU1"), ("GPU0", "GPU2"), ("GPU1", "GPU3"), ("GPU2", "GPU3")]
    assert [one.numa for one in inside.of_kind("device")] == ["0", "0", "1", "1"]


def test_rocm_old_lines_and_pcie_only():
    inside = read(texts.ROCM_PCIE)
    assert links(inside, "xgmi") == {} and len(links(inside, "smp")) == 1
    assert "the table of weight is not there" in inside.notes


def test_amd_smi_names_gpus_by_their_bus():
    buses = ("0000:0c:00.0", "0000:22:00.0", "0000:38:00.0")
    inside = read(texts.AMD)
    assert tuple(one.name for one in inside.of_kind("device")) == buses
    assert links(inside) == {(buses[0], buses[1]): 1, (buses[0], buses[2]): 1, (buses[1], buses[2]): 1}


def test_rocm_refusals():
    assert "has no table 'Link Type" in refused(texts.ROCM.split("=== Link Type")[0])
    swapped = texts.ROCM.replace("GPU1   XGMI         0 ", "GPU1   PCIE         0 ")
    assert "GPU0 to GPU1 is XGMI" in refused(swapped) and "GPU1 to GPU0 is PCIE" in refused(swapped)
    hops = texts.ROCM.replace("GPU0   0            1            1 ", "GPU0   0            0            1 ")
    assert "GPU0 to GPU1 takes 0 hops" in refused(
        hops.replace("GPU1   1            0            2", "GPU1   0            0            2")
    )


def test_npus_are_meshed_and_dies_are_paired():
    assert links(read(texts.NPU)) == {(f"NPU{a}", f"NPU{b}"): 1 for b in range(4) for a in range(b)}
    dies = read(texts.NPU_DIES)
    assert links(dies, "sio") == {("Phy-ID4", "Phy-ID5"): 1, ("Phy-ID6", "Phy-ID7"): 1}
    assert links(dies, "hccs") == {(f"Phy-ID{n}", "hccs-switch"): 1 for n in (4, 5, 6, 7)}


def test_what_npu_smi_does_not_know_is_not_guessed():
    text = texts.NPU.replace("HCCS       144", "NA         144").replace(
        "NPU3       HCCS       HCCS", "NPU3       NA         NA"
    )
    assert "NPU0 and NPU3 are NA: the tool does not know what joins them" in refused(text)


def test_nccl_buses_ports_and_switches():
    inside = read(texts.NCCL)
    assert [(one.name, one.numa, one.hint) for one in inside.of_kind("device")] == [
        ("GPU0", "1", "sm_80 0x10de:0x20b2"), ("GPU1", "0", "sm_80 0x10de:0x20b2"),
    ]  # fmt: skip
    assert links(inside, "nvlink") == {("GPU1", "nvlink-switch0"): 12, ("GPU0", "nvlink-switch0"): 12}
    (nic,) = inside.of_kind("nic")
    assert nic.bytes_per_s is not None and nic.bytes_per_s.value == 25e9
    rates = {(one.a, one.b): one.bytes_per_s.value for one in inside.links if one.kind == "pcie"}
    # 16 GT/s over 8 lanes, 128b/130b; a bridge with one GPU below is the narrower of the two: gen 3.
    assert rates[("mlx5_0", "pcie-0000:10:00.0")] == pytest.approx(16e9 / 8 * 8 * 128 / 130)
    assert rates[("GPU0", "numa1")] == pytest.approx(8e9 / 8 * 16 * 128 / 130)


def test_rccl_links_and_a_nic_without_a_bus():
    inside = read(texts.RCCL)
    assert links(inside, "xgmi") == {("GPU0", "GPU1"): 1, ("GPU0", "GPU2"): 1, ("GPU1", "GPU2"): 1}
    assert ("eth0", "numa0") in links(inside, "pcie") and inside.scale_up_said


def test_fused_ports_and_those_without_a_number_are_no_nics():
    fused = texts.NCCL.replace('name="mlx5_0" dev="0"', 'name="mlx5_0" dev="0" net="0"')
    assert read(fused).of_kind("nic") == []
    assert read(texts.NCCL.replace(' dev="0" speed', " speed")).of_kind("nic") == []


def test_files_of_clouds_say_no_fast_links():
    inside = read(texts.CLOUD)
    assert not inside.scale_up_said
    assert [one.name for one in inside.of_kind("nic")] == ["NIC0", "NIC1"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (texts.GRAPHS, "line 1, column 1: is a graph file of NCCL (the channels it chose), not a topology"),
        (texts.NCCL.replace("0000:c8:00.0", "0000:11:00.0", 1), "line 7, column 11: nvlink of GPU1 (6 links) ends at"),
        (texts.RCCL.replace('15:00.0" count="1"', '15:00.0" count="2"', 1), "GPU0 has 2 xgmi links to GPU1, which has"),
        (texts.RCCL.replace('target="0000:0c', 'target="0000:1e', 1), "GPU0 has 1 xgmi links to GPU1, which has none"),
        (texts.NCCL.replace('speed="200000"', 'speed="200000000"'), "net mlx5_0 has speed 200,000,000 (Mb/s), 125"),
        (texts.NCCL.replace("0000:90", "0000:10"), "busid 0000:10:00.0 stands twice (first on line 4)"),
        (texts.NCCL.replace('"8 GT/s"', '"7 GT/s"'), "link_speed 7 GT/s is no PCIe rate"),
        (texts.NCCL.replace('dev="0" sm', 'dev="1" sm'), "two GPUs have dev 1 (the other on line 6)"),
        (texts.NCCL.replace('numaid="1"', 'numaid="0"'), "numaid 0 stands twice"),
        (texts.NCCL.replace('count="6"', 'count="many"', 1), "count 'many' is not a whole number from 1 to 64"),
        (texts.NCCL.replace("</system>", ""), "is not well-formed XML: no element found"),
        (texts.NCCL.replace("0x030200", "0x010000").replace("<gpu", "<x").replace("</gpu", "</x"), "has no GPU"),
        ("<system><net/></system>", "<net> where <cpu> is expected"),
        ('<system><cpu numaid="0" host_hash="1"/><cpu numaid="1" host_hash="2"/></system>', "holds 2 hosts"),
    ],
)  # fmt: skip
def test_nccl_refusals_name_the_place(text, problem):
    assert problem in refused(text)


def test_nccl_repairs_say_what_was_done():
    fast = texts.NCCL.replace('speed="200000"', 'speed="200000000"')
    inside = read(fast, repair=True)
    assert inside.of_kind("nic")[0].bytes_per_s.value == 25e9
    assert inside.notes == (
        "repaired: line 13: net mlx5_0 has speed 200,000,000 (Mb/s), 125 times the fastest port; "
        "taken as kb/s: 200 Gb/s",
    )


def test_xml_bombs_and_outside_files_are_refused():
    bomb = '<!DOCTYPE s [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ) + "]><system>&i;</system>"  # fmt: skip
    outside = '<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><system>&x;</system>'
    for text in (bomb, outside):
        assert "holds a document type, which are not accepted" in refused(text)
    deep = "<system>" * 100 + "</system>" * 100
    assert "nested more than 64 deep" in refused(deep)


def test_an_unknown_text_lists_the_formats():
    assert "is of no format that is known; known are NCCL topology XML" in refused("hello\n")
