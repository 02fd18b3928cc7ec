"""Tables: everything a group of cells needs, evaluated once per grid and joined later.

Contents: Group, Tables, tabulate, at.

A group is one way to use the fabric and one pipeline row. Its arrays have the dimensions (dp, micro_batch, pipeline,
recompute, zero, offload, option); each quantity fills only the dimensions in its scope, the rest stay 1 and
broadcast. The attention options carry their own DP, so their tables have no dp dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.costs.sides import attention_side, cell_side, expert_side
from mapsearch.costs.step import ALL_CLASSES, Side, StageSum, Timing, sums, timing
from mapsearch.costs.views import AttentionView, CellView, ExpertView
from mapsearch.quantity import Floats, Num
from mapsearch.solver.options import Options, attention_options, expert_options
from mapsearch.solver.problem import Problem

Mask = NDArray[np.bool_]
VARIANTS = 5
"""Variant dimensions between dp and option."""


@dataclass(frozen=True)
class Group:
    """One used fan-out and one pipeline row: the cells that share their option lists."""

    used: tuple[int, ...]
    pp_row: tuple[int, ...]

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        return int(np.prod(self.pp_row))

    @property
    def rest(self) -> tuple[int, ...]:
        """Fan-out per level that the pipeline leaves to the grids."""
        return tuple(size // cut for size, cut in zip(self.used, self.pp_row, strict=True))


@dataclass(frozen=True)
class GridTable:
    """One grid's options in one group: sums, memory and the mask of those its own relations allow."""

    options: Options
    allowed: Mask
    sums: dict[frozenset[str], list[StageSum]]
    """Sums per set of communication classes that is asked for."""
    memory: list[Num]
    host: list[Num]


@dataclass(frozen=True)
class Tables:
    """All a group of cells needs."""

    group: Group
    dp: NDArray[np.int64]
    """DP sizes of the group's cells."""
    cell: CellView
    """The cell with the dp dimension."""
    allowed: Mask
    """Cells that the cell relations allow, shape (dp, variants...)."""
    attention: GridTable
    expert: GridTable
    own: dict[frozenset[str], list[StageSum]]
    timing: Timing


def _axis(values: object, position: int) -> NDArray[np.int64]:
    """Values laid along one dimension of the table; `position` -1 is the option dimension."""
    array = np.asarray(values, dtype=np.int64)
    shape = [1] * (VARIANTS + 2)
    shape[position] = len(array)
    return array.reshape(shape)


def cell_view(problem: Problem, group: Group, dp: NDArray[np.int64], **chosen: tuple[int, ...]) -> CellView:
    """A cell view whose variant axes hold all candidates, or those chosen by name."""
    values = {**problem.candidates, "pipeline": problem.pipelines(group.pp), **chosen}
    pipelines = np.array(values["pipeline"], dtype=np.int64).reshape(-1, 2)
    return CellView(
        facts=problem.facts,
        used=group.used,
        pp_row=group.pp_row,
        dp=dp,
        micro_batch=_axis(values["micro_batch"], 1),
        schedule=_axis(pipelines[:, 0], 2),
        vpp=_axis(pipelines[:, 1], 2),
        recompute=_axis(values["recompute"], 3),
        zero=_axis(values["zero"], 4),
        offload=_axis(values["offload"], 5),
    )


