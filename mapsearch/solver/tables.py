"""Tables: everything a group of cells needs, evaluated once per grid and joined later.

Contents: GridMemory, GridTable, Tables, Sized, sized_groups, tabulate, timed_tables, class_sets, at.

A group is one way to use the fabric, one pipeline row, and the schedules that share a layout of layers. Its arrays
have the dimensions (dp, micro_batch, pipeline, recompute, zero, offload, option); each quantity fills only the
dimensions in its scope, the rest stay 1 and broadcast. Attention options carry their own DP, so their tables have no
dp dimension. What the expert grid costs depends on DP and microbatch only through their product (tokens per rank and
microbatches per step), so its first dimension is that product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import CpKind
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
from mapsearch.costs.step import ALL_CLASSES, Side, StageSum, Timing, sums, timing, weighed
from mapsearch.costs.views import CellView
from mapsearch.quantity import Floats, Num
from mapsearch.solver.dominance import undominated
from mapsearch.solver.groups import (
    Group,
    Mask,
    allowed_by,
    allowed_cells,
    along,
    attention_view,
    cell_view,
    expert_cell,
    expert_view,
    grids,
    groups_at,
    legal_options,
)
from mapsearch.solver.options import Options
from mapsearch.solver.problem import Problem


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


def _memory(problem: Problem, group: Group, options: Options, which: str, products: NDArray[np.int64]) -> GridMemory:
    """The bytes of every distinct size of a grid."""
    # Of the exchanges of context parallelism only the all-to-all keeps more than the others.
    choice = options.choice if which == "expert" else options.choice == CpKind.ULYSSES
    keys = np.column_stack([*options.sizes, choice])
    _, first, entry = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    distinct = options.take(first)
    if which == "attention":
        a_view = attention_view(cell_view(problem, group, along(distinct.sizes[2], -1)), distinct)
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


def _can_fit(problem: Problem, memory: GridMemory, reach: float) -> NDArray[np.intp]:
    """Options that some variant fits on its own into so many times HBM; no other can be part of an answer."""
    if not any(relation.name == "hbm" for relation in problem.relations):
        return np.arange(len(memory.entry))
    limit = reach * usable_hbm_bytes(problem.facts)
    fits = np.logical_and.reduce([np.asarray(v).reshape(-1, np.shape(v)[-1]).min(axis=0) <= limit for v in memory.hbm])
    return np.flatnonzero(fits[memory.entry])


def class_sets(problem: Problem) -> list[frozenset[str]]:
    """Sets of communication classes that the problem's relations compare the step with."""
    run = problem.facts.run
    asked = [ALL_CLASSES]
    if run.exposed_limit < 1.0 or problem.exposure:
        asked.append(frozenset())
    asked += [ALL_CLASSES - {name} for name in sorted(run.exposed_limit_by_class)]
    return list(dict.fromkeys(asked))


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
    attention = legal_options(problem, "attention", groups[0], attention)
    expert = legal_options(problem, "expert", groups[0], expert)
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
        allowed = allowed_cells(problem, cell_view(problem, group, along(dp, 0)))
        if allowed.any():
            memory_a = _memory(problem, group, attention, "attention", products)
            memory_e = _memory(problem, group, expert, "expert", products)
            found.append(Sized(group, dp, products, allowed, attention, expert, memory_a, memory_e))
    return found


def tabulate(
    problem: Problem, used: tuple[int, ...], pp_row: tuple[int, ...], *, prune: bool, reach: float = WHAT_IF
) -> Iterator[Tables]:
    """The tables of every group of a pipeline row, with the options that can fit into `reach` times the memory at all.

    `prune` keeps, of options that differ only in placement, those that no other one beats everywhere.
    """
    sized = sized_groups(problem, used, pp_row)
    fits = [tuple(_can_fit(problem, m, reach) for m in (s.memory_attention, s.memory_expert)) for s in sized]
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
    union = np.unique(np.concatenate(kept))
    options = getattr(alive[0][0], which).take(union)
    return union[undominated(problem, [s.group for s, _, _ in alive], options, which)]


def timed_tables(problem: Problem, sized: Sized) -> Tables:
    """Times of a group's options, and the tables as a whole."""
    group, dp = sized.group, sized.dp
    cell = cell_view(problem, group, along(dp, 0))
    a_cell = cell_view(problem, group, along(sized.attention.sizes[2], -1))
    e_cell = expert_cell(problem, group, sized.products)
    a_view, e_view = attention_view(a_cell, sized.attention), expert_view(e_cell, sized.expert)
    a_side, e_side, c_side = attention_times(a_view), expert_times(e_view), cell_side(cell)
    a_allowed = allowed_by(problem, "attention", a_view, np.shape(a_view.tp))
    e_allowed = allowed_by(problem, "expert", e_view, np.shape(e_view.ep))
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


def at(value: Num, index: tuple[int, ...]) -> Floats:
    """A table's values for one cell: broadcast dimensions are read at 0; the option dimension stays."""
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    return np.asarray(array[tuple(i if size > 1 else 0 for i, size in zip(index, array.shape, strict=False))])
