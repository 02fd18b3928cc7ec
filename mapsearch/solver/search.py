"""The search: bound every cell, evaluate the promising ones exactly, best first.

Contents: Search, key_of, search.

Exact: a cell is left out only when its lower bound is not below the k-th best step time found. Distinct mappings
differ in sizes or choices; each is listed with its best placement.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from mapsearch.interrupts import interruptible, requested
from mapsearch.progress import Progress
from mapsearch.solver.bounds import compute_floor_s, memory_limit, quick_bound
from mapsearch.solver.cells import Index, block_of, evaluate_block, option_bounds
from mapsearch.solver.exposure import hopeless_cells, hopeless_options, least_excess, limited_size
from mapsearch.solver.families import Families
from mapsearch.solver.groups import turns
from mapsearch.solver.ordering import Ordered, ordered_cells
from mapsearch.solver.problem import Problem
from mapsearch.solver.space import count_space, rows_of
from mapsearch.solver.tables import WHAT_IF, Tables, hbm_bytes, tabulate
from mapsearch.solver.top import Candidate, Key, Top

Report = Callable[[Progress], None]
LOOK_AHEAD = 1.02
"""Cells are bounded up to this share of HBM, so that what slightly more memory unlocks is known afterwards."""
EARLY_STEPS = 10
"""Steps of the search after each row of tables: with fewer the first mappings come late, more find no better ones."""
REPORTED = 16
"""Steps between two reports."""
BLOCK = 32
"""Cells evaluated at a time: enough to spread the cost of a call, few enough to stop early."""
SKETCHED = 200_000
"""Options of a pipeline row from which on a small part of the space is searched first: tables are slow to make there,
and the cutoff that is known then saves more than the first look takes."""
SLACK = 1e-9
"""Share by which times of the same mapping may differ, summed in another order."""


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
    opened: dict[tuple[int, int], Ordered]
    """Bounded cells by group and DP position; slices that are left out cannot beat the slowest listed mapping, or break
    a limit on exposure whatever is picked."""
    interrupted: bool = False
    """True when the user stopped it; what was found until then is in `top`."""
    k: int = 0
    """How many mappings were asked for."""
    trace: list[tuple[float, float]] = field(default_factory=list)
    """Seconds after which there was a better mapping, and its step time."""


def key_of(tables: Tables, index: Index, attention: int, expert: int) -> Key:
    """The sizes and choices of a cell with two options (by position): what makes two mappings distinct."""
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
            (view.overlap, 2),
        )
    )
    first = [int(row[attention].prod()) for row in a.rows]
    second = [int(row[expert].prod()) for row in e.rows]
    return (*first, tables.group.pp, *second, *variant, int(a.choice[attention]), int(e.choice[expert]))


@dataclass
class _State:
    """A search under way."""

    problem: Problem
    top: Top
    deadline: float | None
    tell: Report
    started: float
    pairs: int = 0
    trace: list[tuple[float, float]] = field(default_factory=list)
    """Seconds until a better mapping was there, and its step time."""
    sketched: list[Candidate] = field(default_factory=list)
    """Mappings of a first look, which the search itself finds again if it comes to an end."""
    cut_short: bool = False
    interrupted: bool = False
    floor_s: float = 0.0
    """Least step time of any mapping, tabulated or not."""
    first: bool = False
    """The first k mappings are enough."""
    untabulated: bool = False
    """Some part of the space was not even bounded: only `floor_s` is known of it."""

    @property
    def incumbent_s(self) -> float | None:
        """Step time of the best so far, for reports."""
        return self.trace[-1][1] if self.trace else None

    def improved(self, step_time_s: float, after_s: float | None = None) -> None:
        """Remember when a mapping was the best until then."""
        if not self.trace or step_time_s < self.trace[-1][1]:
            self.trace.append((time.monotonic() - self.started if after_s is None else after_s, step_time_s))

    def interrupt(self) -> None:
        """Remember that the user stopped the search: it ends at the next look at the clock."""
        self.cut_short = self.interrupted = True

    def late(self) -> bool:
        """True when the time is over or the user wants to stop; remembers it."""
        if requested():
            self.interrupt()
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.cut_short = True
        if self.first and self.top.full:
            self.cut_short = True
        return self.cut_short


def search(
    problem: Problem,
    k: int,
    *,
    prune: bool = True,
    deadline: float | None = None,
    report: Report | None = None,
    known_s: float = math.inf,
    first: bool = False,
) -> Search:
    """The k fastest mappings, by bounds and exact evaluation; complete unless the deadline cut it short.

    `known_s`: slower mappings are left out from the start; k distinct ones are known to take at most so long, or only
    those that do are asked for, and the list may hold fewer. `first`: end with the first k mappings found, whatever
    their times; when nothing fits, the search is complete all the same.
    """
    started = time.monotonic()
    tell = report or (lambda _progress: None)
    top = Top(k, cutoff_s=known_s * (1.0 + SLACK))
    state = _State(problem, top, deadline, tell, started, floor_s=compute_floor_s(problem.facts), first=first)
    if prune and np.isinf(known_s) and not first:
        _sketch(state)
    machine = _Machine(state, (1.0 + SLACK if first else LOOK_AHEAD) * memory_limit(problem))
    counts = _tabulated(machine, prune)
    machine.run()
    for candidate in state.sketched if state.cut_short else []:
        if state.top.wants(candidate.step_time_s, candidate.key):
            state.top.offer(candidate)
    cutoff = state.top.cutoff_s
    opened = (
        (float(bound), machine.tables[number], index)
        for (number, _), found in machine.opened.items()
        for bound, index in zip(found.bounds, found.cells, strict=True)
    )
    return Search(
        top=state.top.ranked,
        complete=not state.cut_short,
        bound_s=_bound_s(state, machine.heap),
        open_cells=sorted((cell for cell in opened if cell[0] <= cutoff), key=lambda c: (c[0], c[2])),
        mappings=counts[0],
        cells=counts[1],
        pairs=state.pairs,
        grid_options=counts[2],
        seconds=time.monotonic() - started,
        seconds_to_best=state.trace[-1][0] if state.trace else 0.0,
        groups=machine.tables,
        opened=machine.opened,
        interrupted=state.interrupted,
        k=k,
        trace=state.trace,
    )


def _sketch(state: _State) -> None:
    """On a large space, search a small part of it first: nested placements, then all placements of the best sizes."""
    problem, k = state.problem, state.top.k
    if problem.first_look or count_space(problem, *rows_of(problem)[0])[2] < SKETCHED:
        return
    look = replace(problem, first_look=True)
    for _ in range(2):
        found = search(look, k, deadline=state.deadline, report=state.tell, known_s=state.top.cutoff_s)
        begun_s, state.pairs = time.monotonic() - state.started - found.seconds, state.pairs + found.pairs
        for after_s, step_time_s in found.trace:
            state.improved(step_time_s, begun_s + after_s)
        if len(found.top) == k:
            state.sketched, state.top.cutoff_s = found.top, found.top[-1].step_time_s * (1.0 + SLACK)
        elif not state.sketched:
            state.sketched = found.top
        if found.interrupted:
            state.interrupt()
        if state.late() or not found.top:
            return
        sizes = (frozenset((c.key[place], c.key[place + 1]) for c in found.top) for place in (0, 4))
        look = replace(look, sizes=(next(sizes), next(sizes)))


def _bound_s(state: _State, heap: list[_Entry]) -> float:
    """Lower bound of the step time of every mapping, listed or not."""
    left = [entry.bound for entry in heap] if state.cut_short else []
    if state.untabulated:
        left.append(state.floor_s)
    return min([*left, state.top.best_s])


@dataclass(order=True)
class _Entry:
    """Work in order of its bound: a DP slice to be bounded sharply, or its next cell to be evaluated."""

    bound: float
    number: int
    position: int
    rank: int = -1
    """-1: the slice; otherwise the place of the cell in its ordered list."""


@dataclass
class _Machine:
    """Best-first search over the tables that there are so far; more may be added between runs."""

    state: _State
    memory_bytes: float
    """Bytes per device up to which cells are bounded; pairs are judged by the problem's own limit."""
    tables: list[Tables] = field(default_factory=list)
    heap: list[_Entry] = field(default_factory=list)
    opened: dict[tuple[int, int], Ordered] = field(default_factory=dict)
    steps: int = 0

    def add(self, tables: Tables) -> None:
        """Queue the slices of a group."""
        self.tables.append(tables)
        for position in range(len(tables.dp)):
            bound = quick_bound(tables, position, self.memory_bytes)
            if not np.isfinite(bound):
                continue
            limited = limited_size(self.state.problem, tables, position)
            if limited and np.all(hopeless_cells(limited, tables, position)):
                continue
            if limited and self.state.first:
                bound = float(np.nanmin(least_excess(limited, tables, position)))
            heapq.heappush(self.heap, _Entry(bound, len(self.tables) - 1, position))

    def run(self, most: float = np.inf) -> None:
        """Evaluate cells in the order of their bounds until none can enter the top, or for at most so many steps."""
        state, taken = self.state, 0
        while self.heap and self.heap[0].bound <= state.top.cutoff_s and taken < most and not state.late():
            entry = heapq.heappop(self.heap)
            try:
                self._step(entry)
            except KeyboardInterrupt:
                state.interrupt()
                heapq.heappush(self.heap, entry)
            taken += 1
            self.steps += 1
            if self.steps % REPORTED == 0 and np.isinf(most):
                bound = self.heap[0].bound if self.heap else None
                state.tell(Progress("search", self.steps, 0, state.incumbent_s, bound))

    def _step(self, entry: _Entry) -> None:
        """Bound a slice sharply or evaluate its next block of cells, and queue what is left of it."""
        place, following = (entry.number, entry.position), 0
        if entry.rank < 0:
            self.opened[place] = ordered_cells(
                self.state.problem, self.tables[entry.number], entry.position, self.memory_bytes, self.state.first
            )
        else:
            cutoff = self.state.top.cutoff_s
            most = int(np.searchsorted(self.opened[place].bounds, cutoff, side="right"))
            following = min(entry.rank + BLOCK, most)
            _offer_all(self.state, self.tables[entry.number], self.opened[place], entry.rank, following)
        bounds = self.opened[place].bounds
        if following < len(bounds):
            heapq.heappush(self.heap, _Entry(float(bounds[following]), *place, following))


