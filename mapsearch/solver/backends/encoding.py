"""The model that CP-SAT and MILP share before either library sees it: literals, rounded sums, and cuts.

Contents: EncodedCell, Encoding, Cut, restricted, floor_s, encode, matching, members, parts.

A cell has one literal y, one per attention option and one per expert option; the literals of either grid sum to y and
the y of all cells sum to 1. Step time and relations are `Rounded` values; a relation is `value <= its error`, so that
no pair that floats call feasible is lost. Pairs that only this allowance lets in are cut off when they turn up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.quantity import Num
from mapsearch.solver.backends.base import pair_key
from mapsearch.solver.cells import CellProblem, GridList, expressions
from mapsearch.solver.expression import Expr
from mapsearch.solver.problem import Problem
from mapsearch.solver.quantise import Rounded, largest, option_floors, rounded, safe_scale
from mapsearch.solver.top import Key

TIME_ULPS = 1e9
"""Ulps in the reference step time: errors of a few dozen ulps stay below 1e-7 of it."""
RELATION_ULPS = 1e7
"""Ulps in a relation's limit; pairs nearer to it are settled in floats, so a coarser unit is enough."""
FLOAT_SLACK = 1e-9
"""Relative rounding of float sums that a floor has to exceed a limit by, before its option is dropped."""

Positions = NDArray[np.intp]
Cut = list[tuple[int, Positions, Positions]]
"""Per cell, attention and expert options; of all their literals at most one may be set."""


@dataclass(frozen=True)
class EncodedCell:
    """One cell in ulps."""

    cell: CellProblem
    time: Rounded
    relations: tuple[tuple[str, float, Rounded], ...]
    """Name, ulps per unit, and demand - limit in ulps."""


@dataclass(frozen=True)
class Encoding:
    """Cells of one model."""

    cells: list[EncodedCell]
    scale: float
    """Ulps per second."""
    error: int
    """Ulps that a step time may be off by, tolerance of the solver included."""
    tolerance: int
    """Ulps that the solver itself may be off by, in any sum."""

    @property
    def literals(self) -> int:
        """Literals of all options."""
        return sum(len(c.cell.attention) + len(c.cell.expert) for c in self.cells)


def _taken(options: GridList, keep: Positions) -> GridList:
    def pick(value: Num) -> Num:
        return np.asarray(value)[keep]

    return GridList(
        positions=options.positions[keep],
        sums={classes: [stage.each(pick) for stage in stages] for classes, stages in options.sums.items()},
        memory=[pick(value) for value in options.memory],
        host=[pick(value) for value in options.host],
        nvme=[pick(value) for value in options.nvme],
    )


def taken(cell: CellProblem, attention: Positions, expert: Positions) -> CellProblem:
    """The cell with some of its options."""
    return replace(cell, attention=_taken(cell.attention, attention), expert=_taken(cell.expert, expert))


def _excesses(problem: Problem, cell: CellProblem) -> tuple[Expr, list[tuple[str, float, Expr]]]:
    """Step time, and demand - limit of each pair relation with the size of its limit, over the cell's literals."""
    view = expressions(cell)
    zero = Expr(np.zeros(len(cell.attention)), np.zeros(len(cell.expert)))
    found = []
    for relation in problem.side("pair"):
        demand, limit = zero + relation.demand(view), zero + relation.limit(view)
        found.append((relation.name, _size(limit) or _size(demand) or 1.0, demand - limit))
    return zero + view.step_time_s, found


def _size(value: Expr) -> float:
    """Typical magnitude of a limit: its constant, or the least floor of its options."""
    if value.is_constant:
        return abs(value.constant)
    floors = np.abs(option_floors(value)[0])
    floors = floors[np.isfinite(floors)]
    return float(floors.min(initial=np.inf)) if len(floors) else 0.0


