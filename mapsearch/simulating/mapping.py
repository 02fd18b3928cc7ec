"""The pipeline of a mapping, run operation by operation with its own stage times, beside the closed form.

Contents: Pipelined, pipelined, stage_times, chunk_times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mapsearch.axes import Hidden, Schedule
from mapsearch.costs import pipeline
from mapsearch.costs.estimate import Point, number, one
from mapsearch.costs.sides import attention_times, cell_side, expert_times
from mapsearch.costs.stages import (
    TWO_CHUNK_SCHEDULES,
    Layout,
    StageKinds,
    chunks_in_order,
    recomputing,
    stages_of,
)
from mapsearch.costs.step import StageSum, lean_sum, stage_time_s, step_time_s, sums, tail_s
from mapsearch.costs.views import CellView
from mapsearch.simulating.gaps import least_s
from mapsearch.simulating.orders import Plan, plan_of
from mapsearch.simulating.simulator import OpTimes, Timeline, simulate

AFTERWARDS = (Schedule.ZB_V, Schedule.ZB_2P)
"""Schedules whose bubble is counted device by device: the optimizer step is validated afterwards (arXiv 2401.10241,
section 4), so no device waits for all others between steps."""


@dataclass(frozen=True)
class Pipelined:
    """A step's pipeline as simulated, and as the cost model has it. Unit: s."""

    schedule: Schedule
    vpp: int
    microbatches: int
    stages: tuple[OpTimes, ...]
    """One microbatch through each device, in the steady phase."""
    timeline: Timeline
    closed_form_s: float
    """The closed form of the cost model on the same stage times."""
    least_s: float
    """No order of the same operations on the same devices ends sooner."""
    closed_in_flight: tuple[float, ...]
    """Microbatches that the cost model says each device holds."""
    estimate_s: float | None
    """Rounds and bubble of the mapping's step time; None where the stage times are not the mapping's own."""

    @property
    def simulated_s(self) -> float:
        """What the closed form stands for: the makespan, or the longest device where steps run into each other."""
        afterwards = self.schedule in AFTERWARDS
        return self.timeline.span_s if afterwards else self.timeline.makespan_s


def pipelined(point: Point, *, stages: Sequence[OpTimes] = (), hop_s: float = 0.0) -> Pipelined:
    """Simulate the pipeline of a mapping, with its own stage times unless others are given (one per device).

    A time of a hop between devices is part of the stages' own times, so `hop_s` is what comes on top.
    Raises InputError where the schedule has no order for so many stages and microbatches, ValueError when a stage has
    no layer. Source: orders.SOURCES, FORMULAS 3.5.
    """
    cell = point.cell
    schedule, pp, vpp, m = Schedule(one(cell.schedule)), cell.pp, one(cell.vpp), one(cell.microbatches)
    hidden = schedule in (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED) and one(cell.overlap) & Hidden.EXPERT_ALL_TO_ALL
    plan = plan_of(schedule, pp, vpp, m, more_warmup=1 if hidden and pp > 1 else 0)
    own = stage_times(point)
    times = tuple(stages) or own
    seconds = chunk_times(point, plan, times)
    timeline = simulate(plan, seconds, hop_s=hop_s)
    held = (
        pipeline.in_flight(pp, vpp, int(schedule), one(cell.overlap), m, stage, run=point.facts.run)
        for stage in range(pp)
    )
    return Pipelined(
        schedule=schedule,
        vpp=vpp,
        microbatches=m,
        stages=times,
        timeline=timeline,
        closed_form_s=closed_form_s(schedule, vpp, m, times),
        least_s=least_s(plan, seconds),
        closed_in_flight=tuple(map(number, held)),
        estimate_s=None if stages else _estimate_s(point),
    )


def closed_form_s(schedule: int, vpp: int, microbatches: int, stages: Sequence[OpTimes]) -> float:
    """The cost model's time of a pipeline on given stage times. Unit: s. Source: FORMULAS 3.5."""
    forward, input_grad, weight_grad = zip(*stages, strict=True)
    time = pipeline.pipeline_s(
        forward,
        input_grad,
        weight_grad,
        microbatches=microbatches,
        correction=pipeline.steady_correction(int(schedule), vpp),
        scale=pipeline.ramp_scale(int(schedule), len(stages), vpp),
        weights=pipeline.ramp_weights(int(schedule)),
    )
    return number(time)


