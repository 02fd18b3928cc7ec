"""Logs of nccl-tests and rccl-tests, as people keep them: cut, prefixed, edited, several tests in one file.

Contents: Half, Row, CollectiveLog, read_log, read_logs, read_text_logs.

A log is text with rows `size count type redop [root] time algbw busbw wrong` twice over, out-of-place and in-place.
Rows are found wherever they stand in a line, so that prefixes of launchers do not matter; everything around them is
used to tell the operation, the ranks and where they ran. What the columns say about each other is in columns.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mapsearch import documents
from mapsearch.errors import InputError, listed

ELEMENT_BYTES = {
    "int8": 1, "char": 1, "uint8": 1, "int32": 4, "int": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2,
    "float16": 2, "bfloat16": 2, "bf16": 2, "float": 4, "float32": 4, "double": 8, "float64": 8, "fp8_e4m3": 1,
    "fp8_e5m2": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8e4m3": 1, "fp8e5m2": 1,
}  # fmt: skip
"""Bytes of one element, by the name in the type column."""
OPERATIONS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_all", "broadcast": "broadcast", "reduce": "reduce",
    "sendrecv": "send_receive", "gather": "gather", "scatter": "scatter",
}  # fmt: skip
"""Our name of the operation, by the first part of the test program's name (`all_reduce_perf`)."""
_REDOPS = {"sum", "prod", "max", "min", "avg", "mulsum", "none"}
_PROGRAM = re.compile(rf"(?<![a-z_])({'|'.join(OPERATIONS)})_perf", re.I)
_WORDS = {
    "all_reduce": r"all[ _-]?reduce", "all_gather": r"all[ _-]?gather", "reduce_scatter": r"reduce[ _-]?scatter",
    "all_to_all": r"all[ _-]?to[ _-]?all", "send_receive": r"send[ _-]?recv",
    "broadcast": r"(?<![a-z])b(?:road)?cast(?![a-z])",
}  # fmt: skip
_WORD = re.compile("|".join(_WORDS.values()), re.I)
_ROW = re.compile(rf"\d\s+\d+\s+(?:{'|'.join(ELEMENT_BYTES)})\s+(?:{'|'.join(_REDOPS)})(?:\s|$)", re.I)
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)?|.)|\x00|\r")
_LAUNCHER = re.compile(r"\[\d+,\d+\]<std(?:out|err)>:")
_HEADER = re.compile(r"(?:size|bytes)\s+(?:count|N)\s+type\s+(?:redop|op)\s+(.{1,400})")
_THREADS = re.compile(r"nThreads?:? (\d{1,6}) nGpus:? (\d{1,6})")
_RANK = re.compile(
    r"Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,7})\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d{1,5})\s+\[([^\]\s]{1,40})\]\s*(.{0,200})",
    re.I,
)
_CUT = re.compile(r"^[#\s.<>…]*(?:\.{3}|…|<?\s*(?:smaller|truncated|snip|omitted|output cut))", re.I)
_LONGEST_LINE = 4000
_MOST_ROWS = 5000
_SMALLEST_ROW = 7


@dataclass(frozen=True)
class Half:
    """One half of a row: what was measured out-of-place, or in-place."""

    time: float
    """As printed, in the unit of the time column."""
    algbw: float
    busbw: float
    errors: float | None
    """Wrong elements, or the largest deviation in old logs; None where the log has N/A."""
    failed: bool = False
    """Marked as beyond the threshold."""
    time_step: float = 0.0
    """Half of the last printed digit of `time`, and of `algbw` and `busbw` below."""
    algbw_step: float = 0.0
    busbw_step: float = 0.0
    time_s: float = 0.0


@dataclass(frozen=True)
class Row:
    """One message size of a log."""

    line: int
    size_bytes: int
    """The size column: bytes of the FULL array, also for all-gather and reduce-scatter."""
    count: int
    dtype: str
    redop: str
    root: int | None
    out_of_place: Half | None
    in_place: Half | None

    @property
    def halves(self) -> tuple[Half, ...]:
        """The halves that were measured."""
        return tuple(half for half in (self.out_of_place, self.in_place) if half is not None)


