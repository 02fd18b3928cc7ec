"""The simulator and the orders by themselves: every operation once, nothing before its inputs, hand-drawn timelines."""

import random
from itertools import pairwise

import pytest
from pipelines import Pipeline, chunks_of, equal, some, unequal

from mapsearch.axes import Schedule
from mapsearch.errors import InputError
from mapsearch.simulating.orders import SOURCES, Kind, Op, Plan, plan_of
from mapsearch.simulating.simulator import OpTimes, TimedOp, simulate

every_schedule = pytest.mark.parametrize("schedule", list(Schedule), ids=lambda s: s.name.lower())


def way(case: Pipeline, device: int, chunk: int) -> tuple[int, int]:
    """Direction and place of a chunk in its pipeline, counted from where microbatches enter."""
    if case.schedule == Schedule.DUALPIPE and case.p > 1:
        return chunk, device if chunk == 0 else case.p - 1 - device
    if case.schedule in (Schedule.ZB_V, Schedule.DUALPIPE_V) and chunk:
        return 0, 2 * case.p - 1 - device
    return 0, chunk * case.p + device


@every_schedule
def test_every_operation_runs_once_and_after_its_inputs(schedule: Schedule) -> None:
    rng = random.Random(1)
    for _ in range(25):
        case = unequal(schedule, rng)
        hop = rng.choice([0.0, 1.5])
        timeline = simulate(case.plan, case.seconds, hop_s=hop)
        ends: dict[tuple[str, int, int, int], TimedOp] = {}
        for row in timeline.by_device:
            for before, after in pairwise(row):
                assert after.start_s >= before.end_s
            for op in row:
                place = way(case, op.device, op.chunk)
                for kind in "FB" if op.kind is Kind.BACKWARD else op.kind.value[0].upper():
                    name = {"I": "B", "F": "F" if op.kind is Kind.FORWARD else "W"}.get(kind, kind)
                    assert (name, *place, op.microbatch) not in ends
                    ends[name, *place, op.microbatch] = op
        chunks = chunks_of(schedule, case.p, case.v)
        halved = 2 if schedule == Schedule.DUALPIPE and case.p > 1 else 1
        assert len(ends) == 3 * case.p * chunks * case.m // halved
        last = max(place for _, _, place, _ in ends)
        for (kind, direction, place, microbatch), op in ends.items():
            source = {
                "F": ("F", direction, place - 1, microbatch),
                "B": ("B", direction, place + 1, microbatch) if place < last else ("F", direction, place, microbatch),
                "W": ("B", direction, place, microbatch),
            }[kind]
            if source in ends and ends[source] is not op:
                other = ends[source]
                assert op.start_s >= other.end_s + (hop if other.device != op.device else 0.0) - 1e-9


def test_1f1b_by_hand() -> None:
    """Two stages, two microbatches, F 1 and B 2: F0 F1 B0 B1 above, F0 B0 F1 B1 below."""
    plan = plan_of(Schedule.ONE_F_ONE_B, 2, 1, 2)
    timeline = simulate(plan, [[OpTimes(1.0, 1.0, 1.0)]] * 2)
    drawn = [[(op.kind.value[0], op.microbatch, op.start_s, op.end_s) for op in row] for row in timeline.by_device]
    assert drawn == [
        [("f", 0, 0.0, 1.0), ("f", 1, 1.0, 2.0), ("b", 0, 4.0, 6.0), ("b", 1, 7.0, 9.0)],
        [("f", 0, 1.0, 2.0), ("b", 0, 2.0, 4.0), ("f", 1, 4.0, 5.0), ("b", 1, 5.0, 7.0)],
    ]
    assert timeline.makespan_s == timeline.span_s == 9.0
    assert timeline.busy_s == (6.0, 6.0)
    assert timeline.idle_s == (3.0, 3.0)
    assert timeline.peaks == (2.0, 1.0)


def test_dualpipe_of_the_published_figure() -> None:
    """arXiv 2412.19437, figure 5: 8 devices, 20 microbatches; device 0 runs 7 forwards before the other way's first."""
    plan = plan_of(Schedule.DUALPIPE, 8, 1, 20)
    first = [(op.kind.value[0], op.chunk, op.microbatch) for group in plan.orders[0][:8] for op in group]
    assert first == [*(("f", 0, i) for i in range(7)), ("f", 1, 0)]
    assert [op.kind for op in plan.orders[0][8]] == [Kind.INPUT_GRAD]
    mirrored = [[op._replace(chunk=1 - op.chunk) for op in group] for group in plan.orders[0]]
    assert [list(group) for group in plan.orders[7]] == mirrored
    both = [group for order in plan.orders for group in order if len(group) == 2]
    assert all([op.kind for op in group] == [Kind.FORWARD, Kind.BACKWARD] for group in both)
    assert len(both) == sum(2 * (10 - 8 + half + 1) + (3 - half) - (half == 3) for half in (0, 1, 2, 3)) * 2


