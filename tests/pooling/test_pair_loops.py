"""The pairs of pools that the joint search finds, simulated: their step is confirmed, or differs by a known cause."""

from __future__ import annotations

import math

import pytest
from two_pools import drawn

from mapsearch.errors import InputError
from mapsearch.looping.measured import measured
from mapsearch.looping.simulator import simulate
from mapsearch.pooling.api import answer_of
from mapsearch.pooling.loops import judge_pools, loop_facts, with_replicas
from mapsearch.pooling.split import best_pair

TOLERANCE = 0.02
LOST = 0.1
"""Share of the supply up to which what a switch loses need not be exact."""
SAMPLES = 500
"""Of a batch, at least: tiny models' batches are a few samples, which chance rules."""


def simulated(seed):
    """An answer and what its simulation makes of its step; None where nothing fits."""
    pools = drawn(seed)
    answer = answer_of(pools, best_pair(pools))
    if answer.steady is None:
        return None
    facts = loop_facts(answer, pools.rollout)
    samples = facts.batch_tokens / facts.lengths.mean
    facts = with_replicas(facts, max(facts.replicas, math.ceil(SAMPLES / samples * facts.replicas)))
    run = measured(facts, simulate(facts, steps=120, seed=seed))
    return answer, facts, run.step_s / answer.steady.step_s - 1.0, run


def check(seed):
    """What sets the step of a pair, after its simulation."""
    told = simulated(seed)
    if told is None:
        return None
    answer, facts, apart, run = told
    state, lost_s = answer.steady, answer.publishing.lost_s
    others_s = max(state.train_s, state.supply_s)
    assert apart < TOLERANCE + 0.01, seed  # never slower than found, but for chance
    if state.fresh_s > max(others_s, state.repeated_s):
        # The search keeps the longest request of a batch young; stragglers may be used over age here.
        assert run.step_s > others_s * (1.0 - 2.0 * TOLERANCE), seed
        return "fresh"
    if state.repeated_s > others_s:
        # Versions wait for their publication before samples are over age: training is held back later.
        assert run.step_s > others_s * (1.0 - 2.0 * TOLERANCE), seed
        return "repeated"
    if lost_s > LOST * facts.every * state.supply_s and state.supply_s > state.train_s:
        assert apart > -0.1, seed  # switches so close that requests are not met at random
        return "switches"
    assert apart == pytest.approx(0.0, abs=TOLERANCE), seed
    return "train" if state.train_s >= state.supply_s else "supply"


@pytest.mark.parametrize("seeds", [range(0, 8)])
def test_random_pairs_are_confirmed(seeds):
    assert sum(check(seed) is not None for seed in seeds) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("start", range(8, 72, 16))
def test_many_random_pairs_are_confirmed(start):
    seen = [check(seed) for seed in range(start, start + 16)]
    # Of 16 random pairs one to three have rates alone to go by, and are held to the tolerance.
    assert any(one in ("train", "supply") for one in seen), seen


def test_an_answer_is_a_loop(tmp_path):
    pools = drawn(6)
    rollout, file = tmp_path / "rollout.json", tmp_path / "pools.json"
    rollout.write_text(pools.rollout.model_dump_json(exclude_defaults=True))
    answer = answer_of(pools, best_pair(pools)).model_copy(update={"rollout": str(rollout)})
    file.write_text(answer.to_json())
    report = judge_pools(str(file), steps=60)
    assert report.searched_step_s == answer.steady.step_s
    assert report.steady.step_s == pytest.approx(answer.steady.step_s, rel=TOLERANCE)
    assert report.batch_tokens == answer.steady.batch_tokens
    assert report.notes[-1].startswith(f"the search gave a step of {answer.steady.step_s:,.4g} s, the simulation takes")
    assert judge_pools(str(file), steps=60).to_json() == report.to_json()


@pytest.mark.slow
def test_the_default_pair_is_confirmed_on_a_part_of_its_replicas(tmp_path):
    """5T on asic, on 1,024 devices: the pair that is found is the one that is simulated."""
    from mapsearch.pooling.api import rollout

    found = rollout(devices=1024, proof="none")
    file = tmp_path / "pools.json"
    file.write_text(found.to_json())
    report = judge_pools(str(file), steps=120)
    assert report.searched_step_s == found.steady.step_s
    assert report.steady.step_s == pytest.approx(found.steady.step_s, rel=TOLERANCE)
    step = next(row for row in report.agreement if row.quantity == "step_s")
    assert step.simulated == pytest.approx(found.steady.step_s, rel=TOLERANCE)
    assert any(note.endswith("confirmed") for note in report.notes)
    lag = next(row for row in report.constraints if row.name == "lag")
    assert lag.holds
    assert lag.demand <= found.steady.versions


def test_an_answer_of_another_rollout_is_refused(tmp_path):
    pools = drawn(6)
    answer = answer_of(pools, best_pair(pools))
    with pytest.raises(InputError, match="was found with other lengths or another yield than rollout"):
        loop_facts(answer, pools.rollout.replaced(filter_yield=0.5 * pools.rollout.filter_yield))
    empty = answer.model_copy(update={"steady": None})
    with pytest.raises(InputError, match="holds no pair"):
        loop_facts(empty, pools.rollout)