def _tabulated(machine: _Machine, prune: bool) -> tuple[int, int, int]:
    """Tabulate all groups, searching a little after each so that there is a mapping early; the size of the space."""
    state, counts = machine.state, (0, 0, 0)
    rows = rows_of(state.problem)
    todo = [(turn, used, row) for turn in turns(state.problem) for used, row in rows]
    # Whether anything fits is asked without what more memory would unlock.
    limit_bytes = hbm_bytes(state.problem, 1.0 + SLACK if state.first else WHAT_IF)
    families = Families(state.problem, rows, limit_bytes, 0)
    for number, (turn, used, row) in enumerate(todo):
        if turn and number % len(rows) == 0:
            machine.run()
            families = Families(state.problem, rows, limit_bytes, turn)
        if turn == 0:
            here = count_space(state.problem, used, row)
            counts = (counts[0] + here[0], counts[1] + here[1], counts[2] + here[2])
        if state.late():
            state.untabulated = True
            continue
        try:
            state.tell(Progress("tables", number, len(todo), state.incumbent_s, state.floor_s))
            with interruptible():
                made = _tables(machine, families, used, row, prune)
            for tables in made:
                machine.add(tables)
            machine.run(most=EARLY_STEPS)
        except KeyboardInterrupt:
            state.interrupt()
            state.untabulated = True
    return counts


