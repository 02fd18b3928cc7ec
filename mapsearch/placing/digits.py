"""How the two grids share the units of each level: digits of the unit's index, each for one axis.

Contents: Digit, Plan, joint_digits.
"""

from __future__ import annotations

from dataclasses import dataclass

from mapsearch.axes import ATTENTION_GRID, EXPERT_GRID
from mapsearch.costs.placement import Rows


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


def joint_digits(rows: Rows) -> Plan:
    """Digits that realise the rows of both grids: on each level TP, CP, DP, PP and ETP, EP, EDP, PP, fastest first."""
    return Plan(_plain(rows, ATTENTION_GRID), _plain(rows, EXPERT_GRID))


def _plain(rows: Rows, grid: tuple[str, ...]) -> tuple[Digit, ...]:
    digits = []
    for level in range(len(rows.used)):
        stride = 1
        for axis in grid:
            ways = rows.by_axis[axis][level]
            digits.append(Digit(level, axis, ways, stride))
            stride *= ways
    return tuple(digits)
