"""The best layout of one mapping: over all ways to cut the layers into consecutive stages, exactly.

Contents: BestCut, best_cut, Stages, least_step.

Step time is a (largest stage) + b (sum over stages) + (longest tail), a stage fits or it does not, and both depend on
the stage's place and its layers only. So thresholds over the largest stage and the longest tail, and for each of them
a shortest path over (stage, layers placed), find the least over all cuts; nothing is assumed of how times grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import Schedule
from mapsearch.costs.estimate import Point, number, one
from mapsearch.costs.footprint import (
    attention_host,
    attention_memory,
    attention_nvme,
    expert_host,
    expert_memory,
    expert_nvme,
)
from mapsearch.costs.sides import attention_times, cell_side, expert_times
from mapsearch.costs.stages import TWO_CHUNK_SCHEDULES, Cut, StageKinds
from mapsearch.costs.step import stage_ramp_s, stage_time_s, sums, tail_s, timing
from mapsearch.costs.views import CellView
from mapsearch.quantity import Floats, Num

ROUNDING = 1e-12
"""Relative difference below which two sums of the same terms count as equal."""
EVENNESS = 1e-11
"""Share of the ramp by which cuts that take equally long are told apart: the more even one is preferred."""


@dataclass(frozen=True)
class BestCut:
    """The fastest layout of a mapping that fits, and its step time."""

    cut: Cut
    step_time_s: float


@dataclass(frozen=True)
class Stages:
    """What every stage would cost with every run of layers: arrays (stage, first layer, layer behind the last)."""

    time_s: Floats
    ramp_s: Floats
    tail_s: Floats
    fits: NDArray[np.bool_]
    """False also where a run may not stand on a stage at all."""


def best_cut(
    point: Point, *, hbm_bytes: float, host_bytes: float = np.inf, nvme_bytes: float = np.inf
) -> BestCut | None:
    """The cut of least step time among all whose stages fit; None when none does, or stages are no runs of layers.

    MTP modules, output head and loss stand on the last stage, the embedding on the first; every stage has a layer.
    Ignores: V-shaped and bidirectional schedules; limits on exposed communication.
    """
    cell = point.cell
    schedule = one(cell.schedule)
    if cell.pp == 1 or schedule in TWO_CHUNK_SCHEDULES or schedule == Schedule.DUALPIPE:
        return None
    if cell.facts.model.layers < cell.pp:
        return None
    stages = _stages(point, (hbm_bytes, host_bytes, nvme_bytes))
    constants = point.timing
    rounds, scale = number(constants.steady_rounds), number(constants.ramp_scale)
    found = least_step(stages, rounds, scale)
    if found is None:
        return None
    cut, busy_s = found
    return BestCut(cut, busy_s * number(constants.stretch) + number(constants.overhead_s))


@dataclass(frozen=True)
class _AnyStage(CellView):
    """A cell view whose one kind of stage stands for many: its values are arrays over them."""

    stand_in: StageKinds | None = None

    @cached_property
    def kinds(self) -> list[StageKinds]:
        assert self.stand_in is not None
        return [self.stand_in]


def _stages(point: Point, limits: tuple[float, float, float]) -> Stages:
    """Every run of layers on every stage, costed as the mapping itself is."""
    cell, model, run = point.cell, point.facts.model, point.facts.run
    pp, layers = cell.pp, model.layers
    moe = np.concatenate([[0], np.cumsum([kind == "moe" for kind in model.layer_kinds])])
    stage, start, end = np.indices((pp, layers + 1, layers + 1))
    ahead, behind = stage, pp - 1 - stage
    allowed = (end > start) & (start >= ahead) & (layers - end >= behind)
    allowed &= ((stage > 0) | (start == 0)) & ((stage < pp - 1) | (end == layers))
    here = np.nonzero(allowed)
    with_experts = moe[end[here]] - moe[start[here]]
    rows = np.stack([here[0], end[here] - start[here] - with_experts, with_experts], axis=1)
    distinct, entry = np.unique(rows, axis=0, return_inverse=True)
    kinds = _kinds(distinct, pp, model.layer_kinds[-1], model.mtp_layers, run.splits_vocabulary)
    if cell.recompute_stages:
        kinds = replace(kinds, recomputes=(kinds.stage < cell.recompute_stages) * 1.0)
    values = _costs(point, kinds, limits)
    laid = []
    for value, empty in zip(values, (np.inf, np.inf, np.inf, False), strict=True):
        whole = np.full(allowed.shape, empty)
        whole[here] = np.broadcast_to(value, (len(distinct),))[entry.reshape(-1)]
        laid.append(whole)
    return Stages(laid[0], laid[1], laid[2], laid[3].astype(bool))


def _kinds(rows: NDArray[np.int64], pp: int, last_kind: str, mtp_layers: int, split: bool) -> StageKinds:
    """Stages (place, dense layers, MoE layers) as one kind with arrays; the ends get what lives there."""
    stage, dense, moe = (rows[:, i].astype(float) for i in range(3))
    last = (stage == pp - 1).astype(float)
    if last_kind == "moe":
        moe = moe + mtp_layers * last
    else:
        dense = dense + mtp_layers * last
    first = np.full(len(rows), 1.0 / pp) if split else (stage == 0).astype(float)
    return StageKinds(dense, moe, first, first if split else last, np.ones(len(rows)), stage, 1.0)


def _costs(point: Point, kinds: StageKinds, limits: tuple[float, float, float]) -> tuple[Num, Num, Num, Num]:
    """Time, ramp and tail of every stage in seconds, and whether it fits."""
    fields = {name: getattr(point.cell, name) for name in CellView.__dataclass_fields__}
    cell = _AnyStage(**fields, stand_in=kinds)
    attention, expert = replace(point.attention, cell=cell), replace(point.expert, cell=cell)
    sides = attention_times(attention), expert_times(expert), cell_side(cell)
    constants = timing(cell, any(side.under_compute for side in sides))
    total = reduce(add, (sums(side, cell)[0] for side in sides))
    stored = (attention_memory(attention), expert_memory(expert))
    hbm = reduce(add, (values[0] for side in stored for values in side.values()))
    fits = np.asarray(hbm <= limits[0])
    if one(cell.offload):
        pairs = (attention_host(attention), expert_host(expert)), (attention_nvme(attention), expert_nvme(expert))
        for lists, limit in zip(pairs, limits[1:], strict=True):
            kept = [values[0] for values in lists if values]
            fits = fits & (reduce(add, kept) <= limit) if kept else fits
    return stage_time_s(total, constants), stage_ramp_s(total, constants), tail_s([total]), fits


def least_step(stages: Stages, rounds: float, scale: float) -> tuple[Cut, float] | None:
    """The cut with the least rounds (largest time) + scale (sum of ramps) + (longest tail), and that value; None
    when no cut fits."""
    best: tuple[Cut, float] | None = None
    free = _path(stages, np.inf, np.inf)
    if free is None:
        return None
    least_ramp = _value(stages, free, 0.0, scale)[1]
    least_tail = _least_largest(stages, stages.tail_s)
    for most in _thresholds(stages, stages.time_s):
        if best is not None and rounds * most + least_ramp + least_tail >= best[1] * (1.0 - ROUNDING):
            break
        longest = np.inf
        while (cut := _path(stages, most, longest)) is not None:
            value, ramp, tail = _value(stages, cut, rounds, scale)
            if best is None or value < best[1] * (1.0 - ROUNDING):
                best = cut, value
            # A shorter tail costs ramp at best none: go on only while that could still pay.
            if rounds * most + ramp + least_tail >= best[1] * (1.0 - ROUNDING):
                break
            longest = np.nextafter(tail, -np.inf)
    return best


def _thresholds(stages: Stages, values: Floats) -> Iterator[float]:
    """Values that the largest stage may have, from the least that some cut stays under."""
    least = _least_largest(stages, values)
    yield from (float(v) for v in np.unique(values[stages.fits]) if v >= least)


def _least_largest(stages: Stages, values: Floats) -> float:
    """The least largest value over the stages of a cut that fits: a shortest path that takes the maximum."""
    here = np.where(stages.fits, values, np.inf)
    reach = np.full(here.shape[1], np.inf)
    reach[0] = -np.inf
    for stage in here:
        reach = np.min(np.maximum(reach[:, None], stage), axis=0)
    return float(reach[-1])


def _path(stages: Stages, most_time: float, most_tail: float) -> Cut | None:
    """The cut with the least sum of ramps among those whose stages fit and stay under both limits."""
    usable = stages.fits & (stages.time_s <= most_time) & (stages.tail_s <= most_tail)
    length = stages.time_s.shape[1]
    counts = np.arange(length) - np.arange(length)[:, None]
    ramps = stages.ramp_s[stages.fits]
    uneven = EVENNESS * float(np.abs(ramps).mean() if len(ramps) else 0.0) / length * counts**2
    reach = np.full(length, np.inf)
    reach[0] = 0.0
    came = []
    for stage, here in enumerate(usable):
        ways = reach[:, None] + np.where(here, stages.ramp_s[stage] + uneven, np.inf)
        came.append(np.argmin(ways, axis=0))
        reach = np.min(ways, axis=0)
    if not np.isfinite(reach[-1]):
        return None
    ends = [length - 1]
    for back in reversed(came):
        ends.append(int(back[ends[-1]]))
    return tuple(after - before for after, before in zip(ends[-2::-1], ends[:0:-1], strict=True))


def _value(stages: Stages, cut: Cut, rounds: float, scale: float) -> tuple[float, float, float]:
    """Busy seconds of a cut, and its ramp and tail."""
    ends = np.cumsum([0, *cut])
    places = (np.arange(len(cut)), ends[:-1], ends[1:])
    ramp, tail = scale * float(stages.ramp_s[places].sum()), float(stages.tail_s[places].max())
    return rounds * float(stages.time_s[places].max()) + ramp + tail, ramp, tail
