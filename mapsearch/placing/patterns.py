"""Which groups of an axis spread alike, and names of many devices in short.

Contents: patterns_of, short.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mapsearch.placement import Pattern
from mapsearch.placing.placed import Placed

Ints = NDArray[np.int64]

_PARTS = re.compile(r"(\d+)")
SHOWN = 4
"""Devices that are named one by one where no shorter form is found."""


def patterns_of(placed: Placed, axis: str) -> list[Pattern]:
    """Kinds of groups of an axis by how many units of every level they touch, the most common first."""
    table = placed.groups[axis]
    touched = _touched(placed, table)
    kinds, first, counts = np.unique(touched, axis=0, return_index=True, return_counts=True)
    found = []
    for place in np.lexsort((first, -counts)).tolist():
        spread = [table.shape[1], *kinds[place].tolist()]
        ways = {
            name: round(inner / outer, 4)
            for name, inner, outer in zip(placed.level_names, spread, spread[1:], strict=False)
            if inner > outer
        }
        inside = next((name for name, outer in zip(placed.level_names, spread[1:], strict=False) if outer == 1), "")
        number = int(first[place])
        found.append(
            Pattern(
                groups=int(counts[place]),
                ways=ways,
                inside="device" if table.shape[1] == 1 else inside,
                first=number,
                devices=short(placed.devices_of(axis, number)),
            )
        )
    return found


def _touched(placed: Placed, table: Ints) -> Ints:
    """Distinct units per group and level, shape (groups, levels): units of that level, the outermost is one."""
    levels = len(placed.level_names)
    result = np.ones((len(table), max(levels, 1)), dtype=np.int64)
    if not levels:
        return result * 0
    number = np.zeros(len(placed.devices), dtype=np.int64)
    for level in range(levels - 1, 0, -1):
        number = number * (int(placed.units[:, level].max(initial=0)) + 1) + placed.units[:, level]
        rows = np.sort(number[table], axis=1)
        result[:, level - 1] = 1 + (np.diff(rows, axis=1) != 0).sum(axis=1)
    return result


def short(names: Sequence[str]) -> str:
    """Names that differ only in numbers, as `rack0/board0..3/device0,2`, else the first few and how many there are."""
    parted = [_PARTS.split(name) for name in names]
    plain = {tuple(parts[::2]) for parts in parted}
    if len(plain) == 1:
        numbers = [list(dict.fromkeys(column)) for column in zip(*(parts[1::2] for parts in parted), strict=True)]
        every = set(itertools.islice(itertools.product(*numbers), len(names) + 1))
        if len(every) == len(names) and every == {tuple(parts[1::2]) for parts in parted}:
            words = next(iter(plain))
            texts = [_numbers(column) for column in numbers]
            return words[0] + "".join(text + word for text, word in zip(texts, words[1:], strict=True))
    if len(names) <= SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: SHOWN - 1])}, .. {names[-1]} ({len(names):,} devices)"


def _numbers(texts: Sequence[str]) -> str:
    """`0..7`, `0,2..14 by 2`, or the first few."""
    if len(texts) == 1:
        return texts[0]
    if len({len(text) for text in texts}) > 1 and any(text.startswith("0") and len(text) > 1 for text in texts):
        return "{" + ",".join(texts[:SHOWN]) + (",.." if len(texts) > SHOWN else "") + "}"
    values = sorted(int(text) for text in texts)
    by_value = sorted(texts, key=int)
    steps = {b - a for a, b in itertools.pairwise(values)}
    if len(values) > 2 and len(steps) == 1:
        step = steps.pop()
        return f"{{{by_value[0]}..{by_value[-1]}{f' by {step}' if step > 1 else ''}}}"
    if len(texts) <= SHOWN:
        return "{" + ",".join(by_value) + "}"
    return "{" + ",".join(by_value[: SHOWN - 1]) + f",..,{by_value[-1]}}}"