def _rows(row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows laid along the option dimension, the level last."""
    return row.reshape((1,) * (VARIANTS + 1) + row.shape)


def attention_view(cell: CellView, options: Options) -> AttentionView:
    """The attention options of a cell view as a relation or quantity sees them."""
    tp, cp, _ = (_axis(size, -1) for size in options.sizes)
    tp_row, cp_row, dp_row = (_rows(row) for row in options.rows)
    return AttentionView(cell, tp, cp, tp_row, cp_row, dp_row, _axis(options.choice, -1))


def expert_view(cell: CellView, options: Options) -> ExpertView:
    """The expert options of a cell view as a relation or quantity sees them."""
    etp, ep, edp = (_axis(size, -1) for size in options.sizes)
    etp_row, ep_row, edp_row = (_rows(row) for row in options.rows)
    return ExpertView(cell, etp, ep, edp, etp_row, ep_row, edp_row, _axis(options.choice, -1))


def holds(relation: object, view: object) -> Num:
    """Where a relation's margin is not negative."""
    return np.asarray(relation.demand(view)) <= np.asarray(relation.limit(view))  # type: ignore[attr-defined]


def _allowed(problem: Problem, side: str, view: object, shape: tuple[int, ...]) -> Mask:
    mask = np.ones(shape, dtype=bool)
    for relation in problem.side(side):  # type: ignore[arg-type]
        mask = mask & holds(relation, view)
    return mask


def _grid_table(options: Options, allowed: Mask, side: Side, cell: CellView, asked: list[frozenset[str]]) -> GridTable:
    kinds = range(len(cell.kinds))
    return GridTable(
        options=options,
        allowed=allowed,
        sums={classes: sums(side, cell, classes) for classes in asked},
        memory=[side.memory_bytes(kind) for kind in kinds],
        host=[side.host[kind] if side.host else 0.0 for kind in kinds],
    )


def class_sets(problem: Problem) -> list[frozenset[str]]:
    """Sets of communication classes that the problem's relations compare the step with."""
    run = problem.facts.run
    asked = [ALL_CLASSES]
    if run.exposed_limit < 1.0:
        asked.append(frozenset())
    asked += [ALL_CLASSES - {name} for name in sorted(run.exposed_limit_by_class)]
    return list(dict.fromkeys(asked))


def grids(problem: Problem, group: Group) -> tuple[Options, Options]:
    """All options of both grids in a group, before any relation."""
    attention = attention_options(group.rest, problem.candidates["cp_kind"])
    expert = expert_options(group.rest, problem.candidates["dispatcher"], problem.facts.model.moe is not None)
    return attention, expert


def tabulate(problem: Problem, group: Group, *, prune: bool) -> Tables | None:
    """The tables of a group, or None when no cell or no option of a grid is allowed.

    `prune` keeps, of options that differ only in placement, those that no other one beats everywhere.
    """
    if not problem.pipelines(group.pp):
        return None
    attention, expert = grids(problem, group)
    attention = _legal(problem, "attention", group, attention)
    expert = _legal(problem, "expert", group, expert)
    feeds = np.isin(attention.sizes[2], problem.data_parallel)
    attention = attention.take(np.flatnonzero(feeds))
    dp = np.unique(attention.sizes[2])
    if not len(attention) or not len(expert):
        return None
    cell = cell_view(problem, group, _axis(dp, 0))
    shape = np.broadcast_shapes(*(np.shape(v) for v in (cell.dp, cell.micro_batch, cell.vpp, cell.recompute)))
    shape = np.broadcast_shapes(shape, cell.zero.shape, cell.offload.shape)
    allowed = np.broadcast_to(_allowed(problem, "cell", cell, shape), shape)
    if not allowed.any():
        return None
    if prune:
        from mapsearch.solver.dominance import undominated

        attention = attention.take(undominated(problem, group, attention, "attention"))
        expert = expert.take(undominated(problem, group, expert, "expert"))
    asked = class_sets(problem)
    own_dp = cell_view(problem, group, _axis(attention.sizes[2], -1))
    view, e_view = attention_view(own_dp, attention), expert_view(cell, expert)
    a_side, e_side, c_side = attention_side(view), expert_side(e_view), cell_side(cell)
    coupled = bool(a_side.under_compute or e_side.under_compute)
    return Tables(
        group=group,
        dp=dp,
        cell=cell,
        allowed=allowed,
        attention=_grid_table(
            attention, _allowed(problem, "attention", view, np.shape(view.tp)), a_side, own_dp, asked
        ),
        expert=_grid_table(expert, _allowed(problem, "expert", e_view, np.shape(e_view.ep)), e_side, cell, asked),
        own={classes: sums(c_side, cell, classes) for classes in asked},
        timing=timing(cell, coupled),
    )


def _legal(problem: Problem, side: str, group: Group, options: Options) -> Options:
    """Options that some variant of the group allows: most are cut here, before anything is costed."""
    dp = _axis(options.sizes[2], -1) if side == "attention" else _axis([1], 0)
    first = {name: problem.candidates[name][:1] for name in ("micro_batch", "recompute", "zero", "offload")}
    cell = cell_view(problem, group, dp, pipeline=problem.pipelines(group.pp)[:1], **first)
    view = attention_view(cell, options) if side == "attention" else expert_view(cell, options)
    mask = _allowed(problem, side, view, (1,) * (VARIANTS + 1) + (len(options),))
    return options.take(np.flatnonzero(mask.reshape(-1, len(options)).any(axis=0)))


def at(value: Num, index: tuple[int, ...]) -> Floats:
    """A table's values for one cell: broadcast dimensions are read at 0; the option dimension stays."""
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    return np.asarray(array[tuple(i if size > 1 else 0 for i, size in zip(index, array.shape, strict=False))])
