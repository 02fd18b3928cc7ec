"""Groups of cells before their times are known: the options that relations allow, with their bytes.

Contents: GridMemory, can_fit, Sized, sized_groups.
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

    def take(self, index: NDArray[np.intp]) -> GridMemory:
        """The same bytes for some of the options; entries that no option uses any more are dropped."""
        used, entry = np.unique(self.entry[index], return_inverse=True)
        hbm, host, nvme = (
            [np.asarray(v)[..., used] if np.ndim(v) else v for v in values]
            for values in (self.hbm, self.host, self.nvme)
        )
        return GridMemory(entry, hbm, host, nvme)

    def along_products(self, kept: NDArray[np.bool_]) -> GridMemory:
        """The same bytes for some values of the first dimension."""
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
