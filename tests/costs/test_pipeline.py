"""Pipelines: FORMULAS 3.5's numbers. Schedules run step by step: tests/simulating/test_closed_forms.py."""

import numpy as np
import pytest

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
