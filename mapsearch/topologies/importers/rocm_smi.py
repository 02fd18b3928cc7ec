"""`rocm-smi --showtopo` and `amd-smi topology`: weights, hops and link types between the AMD GPUs of one node.

Contents: FORMAT, detect, read.

Releases differ in how they write a GPU's NUMA node (`GPU 0 :`, `GPU[0] :`), in which tables they print, and in names
(`GPU0`, or the bus); the table of link types is needed, the others sharpen it. How many xGMI links run
side by side is in none of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from mapsearch.topologies.importers.base import Inside, Repairs, fault, without_ansi
from mapsearch.topologies.importers.matrix import Matrix, Word, read_matrix
from mapsearch.topologies.importers.relations import NEARNESS, Part, Relation, inside_of, settled

FORMAT = "rocm-smi --showtopo"
_NAME = re.compile(r"(?:GPU\d{1,4}|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$", re.IGNORECASE)
_TITLE = re.compile(
    r"(?:=|^)\s*(?:(weight|hops|link type) between two GPUs\s*=*\s*$|(WEIGHT|HOPS|LINK TYPE) TABLE:\s*$)",
    re.IGNORECASE | re.MULTILINE,
)
_NUMA = re.compile(r"GPU\s?\[?(\d{1,4})\]?\s*:\s*\(Topology\)\s*Numa Node:\s*(-?\d+)", re.IGNORECASE)
_TYPES = ("XGMI", "PCIE")
_NUMBER = re.compile(r"\d{1,6}$")


def detect(text: str, name: str) -> bool:
    """Whether a table of rocm-smi stands in the text."""
    del name
    return _TITLE.search(text[: 2**20]) is not None


def read(text: str, *, file: str, repair: bool = False) -> Inside:
    """The inside of the node that the tables are of. Raises InputError with line and column."""
    lines = without_ansi(text).splitlines()
    repairs = Repairs(file, repair)
    tables = _tables(lines, repairs)
    if "link type" not in tables:
        raise fault(
            "has no table 'Link Type between two GPUs'; run rocm-smi --showtopo or amd-smi topology in full", file=file
        )
    kinds = tables["link type"]
    numa = {f"GPU{match.group(1)}": match.group(2) for match in map(_NUMA.search, lines) if match}
    notes = [f"the table of {what} is not there" for what in ("weight", "hops") if what not in tables]
    for what, table in tables.items():
        if table.names != kinds.names:
            raise fault(
                f"the table of {what} names {', '.join(table.names[:8])} and that of link types "
                f"{', '.join(kinds.names[:8])}",
                file=file,
                line=table.line,
            )
    hops = _numbers(tables.get("hops"), repairs)
    relation = {
        pair: _relation(word, pair, hops, numa)
        for pair, word in kinds.cells.items()
        if word.text in _TYPES and pair[0] != pair[1]
    }
    pairs = settled(kinds.cells, kinds.names, relation, repairs, selves=frozenset({"0", "X", "SELF"}))
    for a, b in itertools.combinations(kinds.names, 2):
        if (a, b) not in pairs and (a, b) in kinds.cells:
            word = kinds.cells[a, b]
            repairs.mend(
                f"{a} to {b} is {word.text!r}, which is neither XGMI nor PCIE",
                "taken as joined through the host only",
                line=word.line,
                column=word.column,
            )
    _weigh(tables, pairs, repairs)
    if any(one.fast for one in pairs.values()):
        notes.append("how many xGMI links run side by side is not in this format: one for each pair is assumed")
    parts = [Part(name, "device", numa.get(name, ""), "amd") for name in kinds.names]
    return inside_of(FORMAT, parts, pairs, repairs, line=kinds.line, notes=notes)


def _tables(lines: list[str], repairs: Repairs) -> dict[str, Matrix]:
    """The tables by what they hold, in lower case."""
    found: dict[str, Matrix] = {}
    for number, line in enumerate(lines, start=1):
        match = _TITLE.search(line)
        if match is None:
            continue
        what = (match.group(1) or match.group(2)).lower()
        if what in found:
            raise fault(
                f"has two tables of {what} (lines {found[what].line} and {number}); one file is one node",
                file=repairs.file,
                line=number,
            )
        header = next((at for at in range(number, min(number + 4, len(lines))) if lines[at].split()), None)
        if header is None or not _NAME.match(lines[header].split()[0]):
            raise fault(f"the table of {what} has no header of GPUs", file=repairs.file, line=number + 1)
        found[what] = read_matrix(
            lines,
            header + 1,
            is_name=lambda word: _NAME.match(word) is not None,
            is_cell=_is_type if what == "link type" else _is_number,
            accepted="0, XGMI or PCIE" if what == "link type" else "whole numbers",
            repairs=repairs,
        )
    return found


def _is_type(word: str) -> bool:
    return word in _TYPES or word in ("0", "X", "SELF", "N/A")


def _is_number(word: str) -> bool:
    return _NUMBER.match(word) is not None or word in ("X", "SELF", "N/A")


def _numbers(table: Matrix | None, repairs: Repairs) -> dict[tuple[str, str], int]:
    """Cells of a table of numbers, the halves compared."""
    result: dict[tuple[str, str], int] = {}
    if table is None:
        return result
    for (a, b), word in table.cells.items():
        if a == b or not _NUMBER.match(word.text):
            continue
        there = table.cells.get((b, a))
        if there is not None and there.text != word.text and table.names.index(a) < table.names.index(b):
            repairs.mend(
                f"{a} to {b} is {word.text} (line {word.line}) but {b} to {a} is {there.text}",
                f"taken as {max(int(word.text), int(there.text) if _NUMBER.match(there.text) else 0)}",
                line=there.line,
                column=there.column,
            )
        result[a, b] = max(int(word.text), result.get((b, a), 0))
        result[b, a] = result[a, b]
    return result


def _relation(
    word: Word, pair: tuple[str, str], hops: Mapping[tuple[str, str], int], numa: Mapping[str, str]
) -> Relation:
    """A link where XGMI takes one hop; the way through the host where the type is PCIE."""
    if word.text == "XGMI" and hops.get(pair, 1) <= 1:
        return Relation(fast="xgmi", count=1)
    a, b = (numa.get(name) for name in pair)
    return Relation(nearness=NEARNESS["SYS" if a is not None and b is not None and a != b else "NODE"])


def _weigh(tables: Mapping[str, Matrix], pairs: Mapping[tuple[str, str], Relation], repairs: Repairs) -> None:
    """Hops and types must go together: 0 hops between two GPUs is no way at all."""
    table = tables.get("hops")
    if table is None:
        return
    for pair in pairs:
        word = table.cells.get(pair)
        if word is not None and word.text == "0":
            repairs.mend(f"{pair[0]} to {pair[1]} takes 0 hops", "taken as 1", line=word.line, column=word.column)
