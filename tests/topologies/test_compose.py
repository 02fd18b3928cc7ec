"""Clusters put together from the file of a node and the file of a fabric: levels checked by hand."""

from __future__ import annotations

import node_texts as texts
import pytest

from mapsearch.errors import InputError
from mapsearch.topologies import fabric_of
from mapsearch.topologies.composing import Wishes, composed, imported
from mapsearch.topologies.composing.wishes import rate_of_option, uplink_of
from mapsearch.topologies.importers import read_text
from mapsearch.topologies.importers.base import Between, Block, Inside, Link, Said
from mapsearch.topologies.importers.parts import load_parts, part_of
from mapsearch.topologies.known import PARTS, Part


def node(text: str, *, repair: bool = False) -> tuple[str, Inside]:
    inside = read_text(text, file="node.txt", repair=repair)
    assert isinstance(inside, Inside)
    return "node.txt", inside


def tree(leaves: int = 2, nodes: int = 3, *, rate: float | None = None, **more: object) -> tuple[str, Between]:
    """Leaf switches with nodes, below one spine."""
    names = [f"n{leaf}-{place}" for leaf in range(leaves) for place in range(nodes)]
    said = None if rate is None else Said(rate)
    links = [Link(name, f"leaf{place // nodes}", "network", bytes_per_s=said) for place, name in enumerate(names)]
    links += [Link(f"leaf{leaf}", "spine", "network") for leaf in range(leaves)]
    switches = (*(f"leaf{leaf}" for leaf in range(leaves)), "spine")
    return "fabric.conf", Between("test", tuple(names), switches, tuple(links), **more)  # type: ignore[arg-type]


def levels(inside: str, fabric: tuple[str, Between] | None, **wishes: object) -> list[tuple[str, int, float]]:
    topology, _ = composed(node(inside), fabric, Wishes(**wishes))  # type: ignore[arg-type]
    return [(level.name, level.size, round(level.bytes_per_s / 1e9, 3)) for level in fabric_of(topology).levels]


def refused(inside: str, fabric: tuple[str, Between] | None, **wishes: object) -> str:
    with pytest.raises(InputError) as caught:
        composed(node(inside), fabric, Wishes(**wishes))  # type: ignore[arg-type]
    return str(caught.value)


NVLINK_4 = 18 * 25.0


@pytest.mark.parametrize(
    ("text", "wishes", "expected"),
    [
        (texts.nvswitch(), {"device": "h100"}, [("node", 8, NVLINK_4)]),
        (texts.nvswitch(8, 12), {"device": "a100"}, [("node", 8, 300.0)]),
        (texts.nvswitch(), {"device": "b200"}, [("node", 8, 900.0)]),
        (texts.with_nics(), {"device": "h200"}, [("node", 4, NVLINK_4)]),
        # x16 of generation 4 inside a pair; 10 GB/s between sockets, shared by the two devices of a pair
        (texts.pcie_pairs(), {"device": "a100-pcie"}, [("island", 2, 31.508), ("node", 2, 5.0)]),
        # generation 5 hosts: 22 GB/s between sockets for four devices
        (texts.islands(), {"device": "h200-nvl"}, [("island", 4, NVLINK_4), ("node", 2, 5.5)]),
        (texts.smi(texts.gpus(4), lambda a, b: "NV4"), {"device": "a100"}, [("node", 4, 300.0)]),
        (texts.NPU, {"device": "ascend"}, [("node", 4, 84.0)]),  # three links of 28 GB/s
        # 270 GB/s between the dies of a package and 196 GB/s to the switches are near enough to be one tier
        (texts.NPU_DIES, {"device": "910c"}, [("node", 4, 196.0)]),
        (texts.NCCL, {}, [("node", 2, 300.0)]),  # the PCI id says which A100 it is
        (texts.RCCL, {}, [("node", 3, 128.0)]),  # two xGMI links of 64 GB/s
        (texts.ROCM, {"device": "mi250x"}, [("node", 4, 100.0)]),  # a ring: two links of 50 GB/s
        (texts.CLOUD, {"device": "h100"}, [("node", 2, NVLINK_4)]),
    ],
)
def test_levels_of_one_node(text, wishes, expected):
    assert levels(text, None, **wishes) == expected


