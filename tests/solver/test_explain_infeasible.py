"""What would make something fit, held to plain loops over every mapping: the leanest mapping, relaxations."""

from __future__ import annotations

import math
import re
import time

import numpy as np
import pytest
from explain_oracle import feasible, judged, relaxed
from hypothesis import assume, given
from infeasible_cases import CAUSES, FEW, SMALL, facts, random_problems
from tiny_cases import tiny_facts

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.views import Facts
from mapsearch.errors import UsageError
from mapsearch.solver.explain import infeasible as infeasible_module
from mapsearch.solver.explain.infeasible import explain_infeasible
from mapsearch.solver.explain.leanest import fitting, leanest
from mapsearch.solver.explain.probe import OutOfTime, Probe, certified
from mapsearch.solver.explain.relax import rounded_up, with_hbm, with_outer_units
from mapsearch.solver.explain.states import state_floor_bytes
from mapsearch.solver.problem import problem_of


@given(facts())
@random_problems(FEW)
def test_the_leanest_mapping_has_the_least_peak(given_facts):
    oracle = judged(given_facts)
    problem = problem_of(given_facts)
    peaks = oracle.peak_bytes[oracle.satisfying([*oracle.alone, "host_memory", "nvme_capacity"])]
    least = float(peaks.min()) if len(peaks) else np.inf
    best = leanest(problem)
    assert (best.peak_bytes if best else np.inf) == pytest.approx(least, rel=1e-12)
    # No cluster holds less than its model states.
    floor = state_floor_bytes(
        given_facts,
        given_facts.fabric.devices,
        problem.candidates["offload"],
        max(given_facts.fabric.device.host_memory_bytes, given_facts.fabric.device.nvme_bytes),
    )
    assert floor <= least * (1 + 1e-12)
    if best:
        assert fitting(problem, least * (1 + 1e-9)).peak_bytes <= least * (1 + 1e-9)
        assert fitting(problem, least * (1 - 1e-9)) is None


WHOLE = ("devices", "sequence_length", "global_batch")
ORACLE_DEVICES = 12


def judge_relaxations(given: Facts, *, thorough: bool = True, weights=None) -> list[str]:
    """Each change makes something fit; 1 % less of it, or one step less, does not."""
    told = explain_infeasible(problem_of(given), thorough=thorough, weights=weights)
    for change in told.relaxations:
        assert change.certified and change.mapping and change.step_time_s
        judge_change(given, change)
    if told.joint:
        judge_joint(given, told.joint)
    return [change.name for change in told.relaxations]


def hbm_like(given: Facts, reserve: float) -> float:
    """HBM that leaves as much as another reserve does, with the reserve as it is."""
    context = given.profile.runtime_bytes
    return context + (1 - reserve) / (1 - given.run.reserve) * (given.fabric.device.hbm_bytes - context)


def judge_change(given: Facts, change) -> None:
    if change.name == "devices" and change.to_value > ORACLE_DEVICES:
        return
    assert feasible(relaxed(given, change, change.to_value), change.dropped), f"{change.lever} does not help"
    for kept in change.dropped:
        rest = [name for name in change.dropped if name != kept]
        assert not feasible(given, rest), f"without {rest} alone something fits"
    if change.fails_at is None:
        assert change.unit in ("choices", "rules") or change.to_value == 0.0
        return
    assert not feasible(relaxed(given, change, change.fails_at)), f"{change.lever}: {change.fails_at} fits already"
    if change.name == "reserve":
        # 1 % less HBM, said as a reserve, which is rounded to five places.
        assert hbm_like(given, change.fails_at) >= 0.99 * hbm_like(given, change.to_value) * (1 - 1e-4)
    elif change.name not in WHOLE:
        assert change.fails_at >= 0.99 * change.to_value * (1 - 1e-12)
    else:
        one = given.fabric.devices // given.fabric.levels[-1].size if change.name == "devices" else 1
        assert abs(change.to_value - change.fails_at) <= max(one, change.from_value / 16, change.to_value / 16)


def judge_joint(given: Facts, joint) -> None:
    """All changes together make something fit, and a grid step less of any of them does not."""
    assert joint.cost == pytest.approx(sum(change.cost for change in joint.changes))
    every = given
    for change in joint.changes:
        every = relaxed(every, change, change.to_value)
    if every.fabric.devices > ORACLE_DEVICES:
        return
    assert feasible(every)
    for short in joint.changes:
        less = given
        for change in joint.changes:
            less = relaxed(less, change, one_step_less(change, given) if change is short else change.to_value)
        assert not joint.proven or not feasible(less), f"less of {short.lever} would do"


