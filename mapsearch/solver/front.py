"""The exact Pareto front of a space: bound every cell as a vector, evaluate what no point excludes, merge.

Contents: FrontPoint, FrontSearch, Queued, front, space_of, shield_of.

Exact: a cell, option or pair is left out only when some point of the front is faster than its bound and not above it
in any other objective. Of mappings with equal vectors the least key is kept (docs/explanation/formulation.md).
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.interrupts import interruptible, requested
from mapsearch.progress import Progress
from mapsearch.quantity import Floats
from mapsearch.solver.bounds import compute_floor_s, has_options, memory_floor, memory_limit, slice_bounds
from mapsearch.solver.cells import Block, Index, block_of, evaluate_block, option_bounds, option_bytes
from mapsearch.solver.objectives import Objectives
from mapsearch.solver.ordering import Ordered
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import key_of
from mapsearch.solver.space import count_space, rows_of
from mapsearch.solver.tables import Tables, tabulate
from mapsearch.solver.top import Candidate
from mapsearch.solver.vectors import Shield, minimal, told_apart

Report = Callable[[Progress], None]
BLOCK = 32
"""Cells evaluated at a time, at most."""
MOST_PAIRS = 2_000_000
"""Pairs evaluated at a time, at most, but for a single cell: bounds the memory of a block."""
EARLY_BLOCKS = 4
"""Blocks evaluated after each row of tables, so that there is a front early."""
REPORTED = 16
"""Blocks between two reports."""


@dataclass(frozen=True)
class FrontPoint:
    """A mapping that no other one dominates (so far), and its vector of objectives."""

    values: tuple[float, ...]
    candidate: Candidate
    devices: int
    peak_bytes: float
    exposed: float


@dataclass(frozen=True)
class FrontSearch:
    """What a search for a front found and how."""

    points: list[FrontPoint]
    """In the order of their vectors."""
    complete: bool
    open_bounds: Floats
    """Vectors that no unseen mapping is below, minimal ones only; shape (count, objectives), empty when complete."""
    queued: dict[tuple[int, int], Queued]
    """Bounded cells by group and DP position; what is left out no gap of the front can hold."""
    groups: list[Tables]
    mappings: int
    cells: int
    pairs: int
    grid_options: int
    seconds: float
    interrupted: bool


def front(
    problem: Problem,
    objectives: Objectives,
    *,
    prune: bool = True,
    deadline: float | None = None,
    report: Report | None = None,
) -> FrontSearch:
    """The front of a problem's mappings; complete unless the deadline or the user cut it short.

    Where devices are an objective, parts of the cluster belong to the space as well.
    """
    started = time.monotonic()
    asked = space_of(problem, objectives)
    machine = _Machine(asked, objectives, deadline, report or (lambda _progress: None), memory_limit(asked))
    counts = machine.tabulated(prune)
    machine.run()
    ordered = sorted(machine.points, key=lambda point: (point.values, point.candidate.key))
    vectors = np.array([point.values for point in ordered]).reshape(-1, len(objectives.names))
    points = [ordered[place] for place in told_apart(vectors)]
    return FrontSearch(
        points=points,
        complete=not machine.cut_short,
        open_bounds=machine.open_bounds(),
        queued=machine.queued,
        groups=machine.tables,
        mappings=counts[0],
        cells=counts[1],
        pairs=machine.pairs,
        grid_options=counts[2],
        seconds=time.monotonic() - started,
        interrupted=machine.interrupted,
    )


def space_of(problem: Problem, objectives: Objectives) -> Problem:
    """The problem with what its objectives ask for: parts of the cluster, steps without communication."""
    return replace(
        problem,
        fewer_devices=problem.fewer_devices or "devices" in objectives,
        exposure=problem.exposure or "exposed_fraction" in objectives,
    )


@dataclass(frozen=True)
class Queued:
    """The cells of one DP size in the order in which they are looked at, with their bounds."""

    ordered: Ordered
    time_s: Floats
    memory: Floats


@dataclass
class _Machine:
    """The front of the tables that there are so far; more may be added between runs."""

    problem: Problem
    objectives: Objectives
    deadline: float | None
    tell: Report
    memory_bytes: float
    points: list[FrontPoint] = field(default_factory=list)
    tables: list[Tables] = field(default_factory=list)
    queued: dict[tuple[int, int], Queued] = field(default_factory=dict)
    heap: list[tuple[float, int, int, int]] = field(default_factory=list)
    """Score of the next cell, group, DP position, place of the cell in its list."""
    shields: dict[int, Shield] = field(default_factory=dict)
    """By devices; emptied when the front changes."""
    unseen: list[tuple[int, ...]] = field(default_factory=list)
    """Used fan-outs with rows that were not tabulated."""
    pairs: int = 0
    blocks: int = 0
    cut_short: bool = False
    interrupted: bool = False

    def late(self) -> bool:
        """True when the time is over or the user wants to stop; remembers it."""
        if requested():
            self.cut_short = self.interrupted = True
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.cut_short = True
        return self.cut_short

    def tabulated(self, prune: bool) -> tuple[int, int, int]:
        """Tabulate all groups, searching a little after each; the size of the space."""
        counts = np.zeros(3, dtype=object)
        todo = rows_of(self.problem)
        for number, (used, row) in enumerate(todo):
            counts += np.array(count_space(self.problem, used, row), dtype=object)
            if self.late():
                self.unseen.append(used)
                continue
            try:
                self.tell(Progress("tables", number, len(todo), self.fastest_s(), None))
                with interruptible():
                    made = list(tabulate(self.problem, used, row, prune=prune, reach=1.0))
                for tables in made:
                    self.add(tables)
                self.run(most=EARLY_BLOCKS)
            except KeyboardInterrupt:
                self.cut_short = self.interrupted = True
                self.unseen.append(used)
        return int(counts[0]), int(counts[1]), int(counts[2])

    def fastest_s(self) -> float | None:
        """Step time of the fastest point, for reports."""
        return min((point.candidate.step_time_s for point in self.points), default=None)

    def add(self, tables: Tables) -> None:
        """Bound the cells of a group, and queue those that no point excludes."""
        self.tables.append(tables)
        for position in range(len(tables.dp)):
            if not has_options(tables, position) or not tables.allowed[position].any():
                continue
            least = memory_floor(tables, position)
            if not (tables.allowed[position, ..., 0] & (least <= self.memory_bytes)).any():
                continue
            sharp = slice_bounds(tables, position, self.memory_bytes)
            floor = np.broadcast_to(least, sharp.bounds.shape)
            flat_t, flat_m = sharp.bounds.reshape(-1), floor.reshape(-1)
            possible = np.flatnonzero(np.isfinite(flat_t))
            possible = possible[~self.hidden(tables, flat_t[possible], flat_m[possible])]
            if not len(possible):
                continue
            # Cells near the origin first, in logarithms: their points exclude most.
            score = np.log(flat_t[possible]) + np.log(np.maximum(flat_m[possible], 1.0))
            order = possible[np.argsort(score, kind="stable")]
            places = np.stack(np.unravel_index(order, sharp.bounds.shape), axis=1)
            cells = [(position, *place) for place in places.tolist()]
            group = len(self.tables) - 1
            self.queued[group, position] = Queued(Ordered(sharp, flat_t[order], cells), flat_t[order], flat_m[order])
            heapq.heappush(self.heap, (float(score.min()), group, position, 0))

    def hidden(
        self, tables: Tables, time_s: Floats, memory: Floats, exposed: Floats | None = None
    ) -> NDArray[np.bool_]:
        """Which bounds some point excludes."""
        if exposed is None and "exposed_fraction" in self.objectives:
            exposed = np.zeros(())
        told = self.objectives.told
        if exposed is not None:
            exposed = np.asarray(told("exposed_fraction", exposed))
        return self.shield(tables.cell.devices).hides(time_s, np.asarray(told("peak_memory", memory)), exposed)

    def shield(self, devices: int) -> Shield:
        """The front as mappings on so many devices see it."""
        if devices not in self.shields:
            self.shields[devices] = shield_of(self.points, self.objectives, devices)
        return self.shields[devices]

    def run(self, most: float = np.inf) -> None:
        """Evaluate cells until none is left that could hold a point, or for at most so many blocks."""
        taken = 0
        while self.heap and taken < most and not self.late():
            entry = heapq.heappop(self.heap)
            try:
                taken += self._step(*entry[1:])
            except KeyboardInterrupt:
                self.cut_short = self.interrupted = True
                heapq.heappush(self.heap, entry)

    def _step(self, group: int, position: int, start: int) -> bool:
        """Evaluate the next block of a DP size and queue what is left of it; whether anything was evaluated."""
        tables, queued = self.tables[group], self.queued[group, position]
        count = len(queued.time_s)
        alive = start + np.flatnonzero(~self.hidden(tables, queued.time_s[start:], queued.memory[start:]))
        if not len(alive):
            return False
        own = int((tables.attention.options.sizes[2] == tables.dp[position]).sum())
        size = max(1, min(BLOCK, MOST_PAIRS // (own * len(tables.expert.options))))
        self._evaluate(tables, queued, alive[:size])
        following = int(alive[size]) if len(alive) > size else count
        if following < count:
            score = math.log(queued.time_s[following]) + math.log(max(queued.memory[following], 1.0))
            heapq.heappush(self.heap, (score, group, position, following))
        self.blocks += 1
        if self.blocks % REPORTED == 0:
            self.tell(Progress("front", self.blocks, 0, self.fastest_s(), None))
        return True

    def _evaluate(self, tables: Tables, queued: Queued, places: NDArray[np.intp]) -> None:
        """Merge the pairs of some cells into the front, those left out first that no pair of theirs could enter."""
        cells = [queued.ordered.cells[place] for place in places]
        own = np.flatnonzero(tables.attention.options.sizes[2] == tables.dp[cells[0][0]])
        every = np.arange(len(tables.expert.options))
        own, every = self._promising(tables, queued, block_of(tables, cells, own, every), own, every)
        if not len(own) or not len(every):
            return
        result = evaluate_block(self.problem, block_of(tables, cells, own, every))
        self.pairs += result.feasible.size
        shape, view = result.feasible.shape, result.view
        peak = np.broadcast_to(np.maximum.reduce(np.broadcast_arrays(*view.memory)), shape)
        where = np.flatnonzero(result.feasible & ~np.isnan(result.step_time_s))
        times = np.broadcast_to(result.step_time_s, shape).reshape(-1)[where]
        peaks, shares = peak.reshape(-1)[where], np.zeros(len(where))
        if "exposed_fraction" in self.objectives:
            quiet = np.broadcast_to(view.step_time_with(frozenset()), shape).reshape(-1)[where]
            shares = (times - quiet) / times
        kept = np.flatnonzero(~self.hidden(tables, times, peaks, shares))
        kept = kept[minimal(np.stack([a[kept] for a in self._axes(times, peaks, shares)], axis=1))]
        found = []
        for each in kept:
            number, i, j = (int(part) for part in np.unravel_index(where[each], shape))
            place = (cells[number], int(own[i]), int(every[j]))
            found.append(self._point(tables, *place, float(times[each]), float(peaks[each]), float(shares[each])))
        self.merge(found)

    def _axes(self, times: Floats, peaks: Floats, shares: Floats) -> list[Floats]:
        """The coordinates that tell mappings on equally many devices apart."""
        wanted = {"peak_memory": peaks, "exposed_fraction": shares}
        told = self.objectives.told
        return [times, *(np.asarray(told(name, each)) for name, each in wanted.items() if name in self.objectives)]

    def _promising(
        self, tables: Tables, queued: Queued, block: Block, own: NDArray[np.intp], every: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Options that no point excludes in every cell, each with the best that the other grid could add."""
        sharp = queued.ordered.sharp
        bounds = option_bounds(block, sharp.best_attention, sharp.best_expert)
        kept = []
        for bound, floor, positions in zip(bounds, option_bytes(block), (own, every), strict=True):
            useful = np.isfinite(bound) & (floor <= self.memory_bytes) & ~self.hidden(tables, bound, floor)
            kept.append(positions[useful.any(axis=0)])
        return kept[0], kept[1]

    def _point(
        self, tables: Tables, index: Index, attention: int, expert: int, time_s: float, peak: float, share: float
    ) -> FrontPoint:
        key = key_of(tables, index, attention, expert)
        candidate = Candidate(time_s, key, tables, index, attention, expert)
        devices = tables.cell.devices
        values = self.objectives.values(time_s, peak, share, devices)
        return FrontPoint(tuple(values.tolist()), candidate, devices, peak, share)

    def merge(self, found: list[FrontPoint]) -> None:
        """Take in points; of equal vectors the least key stays."""
        if not found:
            return
        best: dict[tuple[float, ...], FrontPoint] = {}
        for point in [*self.points, *found]:
            held = best.get(point.values)
            if held is None or point.candidate.key < held.candidate.key:
                best[point.values] = point
        points = list(best.values())
        self.points = [points[place] for place in minimal(np.array([point.values for point in points]))]
        self.shields = {}

    def open_bounds(self) -> Floats:
        """Minimal vectors that no mapping outside the front is below; none when nothing is open."""
        vectors = [np.zeros((0, len(self.objectives.names)))]
        for _, group, position, start in self.heap if self.cut_short else []:
            tables, queued = self.tables[group], self.queued[group, position]
            times, memory = queued.time_s[start:], queued.memory[start:]
            alive = ~self.hidden(tables, times, memory)
            vectors.append(self.objectives.values(times[alive], memory[alive], 0.0, tables.cell.devices))
        whole = self.problem.facts.fabric.devices
        for used in sorted(set(self.unseen)):
            devices = math.prod(used)
            # The floor is that of all devices; fewer share the same work.
            floor_s = compute_floor_s(self.problem.facts) * whole / devices
            vectors.append(self.objectives.values(floor_s, 0.0, 0.0, devices)[None])
        joined = np.unique(np.concatenate(vectors), axis=0)
        return joined[minimal(joined)]


def shield_of(points: list[FrontPoint], objectives: Objectives, devices: int) -> Shield:
    """What the points exclude among mappings with so many devices.

    Energy and cost are multiples of device-seconds: a point on other devices excludes from its own device-seconds on.
    """
    near = [point for point in points if point.devices <= devices or "devices" not in objectives]
    times = np.array([point.candidate.step_time_s for point in near])
    if objectives.device_seconds and near:
        taken = np.array([point.candidate.step_time_s * point.devices for point in near])
        # Rounded up: a mapping within an ulp of it is looked at.
        times = np.maximum(times, taken / devices * (1.0 + 1e-15))
    told = objectives.told
    limited = "peak_memory" in objectives
    memory = np.array([told("peak_memory", point.peak_bytes) if limited else -np.inf for point in near])
    shares = np.array([told("exposed_fraction", point.exposed) for point in near])
    share = shares if "exposed_fraction" in objectives else None
    return Shield(times, memory, share)
