"""Pipelines: closed forms against schedules stepped through one operation at a time, and FORMULAS 3.5's numbers."""

import random

import numpy as np
import pytest
from pipeline_steps import gpipe, interleaved, one_f_one_b, step_through, zb_h1, zb_h2

from mapsearch.axes import Hidden, Schedule
from mapsearch.costs import pipeline
from mapsearch.inventories.run import Run

RUN = Run(sequence_length=4096, global_batch=64)


def held(pp: int, vpp: int, schedule: Schedule, m: int, stage: int, overlap: int = 0) -> float:
    return float(pipeline.in_flight(pp, vpp, schedule, overlap, m, stage, run=RUN))


def closed_form(schedule: Schedule, vpp: int, m: int, f: list[float], b: list[float], w: list[float]) -> float:
    return float(
        pipeline.pipeline_s(
            f,
            b,
            w,
            microbatches=m,
            correction=pipeline.steady_correction(schedule, vpp),
            scale=pipeline.ramp_scale(schedule, len(f), vpp),
            weights=pipeline.ramp_weights(schedule),
        )
    )


def bubble(schedule: Schedule, p: int, vpp: int = 1, m: int = 64) -> float:
    return closed_form(schedule, vpp, m, [1.0] * p, [1.0] * p, [1.0] * p) - 3.0 * m


@pytest.mark.parametrize(("p", "m"), [(1, 3), (4, 8), (6, 4), (8, 16)])
def test_held_microbatches_of_plain_schedules(p: int, m: int) -> None:
    equal = [{"F": 1.0, "B": 2.0, "W": 0.0}] * p
    for schedule, order in ((Schedule.GPIPE, gpipe), (Schedule.ONE_F_ONE_B, one_f_one_b)):
        time, peak = step_through([order(p, m, r) for r in range(p)], equal)
        assert [held(p, 1, schedule, m, r) for r in range(p)] == peak
        assert closed_form(schedule, 1, m, [1.0] * p, [1.0] * p, [1.0] * p) == time


@pytest.mark.parametrize(("p", "v", "m"), [(4, 2, 8), (8, 4, 16), (2, 3, 4), (3, 2, 3)])
def test_interleaved(p: int, v: int, m: int) -> None:
    chunk = [{"F": 1.0, "B": 2.0, "W": 0.0}] * p
    time, peak = step_through([interleaved(p, m, r, v) for r in range(p)], chunk, v)
    assert [held(p, v, Schedule.INTERLEAVED, m, r) for r in range(p)] == pytest.approx(peak)
    assert closed_form(Schedule.INTERLEAVED, v, m, [1.0 * v] * p, [1.0 * v] * p, [1.0 * v] * p) == pytest.approx(time)


@pytest.mark.parametrize(("p", "m"), [(1, 4), (3, 5), (4, 8), (8, 16)])
@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (2.0, 3.0, 2.0), (1.0, 2.0, 1.0)])
def test_zb_h1(p: int, m: int, times: tuple[float, float, float]) -> None:
    f, b, w = times
    time, peak = step_through([zb_h1(p, m, r) for r in range(p)], [{"F": f, "B": b, "W": w}] * p)
    assert closed_form(Schedule.ZB_H1, 1, m, [f] * p, [b] * p, [w] * p) == pytest.approx(time)
    assert [held(p, 1, Schedule.ZB_H1, m, r) for r in range(p)] == peak


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (3, 6), (4, 8), (8, 16), (8, 24)])
@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (2.0, 3.0, 2.0), (1.0, 2.0, 1.0)])
def test_zb_2p(p: int, m: int, times: tuple[float, float, float]) -> None:
    """From the last stage's first forward on nothing waits; a stage holds 2p-1, one less than the schedule's limit."""
    f, b, w = times
    time, peak = step_through([zb_h2(p, m, r) for r in range(p)], [{"F": f, "B": b, "W": w}] * p)
    assert closed_form(Schedule.ZB_2P, 1, m, [f] * p, [b] * p, [w] * p) == pytest.approx(time - (p - 1) * f)
    assert peak == [min(2 * p - 1, m)] * p
    assert all(0 <= held(p, 1, Schedule.ZB_2P, m, r) - peak[r] <= 1 for r in range(p))


def unequal(count: int) -> list[tuple[list[float], int]]:
    rng = random.Random(7)
    shapes = [[float(rng.randint(1, 9)) for _ in range(rng.randint(2, 6))] for _ in range(count)]
    return [(stages, rng.randint(len(stages), 14)) for stages in shapes]


def test_unequal_stages_of_gpipe_are_exact() -> None:
    for stages, m in unequal(60):
        p = len(stages)
        time, _ = step_through([gpipe(p, m, r) for r in range(p)], [{"F": f, "B": 2 * f, "W": 0.0} for f in stages])
        assert closed_form(Schedule.GPIPE, 1, m, stages, stages, stages) == pytest.approx(time)


