"""`nvidia-smi topo -m`: what joins the GPUs and NICs of one node, pair by pair.

Contents: FORMAT, detect, read.

Format and words: `nvidia-smi topo -m` prints its own legend. A log around the table, terminal colours, wrapped rows
and affinities that ran together are read as they are; a table that is torn or contradicts itself is refused.
"""

from __future__ import annotations

import re

from mapsearch.topologies.importers.base import Inside, Repairs, fault, without_ansi
from mapsearch.topologies.importers.matrix import Matrix, Word, read_matrix
from mapsearch.topologies.importers.relations import NEARNESS, Part, Relation, inside_of, settled

FORMAT = "nvidia-smi topo -m"
_GPU = re.compile(r"GPU\d{1,4}$")
_COLUMN = re.compile(r"(?:GPU\d{1,4}|NIC\d{1,4}|(?:mlx|bnxt|irdma|hns|roce|ib|rdmap|efa|ens|eth|qib|hfi)[\w.:\-]*)$")
_FAST = re.compile(r"NV([1-9]\d?)$")
_OLD = {"SOC": "SYS"}
"""Words of drivers before 2017."""
_NIC = re.compile(r"\s*(NIC\d{1,4}):\s*(\S+)\s*$")
_ACCEPTED = "X, NV1 to NV99, PIX, PXB, PHB, NODE or SYS"
_RANGES = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")


def detect(text: str, name: str) -> bool:
    """Whether a table of GPUs stands in the text."""
    del name
    return _first(without_ansi(text).splitlines(), 4096) is not None


def read(text: str, *, file: str, repair: bool = False) -> Inside:
    """The inside of the node that the table is of. Raises InputError with line and column."""
    lines = without_ansi(text).splitlines()
    repairs = Repairs(file, repair)
    first = _first(lines, len(lines))
    if first is None:
        raise fault("has no table of nvidia-smi topo -m (a line that begins with GPU0)", file=file)
    table = _table(lines, first, repairs)
    _refuse_second(lines, table, repairs)
    relation = {pair: _relation(word.text) for pair, word in table.cells.items() if word.text and word.text != "X"}
    pairs = settled(table.cells, table.names, relation, repairs, selves=frozenset({"X"}))
    legend, notes = _legend(lines, table), []
    parts = []
    for name in table.names:
        numa, remark = _numa(table.tails.get(name, []), name)
        notes += remark
        nic = _GPU.match(name) is None
        parts.append(Part(name, "nic" if nic else "device", numa, legend.get(name, name if nic else "")))
    return inside_of(FORMAT, parts, pairs, repairs, line=table.line, notes=notes)


def _first(lines: list[str], most: int) -> int | None:
    """The line of the header, from 1: it begins with a GPU that is followed by another column's name."""
    for number, line in enumerate(lines[:most], start=1):
        if "GPU" not in line:
            continue
        words = line.split()
        if _GPU.match(words[0]) and (len(words) == 1 or _COLUMN.match(words[1]) or words[1] in ("CPU", "NUMA")):
            return number
    return None


def _table(lines: list[str], first: int, repairs: Repairs) -> Matrix:
    return read_matrix(
        lines,
        first,
        is_name=lambda word: _COLUMN.match(word) is not None,
        is_cell=lambda word: word == "X" or word in NEARNESS or word in _OLD or _FAST.match(word) is not None,
        accepted=_ACCEPTED,
        repairs=repairs,
    )


def _relation(word: str) -> Relation:
    fast = _FAST.match(word)
    if fast:
        return Relation(fast="nvlink", count=int(fast.group(1)))
    return Relation(nearness=NEARNESS[_OLD.get(word, word)])


def _refuse_second(lines: list[str], table: Matrix, repairs: Repairs) -> None:
    """One file, one node: a second table must say the same."""
    rest = _first(lines[table.end - 1 :], len(lines))
    if rest is None:
        return
    line = rest + table.end - 1
    other = _table(lines, line, repairs)
    same = {pair: word.text for pair, word in other.cells.items()} == {
        pair: word.text for pair, word in table.cells.items()
    }
    if not same:
        repairs.mend(
            f"holds two tables that differ (lines {table.line} and {line}); one file is one node",
            "the first counts",
            line=line,
            column=1,
        )


def _legend(lines: list[str], table: Matrix) -> dict[str, str]:
    """Names of the NICs as the system calls them."""
    found = (_NIC.match(line) for line in lines[table.end - 1 :])
    return {match.group(1): match.group(2) for match in found if match}


def _numa(tail: list[Word], name: str) -> tuple[str, list[str]]:
    """The NUMA node of a row from what follows its relations, and a note where that had to be taken apart.

    The columns are CPU affinity, NUMA affinity and (newer drivers) the GPU's own NUMA node, `N/A` where there is none.
    """
    words = [word.text for word in tail if _RANGES.match(word.text)]
    if len(words) >= 2:
        return words[1], []
    if len(words) == 1 and "-" in words[0]:
        cpus = _parted(words[0])
        if cpus:
            return cpus[1], [f"{name}: {words[0]} is read as CPUs {cpus[0]} and NUMA node {cpus[1]}, run together"]
    return "", []


def _parted(word: str) -> tuple[str, str] | None:
    """CPU list and NUMA node that ran together (`0-45,92-1370`); None unless only one way of parting them is even.

    Hyper-threads come in ranges of equal length: 0-45 and 92-137, so the node is 0.
    """
    ranges = [[int(part) for part in one.split("-")] for one in word.split(",") if len(one) < 20]
    if len(ranges) < 2 or any(len(one) != 2 for one in ranges):
        return None
    length = ranges[0][1] - ranges[0][0]
    low = str(ranges[-1][0])
    last = word.rpartition("-")[2]
    ways = [
        (word[: len(word) - len(last) + cut], last[cut:])
        for cut in range(1, len(last))
        if int(last[:cut]) - int(low) == length
    ]
    return ways[0] if len(ways) == 1 else None
