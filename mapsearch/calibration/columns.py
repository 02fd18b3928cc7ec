"""What the columns of a collective's log say about each other: operation, ranks, units, and whether to believe them.

Contents: bus_factor, judged.

`algbw = size / time` and `busbw = algbw * factor` (FORMULAS 4.1), `size = count * bytes of an element`, times the ranks
where a rank sends or receives only its share. Printed numbers are rounded, so each test allows half of the last digit.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from mapsearch.calibration.nccl import ELEMENT_BYTES, CollectiveLog, Half, Row, Section, named_operations
from mapsearch.errors import InputError, listed, near_miss

SHARED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""Operations whose count column is one rank's share of the size column."""
ACCEPTED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive", "broadcast", "reduce", "gather",
            "scatter")  # fmt: skip
_CLOSE = 0.01
"""Relative difference that rounding may leave between printed columns of large rows."""
_EXACT = 1e-4
"""The same between busbw and algbw, beyond their last digits."""
_INFORMATIVE = 1.0
"""GB/s from which a bandwidth is printed with three digits."""
_UNITS = {
    1e-3: (1e-3, "times are milliseconds: algbw is size over time only so"),
    1e3: (1e-9, "times are nanoseconds: algbw is size over time only so"),
    1e-6: (1.0, "times are seconds: algbw is size over time only so"),
    1e9 / 2**30: (1e-6, "algbw and busbw are in GiB/s; sizes and times were used"),
    8.0: (1e-6, "algbw and busbw are in Gb/s; sizes and times were used"),
}
"""Printed algbw over size/time in GB/s and microseconds: seconds per unit of the time column, and what to say."""


def bus_factor(operation: str, ranks: int) -> float:
    """busbw over algbw: 2(n-1)/n of an all-reduce, (n-1)/n where the size is the whole array, else 1 (F4.1)."""
    share = (ranks - 1) / ranks
    if operation == "all_reduce":
        return 2.0 * share
    return share if operation in SHARED else 1.0


def judged(section: Section, *, operation: str | None, ranks: int | None, ranks_per_node: int | None) -> CollectiveLog:
    """The log of a section, with remarks. Raises InputError where nothing of it is a measurement."""
    rows, notes = _measured(section)
    rows, time_notes = _timed(section, rows)
    notes += time_notes
    named, note = _operation(section, rows, operation)
    notes += note
    count, note = _ranks(section, rows, named, ranks)
    notes += note
    if count == 1:
        raise _refusal(
            section,
            f"ran on one rank ({named.replace('_', '-')}): nothing was sent, so it has no bandwidth; start the test "
            "with more ranks (a build without MPI=1 runs each rank alone)",
        )
    _refuse_shared_device(section)
    if count is not None:
        notes += _factor_notes(rows, named, count)
    notes += _count_notes(rows, named, count)
    node, note = _ranks_per_node(section, count, ranks_per_node)
    notes += note
    if section.cut_rows:
        notes.append("rows were cut out of the log; the ranges between the remaining ones are interpolated")
    if named == "all_to_all":
        rows = [replace(row, in_place=None) for row in rows if row.out_of_place]
        notes.append("the in-place half is left out: an all-to-all has no valid in-place form")
    first = max(Counter(row.dtype for row in rows).items(), key=lambda pair: pair[1])[0] if rows else ""
    if not rows:
        raise _refusal(section, "has only in-place times of an all-to-all, which has no valid in-place form")
    names = tuple(sorted({member[5] for member in section.members if member[5]}))
    return CollectiveLog(
        section.file, named, count, node, first, rows[0].redop, tuple(rows), devices=names, notes=tuple(notes)
    )


def _refusal(section: Section, problem: str) -> InputError:
    line = f"line {section.rows[0].line}" if section.rows else None
    return InputError(problem, file=section.file, field=line)


