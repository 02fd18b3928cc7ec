"""The joint optimum of two pools is that of plain loops, and the binding constraint is the one that binds in value."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from tiny_cases import tiny_model, tiny_run
from two_pools import TINY_ROLLOUT, drawn, plain_best, tiny_cluster, tiny_pools, tiny_rollout

from mapsearch.costs import pacing
from mapsearch.pooling.api import answer_of
from mapsearch.pooling.infeasible import explain_infeasible
from mapsearch.pooling.split import best_pair
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search

SEEDS = 224
BLOCK = 16


@cache
def best_of(seed):
    return best_pair(drawn(seed))


@pytest.mark.parametrize("start", range(0, SEEDS, BLOCK))
def test_the_joint_optimum_is_that_of_plain_loops(start):
    for seed in range(start, start + BLOCK):
        found, wanted = best_of(seed), plain_best(drawn(seed))
        assert found.complete
        assert (found.best is None) == (wanted is None), seed
        if wanted is not None:
            assert found.best.step_s == pytest.approx(wanted, rel=1e-9), seed
            assert found.bound == found.best.step_s


def test_the_instances_show_the_constraints_and_infeasible_ones():
    bests = [best_of(seed).best for seed in range(SEEDS)]
    seen = Counter(pacing.binding(best.pace)[0] if best else "infeasible" for best in bests)
    assert set(seen) >= {"train", "supply", "publish", "version", "infeasible"}, seen
    assert SEEDS - seen["infeasible"] >= 100


def test_a_full_queue_binds_between_a_slow_and_a_fast_link():
    seen = []
    for link in ("1 GB/s", "300 MB/s", "150 MB/s", "30 MB/s"):
        rollout = tiny_rollout(
            pool={"link": {"bandwidth": link}},
            queue={"held_batches": 3.5, "most_batches": 8.0},
            publishing={"switch": "0 s", "in_flight": "side-by-side"},
            concurrency=4096,
        )
        run = tiny_run(micro_batch=[1], vpp=[1], schedule=["1f1b"], global_batch=4)
        pools = tiny_pools(rollout=rollout, run=run)
        best = best_pair(pools).best
        assert best.step_s == pytest.approx(plain_best(pools))
        seen.append(pacing.binding(best.pace)[0])
    assert "queue" in seen, seen


@pytest.mark.parametrize("layers", [3, 5])
def test_a_slower_training_mapping_wins_where_its_ranks_send_evenly(tmp_path, layers):
    """Three layers on two stages send unevenly: where sending binds, one stage is better though its step is longer."""
    own = tmp_path / "own.json"
    own.write_text(tiny_cluster((2, 8), hbm_mb=256.0).model_dump_json(exclude_defaults=True))
    slow = tiny_cluster((2, 2), hbm_mb=256.0)
    levels = [level.model_copy(update={"bandwidth": 0.01 * level.bandwidth}) for level in slow.levels]
    rollout = tiny_rollout(
        pool={"topology": str(own), "link": {"bandwidth": "1 MB/s"}},
        serving={**TINY_ROLLOUT["serving"], "tp": [1], "dp": [1], "ep": [1]},
    )
    run = tiny_run(micro_batch=[1], vpp=[1], schedule=["1f1b"], global_batch=16)
    cluster = slow.model_copy(update={"levels": levels})
    pools = tiny_pools(model=tiny_model(layers=layers), topology=cluster, rollout=rollout, run=run)
    best = best_pair(pools).best
    fastest = search(problem_of(best.part.training), 1).top[0]
    assert fastest.step_time_s < best.train_s
    assert best.mapping.pp == 1
    assert best.step_s == pytest.approx(plain_best(pools))


def test_after_the_deadline_the_best_so_far_has_a_bound():
    pools = tiny_pools()
    found = best_pair(pools, deadline=time.monotonic() - 1.0)
    assert not found.complete
    assert found.bound <= best_pair(pools).best.step_s
    assert answer_of(pools, found).status in ("feasible", "unknown")


def test_more_devices_are_never_worse():
    steps = []
    for units in (2, 4, 8):
        best = best_pair(tiny_pools(topology=tiny_cluster((2, units), hbm_mb=256.0))).best
        steps.append(best.step_s)
    assert steps == sorted(steps, reverse=True)


def test_a_queue_that_holds_more_than_the_versions_allow_says_so_and_what_helps():
    rollout = tiny_rollout(versions=1, queue={"held_batches": 1.5, "most_batches": 3.0})
    pools = tiny_pools(rollout=rollout)
    found = best_pair(pools)
    assert found.best is None
    told = explain_infeasible(pools)
    assert [one.relations for one in told.conflicts] == [["versions"]]
    assert "versions old" in told.conflicts[0].sentences[0]
    assert [(change.name, change.to_value) for change in told.relaxations] == [("versions", 2.0)]
    assert best_pair(replace(pools, rollout=rollout.replaced(versions=2))).best is not None


def test_a_queue_that_cannot_hold_a_batch_says_so_and_what_helps():
    rollout = tiny_rollout(queue={"held_batches": 1.5, "most_batches": 2.0})
    pools = tiny_pools(rollout=rollout)
    found = best_pair(pools)
    assert found.best is None
    told = explain_infeasible(pools)
    assert [one.relations for one in told.conflicts] == [["queue"]]
    assert "holds 1.5 batches" in told.conflicts[0].sentences[0]
    changes = {change.name: change for change in told.relaxations}
    assert changes["most_batches"].to_value == 2.5
    assert changes["held_batches"].to_value == 1.0
    assert all(change.step_time_s for change in changes.values())


def test_a_model_that_fits_no_replica_names_memory_and_devices():
    pools = tiny_pools(topology=tiny_cluster((2, 2), hbm_mb=5.0))
    found = best_pair(pools)
    assert found.best is None
    told = explain_infeasible(pools)
    assert len(told.conflicts) == 1
    assert {change.name for change in told.relaxations} >= {"hbm", "devices"}
    for change in told.relaxations:
        assert change.step_time_s
        if not change.choice:
            assert change.to_value > change.from_value


def test_the_answer_holds_both_mappings_and_the_four_constraints():
    pools = tiny_pools()
    found = best_pair(pools)
    told = answer_of(pools, found)
    steady = told.steady
    assert steady.step_s == max(steady.train_s, steady.supply_s, steady.fresh_s, steady.repeated_s)
    assert steady.version_lag <= steady.versions
    assert told.training_devices + told.rollout_devices == 8
    assert told.serving.weight_bytes + told.serving.cache_bytes + told.serving.buffer_bytes <= told.serving.limit_bytes
    assert told.publishing.time_s >= told.publishing.bound_s
    assert told.training.mappings[0].step_time_s == pytest.approx(steady.train_s)
    assert type(told).model_validate_json(told.to_json()).to_json() == told.to_json()
