"""A second way to a front: enumeration of a small space, or a refutation of every gap between its points.

Contents: by_exhaustion, Gap, gaps, certify.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mapsearch.answer import Proof
from mapsearch.progress import Progress
from mapsearch.quantity import Floats
from mapsearch.solver.backends import choose
from mapsearch.solver.backends.base import Refutation, Tally, remaining_s
from mapsearch.solver.bounds import memory_limit, slice_bounds
from mapsearch.solver.cells import CellProblem, Index, block_of, cell_problem, evaluate, option_bounds, option_bytes
from mapsearch.solver.front import BLOCK, FrontPoint, FrontSearch, Queued, space_of
from mapsearch.solver.objectives import Objectives
from mapsearch.solver.problem import Problem
from mapsearch.solver.proof import MOST_PAIRS, SAME, whole_space
from mapsearch.solver.tables import Tables
from mapsearch.solver.vectors import Mask, minimal

Report = Callable[[Progress], None]
TOLD_APART = 1e-6
"""Share of a memory limit by which a gap is kept off the point at its end: encodings round to a tenth of it."""
MOST_S = float(np.finfo(float).max)
"""Above every step time: a cell whose bound is infinite holds no mapping."""
CERTIFIED = frozenset({"step_time", "peak_memory", "devices"})
"""Objectives whose gaps a backend can state: a cutoff and a memory limit."""


def by_exhaustion(
    problem: Problem, objectives: Objectives, found: FrontSearch, deadline: float | None = None
) -> Proof | None:
    """The front of all pairs of all cells, nothing bounded or pruned; None when there are too many of them."""
    started = time.monotonic()
    asked = space_of(problem, objectives)
    cells = whole_space(asked, found.mappings, MOST_PAIRS["exhaustive"], deadline)
    if cells is None:
        return None
    every = [np.zeros((0, len(objectives.names)))]
    for cell in cells:
        if remaining_s(deadline) <= 0.0:
            return Proof(backend="exhaustive", status="not proven", kind="exhaustion", detail="time ran out")
        every.append(vectors_of(asked, objectives, cell))
    joined = np.concatenate(every)
    difference = _difference(np.array([p.values for p in found.points]).reshape(-1, joined.shape[1]), joined)
    pairs = sum(len(cell.attention) * len(cell.expert) for cell in cells)
    return Proof(
        backend="exhaustive",
        status="disagrees" if difference else "proven",
        kind="exhaustion",
        seconds=time.monotonic() - started,
        detail=difference or f"{len(cells):,} cells with {pairs:,} pairs, all options",
    )


def vectors_of(problem: Problem, objectives: Objectives, cell: CellProblem) -> Floats:
    """Minimal vectors of a cell's feasible pairs."""
    result = evaluate(problem, cell)
    shape, view = result.feasible.shape, result.view
    peak = np.broadcast_to(np.maximum.reduce(np.broadcast_arrays(*view.memory)), shape)
    share: Floats = np.zeros(shape)
    if "exposed_fraction" in objectives:
        share = (result.step_time_s - view.step_time_with(frozenset())) / result.step_time_s
    vectors = objectives.values(result.step_time_s, peak, share, cell.tables.cell.devices)
    flat = vectors[result.feasible & ~np.isnan(result.step_time_s)]
    return np.asarray(flat[minimal(flat)])


def _difference(listed: Floats, every: Floats) -> str | None:
    """The first vector of one front that the other does not reach, both ways; None when there is none."""
    front = np.unique(every[minimal(every)], axis=0)
    for name, mine, other in (("the search", front, listed), ("the enumeration", listed, front)):
        for vector in mine:
            # Sums of the same terms in another order differ by rounding.
            reach = vector + SAME * np.abs(vector)
            if not (other <= reach).all(axis=1).any():
                return f"{name} has nothing at or below {tuple(vector.tolist())}"
    return None


@dataclass(frozen=True)
class Gap:
    """A box between neighbours of a front: mappings on so many devices, faster than one and smaller than the next."""

    devices: int
    cutoff_s: float
    limit_bytes: float


def gaps(points: list[FrontPoint], objectives: Objectives, devices: int, limit_bytes: float) -> list[Gap]:
    """The boxes that hold every mapping on so many devices that no point equals or dominates."""
    near = [p for p in points if p.devices <= devices or "devices" not in objectives]
    steps = np.array([(p.candidate.step_time_s, p.peak_bytes) for p in near]).reshape(-1, 2)
    if "peak_memory" not in objectives:
        return [Gap(devices, float(min(steps[:, 0], default=np.inf)), limit_bytes)]
    stairs = sorted((m, t) for t, m in steps[minimal(steps)].tolist())
    memory = [m * (1.0 - TOLD_APART) for m, _ in stairs] + [limit_bytes]
    boxes = [Gap(devices, t, m) for t, m in zip([np.inf, *(t for _, t in stairs)], memory, strict=True)]
    return [box for box in boxes if box.limit_bytes >= objectives.floors.get("peak_memory", -np.inf)]