def restricted(problem: Problem, cell: CellProblem, cutoff_s: float = np.inf) -> tuple[CellProblem, int]:
    """The cell without options that no partner can save: their own floor breaks a relation or lies above the cutoff.

    Returns the cell and how many options were dropped. Options without a finite step time are dropped as well.
    """
    dropped = 0
    while len(cell.attention) and len(cell.expert):
        time, relations = _excesses(problem, cell)
        with np.errstate(invalid="ignore"):
            floors = option_floors(time)
            keep = [np.isfinite(floor) & (floor <= cutoff_s * (1.0 + FLOAT_SLACK)) for floor in floors]
            for _, size, excess in relations:
                floors = option_floors(excess)
                keep = [k & ~(floor > size * FLOAT_SLACK) for k, floor in zip(keep, floors, strict=True)]
        gone = sum(int((~k).sum()) for k in keep)
        if not gone:
            break
        dropped += gone
        cell = taken(cell, np.flatnonzero(keep[0]), np.flatnonzero(keep[1]))
    return cell, dropped


def floor_s(problem: Problem, cell: CellProblem) -> float:
    """A step time that no pair of a cell is below, from the options' own floors."""
    return float(option_floors(_excesses(problem, cell)[0])[0].min())


def encode(problem: Problem, cells: list[CellProblem], cutoff_s: float, tolerance: int) -> Encoding:
    """The cells in ulps of the cutoff, or of the smallest floor when there is none. Raises nothing: scales to fit."""
    parts = [_excesses(problem, cell) for cell in cells]
    terms = sum(len(cell.attention) + len(cell.expert) for cell in cells) * 4
    reference = cutoff_s
    if not np.isfinite(reference):
        reference = min((float(option_floors(time)[0].min()) for time, _ in parts), default=1.0)
    scale = TIME_ULPS / reference if reference > 0.0 else TIME_ULPS
    scale = min((safe_scale(scale, largest(time), terms) for time, _ in parts), default=scale)
    encoded = []
    for cell, (time, relations) in zip(cells, parts, strict=True):
        rows = []
        for name, size, excess in relations:
            unit = safe_scale(RELATION_ULPS / size, largest(excess), terms)
            rows.append((name, unit, rounded(excess, unit)))
        encoded.append(EncodedCell(cell, rounded(time, scale), tuple(rows)))
    error = max((cell.time.error for cell in encoded), default=0) + tolerance
    return Encoding(encoded, scale, error, tolerance)


def matching(encoding: Encoding, key: Key) -> Cut:
    """The options of each cell that make up a mapping: all its placements."""
    cut: Cut = []
    for number, encoded in enumerate(encoding.cells):
        options = members(encoded.cell, key)
        if options is not None:
            cut.append((number, *options))
    return cut


def members(cell: CellProblem, key: Key) -> tuple[Positions, Positions] | None:
    """Attention and expert options of a cell whose pairs have this key, None when there is no such pair."""
    base = pair_key(cell, 0, 0)
    if (base[3], base[7:-2]) != (key[3], key[7:-2]):  # stages and variant, which the whole cell shares
        return None
    found = []
    for options, table, sizes, choice in (
        (cell.attention, cell.tables.attention, key[:3], key[-2]),
        (cell.expert, cell.tables.expert, key[4:7], key[-1]),
    ):
        mask = table.options.choice[options.positions] == choice
        for own, size in zip(table.options.sizes, sizes, strict=True):
            mask &= own[options.positions] == size
        found.append(np.flatnonzero(mask))
    return (found[0], found[1]) if len(found[0]) and len(found[1]) else None


def parts(cells: list[CellProblem], most_literals: int) -> Iterator[list[CellProblem]]:
    """The cells in order, in lists of at most so many literals (but at least one cell)."""
    chunk: list[CellProblem] = []
    literals = 0
    for cell in cells:
        size = len(cell.attention) + len(cell.expert)
        if not len(cell.attention) or not len(cell.expert):
            continue
        if chunk and literals + size > most_literals:
            yield chunk
            chunk, literals = [], 0
        chunk.append(cell)
        literals += size
    if chunk:
        yield chunk
