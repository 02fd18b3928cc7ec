"""One cell as a small joint problem: two option lists, and a composition that couples them.

Contents: Pair, CellProblem, cell_problem, evaluate, expressions.

This is what every backend solves: the exhaustive one by evaluating all pairs, CP-SAT and MILP by encoding the same
composition over 0/1 literals of the options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.constraints.views import PairView
from mapsearch.costs.step import ALL_CLASSES, StageSum, Timing, step_time_s
from mapsearch.quantity import Floats, Num, maximum
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


def _picked(value: Num, index: Index, positions: NDArray[np.intp]) -> Floats:
    values = at(value, index)
    if values.ndim == 0 or values.shape[-1] == 1:
        return np.broadcast_to(values.reshape(-1)[:1], (len(positions),)).astype(float)
    return values[positions]


def _stage(stage: StageSum, pick: Callable[[Num], Num]) -> StageSum:
    return StageSum(*(pick(getattr(stage, name)) for name in StageSum.__dataclass_fields__))


def _grid_list(table: GridTable, index: Index, positions: NDArray[np.intp]) -> GridList:
    def pick(value: Num) -> Floats:
        return _picked(value, index, positions)

    entries = table.memory.entry[positions]
    return GridList(
        positions=positions,
        sums={classes: [_stage(s, pick) for s in stages] for classes, stages in table.sums.items()},
        memory=[_picked(value, index, entries) for value in table.memory.hbm],
        host=[_picked(value, index, entries) for value in table.memory.host],
    )


def scalar(value: Num, index: Index) -> float:
    """A cell value of a table as a number."""
    return float(at(value, index).reshape(-1)[0])


def expert_index(tables: Tables, index: Index) -> Index:
    """Where the expert tables hold a cell: by its product of DP and microbatch."""
    batch = int(np.asarray(tables.cell.micro_batch).reshape(-1)[index[1]])
    product = int(np.searchsorted(tables.products, tables.dp[index[0]] * batch))
    return (product, 0, *index[2:])


def cell_problem(tables: Tables, index: Index) -> CellProblem:
    """The joint problem of one cell; its lists hold the options that their own relations allow."""
    table_a, table_e = tables.attention, tables.expert
    index_a, index_e = (0, *index[1:]), expert_index(tables, index)
    own_dp = table_a.options.sizes[2] == tables.dp[index[0]]
    all_a, all_e = np.arange(len(own_dp)), np.arange(len(table_e.options))
    attention = np.flatnonzero(own_dp & _picked(table_a.allowed, index_a, all_a).astype(bool))
    expert = np.flatnonzero(_picked(table_e.allowed, index_e, all_e).astype(bool))
    constants = tables.timing
    weights = [scalar(weight, index) for weight in constants.ramp_weights]
    return CellProblem(
        tables=tables,
        index=index,
        attention=_grid_list(table_a, index_a, attention),
        expert=_grid_list(table_e, index_e, expert),
        own={
            classes: [_stage(s, lambda value: scalar(value, index)) for s in stages]
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

    def stages(classes: frozenset[str]) -> list[StageSum]:
        sides = zip(cell.attention.sums[classes], cell.expert.sums[classes], cell.own[classes], strict=True)
        return [_stage(a, left) + _stage(e, right) + c for a, e, c in sides]

    def timed(classes: frozenset[str]) -> Num:
        return step_time_s(stages(classes), cell.timing)

    memory = [left(a) + right(e) for a, e in zip(cell.attention.memory, cell.expert.memory, strict=True)]
    host = [left(a) + right(e) for a, e in zip(cell.attention.host, cell.expert.host, strict=True)]
    return PairView(cell.tables.cell, timed(ALL_CLASSES), memory, maximum(host[0], *host[1:]), timed)


def pair_view(cell: CellProblem) -> PairView:
    """All pairs at once: arrays of shape (attention options, expert options)."""
    return _joined(cell, lambda a: np.asarray(a)[:, None], lambda e: np.asarray(e)[None, :])


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
    """All pairs of one cell: step times, infinite where a relation is broken."""

    step_time_s: Floats
    """Shape (attention options, expert options)."""
    feasible: NDArray[np.bool_]


def evaluate(problem: Problem, cell: CellProblem) -> Evaluation:
    """Every pair of a cell, exactly: step time and whether all pair relations hold."""
    view = pair_view(cell)
    shape = (len(cell.attention), len(cell.expert))
    feasible = np.ones(shape, dtype=bool)
    for relation in problem.side("pair"):
        feasible &= relation.demand(view) <= relation.limit(view)
    return Evaluation(np.broadcast_to(view.step_time_s, shape), feasible)
