"""What every importer of a topology file speaks: the inside of one node, a fabric between nodes, or a whole cluster.

Contents: Said, Vertex, Link, Inside, Block, Between, Whole, Imported, Importer, Repairs, fault, without_ansi,
MAX_NODES, MAX_LINKS.

An importer says what its file says and nothing more: a rate that the file does not name is None. What is missing is
filled in afterwards from the table of known parts (`parts.py`) or from the command line, with its source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from mapsearch.errors import InputError

MAX_NODES = 2**17
"""Hosts that one file may name: ranges such as node[1-999999999] are refused before they are written out."""
MAX_LINKS = 2**21
MOST_REPAIRS = 40
"""Notes of repairs; a file that needs more is not listed line by line."""
IN_FILE = "file"
"""The source of a number that stands in the imported file itself."""
VertexKind = Literal["device", "nic", "switch", "host"]
LinkKind = Literal["nvlink", "xgmi", "hccs", "sio", "pcie", "smp", "network"]
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


@dataclass(frozen=True)
class Said:
    """A number in SI units and where it came from: `file`, `command line`, or `datasheet: ...`, `assumed: ...`."""

    value: float
    source: str = IN_FILE


@dataclass(frozen=True)
class Vertex:
    """A part inside one node: a device, a NIC, or a switch (NVSwitch, PCIe switch, root complex of a CPU)."""

    name: str
    kind: VertexKind
    numa: str = ""
    hint: str = ""
    """What the file says of the part's type, such as `sm_90`, `gfx942`, `mlx5_0`."""
    bytes_per_s: Said | None = None
    """Of a NIC: its port, one way."""


@dataclass(frozen=True)
class Link:
    """A full-duplex link; ends are names of vertices (inside a node) or of nodes and switches (between nodes)."""

    a: str
    b: str
    kind: LinkKind
    count: int = 1
    """Parallel links alike."""
    bytes_per_s: Said | None = None
    """Of one of them, one way; None when the file does not say."""
    latency_s: Said | None = None
    rail: int | None = None
    """Between nodes: the NIC of the node that this link belongs to, counted from 0; None when the file does not say."""


@dataclass(frozen=True)
class Inside:
    """The inside of one node (host)."""

    format: str
    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
    scale_up_said: bool = True
    """False when the format leaves out NVLink and its like (NCCL files that only list PCI)."""
    notes: tuple[str, ...] = ()

    def of_kind(self, kind: VertexKind) -> list[Vertex]:
        """Vertices of one kind, in the order of the file."""
        return [vertex for vertex in self.vertices if vertex.kind == kind]


@dataclass(frozen=True)
class Block:
    """Nodes that belong together by a tighter fabric than the network: an NVL72 rack, a Slurm block."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Between:
    """A fabric between nodes: names of nodes, switches and the links that join them."""

    format: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    """Of kind `network`. With no rate and no rail, a link of a node stands for all of its NICs."""
    blocks: tuple[Block, ...] = ()
    down: tuple[str, ...] = ()
    """Nodes and switches that the file itself marks as down or drained."""
    labels: dict[str, str] = field(default_factory=dict)
    """Where a node sits, outermost first (`block0/rack1`), when the file names units in the place of switches."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whole:
    """A whole cluster: the document of a topology (docs/reference/topology.md), `device` left out when not said."""

    format: str
    document: dict[str, Any]
    notes: tuple[str, ...] = ()


Imported = Inside | Between | Whole


class Importer(Protocol):
    """One file of this package: FORMAT (as users call it), `detect` and `read`.

    A module may also have `JOINED_WITH`: several files of its format are then read as one text, joined with it.
    """

    FORMAT: str

    def detect(self, text: str, name: str) -> bool:
        """Whether the text is of this format: quick, never raises; `name` is the file's name."""
        ...

    def read(self, text: str, *, file: str, repair: bool = False) -> Imported:
        """What the text says. Raises InputError with line and column."""
        ...


def fault(problem: str, *, file: str, line: int = 0, column: int = 0) -> InputError:
    """An error that names the file, the line and the column (both from 1; 0 when there is none)."""
    where = f"line {line}" + (f", column {column}" if column else "") if line else None
    return InputError(problem, file=file, field=where)


@dataclass
class Repairs:
    """What is wrong with a file but could be mended: refused, or done and noted when the user said `--repair`."""

    file: str
    allowed: bool
    notes: list[str] = field(default_factory=list)

    def mend(self, problem: str, done: str, *, line: int = 0, column: int = 0) -> None:
        """Refuse with the problem, or note what was done about it. `done`: in the past tense, `taken as 400 Gb/s`."""
        if not self.allowed:
            raise fault(f"{problem}; with --repair: {done}", file=self.file, line=line, column=column)
        where = f"line {line}: " if line else ""
        if len(self.notes) < MOST_REPAIRS:
            self.notes.append(f"repaired: {where}{problem}; {done}")
        elif len(self.notes) == MOST_REPAIRS:
            self.notes.append("repaired: more of this kind, not listed")


def without_ansi(text: str) -> str:
    """The text without terminal escape sequences (underlined headers, colours)."""
    return _ANSI.sub("", text)
