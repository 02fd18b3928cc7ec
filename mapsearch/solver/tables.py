"""Tables: everything a group of cells needs, evaluated once per grid and joined later.

Contents: Group, GridMemory, GridTable, Tables, cell_view, attention_view, expert_view, grids, tabulate, at.

A group is one way to use the fabric, one pipeline row, and the schedules that share a layout of layers. Its arrays
have the dimensions (dp, micro_batch, pipeline, recompute, zero, offload, option); each quantity fills only the
dimensions in its scope, the rest stay 1 and broadcast. Attention options carry their own DP, so their tables have no
dp dimension. What the expert grid costs depends on DP and microbatch only through their product (tokens per rank and
microbatches per step), so its first dimension is that product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import Schedule
from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.footprint import (
    attention_host,
    attention_memory,
    attention_nvme,
    expert_host,
    expert_memory,
    expert_nvme,
)
from mapsearch.costs.sides import attention_times, cell_side, expert_times
from mapsearch.costs.stages import TWO_CHUNK_SCHEDULES
from mapsearch.costs.step import ALL_CLASSES, Side, StageSum, Timing, sums, timing, weighed
from mapsearch.costs.views import AttentionView, CellView, ExpertView
from mapsearch.quantity import Floats, Num
from mapsearch.solver.options import Options, attention_options, expert_options
from mapsearch.solver.problem import Problem

Mask = NDArray[np.bool_]
VARIANTS = 5
"""Variant dimensions between dp and option."""


@dataclass(frozen=True)
class Group:
    """One used fan-out, one pipeline row and the (schedule, VPP) pairs of one layout: cells that share lists."""

    used: tuple[int, ...]
    pp_row: tuple[int, ...]
    pipelines: tuple[tuple[int, int], ...]

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        return int(np.prod(self.pp_row))

    @property
    def rest(self) -> tuple[int, ...]:
        """Fan-out per level that the pipeline leaves to the grids."""
        return tuple(size // cut for size, cut in zip(self.used, self.pp_row, strict=True))


def layout_class(schedule: int) -> str:
    """Schedules that put the same layers on a stage."""
    if schedule in TWO_CHUNK_SCHEDULES:
        return "folded"
    return "mirrored" if schedule == Schedule.DUALPIPE else "straight"


def groups_at(problem: Problem, used: tuple[int, ...], pp_row: tuple[int, ...]) -> list[Group]:
    """The groups of one pipeline row, one per layout of layers."""
    by_layout: dict[str, list[tuple[int, int]]] = {}
    for schedule, vpp in problem.pipelines(int(np.prod(pp_row))):
        by_layout.setdefault(layout_class(schedule), []).append((schedule, vpp))
    return [Group(used, pp_row, tuple(pairs)) for pairs in by_layout.values()]


@dataclass(frozen=True)
class GridMemory:
    """Bytes of one grid per kind of stage; they depend on sizes alone, so placements share an entry."""

    entry: NDArray[np.intp]
    """Entry of each option in the last dimension of the arrays."""
    hbm: list[Num]
    host: list[Num]
    nvme: list[Num]

    def take(self, index: NDArray[np.intp]) -> GridMemory:
        """The same bytes for some of the options; entries that no option uses any more are dropped."""
        used, entry = np.unique(self.entry[index], return_inverse=True)
        hbm, host, nvme = (
            [np.asarray(v)[..., used] if np.ndim(v) else v for v in values]
            for values in (self.hbm, self.host, self.nvme)
        )
        return GridMemory(entry, hbm, host, nvme)


def _entries(values: Num, used: NDArray[np.intp]) -> Num:
    return np.asarray(values)[..., used] if np.ndim(values) and np.shape(values)[-1] > 1 else values


@dataclass(frozen=True)
class GridTable:
    """One grid's options in one group: sums, memory and the mask of those its own relations allow."""

    options: Options
    allowed: Mask
    sums: dict[frozenset[str], list[StageSum]]
    """Sums per set of communication classes that is asked for."""
    memory: GridMemory


@dataclass(frozen=True)
class Tables:
    """All a group of cells needs."""

    group: Group
    dp: NDArray[np.int64]
    """DP sizes of the group's cells."""
    products: NDArray[np.int64]
    """Values of DP x microbatch, the first dimension of the expert tables."""
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


def cell_view(problem: Problem, group: Group, dp: NDArray[np.int64], **chosen: tuple[Any, ...]) -> CellView:
    """A cell view whose variant axes hold all candidates, or those chosen by name."""
    values = {**problem.candidates, "pipeline": group.pipelines, **chosen}
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


