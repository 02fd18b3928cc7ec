"""The front of two pools: every point is the optimum of plain loops, and sharing searches changes nothing."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tiny_cases import tiny_model, tiny_profile, tiny_run
from two_pools import drawn, plain_best, tiny_cluster, tiny_pools, tiny_rollout

from mapsearch.errors import UsageError
from mapsearch.interrupts import Interrupts
from mapsearch.pooled_front import PoolFront
from mapsearch.pooling.front import UNLIMITED, _Front, rollout_front
from mapsearch.pooling.objective import DEVICE_HOURS, TOKENS, Objective
from mapsearch.pooling.split import Kept, best_pair

SEEDS = range(24)
VERSIONS = [1, 2, 3, 4, 5, 6, 9]


def front_of(pools, objective=TOKENS, *, versions=None, queue=None, deadline=None):
    work = _Front(pools, objective, Kept(pools, objective.pays), deadline, None)
    for held in queue or [pools.rollout.queue.held_batches]:
        work.along(held, versions)
    return work.answer(0.0)


def at(pools, versions):
    return replace(pools, rollout=pools.rollout.model_copy(update={"versions": versions}))


@pytest.mark.parametrize("start", range(0, len(SEEDS), 8))
def test_every_point_is_the_optimum_of_plain_loops(start):
    for seed in SEEDS[start : start + 8]:
        pools = drawn(seed)
        for point in front_of(pools, versions=VERSIONS[seed % 3 :: 3]).points:
            wanted = plain_best(at(pools, point.versions))
            assert (point.steady is None) == (wanted is None), (seed, point.versions)
            if wanted is not None:
                assert point.status == "exact"
                assert point.steady.step_s == pytest.approx(wanted, rel=1e-9), (seed, point.versions)
                assert point.steady.version_lag <= point.versions


@pytest.mark.parametrize("objective", [TOKENS, DEVICE_HOURS, Objective("cost", 3.0, 1.0)])
def test_sharing_searches_changes_nothing(objective):
    for seed in (7, 12, 21, 40, 77):
        pools = drawn(seed)
        for point in front_of(pools, objective, versions=VERSIONS).points:
            alone = best_pair(at(pools, point.versions), objective=objective).best
            assert (point.steady is None) == (alone is None)
            if alone is not None:
                told = point.steady.step_s, point.training_devices, point.rollout_devices
                assert told[0] * objective.weight(*told[1:]) == pytest.approx(alone.value, rel=1e-9)


def own_question(**changes):
    rollout = tiny_rollout(**{"publishing": {"switch": "1 ms", "every": 2}, **changes})
    return tiny_pools(topology=tiny_cluster((2, 4), hbm_mb=256.0), rollout=rollout)


def test_without_a_list_it_ends_where_more_versions_gain_nothing():
    pools = own_question()
    front = front_of(pools)
    assert front.status == "exact"
    # Half a batch and one unpublished step leave room from the second version on.
    assert front.points[0].versions == 2
    steps = [point.steady.step_s for point in front.points]
    assert len(steps) > 2
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == pytest.approx(best_pair(at(pools, UNLIMITED)).best.step_s, rel=1e-9)
    assert steps[-1] < steps[-2] or not front.points[-1].gains
    assert {point.knee for point in front.points} == {True, False}


def test_points_that_gain_nothing_are_marked():
    front = front_of(own_question(), versions=[50, 60])
    assert [point.gains for point in front.points] == [True, False]


def test_a_longer_queue_is_a_line_of_its_own_and_no_better():
    pools = own_question()
    front = front_of(pools, versions=[3, 5], queue=[0.0, 0.5, 1.0])
    assert [(point.held_batches, point.versions) for point in front.points] == [
        (held, versions) for held in (0.0, 0.5, 1.0) for versions in (3, 5)
    ]
    for versions in (3, 5):
        steps = [point.steady.step_s for point in front.points if point.versions == versions]
        assert steps == sorted(steps)
    with pytest.raises(UsageError, match="least_batches"):
        front_of(own_question(queue={"least_batches": 0.5, "held_batches": 0.5}), queue=[0.25])


def test_after_the_deadline_points_are_open_and_say_how_far_off():
    pools = own_question()
    best = {point.versions: point.steady.step_s for point in front_of(pools, versions=[2, 6]).points}
    front = front_of(pools, versions=[2, 6], deadline=time.monotonic() - 1.0)
    assert front.status == "open"
    for point in front.points:
        assert point.bound_s <= best[point.versions] * (1.0 + 1e-9) <= point.steady.step_s * (1.0 + 2e-9)
        assert point.gap == pytest.approx(1.0 - point.bound_s / point.steady.step_s)
    assert "stopped" in front_of(pools, deadline=time.monotonic() - 1.0).notes[0]


def test_ctrl_c_gives_what_there_is(monkeypatch):
    pools = own_question()
    least = best_pair(pools).best.value
    kept = Kept(pools)
    searched = kept.trainer.some

    def struck(*asked):
        answered = searched(*asked)
        monkeypatch.setattr("mapsearch.pooling.split.requested", lambda: True)
        return answered

    monkeypatch.setattr(kept.trainer, "some", struck)
    with Interrupts():
        found = best_pair(pools, kept=kept)
    assert found.interrupted
    assert not found.complete
    assert found.best is not None
    assert found.bound <= least <= found.best.value


def test_the_document_is_read_back_and_the_same_again():
    given = {"model": tiny_model(), "run": tiny_run(micro_batch=[1], vpp=[1], schedule=["1f1b"]),
             "topology": tiny_cluster((2, 4), hbm_mb=256.0), "rollout": tiny_rollout(), "profile": tiny_profile(),
             "versions": [1, 3]}  # fmt: skip
    text = rollout_front(**given).to_json()
    assert PoolFront.model_validate_json(text).to_json() == text == rollout_front(**given).to_json()


def test_where_nothing_fits_it_says_why_and_what_helps():
    front = front_of(tiny_pools(topology=tiny_cluster((2, 2), hbm_mb=5.0)))
    assert front.status == "infeasible"
    assert len(front.points) == 1
    assert front.conflicts
    assert front.relaxations
