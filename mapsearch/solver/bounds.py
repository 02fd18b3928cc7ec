"""Lower bounds of cells: quick ones for whole groups, sharp ones for the cells of one DP size.

Contents: compute_floor_s, has_options, quick_bound, memory_floor, memory_limit, Slice, slice_bounds, slice_of, leasts,
quick_leasts, cell_pick.

Each grid's sums are replaced by their least value over a list of options; the composition grows with every sum of a
table (ramps are weighed in them, windows taken off what they hide), so what it then returns is a lower bound. The quick
bound takes all options of a DP size; the sharp one only those that still fit in memory beside the smallest option of
the other grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs import flops
from mapsearch.costs.step import ALL_CLASSES, StageSum, step_time_s
from mapsearch.costs.views import Facts
from mapsearch.quantity import Floats, Num
from mapsearch.solver.options import Ints
from mapsearch.solver.problem import Problem
from mapsearch.solver.sized import GridMemory
from mapsearch.solver.tables import Tables

Mask = NDArray[np.bool_]
Pick = Callable[[Num], Num]
Leasts = tuple[Pick, Pick, Mask]
ROUNDING = 1e-9
"""Relative error of float sums that a bound has to allow for."""


def compute_floor_s(facts: Facts) -> float:
    """Least step time of any mapping: the model's FLOP, shared evenly by all devices, at the best rate of its kernels.

    (linear FLOP / (peak * best GEMM share) + attention FLOP / (16-bit peak * best attention share)) / devices.
    Unit: s. Source: FORMULAS 3.2. Ignores: MTP modules, whose norms are counted as FLOP but take none of this time.
    """
    model, run, profile = facts.model.replaced(mtp_layers=0), facts.run, facts.profile
    device = facts.fabric.device
    core = flops.attention_core_flops(model=model, length=run.attended_length)
    linear = flops.forward_flops_per_token(model=model, length=run.attended_length) - core
    half = device.peak(run.half_format)
    full = max(half, device.peak(run.linear_format))
    gemm = full * max(profile.gemm.peak, profile.grouped_gemm.peak)
    attention = half * max(profile.attention_forward.peak, profile.attention_backward.peak)
    forward_s = run.tokens_per_step * (linear / gemm + core / attention) / facts.fabric.devices
    return float(flops.BACKWARD_AND_FORWARD * forward_s) * (1.0 - ROUNDING)


def _own(tables: Tables, position: int) -> NDArray[np.intp]:
    """Attention options of one DP size."""
    return np.flatnonzero(tables.attention.options.sizes[2] == tables.dp[position])


def has_options(tables: Tables, position: int) -> bool:
    """Whether some attention option has this DP size."""
    return bool(len(_own(tables, position)))


def _attention_pick(tables: Tables, own: NDArray[np.intp]) -> Pick:
    count = len(tables.attention.options)
    return lambda value: np.asarray(value)[..., own] if np.shape(value)[-1:] == (count,) else value


def by_microbatch(products: Ints, dp: int, batches: Ints) -> Pick:
    """A view of expert tables at one DP size, laid out by microbatch instead of by the product of both.

    Products that the batch does not divide by have no entry; those cells are not allowed, so any entry serves.
    """
    where = np.minimum(np.searchsorted(products, dp * batches), len(products) - 1)

    def pick(value: Num) -> Num:
        array = np.asarray(value)
        if array.ndim == 0 or array.shape[0] == 1:
            return array
        return np.swapaxes(array[where], 0, 1)

    return pick


def _expert_pick(tables: Tables, position: int) -> Pick:
    batches = np.asarray(tables.cell.micro_batch).reshape(-1)
    return by_microbatch(tables.products, int(tables.dp[position]), batches)


def cell_pick(position: int) -> Pick:
    """A view of cell tables at one DP size."""

    def pick(value: Num) -> Num:
        array = np.asarray(value)
        return array if array.ndim == 0 or array.shape[0] == 1 else array[position : position + 1]

    return pick


def _composed(tables: Tables, position: int, best_a: list[StageSum], best_e: list[StageSum]) -> Floats:
    pick = cell_pick(position)
    own = tables.own[ALL_CLASSES]
    stages = [a + e + c.each(pick) for a, e, c in zip(best_a, best_e, own, strict=True)]
    constants = replace(tables.timing, steady_rounds=pick(tables.timing.steady_rounds))
    with np.errstate(invalid="ignore"):
        bound = np.asarray(step_time_s(stages, constants))
    return np.where(np.isnan(bound), np.inf, bound)


def quick_bound(tables: Tables, position: int, limit_bytes: float) -> float:
    """Least step time that any cell of one DP size could have; infinite when none can hold a feasible pair.

    Times are taken over all options; only cells whose smallest options fit in memory count.
    """
    own = _own(tables, position)
    if not len(own) or not tables.allowed[position].any():
        return np.inf
    least_a, least_e = quick_leasts(tables, position)
    best_a = [stage.each(least_a) for stage in tables.attention.sums[ALL_CLASSES]]
    best_e = [stage.each(least_e) for stage in tables.expert.sums[ALL_CLASSES]]
    possible = tables.allowed[position : position + 1] & (
        _floor(tables, own, _expert_pick(tables, position)) <= limit_bytes
    )
    bound = _composed(tables, position, best_a, best_e)
    return float(np.min(np.where(possible, bound, np.inf)))


def quick_leasts(tables: Tables, position: int) -> tuple[Pick, Pick]:
    """The least of attention and of expert tables over all options of one DP size."""

    def least(pick: Pick) -> Pick:
        def apply(value: Num) -> Num:
            array = np.asarray(pick(value))
            return array.min(axis=-1, keepdims=True) if array.ndim and array.shape[-1] > 1 else array

        return apply

    return least(_attention_pick(tables, _own(tables, position))), least(_expert_pick(tables, position))


def _floor(tables: Tables, own: NDArray[np.intp], pick_e: Pick) -> Floats:
    worst: Floats = np.full((1,) * 7, -np.inf)
    for a, e in zip(tables.attention.memory.take(own).hbm, tables.expert.memory.hbm, strict=True):
        least_a = np.asarray(a).min(axis=-1, keepdims=True)
        least_e = np.asarray(pick_e(e)).min(axis=-1, keepdims=True)
        worst = np.maximum(worst, least_a + least_e)
    return worst


def memory_floor(tables: Tables, position: int) -> Floats:
    """Bytes that the worst stage of each cell of one DP size needs at least.

    Shape: (micro_batch, pipeline, recompute, zero, offload), dimensions it does not depend on being 1.
    """
    return _floor(tables, _own(tables, position), _expert_pick(tables, position))[0, ..., 0]


def memory_limit(problem: Problem) -> float:
    """Usable HBM, infinite when the problem asks what if there were no such limit."""
    return usable_hbm_bytes(problem.facts) if any(r.name == "hbm" for r in problem.relations) else np.inf


@dataclass(frozen=True)
class Slice:
    """The cells of one DP size: their bounds, and each grid's best sums that the bounds are made of."""

    bounds: Floats
    """Infinite where no pair can be feasible; shape (micro_batch, pipeline, recompute, zero, offload)."""
    best_attention: list[StageSum]
    best_expert: list[StageSum]


