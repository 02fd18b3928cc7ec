"""One cell as a small joint problem: two option lists, and a composition that couples them.

Contents: GridList, CellProblem, cell_problem, pair_view, expressions, evaluate, Block, block_of, block_rows,
option_bounds, option_bytes, widened, evaluate_block.

This is what every backend solves: the exhaustive one by evaluating all pairs, CP-SAT and MILP by encoding the same
composition over 0/1 literals of the options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.arrays import PLAIN
from mapsearch.constraints.views import PairView
from mapsearch.costs.step import ALL_CLASSES, StageSum, Timing, step_time_s
from mapsearch.quantity import Floats, Num, added, maximum
from mapsearch.solver import expression
from mapsearch.solver.problem import Problem
from mapsearch.solver.tables import GridTable, Tables, at

Index = tuple[int, ...]
"""Position of a cell in its tables: (dp, micro_batch, pipeline, recompute, zero, offload)."""


@dataclass(frozen=True)
class GridList:
    """One grid's allowed options in one cell; arrays over those options."""

    positions: NDArray[np.intp]
    """Position of each option in the group's list."""
    sums: dict[frozenset[str], list[StageSum]]
    memory: list[Floats]
    host: list[Floats]
    nvme: list[Floats]

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class CellProblem:
    """A cell with the options that its grids may take."""

    tables: Tables
    index: Index
    attention: GridList
    expert: GridList
    own: dict[frozenset[str], list[StageSum]]
    timing: Timing