def test_a_node_in_a_tree_without_rates():
    assert levels(texts.nvswitch(), tree(), device="h100") == [
        ("node", 8, NVLINK_4), ("leaf", 3, 50.0), ("cluster", 2, 50.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("uplink", "across"),
    [("nonblocking", 50.0), ("4:1", 12.5), ("2.5:1", 20.0), ("400Gb/s", 50.0 / 24), ("1.2 TB/s", 50.0)],
)
def test_links_between_switches_are_as_told(uplink, across):
    """24 devices below a leaf share its way up; no uplink is worth more than what feeds it."""
    found = levels(texts.nvswitch(), tree(), device="h100", uplink=uplink_of(uplink))
    assert found[-1] == ("cluster", 2, pytest.approx(across, abs=1e-3))


def test_nics_of_the_file_and_what_is_left_out():
    topology, notes = composed(node(texts.with_nics()), tree(), Wishes(device="h200"))
    assert [note for note in notes if "mlx5_6 left out" in note]
    assert {one.id.split("/")[1] for one in topology.nodes if one.type == "nic"} == {f"NIC{n}" for n in range(4)}
    assert levels(texts.with_nics(), tree(), device="h200")[1:] == [("leaf", 3, 50.0), ("cluster", 2, 50.0)]


def test_a_nic_that_devices_share_and_a_narrow_way_to_it():
    """200 Gb/s for two GPUs, but its slot lets 8 lanes of generation 4 through and GPU 0 hangs on the other socket."""
    lanes = 16e9 / 8 * 8 * 128 / 130 / 1e9
    topology, notes = composed(node(texts.NCCL), tree(), Wishes())
    assert any("PCIe lets 15.7538 GB/s of the NICs' 25 GB/s through" in note for note in notes)
    assert levels(texts.NCCL, tree())[1] == ("leaf", 3, pytest.approx(lanes / 2, abs=1e-3))
    assert len([one for one in topology.nodes if one.type == "nic"]) == 12


def test_rails_join_the_same_nic_of_every_node():
    links = [Link(f"n{host}", f"rail{rail}", "network", rail=rail) for host in range(4) for rail in range(4)]
    fabric = "ib", Between("test", tuple(f"n{h}" for h in range(4)), tuple(f"rail{r}" for r in range(4)), tuple(links))
    topology, _ = composed(node(texts.with_nics()), fabric, Wishes(device="h200"))
    cables = {(one.a, one.b) for one in topology.links if one.b.startswith("rail")}
    assert cables == {(f"n{host}/NIC{rail}", f"rail{rail}") for host in range(4) for rail in range(4)}
    assert levels(texts.with_nics(), fabric, device="h200") == [("node", 4, NVLINK_4), ("cluster", 4, 50.0)]
    links.append(Link("n0", "rail0", "network", rail=4))
    wrong = "ib", Between("test", fabric[1].nodes, fabric[1].switches, tuple(links))
    assert "n0 has a link on rail 4 (from 0), but its node has 4 NICs" in refused(
        texts.with_nics(), wrong, device="h200"
    )


def test_rates_of_a_fabric_count_more_than_what_a_part_usually_has():
    """One link of 100 GB/s for a node of eight devices is 12.5 GB/s for each, not a NIC of 50 GB/s."""
    assert levels(texts.nvswitch(), tree(rate=100e9), device="h100")[1:] == [("leaf", 3, 12.5), ("cluster", 2, 12.5)]
    assert levels(texts.nvswitch(), tree(rate=4.8e11), device="h100")[1:] == [("leaf", 3, 60.0), ("cluster", 2, 60.0)]


def test_rates_that_two_files_give_differently_are_refused_with_both():
    message = refused(texts.NCCL, tree(rate=50e9))
    assert "the link of n0-0 has 50 GB/s, but its 2 NICs 12.5 GB/s each, 25 GB/s together (file)" in message
    assert "with --repair: taken as 25 GB/s" in message
    assert "gives mlx5_0 25 GB/s, but --nic-rate says 50 GB/s" in refused(
        texts.NCCL, tree(), nic_rate=rate_of_option("400Gb/s", "--nic-rate")
    )


def test_more_links_than_the_part_has_are_refused_with_both_numbers():
    message = refused(texts.nvswitch(), None, device="h800")
    assert "GPU0 has 18 NVLinks (450 GB/s), but H800-SXM5-80GB has 8 (200 GB/s)" in message
    assert levels(texts.nvswitch(), None, device="h800", repair=True) == [("node", 8, 200.0)]


def test_parts_of_a_fabric_are_refused_or_the_largest_kept():
    file, whole = tree(3, 2)
    cut = Between("test", whole.nodes, whole.switches, tuple(one for one in whole.links if one.a != "leaf2"))
    message = refused(texts.nvswitch(), (file, cut), device="h100")
    assert "falls into 2 parts that no switch joins: spine with 4 nodes; leaf2 with 2 nodes" in message
    found = levels(texts.nvswitch(), (file, cut), device="h100", repair=True)
    assert [size for _, size, _ in found] == [8, 2, 2]


def test_blocks_share_the_fast_links_of_parts_that_reach_beyond_a_node():
    file, fabric = tree(2, 18, blocks=(
        Block("r0", tuple(f"n0-{n}" for n in range(18))), Block("r1", tuple(f"n1-{n}" for n in range(18))),
    ))  # fmt: skip
    small = texts.nvswitch(4)
    assert levels(small, (file, fabric), device="gb200") == [("block", 72, 900.0), ("cluster", 2, 50.0)]
    assert levels(small, (file, fabric), device="h100")[0] == ("node", 4, NVLINK_4)
    assert "block r0 has 144 devices, but the fast links of GB200 reach 72" in refused(
        texts.nvswitch(), (file, fabric), device="gb200"
    )


def test_named_units_and_flat_lists_become_switches():
    nodes = tuple(f"n{n}" for n in range(8))
    labels = {name: f"b{place // 4}/r{place // 2}" for place, name in enumerate(nodes)}
    units = "labels", Between("test", nodes, (), (), labels=labels)
    assert [size for _, size, _ in levels(texts.nvswitch(), units, device="h100")] == [8, 2, 2, 2]
    flat = "flat", Between("test", nodes, (), ())
    assert levels(texts.nvswitch(), flat, device="h100") == [("node", 8, NVLINK_4), ("cluster", 8, 50.0)]


def test_nodes_that_are_down_are_down_with_all_their_devices():
    topology, _ = composed(node(texts.nvswitch()), tree(down=("n0-1",)), Wishes(device="h100"))
    assert topology.down == [f"n0-1/GPU{place}" for place in range(8)]
    assert fabric_of(topology).devices == 32


def test_levels_say_the_same_as_the_graph():
    graph, _ = composed(node(texts.nvswitch()), tree(), Wishes(device="h100", form="graph"))
    short, _ = composed(node(texts.nvswitch()), tree(), Wishes(device="h100", form="levels"))
    assert graph.nodes and not graph.levels and short.levels and not short.nodes
    assert fabric_of(graph).levels == fabric_of(short).levels
    assert short.levels[1].sources["bandwidth"].startswith("assumed: non-blocking")


def test_large_regular_clusters_are_levels_and_irregular_ones_are_not():
    topology, _ = composed(node(texts.nvswitch()), tree(8, 32), Wishes(device="h100"))
    assert [level.size for level in topology.levels] == [8, 32, 8]
    file, fabric = tree(8, 32)
    odd = Between("test", fabric.nodes[:-1], fabric.switches, tuple(one for one in fabric.links if one.a != "n7-31"))
    topology, _ = composed(node(texts.nvswitch()), (file, odd), Wishes(device="h100"))
    assert topology.nodes and topology.device_count == 2040
    assert "is not regular, so levels cannot say what it is" in refused(
        texts.nvswitch(), (file, odd), device="h100", form="levels"
    )


@pytest.mark.parametrize(
    ("text", "wishes", "problem"),
    [
        (texts.nvswitch(), {}, "does not say what its devices are; name it with --device: v100"),
        (texts.nvswitch(), {"device": "h10"}, "'h10' is no known device (did you mean 'h100'?)"),
        (texts.NCCL, {"device": "h100"}, "says 0x10de:0x20b2 or sm_80, which is no H100-SXM5-80GB; --device a100"),
        (texts.ROCM, {"device": "h100"}, "has xgmi links, whose bandwidth is not known for H100-SXM5-80GB"),
        (texts.pcie_pairs(), {"device": "asic"}, "does not say the PCIe rate, and it is not known for ASIC"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_asked_for(text, wishes, problem):
    assert problem in refused(text, None, **wishes)


def test_nic_rates_that_nothing_says_are_asked_for():
    assert "lists no NICs, and what goes with A100-PCIE-80GB is not known; give --nic-rate" in refused(
        texts.pcie_pairs(), tree(), device="a100-pcie"
    )
    two_for_four = texts.smi([*texts.gpus(4), "NIC0", "NIC1"], lambda a, b: "NV18" if {a[0], b[0]} == {"G"} else "NODE")
    assert "does not say the rate of its 2 NICs (4 devices)" in refused(two_for_four, tree(), device="h200")
    found = levels(two_for_four, tree(), device="h200", nic_rate=rate_of_option("400Gb/s", "--nic-rate"))
    assert found[1] == ("leaf", 3, 25.0)


def test_one_device_alone_is_a_level_of_one():
    topology, _ = composed(node(texts.smi(["GPU0", "NIC0"], lambda a, b: "NODE")), None, Wishes(device="h100"))
    assert [(level.name, level.size) for level in topology.levels] == [("node", 1)]


def test_files_that_make_no_cluster_together():
    with pytest.raises(InputError, match="says how nodes are joined and nothing of what is in them"):
        imported([tree()], Wishes(device="h100"))
    with pytest.raises(InputError, match="one cluster is one file, or one node and one fabric"):
        imported([node(texts.nvswitch()), node(texts.NPU)], Wishes(device="h100"))
    topology, _ = imported([tree(), node(texts.nvswitch())], Wishes(device="h100"))
    assert topology.device_count == 48


def test_the_table_of_parts_goes_with_the_datasheets_that_warnings_use():
    """Two tables, one truth: fast links and ports per device are those of `known.PARTS`, where both know a part."""
    import re

    checked = 0
    for part in load_parts().devices:
        known: Part | None = next((one for one in PARTS if re.search(one.pattern, part.name)), None)
        spec = part.spec()
        assert spec.sources.get("hbm") and spec.sources.get("peak")
        assert all(field in part.sources for field in ("nvlink", "xgmi", "hccs", "sio", "nic") if getattr(part, field))
        if known is None or "PCIE" in part.name or "NVL-" in part.name:
            continue
        if part.nvlink and part.most_links:
            assert part.nvlink * part.most_links == known.scale_up * 1e9, part.name
            checked += 1
    assert checked >= 10


@pytest.mark.parametrize(
    ("cpu", "gigabytes"),
    [("GenuineIntel 6 79", 6), ("GenuineIntel 6 85", 10), ("GenuineIntel 6 106", 10), ("GenuineIntel 6 143", 22),
     ("GenuineIntel 6 207", 40), ("GenuineIntel 6 173", 40), ("AuthenticAMD 143 49", 16), ("AuthenticAMD 175 1", 24),
     ("AuthenticAMD 25 17", 24), ("AuthenticAMD 26 2", 32), ("gen5", 22), ("gen3", 10)],
)  # fmt: skip
def test_links_between_sockets_are_as_nccl_has_them(cpu, gigabytes):
    assert load_parts().smp_rate(cpu).value == gigabytes * 1e9


def test_every_name_of_a_part_is_its_own_and_finds_it():
    names = [name for part in load_parts().devices for name in part.called()]
    assert len(names) == len(set(names))
    for part in load_parts().devices:
        assert part_of(part.name.upper(), None, file="x") == part