def expert_cell(problem: Problem, group: Group, products: NDArray[np.int64]) -> CellView:
    """The cell as the expert grid sees it: DP x microbatch in the place of DP."""
    return cell_view(problem, group, _axis(products, 0), micro_batch=(1,))


def _memory(problem: Problem, group: Group, options: Options, which: str, products: NDArray[np.int64]) -> GridMemory:
    """The bytes of every distinct size of a grid."""
    keys = np.column_stack([*options.sizes, options.choice]) if which == "expert" else np.column_stack(options.sizes)
    _, first, entry = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    distinct = options.take(first)
    if which == "attention":
        a_view = attention_view(cell_view(problem, group, _axis(distinct.sizes[2], -1)), distinct)
        kinds, parts = a_view.cell.kinds, attention_memory(a_view)
        host, nvme = attention_host(a_view), attention_nvme(a_view)
    else:
        e_view = expert_view(expert_cell(problem, group, products), distinct)
        kinds, parts = e_view.cell.kinds, expert_memory(e_view)
        host, nvme = expert_host(e_view), expert_nvme(e_view)
    side = Side(parts=[], memory=parts)
    hbm = [side.memory_bytes(kind) for kind in range(len(kinds))]
    nothing: list[Num] = [0.0 for _ in kinds]
    return GridMemory(entry.reshape(-1), hbm, host or nothing, nvme or nothing)


WHAT_IF = 1.25
"""Options are kept up to this share of usable HBM, so that the search can also say what more memory would unlock."""


def _can_fit(problem: Problem, memory: GridMemory) -> NDArray[np.intp]:
    """Options that some variant fits on its own into HBM, or into what-if HBM; no other can be part of an answer."""
    if not any(relation.name == "hbm" for relation in problem.relations):
        return np.arange(len(memory.entry))
    limit = WHAT_IF * usable_hbm_bytes(problem.facts)
    fits = np.logical_and.reduce([np.asarray(v).reshape(-1, np.shape(v)[-1]).min(axis=0) <= limit for v in memory.hbm])
    return np.flatnonzero(fits[memory.entry])


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


@dataclass(frozen=True)
class Sized:
    """A group before its times are known: lists of options that relations allow, with their bytes."""

    group: Group
    dp: NDArray[np.int64]
    products: NDArray[np.int64]
    allowed: Mask
    attention: Options
    expert: Options
    memory_attention: GridMemory
    memory_expert: GridMemory

    def take(self, attention: NDArray[np.intp], expert: NDArray[np.intp]) -> Sized:
        """The same group with some of its options."""
        return replace(
            self,
            attention=self.attention.take(attention),
            expert=self.expert.take(expert),
            memory_attention=self.memory_attention.take(attention),
            memory_expert=self.memory_expert.take(expert),
        )


def sized_groups(problem: Problem, used: tuple[int, ...], pp_row: tuple[int, ...]) -> list[Sized]:
    """The groups of a pipeline row in which some cell and some option of each grid is allowed, with their bytes.

    All groups of a row share one list of options per grid.
    """
    groups = groups_at(problem, used, pp_row)
    if not groups:
        return []
    attention, expert = grids(problem, groups[0])
    attention = _legal(problem, "attention", groups[0], attention)
    expert = _legal(problem, "expert", groups[0], expert)
    attention = attention.take(np.flatnonzero(np.isin(attention.sizes[2], problem.data_parallel)))
    if not len(attention) or not len(expert):
        return []
    dp = np.unique(attention.sizes[2])
    products = np.unique(np.outer(dp, problem.candidates["micro_batch"]))
    if problem.whole_batches:
        products = products[problem.facts.run.global_batch % products == 0]
    if not len(products):
        return []
    found = []
    for group in groups:
        allowed = _cells_allowed(problem, cell_view(problem, group, _axis(dp, 0)))
        if allowed.any():
            memory_a = _memory(problem, group, attention, "attention", products)
            memory_e = _memory(problem, group, expert, "expert", products)
            found.append(Sized(group, dp, products, allowed, attention, expert, memory_a, memory_e))
    return found


