"""The options of a search: how each axis may be cut over the levels of the fabric.

Contents: divisors, used_fan_outs, partial_fan_outs, pipeline_rows, distinct_rows, Options, attention_options,
expert_options, nested, of_sizes, option_counts.

A grid's rows multiply, level by level, to what the pipeline leaves of the fan-out (F6: parallelism matrices).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from mapsearch.costs.placement import unit_counts

Ints = NDArray[np.int64]
MOST_REMEMBERED = 4_000
"""Ways to cut a grid up to which its list is kept for the next question: those of large grids would fill memory."""


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Divisors in increasing order."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


@lru_cache(maxsize=4096)
def triples(number: int) -> Ints:
    """All ordered factorisations of a number into three: shape (count, 3)."""
    found = [(a, b, number // a // b) for a in divisors(number) for b in divisors(number // a)]
    return np.array(found, dtype=np.int64)


def used_fan_outs(fan_outs: Sequence[int]) -> list[tuple[int, ...]]:
    """Fan-outs that a mapping may use (see `unit_counts`), largest device count first."""
    return sorted(itertools.product(*map(unit_counts, fan_outs)), key=lambda used: (-math.prod(used), used))


def partial_fan_outs(fan_outs: Sequence[int]) -> list[tuple[int, ...]]:
    """As `used_fan_outs`, with parts of the cluster: whole units of one level, a power of two of them, inside one
    unit of the level above; largest device count first."""
    found = set(used_fan_outs(fan_outs))
    for level, size in enumerate(fan_outs):
        powers = [1 << power for power in range(size.bit_length())]
        found |= {(*fan_outs[:level], units, *(1 for _ in fan_outs[level + 1 :])) for units in powers}
    return sorted(found, key=lambda used: (-math.prod(used), used))


def pipeline_rows(used: Sequence[int], most_stages: int) -> list[tuple[int, ...]]:
    """Rows of the pipeline axis with at most so many stages, in order of stages."""
    rows = itertools.product(*(divisors(size) for size in used))
    return sorted((row for row in rows if math.prod(row) <= most_stages), key=lambda row: (math.prod(row), row))


def distinct_rows(columns: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first row with each distinct combination of values, in order of the values, and each row's place among them.

    As `np.unique` of whole rows, with one number for a row: comparing numbers is many times as fast.
    """
    packed = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        packed = packed * len(values) + code.reshape(-1)
    _, first, entry = np.unique(packed, return_index=True, return_inverse=True)
    return first, entry.reshape(-1)


@dataclass(frozen=True)
class Options:
    """A list of options of one grid: three rows of shape (count, levels), and a coded choice per option."""

    rows: tuple[Ints, Ints, Ints]
    choice: Ints

    @cached_property
    def sizes(self) -> tuple[Ints, Ints, Ints]:
        """Axis sizes of each option."""
        # Level by level: numpy is slow at many short products.
        first, second, third = (math.prod(row.T, start=np.ones(len(row), dtype=np.int64)) for row in self.rows)
        return first, second, third

    def __len__(self) -> int:
        return len(self.choice)

    def take(self, index: Ints) -> Options:
        """The options at the given positions."""
        first, second, third = (row[index] for row in self.rows)
        return Options((first, second, third), self.choice[index])

    @staticmethod
    def joined(lists: Sequence[Options]) -> Options:
        """The options of several lists, one list after the other."""
        if len(lists) == 1:
            return lists[0]
        first, second, third = (np.concatenate([options.rows[axis] for options in lists]) for axis in range(3))
        return Options((first, second, third), np.concatenate([options.choice for options in lists]))


def _grid(rest: tuple[int, ...]) -> tuple[Ints, Ints, Ints]:
    """All ways to cut three axes over the levels: three arrays of shape (count, levels)."""
    tables = [triples(size) for size in rest]
    index = np.indices([len(table) for table in tables]).reshape(len(tables), -1)
    stacked = np.stack([table[column] for table, column in zip(tables, index, strict=True)], axis=1)
    return stacked[:, :, 0], stacked[:, :, 1], stacked[:, :, 2]


def _options(rest: tuple[int, ...], choices: tuple[int, ...], moves: tuple[int, ...]) -> Options:
    """Grid options times a choice that only matters where one of the `moves` axes is larger than 1."""
    cuts = math.prod(len(triples(size)) for size in rest)
    return (_remembered if cuts <= MOST_REMEMBERED else _listed)(rest, choices, moves)


def _listed(rest: tuple[int, ...], choices: tuple[int, ...], moves: tuple[int, ...]) -> Options:
    rows = _grid(rest)
    active = np.any([rows[axis].prod(axis=1) > 1 for axis in moves], axis=0)
    parts = [(np.arange(len(active)), choices[0]), *((np.flatnonzero(active), code) for code in choices[1:])]
    index = np.concatenate([where for where, _ in parts])
    code = np.concatenate([np.full(len(where), value) for where, value in parts])
    first, second, third = (row[index] for row in rows)
    return Options((first, second, third), code)


_remembered = lru_cache(maxsize=256)(_listed)


def attention_options(rest: tuple[int, ...], cp_kinds: tuple[int, ...]) -> Options:
    """All (tp, cp, dp) rows over what the pipeline leaves, with the kind of CP where CP > 1."""
    return _options(rest, cp_kinds, moves=(1,))


def expert_options(rest: tuple[int, ...], dispatchers: tuple[int, ...], moe: bool) -> Options:
    """All (etp, ep, edp) rows, with the dispatcher where tokens move; a dense model has one: all in EDP."""
    if not moe:
        ones = np.ones((1, len(rest)), dtype=np.int64)
        return Options((ones, ones, np.array([rest], dtype=np.int64)), np.array(dispatchers[:1], dtype=np.int64))
    return _options(rest, dispatchers, moves=(0, 1))


def nested(options: Options) -> Options:
    """The options whose axes fill the levels from inside: the first axis, then the other two in either order.

    No axis starts on a level before those ahead of it have filled the ones inside. There are at most two such options
    for each combination of sizes, and they are often good ones.
    """
    rest = math.prod(options.rows)
    keep = np.zeros(len(options), dtype=bool)
    for order in ((0, 1), (0, 2)):
        inside, filled = np.ones(len(options), dtype=bool), np.ones_like(rest)
        for row in (options.rows[axis] for axis in order):
            filled = filled * row
            below = np.cumsum(filled < rest, axis=1) - (filled < rest) > 0
            inside &= ~(below & (row > 1)).any(axis=1)
        keep |= inside
    return options.take(np.flatnonzero(keep))


def of_sizes(options: Options, sizes: frozenset[tuple[int, int]]) -> Options:
    """The options whose first two axes have one of these pairs of sizes."""
    first, second, _ = options.sizes
    masks = [(first == one) & (second == two) for one, two in sizes]
    return options.take(np.flatnonzero(np.any(masks, axis=0)))


def option_counts(rest: tuple[int, ...], cp_kinds: int, dispatchers: int, moe: bool) -> tuple[int, int, int]:
    """How many attention options, expert options and DP sizes there are, without listing them."""
    cuts = math.prod(len(triples(size)) for size in rest)
    without_cp = math.prod(len(divisors(size)) for size in rest)
    sizes = {math.prod(cut) for cut in itertools.product(*map(divisors, rest))}
    attention = cuts + (cp_kinds - 1) * (cuts - without_cp)
    return attention, cuts + (dispatchers - 1) * (cuts - 1) if moe else 1, len(sizes)
