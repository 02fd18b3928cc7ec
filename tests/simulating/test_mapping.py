"""The pipeline of a mapping: its stage times are the estimate's, its chunks add up to them."""

import pytest

from mapsearch.api import read_inputs
from mapsearch.axes import SCHEDULE, Schedule
from mapsearch.costs.estimate import Point, number, point_of
from mapsearch.costs.step import stage_time_s
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.run import Run
from mapsearch.simulating.mapping import chunk_times, pipelined, stage_times
from mapsearch.simulating.orders import plan_of


def point(**given: object) -> Point:
    run = Run(sequence_length=4096, global_batch=1024)
    facts = read_inputs("deepseek-v3", run, "hgx-h100", None, None).facts
    return point_of(Mapping(**{"dp": 64, "pp": 8, "ep": 64, **given}), facts)


@pytest.mark.parametrize("recompute_stages", [0, 3])
@pytest.mark.parametrize("schedule", list(Schedule), ids=lambda s: s.name.lower())
def test_stages_take_what_the_estimate_says(schedule: Schedule, recompute_stages: int) -> None:
    vpp = 2 if schedule == Schedule.INTERLEAVED else 1
    one = point(schedule=SCHEDULE.write(schedule), vpp=vpp, recompute="norm", recompute_stages=recompute_stages)
    times = stage_times(one)
    by_kind = [number(stage_time_s(stage, one.timing)) for stage in one.stages()]
    first = {number(kind.stage): seconds for kind, seconds in zip(one.cell.kinds, by_kind, strict=True)}
    assert {stage: times[int(stage)].total_s for stage in first} == pytest.approx(first)
    assert max(stage.total_s for stage in times) == pytest.approx(max(by_kind))
    assert len(times) == 8


@pytest.mark.parametrize("schedule", list(Schedule), ids=lambda s: s.name.lower())
def test_chunks_add_up_to_their_device(schedule: Schedule) -> None:
    vpp = 2 if schedule == Schedule.INTERLEAVED else 1
    one = point(schedule=SCHEDULE.write(schedule), vpp=vpp)
    stages, plan = stage_times(one), plan_of(schedule, 8, vpp, 16)
    chunks = chunk_times(one, plan, stages)
    for stage, row in zip(stages, chunks, strict=True):
        whole = 2.0 if schedule == Schedule.DUALPIPE else 1.0
        assert [sum(part) for part in zip(*row, strict=True)] == pytest.approx([whole * part for part in stage])
    if schedule in (Schedule.ZB_V, Schedule.DUALPIPE_V):
        # The first device has the embedding and dense layers in one chunk, the last layers and the loss in the other.
        assert chunks[0][0].total_s != pytest.approx(chunks[0][1].total_s, rel=0.05)


def test_dualpipe_runs_every_stage_in_both_directions() -> None:
    """Device r holds stage r of one direction and stage p-1-r of the other."""
    one = point(schedule="dualpipe")
    chunks = chunk_times(one, plan_of(Schedule.DUALPIPE, 8, 1, 16), stage_times(one))
    for r in range(8):
        assert list(chunks[r][0]) == pytest.approx(list(chunks[7 - r][1]))
    straight = stage_times(point(schedule="1f1b"))
    assert [row[0].total_s for row in chunks] == pytest.approx([stage.total_s for stage in straight])


def test_hops_that_hide_are_not_in_the_steady_stage() -> None:
    """Interleaved hides its hops behind compute; 1F1B has one in line for each direction."""
    straight, hidden = point(schedule="1f1b"), point(schedule="interleaved", vpp=2)
    hop = next(part for part in straight.sides[2].parts if part.name == "pp")
    for before, after in zip(stage_times(straight), stage_times(hidden), strict=True):
        assert before.forward_s - after.forward_s == pytest.approx(number(hop.forward[0]), rel=1e-6)
        assert before.weight_grad_s == pytest.approx(after.weight_grad_s)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "zb-v", "zb-2p", "dualpipe", "dualpipe-v"])
def test_the_estimate_is_the_closed_form_where_nothing_hides(schedule: str) -> None:
    found = pipelined(point(schedule=schedule))
    assert found.closed_form_s == pytest.approx(found.estimate_s)


def test_ramps_pay_for_what_hides() -> None:
    found = pipelined(point(schedule="interleaved", vpp=2))
    assert found.estimate_s is not None
    assert found.estimate_s > found.closed_form_s * 1.001


def test_other_stage_times_are_simulated_in_their_place() -> None:
    one = point(schedule="1f1b")
    twice = [type(stage)(*(2.0 * part for part in stage)) for stage in stage_times(one)]
    found = pipelined(one, stages=twice)
    assert found.timeline.makespan_s == pytest.approx(2.0 * pipelined(one).timeline.makespan_s)
    assert found.estimate_s is None
