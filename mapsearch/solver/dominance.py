"""Dominance among placements: of options with the same sizes, those that no other one beats everywhere.

Contents: undominated, front_of.

Why it is exact. Two options with equal sizes and equal kind of exchange differ only in rows, and rows enter only the
communication times (and placement relations, which are applied before). Step time and the exposed share of it grow with
each of those times, so a mapping with the dominated row is never better than the same mapping with the dominating one;
the share of a single class does not, so problems that limit one are not pruned. The ranking lists distinct sizes and
choices, each with its best placement. All multiplicities that variants put on a time (layers, recompute, microbatches)
are non-negative factors of the columns compared here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mapsearch.costs.sides import attention_times, expert_times
from mapsearch.costs.step import Side
from mapsearch.quantity import Floats
from mapsearch.solver.groups import Group, along, attention_view, cell_view, expert_view
from mapsearch.solver.options import Ints, Options, distinct_rows
from mapsearch.solver.problem import Problem

CHUNK = 64
"""Options compared with all others at a time; bounds the memory of the comparison."""


def undominated(problem: Problem, group: Group, options: Options, which: str, products: Ints, lists: Ints) -> Ints:
    """Positions of the options to keep, in order; `products` are the values of DP x microbatch that there are.

    `lists`: the number of each option's list; only options of one list are compared.
    """
    if len(options) == 1:
        return np.arange(1)
    columns = _columns(problem, group, options, which, products)
    _, sizes = distinct_rows([lists, *options.sizes, options.choice])
    order = np.argsort(sizes, kind="stable")
    starts = np.flatnonzero(np.diff(sizes[order], prepend=-1))
    keep = [members[front_of(columns[members])] for members in np.split(order, starts[1:])]
    return np.sort(np.concatenate(keep))


def front_of(rows: Floats) -> NDArray[np.intp]:
    """Rows of (options, columns) that no other row beats in all columns; of equal rows the first stays."""
    rows = np.ascontiguousarray(rows[:, np.ptp(rows, axis=0) > 0]) if len(rows) > 1 else rows[:, :0]
    if not rows.shape[1]:
        return np.arange(1)
    likely = _likely(rows)
    return likely[_unbeaten(rows[likely])]


def _likely(rows: Floats) -> NDArray[np.intp]:
    """The front, in order, and few other rows: what the least sum left beats goes, again and again.

    Only a row whose sum rounds to that of one which beats it can be in here by mistake.
    """
    left = np.argsort(rows.sum(axis=1), kind="stable")
    values, found = rows[left], []
    while len(left):
        found.append(left[0])
        below = (values < values[0]).any(axis=1)
        left, values = left[below], values[below]
    return np.sort(found)


def _unbeaten(rows: Floats) -> NDArray[np.bool_]:
    """Which rows no other row beats, each compared with each."""
    before = np.tri(len(rows), k=-1, dtype=bool).T
    beaten = np.zeros(len(rows), dtype=bool)
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        # no_worse[i, j]: row i is nowhere above row j of the part.
        no_worse = (rows[:, None] <= part[None]).all(axis=2)
        no_better = (part[None] <= rows[:, None]).all(axis=2)
        here = before[:, start : start + CHUNK]
        beaten[start : start + CHUNK] = (no_worse & (~no_better | here)).any(axis=0)
    return ~beaten


def _columns(problem: Problem, group: Group, options: Options, which: str, products: Ints) -> Floats:
    """All communication times that rows decide, over the values they depend on: shape (options, columns)."""
    # What overlaps decides whether forward and backward are waited for apart or together.
    pipelines = tuple({pipeline[2]: pipeline for pipeline in reversed(group.pipelines)}.values())
    chosen = {"pipeline": pipelines, "recompute": (0,), "offload": problem.candidates["offload"][:1]}
    side: Side
    if which == "attention":
        cell = cell_view(problem, group, along(options.sizes[2], -1), **chosen)
        side = attention_times(attention_view(cell, options))
    else:
        # Expert times depend on DP and microbatch only through their product, the tokens of a microbatch.
        cell = cell_view(problem, group, along(products, 0), micro_batch=(1,), **chosen)
        side = expert_times(expert_view(cell, options))
    arrays = [value for part in side.parts if part.communicates for value in (*part.forward, *part.input_grad)]
    arrays += [value for name in ("reduce", "gather") for value in side.once.get(name, [])]
    arrays += [value for values in side.under_compute.values() for value in values]
    arrays += list(side.under_shared or [])
    count = len(options)
    tables = [np.asarray(a, dtype=float).reshape(-1, count) for a in arrays if np.shape(a)[-1:] == (count,)]
    return (np.concatenate(tables) if tables else np.zeros((1, count))).T
