"""Which cells can hold a mapping up to a cutoff, by interval arithmetic over the tables: for proofs only.

Contents: FLOAT_SLACK, Sieved, sieved.

Plain loops over DP sizes and micro-batches; nothing of `bounds.py`, its memory test or its list of windows is used. A
cell goes when no option of a grid satisfies the relations of memory with any partner, when the interval of its step
time lies above the cutoff, or when that of a relation lies above its limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.constraints.views import PairView
from mapsearch.costs.step import ALL_CLASSES, FIELDS, StageSum, Timing, step_time_s
from mapsearch.quantity import Floats, Num, maximum
from mapsearch.solver.cells import Index
from mapsearch.solver.intervals import Interval, hull, interval
from mapsearch.solver.problem import Problem
from mapsearch.solver.tables import GridTable, Tables

Mask = NDArray[np.bool_]
FLOAT_SLACK = 1e-9
"""Relative rounding of float sums that an interval has to exceed a limit by, before it is an argument."""


@dataclass(frozen=True)
class Sieved:
    """The cells of one group."""

    cells: int
    """Cells that the relations of cells allow."""
    left: list[Index]
    """Those that the intervals do not exclude."""


def sieved(problem: Problem, tables: Tables, cutoff_s: float) -> Sieved:
    """The cells of a group that may hold a feasible mapping at or below the cutoff."""
    shape = np.broadcast_shapes(np.shape(tables.allowed), (len(tables.dp),) + (1,) * 6)
    allowed = np.broadcast_to(tables.allowed, shape)[..., 0]
    left: list[Index] = []
    for position in range(shape[0]):
        for batch in range(shape[1]):
            if allowed[position, batch].any():
                open_ = _open(problem, tables, position, batch, allowed[position, batch], cutoff_s)
                left += [(position, batch, *place) for place in np.argwhere(open_).tolist()]
    return Sieved(int(allowed.sum()), left)


@dataclass(frozen=True)
class _Grid:
    """One grid's options at one DP size and micro-batch; arrays over (pipeline, recompute, zero, offload, option)."""

    kept: Mask
    bytes: list[list[Floats]]
    """HBM, host memory and NVMe, each per kind of stage."""
    sums: Callable[[frozenset[str]], list[dict[str, Floats]]]

    def hulls(self) -> list[list[Interval]]:
        """Bytes of the kept options between them."""
        return [[hull(values, self.kept) for values in kinds] for kinds in self.bytes]

    def each(self) -> list[list[Interval]]:
        """Bytes of every option by itself."""
        return [[interval(values) for values in kinds] for kinds in self.bytes]

    def times(self, classes: frozenset[str], kept: Mask | None) -> list[StageSum]:
        """Sums of some of the options between them, per kind of stage."""
        return [StageSum(**{name: hull(stage[name], kept) for name in FIELDS}) for stage in self.sums(classes)]


def _place(value: Num, first: int, second: int) -> Floats:
    """A table's values at an entry of its first two dimensions; what does not depend on them is the same anywhere."""
    array = np.asarray(value, dtype=float)
    if array.ndim == 0:
        return array.reshape(1, 1, 1, 1, 1)
    return np.asarray(array[first if array.shape[0] > 1 else 0, second if array.shape[1] > 1 else 0])


def _grid(table: GridTable, first: int, second: int, options: NDArray[np.intp], shape: tuple[int, ...]) -> _Grid:
    def taken(value: Num) -> Floats:
        found = _place(value, first, second)
        return found[..., options] if found.shape[-1] > 1 else found

    def spread(value: Num) -> Floats:
        found = _place(value, first, second)
        return found[..., table.memory.entry[options]] if found.shape[-1] > 1 else found

    memory = table.memory
    return _Grid(
        kept=np.broadcast_to(taken(table.allowed), (*shape, len(options))).astype(bool),
        bytes=[[spread(value) for value in kinds] for kinds in (memory.hbm, memory.host, memory.nvme)],
        sums=lambda classes: [{n: taken(getattr(stage, n)) for n in FIELDS} for stage in table.sums[classes]],
    )