@dataclass(frozen=True)
class CollectiveLog:
    """One test: an operation on some ranks, and its times by message size."""

    file: str
    operation: str
    ranks: int | None
    """None where nothing tells it and the operation's bandwidth does not depend on it."""
    ranks_per_node: int | None
    dtype: str
    redop: str
    rows: tuple[Row, ...]
    devices: tuple[str, ...] = ()
    """Names of the devices in the list of ranks."""
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> int | None:
        """Hosts that took part."""
        if self.ranks is None or self.ranks_per_node is None:
            return None
        return self.ranks // self.ranks_per_node


@dataclass
class Section:
    """What was seen of one test, before it is judged."""

    file: str
    program: str | None = None
    words: set[str] = field(default_factory=set)
    labels: list[str] | None = None
    milliseconds: bool = False
    processes: tuple[int, int] | None = None
    members: list[tuple[int, int, str, int, str, str]] = field(default_factory=list)
    """Rank, group, host, device, bus id and device name of each line of the list of ranks."""
    rows: list[Row] = field(default_factory=list)
    placeholders: list[str] = field(default_factory=list)
    torn: int = 0
    cut_rows: bool = False
    cut_ranks: bool = False
    concluded: bool = False
    started: bool = False


def read_log(
    path: Path | str, *, operation: str | None = None, ranks: int | None = None, ranks_per_node: int | None = None
) -> CollectiveLog:
    """The one test of a log. Raises InputError when there is none that can be used, or more than one."""
    logs, _ = read_logs(path, operation=operation, ranks=ranks, ranks_per_node=ranks_per_node)
    if len(logs) > 1:
        raise InputError(
            f"holds {len(logs)} tests ({listed(log.operation for log in logs)}); read_logs reads them all",
            file=str(path),
        )
    return logs[0]


def read_logs(
    path: Path | str, *, operation: str | None = None, ranks: int | None = None, ranks_per_node: int | None = None
) -> tuple[list[CollectiveLog], list[InputError]]:
    """All tests of a file that can be used, and why each other one cannot.

    `operation`, `ranks` and `ranks_per_node` win over what the log says. Raises InputError when none can be used.
    """
    text = documents.read_text(path, errors="replace")
    return read_text_logs(text, file=str(path), operation=operation, ranks=ranks, ranks_per_node=ranks_per_node)


def read_text_logs(
    text: str,
    *,
    file: str,
    operation: str | None = None,
    ranks: int | None = None,
    ranks_per_node: int | None = None,
) -> tuple[list[CollectiveLog], list[InputError]]:
    """As `read_logs`, from text."""
    from mapsearch.calibration.columns import judged

    logs: list[CollectiveLog] = []
    refused: list[InputError] = []
    for section in _sections(text, file):
        try:
            logs.append(judged(section, operation=operation, ranks=ranks, ranks_per_node=ranks_per_node))
        except InputError as problem:
            refused.append(problem)
    if not logs and refused:
        raise refused[0]
    if not logs:
        raise InputError(
            "has no rows of nccl-tests (size, count, type, redop, root, time, algbw, busbw, #wrong); "
            "give the whole output of a *_perf program",
            file=file,
        )
    return logs, refused


def _sections(text: str, file: str) -> list[Section]:
    found: list[Section] = []
    current = Section(file)
    for number, raw in enumerate(text.replace("\0", "").splitlines(), start=1):
        line = _LAUNCHER.sub(" ", _ESCAPES.sub("", raw[:_LONGEST_LINE]))
        if _opens(line, current):
            found.append(current)
            current = Section(file)
        _take(line, number, current)
    found.append(current)
    return [section for section in found if section.rows or section.placeholders or section.torn]


def _opens(line: str, current: Section) -> bool:
    """Whether a line belongs to the next test: a new start, or a row or header after the end of this one."""
    if not (current.rows or current.placeholders or current.torn):
        return False
    if "concluded" in line:
        return False
    if "test starting" in line or ("nThread" in line and _THREADS.search(line)) or _header(line):
        return True
    program = _program(line)
    if program and current.program and OPERATIONS[program.group(1).lower()] != current.program:
        return True
    return current.concluded and bool(program)


def _program(line: str) -> re.Match[str] | None:
    return _PROGRAM.search(line) if "_perf" in line.lower() else None


def _header(line: str) -> re.Match[str] | None:
    return _HEADER.search(line) if "type" in line else None


