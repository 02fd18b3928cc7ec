"""Output of ibnetdiscover: an own look-alike of two hosts, two rails, two leaves and a spine."""

from __future__ import annotations

from itertools import product

import pytest

from mapsearch.errors import InputError
from mapsearch.topologies.importers import ibnetdiscover, importer_of
from mapsearch.topologies.importers.base import Between

LEAF = "S-00000000000000a{0}"
SPINE = "S-00000000000000c1"
CA = "H-000000000000{0}00{1}"


def fabric_text(*, speed: str = "4xNDR", uplink: str = "4xNDR") -> str:
    """Adapter r of host h on leaf r, two cables from each leaf to the spine."""
    lines = ["#", "# Topology file: generated on Mon Jun  1 00:00:00 2026", "#", ""]
    for rail in (1, 2):
        leaf = LEAF.format(rail)
        lines += ["vendid=0x2c9", f"switchguid=0xa{rail}(a{rail})"]
        lines.append(f'Switch\t65 "{leaf}"\t\t# "MF0;leaf{rail}:MQM9700/U1" enhanced port 0 lid {rail} lmc 0')
        for host in (1, 2):
            adapter = f'"{CA.format(host, rail)}"[1](b{host}{rail})'
            lines.append(f'[{host}]\t{adapter} \t\t# "node{host} mlx5_{rail}" lid 9 {speed}')
        lines += [
            f'[{30 + up}]\t"{SPINE}"[{2 * rail + up}]\t\t# "MF0;spine:MQM9700/U1" lid 7 {uplink}' for up in (1, 2)
        ]
        lines.append("")
    lines += ["switchguid=0xc1(c1)", f'Switch\t65 "{SPINE}"\t\t# "MF0;spine:MQM9700/U1" enhanced port 0 lid 7 lmc 0']
    for rail, up in product((1, 2), (1, 2)):
        peer = f'"{LEAF.format(rail)}"[{30 + up}]'
        lines.append(f'[{2 * rail + up}]\t{peer}\t\t# "MF0;leaf{rail}:MQM9700/U1" lid 1 {uplink}')
    for host, rail in product((1, 2), (1, 2)):
        peer = f'"{LEAF.format(rail)}"[{host}]'
        lines += ["", "vendid=0x2c9", f"caguid=0x{host}00{rail}"]
        lines.append(f'Ca\t1 "{CA.format(host, rail)}"\t\t# "node{host} mlx5_{rail}"')
        lines.append(f'[1](b{host}{rail}) \t{peer}\t\t# lid 9 lmc 0 "MF0;leaf{rail}:MQM9700/U1" lid 1 {speed}')
    return "\n".join(lines) + "\n"


TEXT = fabric_text()


def read(text: str, *, repair: bool = False) -> Between:
    return ibnetdiscover.read(text, file="ib.txt", repair=repair)


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(text)
    return str(caught.value)


def test_cables_rates_and_rails() -> None:
    fabric = read(fabric_text())
    assert fabric.nodes == ("node1", "node2")
    assert fabric.switches == ("leaf1", "leaf2", "spine")
    found = {(link.a, link.b, link.count, link.rail) for link in fabric.links}
    assert found == {
        ("node1", "leaf1", 1, 0), ("node2", "leaf1", 1, 0), ("node1", "leaf2", 1, 1), ("node2", "leaf2", 1, 1),
        ("leaf1", "spine", 2, None), ("leaf2", "spine", 2, None),
    }  # fmt: skip
    assert {link.bytes_per_s.value for link in fabric.links if link.bytes_per_s} == {50e9}
    assert {link.bytes_per_s.source for link in fabric.links if link.bytes_per_s} == {"file: 4xNDR"}
    assert fabric.notes == ("rails are the adapters of a host in the order of their names: mlx5_1, mlx5_2",)


@pytest.mark.parametrize(
    ("rate", "bytes_per_s"),
    [("4xSDR", 1e9), ("4xQDR", 4e9), ("4xEDR", 12.5e9), ("4xHDR", 25e9), ("2xHDR", 12.5e9), ("4xXDR", 100e9)],
)
def test_rates(rate: str, bytes_per_s: float) -> None:
    links = read(fabric_text(speed=rate, uplink=rate)).links
    assert {link.bytes_per_s.value for link in links if link.bytes_per_s} == {bytes_per_s}


