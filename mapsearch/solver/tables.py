"""Tables: everything a group of cells needs, evaluated once per grid and joined later.

Contents: GridTable, Tables, class_sets, WHAT_IF, tabulate, hbm_bytes, placed, placed_together, timed_tables, at.

A group is one way to use the fabric, one pipeline row, and the schedules that share a layout of layers. Its arrays
have the dimensions (dp, micro_batch, pipeline, recompute, zero, offload, option); each quantity fills only the
dimensions in its scope, the rest stay 1 and broadcast. Attention options carry their own DP, so their tables have no
dp dimension. What the expert grid costs depends on DP and microbatch only through their product (tokens per rank and
microbatches per step), so its first dimension is that product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.constraints.exposure import limits
from mapsearch.costs.sides import attention_times, cell_side, expert_times
from mapsearch.costs.step import ALL_CLASSES, Side, StageSum, Timing, sums, timing, weighed, weighed_timing
from mapsearch.costs.views import CellView
from mapsearch.quantity import Floats, Num
from mapsearch.solver.dominance import undominated
from mapsearch.solver.groups import (
    Group,
    Mask,
    allowed_by,
    along,
    attention_view,
    cell_view,
    expert_cell,
    expert_view,
)
from mapsearch.solver.options import Ints, Options
from mapsearch.solver.problem import Problem
from mapsearch.solver.sized import GridMemory, Sized, can_fit, sized_groups


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


def class_sets(problem: Problem) -> list[frozenset[str]]:
    """Sets of communication classes that the problem's relations compare the step with."""
    asked = [ALL_CLASSES]
    if problem.exposure:
        asked.append(frozenset())
    asked += [ALL_CLASSES - limit.classes for limit in limits(problem.facts.run)]
    return list(dict.fromkeys(asked))


WHAT_IF = 1.25
"""Options are kept up to this share of usable HBM, so that the search can also say what more memory would unlock."""


def tabulate(
    problem: Problem,
    used: tuple[int, ...],
    pp_row: tuple[int, ...],
    *,
    prune: bool,
    reach: float = WHAT_IF,
    turn: int | None = None,
) -> Iterator[Tables]:
    """The tables of every group of a pipeline row, with the options that can fit into `reach` times the memory at all.

    `prune` keeps, of options that differ only in placement, those that no other one beats everywhere. `turn`: only the
    layouts of one turn.
    """
    limit = hbm_bytes(problem, reach)
    for sized in sized_groups(problem, used, pp_row, turn):
        keep_a, keep_e = (can_fit(memory, limit) for memory in (sized.memory_attention, sized.memory_expert))
        if len(keep_a) and len(keep_e):
            yield placed(problem, sized.take(keep_a, keep_e), prune=prune)


def hbm_bytes(problem: Problem, reach: float = WHAT_IF) -> float:
    """`reach` times the usable HBM; infinite when the problem asks what if there were no such limit."""
    return reach * usable_hbm_bytes(problem.facts) if any(r.name == "hbm" for r in problem.relations) else np.inf


def placed(problem: Problem, sized: Sized, *, prune: bool) -> Tables:
    """The tables of a group; `prune` leaves out options that another one with the same sizes beats everywhere."""
    return placed_together(problem, [sized], prune=prune)[0]


def placed_together(problem: Problem, alike: Sequence[Sized], *, prune: bool = True) -> list[Tables]:
    """As `placed`, for groups that differ in the row of their pipeline only: the same calls cost all of their options.

    What an option costs does not depend on that row; only hops between stages do, and they are the cell's.
    """
    # A limit of one class of communication is eased by waiting for another, so there no placement is dominated.
    prune = prune and not any(r.name.startswith("exposed_") for r in problem.relations)
    if prune:
        group, products = alike[0].group, _products(alike)
        kept_a, kept_e = (
            _split(undominated(problem, group, options, which, products, lists), lists)
            for which in ("attention", "expert")
            for options, lists in [_listed(alike, which)]
        )
        alike = [sized.take(a, e) for sized, a, e in zip(alike, kept_a, kept_e, strict=True)]
    return timed_tables(problem, alike)