def certify(
    problem: Problem,
    objectives: Objectives,
    found: FrontSearch,
    backend: str = "auto",
    deadline: float | None = None,
    report: Report | None = None,
) -> Proof:
    """Refute every gap of a complete front with a solver: nothing in it is feasible. Raises BackendMissing."""
    started, solver, kind = time.monotonic(), choose(backend), "gaps between the points"
    tell = report or (lambda _progress: None)

    def told(status: str, detail: str) -> Proof:
        seconds = time.monotonic() - started
        return Proof.model_validate(
            {"backend": solver.name, "status": status, "kind": kind, "detail": detail, "seconds": seconds}
        )

    other = [name for name in objectives.names if name not in CERTIFIED]
    if other:
        return told("not proven", f"no backend can state {', '.join(other)}")
    if not found.complete:
        return told("not proven", "the search was cut short")
    asked, tally, todo = space_of(problem, objectives), Tally(), _every_gap(problem, objectives, found)
    inside = _Inside(found, todo, lambda done, total: tell(Progress("bounds of the gaps", done, total)), deadline)
    for number, gap in enumerate(todo):
        if remaining_s(deadline) <= 0.0:
            return told("not proven", f"time ran out after {number} of {len(todo)} gaps")
        tell(Progress(f"proof ({solver.name})", number, len(todo)))
        cells = list(inside.cells(number))
        if not cells:
            continue
        result = solver.refute(_limited(asked, gap.limit_bytes), cells, gap.cutoff_s, set(), deadline)
        if result.verdict != "proven":
            return told(*_unproven(result, gap))
        tally.solves, tally.cells = tally.solves + 1, tally.cells + result.cells
        tally.error_s, tally.literals = max(tally.error_s, result.error_s), tally.literals + result.literals
    return told(
        "proven",
        f"{len(todo)} gaps, {tally.solves} of them with cells that the bounds leave; {tally.cells:,} cells with "
        f"{tally.literals:,} literals solved; differences below {tally.error_s:.1e} s or {TOLD_APART:g} of the memory "
        "are not told apart",
    )


def _every_gap(problem: Problem, objectives: Objectives, found: FrontSearch) -> list[Gap]:
    counts = sorted({tables.cell.devices for tables in found.groups})
    limit = memory_limit(problem)
    return [gap for devices in counts for gap in gaps(found.points, objectives, devices, limit)]


class _Inside:
    """Which cells reach into which gap, by bounds of their options for all gaps at once."""

    def __init__(
        self, found: FrontSearch, todo: list[Gap], tell: Callable[[int, int], None], deadline: float | None
    ) -> None:
        self.found, self.todo = found, todo
        self.reaching: list[dict[tuple[int, int], list[Index]]] = [{} for _ in todo]
        """By gap: cells of each group and DP position."""
        self.made: dict[tuple[int, Index], CellProblem] = {}
        for number, ((group, position), queued) in enumerate(found.queued.items()):
            if remaining_s(deadline) <= 0.0:
                return  # and so is the loop over the gaps
            tell(number, len(found.queued))
            devices = found.groups[group].cell.devices
            mine = np.array([place for place, gap in enumerate(todo) if gap.devices == devices], dtype=np.intp)
            alive = self._alive(found.groups[group], position, queued, [todo[place] for place in mine])
            for column in np.flatnonzero(alive.any(axis=0)):
                cells = [queued.ordered.cells[place] for place in np.flatnonzero(alive[:, column])]
                self.reaching[mine[column]][group, position] = cells

    def _alive(self, tables: Tables, position: int, queued: Queued, gaps: list[Gap]) -> Mask:
        """Which cells of one DP size reach into which of some gaps on as many devices; shape (cells, gaps)."""
        limits = np.array([gap.limit_bytes for gap in gaps])
        cutoffs = np.minimum([gap.cutoff_s for gap in gaps], MOST_S)
        alive = (queued.time_s[:, None] <= cutoffs) & (queued.memory[:, None] <= limits)
        own = np.flatnonzero(tables.attention.options.sizes[2] == tables.dp[position])
        every, sharp = np.arange(len(tables.expert.options)), queued.ordered.sharp
        left = np.flatnonzero(alive.any(axis=1))
        for start in range(0, len(left), BLOCK):
            here = left[start : start + BLOCK]
            block = block_of(tables, [queued.ordered.cells[place] for place in here], own, every)
            bounds = option_bounds(block, sharp.best_attention, sharp.best_expert)
            for times, floors in zip(bounds, option_bytes(block), strict=True):
                for column in np.flatnonzero(alive[here].any(axis=0)):
                    inside = (times <= cutoffs[column]) & (floors <= limits[column])
                    alive[here, column] &= inside.any(axis=1)
        return alive

    def cells(self, number: int) -> Iterator[CellProblem]:
        """The cells that reach into a gap also with the bounds that so much memory leaves."""
        gap = self.todo[number]
        for (group, position), cells in self.reaching[number].items():
            # With less memory fewer options fit, and the cells' bounds rise.
            bounds = slice_bounds(self.found.groups[group], position, gap.limit_bytes).bounds
            for index in cells:
                if bounds[index[1:]] <= min(gap.cutoff_s, MOST_S):
                    if (group, index) not in self.made:
                        self.made[group, index] = cell_problem(self.found.groups[group], index)
                    yield self.made[group, index]


def _limited(problem: Problem, limit_bytes: float) -> Problem:
    """The problem with less memory per device."""
    relations = (
        replace(relation, limit=lambda _view: limit_bytes) if relation.name == "hbm" else relation
        for relation in problem.relations
    )
    return replace(problem, relations=tuple(relations))


def _unproven(result: Refutation, gap: Gap) -> tuple[str, str]:
    box = f"{gap.devices:,} devices, below {gap.cutoff_s!r} s and {gap.limit_bytes!r} bytes"
    if result.witness is None:
        return "not proven", f"time ran out in the gap of {box}"
    return "disagrees", f"in the gap of {box}: {result.witness.step_time_s!r} s for {result.witness.key}"
