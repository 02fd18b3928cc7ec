"""The search: bound every cell, evaluate the promising ones exactly, best first.

Contents: Candidate, SpaceCount, Found, Search, search.

Exact: a cell is left out only when its lower bound is not below the k-th best step time found. Distinct mappings
differ in sizes or choices; each is listed with its best placement.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mapsearch.progress import Progress
from mapsearch.quantity import Floats
from mapsearch.solver.bounds import quick_bound, slice_bounds
from mapsearch.solver.cells import CellProblem, Index, cell_problem, evaluate
from mapsearch.solver.options import pipeline_rows
from mapsearch.solver.problem import Problem
from mapsearch.solver.tables import Tables, grids, groups_at, tabulate

Key = tuple[int, ...]
Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Candidate:
    """A feasible mapping as positions in its cell; `key` holds its sizes and choices."""

    step_time_s: float
    key: Key
    cell: CellProblem
    attention: int
    expert: int

    @property
    def order(self) -> tuple[float, Key]:
        """Sort key: step time, then the mapping itself, so that ties are always listed alike."""
        return self.step_time_s, self.key


@dataclass
class Top:
    """The k best distinct mappings so far."""

    k: int
    by_key: dict[Key, Candidate] = field(default_factory=dict)
    cutoff_s: float = np.inf

    def offer(self, candidate: Candidate) -> bool:
        """Take a candidate in if it is among the best; True when it was."""
        if candidate.step_time_s > self.cutoff_s:
            return False
        held = self.by_key.get(candidate.key)
        if held is not None and held.order <= candidate.order:
            return False
        self.by_key[candidate.key] = candidate
        if len(self.by_key) > self.k:
            worst = max(self.by_key.values(), key=lambda c: c.order)
            del self.by_key[worst.key]
        if len(self.by_key) == self.k:
            self.cutoff_s = max(c.step_time_s for c in self.by_key.values())
        return True

    @property
    def ranked(self) -> list[Candidate]:
        """Best first."""
        return sorted(self.by_key.values(), key=lambda c: c.order)


@dataclass
class Search:
    """What a search found and how."""

    top: list[Candidate]
    complete: bool
    bound_s: float
    """No mapping that is not listed is faster than this."""
    open_cells: list[tuple[float, Tables, Index]]
    """Cells whose bound is not above the cutoff: what a proof has to go through."""
    mappings: int
    cells: int
    pairs: int
    grid_options: int
    seconds: float
    seconds_to_best: float
    groups: list[Tables]


def rows_of(problem: Problem) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Used fan-outs and pipeline rows of a problem, in a fixed order."""
    layers = problem.facts.model.layers
    return [(used, row) for used in problem.used for row in pipeline_rows(used, layers)]


def key_of(cell: CellProblem, attention: int, expert: int) -> Key:
    """The sizes and choices of a pair: what makes two mappings distinct."""
    tables, index = cell.tables, cell.index
    a, e = tables.attention.options, tables.expert.options
    view = tables.cell
    variant = tuple(
        int(np.asarray(values).reshape(-1)[index[axis]])
        for values, axis in (
            (view.micro_batch, 1),
            (view.schedule, 2),
            (view.vpp, 2),
            (view.recompute, 3),
            (view.zero, 4),
            (view.offload, 5),
        )
    )
    i, j = cell.attention.positions[attention], cell.expert.positions[expert]
    sizes = [int(size[i]) for size in a.sizes] + [tables.group.pp] + [int(size[j]) for size in e.sizes]
    return (*sizes, *variant, int(a.choice[i]), int(e.choice[j]))


def count_space(problem: Problem, used: tuple[int, ...], row: tuple[int, ...]) -> tuple[int, int, int]:
    """Joint mappings, cells and grid options of a pipeline row, before any relation but the fan-out's own."""
    groups = groups_at(problem, used, row)
    if not groups:
        return 0, 0, 0
    attention, expert = grids(problem, groups[0])
    names = ("micro_batch", "recompute", "zero", "offload")
    variants = math.prod(len(problem.candidates[name]) for name in names)
    variants *= sum(len(group.pipelines) for group in groups)
    cells = variants * len(np.unique(attention.sizes[2]))
    return len(attention) * len(expert) * variants, cells, len(attention) + len(expert)