def one_step_less(change, given: Facts) -> float:
    """The next smaller change on the grid of whole numbers; 1 % less of a real number."""
    if change.name not in WHOLE:
        return max(0.99 * change.to_value, change.from_value)
    inner = given.fabric.devices // given.fabric.levels[-1].size if change.name == "devices" else 1
    ratio = max(change.to_value, change.from_value) / min(change.to_value, change.from_value)
    octave = 2.0 ** (math.ceil(math.log2(ratio)) - 1)
    if change.name == "sequence_length":
        return change.to_value + max(1.0, change.from_value / octave // 8)
    return change.to_value - inner * max(1, round(change.from_value * octave / 4 / inner))


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("thorough", [False, True])
def test_relaxations_are_enough_and_no_more_than_needed(cause, thorough):
    make, _ = CAUSES[cause]
    assert judge_relaxations(make(), thorough=thorough)


@given(facts(hbm_mb=(12.0, 25.0, 30.0)))
@random_problems(5)
def test_random_relaxations_are_enough_and_no_more_than_needed(given_facts):
    assume(not feasible(given_facts))
    judge_relaxations(given_facts)


@pytest.mark.slow
def test_relaxations_of_five_hundred_random_infeasible_problems():
    infeasible = 0

    @given(facts(hbm_mb=(12.0, 25.0, 30.0, 40.0)))
    @random_problems(750)
    def each(given_facts):
        nonlocal infeasible
        if not feasible(given_facts):
            infeasible += 1
            judge_relaxations(given_facts)

    each()
    assert infeasible >= 500


def test_the_fewest_devices_are_found_between_the_doublings():
    facts = tiny_facts((2, 2), hbm_mb=20, zero=[3], **SMALL)
    devices = next(r for r in explain_infeasible(problem_of(facts)).relaxations if r.lever.startswith("devices"))
    assert feasible(with_outer_units(facts, round(devices.to_value) // 2))
    assert not feasible(with_outer_units(facts, round(devices.to_value) // 2 - 1))


def test_memory_is_explained_with_the_states_the_offer_and_the_leanest_mapping():
    facts = CAUSES["HBM"][0]()
    [found] = explain_infeasible(problem_of(facts)).conflicts
    [sentence] = found.sentences
    for words in ("model states alone need 34.3 MB per device on 4 devices", "tiny offers 17.1 MB of 20 MB"):
        assert words in sentence
    assert sentence.endswith(f"the leanest mapping peaks at {leanest(problem_of(facts)).peak_bytes / 1e6:,.1f} MB")
    assert usable_hbm_bytes(facts) == pytest.approx(17.1e6)


def test_an_explanation_that_runs_out_of_time_keeps_what_it_has():
    problem = problem_of(CAUSES["HBM"][0]())
    told = explain_infeasible(problem, deadline=time.monotonic() - 1.0)
    assert (told.conflicts, told.relaxations) == ([], [])
    assert any("time limit" in note for note in told.notes)


def test_an_interrupted_explanation_keeps_what_it_has(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(infeasible_module, "relaxations", stop)
    told = explain_infeasible(problem_of(CAUSES["HBM"][0]()))
    assert [c.relations for c in told.conflicts] == [["hbm"]] and not told.relaxations
    assert any("interrupted" in note for note in told.notes)


def test_a_probe_answers_each_question_once(monkeypatch):
    probe = Probe(problem_of(CAUSES["HBM"][0]()))
    relations = probe.problem.relations
    assert probe.leanest(relations) is probe.leanest(relations)
    assert not probe.satisfiable(relations)
    probe.deadline = time.monotonic() - 1.0
    assert not probe.satisfiable(relations)
    with pytest.raises(OutOfTime):
        probe.satisfiable(relations[:3])


def test_a_mapping_that_breaks_a_rule_is_not_certified():
    facts = tiny_facts(hbm_mb=64, **SMALL)
    candidate = Probe(problem_of(facts)).fastest(problem_of(facts))
    assert certified(problem_of(facts), candidate)
    assert not certified(problem_of(with_hbm(facts, 20e6)), candidate)


@pytest.mark.parametrize(
    ("value", "expected"), [(1481457828141.2, 1481500000000.0), (96e9, 96e9), (0.0, 0.0), (45010001.0, 45011000.0)]
)
def test_rounding_up_keeps_what_is_needed(value, expected):
    assert rounded_up(value) == expected


def test_weights_choose_between_devices_and_memory():
    problem = problem_of(tiny_facts((2, 2), hbm_mb=20, zero=[3], **SMALL))
    found = {}
    for dear in ("hbm", "devices"):
        weights = {"hbm": 1.0, "devices": 1.0} | {dear: 50.0}
        joint = explain_infeasible(problem, thorough=True, weights=weights).joint
        assert joint.proven and joint.weights == weights
        found[dear] = {change.name for change in joint.changes}
    assert found == {"hbm": {"devices"}, "devices": {"hbm"}}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"hmb": 1.0}, "'hmb' is no number that a joint change may take, did you mean 'hbm'?"),
        ({"hbm": 0.0}, "the weight of hbm is 0; give a number above 0"),
        ({"bandwidth.hall": 1.0}, "'bandwidth.hall' is no number"),
    ],
)
def test_weights_of_no_lever_are_refused(weights, message):
    with pytest.raises(UsageError, match=re.escape(message.split(",")[0])):
        explain_infeasible(problem_of(CAUSES["HBM"][0]()), weights=weights)
