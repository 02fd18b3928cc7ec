"""Floors of step time from sizes alone: what can be left out of a group before its communication is costed.

Contents: Reach, within_reach.

A floor takes compute, launching, offloading and the optimizer, and no communication. Those depend on sizes and not on
rows, of which there are far fewer. Step time grows with every time, so nothing is below its floor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.costs.sides import attention_alone, cell_side, expert_alone
from mapsearch.costs.step import Side, StageSum, Timing, step_time_s, sums, timing, weighed
from mapsearch.costs.views import CellView
from mapsearch.quantity import Floats, Num
from mapsearch.solver.groups import along, attention_view, cell_view, expert_cell, expert_view
from mapsearch.solver.problem import Problem
from mapsearch.solver.sized import Sized

ROUNDING = 1e-9
"""Relative error of float sums that a floor has to allow for."""


@dataclass(frozen=True)
class Reach:
    """What of a group some pair within memory and cutoff may hold."""

    attention: NDArray[np.bool_]
    """Attention options by micro-batch: shape (micro-batch, option)."""
    products: NDArray[np.int64]
    """Values of DP x microbatch that those have."""
    expert: NDArray[np.bool_]
    """Expert options by value of DP x microbatch: shape (product, option)."""


def within_reach(problem: Problem, sized: Sized, limit_bytes: float, cutoff_s: float) -> Reach:
    """What of a group, each of whose options has sizes or a choice of its own, is within memory and cutoff."""
    group = _Group.of(problem, sized, limit_bytes)
    alive = group.attention_floor_s() * (1.0 - ROUNDING) <= cutoff_s
    products, floor = group.expert_floor_s(alive)
    expert = np.asarray((floor * (1.0 - ROUNDING) <= cutoff_s).any(axis=tuple(range(1, floor.ndim - 1))))
    return Reach(np.asarray(alive.any(axis=(0, 2, 3, 4, 5))), products, expert)


def _bare(side: Side, cell: CellView, constants: Timing) -> list[StageSum]:
    """A side's sums without what only matters beside communication."""
    kept = ("steady", "ramp_forward", "optimizer", "launch", "launch_ramp_forward")
    found = (weighed(stage, constants) for stage in sums(side, cell, frozenset()))
    return [StageSum(**{name: getattr(stage, name) for name in kept}) for stage in found]


def _alone(cell: CellView) -> Timing:
    return replace(timing(cell, coupled=False), shared_coupled=False)


