"""Lower bounds of whole cells, and which cells can hold a feasible pair at all.

Contents: cell_bounds.

Each grid's sums are replaced by their best value over the options that can still fit in memory; the composition is
monotone (it grows with every time and shrinks with every window), so what it then returns is a lower bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.step import ALL_CLASSES, StageSum, step_time_s
from mapsearch.quantity import Floats, Num
from mapsearch.solver.problem import Problem
from mapsearch.solver.tables import Tables

WINDOWS = ("window", "shared_window", "reduce_window", "gather_window")
"""Sums that lower the step time: their best value is the largest."""


def _least(value: Num, mask: NDArray[np.bool_]) -> Floats:
    return np.min(np.where(mask, value, np.inf), axis=-1, keepdims=True)


def _most(value: Num, mask: NDArray[np.bool_]) -> Floats:
    return np.max(np.where(mask, value, -np.inf), axis=-1, keepdims=True)


def _best(stage: StageSum, mask: NDArray[np.bool_]) -> StageSum:
    return StageSum(
        *((_most if name in WINDOWS else _least)(getattr(stage, name), mask) for name in StageSum.__dataclass_fields__)
    )


def cell_bounds(problem: Problem, tables: Tables) -> Floats:
    """Lower bound of the step time of every cell of a group; infinite where no pair can be feasible.

    Shape: (dp, micro_batch, pipeline, recompute, zero, offload).
    """
    limit = usable_hbm_bytes(problem.facts) if any(r.name == "hbm" for r in problem.relations) else np.inf
    cells = tables.allowed.shape[:-1]
    result = np.full(cells, np.inf)
    everything = np.broadcast_to(tables.expert.allowed, (*tables.expert.allowed.shape[:-1], len(tables.expert.options)))
    for position, dp in enumerate(tables.dp):
        if not tables.allowed[position].any():
            continue
        own = tables.attention.options.sizes[2] == dp
        mask_a = tables.attention.allowed & own
        mask_e = _at_dp(everything, position)
        memory_a = [np.asarray(v) for v in tables.attention.memory]
        memory_e = [_at_dp(v, position) for v in tables.expert.memory]
        for a, e in zip(memory_a, memory_e, strict=True):
            # The other grid's smallest memory on this stage is needed in any case.
            fits_a = a + _least(e, mask_e) <= limit
            fits_e = e + _least(a, mask_a) <= limit
            mask_a, mask_e = mask_a & fits_a, mask_e & fits_e
        possible = mask_a.any(axis=-1) & mask_e.any(axis=-1)
        bound = _bound(tables, position, mask_a, mask_e)
        allowed = tables.allowed[position : position + 1, ..., 0] & possible
        result[position] = np.where(allowed, np.broadcast_to(bound, allowed.shape), np.inf)[0]
    return result


def _at_dp(value: Num, position: int) -> NDArray[np.float64]:
    """A table's slice of one dp, dimension kept."""
    array = np.asarray(value)
    if array.ndim == 0 or array.shape[0] == 1:
        return array
    return array[position : position + 1]


def _bound(tables: Tables, position: int, mask_a: NDArray[np.bool_], mask_e: NDArray[np.bool_]) -> Floats:
    def here(stage: StageSum) -> StageSum:
        return StageSum(*(_at_dp(getattr(stage, name), position) for name in StageSum.__dataclass_fields__))

    stages = []
    sides = zip(
        tables.attention.sums[ALL_CLASSES], tables.expert.sums[ALL_CLASSES], tables.own[ALL_CLASSES], strict=True
    )
    for a, e, c in sides:
        stages.append(_best(a, mask_a) + _best(here(e), mask_e) + here(c))
    constants = tables.timing
    local = type(constants)(
        steady_rounds=_at_dp(constants.steady_rounds, position),
        ramp_scale=constants.ramp_scale,
        counts=constants.counts,
        gamma=constants.gamma,
        coupled=constants.coupled,
        shared_coupled=constants.shared_coupled,
    )
    with np.errstate(invalid="ignore"):
        bound = step_time_s(stages, local)
    return np.asarray(np.where(np.isnan(bound), np.inf, bound))[..., 0]