def _measured(section: Section) -> tuple[list[Row], list[str]]:
    """Rows that hold a measurement: zero sizes, wrong results and torn lines go."""
    notes = []
    if section.placeholders and not section.rows:
        raise _refusal(
            section,
            f"holds placeholders such as {section.placeholders[0]} instead of numbers in all "
            f"{len(section.placeholders)} rows; give the log as the program wrote it",
        )
    kept = [row for row in section.rows if row.size_bytes > 0]
    zeros = len(section.rows) - len(kept)
    if zeros:
        notes.append(f"{zeros} row{'s' * (zeros != 1)} of size 0 left out")
    good = [_without_failures(row) for row in kept]
    rows = [row for row in good if row.halves]
    if len(rows) < len(kept):
        notes.append(f"{len(kept) - len(rows)} rows with wrong results (#wrong) left out")
    if section.placeholders:
        notes.append(f"{len(section.placeholders)} rows hold placeholders ({section.placeholders[0]}) and are left out")
    if section.torn:
        notes.append(f"{section.torn} torn row{'s' * (section.torn != 1)} left out")
    if not rows:
        what = f"only {zeros} rows of size 0" if zeros and zeros == len(section.rows) else "no row with a time"
        if kept:
            what = f"wrong results (#wrong) in all of its {len(kept)} rows"
        raise _refusal(section, f"has {what}; give the whole output of a *_perf program")
    return rows, notes


def _without_failures(row: Row) -> Row:
    def good(half: Half | None) -> Half | None:
        if half is None or half.failed or half.time <= 0.0:
            return None
        # Old logs print the largest deviation, far below 1; new ones count wrong elements.
        return None if half.errors is not None and half.errors >= 1.0 else half

    return replace(row, out_of_place=good(row.out_of_place), in_place=good(row.in_place))


