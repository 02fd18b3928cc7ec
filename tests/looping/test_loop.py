"""The loop by formula and event by event: golden case, conservation, budgets, policies, switches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mapsearch.costs.lengths import constant, from_quantiles, listed, lognormal
from mapsearch.errors import InputError
from mapsearch.looping.api import judge_loop
from mapsearch.looping.durations import durations
from mapsearch.looping.facts import LoopFacts
from mapsearch.looping.measured import growing, measured
from mapsearch.looping.simulator import simulate
from mapsearch.looping.steady import steady

# FORMULAS 1.8: 2^22 tokens, 1e5 tokens/s, 30 s of training.
EXAMPLE = LoopFacts(2**22, 30.0, 1e5, 128, constant(16384))


def test_the_example_of_the_formulas():
    state = steady(EXAMPLE)
    assert state.supply_s == pytest.approx(41.94, abs=5e-3)
    assert state.wait_s == pytest.approx(11.94, abs=5e-3)
    assert state.duty == pytest.approx(0.715, abs=5e-4)
    assert (state.bound, state.grows) == ("rollout", "")
    run = measured(EXAMPLE, simulate(EXAMPLE, steps=60))
    assert run.step_s == pytest.approx(41.94, abs=0.05)
    assert run.wait_s == pytest.approx(11.94, abs=0.05)
    assert run.duty == pytest.approx(0.715, abs=1e-3)


def test_chance_in_the_example_changes_nothing_on_average():
    spread = replace(EXAMPLE, lengths=lognormal(16384, 1.0), speed_cv=0.5)
    run = measured(spread, simulate(spread, steps=100))
    assert run.step_s == pytest.approx(41.94, rel=0.01)


def test_a_pause_is_paid_once_per_publication():
    # Published once per step: supply and one pause. Back to back, 20 s of every 100 s: 0.8 of the rate.
    short = replace(EXAMPLE, publish_s=10.0, pause_s=4.0)
    assert steady(short).step_s == pytest.approx(41.94304 + 4.0)
    long = replace(EXAMPLE, publish_s=100.0, pause_s=20.0)
    assert steady(long).step_s == pytest.approx(41.94304 / 0.8)
    for facts in (short, long):
        assert measured(facts, simulate(facts, steps=120)).step_s == pytest.approx(steady(facts).step_s, rel=0.01)


def test_one_step_off_policy_and_none():
    # All alike, a place for each trajectory: generation takes 256 * 16384 / 1e5 = 41.94 s, and with no version to spare
    # a step is generation, training and publishing one after the other.
    facts = replace(EXAMPLE, concurrency=256, publish_s=5.0, most_versions=0)
    assert steady(facts).bound == "staleness"
    assert steady(facts).step_s == pytest.approx(30.0 + 5.0 + 41.94304)
    assert measured(facts, simulate(facts, steps=40)).step_s == pytest.approx(76.94304, rel=1e-3)


@pytest.mark.parametrize("policy", ["wait", "drop", "down-weight"])
def test_no_token_is_lost(policy):
    facts = replace(
        EXAMPLE, lengths=lognormal(16384, 1.0), publish_s=25.0, most_versions=1, policy=policy, train_s=45.0,
        most_queue_tokens=3e7, kept_share=0.7, decay=0.5,
    )  # fmt: skip
    trace = simulate(facts, steps=80, seed=3)
    _, _, kept, dropped, _ = trace.totals[-1]
    taken = sum(batch.tokens for batch in trace.batches[:-1])
    queue = next(one.queue_tokens for one in trace.moments if one.time_s == trace.batches[-1].taken_s)
    assert kept == pytest.approx(taken + dropped + queue)
    assert taken == pytest.approx(79 * facts.batch_tokens, abs=facts.lengths.longest)


def test_the_same_seed_gives_the_same_report():
    facts = replace(EXAMPLE, lengths=lognormal(16384, 1.0), most_versions=2)
    first, again, other = (judge_loop(facts, steps=40, seed=seed).to_json() for seed in (1, 1, 2))
    assert first == again != other


def test_budgets_are_held_by_dropping_and_by_waiting():
    facts = replace(EXAMPLE, lengths=lognormal(16384, 0.5), train_s=60.0, publish_s=20.0, most_versions=2)
    free = measured(facts, simulate(replace(facts, policy="down-weight", most_queue_tokens=4e7), steps=80))
    assert free.over_share > 0.5
    dropped = measured(facts, simulate(replace(facts, policy="drop"), steps=80))
    assert (dropped.over_share, dropped.lag_most) == (0.0, 2)
    assert dropped.dropped_share == pytest.approx(1.0 - 41.94304 / 60.0, abs=0.02)
    waited = measured(facts, simulate(facts, steps=80))
    assert waited.over_share < 0.05  # only what takes longest
    assert waited.dropped_share == 0.0
    assert waited.rollout_use < 0.75 < dropped.rollout_use


def test_ages_in_seconds_and_in_tokens():
    facts = replace(EXAMPLE, train_s=60.0, policy="drop", most_age_s=100.0)
    trace = simulate(facts, steps=60)
    assert max(batch.age_most_s for batch in trace.batches) <= 100.0
    assert replace(facts, most_lag_tokens=2.5 * facts.batch_tokens).versions_allowed == 2
    hopeless = replace(facts, most_age_s=3.0)  # generation alone takes 21 s
    assert steady(hopeless).grows == "starved"
    assert growing(hopeless, simulate(hopeless, steps=20)) == "starved"


def test_down_weighted_tokens_count_less():
    facts = replace(
        EXAMPLE, lengths=lognormal(32768, 1.0), publish_s=20.0, most_versions=1, policy="down-weight", decay=0.5
    )
    state, run = steady(facts), measured(facts, simulate(facts, steps=150))
    assert state.effective_tokens_per_s < 0.9 * state.consumed_tokens_per_s
    assert run.effective_tokens_per_s == pytest.approx(state.effective_tokens_per_s, rel=0.02)


def test_trajectories_of_one_version():
    facts = replace(EXAMPLE, publish_s=10.0, lengths=lognormal(32768, 1.0))
    for switching, mixed in (("finish", False), ("drain", False), ("in-flight", True)):
        one = replace(facts, switching=switching)
        assert (measured(one, simulate(one, steps=40)).mixed_share > 0.0) == mixed
        rows = {row.name: row for row in judge_loop(one, steps=40).constraints}
        assert rows["one-version"].holds == (not mixed)


def test_draining_costs_rollout_its_longest_trajectories():
    facts = replace(EXAMPLE, publish_s=10.0, lengths=lognormal(16384, 1.0))
    drained = replace(facts, switching="drain")
    state = steady(drained)
    assert state.approximate
    assert state.step_s > 1.1 * steady(facts).step_s
    assert measured(drained, simulate(drained, steps=100)).step_s == pytest.approx(state.step_s, rel=0.2)


def test_the_queue_keeps_its_bounds():
    facts = replace(EXAMPLE, train_s=60.0, least_queue_tokens=2**21, most_queue_tokens=2**23, policy="down-weight")
    run = measured(facts, simulate(facts, steps=60))
    assert run.queue_least_tokens >= 2**21 - 16384
    assert run.queue_most_tokens <= 2**23
    with pytest.raises(InputError, match=r"most_queue_tokens.*no step could begin"):
        replace(facts, most_queue_tokens=2**22)


def test_unbounded_surplus_and_publishing_in_order_are_unstable():
    surplus = replace(EXAMPLE, train_s=60.0)
    assert steady(surplus).grows == "samples"
    assert steady(surplus).growth_per_s == pytest.approx(1e5 - 2**22 / 60.0)
    order = replace(EXAMPLE, publishing="every", publish_s=60.0)
    assert steady(order).grows == "versions"
    assert steady(order).growth_per_s == pytest.approx(1 / 41.94304 - 1 / 60.0)
    assert steady(replace(order, most_versions=4)).step_s == pytest.approx(60.0)


def test_more_supply_never_slows_and_longer_publishing_never_speeds():
    base = replace(EXAMPLE, lengths=lognormal(16384, 1.0), most_versions=2, publish_s=10.0, pause_s=5.0)
    for policy in ("wait", "drop", "down-weight"):
        facts = replace(base, policy=policy)
        steps = [steady(replace(facts, rollout_tokens_per_s=rate)).step_s for rate in (5e4, 1e5, 2e5, 4e5)]
        assert steps == sorted(steps, reverse=True)
        steps = [steady(replace(facts, publish_s=time)).step_s for time in (5.0, 10.0, 20.0, 25.0)]
        assert steps == sorted(steps)


def test_lag_stays_within_the_bound_but_for_the_longest():
    for seed in range(6):
        facts = replace(
            EXAMPLE, lengths=lognormal(8192 * (seed + 1), 0.5), publish_s=5.0 * seed, most_queue_tokens=2**23,
            train_s=20.0 + 10.0 * seed, policy="down-weight",
        )  # fmt: skip
        bound = steady(facts).lag_bound
        trace = simulate(facts, steps=80, seed=seed)
        lags = [pair for batch in trace.batches[40:] for pair in batch.lags]
        over = sum(count for lag, count in lags if lag > bound)
        assert over <= 0.015 * sum(count for _, count in lags), seed


def test_lengths_have_the_mean_that_was_asked_for():
    chance = np.random.default_rng(0)
    for lengths in (lognormal(1000, 0.0), lognormal(1000, 2.0), listed([500, 1500]), constant(1000)):
        assert lengths.mean == pytest.approx(1000)
        assert lengths.drawn(chance, 200_000).mean() == pytest.approx(1000, rel=0.02)
    quantiles = from_quantiles([0, 0.5, 1], [0.0 + 100, 200, 400])
    assert quantiles.mean == pytest.approx(0.5 * 150 + 0.5 * 300, rel=1e-3)
    assert listed([1, 3], [3, 1]).mean == pytest.approx(1.5)


def test_times_of_trajectories():
    two = durations(replace(EXAMPLE, lengths=listed([1000, 3000])))
    each_s = 128 / 1e5
    assert two.within([0.9e3 * each_s, 1.1e3 * each_s, 1e9]).tolist() == [0.0, 0.5, 1.0]
    assert two.last_of(2) == pytest.approx((0.25 * 1000 + 0.75 * 3000) * each_s)
    # E[L^2] / 2 E[L]
    assert two.rest().mean == pytest.approx(5e6 / 4e3 * each_s)
    by_tokens = durations(replace(EXAMPLE, lengths=listed([1000, 3000])), by_tokens=True)
    assert by_tokens.mean == pytest.approx(2500 * each_s)
    slow = durations(replace(EXAMPLE, speed_cv=0.5))
    assert slow.mean == pytest.approx(16384 * each_s)


def test_policies_are_compared_against_no_budget():
    facts = replace(EXAMPLE, lengths=lognormal(16384, 0.5), train_s=60.0, publish_s=20.0, most_versions=2, decay=0.5)
    found = judge_loop(replace(facts, most_queue_tokens=4e7), steps=60)
    costs = {row.policy: row for row in found.policies}
    assert list(costs) == ["wait", "drop", "down-weight"]
    assert costs["down-weight"].cost > 0.5  # nearly all are several versions over
    assert abs(costs["drop"].cost) < 0.02  # training takes what it can all the same; rollout pays
    assert costs["drop"].dropped_share > 0.25
    assert judge_loop(EXAMPLE, steps=20).policies == []
    unknown = judge_loop(facts, steps=20, weighted=False).policies[2]
    assert (unknown.effective_tokens_per_s, unknown.cost) == (None, None)


def test_too_long_a_simulation_is_refused():
    with pytest.raises(InputError, match=r"run\.steps: 100,000 steps are .* trajectories"):
        judge_loop(EXAMPLE, steps=100_000)
    assert math.isinf(EXAMPLE.versions_allowed)