def slice_bounds(tables: Tables, position: int, limit_bytes: float) -> Slice:
    """Lower bound of every cell of one DP size with so much memory per device."""
    return slice_of(tables, position, leasts(tables, position, limit_bytes))


def slice_of(tables: Tables, position: int, picks: Leasts) -> Slice:
    """Lower bound of every cell of one DP size over the options that fit."""
    least_a, least_e, possible = picks
    best_a = [stage.each(least_a) for stage in tables.attention.sums[ALL_CLASSES]]
    best_e = [stage.each(least_e) for stage in tables.expert.sums[ALL_CLASSES]]
    bound = _composed(tables, position, best_a, best_e)[..., 0]
    allowed = tables.allowed[position : position + 1, ..., 0] & possible
    return Slice(np.where(allowed, np.broadcast_to(bound, allowed.shape), np.inf)[0], best_a, best_e)


def leasts(tables: Tables, position: int, limit_bytes: float) -> Leasts:
    """The least of attention and of expert tables over the options that fit in memory beside the smallest partner.

    And which variants have such options of both grids; in the others the least is infinite.
    """
    own = _own(tables, position)
    pick_a, pick_e = _attention_pick(tables, own), _expert_pick(tables, position)
    memory_a = tables.attention.memory.take(own)
    memory_e = tables.expert.memory
    fit_a, fit_e = _fitting(tables, position, memory_a, limit_bytes)
    possible = fit_a.any(axis=-1) & fit_e.any(axis=-1)
    allowed_a, allowed_e = pick_a(tables.attention.allowed), pick_e(tables.expert.allowed)
    least_a = _over_entries(pick_a, memory_a, fit_a, allowed_a)
    least_e = _over_entries(pick_e, memory_e, fit_e, allowed_e)
    return least_a, least_e, np.asarray(possible)


def _fitting(tables: Tables, position: int, memory_a: GridMemory, limit: float) -> tuple[Mask, Mask]:
    """Memory entries of both grids that fit with the smallest partner on every kind of stage, per variant."""
    pick_e = _expert_pick(tables, position)
    fit_a, fit_e = np.ones((1,) * 7, dtype=bool), np.ones((1,) * 7, dtype=bool)
    for a, e in zip(memory_a.hbm, tables.expert.memory.hbm, strict=True):
        mine, other = np.asarray(a), np.asarray(pick_e(e))
        fit_a = fit_a & (mine <= limit - other.min(axis=-1, keepdims=True))
        fit_e = fit_e & (other <= limit - mine.min(axis=-1, keepdims=True))
    return fit_a, fit_e


def _over_entries(pick: Pick, memory: GridMemory, fit: Mask, allowed: Mask) -> Pick:
    """Least of a table over the options that are allowed and whose memory entry fits.

    Options that share a memory entry are reduced first, where the table is still small.
    """
    order = np.argsort(memory.entry, kind="stable")
    starts = np.flatnonzero(np.diff(memory.entry[order], prepend=-1))
    ok = np.asarray(allowed)[..., order]
    all_ok, all_fit = bool(ok.all()), bool(fit.all())

    def least(value: Num) -> Num:
        array = np.asarray(pick(value))
        if array.ndim == 0 or array.shape[-1] == 1:
            return array
        sorted_values = array[..., order] if all_ok else np.where(ok, array[..., order], np.inf)
        entries = np.minimum.reduceat(sorted_values, starts, axis=-1)
        return np.asarray((entries if all_fit else np.where(fit, entries, np.inf)).min(axis=-1, keepdims=True))

    return least