def test_unknown_and_mixed_rates_are_noted() -> None:
    assert "6 links have no known rate" in read(fabric_text(speed="", uplink="4x???")).notes
    notes = read(fabric_text(uplink="4xHDR")).notes
    assert notes[0] == "links of several rates: 4xNDR 4 x, 4xHDR 2 x; slower ones may be degraded"


def test_a_missing_adapter_does_not_shift_the_rails() -> None:
    text = fabric_text()
    lost = CA.format(2, 1)
    kept = [line for line in text.splitlines() if lost not in line and "(b21)" not in line]
    fabric = read("\n".join(kept))
    assert {(link.a, link.rail) for link in fabric.links if link.rail is not None} == {
        ("node1", 0), ("node1", 1), ("node2", 1),
    }  # fmt: skip
    assert "uneven: hosts have 1 to 2 adapters" in fabric.notes


def test_several_planes_are_read_as_one() -> None:
    text = fabric_text()
    assert read(text + ibnetdiscover.JOINED_WITH + text) == read(text)


def test_aggregation_nodes_and_nameless_adapters() -> None:
    sharp = '"Mellanox Technologies Aggregation Node"'
    there = f'[41]\t"H-00000000000000d1"[1](d1)\t# {sharp} lid 1 4xHDR\n[3]\t"S-00000000000000a1"'
    text = fabric_text().replace('[3]\t"S-00000000000000a1"', there)
    text += f'\nCa\t1 "H-00000000000000d1"\t# {sharp}\n[1](d1)\t"{SPINE}"[41]\t# lid 1 lmc 0 "MF0;spine" lid 7 4xHDR\n'
    fabric = read(text.replace('"node2 mlx5_2"', '"ConnectX7"'))
    assert fabric.nodes == ("node1", "node2", CA.format(2, 2))
    assert any(note.startswith("1 aggregation nodes") for note in fabric.notes)
    assert "1 adapters name no host in their description; each is taken as a node" in fabric.notes


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('[1]\t"H-0000000000001001"[1]', '[1]\t"H-0000000000001001"[2]', "1001[2], which no record shows"),
        ("lid 9 lmc 0 \"MF0;leaf1:MQM9700/U1\" lid 1 4xNDR", "lid 9 lmc 0 \"MF0;leaf1:MQM9700/U1\" lid 1 1xNDR",
         "the ends of a cable run at 4xNDR and 1xNDR"),
        ("Ca\t1", "garbage\nCa\t1", "'garbage' is no line of ibnetdiscover"),
        ("[31]\t\"S-00000000000000c1\"[3]", "[31\t\"S-00000000000000c1\"[3]", "is no line of a port"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_or_repaired(old: str, new: str, words: str) -> None:
    text = fabric_text()
    assert old in text
    broken = text.replace(old, new, 1)
    message = refusal(broken)
    assert words in message and message.startswith("ib.txt: line ") and "with --repair" in message
    assert read(broken, repair=True).notes[0].startswith("repaired: line ")


def test_slower_end_is_taken_when_repaired() -> None:
    text = fabric_text().replace('"MF0;leaf1:MQM9700/U1" lid 1 4xNDR', '"MF0;leaf1:MQM9700/U1" lid 1 1xNDR', 1)
    links = read(text, repair=True).links
    slow = [(link.a, link.b, link.count) for link in links if link.bytes_per_s and link.bytes_per_s.value == 12.5e9]
    # The first such line is the spine's, of one of the two cables to leaf1; 1xNDR is 12.5 GB/s.
    assert slow == [("leaf1", "spine", 1)]


def test_a_port_beyond_the_count_is_refused() -> None:
    assert "port 66 of S-00000000000000a1, which has 65 ports" in refusal(fabric_text().replace("[31]\t", "[66]\t", 1))


def test_without_hosts_it_is_refused() -> None:
    assert "no adapters of hosts" in refusal('Switch\t4 "S-0000000000000001"\t# "MF0;a:B/U1" base port 0 lid 1 lmc 0\n')


def test_format_is_known() -> None:
    assert importer_of(fabric_text(), "ib.txt") is ibnetdiscover