class _Rows:
    """Reads tables at several cells; where the rows of a table's values lie is worked out once for each shape."""

    def __init__(self, index: tuple[NDArray[np.int64], ...]) -> None:
        self.index = index
        self.rows: dict[tuple[int, ...], NDArray[np.int64]] = {}
        self.places: dict[tuple[tuple[int, ...], int], NDArray[np.int64]] = {}

    def __call__(self, value: Num, positions: NDArray[np.intp] | None = None) -> Num:
        """Values of the cells, shape (cells, options), or (1, options) for what all cells share; numbers stay numbers.

        With positions only those options, unless one value stands for all.
        """
        if type(value) in PLAIN:
            return float(value)
        array = np.asarray(value)
        if array.ndim == 0:
            return array.item()
        if positions is None or array.shape[-1] == 1:
            return array.reshape(-1, array.shape[-1])[self._rows(array.shape[:-1])]
        # Arrays of tables lie in a row; where one does not, `reshape` copies it, and nothing else changes.
        return array.reshape(-1).take(self._places(array.shape, positions))

    def _rows(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Row of each cell in the table with its last dimension kept; one row where no dimension tells cells apart."""
        if shape not in self.rows:
            rows = np.zeros(1, dtype=np.int64)
            for place, size in zip(self.index, shape, strict=True):
                rows = rows * size + place if size > 1 else rows
            self.rows[shape] = rows
        return self.rows[shape]

    def _places(self, shape: tuple[int, ...], positions: NDArray[np.intp]) -> NDArray[np.int64]:
        place = shape, id(positions)
        if place not in self.places:
            self.places[place] = self._rows(shape[:-1])[:, None] * shape[-1] + positions
        return self.places[place]


def _filled(value: Num, index: Index, positions: NDArray[np.intp]) -> Floats:
    """A table's values for one cell at some options, one per option also where all share it."""
    values = at(value, index) if np.ndim(value) else value
    if np.size(values) > 1:
        return np.asarray(values)[positions].astype(float, copy=False)
    return np.full(len(positions), values, dtype=float)


def _grid_list(table: GridTable, positions: NDArray[np.intp], pick: Callable[[Num, NDArray[np.intp]], Num]) -> GridList:
    entries = table.memory.entry[positions]
    return GridList(
        positions=positions,
        sums={
            classes: [s.each(lambda value: pick(value, positions)) for s in stages]
            for classes, stages in table.sums.items()
        },
        memory=[pick(value, entries) for value in table.memory.hbm],
        host=[pick(value, entries) for value in table.memory.host],
        nvme=[pick(value, entries) for value in table.memory.nvme],
    )


def scalar(value: Num, index: Index) -> float:
    """A cell value of a table as a number."""
    return float(at(value, index).reshape(-1)[0])


def expert_index(tables: Tables, index: Index) -> Index:
    """Where the expert tables hold a cell: by its product of DP and microbatch."""
    batch = int(np.asarray(tables.cell.micro_batch).reshape(-1)[index[1]])
    product = min(int(np.searchsorted(tables.products, tables.dp[index[0]] * batch)), len(tables.products) - 1)
    return (product, 0, *index[2:])


def cell_problem(tables: Tables, index: Index) -> CellProblem:
    """The joint problem of one cell; its lists hold the options that their own relations allow."""
    table_a, table_e = tables.attention, tables.expert
    index_a, index_e = (0, *index[1:]), expert_index(tables, index)
    own_dp = table_a.options.sizes[2] == tables.dp[index[0]]
    all_a, all_e = np.arange(len(own_dp)), np.arange(len(table_e.options))
    attention = np.flatnonzero(own_dp & _filled(table_a.allowed, index_a, all_a).astype(bool))
    expert = np.flatnonzero(_filled(table_e.allowed, index_e, all_e))
    constants = tables.timing
    weights = [scalar(weight, index) for weight in constants.ramp_weights]
    return CellProblem(
        tables=tables,
        index=index,
        attention=_grid_list(table_a, attention, lambda value, own: _filled(value, index_a, own)),
        expert=_grid_list(table_e, expert, lambda value, own: _filled(value, index_e, own)),
        own={
            classes: [s.each(lambda value: scalar(value, index)) for s in stages]
            for classes, stages in tables.own.items()
        },
        timing=replace(
            constants,
            steady_rounds=scalar(constants.steady_rounds, index),
            ramp_scale=scalar(constants.ramp_scale, index),
            ramp_weights=(weights[0], weights[1], weights[2]),
            counts=[scalar(count, index) for count in constants.counts],
        ),
    )


def _joined(cell: CellProblem, left: Callable[[Num], Num], right: Callable[[Num], Num]) -> PairView:
    """The pair view of a cell whose grids' arrays are wrapped by `left` and `right`."""

    def timed(classes: frozenset[str]) -> Num:
        sides = zip(cell.attention.sums[classes], cell.expert.sums[classes], cell.own[classes], strict=True)
        # The cell's sums meet those of the smaller list, before there are pairs.
        return step_time_s([a.each(left) + (e.each(right) + c) for a, e, c in sides], cell.timing)

    def summed(values: list[Floats], others: list[Floats]) -> list[Num]:
        return [added(left(a), right(e)) for a, e in zip(values, others, strict=True)]

    a, e = cell.attention, cell.expert
    host, nvme = summed(a.host, e.host), summed(a.nvme, e.nvme)
    return PairView(
        cell=cell.tables.cell,
        step_time_s=timed(ALL_CLASSES),
        memory=summed(a.memory, e.memory),
        host_bytes=maximum(host[0], *host[1:]),
        nvme_bytes=maximum(nvme[0], *nvme[1:]),
        without=timed,
    )


def pair_view(cell: CellProblem) -> PairView:
    """All pairs at once: arrays of shape (attention options, expert options), or (cells, ..., ...) for a block."""

    def left(values: Num) -> Num:
        return values if type(values) in PLAIN else values[..., :, None]

    def right(values: Num) -> Num:
        return values if type(values) in PLAIN else values[..., None, :]

    return _joined(cell, left, right)


def expressions(cell: CellProblem) -> PairView:
    """The same composition over the literals of the options, for an encoder."""
    attentions, experts = len(cell.attention), len(cell.expert)
    return _joined(
        cell,
        lambda values: expression.attention(values, experts),
        lambda values: expression.expert(values, attentions),
    )


@dataclass(frozen=True)
class Evaluation:
    """All pairs of one cell, or of a block of cells with the cell first."""

    step_time_s: Floats
    """Shape (attention options, expert options)."""
    feasible: NDArray[np.bool_]
    view: PairView
    """The pairs as relations see them."""


def evaluate(problem: Problem, cell: CellProblem) -> Evaluation:
    """Every pair of a cell, exactly: step time and whether all pair relations hold."""
    return _evaluated(problem, cell, (len(cell.attention), len(cell.expert)))


def _evaluated(problem: Problem, cell: CellProblem, shape: tuple[int, ...]) -> Evaluation:
    view = pair_view(cell)
    feasible = np.ones(shape, dtype=bool)
    for relation in problem.side("pair"):
        feasible &= relation.demand(view) <= relation.limit(view)
    return Evaluation(np.broadcast_to(view.step_time_s, shape), feasible, view)


@dataclass(frozen=True)
class Block:
    """Several cells of one DP size, evaluated together; arrays start with the cell."""

    tables: Tables
    cells: list[Index]
    problem: CellProblem
    """The cells as one joint problem: every field has the cell as its first dimension."""
    allowed_attention: NDArray[np.bool_]
    allowed_expert: NDArray[np.bool_]


def block_of(tables: Tables, cells: list[Index], own: NDArray[np.intp], every: NDArray[np.intp]) -> Block:
    """Cells of one DP size with some of the options of each grid (by position)."""
    index = tuple(np.array(cells).T)
    nowhere = np.zeros_like(index[0])
    index_a = (nowhere, *index[1:])
    # As `expert_index`, for all cells at once.
    fed = tables.dp[index[0]] * np.asarray(tables.cell.micro_batch).reshape(-1)[index[1]]
    products = np.minimum(np.searchsorted(tables.products, fed), len(tables.products) - 1)
    index_e = (products, nowhere, *index[2:])

    cells_at, rows_a, rows_e = _Rows(index), _Rows(index_a), _Rows(index_e)
    constants = tables.timing
    weights = [cells_at(weight) for weight in constants.ramp_weights]
    joined = CellProblem(
        tables=tables,
        index=cells[0],
        attention=_grid_list(tables.attention, own, rows_a),
        expert=_grid_list(tables.expert, every, rows_e),
        own={classes: [s.each(cells_at) for s in stages] for classes, stages in tables.own.items()},
        timing=replace(
            constants,
            steady_rounds=cells_at(constants.steady_rounds),
            ramp_scale=cells_at(constants.ramp_scale),
            ramp_weights=(weights[0], weights[1], weights[2]),
            counts=[cells_at(count) for count in constants.counts],
        ),
    )
    allowed_a, allowed_e = rows_a(tables.attention.allowed, own), rows_e(tables.expert.allowed, every)
    return Block(tables, cells, joined, np.asarray(allowed_a, dtype=bool), np.asarray(allowed_e, dtype=bool))


def block_rows(block: Block) -> Callable[[Num], Num]:
    """Reads what a slice holds of its cells (a grid's best sums) at the cells of a block."""
    index = tuple(np.array(block.cells).T)
    return _Rows((np.zeros_like(index[0]), *index[1:]))


def option_bounds(block: Block, best_attention: list[StageSum], best_expert: list[StageSum]) -> tuple[Floats, Floats]:
    """Lower bounds of every option of both grids, each with the best the other grid could add.

    Shapes: (cells, attention options) and (cells, expert options).
    """
    joined, own = block.problem, block.problem.own[ALL_CLASSES]
    rows = block_rows(block)

    def here(stage: StageSum) -> StageSum:
        return stage.each(rows)

    with_a = [a + (here(e) + c) for a, e, c in zip(joined.attention.sums[ALL_CLASSES], best_expert, own, strict=True)]
    with_e = [e + (here(a) + c) for a, e, c in zip(best_attention, joined.expert.sums[ALL_CLASSES], own, strict=True)]
    with np.errstate(invalid="ignore"):
        bounds = [np.asarray(step_time_s(stages, joined.timing)) for stages in (with_a, with_e)]
    shapes = [(len(block.cells), len(joined.attention)), (len(block.cells), len(joined.expert))]
    first, second = (np.broadcast_to(np.nan_to_num(b, nan=-np.inf), s) for b, s in zip(bounds, shapes, strict=True))
    return np.where(block.allowed_attention, first, np.inf), np.where(block.allowed_expert, second, np.inf)


def option_bytes(block: Block) -> tuple[Floats, Floats]:
    """Bytes that the worst stage needs at least with each option of both grids, beside the smallest of the other grid.

    Shapes: (cells, attention options) and (cells, expert options).
    """
    a, e = block.problem.attention, block.problem.expert
    floors = []
    for mine, other in ((a, e), (e, a)):
        kinds = (m + o.min(axis=-1, keepdims=True) for m, o in zip(mine.memory, other.memory, strict=True))
        shape = (len(block.cells), len(mine))
        floors.append(np.maximum.reduce([np.broadcast_to(each, shape) for each in kinds]))
    return floors[0], floors[1]


def widened(block: Block) -> CellProblem:
    """The block's problem with its cell values ready to meet pairs: shape (cells, 1, 1)."""
    joined, timing = block.problem, block.problem.timing
    weights = [_wide(weight) for weight in timing.ramp_weights]
    return replace(
        joined,
        own={classes: [s.each(_wide) for s in stages] for classes, stages in joined.own.items()},
        timing=replace(
            timing,
            steady_rounds=_wide(timing.steady_rounds),
            ramp_scale=_wide(timing.ramp_scale),
            ramp_weights=(weights[0], weights[1], weights[2]),
            counts=[_wide(count) for count in timing.counts],
        ),
    )


def evaluate_block(problem: Problem, block: Block) -> Evaluation:
    """Every pair of several cells; options that a cell does not allow are infeasible.

    Shapes: (cells, attention options, expert options).
    """
    joined = block.problem
    shape = (len(block.cells), len(joined.attention), len(joined.expert))
    result = _evaluated(problem, widened(block), shape)
    allowed = block.allowed_attention[..., :, None] & block.allowed_expert[..., None, :]
    return Evaluation(result.step_time_s, result.feasible & allowed, result.view)


def _wide(value: Num) -> Num:
    return value if type(value) in PLAIN else value[..., None]
