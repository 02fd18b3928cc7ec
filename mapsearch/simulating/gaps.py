"""How far the closed forms of costs/pipeline.py are from the schedules as they run: exactly, and as bounds.

Contents: gap_s, gap_words, least_s.

What they are tested against, over thousands of random pipelines: tests/simulating/test_closed_forms.py. Derivations:
docs/explanation/pipeline.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from mapsearch.axes import Schedule
from mapsearch.simulating.orders import Kind, Plan
from mapsearch.simulating.simulator import OpTimes

_AIM = "the closed form is what an automatic schedule aims at, no bubble; this fixed order waits"
_WORDS = {
    Schedule.GPIPE: "too short where forwards and backwards have different slowest stages",
    Schedule.ONE_F_ONE_B: "too long by at most the stages behind the slowest one, whose work hides",
    Schedule.INTERLEAVED: "too long by at most a chunk of each stage behind the slowest one, whose work hides",
    Schedule.ZB_V: f"{_AIM} (p-1)(B-W) where stages are equal",
    Schedule.ZB_2P: f"{_AIM} (p-1)(F+B-2W) where stages are equal",
    Schedule.DUALPIPE: "too long by min(F, (p/2-1)(B-F)) where stages are equal",
    Schedule.DUALPIPE_V: "too long by min(F, (p-1)(B-F))/2 where stages are equal",
}


def gap_s(schedule: int, pp: int, stage: OpTimes) -> float:
    """Simulated less closed form for equal stages: exact where W <= F <= B (weight gradient, forward, input gradient).

    0 for GPipe, 1F1B and interleaved (for any times) and ZB-H1; (p-1)(B-W) for ZB-V; (p-1)(F+B-2W) for ZB-2P;
    -min(F, (p/2-1)(B-F)) for DualPipe, and half of -min(F, (p-1)(B-F)) for DualPipeV, whose chunks are half as long.
    GPipe to ZB-H1 and both DualPipe compare the makespan, ZB-V and ZB-2P the longest device.
    From p microbatches on for ZB-H1, 2p-1 for ZB-V and ZB-2P, as the schedules are defined for DualPipe and DualPipeV.

    Axes: schedule, pp. Unit: s. Source: orders run step by step; ZB-2P also FORMULAS 3.5 (ZB-H2).
    """
    f, b, w = stage
    if pp == 1:
        return 0.0
    return {
        Schedule.ZB_V: (pp - 1) * (b - w),
        Schedule.ZB_2P: (pp - 1) * (f + b - 2.0 * w),
        Schedule.DUALPIPE: -min(f, (pp / 2.0 - 1.0) * (b - f)),
        Schedule.DUALPIPE_V: -min(f, (pp - 1) * (b - f)) / 2.0,
    }.get(Schedule(schedule), 0.0)


def gap_words(schedule: int, stages: Sequence[OpTimes]) -> str:
    """What is known of the closed form's distance from the run, for these stages, in words."""
    code, alike = Schedule(schedule), all(stage == stages[0] for stage in stages)
    if len(stages) == 1 or (alike and gap_s(code, len(stages), stages[0]) == 0.0):
        return "exact: stages are equal" if len(stages) > 1 else "exact: one stage"
    return _WORDS.get(code, "too long where other stages than the slowest have slack")


def least_s(plan: Plan, seconds: Sequence[Sequence[OpTimes]]) -> float:
    """No order of the same operations is done sooner: the longest device, from the first time it can have input.

    Where backwards are not split, also with what must follow it on the devices before. Unit: s.
    """
    found = []
    for device, order in enumerate(plan.orders):
        ops = [op for group in order for op in group]
        time = sum(seconds[device][op.chunk].of(op.kind) for op in ops)
        if len(plan.routes) == 1:
            route = plan.routes[0]
            way = route[: next(place for place, (r, _) in enumerate(route) if r == device)]
            time += sum(seconds[r][chunk].forward_s for r, chunk in way)
            if all(op.kind in (Kind.FORWARD, Kind.BACKWARD) for op in ops):
                time += sum(seconds[r][chunk].of(Kind.BACKWARD) for r, chunk in way)
        found.append(time)
    return max(found)
