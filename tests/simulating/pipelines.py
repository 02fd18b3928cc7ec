"""Random pipelines: schedules with as many stages and microbatches as they are defined for, and times of their parts.

Contents: Pipeline, some, equal, unequal, simulated_s, closed_s.
"""

import random
from typing import NamedTuple

from mapsearch.axes import Schedule
from mapsearch.simulating.mapping import AFTERWARDS, closed_form_s
from mapsearch.simulating.orders import Plan, plan_of
from mapsearch.simulating.simulator import OpTimes, Timeline, simulate

UNSPLIT = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)
FOLDED = (Schedule.ZB_V, Schedule.DUALPIPE_V)


class Pipeline(NamedTuple):
    """One pipeline; `seconds` per device and chunk."""

    schedule: Schedule
    p: int
    v: int
    m: int
    plan: Plan
    seconds: list[list[OpTimes]]

    @property
    def stages(self) -> list[OpTimes]:
        """Seconds of one microbatch through each device, averaged over the directions of DualPipe."""
        half = 0.5 if self.schedule == Schedule.DUALPIPE and self.p > 1 else 1.0
        return [OpTimes(*(half * sum(times) for times in zip(*row, strict=True))) for row in self.seconds]

    def run(self) -> Timeline:
        return simulate(self.plan, self.seconds)


def some(schedule: Schedule, rng: random.Random) -> tuple[int, int, int]:
    """Stages, chunks per device and microbatches that the closed forms are written for."""
    p = 2 * rng.randint(1, 5) if schedule == Schedule.DUALPIPE else rng.randint(1, 10)
    v = rng.randint(1, 4) if schedule == Schedule.INTERLEAVED else 1
    least = {Schedule.ZB_H1: p, Schedule.ZB_V: 2 * p - 1, Schedule.ZB_2P: 2 * p - 1}.get(schedule, 1)
    if schedule == Schedule.INTERLEAVED:
        return p, v, p * rng.randint(1, 4)
    if schedule == Schedule.DUALPIPE:
        return p, v, 2 * p + 2 * rng.randint(0, 2 * p)
    if schedule == Schedule.DUALPIPE_V:
        return p, v, 2 * p + rng.randint(0, 3 * p)
    return p, v, least + rng.randint(0, 3 * p)


def times(schedule: Schedule, rng: random.Random) -> OpTimes:
    """Whole seconds; where weight gradients are apart W <= F <= B, as attention and recomputing make them."""
    three = [float(rng.randint(1, 12)) for _ in range(3)]
    if schedule not in UNSPLIT:
        w, f, b = sorted(three)
        return OpTimes(f, b, w)
    return OpTimes(*three)


def chunks_of(schedule: Schedule, p: int, v: int) -> int:
    return 1 if p == 1 else 2 if schedule in (*FOLDED, Schedule.DUALPIPE) else v


def equal(schedule: Schedule, rng: random.Random) -> Pipeline:
    p, v, m = some(schedule, rng)
    chunk = times(schedule, rng)
    count = chunks_of(schedule, p, v)
    return Pipeline(schedule, p, v, m, plan_of(schedule, p, v, m), [[chunk] * count for _ in range(p)])


def unequal(schedule: Schedule, rng: random.Random, *, one_ratio: bool = False) -> Pipeline:
    """Chunks of different lengths, each with its own shares of F, B and W or all with the same ones.

    Interleaved: equal chunks on one device, and DualPipe: the same stage in both directions, as the cost model has it.
    """
    p, v, m = some(schedule, rng)
    shape = times(schedule, rng)

    def chunk() -> OpTimes:
        scale = float(rng.randint(1, 9))
        return OpTimes(*(scale * part for part in shape)) if one_ratio else times(schedule, rng)

    count = chunks_of(schedule, p, v)
    if schedule in FOLDED:
        seconds = [[chunk() for _ in range(count)] for _ in range(p)]
    else:
        own = [chunk() for _ in range(p)]
        seconds = [[own[r]] * count for r in range(p)]
        if schedule == Schedule.DUALPIPE:
            seconds = [[own[r], own[p - 1 - r]] for r in range(p)]
    return Pipeline(schedule, p, v, m, plan_of(schedule, p, v, m), seconds)


def simulated_s(pipeline: Pipeline) -> float:
    """What the closed form stands for (see `Pipelined.simulated_s`)."""
    timeline = pipeline.run()
    return timeline.span_s if pipeline.schedule in AFTERWARDS else timeline.makespan_s


def closed_s(pipeline: Pipeline) -> float:
    return closed_form_s(pipeline.schedule, pipeline.v, pipeline.m, pipeline.stages)
