"""`npu-smi info -t topo`: what joins the Ascend NPUs of one node, pair by pair.

Contents: FORMAT, detect, read.

The words are those of the tool's own legend: HCCS (direct), HCCS_SW (through a switch), SIO (two dies of a package),
PIX, PXB, PHB, SYS, and NA where it does not know.
"""

from __future__ import annotations

import re

from mapsearch.topologies.importers.base import Inside, Repairs, fault, without_ansi
from mapsearch.topologies.importers.matrix import read_matrix
from mapsearch.topologies.importers.relations import NEARNESS, Part, Relation, inside_of, settled

FORMAT = "npu-smi info -t topo"
_NAME = re.compile(r"(?:NPU|Phy-ID|Chip)\d{1,4}$")
_WORDS = {
    "HCCS": Relation(fast="hccs", count=1),
    "HCCS_SW": Relation(fast="hccs", count=1, switched=True),
    "SIO": Relation(fast="sio", count=1),
    **{word: Relation(nearness=rank) for word, rank in NEARNESS.items() if word != "NODE"},
}
_UNKNOWN = "NA"
_ACCEPTED = "X, HCCS, HCCS_SW, SIO, PIX, PXB, PHB, SYS or NA"


def detect(text: str, name: str) -> bool:
    """Whether a table of NPUs stands in the text."""
    del name
    return _first(without_ansi(text).splitlines(), 4096) is not None


def read(text: str, *, file: str, repair: bool = False) -> Inside:
    """The inside of the node that the table is of. Raises InputError with line and column."""
    lines = without_ansi(text).splitlines()
    repairs = Repairs(file, repair)
    first = _first(lines, len(lines))
    if first is None:
        raise fault("has no table of npu-smi info -t topo (a line that begins with NPU0 or Phy-ID0)", file=file)
    table = read_matrix(
        lines,
        first,
        is_name=lambda word: _NAME.match(word) is not None,
        is_cell=lambda word: word in _WORDS or word in ("X", _UNKNOWN),
        accepted=_ACCEPTED,
        repairs=repairs,
    )
    relation = {pair: _WORDS[word.text] for pair, word in table.cells.items() if word.text in _WORDS}
    pairs = settled(table.cells, table.names, relation, repairs, selves=frozenset({"X"}))
    unknown = [
        (a, b)
        for index, a in enumerate(table.names)
        for b in table.names[index + 1 :]
        if (a, b) not in pairs and (a, b) in table.cells
    ]
    for a, b in unknown[:1]:
        word = table.cells[a, b]
        repairs.mend(
            f"{a} and {b} are {word.text or 'unknown'}: the tool does not know what joins them",
            "taken as joined through the host only",
            line=word.line,
            column=word.column,
        )
    parts = [Part(name, "device", hint="ascend") for name in table.names]
    return inside_of(FORMAT, parts, pairs, repairs, line=table.line)


def _first(lines: list[str], most: int) -> int | None:
    """The line of the header, from 1: names of NPUs, two or more (or one alone on its line)."""
    for number, line in enumerate(lines[:most], start=1):
        words = line.split()
        if words and _NAME.match(words[0]) and (len(words) == 1 or _NAME.match(words[1]) or words[1] == "CPU"):
            return number
    return None
