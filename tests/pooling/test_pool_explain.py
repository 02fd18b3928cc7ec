"""Explanations of two pools: ledgers add up, constraints are those of the pace, changes are the least that help."""

from __future__ import annotations

from dataclasses import replace

import pytest
from two_pools import drawn, plain_best, tiny_cluster, tiny_pools, tiny_rollout

from mapsearch.errors import InputError
from mapsearch.pooling.answers import pair_of
from mapsearch.pooling.api import answer_of
from mapsearch.pooling.explain import WORTHWHILE, explain_pools
from mapsearch.pooling.levers import choice_levers, number_levers
from mapsearch.pooling.split import best_pair
from mapsearch.reports.pools_explained import pools_explained_lines


@pytest.fixture(scope="module")
def explained():
    pools = tiny_pools()
    answer = answer_of(pools, best_pair(pools))
    return pools, answer, explain_pools(answer, pools)


def test_the_ledger_of_a_replica_adds_up(explained):
    _, answer, found = explained
    one, plan = found.serving, answer.serving
    held = plan.weight_bytes + plan.cache_bytes + plan.buffer_bytes
    assert sum(one.memory_bytes.values()) == pytest.approx(held)
    assert one.free_bytes == pytest.approx(plan.limit_bytes - held)
    assert one.memory_bytes["scales"] > 0.0
    assert sum(one.decode_parts_s.values()) == pytest.approx(plan.decode_step_s)
    assert sum(one.prefill_parts_s.values()) == pytest.approx(plan.prefill_s)


def test_margins_are_what_can_be_lost_before_the_step_grows(explained):
    pools, answer, found = explained
    pair = pair_of(pools, answer)
    rows = {row.name: row for row in found.constraints}
    assert set(rows) == {"supply", "publish", "queue", "version"}
    assert all(row.margin == pytest.approx(row.limit - row.demand) for row in rows.values())
    assert all(row.without_s <= pair.step_s for row in rows.values())
    budget = rows["publish"].limit
    for publish_s, longer in ((budget * 0.999, False), (budget * 1.01, True)):
        slower = replace(pair.pace, publish_s=publish_s).step_s
        assert (slower > pair.step_s * (1.0 + 1e-6)) is longer


def test_training_is_explained_as_ever(explained):
    _, answer, found = explained
    assert found.training.status == "exact"
    assert found.training.mapping.step_time_s == pytest.approx(answer.steady.train_s)
    assert found.training.mapping.devices <= answer.training_devices


@pytest.mark.parametrize("seed", [3, 5, 6])
def test_changes_help_as_said_and_nearer_ones_do_not_by_plain_loops(seed):
    pools = drawn(seed)
    found = best_pair(pools)
    answer = answer_of(pools, found)
    told = explain_pools(answer, pools)
    target_s = answer.steady.step_s * (1.0 - WORTHWHILE)
    levers = {(one.name, one.choice): one
              for one in [*choice_levers(pools), *number_levers(pools, answer.publishing.bytes_per_s)]}  # fmt: skip
    assert told.changes or told.useless
    for one in told.changes:
        lever = levers[(one.name, one.choice)]
        if lever.name in ("devices", "hbm"):
            continue  # plain loops take too long there
        assert one.step_s <= target_s
        assert plain_best(lever.at(lever.far if lever.choice else one.to_value)) == pytest.approx(one.step_s)
        if one.fails_at is not None:
            assert plain_best(lever.at(one.fails_at)) > target_s
    useless = [lever for lever in levers.values() if lever.words(lever.far) in told.useless]
    assert len(useless) == len(told.useless)
    for lever in useless:
        if lever.name not in ("devices", "hbm"):
            best = plain_best(lever.at(lever.far))
            assert best is None or best > target_s


def test_inputs_that_changed_are_refused(explained):
    pools, answer, _ = explained
    other = replace(pools, rollout=tiny_rollout(filter_yield=0.4))
    with pytest.raises(InputError, match="solved for other inputs"):
        explain_pools(answer, other)


def test_a_pair_that_does_not_exist_is_explained_by_its_conflict():
    pools = tiny_pools(topology=tiny_cluster((2, 2), hbm_mb=5.0))
    answer = answer_of(pools, best_pair(pools))
    found = explain_pools(answer, pools, conflicts=3)
    assert found.status == "infeasible"
    assert found.conflicts and found.relaxations
    text = "\n".join(line.plain for line in pools_explained_lines(found, width=80))
    assert "INFEASIBLE" in text and "The least changes that help" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_no_time_leaves_notes(explained):
    pools, answer, _ = explained
    found = explain_pools(answer, pools, time_limit=0.0)
    assert found.constraints and found.serving
    assert any("no time was left" in note for note in found.notes)


def test_the_same_question_has_the_same_bytes(explained):
    pools, answer, found = explained
    assert explain_pools(answer, pools).to_json() == found.to_json()