@dataclass(frozen=True)
class _Group:
    """A group with one option per distinct size and choice, as the floors see it."""

    attention: list[StageSum]
    expert: list[StageSum]
    own: list[StageSum]
    """The cell's sums, laid out by attention option."""
    memory_a: list[Floats]
    memory_e: list[Floats]
    allowed: NDArray[np.bool_]
    timing: Timing
    """Laid out by attention option."""
    timing_e: Timing
    """Laid out by product."""
    products: NDArray[np.int64]
    """DP x microbatch that there are."""
    product: NDArray[np.int64]
    """DP x microbatch of each micro-batch and attention option."""
    limit_bytes: float

    @staticmethod
    def of(problem: Problem, sized: Sized, limit_bytes: float) -> _Group:
        """The floors' ingredients of a group."""
        cell = cell_view(problem, sized.group, along(sized.dp, 0))
        attention, expert = sized.attention, sized.expert
        dp = attention.sizes[2]
        a_cell = cell_view(problem, sized.group, along(dp, -1))
        e_cell = expert_cell(problem, sized.group, sized.products)
        constants, position = _alone(cell), np.searchsorted(sized.dp, dp)

        def by_option(value: Num) -> Num:
            array = np.asarray(value)
            if array.ndim == 0 or array.shape[0] == 1:
                return array
            return np.moveaxis(array[position][..., 0], 0, -1)[None]

        batches = np.asarray(problem.candidates["micro_batch"], dtype=np.int64)
        return _Group(
            _bare(attention_alone(attention_view(a_cell, attention)), a_cell, constants),
            _bare(expert_alone(expert_view(e_cell, expert)), e_cell, constants),
            [stage.each(by_option) for stage in _bare(cell_side(cell), cell, constants)],
            [np.asarray(v)[..., sized.memory_attention.entry] for v in sized.memory_attention.hbm],
            [np.asarray(v)[..., sized.memory_expert.entry] for v in sized.memory_expert.hbm],
            by_option(sized.allowed) if len(sized.dp) > 1 else sized.allowed,
            replace(constants, steady_rounds=by_option(constants.steady_rounds)),
            _alone(e_cell),
            sized.products,
            batches[:, None] * dp,
            limit_bytes,
        )

    def attention_floor_s(self) -> Floats:
        """Least step time with each attention option; shape (1, variants..., option), infinite where nothing fits."""
        fit = np.ones((1,) * 7, dtype=bool)
        for mine, other in zip(self.memory_a, self.memory_e, strict=True):
            fit = fit & (other <= self.limit_bytes - mine.min(axis=(0, 1, -1), keepdims=True))
        where = np.minimum(np.searchsorted(self.products, self.product), len(self.products) - 1)

        def by_option(array: Floats) -> Floats:
            if array.shape[0] == 1:
                return array
            return np.moveaxis(array[where][:, :, 0, ..., 0], 1, -1)[None]

        def least(value: Num) -> Num:
            array = np.asarray(value, dtype=float)
            if array.ndim == 0:
                return array
            return by_option(np.where(fit, array, np.inf).min(axis=-1, keepdims=True))

        possible = self.allowed
        for mine, other in zip(self.memory_a, self.memory_e, strict=True):
            possible = possible & (mine + by_option(other.min(axis=-1, keepdims=True)) <= self.limit_bytes)
        stages = [a + e.each(least) + c for a, e, c in zip(self.attention, self.expert, self.own, strict=True)]
        return _composed(stages, self.timing, possible)

    def expert_floor_s(self, alive: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Floats]:
        """Products in use, and the least step time with each expert option beside the attention options alive;
        shape (product in use, 1, variants..., option)."""
        used = np.unique(self.product[alive.any(axis=(0, 2, 3, 4, 5))])
        if not len(used):
            return used, np.zeros((0, 1, 1, 1, 1, 1, self.memory_e[0].shape[-1]))
        flat = self.product.reshape(-1)
        order = np.flatnonzero(np.isin(flat, used))
        order = order[np.argsort(flat[order], kind="stable")]
        starts = np.flatnonzero(np.diff(flat[order], prepend=-1))
        where = np.searchsorted(self.products, used)

        def least(value: Num) -> Num:
            array = np.asarray(value, dtype=float)
            if array.ndim == 0:
                return array
            whole = np.moveaxis(np.where(alive, array, np.inf)[0], -1, 1)
            rows = whole.reshape(len(flat), *whole.shape[2:])[order]
            return np.minimum.reduceat(rows, starts, axis=0)[:, None, ..., None]

        def mine(value: Num) -> Num:
            array = np.asarray(value)
            return array if array.ndim == 0 or array.shape[0] == 1 else array[where]

        possible = np.ones((1,) * 7, dtype=bool)
        for other, own in zip(self.memory_a, self.memory_e, strict=True):
            possible = possible & (mine(own) + least(other) <= self.limit_bytes)
        stages = [
            (a + c).each(least) + e.each(mine) for a, c, e in zip(self.attention, self.own, self.expert, strict=True)
        ]
        constants = replace(self.timing_e, steady_rounds=mine(self.timing_e.steady_rounds))
        return used, _composed(stages, constants, possible)


def _composed(stages: list[StageSum], constants: Timing, possible: NDArray[np.bool_]) -> Floats:
    with np.errstate(invalid="ignore"):
        floor = np.asarray(step_time_s(stages, constants))
    return np.where(possible & ~np.isnan(floor), floor, np.inf)