def _take(line: str, number: int, section: Section) -> None:
    """Take from one line what it says."""
    if program := _program(line):
        section.program = section.program or OPERATIONS[program.group(1).lower()]
        section.concluded = section.concluded or "concluded" in line
    if header := _header(line):
        section.labels = [_label(word) for word in header.group(1).split()]
    elif "nThread" in line and (threads := _THREADS.search(line)):
        section.processes = (int(threads.group(1)), int(threads.group(2)))
    elif "ank" in line and (rank := _RANK.search(line)):
        member, group, _, host, device, bus, name = rank.groups()
        section.members.append((int(member), int(group or 0), host, int(device), bus.lower(), name.strip()))
    elif line.lstrip(" #").startswith("(B)"):
        section.milliseconds = "(ms)" in line
    elif _CUT.match(line):
        section.cut_rows = section.cut_rows or section.labels is not None or bool(section.rows)
        section.cut_ranks = section.cut_ranks or (bool(section.members) and section.labels is None)
    elif len(section.rows) < _MOST_ROWS and (row := _row(line, number, section)):
        section.rows.append(row)
    elif not program and _WORD.search(line):
        section.words |= named_operations(line)


def named_operations(text: str) -> set[str]:
    """Operations that a text names in words (`AllGather`, `all-to-all`)."""
    return {name for name, pattern in _WORDS.items() if re.search(pattern, text, re.I)}


def _label(word: str) -> str:
    word = word.strip("#").lower()
    return {"error": "wrong", "res": "wrong", "#wrong": "wrong"}.get(word, word)


def _row(line: str, number: int, section: Section) -> Row | None:
    """The row in a line, or None; what is a row but cannot be read is counted in the section."""
    if not _ROW.search(line):
        return None
    words = line.split()
    start = next((at for at in range(max(0, len(words) - 3)) if _starts(words, at)), None)
    if start is None or line.lstrip().startswith("#") or (start and words[start - 1].startswith("#")):
        return None
    size, count, dtype, redop = words[start : start + 4]
    values = words[start + 4 :]
    labels = section.labels or _labels_for(values)
    named = list(zip(labels, values, strict=False))
    times = [at for at, label in enumerate(labels) if label == "time"]
    if not times:
        section.torn += 1
        return None
    first, second = times[0], (times[1] if len(times) > 1 else len(labels))
    root = next((_whole(value) for label, value in named[:first] if label == "root"), None)
    halves = [_half(dict(named[begin:end])) for begin, end in ((first, second), (second, len(labels)))]
    if halves == [None, None]:
        if any(re.fullmatch(r"[xX?*#.-]+", value) for value in values):
            section.placeholders.append(next(v for v in values if re.fullmatch(r"[xX?*#.-]+", v)))
        else:
            section.torn += 1
        return None
    return Row(number, int(size), int(count), dtype.lower(), redop.lower(), root, halves[0], halves[1])


def _starts(words: Sequence[str], at: int) -> bool:
    return (
        words[at + 3].lower() in _REDOPS
        and words[at + 2].lower() in ELEMENT_BYTES
        and all(word.isascii() and word.isdigit() and len(word) <= 18 for word in words[at : at + 2])
    )


def _labels_for(values: Sequence[str]) -> list[str]:
    """The columns of a row without a header: the first value is a root where there are nine."""
    half = ["time", "algbw", "busbw", "wrong"]
    rooted = len(values) >= 9 or (len(values) <= 5 and bool(values) and _whole(values[0]) is not None)
    return [*(["root"] if rooted else []), *half, *half]


def _half(values: dict[str, str]) -> Half | None:
    numbers = [_number(values.get(name)) for name in ("time", "algbw", "busbw")]
    time, algbw, busbw = numbers
    if time is None or algbw is None or busbw is None:
        return None
    wrong = values.get("wrong", "")
    steps = (_step(values[name]) for name in ("time", "algbw", "busbw"))
    return Half(time, algbw, busbw, _number(wrong.rstrip("*")), wrong.endswith("*"), *steps)


def _number(text: str | None) -> float | None:
    """A plain number that is finite and not negative."""
    if text is None or not re.fullmatch(r"\d{1,25}(?:\.\d{0,25})?(?:[eE][+-]?\d{1,3})?", text, re.ASCII):
        return None
    value = float(text)
    return value if value < 1e30 else None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,9}", text, re.ASCII) else None


def _step(text: str) -> float:
    """Half a unit of the last printed digit."""
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(0.5 * 10.0 ** (int(exponent or 0) - decimals))
