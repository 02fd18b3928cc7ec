"""Groups of cells before their times are known: the options that relations allow, with their bytes.

Contents: GridMemory, can_fit, Sized, legal_grids, products_of, sized, sized_groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import CpKind
from mapsearch.costs.footprint import (
    attention_host,
    attention_memory,
    attention_nvme,
    expert_host,
    expert_memory,
    expert_nvme,
)
from mapsearch.costs.step import Side
from mapsearch.quantity import Num
from mapsearch.solver.groups import (
    Group,
    Mask,
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
from mapsearch.solver.options import Options, distinct_rows
from mapsearch.solver.problem import Problem


@dataclass(frozen=True)
class GridMemory:
    """Bytes of one grid per kind of stage; they depend on sizes alone, so placements share an entry."""

    entry: NDArray[np.intp]
    """Entry of each option in the last dimension of the arrays."""
    hbm: list[Num]
    host: list[Num]
    nvme: list[Num]

    @property
    def entries(self) -> int:
        """How many entries the arrays have."""
        return max((np.shape(v)[-1] for v in (*self.hbm, *self.host, *self.nvme) if np.ndim(v)), default=0)

    def take(self, index: NDArray[np.intp]) -> GridMemory:
        """The same bytes for some of the options; entries that no option uses any more are dropped."""
        used, entry = np.unique(self.entry[index], return_inverse=True)
        if np.array_equal(used, np.arange(self.entries)):
            return GridMemory(entry, self.hbm, self.host, self.nvme)
        hbm, host, nvme = (
            [np.asarray(v)[..., used] if np.ndim(v) else v for v in values]
            for values in (self.hbm, self.host, self.nvme)
        )
        return GridMemory(entry, hbm, host, nvme)

    def along_products(self, kept: NDArray[np.bool_]) -> GridMemory:
        """The same bytes for some values of the first dimension."""
        if kept.all():
            return self
        hbm, host, nvme = (
            [np.asarray(v)[kept] if np.ndim(v) and np.shape(v)[0] > 1 else v for v in values]
            for values in (self.hbm, self.host, self.nvme)
        )
        return GridMemory(self.entry, hbm, host, nvme)


def _memory(problem: Problem, group: Group, options: Options, which: str, products: NDArray[np.int64]) -> GridMemory:
    """The bytes of every distinct size of a grid."""
    # Of the exchanges of context parallelism only the all-to-all keeps more than the others.
    choice = options.choice if which == "expert" else options.choice == CpKind.ULYSSES
    first, entry = distinct_rows([*options.sizes, choice])
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
    return GridMemory(entry, hbm, host or nothing, nvme or nothing)


def can_fit(memory: GridMemory, limit_bytes: float) -> NDArray[np.intp]:
    """Options that some variant fits on its own into so many bytes; no other can be part of an answer."""
    if np.isinf(limit_bytes):
        return np.arange(len(memory.entry))
    least = (np.asarray(v).reshape(-1, np.shape(v)[-1]).min(axis=0) for v in memory.hbm)
    return np.flatnonzero(np.logical_and.reduce([v <= limit_bytes for v in least])[memory.entry])


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

    def fed(self, dp: NDArray[np.int64], batches: NDArray[np.int64], products: NDArray[np.int64]) -> Sized:
        """The same group with some of its DP sizes and of their products with the micro-batch; no other is allowed."""
        there = np.isin(dp[:, None] * batches, products).reshape(len(dp), -1, 1, 1, 1, 1, 1)
        return replace(
            self,
            dp=dp,
            products=products,
            allowed=self.allowed[np.isin(self.dp, dp)] & there,
            memory_expert=self.memory_expert.along_products(np.isin(self.products, products)),
        )


def legal_grids(problem: Problem, group: Group) -> tuple[Options, Options] | None:
    """The options of both grids that the relations of their own side allow, and the batch can feed; None without any.

    All groups of a pipeline row share them.
    """
    attention, expert = grids(problem, group)
    attention = legal_options(problem, "attention", group, attention)
    expert = legal_options(problem, "expert", group, expert)
    attention = attention.take(np.flatnonzero(np.isin(attention.sizes[2], problem.data_parallel)))
    return (attention, expert) if len(attention) and len(expert) else None


def products_of(problem: Problem, dp: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values of DP x microbatch that the global batch divides by, or all where nothing asks for that."""
    products = np.unique(np.outer(dp, problem.candidates["micro_batch"]))
    if problem.whole_batches:
        products = products[problem.facts.run.global_batch % products == 0]
    return products


def sized(
    problem: Problem, group: Group, attention: Options, expert: Options, dp: NDArray[np.int64], allowed: Mask
) -> Sized:
    """A group with the bytes of its options; `allowed` are its cells."""
    products = products_of(problem, dp)
    memory_a = _memory(problem, group, attention, "attention", products)
    memory_e = _memory(problem, group, expert, "expert", products)
    return Sized(group, dp, products, allowed, attention, expert, memory_a, memory_e)


def sized_groups(
    problem: Problem, used: tuple[int, ...], pp_row: tuple[int, ...], turn: int | None = None
) -> list[Sized]:
    """The groups of a pipeline row in which some cell and some option of each grid is allowed, with their bytes.

    All groups of a row share one list of options per grid.
    """
    groups = groups_at(problem, used, pp_row, turn)
    found = legal_grids(problem, groups[0]) if groups else None
    if found is None:
        return []
    dp = np.unique(found[0].sizes[2])
    if not len(products_of(problem, dp)):
        return []
    masks = [(group, allowed_cells(problem, cell_view(problem, group, along(dp, 0)))) for group in groups]
    return [sized(problem, group, *found, dp, allowed) for group, allowed in masks if allowed.any()]