def _tables(
    machine: _Machine, families: Families, used: tuple[int, ...], row: tuple[int, ...], prune: bool
) -> list[Tables]:
    """The tables of a row; once a cutoff is known, of what can be as fast by its floor.

    Where exposure is limited there may be no cutoff for long, or none at all; then of what fits beside some partner.
    """
    problem, cutoff, first = machine.state.problem, machine.state.top.cutoff_s, machine.state.first
    if (prune and np.isfinite(cutoff)) or (problem.exposure_limited and (prune or first)):
        return families.tables(used, row, min(cutoff, float(np.finfo(float).max)), prune=prune)
    families.drop(used, row)
    return list(tabulate(problem, used, row, prune=prune, turn=families.turn))


def _offer_all(state: _State, tables: Tables, found: Ordered, start: int, stop: int) -> None:
    """Offer the pairs of a block of cells to the top, fastest first, until none can enter.

    Options whose own bound is above the cutoff in every cell of the block are left out before pairs are formed.
    """
    cells = found.cells[start:stop]
    if not cells:
        return
    cutoff = min(state.top.cutoff_s, float(np.finfo(float).max))
    attention = np.flatnonzero(tables.attention.options.sizes[2] == tables.dp[cells[0][0]])
    expert = np.arange(len(tables.expert.options))
    whole = block_of(tables, cells, attention, expert)
    bounds_a, bounds_e = option_bounds(whole, found.sharp.best_attention, found.sharp.best_expert)
    fast_a, fast_e = bounds_a <= cutoff, bounds_e <= cutoff
    if found.limited:
        hopeless_a, hopeless_e = hopeless_options(found.limited, whole)
        fast_a, fast_e = fast_a & ~hopeless_a, fast_e & ~hopeless_e
    attention, expert = attention[fast_a.any(axis=0)], expert[fast_e.any(axis=0)]
    if not len(attention) or not len(expert):
        return
    result = evaluate_block(state.problem, block_of(tables, cells, attention, expert))
    state.pairs += result.feasible.size
    times = np.where(result.feasible, result.step_time_s, np.inf)
    inside = np.flatnonzero(times <= cutoff)
    flat = times.reshape(-1)
    for place in inside[np.argsort(flat[inside], kind="stable")]:
        if flat[place] > state.top.cutoff_s:
            break
        number, i, j = (int(part) for part in np.unravel_index(place, times.shape))
        option_a, option_e = int(attention[i]), int(expert[j])
        key = key_of(tables, cells[number], option_a, option_e)
        if state.top.wants(float(flat[place]), key):
            state.top.offer(Candidate(float(flat[place]), key, tables, cells[number], option_a, option_e))
    state.improved(state.top.best_s)
