"""`explain` of a mapping: relaxations one after the other, what rules cost, and how far inputs may worsen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from explain_oracle import judged
from hypothesis import HealthCheck, given, settings
from test_explain_binding import INSTANCES, SMALL, random_facts, relaxed
from tiny_cases import tiny_facts

import mapsearch
from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError, UsageError
from mapsearch.explaining.levers import bandwidths, rivals_at
from mapsearch.explaining.stability import LEAST_SHARE, RESOLUTION
from mapsearch.solver.explain.relax import with_hbm
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import time_of
from mapsearch.solver.search import search
from mapsearch.solver.tables import WHAT_IF

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


def explained(facts: Facts, **asked):
    return mapsearch.explain(facts.model, facts.run, facts.fabric, profile=facts.profile, **asked)


def staircase(facts: Facts, relation: str, best_s: float) -> list[tuple[float, float]]:
    """(excess, step time) of what more and more of one limit unlocks, by plain loops."""
    oracle = judged(facts)
    column = oracle.names.index(relation)
    others = oracle.satisfying([name for name in oracle.names if name != relation])
    over = oracle.demand[:, column] - oracle.limit[:, column]
    with np.errstate(invalid="ignore"):
        excess = over / oracle.step_time_s if relation.startswith("exposed") else over
    blocked = others & (over > 0)
    blocked &= oracle.peak_bytes <= WHAT_IF * usable_hbm_bytes(facts)
    steps: list[tuple[float, float]] = []
    for place in np.lexsort((oracle.step_time_s, excess)):
        if blocked[place] and oracle.step_time_s[place] < best_s * (1 - 1e-9):
            best_s = float(oracle.step_time_s[place])
            steps.append((float(excess[place]), best_s))
    return steps


def judge_bindings(facts: Facts) -> int:
    """Every relaxation of the first mapping is a step of the staircase of its limit, none is left out before it."""
    found = explained(facts, bindings=50)
    if found.mapping is None:
        return 0
    for relation in {binding.relation for binding in found.bindings}:
        told = [binding for binding in found.bindings if binding.relation == relation]
        steps = staircase(facts, relation, found.mapping.step_time_s)
        assert [b.step_time_s for b in told] == pytest.approx([seconds for _, seconds in steps], rel=1e-9)
        for binding in told:
            enough = search(problem_of(relaxed(facts, relation, binding.relax_by)), 1).top
            assert enough[0].step_time_s <= binding.step_time_s * (1 + 1e-9)
            assert binding.gain == pytest.approx(1 - binding.step_time_s / found.mapping.step_time_s)
    assert len({binding.relation for binding in found.bindings[:2]}) == min(
        2, len({binding.relation for binding in found.bindings})
    ), "the nearest step of every limit comes first"
    return len(found.bindings)


@pytest.mark.parametrize("name", INSTANCES)
def test_relaxations_are_the_whole_staircase_of_each_limit(name):
    assert judge_bindings(INSTANCES[name]())


@pytest.mark.slow
@given(random_facts())
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=CHECKS)
def test_random_staircases(given_facts):
    judge_bindings(given_facts)


def judge_rules(facts: Facts) -> None:
    found = explained(facts)
    assert found.mapping is not None
    assert found.rules
    problem = problem_of(facts)
    for rule in found.rules:
        if rule.relation.endswith("'s rules"):
            dropped = [r.name for r in problem.relations if r.origin == rule.origin]
        else:
            dropped = [rule.relation]
        free = search(problem.without(*dropped), 1).top[0].step_time_s
        assert rule.step_time_s == pytest.approx(free, rel=1e-9)
        assert rule.gain == pytest.approx(1 - free / found.mapping.step_time_s, abs=1e-9)
        assert bool(rule.unlock) == (rule.gain > 1e-9)


def test_rules_cost_what_the_fastest_mapping_without_them_saves():
    judge_rules(tiny_facts(hbm_mb=200, placement={"tp": "inside"}, constraints={"at_most": {"dp": 1}}, **SMALL))
    judge_rules(tiny_facts(hbm_mb=52, framework="megatron", constraints={"at_least": {"pp": 2}}, zero=[0, 2]))


def test_rules_are_priced_for_the_fastest_mapping_whatever_rank_is_explained():
    facts = tiny_facts(hbm_mb=200, constraints={"at_most": {"dp": 1}}, **SMALL)
    assert explained(facts, rank=3).rules == explained(facts).rules


@pytest.mark.parametrize("name", INSTANCES)
def test_a_limit_may_fall_exactly_until_the_mapping_no_longer_fits(name):
    facts = INSTANCES[name]()
    found = explained(facts)
    said = {one.input: one for one in found.stability}
    assert said["hbm"].resolution == 0.0
    until = said["hbm"].until
    best_s = found.mapping.step_time_s
    assert search(problem_of(with_hbm(facts, until)), 1).top[0].step_time_s == pytest.approx(best_s, rel=1e-12)
    below = search(problem_of(with_hbm(facts, until * (1 - 1e-6))), 1).top
    assert not below or below[0].step_time_s > best_s
    if "exposed_limit" in said:
        limit = said["exposed_limit"].until
        at = replace(facts, run=facts.run.replaced(exposed_limit=limit))
        assert search(problem_of(at), 1).top[0].step_time_s == pytest.approx(best_s, rel=1e-12)


def judge_bandwidths(facts: Facts) -> list[float | None]:
    """Just above `until` the mapping has its rank, just below it has lost it; None: it has it all the way down."""
    found = explained(facts, stable=True)
    levers = {lever.name: lever for lever in bandwidths(facts)}
    told = [one for one in found.stability if one.input in levers]
    assert {one.input for one in told} == set(levers)
    key = search(problem_of(facts), 1).top[0].key
    for one in told:
        lever = levers[one.input]

        def lost(value, lever=lever):
            # Every mapping there is, each in its best place: sizes and choices are what a mapping is.
            listed = search(lever.problem(value), 100_000).top
            own = next((candidate for candidate in listed if candidate.key == key), None)
            return own is None or listed[0].step_time_s < own.step_time_s * (1 - 1e-9)

        if one.until is None:
            assert not lost(lever.now * LEAST_SHARE)
        else:
            assert lost(one.until * (1 - 2 * RESOLUTION))
            above = one.until * (1 + 1.5 * RESOLUTION)
            assert above >= lever.now or not lost(above)
    return [one.until for one in told]


def test_bandwidths_may_fall_until_another_mapping_is_faster():
    cases = [tiny_facts(hbm_mb=200, speed=speed, **SMALL) for speed in (1.0, 0.2)]
    assert any(until for facts in cases for until in judge_bandwidths(facts)), "the instances show nothing"


@pytest.mark.slow
@given(random_facts())
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=CHECKS)
def test_random_bandwidths(given_facts):
    if search(problem_of(given_facts), 1).top:
        judge_bandwidths(given_facts)


def test_what_cannot_be_asked_is_said():
    facts = tiny_facts(hbm_mb=200, **SMALL)
    with pytest.raises(InputError, match="no mapping of rank 9999"):
        explained(facts, rank=9999)
    with pytest.raises(UsageError, match="at least 1"):
        explained(facts, rank=0)


def test_a_time_limit_leaves_what_was_found_with_a_note():
    found = explained(tiny_facts(hbm_mb=200, **SMALL), time_limit=1e-9)
    assert found.status in ("feasible", "unknown") and any("stopped" in note for note in found.notes)


def test_the_same_question_has_the_same_bytes():
    facts = INSTANCES["both"]()
    assert explained(facts).to_json() == explained(facts).to_json()


def test_a_mapping_is_no_rival_of_itself_and_hides_none():
    """As fast as the mapping asked about, up to rounding, is not faster; a search may let it in all the same."""
    facts = tiny_facts(hbm_mb=48, zero=[3], recompute=["none"], reserve=0.0, **SMALL)
    lever = next(one for one in bandwidths(facts) if one.name == "bandwidth.rack")
    asked = 0
    for share in (0.2, 0.33, 0.5, 1.0):
        problem = lever.problem(share * lever.now)
        listed = search(problem, 100_000, prune=False).top
        for candidate in listed:
            faster = [one for one in listed if one.step_time_s < candidate.step_time_s * (1 - 1e-9)]
            rivals, complete = rivals_at(problem, candidate.step_time_s, 1, None)
            assert complete and bool(rivals) == bool(faster)
            assert all(one.step_time_s < candidate.step_time_s for one in rivals)
            asked += bool(faster)
        outside = {"tp": 2, "cp": 2, "ep": 4, "zero": 3, "placement": {"tp": {"board": 2}, "cp": {"rack": 2}}}
        placed = time_of(mapsearch.Mapping.model_validate(outside), problem)
        rivals, _ = rivals_at(problem, placed, 1, None)
        assert bool(rivals) == (listed[0].step_time_s < placed * (1 - 1e-9))
    assert asked > 10