def test_hops_lengthen_the_ramps_by_their_own_number() -> None:
    """GPipe: p-1 hops on the way there and p-1 back."""
    for p, m in ((2, 3), (5, 7)):
        plan, times = plan_of(Schedule.GPIPE, p, 1, m), [[OpTimes(1.0, 1.0, 1.0)]] * p
        longer = simulate(plan, times, hop_s=0.25).makespan_s - simulate(plan, times).makespan_s
        assert longer == pytest.approx(2 * (p - 1) * 0.25)


def test_what_stays_on_its_device_makes_no_hop() -> None:
    """Neither from a forward to its backward on the last stage, nor at the bottom of a V."""
    alone = plan_of(Schedule.ONE_F_ONE_B, 1, 1, 1)
    assert simulate(alone, [[OpTimes(1.0, 1.0, 1.0)]], hop_s=5.0).makespan_s == 3.0
    folded = plan_of(Schedule.ZB_V, 2, 1, 1)
    times = [[OpTimes(1.0, 1.0, 1.0)] * 2] * 2
    longer = simulate(folded, times, hop_s=0.5).makespan_s - simulate(folded, times).makespan_s
    assert longer == pytest.approx(4 * 0.5)  # down, up, and both ways back


@every_schedule
def test_longer_operations_never_end_sooner_and_the_held_do_not_depend_on_times(schedule: Schedule) -> None:
    rng = random.Random(2)
    for _ in range(20):
        case = equal(schedule, rng)
        longer = [[OpTimes(*(t + rng.randint(0, 3) for t in chunk)) for chunk in row] for row in case.seconds]
        first, second = case.run(), simulate(case.plan, longer)
        assert second.makespan_s >= first.makespan_s
        assert second.peaks == first.peaks


def test_what_a_schedule_is_not_defined_for_is_said() -> None:
    for schedule, p, v, m, words in (
        (Schedule.DUALPIPE, 3, 1, 8, "an even number"),
        (Schedule.DUALPIPE, 4, 1, 9, "an even number"),
        (Schedule.DUALPIPE, 4, 1, 6, "at least 2 PP = 8"),
        (Schedule.DUALPIPE_V, 4, 1, 7, "at least 2 PP = 8"),
        (Schedule.INTERLEAVED, 4, 2, 6, "whole groups of PP = 4"),
    ):
        with pytest.raises(InputError, match=words):
            plan_of(schedule, p, v, m)


def test_orders_that_wait_for_each_other_are_refused() -> None:
    """Device 0 wants the third place of the way before it has done the first."""
    first, third, second = (Op(Kind.FORWARD, 0, 0),), (Op(Kind.FORWARD, 1, 0),), (Op(Kind.FORWARD, 0, 0),)
    route = (((0, 0), (1, 0), (0, 1)),)
    times = [[OpTimes(1.0, 1.0, 1.0)] * 2] * 2
    assert simulate(Plan(((first, third), (second,)), route, 0.5), times).makespan_s == 3.0
    with pytest.raises(ValueError, match="wait for each other"):
        simulate(Plan(((third, first), (second,)), route, 0.5), times)


def test_every_schedule_has_a_source_and_one_stage() -> None:
    assert set(SOURCES) == set(Schedule)
    for schedule in Schedule:
        timeline = simulate(plan_of(schedule, 1, 1, 3), [[OpTimes(1.0, 2.0, 3.0)]])
        assert timeline.makespan_s == 18.0
        assert timeline.idle_s == (0.0,)


@every_schedule
def test_few_microbatches_still_run(schedule: Schedule) -> None:
    if schedule in (Schedule.DUALPIPE, Schedule.DUALPIPE_V, Schedule.INTERLEAVED):
        return
    for p in (2, 5):
        for m in range(1, 2 * p):
            timeline = simulate(plan_of(schedule, p, 1, m), [[OpTimes(1.0, 1.0, 1.0)] * 2] * p)
            assert max(timeline.peaks) <= m


def test_the_random_cases_reach_one_stage_and_many() -> None:
    rng = random.Random(3)
    stages = {some(schedule, rng)[0] for schedule in Schedule for _ in range(100)}
    assert stages == set(range(1, 11))