@dataclass
class _State:
    """A search under way."""

    problem: Problem
    top: Top
    deadline: float | None
    tell: Report
    started: float
    pairs: int = 0
    best_at: float = 0.0
    cut_short: bool = False

    def late(self) -> bool:
        """True when the time is over; remembers it."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.cut_short = True
        return self.cut_short


def search(
    problem: Problem,
    k: int,
    *,
    prune: bool = True,
    deadline: float | None = None,
    report: Report | None = None,
) -> Search:
    """The k fastest mappings, by bounds and exact evaluation; complete unless the deadline cut it short."""
    started = time.monotonic()
    state = _State(problem, Top(k), deadline, report or (lambda _progress: None), started, best_at=started)
    tables, counts = _tabulated(state, prune)
    slices = [
        (quick_bound(group, position), number, position)
        for number, group in enumerate(tables)
        for position in range(len(group.dp))
    ]
    heap: list[_Entry] = [_Entry(bound, n, p) for bound, n, p in slices if np.isfinite(bound)]
    heapq.heapify(heap)
    opened = _best_first(state, tables, heap)
    cutoff = state.top.cutoff_s
    best = _best(state.top)
    return Search(
        top=state.top.ranked,
        complete=not state.cut_short,
        bound_s=min([entry.bound for entry in heap], default=best) if state.cut_short else best,
        open_cells=sorted(((b, tables[n], index) for b, n, index in opened if b <= cutoff), key=lambda c: (c[0], c[2])),
        mappings=counts[0],
        cells=counts[1],
        pairs=state.pairs,
        grid_options=counts[2],
        seconds=time.monotonic() - started,
        seconds_to_best=state.best_at - started,
        groups=tables,
    )


@dataclass(order=True)
class _Entry:
    """Work in order of its bound: a DP slice to be bounded sharply, or its next cell to be evaluated."""

    bound: float
    number: int
    position: int
    rank: int = -1
    """-1: the slice; otherwise the place of the cell in its ordered list."""


def _best_first(state: _State, tables: list[Tables], heap: list[_Entry]) -> list[tuple[float, int, Index]]:
    """Evaluate cells in the order of their bounds until none can enter the top; returns all cells below the cutoff."""
    ordered: dict[tuple[int, int], tuple[Floats, list[Index]]] = {}
    steps = 0
    while heap and heap[0].bound <= state.top.cutoff_s and not state.late():
        entry = heapq.heappop(heap)
        place = (entry.number, entry.position)
        if entry.rank < 0:
            ordered[place] = _ordered_cells(state.problem, tables[entry.number], entry.position)
        else:
            _offer_all(state, cell_problem(tables[entry.number], ordered[place][1][entry.rank]))
        bounds = ordered[place][0]
        if entry.rank + 1 < len(bounds):
            heapq.heappush(heap, _Entry(float(bounds[entry.rank + 1]), *place, entry.rank + 1))
        steps += 1
        if steps % 64 == 0:
            state.tell(Progress("search", steps, 0, _finite(_best(state.top)), heap[0].bound if heap else None))
    return [
        (float(bound), number, index)
        for (number, _), (bounds, cells) in ordered.items()
        for bound, index in zip(bounds, cells, strict=True)
    ]


def _ordered_cells(problem: Problem, tables: Tables, position: int) -> tuple[Floats, list[Index]]:
    """Cells of one DP size that may hold a feasible pair, by their bound."""
    bounds = slice_bounds(problem, tables, position)
    flat = bounds.reshape(-1)
    order = np.argsort(flat, kind="stable")
    order = order[np.isfinite(flat[order])]
    places = np.stack(np.unravel_index(order, bounds.shape), axis=1)
    return flat[order], [(position, *(int(i) for i in place)) for place in places]


def _best(top: Top) -> float:
    return min((c.step_time_s for c in top.by_key.values()), default=np.inf)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _tabulated(state: _State, prune: bool) -> tuple[list[Tables], tuple[int, int, int]]:
    """Tables of all groups, and the size of the space."""
    tables: list[Tables] = []
    counts = (0, 0, 0)
    todo = rows_of(state.problem)
    for number, (used, row) in enumerate(todo):
        if state.late():
            break
        state.tell(Progress("tables", number, len(todo)))
        tables += tabulate(state.problem, used, row, prune=prune)
        here = count_space(state.problem, used, row)
        counts = (counts[0] + here[0], counts[1] + here[1], counts[2] + here[2])
    return tables, counts


def _offer_all(state: _State, cell: CellProblem) -> None:
    """Offer a cell's pairs to the top, fastest first, until none can enter."""
    if not len(cell.attention) or not len(cell.expert):
        return
    state.pairs += len(cell.attention) * len(cell.expert)
    result = evaluate(state.problem, cell)
    times = np.where(result.feasible, result.step_time_s, np.inf).reshape(-1)
    inside = np.flatnonzero(times <= min(state.top.cutoff_s, np.finfo(float).max))
    before = _best(state.top)
    for flat in inside[np.argsort(times[inside], kind="stable")]:
        if times[flat] > state.top.cutoff_s:
            break
        attention, expert = divmod(int(flat), len(cell.expert))
        key = key_of(cell, attention, expert)
        state.top.offer(Candidate(float(times[flat]), key, cell, attention, expert))
    if _best(state.top) < before:
        state.best_at = time.monotonic()
