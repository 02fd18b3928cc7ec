"""The mapping that needs least memory: how far a problem is from fitting.

Contents: Leanest, leanest.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.quantity import Floats, Num
from mapsearch.solver.bounds import by_microbatch
from mapsearch.solver.cells import Index, block_of, evaluate_block
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import Candidate, key_of, rows_of
from mapsearch.solver.tables import Sized, sized_groups, timed_tables


@dataclass(frozen=True)
class Leanest:
    """The least peak over the worst stage, and a mapping that reaches it."""

    peak_bytes: float
    candidate: Candidate


@dataclass(frozen=True)
class _Cells:
    """The cells of one DP size of a group, by their bound."""

    sized: Sized
    bounds: Floats
    cells: list[Index]


def leanest(problem: Problem) -> Leanest | None:
    """The mapping with the least peak memory that the relations of cell and grids allow; None when there is none.

    Exact: cells in the order of a lower bound (the smallest options of both grids on each kind of stage), until no
    bound is lower than the best pair. Host memory is asked for where the problem limits it; HBM and exposure are not.
    """
    lists = [
        _ordered(problem, sized, position)
        for used, row in rows_of(problem)
        for sized in sized_groups(problem, used, row)
        for position in range(len(sized.dp))
    ]
    heap = [(float(cells.bounds[0]), number, 0) for number, cells in enumerate(lists) if len(cells.bounds)]
    heapq.heapify(heap)
    best: tuple[float, Sized, Index, int, int] | None = None
    while heap and (best is None or heap[0][0] < best[0]):
        _, number, rank = heapq.heappop(heap)
        cells = lists[number]
        peak, attention, expert = _least_pair(problem, cells.sized, cells.cells[rank])
        if best is None or peak < best[0]:
            best = (peak, cells.sized, cells.cells[rank], attention, expert)
        if rank + 1 < len(cells.bounds):
            heapq.heappush(heap, (float(cells.bounds[rank + 1]), number, rank + 1))
    return Leanest(best[0], _candidate(problem, *best[1:])) if best and np.isfinite(best[0]) else None


def _least(value: Num) -> Num:
    array = np.asarray(value)
    return array.min(axis=-1, keepdims=True) if array.ndim else array


def _own(sized: Sized, position: int) -> NDArray[np.intp]:
    return np.flatnonzero(sized.attention.sizes[2] == sized.dp[position])


def _batches(problem: Problem) -> NDArray[np.int64]:
    return np.array(problem.candidates["micro_batch"], dtype=np.int64)


def _ordered(problem: Problem, sized: Sized, position: int) -> _Cells:
    own = _own(sized, position)
    if not len(own) or not sized.allowed[position].any():
        return _Cells(sized, np.array([]), [])
    pick = by_microbatch(sized.products, int(sized.dp[position]), _batches(problem))
    worst: Num = np.full((1,) * 7, -np.inf)
    for a, e in zip(sized.memory_attention.take(own).hbm, sized.memory_expert.hbm, strict=True):
        worst = np.maximum(worst, _least(a) + _least(pick(e)))
    allowed = sized.allowed[position : position + 1]
    limit = _host_limit(problem)
    for a, e in zip(sized.memory_attention.take(own).host, sized.memory_expert.host, strict=True):
        allowed = allowed & (_least(a) + _least(pick(e)) <= limit)
    bounds = np.where(allowed, np.broadcast_to(worst, allowed.shape), np.inf)[0, ..., 0]
    flat = bounds.reshape(-1)
    order = np.argsort(flat, kind="stable")
    order = order[np.isfinite(flat[order])]
    places = np.stack(np.unravel_index(order, bounds.shape), axis=1).tolist()
    return _Cells(sized, flat[order], [(position, *place) for place in places])


def _host_limit(problem: Problem) -> float:
    limited = any(relation.name == "host_memory" for relation in problem.relations)
    return problem.facts.fabric.device.host_memory_bytes if limited else np.inf


def _least_pair(problem: Problem, sized: Sized, index: Index) -> tuple[float, int, int]:
    """The least peak of one cell, and the positions of the options that reach it."""
    own = _own(sized, index[0])
    pick = by_microbatch(sized.products, int(sized.dp[index[0]]), _batches(problem))
    memory_a = sized.memory_attention.take(own)

    def cell(value: Num) -> Floats:
        array = np.asarray(value)
        if array.ndim == 0:
            return np.reshape(array, 1)
        place = tuple(i if size > 1 else 0 for i, size in zip((0, *index[1:]), array.shape[:-1], strict=True))
        return np.asarray(array[place])

    def joined(attention: list[Num], expert: list[Num]) -> Num:
        worst: Num = -np.inf
        for a, e in zip(attention, expert, strict=True):
            worst = np.maximum(worst, cell(a)[..., :, None] + cell(pick(e))[..., None, :])
        return worst

    peak = joined(memory_a.hbm, sized.memory_expert.hbm)
    host = joined(memory_a.host, sized.memory_expert.host)
    peak = np.where(host <= _host_limit(problem), peak, np.inf)
    first, second = np.unravel_index(int(np.argmin(peak)), peak.shape)
    attention = own[np.flatnonzero(memory_a.entry == first)[0]]
    expert = np.flatnonzero(sized.memory_expert.entry == second)[0]
    return float(peak[first, second]), int(attention), int(expert)


def _candidate(problem: Problem, sized: Sized, index: Index, attention: int, expert: int) -> Candidate:
    """The pair as a candidate, with its step time."""
    tables = timed_tables(problem, sized.take(np.array([attention]), np.array([expert])))
    block = block_of(tables, [index], np.array([0]), np.array([0]))
    seconds = float(evaluate_block(problem, block).step_time_s.reshape(-1)[0])
    return Candidate(seconds, key_of(tables, index, 0, 0), tables, index, 0, 0)
