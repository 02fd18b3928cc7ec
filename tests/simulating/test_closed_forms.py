"""The closed forms of FORMULAS 3.5 against every schedule run operation by operation, over random pipelines.

Equal stages: exact, or exactly off by what `gap_s` says. Unequal stages: between proven bounds. The slow tests run
2,000 pipelines per schedule and kind, the fast ones some of the same.
"""

import random
from collections.abc import Callable

import pytest
from pipelines import Pipeline, closed_s, equal, simulated_s, unequal

from mapsearch.axes import Hidden, Schedule
from mapsearch.costs import pipeline
from mapsearch.inventories.run import Run
from mapsearch.simulating.gaps import gap_s, least_s
from mapsearch.simulating.orders import plan_of
from mapsearch.simulating.simulator import OpTimes, simulate

RUN = Run(sequence_length=4096, global_batch=64)
COUNTS = [pytest.param(60, id="some"), pytest.param(2000, id="2000", marks=pytest.mark.slow)]
every_schedule = pytest.mark.parametrize("schedule", list(Schedule), ids=lambda s: s.name.lower())
so_many = pytest.mark.parametrize("count", COUNTS)


def drawn(make: Callable[..., Pipeline], schedule: Schedule, count: int, **given: bool) -> list[Pipeline]:
    rng = random.Random(int(schedule))
    return [make(schedule, rng, **given) for _ in range(count)]


def held(case: Pipeline, stage: int, overlap: int = 0) -> float:
    return float(pipeline.in_flight(case.p, case.v, case.schedule, overlap, case.m, stage, run=RUN))


@every_schedule
@so_many
def test_equal_stages_are_exact_or_off_by_the_stated_gap(schedule: Schedule, count: int) -> None:
    bubbles = 0
    for case in drawn(equal, schedule, count):
        time = simulated_s(case)
        assert time - closed_s(case) == pytest.approx(gap_s(schedule, case.p, case.stages[0]), abs=1e-6), case[:4]
        bubbles += time > case.m * case.stages[0].total_s
    assert bubbles > count / 2  # most of them wait: the gap is not one of nothing


@every_schedule
@so_many
def test_microbatches_held(schedule: Schedule, count: int) -> None:
    """Exact; the handcrafted ZB-2P order holds one fewer than the limit that the automatic schedule is given."""
    for case in drawn(equal, schedule, count):
        expected = [held(case, stage) for stage in range(case.p)]
        if schedule == Schedule.ZB_2P:
            expected = [min(2.0 * case.p - 1.0, case.m)] * case.p
            assert all(0.0 <= held(case, r) - expected[r] <= 1.0 for r in range(case.p))
        assert list(case.run().peaks) == pytest.approx(expected), case[:4]


@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED], ids=lambda s: s.name.lower())
@so_many
def test_microbatches_held_while_all_to_alls_hide(schedule: Schedule, count: int) -> None:
    """One forward more in the warm-up takes no time and holds one chunk more."""
    for case in drawn(equal, schedule, count):
        if case.p == 1:
            continue
        timeline = simulate(plan_of(schedule, case.p, case.v, case.m, more_warmup=1), case.seconds)
        assert timeline.makespan_s == pytest.approx(closed_s(case))
        expected = [held(case, stage, Hidden.EXPERT_ALL_TO_ALL) for stage in range(case.p)]
        assert list(timeline.peaks) == pytest.approx(expected), case[:4]


def at_most_s(case: Pipeline) -> float:
    """The time of equal stages that are as long as the longest chunk in each part: times only grow."""
    longest = OpTimes(*(max(part) for part in zip(*(chunk for row in case.seconds for chunk in row), strict=True)))
    alike = case._replace(seconds=[[longest] * len(row) for row in case.seconds])
    return closed_s(alike) + gap_s(case.schedule, case.p, alike.stages[0])


@every_schedule
@so_many
def test_unequal_stages_are_within_bounds(schedule: Schedule, count: int) -> None:
    """The closed form is too long by at most its own bubble, and too short by at most what longest stages would add."""
    for case in drawn(unequal, schedule, count):
        timeline, time, most = case.run(), simulated_s(case), at_most_s(case)
        busiest = max(timeline.busy_s)
        assert timeline.makespan_s >= least_s(case.plan, case.seconds) - 1e-6
        assert busiest - 1e-6 <= time <= most + 1e-6, case[:4]
        assert busiest - 1e-6 <= closed_s(case)


@so_many
def test_unequal_stages_of_gpipe_are_exact(count: int) -> None:
    """All forwards before all backwards: each phase has its own slowest stage."""
    for case in drawn(unequal, Schedule.GPIPE, count):
        forward, backward = ([t.forward_s for t in case.stages], [t.total_s - t.forward_s for t in case.stages])
        apart = max(forward) + max(backward) - max(t.total_s for t in case.stages)
        assert simulated_s(case) - closed_s(case) == pytest.approx((case.m - 1) * apart, abs=1e-6)


@so_many
@pytest.mark.parametrize("one_ratio", [True, False])
def test_unequal_stages_of_1f1b(count: int, one_ratio: bool) -> None:
    """Too long by at most the stages behind the slowest; never too short where all stages share one ratio of F to B."""
    shorter = exact = 0
    for case in drawn(unequal, Schedule.ONE_F_ONE_B, count, one_ratio=one_ratio):
        totals = [stage.total_s for stage in case.stages]
        slowest = max(range(case.p), key=lambda r: (totals[r], r))
        time, closed = simulated_s(case), closed_s(case)
        assert closed - sum(totals[slowest + 1 :]) - 1e-6 <= time, case[:4]
        if one_ratio and case.m >= case.p:
            assert time <= closed + 1e-6
            if slowest == case.p - 1:
                assert time == pytest.approx(closed)
                exact += 1
        shorter += time < closed - 1e-6
    assert shorter > count / 5  # slack stages behind the slowest do hide
    assert exact > count / 10 or not one_ratio


@so_many
def test_unequal_stages_of_interleaved(count: int) -> None:
    """Too long by at most a chunk of each stage behind the slowest; with one ratio seldom too short, and by little."""
    short: list[float] = []
    for case in drawn(unequal, Schedule.INTERLEAVED, count, one_ratio=True):
        totals = [stage.total_s for stage in case.stages]
        slowest = max(range(case.p), key=lambda r: (totals[r], r))
        time, closed = simulated_s(case), closed_s(case)
        assert closed - sum(totals[slowest + 1 :]) / case.v - 1e-6 <= time, case[:4]
        short.append(time / closed - 1.0)
    assert sum(share > 1e-9 for share in short) <= 0.005 * count
    assert max(short) < 0.03


@so_many
def test_unequal_stages_of_zb_h1_are_never_longer(count: int) -> None:
    for case in drawn(unequal, Schedule.ZB_H1, count, one_ratio=True):
        assert simulated_s(case) <= closed_s(case) + 1e-6, case[:4]


def test_weight_gradients_longer_than_forwards_leave_zb_h1_no_bubble_to_fill() -> None:
    """Outside W <= F <= B the makespan of ZB-H1 is m t + (p-1) max(F+B-W, F, B)."""
    for f, b, w in ((2.0, 2.0, 3.0), (1.0, 1.0, 3.0), (1.0, 8.0, 2.0), (9.0, 1.0, 1.0)):
        for p, m in ((2, 4), (4, 8), (7, 9)):
            times = [[OpTimes(f, b, w)]] * p
            time = simulate(plan_of(Schedule.ZB_H1, p, 1, m), times).makespan_s
            assert time == pytest.approx(m * (f + b + w) + (p - 1) * max(f + b - w, f, b))