def tabulate(problem: Problem, used: tuple[int, ...], pp_row: tuple[int, ...], *, prune: bool) -> Iterator[Tables]:
    """The tables of every group of a pipeline row, with the options that can fit into memory at all.

    `prune` keeps, of options that differ only in placement, those that no other one beats everywhere.
    """
    sized = sized_groups(problem, used, pp_row)
    fits = [(_can_fit(problem, s.memory_attention), _can_fit(problem, s.memory_expert)) for s in sized]
    alive = [(s, keep_a, keep_e) for s, (keep_a, keep_e) in zip(sized, fits, strict=True) if len(keep_a) * len(keep_e)]
    if not alive:
        return
    # A limit of one class of communication is eased by waiting for another, so there no placement is dominated.
    if prune and not any(r.name.startswith("exposed_") for r in problem.relations):
        best_a = _union_front(problem, alive, "attention", [keep_a for _, keep_a, _ in alive])
        best_e = _union_front(problem, alive, "expert", [keep_e for _, _, keep_e in alive])
        alive = [(s, np.intersect1d(keep_a, best_a), np.intersect1d(keep_e, best_e)) for s, keep_a, keep_e in alive]
    for s, keep_a, keep_e in alive:
        yield timed_tables(problem, s.take(keep_a, keep_e))


def _union_front(
    problem: Problem,
    alive: list[tuple[Sized, NDArray[np.intp], NDArray[np.intp]]],
    which: str,
    kept: list[NDArray[np.intp]],
) -> NDArray[np.intp]:
    """Positions, in the list all groups share, of the options that no placement of the same sizes dominates."""
    from mapsearch.solver.dominance import undominated

    union = np.unique(np.concatenate(kept))
    options = getattr(alive[0][0], which).take(union)
    return union[undominated(problem, [s.group for s, _, _ in alive], options, which)]


def _cells_allowed(problem: Problem, cell: CellView) -> Mask:
    axes = (cell.dp, cell.micro_batch, cell.vpp, cell.recompute, cell.zero, cell.offload)
    shape = np.broadcast_shapes(*(np.shape(axis) for axis in axes))
    return np.broadcast_to(_allowed(problem, "cell", cell, shape), shape)


def timed_tables(problem: Problem, sized: Sized) -> Tables:
    """Times of a group's options, and the tables as a whole."""
    group, dp = sized.group, sized.dp
    cell = cell_view(problem, group, _axis(dp, 0))
    a_cell = cell_view(problem, group, _axis(sized.attention.sizes[2], -1))
    e_cell = expert_cell(problem, group, sized.products)
    a_view, e_view = attention_view(a_cell, sized.attention), expert_view(e_cell, sized.expert)
    a_side, e_side, c_side = attention_times(a_view), expert_times(e_view), cell_side(cell)
    a_allowed = _allowed(problem, "attention", a_view, np.shape(a_view.tp))
    e_allowed = _allowed(problem, "expert", e_view, np.shape(e_view.ep))
    constants = timing(cell, coupled=bool(a_side.under_compute or e_side.under_compute))

    def summed(side: Side, view: CellView) -> dict[frozenset[str], list[StageSum]]:
        asked = class_sets(problem)
        return {classes: [weighed(s, constants) for s in sums(side, view, classes)] for classes in asked}

    return Tables(
        group=group,
        dp=dp,
        products=sized.products,
        cell=cell,
        allowed=sized.allowed,
        attention=GridTable(sized.attention, a_allowed, summed(a_side, a_cell), sized.memory_attention),
        expert=GridTable(sized.expert, e_allowed, summed(e_side, e_cell), sized.memory_expert),
        own=summed(c_side, cell),
        timing=constants,
    )


def _legal(problem: Problem, side: str, group: Group, options: Options) -> Options:
    """Options that some variant of the group allows: most are cut here, before anything is costed."""
    dp = _axis(options.sizes[2], -1) if side == "attention" else _axis([1], 0)
    first = {name: problem.candidates[name][:1] for name in ("micro_batch", "recompute", "zero", "offload")}
    cell = cell_view(problem, group, dp, pipeline=group.pipelines[:1], **first)
    view = attention_view(cell, options) if side == "attention" else expert_view(cell, options)
    mask = _allowed(problem, side, view, (1,) * (VARIANTS + 1) + (len(options),))
    return options.take(np.flatnonzero(mask.reshape(-1, len(options)).any(axis=0)))


def at(value: Num, index: tuple[int, ...]) -> Floats:
    """A table's values for one cell: broadcast dimensions are read at 0; the option dimension stays."""
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    return np.asarray(array[tuple(i if size > 1 else 0 for i, size in zip(index, array.shape, strict=False))])