def test_unequal_stages_of_1f1b_are_bounded_and_exact_when_the_last_is_slowest() -> None:
    shorter = 0
    for stages, m in unequal(120):
        p = len(stages)
        time, _ = step_through(
            [one_f_one_b(p, m, r) for r in range(p)], [{"F": f, "B": 2 * f, "W": 0.0} for f in stages]
        )
        closed = closed_form(Schedule.ONE_F_ONE_B, 1, m, stages, stages, stages)
        slowest = p - 1 - int(np.argmax(stages[::-1]))
        behind = 3.0 * sum(stages[slowest + 1 :])
        assert closed - behind - 1e-9 <= time <= closed + 1e-9
        if slowest == p - 1:
            assert time == pytest.approx(closed)
        shorter += time < closed - 1e-9
    assert shorter > 10  # the bound is not vacuous: slack stages behind the slowest do hide


def test_bubbles_of_sixteen_stages() -> None:
    """FORMULAS 3.5: F = B = W = 1, p = 16: 1F1B 45, ZB-H1 15, DualPipe 14 with F&B = 3; interleaved 45/v."""
    assert bubble(Schedule.ONE_F_ONE_B, 16) == 45
    assert bubble(Schedule.GPIPE, 16) == 45
    assert bubble(Schedule.ZB_H1, 16) == 15
    assert bubble(Schedule.ZB_V, 16) == 0
    assert bubble(Schedule.ZB_2P, 16) == 0
    assert bubble(Schedule.DUALPIPE, 16) == 14
    assert bubble(Schedule.INTERLEAVED, 16, vpp=5) == pytest.approx(9)
    # 16 stages folded on 8 devices: each stage takes half of a device's time, so 14 stage units are 7 device units.
    assert bubble(Schedule.DUALPIPE_V, 8) == pytest.approx(7)


def test_bubble_fractions() -> None:
    """FORMULAS 3.5 and 8: (p-1)/(vm) of the ideal time, (p-1)/(vm+p-1) of the total."""
    for p, m, v, ideal, total in ((8, 32, 1, 21.9, 17.9), (8, 32, 4, 5.47, 5.19), (16, 64, 1, 23.44, 18.99)):
        waste, work = bubble(Schedule.INTERLEAVED, p, v, m), 3.0 * m
        assert 100 * waste / work == pytest.approx(ideal, abs=0.05 if ideal > 20 and p == 8 else 0.005)
        assert 100 * waste / (waste + work) == pytest.approx(total, abs=0.05 if ideal > 20 and p == 8 else 0.005)


def test_documented_microbatches_in_flight() -> None:
    """FORMULAS 3.5 and 3.7a."""
    assert held(8, 4, Schedule.INTERLEAVED, 64, 0) == 9.75
    assert held(16, 2, Schedule.INTERLEAVED, 64, 0) == 23.5
    assert [16 * held(4, 4, Schedule.INTERLEAVED, 64, r) for r in range(4)] == [76, 68, 60, 52]
    assert held(16, 1, Schedule.DUALPIPE, 64, 3) == 17
    assert held(8, 1, Schedule.DUALPIPE_V, 64, 3) == 8.5  # 17 half-size stages
    assert held(16, 1, Schedule.ZB_V, 64, 5) == 16
    assert held(16, 1, Schedule.ZB_2P, 64, 5) == 32


def test_expert_overlap_keeps_one_more_forward() -> None:
    """One more forward in the warm-up; on a single stage the next microbatch takes the place of this one."""
    away = Hidden.EXPERT_ALL_TO_ALL
    assert held(8, 4, Schedule.INTERLEAVED, 64, 0, away) == 10.0
    assert held(8, 1, Schedule.ONE_F_ONE_B, 64, 7, away) == held(8, 1, Schedule.INTERLEAVED, 64, 7, away) == 2.0
    assert held(8, 1, Schedule.ONE_F_ONE_B, 64, 0, away | Hidden.PARAM_GATHER) == 9.0
    assert held(1, 1, Schedule.ONE_F_ONE_B, 64, 0, away) == 1.0
    assert held(8, 4, Schedule.INTERLEAVED, 64, 0, Hidden.PARAM_GATHER) == 9.75
    both = pipeline.in_flight(8, 4, int(Schedule.INTERLEAVED), np.array([0, 1, 2, 3]), 64, 0, run=RUN)
    assert both.tolist() == [9.75, 10.0, 9.75, 10.0]


def test_model_copies() -> None:
    """DualPipe holds two stages per device; DualPipeV, counted per device, holds its share once (FORMULAS 3.5)."""
    codes = np.array(list(Schedule))
    assert dict(zip(Schedule, pipeline.model_copies(codes), strict=True)) == {
        schedule: 2.0 if schedule == Schedule.DUALPIPE else 1.0 for schedule in Schedule
    }


def test_broadcasts_over_every_axis_and_never_grows_along_the_pipeline() -> None:
    codes = np.array(list(Schedule))[:, None, None]
    stages = np.arange(8)[None, None, :]
    many = pipeline.in_flight(8, np.array([1, 2, 4])[None, :, None], codes, 0, 32, stages, run=RUN)
    assert many.shape == (8, 3, 8)
    assert (np.diff(many, axis=-1) <= 0).all()
    assert many[Schedule.INTERLEAVED, 1, 2] == held(8, 2, Schedule.INTERLEAVED, 32, 2)
    assert pipeline.ramp_scale(codes, 8, np.array([1, 2])[None, :, None]).shape == (8, 2, 1)


def test_never_more_than_the_microbatches_there_are() -> None:
    for schedule in Schedule:
        assert held(8, 2, schedule, 3, 0) == 3