def _timed(section: Section, rows: list[Row]) -> tuple[list[Row], list[str]]:
    """Rows with `time_s`, after the unit of the time column was checked against algbw."""
    scale, notes = (1e-3, ["times are milliseconds, says the header"]) if section.milliseconds else (1e-6, [])
    ratios = [
        half.algbw / (row.size_bytes / (half.time * 1e-6) / 1e9)
        for row in rows
        for half in row.halves
        if half.algbw >= _INFORMATIVE
    ]
    bandwidth_unit = 1.0
    if ratios and not section.milliseconds:
        middle = sorted(ratios)[len(ratios) // 2]
        if abs(middle - 1.0) > _CLOSE:
            known = next((unit for unit in _UNITS if abs(middle / unit - 1.0) <= _CLOSE), None)
            if known is None:
                worst = next(row for row in rows for half in row.halves if half.algbw >= _INFORMATIVE)
                raise _refusal(
                    section,
                    f"algbw is not size / time but {middle:.3g} times as much (middle of the rows from line "
                    f"{worst.line} on); the columns are not those of nccl-tests",
                )
            scale, note = _UNITS[known]
            notes.append(note)
            bandwidth_unit = known * scale / 1e-6
    timed = [_with_seconds(row, scale, bandwidth_unit, section.milliseconds) for row in rows]
    kept = [row for row in timed if row.halves]
    dropped = [row.line for row in timed if not row.halves]
    if dropped:
        notes.append(
            f"{len(dropped)} row{'s' * (len(dropped) != 1)} whose algbw is not size / time left out "
            f"(line {', '.join(map(str, dropped[:3]))}{', ...' * (len(dropped) > 3)})"
        )
    if not kept:
        raise _refusal(section, "algbw is not size / time in any row; the columns are not those of nccl-tests")
    return kept, notes


def _with_seconds(row: Row, scale: float, bandwidth_unit: float, unchecked: bool) -> Row:
    def timed(half: Half | None) -> Half | None:
        if half is None:
            return None
        seconds = half.time * scale
        expected = row.size_bytes / seconds / 1e9 * bandwidth_unit
        slack = expected * (2 * _CLOSE + half.time_step / half.time) + 2.0 * half.algbw_step
        if not unchecked and abs(half.algbw - expected) > slack:
            return None
        return replace(half, time_s=seconds)

    return replace(row, out_of_place=timed(row.out_of_place), in_place=timed(row.in_place))


def _operation(section: Section, rows: Sequence[Row], given: str | None) -> tuple[str, list[str]]:
    """The operation: asked for, of the program's name, of the columns, of words in the text or the file's name."""
    if given is not None:
        wanted = given.lower().replace("-", "_")
        if wanted not in ACCEPTED:
            raise InputError(
                f"{given!r} is not an operation{near_miss(wanted, ACCEPTED)}; accepted: "
                f"{listed(name.replace('_', '-') for name in ACCEPTED)}",
                field="operation",
            )
        return wanted, []
    if section.program:
        return section.program, []
    fits = _fitting_operations(rows)
    if len(fits) == 1:
        return fits[0], [f"the log does not name its operation; only {_plain(fits[0])} fits its columns"]
    for where, words in (("text", section.words), ("file's name", named_operations(Path(section.file).name))):
        both = [name for name in fits if name in words]
        if len(both) == 1:
            return both[0], [f"the operation, {_plain(both[0])}, was taken from the {where}"]
    raise _refusal(
        section,
        f"does not say which collective ran: its columns fit {listed(map(_plain, fits)) or 'none that is known'}; "
        "give --operation",
    )


def _plain(name: str) -> str:
    return name.replace("_", "-")


def _fitting_operations(rows: Sequence[Row]) -> list[str]:
    """Operations whose redop, root, count and bus factor are those of the rows."""
    reduces = rows[0].redop != "none"
    rooted = None if rows[0].root is None else rows[0].root >= 0
    shared = (_share_ranks(rows) or 1) > 1
    if reduces and rooted is not True and shared:
        return ["reduce_scatter"]
    if reduces:
        range_ = _ratio_range(rows)
        level = range_ is None or range_[0] <= 1.0 <= range_[1]
        return [*(["all_reduce"] if rooted is not True else []), *(["reduce"] if rooted is not False and level else [])]
    if rooted or not shared:
        whole = ["broadcast"] if rooted else ["send_receive", *(["broadcast"] if rooted is None else [])]
        return ["gather", "scatter"] if shared else whole
    inside = [row.in_place for row in rows if row.in_place]
    outside = [row.out_of_place for row in rows if row.out_of_place]
    if inside and all(half.errors is not None for half in inside):
        return ["all_gather"]
    if inside and outside and all(half.errors is not None for half in outside):
        return ["all_to_all"]  # only the in-place half was not verified
    return ["all_gather", "all_to_all"]


def _share_ranks(rows: Iterable[Row]) -> int | None:
    """Ranks, where the count column is one rank's share; 1 where it is the whole array."""
    shares: Counter[int] = Counter()
    for row in rows:
        whole = row.count * ELEMENT_BYTES[row.dtype]
        if row.count and row.size_bytes % whole == 0:
            shares[row.size_bytes // whole] += 1
    return shares.most_common(1)[0][0] if shares else None


def _ratio_range(rows: Sequence[Row]) -> tuple[float, float] | None:
    """busbw over algbw, as an interval that every informative row allows; the median where they contradict."""
    bounds = [
        (
            (half.busbw - half.busbw_step) / (half.algbw + half.algbw_step),
            (half.busbw + half.busbw_step) / (half.algbw - half.algbw_step),
        )
        for row in rows
        for half in row.halves
        if half.algbw >= _INFORMATIVE and half.algbw > 2.0 * half.algbw_step
    ]
    if not bounds:
        return None
    lower, upper = max(low for low, _ in bounds), min(high for _, high in bounds)
    if lower <= upper:
        return lower, upper
    low, high = sorted(low for low, _ in bounds), sorted(high for _, high in bounds)
    return low[len(low) // 2], high[len(high) // 2]


def _ranks(section: Section, rows: Sequence[Row], operation: str, given: int | None) -> tuple[int | None, list[str]]:
    """Ranks: asked for, by the count column, by the list of ranks, or by the bus factor."""
    if given is not None:
        return given, []
    groups = Counter(member[1] for member in section.members)
    listed_ranks = None
    if section.members:
        listed_ranks = max(member[0] for member in section.members) + 1
        if len(groups) > 1:
            listed_ranks = max(groups.values())
    shared = _share_ranks(rows) if operation in SHARED else None
    if shared is not None and shared != listed_ranks:
        said = f"{listed_ranks} ranks are listed, but " if listed_ranks else ""
        if listed_ranks or shared > 1:
            return shared, [f"{said}size over count says {shared} ranks"]
    if listed_ranks is not None:
        low, high = _ranks_by_factor(rows, operation)
        from_zero = {member[0] for member in section.members} == set(range(listed_ranks))
        if low == high > listed_ranks and from_zero:  # the end of the list is missing
            return low, [f"{listed_ranks} ranks are listed, but busbw / algbw says {low}"]
        return listed_ranks, []
    low, high = _ranks_by_factor(rows, operation)
    if operation not in ("all_reduce", *SHARED):
        return None, ["the log does not say how many ranks ran; the bandwidth does not depend on it"]
    if low > high or high > 10**6:
        raise _refusal(section, "does not say how many ranks ran, and busbw / algbw does not tell; give --ranks")
    if section.processes:
        each = section.processes[0] * section.processes[1]
        low = math.ceil(low / each) * each if math.ceil(low / each) * each <= high else low
    best = max(range(low, min(high, low + 5000) + 1), key=lambda n: (n & -n, -n))
    doubt = "" if low == high else f" ({low} to {high} fit as well; --ranks if it was another)"
    return best, [f"{best} ranks, by busbw / algbw{doubt}"]


def _ranks_by_factor(rows: Sequence[Row], operation: str) -> tuple[int, int]:
    """The least and the most ranks that the bus factor allows; (1, 0) when it says nothing."""
    between = _ratio_range(rows)
    if between is None or operation not in ("all_reduce", *SHARED):
        return 1, 0
    full = 2.0 if operation == "all_reduce" else 1.0
    low, high = between[0] / full, between[1] / full
    if low >= 1.0 or high < 0.5 * (1.0 - _CLOSE):
        return (1, 0) if low >= 1.0 or high > 1e-9 else (1, 1)
    least = math.ceil(1.0 / (1.0 - low) - 1e-9)
    return max(least, 2), math.floor(1.0 / (1.0 - high) + 1e-9) if high < 1.0 else 10**9


def _refuse_shared_device(section: Section) -> None:
    places = Counter((host, bus) for _, _, host, _, bus, _ in section.members if bus.count(":") >= 1)
    twice = next((place for place, times in places.items() if times > 1), None)
    if twice:
        raise _refusal(
            section,
            f"{places[twice]} ranks share one device ({twice[1]} on {twice[0]}), so the times are of no link; give "
            "each rank its own device",
        )


def _factor_notes(rows: Sequence[Row], operation: str, ranks: int) -> list[str]:
    """A remark where busbw is not algbw times the factor of the operation."""
    between = _ratio_range(rows)
    factor = bus_factor(operation, ranks)
    if between is None or between[0] * (1 - _EXACT) <= factor <= between[1] * (1 + _EXACT):
        return []
    middle = 0.5 * sum(between)
    low, high = between[0] * (1 - _EXACT), between[1] * (1 + _EXACT)
    others = [_plain(name) for name in ACCEPTED if low <= bus_factor(name, ranks) <= high]
    seems = f"; that is the factor of {listed(others)} on {ranks} ranks" if others else ""
    low, high = _ranks_by_factor(rows, operation)
    if not others and low == high:
        seems = f"; that is the factor of {low} ranks"
    return [
        f"busbw is {middle:.5g} times algbw, where {_plain(operation)} of {ranks} ranks has {factor:.5g}{seems}; sizes "
        "and times were used"
    ]


def _count_notes(rows: Sequence[Row], operation: str, ranks: int | None) -> list[str]:
    shares = ranks if ranks and operation in SHARED else 1
    odd = [row for row in rows if row.count * ELEMENT_BYTES[row.dtype] * shares != row.size_bytes]
    if not odd or (operation in SHARED and ranks is None):
        return []
    return [f"count times the element's size is not the size column in {len(odd)} of {len(rows)} rows; sizes were used"]


def _ranks_per_node(section: Section, ranks: int | None, given: int | None) -> tuple[int | None, list[str]]:
    """Ranks on one host: asked for, or by the hosts and device numbers of the list of ranks."""
    if ranks is None or given is not None:
        if given is not None and ranks is not None and ranks % given:
            raise _refusal(section, f"{ranks} ranks are not a multiple of {given} per node; mend --ranks-per-node")
        return given, []
    hosts: dict[str, set[int]] = {}
    devices: dict[str, int] = {}
    for rank, _, host, device, _, _ in section.members:
        hosts.setdefault(host, set()).add(rank)
        devices[host] = max(devices.get(host, 0), device + 1)
    if len(section.members) >= ranks and len({len(members) for members in hosts.values()}) == 1:
        return len(next(iter(hosts.values()))), []
    if section.processes and section.processes[0] * section.processes[1] == ranks:
        return ranks, []
    if not hosts or not re.search(r"\S", next(iter(hosts))):
        return None, []
    each = max(*devices.values(), *(len(members) for members in hosts.values()))
    if ranks % each:
        return None, []
    return each, [f"{each} ranks per node, by the device numbers of the part of the list that is there"]
