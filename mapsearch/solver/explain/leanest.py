"""The mapping that needs least memory: how far a problem is from fitting.

Contents: Leanest, leanest, fitting, floor_bytes.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import Offload
from mapsearch.quantity import Floats, Num
from mapsearch.solver.bounds import by_microbatch
from mapsearch.solver.cells import Index, block_of, evaluate_block
from mapsearch.solver.explain.states import state_floor_bytes
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import key_of
from mapsearch.solver.sized import Sized, sized_groups
from mapsearch.solver.space import rows_of
from mapsearch.solver.tables import timed_tables
from mapsearch.solver.top import Candidate


@dataclass(frozen=True)
class Leanest:
    """The least peak over the worst stage, and a mapping that reaches it."""

    peak_bytes: float
    candidate: Candidate
    floors: Floats
    """What every allowed cell needs at least; only of the cells that were looked at where any fit was enough."""


@dataclass(frozen=True)
class _Cells:
    """The cells of one DP size of a group, by their bound."""

    sized: Sized
    bounds: Floats
    cells: list[Index]


def leanest(problem: Problem) -> Leanest | None:
    """The mapping with the least peak memory that the relations of cell and grids allow; None when there is none.

    Exact: cells in the order of a lower bound (the smallest options of both grids on each kind of stage), until no
    bound is lower than the best pair. Host memory and NVMe are asked for where the problem limits them; HBM and
    exposure are not.
    """
    lists = [cells for used, row in rows_of(problem) for cells in _lists(problem, used, row)]
    best = _least_of(problem, lists, enough=-np.inf)
    return _leanest(problem, best, lists) if best else None


def fitting(problem: Problem, limit_bytes: float) -> Leanest | None:
    """A mapping that needs at most so much memory, under the same relations as `leanest`; None when there is none.

    Devices too few for the model states alone are not looked at.
    """
    for used, row in rows_of(problem):
        if floor_bytes(problem, math.prod(used)) > limit_bytes:
            continue
        lists = [cells for cells in _lists(problem, used, row) if cells.bounds[0] <= limit_bytes]
        best = _least_of(problem, lists, enough=limit_bytes)
        if best and best.peak_bytes <= limit_bytes:
            return _leanest(problem, best, lists)
    return None


def floor_bytes(problem: Problem, devices: int) -> float:
    """What model states alone take on the fullest of so many devices at least."""
    offload = problem.candidates["offload"]
    reached = [_limits(problem)[bool(choice & Offload.NVME)] for choice in offload if choice & Offload.OPTIMIZER]
    return state_floor_bytes(problem.facts, devices, offload, max(reached, default=0.0))


@dataclass(frozen=True)
class _Pair:
    """One cell with an option of each grid, and its peak."""

    peak_bytes: float
    sized: Sized
    index: Index
    attention: int
    expert: int


def _leanest(problem: Problem, best: _Pair, lists: list[_Cells]) -> Leanest:
    return Leanest(best.peak_bytes, _candidate(problem, best), np.concatenate([cells.bounds for cells in lists]))


def _lists(problem: Problem, used: tuple[int, ...], row: tuple[int, ...]) -> list[_Cells]:
    """The cells of a pipeline row by DP size; sizes without a cell are left out."""
    found = [
        _ordered(problem, sized, position)
        for sized in sized_groups(problem, used, row)
        for position in range(len(sized.dp))
    ]
    return [cells for cells in found if len(cells.bounds)]


def _least_of(problem: Problem, lists: list[_Cells], enough: float) -> _Pair | None:
    """The pair with the least peak, or the first found that needs no more than `enough`."""
    heap = [(float(cells.bounds[0]), number, 0) for number, cells in enumerate(lists)]
    heapq.heapify(heap)
    best: _Pair | None = None
    while heap and (best is None or enough < best.peak_bytes > heap[0][0]):
        _, number, rank = heapq.heappop(heap)
        cells = lists[number]
        pair = _least_pair(problem, cells.sized, cells.cells[rank])
        if np.isfinite(pair.peak_bytes) and (best is None or pair.peak_bytes < best.peak_bytes):
            best = pair
        if rank + 1 < len(cells.bounds):
            heapq.heappush(heap, (float(cells.bounds[rank + 1]), number, rank + 1))
    return best


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
    memory_a, memory_e = sized.memory_attention.take(own), sized.memory_expert
    for limit, of_a, of_e in zip(
        _limits(problem), (memory_a.host, memory_a.nvme), (memory_e.host, memory_e.nvme), strict=True
    ):
        for a, e in zip(of_a, of_e, strict=True):
            allowed = allowed & (_least(a) + _least(pick(e)) <= limit)
    bounds = np.where(allowed, np.broadcast_to(worst, allowed.shape), np.inf)[0, ..., 0]
    flat = bounds.reshape(-1)
    order = np.argsort(flat, kind="stable")
    order = order[np.isfinite(flat[order])]
    places = np.stack(np.unravel_index(order, bounds.shape), axis=1).tolist()
    return _Cells(sized, flat[order], [(position, *place) for place in places])


def _limits(problem: Problem) -> tuple[float, float]:
    """What offload may put into host memory and onto NVMe; infinite where the problem does not limit it."""
    device, names = problem.facts.fabric.device, {relation.name for relation in problem.relations}
    host = device.host_memory_bytes if "host_memory" in names else np.inf
    return host, device.nvme_bytes if "nvme_capacity" in names else np.inf


def _least_pair(problem: Problem, sized: Sized, index: Index) -> _Pair:
    """The pair of one cell with the least peak; infinite when no pair fits into host memory and NVMe."""
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
    host, nvme = joined(memory_a.host, sized.memory_expert.host), joined(memory_a.nvme, sized.memory_expert.nvme)
    most_host, most_nvme = _limits(problem)
    peak = np.where((host <= most_host) & (nvme <= most_nvme), peak, np.inf)
    first, second = np.unravel_index(int(np.argmin(peak)), peak.shape)
    attention = own[np.flatnonzero(memory_a.entry == first)[0]]
    expert = np.flatnonzero(sized.memory_expert.entry == second)[0]
    return _Pair(float(peak[first, second]), sized, index, int(attention), int(expert))


def _candidate(problem: Problem, pair: _Pair) -> Candidate:
    """The pair as a candidate, with its step time."""
    alone = pair.sized.take(np.array([pair.attention]), np.array([pair.expert]))
    tables, index = timed_tables(problem, [alone])[0], pair.index
    block = block_of(tables, [index], np.array([0]), np.array([0]))
    seconds = float(evaluate_block(problem, block).step_time_s.reshape(-1)[0])
    return Candidate(seconds, key_of(tables, index, 0, 0), tables, index, 0, 0)