def _open(problem: Problem, tables: Tables, position: int, batch: int, allowed: Mask, cutoff_s: float) -> Mask:
    """Cells of one DP size and micro-batch, over (pipeline, recompute, zero, offload), that are not excluded."""
    dp = int(tables.dp[position])
    product = dp * int(np.asarray(tables.cell.micro_batch).reshape(-1)[batch])
    # A micro-batch that no product stands for has no entry of its own: the cell reads the next one, as everywhere.
    entry = min(int(np.searchsorted(tables.products, product)), len(tables.products) - 1)
    own = np.flatnonzero(tables.attention.options.sizes[2] == dp)
    if not len(own) or not len(tables.expert.options):
        return np.zeros_like(allowed)
    grids = (
        _grid(tables.attention, 0, batch, own, allowed.shape),
        _grid(tables.expert, entry, 0, np.arange(len(tables.expert.options)), allowed.shape),
    )
    step = _timed(tables, position, batch, *grids)
    # Neither comparison is true where an interval is NaN: such a cell stays.
    alive = allowed & ~(step(ALL_CLASSES, every=True).low > cutoff_s * (1.0 + FLOAT_SLACK))
    if not alive.any():
        return alive
    attention, expert = _fitting(problem, tables, *grids)
    alive &= attention.kept.any(axis=-1) & expert.kept.any(axis=-1)
    if not alive.any():
        return alive
    step = _timed(tables, position, batch, attention, expert)
    total = step(ALL_CLASSES)
    with np.errstate(invalid="ignore"):
        view = _view(tables, attention.hulls(), expert.hulls(), total, step)
        return alive & ~(total.low > cutoff_s * (1.0 + FLOAT_SLACK)) & ~_broken(problem, view)


def _timed(tables: Tables, position: int, batch: int, attention: _Grid, expert: _Grid) -> Callable[..., Interval]:
    """Step times of the cells of one DP size and micro-batch, given classes of communication: over the kept options,
    or over all of them, which is quicker."""

    def here(value: Num) -> Floats:
        return _place(value, position, batch)[..., 0]

    timing = _timing(tables.timing, here)

    def timed(classes: frozenset[str], *, every: bool = False) -> Interval:
        masks = (None, None) if every else (attention.kept, expert.kept)
        own = [StageSum(**{n: here(getattr(stage, n)) for n in FIELDS}) for stage in tables.own[classes]]
        sides = zip(attention.times(classes, masks[0]), expert.times(classes, masks[1]), own, strict=True)
        with np.errstate(invalid="ignore"):
            return interval(step_time_s([a + e + c for a, e, c in sides], timing))

    return timed


def _timing(timing: Timing, here: Callable[[Num], Floats]) -> Timing:
    first, second, third = timing.ramp_weights
    return replace(
        timing,
        steady_rounds=here(timing.steady_rounds),
        ramp_scale=here(timing.ramp_scale),
        ramp_weights=(here(first), here(second), here(third)),
        counts=[here(count) for count in timing.counts],
    )


def _fitting(problem: Problem, tables: Tables, attention: _Grid, expert: _Grid) -> tuple[_Grid, _Grid]:
    """Both grids without the options that break a relation of memory with every partner; of time nothing is known."""
    unknown = Interval(np.asarray(-np.inf), np.asarray(np.inf))
    kept = []
    for mine, other in ((attention, expert), (expert, attention)):
        partners = [[Interval(v.low[..., None], v.high[..., None]) for v in kinds] for kinds in other.hulls()]
        with np.errstate(invalid="ignore"):
            view = _view(tables, mine.each(), partners, unknown, lambda _classes: unknown)
            kept.append(replace(mine, kept=mine.kept & ~_broken(problem, view)))
    return kept[0], kept[1]


def _view(
    tables: Tables,
    first: list[list[Interval]],
    second: list[list[Interval]],
    step: Interval,
    without: Callable[[frozenset[str]], Num],
) -> PairView:
    hbm, host, nvme = ([a + e for a, e in zip(*kinds, strict=True)] for kinds in zip(first, second, strict=True))
    return PairView(
        cell=tables.cell,
        step_time_s=step,
        memory=list(hbm),
        host_bytes=maximum(host[0], *host[1:]),
        nvme_bytes=maximum(nvme[0], *nvme[1:]),
        without=without,
    )


def _broken(problem: Problem, view: PairView) -> Mask:
    """Where some relation is broken whatever is chosen."""
    broken: Mask = np.zeros((), dtype=bool)
    for relation in problem.side("pair"):
        demand, limit = interval(relation.demand(view)), interval(relation.limit(view))
        slack = FLOAT_SLACK * np.maximum(np.abs(limit.low), np.abs(limit.high))
        broken = broken | ((demand - limit).low > slack)
    return broken