def _products(alike: Sequence[Sized]) -> Ints:
    return np.unique(np.concatenate([sized.products for sized in alike]))


def _listed(alike: Sequence[Sized], which: str) -> tuple[Options, Ints]:
    """The options of one grid of all groups, and the number of each one's group."""
    lists = [sized.attention if which == "attention" else sized.expert for sized in alike]
    return Options.joined(lists), np.repeat(np.arange(len(lists)), [len(options) for options in lists])


def _split(kept: Ints, lists: Ints) -> list[Ints]:
    """Positions among the options of all groups as positions in each group's own list."""
    starts = np.searchsorted(lists, np.arange(lists[-1] + 1))
    return [kept[lists[kept] == number] - start for number, start in enumerate(starts)]


def timed_tables(problem: Problem, alike: Sequence[Sized]) -> list[Tables]:
    """Times of the options of groups that differ in the row of their pipeline only, and the tables as a whole."""
    group, products = alike[0].group, _products(alike)
    (attention, lists_a), (expert, lists_e) = (_listed(alike, which) for which in ("attention", "expert"))
    a_cell, e_cell = cell_view(problem, group, along(attention.sizes[2], -1)), expert_cell(problem, group, products)
    a_view, e_view = attention_view(a_cell, attention), expert_view(e_cell, expert)
    a_side, e_side = attention_times(a_view), expert_times(e_view)
    a_allowed = allowed_by(problem, "attention", a_view, np.shape(a_view.tp))
    e_allowed = allowed_by(problem, "expert", e_view, np.shape(e_view.ep))
    coupled = bool(a_side.under_compute or e_side.under_compute)
    constants = timing(a_cell, coupled=coupled)
    a_sums, e_sums = (_summed(problem, side, cell, constants) for side, cell in ((a_side, a_cell), (e_side, e_cell)))
    found = []
    for number, sized in enumerate(alike):
        cell = cell_view(problem, sized.group, along(sized.dp, 0))
        own = timing(cell, coupled=coupled)
        mine_a = _part(np.flatnonzero(lists_a == number), len(lists_a))
        mine_e = _part(np.flatnonzero(lists_e == number), len(lists_e), np.isin(products, sized.products))
        found.append(
            Tables(
                group=sized.group,
                dp=sized.dp,
                products=sized.products,
                cell=cell,
                allowed=sized.allowed,
                attention=GridTable(sized.attention, mine_a(a_allowed), _parts(a_sums, mine_a), sized.memory_attention),
                expert=GridTable(sized.expert, mine_e(e_allowed), _parts(e_sums, mine_e), sized.memory_expert),
                own=_summed(problem, cell_side(cell), cell, own),
                timing=weighed_timing(own),
            )
        )
    return found


Sums = dict[frozenset[str], list[StageSum]]


def _summed(problem: Problem, side: Side, view: CellView, constants: Timing) -> Sums:
    asked = class_sets(problem)
    return {classes: [weighed(s, constants) for s in sums(side, view, classes)] for classes in asked}


def _part(own: NDArray[np.intp], count: int, products: Mask | None = None) -> Callable[[Num], Num]:
    """Reads what belongs to some of `count` options, and to some values of the first dimension, of a joint table."""
    every, all_products = len(own) == count, products is None or bool(products.all())

    def part(value: Num) -> Num:
        array = np.asarray(value)
        if array.ndim == 0:
            return value
        if not all_products and array.shape[0] > 1:
            array = array[products]
        # Tables are read row by row later, so they lie in a row.
        return array if every or array.shape[-1] != count else array.take(own, axis=-1)

    return part


def _parts(found: Sums, part: Callable[[Num], Num]) -> Sums:
    return {classes: [stage.each(part) for stage in stages] for classes, stages in found.items()}


def at(value: Num, index: tuple[int, ...]) -> Floats:
    """A table's values for one cell: broadcast dimensions are read at 0; the option dimension stays."""
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    return np.asarray(array[tuple(i if size > 1 else 0 for i, size in zip(index, array.shape, strict=False))])
