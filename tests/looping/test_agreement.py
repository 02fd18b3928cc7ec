"""The closed forms against the simulation, which knows none of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from random_loops import random_loop, run_of

from mapsearch.looping.durations import durations
from mapsearch.looping.facts import LoopFacts
from mapsearch.looping.measured import growing
from mapsearch.looping.simulator import simulate
from mapsearch.looping.steady import pace_of, steady

TOLERANCE = 0.02
AWAY = 0.1
"""Nearer to balance than this, chance fills and empties the queue, and its level does not follow from the rates."""
MANY = 200


def stable_loops(count: int) -> list[tuple[int, LoopFacts]]:
    """The first so many stable loops whose closed form is not an estimate, whatever is near balance included."""
    found: list[tuple[int, LoopFacts]] = []
    seed = 0
    while len(found) < count:
        facts = random_loop(seed)
        state = steady(facts)
        if not state.grows and not state.approximate:
            found.append((seed, facts))
        seed += 1
    return found


def check(seed: int, facts: LoopFacts) -> str:
    """What sets the step, after all that the closed form tells was found again."""
    state, run = steady(facts), run_of(facts, seed, 20_000)
    assert run.step_s == pytest.approx(state.step_s, rel=TOLERANCE), seed
    assert run.wait_s == pytest.approx(state.wait_s, abs=TOLERANCE * state.step_s), seed
    assert run.duty == pytest.approx(state.duty, rel=TOLERANCE), seed
    assert run.consumed_tokens_per_s == pytest.approx(state.consumed_tokens_per_s, rel=TOLERANCE), seed
    if state.dropped_share is not None:
        assert run.dropped_share == pytest.approx(state.dropped_share, abs=TOLERANCE), seed
    if state.rollout_use is not None:
        assert run.rollout_use == pytest.approx(state.rollout_use, rel=TOLERANCE), seed
    # Little: the time in the queue is the queue over what is taken from it.
    if run.dropped_share == 0.0:
        assert run.queue_delay_s * run.consumed_tokens_per_s == pytest.approx(
            run.queue_mean_tokens, abs=0.03 * facts.batch_tokens
        ), seed
    return state.bound


def test_steps_waits_and_shares_of_stable_loops():
    assert {check(*loop) for loop in stable_loops(20)} >= {"training", "rollout"}


@pytest.mark.slow
def test_steps_waits_and_shares_of_many_stable_loops():
    seen = [check(*loop) for loop in stable_loops(MANY)]
    assert all(seen.count(bound) >= 5 for bound in ("training", "rollout", "publishing"))


@pytest.mark.slow
def test_ages_where_chance_does_not_rule_the_queue():
    compared = 0
    for seed, facts in stable_loops(100):
        state = steady(facts)
        if state.bound == "training" or state.age_mean_s is None or state.lag_mean is None:
            continue
        busy_s = facts.train_s + facts.publish_stall_s
        # A pause that ends about when the batch is taken falls before it or after it.
        phase = (facts.train_s + facts.publish_s) / state.step_s % 1.0
        if abs(state.step_s / busy_s - 1.0) < AWAY or (facts.pause_s and not AWAY < phase < 1.0 - AWAY):
            continue
        if abs(facts.publish_s / state.step_s - 1.0) < AWAY:  # now and then a version is left out
            continue
        run = run_of(facts, seed, 20_000)
        assert run.queue_mean_tokens == pytest.approx(state.queue_mean_tokens, rel=2.0 * TOLERANCE), seed
        assert run.age_mean_s == pytest.approx(state.age_mean_s, rel=TOLERANCE), seed
        assert run.lag_mean == pytest.approx(state.lag_mean, rel=2.0 * TOLERANCE), seed
        compared += 1
    assert compared >= 20


def unstable(seed: int) -> LoopFacts | None:
    """A loop in which a queue grows by at least a tenth of a batch, or of a version, in each step."""
    facts = random_loop(seed)
    state = steady(facts)
    step = facts.batch_tokens if state.grows == "samples" else 1.0
    return facts if state.grows and state.growth_per_s * state.step_s > 0.1 * step else None


@pytest.mark.parametrize("grows", ["samples", "versions"])
def test_unstable_loops_are_called_unstable_and_their_queue_grows(grows):
    loops = [(seed, facts) for seed in range(400) if (facts := unstable(seed)) and steady(facts).grows == grows]
    assert len(loops) >= 3
    for seed, facts in loops[:4]:
        trace = simulate(facts, steps=100, seed=seed)
        assert growing(facts, trace) == grows, seed
        name = "queue_tokens" if grows == "samples" else "unpublished"
        half = len(trace.moments) // 2
        first, last = trace.moments[half], trace.moments[-1]
        rate = (getattr(last, name) - getattr(first, name)) / (last.time_s - first.time_s)
        assert rate == pytest.approx(steady(facts).growth_per_s, rel=0.15), seed


def test_no_stable_loop_is_seen_to_grow():
    for seed, facts in stable_loops(8):
        calm = replace(facts, most_queue_tokens=min(facts.most_queue_tokens, 2.0 * facts.batch_tokens))
        assert growing(calm, simulate(calm, steps=120, seed=seed)) == "", seed


def paced_loop(seed: int) -> LoopFacts | None:
    """A random loop that waits for its budget, with publishing in time and room for a batch that comes in lumps."""
    facts = replace(
        random_loop(seed),
        policy="wait",
        publishing="latest",
        switching=("finish", "finish", "drain")[seed % 3],
        every=(1, 1, 2, 4)[seed // 3 % 4],
        replicas=(1, 4)[seed // 12 % 2],
    )
    facts = replace(facts, most_queue_tokens=max(facts.most_queue_tokens, 4.0 * facts.batch_tokens))
    pace = pace_of(facts, durations(facts))
    in_time = pace.repeated_s <= max(pace.train_s, pace.supply_s)
    return facts if in_time and facts.versions_allowed < 64 and pace.step_s < 1e9 else None


def check_bound(seed: int, facts: LoopFacts) -> bool:
    """Neither the closed form nor the simulation is slower than the joint search's bound; whether age sets that."""
    pace, run = pace_of(facts, durations(facts)), run_of(facts, seed, 6_000)
    assert steady(facts).step_s <= pace.step_s * (1.0 + 1e-9), seed
    assert run.step_s <= pace.step_s * (1.02 if facts.switching == "finish" else 1.04), seed
    assert run.step_s >= max(pace.train_s * (1.0 - 1e-9), 0.98 * pace.made_s), seed
    aged = pace.fresh_s > max(pace.train_s, pace.supply_s)
    if not aged and facts.switching == "finish" and run.over_share == 0.0:
        assert run.step_s == pytest.approx(pace.step_s, rel=TOLERANCE), seed
    return aged


def test_the_bound_of_the_joint_search_holds_closed_form_and_simulation():
    loops = [(seed, facts) for seed in range(30) if (facts := paced_loop(seed))][:10]
    assert {check_bound(*loop) for loop in loops} == {True, False}


@pytest.mark.slow
def test_the_bound_of_the_joint_search_holds_many_loops():
    loops = [(seed, facts) for seed in range(30, 250) if (facts := paced_loop(seed))][:80]
    aged = [check_bound(*loop) for loop in loops]
    assert 10 <= sum(aged) <= len(aged) - 10
