"""The search: bound every cell, evaluate the promising ones exactly, best first.

Contents: Candidate, SpaceCount, Found, Search, search.

Exact: a cell is left out only when its lower bound is not below the k-th best step time found. Distinct mappings
differ in sizes or choices; each is listed with its best placement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from mapsearch.progress import Progress
from mapsearch.quantity import Floats
from mapsearch.solver.bounds import cell_bounds
from mapsearch.solver.cells import CellProblem, Index, cell_problem, evaluate
from mapsearch.solver.options import pipeline_rows
from mapsearch.solver.problem import Problem
from mapsearch.solver.tables import Group, Tables, grids, tabulate

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


def groups_of(problem: Problem) -> Iterator[Group]:
    """All groups of a problem, in a fixed order."""
    for used in problem.used:
        for row in pipeline_rows(used, problem.facts.model.layers):
            yield Group(used, row)


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


def count_space(problem: Problem, tables: Tables) -> tuple[int, int, int]:
    """Mappings, cells and grid options of a group before any relation but divisibility of the fan-out."""
    attention, expert = grids(problem, tables.group)
    per_variant = int(np.prod(tables.allowed.shape[1:-1]))
    return len(attention) * len(expert) * per_variant, int(tables.allowed.size), len(attention) + len(expert)


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
    tell = report or (lambda _progress: None)
    groups, queue, counts = _tabulated(problem, prune, deadline, tell)
    top, pairs, best_at = Top(k), 0, started
    cut_short = deadline is not None and time.monotonic() > deadline
    position = 0
    for position, (bound, number, index) in enumerate(queue):
        if bound > top.cutoff_s:
            break
        if deadline is not None and time.monotonic() > deadline:
            cut_short = True
            break
        cell = cell_problem(groups[number], index)
        pairs += len(cell.attention) * len(cell.expert)
        before = _best(top)
        _offer_all(problem, top, cell)
        if _best(top) < before:
            best_at = time.monotonic()
        if position % 50 == 0:
            tell(Progress("search", position, len(queue), _finite(_best(top)), bound))
    else:
        position = len(queue)
    cutoff = top.cutoff_s
    open_cells = [(bound, groups[number], index) for bound, number, index in queue if bound <= cutoff]
    left = [bound for bound, _, _ in queue[position:]] if cut_short else []
    return Search(
        top=top.ranked,
        complete=not cut_short,
        bound_s=min([*left, _best(top)]),
        open_cells=open_cells,
        mappings=counts[0],
        cells=counts[1],
        pairs=pairs,
        grid_options=counts[2],
        seconds=time.monotonic() - started,
        seconds_to_best=best_at - started,
        groups=groups,
    )


def _best(top: Top) -> float:
    return min((c.step_time_s for c in top.by_key.values()), default=np.inf)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _tabulated(
    problem: Problem, prune: bool, deadline: float | None, tell: Report
) -> tuple[list[Tables], list[tuple[float, int, Index]], tuple[int, int, int]]:
    """Tables of all groups, and all possible cells ordered by their bound."""
    groups: list[Tables] = []
    bounds: list[Floats] = []
    counts = np.zeros(3, dtype=object)
    todo = list(groups_of(problem))
    for number, group in enumerate(todo):
        if deadline is not None and time.monotonic() > deadline:
            break
        tell(Progress("tables", number, len(todo), None, None))
        tables = tabulate(problem, group, prune=prune)
        if tables is None:
            continue
        groups.append(tables)
        bounds.append(cell_bounds(problem, tables))
        counts += np.array(count_space(problem, tables), dtype=object)
    queue = []
    for number, bound in enumerate(bounds):
        for flat in np.flatnonzero(np.isfinite(bound)):
            index = tuple(int(i) for i in np.unravel_index(flat, bound.shape))
            queue.append((float(bound.reshape(-1)[flat]), number, index))
    queue.sort()
    return groups, queue, (int(counts[0]), int(counts[1]), int(counts[2]))


def _offer_all(problem: Problem, top: Top, cell: CellProblem) -> None:
    """Offer a cell's pairs to the top, fastest first, until none can enter."""
    if not len(cell.attention) or not len(cell.expert):
        return
    result = evaluate(problem, cell)
    times = np.where(result.feasible, result.step_time_s, np.inf).reshape(-1)
    order = np.argsort(times, kind="stable")
    for flat in order:
        if not times[flat] <= top.cutoff_s or not np.isfinite(times[flat]):
            break
        attention, expert = divmod(int(flat), len(cell.expert))
        top.offer(Candidate(float(times[flat]), key_of(cell, attention, expert), cell, attention, expert))