def _estimate_s(point: Point) -> float:
    """Rounds of the slowest stage and the bubble: the mapping's step without tail, stragglers and overhead."""
    constants, stages = point.timing, point.stages()
    busy = (number(step_time_s(stages, constants)) - number(constants.overhead_s)) / number(constants.stretch)
    return busy - number(tail_s(stages))


@dataclass(frozen=True)
class _Placed(CellView):
    """A cell view whose kinds of stage are the entries of one layout, each by itself."""

    entries: tuple[StageKinds, ...] = ()

    @cached_property
    def kinds(self) -> list[StageKinds]:
        """One record of plain numbers per entry."""
        return list(self.entries)


def _timed(point: Point, layout: Layout, devices: Sequence[int]) -> tuple[OpTimes, ...]:
    """Seconds of one microbatch in the steady phase in each entry of a layout; `devices` says where it stands.

    What is exposed beyond the parts (loads longer than their windows, launching longer than running) is spread over
    forward and backward in proportion.
    """
    cell = point.cell
    flags = recomputing(cell.pp, cell.recompute_stages)
    columns = zip(layout.dense, layout.moe, layout.embedding, layout.output, devices, strict=True)
    entries = tuple(
        StageKinds(float(d), float(m), float(e), float(o), 1.0, float(device), flags[device])
        for d, m, e, o, device in columns
    )
    placed = _Placed(**{name: getattr(cell, name) for name in CellView.__dataclass_fields__}, entries=entries)
    attention = attention_times(replace(point.attention, cell=placed))
    sides = attention, expert_times(replace(point.expert, cell=placed)), cell_side(placed)
    parts = [part for side in sides for part in side.parts]
    added: list[StageSum] = [a + e + c for a, e, c in zip(*(sums(side, placed) for side in sides), strict=True)]
    found = []
    for kind, stage in enumerate(added):
        three = [
            number(lean_sum([part.steady * getattr(part, name)[kind] for part in parts]))
            for name in ("forward", "input_grad", "weight_grad")
        ]
        longer = number(stage_time_s(stage, point.timing)) / sum(three)
        found.append(OpTimes(*(longer * value for value in three)))
    return tuple(found)


def stage_times(point: Point) -> tuple[OpTimes, ...]:
    """Seconds of one microbatch through every device in order, in the steady phase; their largest sum is t_max.

    Raises ValueError when a stage has no layer.
    """
    cell = point.cell
    layout = stages_of(cell.pp, one(cell.schedule), cell.layout, model=point.facts.model, run=point.facts.run)
    return _timed(point, layout, range(cell.pp))


def chunk_times(point: Point, plan: Plan, stages: Sequence[OpTimes]) -> list[list[OpTimes]]:
    """Seconds of every chunk on every device, that add up to the device's (for DualPipe: whose mean is).

    Chunks of interleaved stages are equal; those of V-shaped schedules and DualPipe's two directions share the device's
    time as their layers do.
    """
    schedule, pp = Schedule(one(point.cell.schedule)), point.cell.pp
    folded = schedule in TWO_CHUNK_SCHEDULES
    if pp == 1 or not (folded or schedule == Schedule.DUALPIPE):
        chunks = round(1.0 / plan.unit)
        return [[OpTimes(*(value / chunks for value in stage))] * chunks for stage in stages]
    model, run = point.facts.model, point.facts.run
    layout = chunks_in_order(pp, int(schedule), point.cell.layout, model=model, run=run)
    others = [2 * pp - 1 - r if folded else pp - 1 - r for r in range(pp)]
    columns = (layout.dense, layout.moe, layout.embedding, layout.output)
    both = Layout(*(tuple(column[i] for i in (*range(pp), *others)) for column in columns))
    weights = _timed(point, both, (*range(pp), *range(pp)))
    result = []
    for device, stage in enumerate(stages):
        pair = weights[device], weights[pp + device]
        whole = stage if folded else OpTimes(*(2.0 * value for value in stage))
        result.append([_part(whole, chunk, pair) for chunk in pair])
    return result


def _part(whole: OpTimes, chunk: OpTimes, pair: tuple[OpTimes, OpTimes]) -> OpTimes:
    both = OpTimes(*(a + b for a, b in zip(*pair, strict=True)))
    return OpTimes(*(t * (mine / all_) if all_ else 0.0 for t, mine, all_ in zip(whole, chunk, both, strict=True)))
