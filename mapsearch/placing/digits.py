"""How the two grids share the units of each level: digits of the unit's index, each for one axis.

Contents: USUAL_ORDER, ORDERS, grids_of, Digit, Plan, joint_digits, chained_digits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mapsearch.costs.placement import Rows

USUAL_ORDER = "tp-cp-ep-dp-pp"
"""How ranks count unless told otherwise, the first axis fastest; TP stands for ETP and DP for EDP in the expert grid.
Source: Megatron-LM, initialize_model_parallel."""
ORDERS = (
    USUAL_ORDER,
    *(
        order
        for order in ("-".join((*axes, "pp")) for axes in itertools.permutations(("tp", "cp", "ep", "dp")))
        if order != USUAL_ORDER
    ),
)
"""Every order with PP last, which both grids' pipeline groups need (FORMULAS 5.1, trap 2)."""
Grid = tuple[str, ...]


def grids_of(order: str) -> tuple[Grid, Grid]:
    """The axes of the dense and of the expert grid in the order in which ranks count, the first fastest."""
    words = order.split("-")
    expert = {"tp": "etp", "dp": "edp"}
    return tuple(word for word in words if word != "ep"), tuple(expert.get(w, w) for w in words if w != "cp")


Table = tuple[tuple[int, ...], ...]
"""How often a prime stands in both an axis of the dense grid (row) and one of the expert grid (column), without PP."""


@dataclass(frozen=True)
class Digit:
    """`index // stride % ways` of a unit's index on a level counts along an axis."""

    level: int
    axis: str
    ways: int
    stride: int


@dataclass(frozen=True)
class Plan:
    """Digits of both grids; those of one axis in the order in which the axis counts, fastest first."""

    dense: tuple[Digit, ...]
    expert: tuple[Digit, ...]


def joint_digits(rows: Rows, order: str = USUAL_ORDER) -> Plan:
    """Digits that realise the rows of both grids: on each level the axes of a grid in their order, fastest first."""
    dense, expert = grids_of(order)
    return Plan(_plain(rows, dense), _plain(rows, expert))


def _plain(rows: Rows, grid: Grid) -> tuple[Digit, ...]:
    digits = []
    for level in range(len(rows.used)):
        stride = 1
        for axis in grid:
            ways = rows.by_axis[axis][level]
            digits.append(Digit(level, axis, ways, stride))
            stride *= ways
    return tuple(digits)


def chained_digits(rows: Rows, order: str = USUAL_ORDER) -> Plan | None:
    """Digits such that counting through one grid in an order also counts through the other (Megatron-LM's ranks).

    Every digit belongs to one axis of each grid. In one order of all digits both grids' axes must come one after the
    other, so the pairs that occur form a chain, and how many of each pair there are is settled by the sizes; left is
    how levels share them, prime by prime. None when there is no such way.
    """
    first, second = grids_of(order)
    levels = len(rows.used)
    ways = [[[1] * 3 for _ in range(3)] for _ in range(levels)]
    pairs: set[tuple[int, int]] = set()
    for prime in _primes(math.prod(rows.used)):
        dense = [[_power(rows.by_axis[axis][level], prime) for axis in first[:3]] for level in range(levels)]
        expert = [[_power(rows.by_axis[axis][level], prime) for axis in second[:3]] for level in range(levels)]
        total = _corner(
            [sum(column) for column in zip(*dense, strict=True)], [sum(c) for c in zip(*expert, strict=True)]
        )
        tables = _shared(dense, expert, total)
        if tables is None:
            return None
        for level, table in enumerate(tables):
            for i, k in itertools.product(range(3), range(3)):
                ways[level][i][k] *= prime ** table[i][k]
                if table[i][k]:
                    pairs.add((i, k))
    if any(i < x and k > y for i, k in pairs for x, y in pairs) or not _inner_first(ways, first.index("cp")):
        return None
    return _chain(rows, ways, sorted(pairs), (first, second))


def _inner_first(ways: Sequence[Sequence[Sequence[int]]], context: int) -> bool:
    """True when CP counts through the levels from the inside out: its ring runs in the order of ranks."""
    last = 0
    for k in range(3):
        used = [level for level, table in enumerate(ways) if table[context][k] > 1]
        if used and used[0] < last:
            return False
        last = max([last, *used])
    return True


def _chain(
    rows: Rows,
    ways: Sequence[Sequence[Sequence[int]]],
    pairs: Sequence[tuple[int, int]],
    grids: tuple[Grid, Grid],
) -> Plan:
    """Digits pair by pair, inside a pair from the innermost level outward; PP last on every level."""
    stride = [1] * len(rows.used)
    dense, expert = [], []
    for i, k in pairs:
        for level in range(len(rows.used)):
            count = ways[level][i][k]
            dense.append(Digit(level, grids[0][i], count, stride[level]))
            expert.append(Digit(level, grids[1][k], count, stride[level]))
            stride[level] *= count
    for level, cut in enumerate(rows.by_axis["pp"]):
        dense.append(Digit(level, "pp", cut, stride[level]))
        expert.append(Digit(level, "pp", cut, stride[level]))
    return Plan(tuple(dense), tuple(expert))


def _primes(number: int) -> list[int]:
    found, prime = [], 2
    while number > 1:
        if number % prime == 0:
            found.append(prime)
            while number % prime == 0:
                number //= prime
        prime += 1
    return found


def _power(number: int, prime: int) -> int:
    count = 0
    while number % prime == 0:
        number //= prime
        count += 1
    return count


def _corner(rows: Sequence[int], columns: Sequence[int]) -> Table:
    """The table with these sums whose entries run along one chain (north-west corner rule)."""
    left, below = list(rows), list(columns)
    table = [[0] * len(columns) for _ in rows]
    i = k = 0
    while i < len(left) and k < len(below):
        taken = min(left[i], below[k])
        table[i][k] += taken
        left[i] -= taken
        below[k] -= taken
        if left[i] == 0:
            i += 1
        else:
            k += 1
    return tuple(map(tuple, table))


def _shared(rows: list[list[int]], columns: list[list[int]], total: Table) -> list[Table] | None:
    """A table per level with that level's sums, which add up to the total; None when there is none."""
    if not rows:
        return [] if not any(map(any, total)) else None
    for table in _tables(rows[0], columns[0], total):
        left = tuple(tuple(a - b for a, b in zip(x, y, strict=True)) for x, y in zip(total, table, strict=True))
        rest = _shared(rows[1:], columns[1:], left)
        if rest is not None:
            return [table, *rest]
    return None


def _tables(rows: Sequence[int], columns: Sequence[int], most: Table) -> Iterator[Table]:
    """Tables with these sums and no entry above `most`."""
    if not rows:
        if not any(columns):
            yield ()
        return
    for row in itertools.product(*(range(min(a, b) + 1) for a, b in zip(columns, most[0], strict=True))):
        if sum(row) == rows[0]:
            left = [a - b for a, b in zip(columns, row, strict=True)]
            for rest in _tables(rows[1:], left, most[1:]):
                yield (row, *rest)
