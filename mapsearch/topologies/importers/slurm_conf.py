"""Slurm's topology.conf: switches of topology/tree, blocks of topology/block, rings of topology/ring.

Contents: FORMAT, detect, read.

Lines of KEY=VALUE, keys in any case, `#` begins a comment, a backslash at the end of a line goes on in the next:

    SwitchName=leaf1 Nodes=node[001-016,020]
    SwitchName=spine Switches=leaf[1-8] LinkSpeed=400
    BlockName=rack1 Nodes=gb[01-18]
    BlockSizes=18,72

Text of `scontrol show topology` is read as well: its upper switches repeat their nodes, which `Level=` tells.
What it does not say: bandwidths (LinkSpeed has no unit and Slurm does not use it), NICs, devices.

Source: topology.conf(5) of Slurm 26.05; a line is taken apart as in Slurm's src/common/parse_config.c.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from mapsearch.errors import listed, near_miss
from mapsearch.topologies.importers.base import Between, Block, Link, Repairs, fault
from mapsearch.topologies.importers.evenness import block_notes, part_notes
from mapsearch.topologies.importers.hostlist import HostLists, Listed
from mapsearch.topologies.importers.slurm_tree import (
    BlockEntry,
    SwitchEntry,
    Tree,
    block_labels,
    blocks_of,
    checked_sizes,
    ring_links,
    tree_notes,
    tree_of,
)

FORMAT = "slurm topology.conf"
KEYS = {
    "switchname": "SwitchName",
    "switches": "Switches",
    "nodes": "Nodes",
    "linkspeed": "LinkSpeed",
    "level": "Level",
    "blockname": "BlockName",
    "blockindex": "BlockIndex",
    "blocksize": "BlockSize",
    "aggregatedblock": "AggregatedBlock",
    "blocksizes": "BlockSizes",
    "ringname": "RingName",
}
_HEADS = ("switchname", "blockname", "ringname", "aggregatedblock", "blocksizes")
_SIGN = re.compile(r"^[ \t]*(?:SwitchName|BlockName|BlockSizes|RingName)[ \t]*=", re.IGNORECASE | re.MULTILINE)
_PAIR = re.compile(r"([A-Za-z_]+)[ \t]*=[ \t]*(?:\"([^\"]*)\"|([^\s\"]+))(?=\s|$)")
_BLANKS = re.compile(r"\s*")
_GUID = re.compile(r"0x[0-9a-fA-F]{8,16}")


def detect(text: str, name: str) -> bool:
    """A line that begins with SwitchName=, BlockName=, BlockSizes= or RingName=."""
    return _SIGN.search(text) is not None


def read(text: str, *, file: str, repair: bool = False) -> Between:
    """The fabric of a topology.conf. Raises InputError with line and column."""
    repairs = Repairs(file, repair)
    lists = HostLists(repairs)
    conf = _Conf(repairs)
    for line in _lines(text):
        conf.take(line)
    tree = tree_of(conf.switches, lists)
    blocks = blocks_of(conf.blocks, lists)
    sizes = checked_sizes(conf.sizes, len(blocks), repairs, *conf.sizes_at) if conf.sizes else []
    rings = blocks_of(conf.rings, lists, "ring")
    return between(FORMAT, tree, blocks, sizes, rings, ring_links(rings), repairs, conf.notes())


def between(
    format_: str,
    tree: Tree,
    blocks: list[Block],
    sizes: list[int],
    grids: Sequence[Block],
    grid_links: Sequence[Link],
    repairs: Repairs,
    notes: list[str],
) -> Between:
    """Switches, blocks and grids (rings, tori) as one fabric, with what to know of it. Raises InputError: no nodes."""
    placed = tree.node_names()
    nodes = dict.fromkeys([*placed, *(node for part in [*grids, *blocks] for node in part.nodes)])
    if not nodes:
        raise fault("names no nodes; lines such as SwitchName=s1 Nodes=node[1-8] do", file=repairs.file)
    ports = sum(_GUID.fullmatch(node) is not None for node in nodes)
    if ports * 2 > len(nodes):
        repairs.mend(
            f"names {ports:,} nodes by GUIDs of ports, and does not say which ports are of one host "
            "(ibnetdiscover does)",
            "each taken as a node",
        )
    links = [*tree.links(), *grid_links]
    connected = {end for link in links for end in (link.a, link.b)}
    loose = sum(node not in connected for node in nodes)
    notes = [*repairs.notes, *notes, *tree_notes(tree), *part_notes(list(nodes), list(tree.children), links)]
    notes += block_notes(blocks, sizes[0] if sizes else None)
    if not links:
        notes.append("says which nodes form a block, not what joins the blocks")
    elif loose and blocks:
        notes.append(f"{loose:,} of {len(nodes):,} nodes are in a block but under no switch")
    return Between(
        format=format_,
        nodes=tuple(nodes),
        switches=tuple(tree.children),
        links=tuple(links),
        blocks=tuple(blocks),
        labels={} if links or not blocks else block_labels(blocks, sizes),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Line:
    """A line with its continuations put together, and where its parts stand."""

    text: str
    starts: list[int]
    rows: list[int]

    def where(self, offset: int) -> tuple[int, int]:
        part = bisect_right(self.starts, offset) - 1
        return self.rows[part], offset - self.starts[part] + 1

    def listed(self, start: int, text: str) -> Listed:
        return Listed(text, lambda offset: self.where(start + offset))


def _lines(text: str) -> list[_Line]:
    lines = []
    parts: list[str] = []
    starts: list[int] = []
    rows: list[int] = []
    length = 0
    for row, physical in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        bare = physical.split("#", 1)[0].rstrip()
        goes_on = bare.endswith("\\")
        bare = bare.removesuffix("\\")
        parts.append(bare)
        starts.append(length)
        rows.append(row)
        length += len(bare)
        if not goes_on:
            if length:
                lines.append(_Line("".join(parts), starts, rows))
            parts, starts, rows, length = [], [], [], 0
    if length:
        lines.append(_Line("".join(parts), starts, rows))
    return lines


@dataclass
class _Conf:
    """What the lines of a file say, before anything is written out."""

    repairs: Repairs
    switches: list[SwitchEntry] = field(default_factory=list)
    blocks: list[BlockEntry] = field(default_factory=list)
    rings: list[BlockEntry] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    sizes_at: tuple[int, int] = (0, 0)
    speeds: set[int] = field(default_factory=set)

    def take(self, line: _Line) -> None:
        """One line. Raises InputError."""
        pairs = self._pairs(line)
        if not pairs:
            return
        head = next((key for key in _HEADS if key in pairs), None)
        row, column = line.where(_BLANKS.match(line.text).end())  # type: ignore[union-attr]
        if head is None:
            problem = f"a line must say {listed(KEYS[key] for key in _HEADS[:3])} or {KEYS['blocksizes']}"
            raise fault(f"{problem}; this one has {listed(KEYS[key] for key in pairs)}", file=self.repairs.file,
                        line=row, column=column)  # fmt: skip
        if head == "aggregatedblock":
            return
        if head == "blocksizes":
            self._take_sizes(pairs[head])
            return
        name = pairs[head].text
        nodes = pairs.get("nodes")
        if head == "switchname":
            if "[" in name or "," in name:
                raise fault(f"{name[:40]} is a list; SwitchName is the name of one switch", file=self.repairs.file,
                            line=row, column=column)  # fmt: skip
            below = pairs.get("switches")
            if below and nodes and "level" in pairs:
                nodes = None
            self.switches.append(SwitchEntry(name, row, column, switches=below, nodes=nodes))
            self._take_speed(pairs.get("linkspeed"))
        else:
            (self.blocks if head == "blockname" else self.rings).append(BlockEntry(name, row, column, nodes))

    def _pairs(self, line: _Line) -> dict[str, Listed]:
        pairs: dict[str, Listed] = {}
        at = _BLANKS.match(line.text).end()  # type: ignore[union-attr]
        while at < len(line.text):
            match = _PAIR.match(line.text, at)
            row, column = line.where(at)
            if match is None:
                word = line.text[at:].split(None, 1)[0]
                hint = "; paste the text of that file in its place" if word.lower() == "include" else ""
                raise fault(f"{word[:40]!r} is not KEY=VALUE{hint}", file=self.repairs.file, line=row, column=column)
            key = match.group(1).lower()
            if key not in KEYS:
                near = near_miss(match.group(1), KEYS.values())
                self.repairs.mend(f"unknown key {match.group(1)[:40]}{near}", "left out", line=row, column=column)
            elif key in pairs:
                self.repairs.mend(f"{KEYS[key]} stands twice in a line", "the first kept", line=row, column=column)
            else:
                group = 2 if match.group(2) is not None else 3
                pairs[key] = line.listed(match.start(group), match.group(group))
            at = _BLANKS.match(line.text, match.end()).end()  # type: ignore[union-attr]
        return pairs

    def _take_sizes(self, value: Listed) -> None:
        row, column = value.where(0)
        if self.sizes:
            self.repairs.mend("BlockSizes stands twice", "the first kept", line=row, column=column)
            return
        words = value.text.split(",")
        if not all(re.fullmatch(r"-?\d{1,9}", word.strip(), re.ASCII) for word in words):
            raise fault(f"{value.text[:40]!r} is not a list of whole numbers", file=self.repairs.file,
                        line=row, column=column)  # fmt: skip
        self.sizes = [int(word) for word in words]
        self.sizes_at = (row, column)

    def _take_speed(self, value: Listed | None) -> None:
        if value is None:
            return
        if re.fullmatch(r"\d{1,18}", value.text, re.ASCII):
            self.speeds.add(int(value.text))
        else:
            row, column = value.where(0)
            what = f"LinkSpeed {value.text[:40]!r} is no whole number"
            self.repairs.mend(what, "left out", line=row, column=column)

    def notes(self) -> list[str]:
        """What the file says that cannot be used."""
        if not self.speeds - {1}:
            return []
        speeds = sorted(self.speeds)
        shown = listed(f"{speed:,}" for speed in speeds[:4]) + (" and others" if len(speeds) > 4 else "")
        return [f"LinkSpeed ({shown}) has no unit in Slurm and is not taken as a bandwidth"]
