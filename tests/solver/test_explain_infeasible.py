"""Why nothing fits, held to plain loops over every mapping: conflicts, the leanest mapping, relaxations."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest
from bruteforce import splits
from explain_oracle import feasible, judged
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from instances import models, profiles
from tiny_cases import tiny_fabric, tiny_facts

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.views import Facts
from mapsearch.inventories.base import validate
from mapsearch.inventories.run import Run
from mapsearch.solver.explain import conflict as conflict_module
from mapsearch.solver.explain.conflict import explain_infeasible, minimal_conflict
from mapsearch.solver.explain.leanest import fitting, leanest
from mapsearch.solver.explain.probe import OutOfTime, Probe, certified
from mapsearch.solver.explain.relax import COUNTS, rounded_up, with_hbm, with_outer_units
from mapsearch.solver.explain.states import state_floor_bytes
from mapsearch.solver.problem import problem_of

SMALL = {"micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"]}
FEW = 12
"""Random problems per test; the slow tests take more."""


def random_problems(count):
    """Settings of a test over random small problems."""
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=checks)


@st.composite
def facts(draw, hbm_mb=(1.0, 12.0, 25.0, 40.0, 64.0, 200.0)):
    """Small facts with any mixture of limits, most of which contradict somewhere."""
    shape = draw(st.sampled_from([(2, 2), (4,), (3, 2), (2, 3)]))
    fabric = tiny_fabric(shape, hbm_mb=draw(st.sampled_from(hbm_mb)))
    host = draw(st.sampled_from([1e9, 2e7, 5e6]))
    fabric = replace(
        fabric,
        device=replace(fabric.device, host_memory_bytes=host),
        variable_all_to_all=draw(st.booleans()),
    )
    run = {
        "name": "tiny",
        "sequence_length": draw(st.sampled_from([96, 256, 1000])),
        "global_batch": draw(st.sampled_from([7, 8, 12])),
        "framework": draw(st.sampled_from(["none", "megatron", "torchtitan", "deepspeed"])),
        "reserve": draw(st.sampled_from([0.0, 0.1])),
        "micro_batch": [draw(st.sampled_from([1, 1, 2, 3]))],
        "vpp": [1, 2],
        "schedule": [draw(st.sampled_from(["1f1b", "interleaved", "zb-h1", "dualpipe"]))],
        "recompute": [draw(st.sampled_from(["none", "full", "moe"]))],
        "zero": [draw(st.sampled_from([1, 3]))],
        "offload": [draw(st.sampled_from(["none", "none", "optimizer"]))],
        "cp_kind": [draw(st.sampled_from(["ring", "ulysses", "hybrid"]))],
        "dispatcher": [draw(st.sampled_from(["all-to-all", "all-gather"]))],
        "sequence_parallel": draw(st.booleans()),
        "overlap": {"expert_all_to_all": draw(st.booleans())},
    }
    if draw(st.booleans()):
        run["placement"] = {draw(st.sampled_from(["tp", "ep", "cp", "pp"])): "inside"}
    if draw(st.integers(0, 2)) == 0:
        run["exposed_limit"] = draw(st.sampled_from([0.3, 0.01, 0.0001]))
    constraints = {"fix": {}, "at_least": {}, "at_most": {}, "inside": {}}
    for axis in draw(st.lists(st.sampled_from(["tp", "pp", "ep", "dp", "cp"]), max_size=3, unique=True)):
        kind = draw(st.sampled_from(["fix", "at_least", "at_most", "inside"]))
        if kind == "inside":
            constraints["inside"].setdefault("board", []).append(axis)
        else:
            constraints[kind][axis] = draw(st.sampled_from([1, 2, 3, 4] if kind == "fix" else [1, 2, 3]))
    run["constraints"] = {kind: wish for kind, wish in constraints.items() if wish}
    return Facts(draw(models()), validate(Run, run, file="tiny"), fabric, draw(profiles()))


CAUSES = {
    "HBM": (lambda: tiny_facts(hbm_mb=20, **SMALL), {"hbm"}),
    "three ways on eight heads": (
        lambda: tiny_facts((3, 2), constraints={"fix": {"tp": 3}}, **SMALL),
        {"heads_divide", "user_fix_tp"},
    ),
    "more ways than devices": (lambda: tiny_facts(constraints={"fix": {"tp": 16}}, **SMALL), {"user_fix_tp"}),
    "two wishes": (
        lambda: tiny_facts(constraints={"fix": {"tp": 4}, "at_most": {"tp": 2}}, **SMALL),
        {"user_fix_tp", "user_at_most_tp"},
    ),
    "inside one board": (
        lambda: tiny_facts(constraints={"fix": {"ep": 4}, "inside": {"board": ["ep"]}}, **SMALL),
        {"user_fix_ep", "ep_inside_board"},
    ),
    "the run's placement": (
        lambda: tiny_facts(constraints={"fix": {"tp": 4}}, placement={"tp": "inside"}, **SMALL),
        {"user_fix_tp", "tp_inside_board"},
    ),
    "more stages than layers": (
        lambda: tiny_facts((4, 2), constraints={"fix": {"pp": 8}}, **SMALL),
        {"layers_fill_stages", "user_fix_pp"},
    ),
    "a batch that does not divide": (
        lambda: tiny_facts(global_batch=7, **{**SMALL, "micro_batch": [2]}),
        {"batch_divides"},
    ),
    "a batch too odd for DP": (
        lambda: tiny_facts(global_batch=7, constraints={"at_least": {"dp": 2}}, **SMALL),
        {"batch_divides", "user_at_least_dp"},
    ),
    "framework": (
        lambda: tiny_facts(framework="megatron", constraints={"fix": {"pp": 2}}, **{**SMALL, "schedule": ["zb-h1"]}),
        {"megatron_schedule", "user_fix_pp"},
    ),
    "exposure": (
        lambda: tiny_facts(hbm_mb=1e4, exposed_limit=1e-6, constraints={"fix": {"ep": 4}}, **SMALL),
        {"exposed", "user_fix_ep"},
    ),
    "host memory": (
        lambda: _small_host(tiny_facts(hbm_mb=30, offload=["optimizer"], **SMALL)),
        {"host_memory"},
    ),
    "NVMe": (lambda: tiny_facts(hbm_mb=30, nvme_mb=1, offload=["optimizer+nvme"], **SMALL), {"nvme_capacity"}),
}


def _small_host(given: Facts) -> Facts:
    device = replace(given.fabric.device, host_memory_bytes=1e6)
    return replace(given, fabric=replace(given.fabric, device=device))


def judge_conflict(given: Facts) -> list[str]:
    """The conflict of infeasible facts: unsatisfiable together, every proper subset satisfiable."""
    oracle = judged(given)
    names = [relation.name for relation in minimal_conflict(problem_of(given))]
    if oracle.satisfying(oracle.names).any():
        assert names == []
        return names
    assert names
    assert not oracle.satisfying(names).any(), f"{names} can be satisfied together"
    for name in names:
        rest = [other for other in names if other != name]
        assert oracle.satisfying(rest).any(), f"{rest} conflicts already, without {name}"
    return names


@pytest.mark.parametrize("cause", CAUSES)
def test_a_conflict_is_minimal_and_names_the_cause(cause):
    make, expected = CAUSES[cause]
    assert set(judge_conflict(make())) == expected


@given(facts())
@random_problems(FEW)
def test_random_conflicts_are_minimal(given_facts):
    judge_conflict(given_facts)


@pytest.mark.slow
@given(facts())
@random_problems(300)
def test_many_random_conflicts_are_minimal(given_facts):
    judge_conflict(given_facts)


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


def judge_relaxations(given: Facts) -> list[str]:
    """Each relaxation makes something fit; of HBM 1 % less does not, nor do fewer devices of those tried."""
    _, found, _, _ = explain_infeasible(problem_of(given))
    for relaxation in found:
        lever = relaxation.lever
        if lever.startswith("HBM"):
            assert feasible(with_hbm(given, relaxation.to_value))
            assert not feasible(with_hbm(given, 0.99 * relaxation.to_value))
        elif lever.startswith("without"):
            oracle = judged(given)
            assert oracle.satisfying([name for name in oracle.names if name != relaxation.relation]).any()
        elif lever.startswith("allow"):
            word = {"allow full recompute": ("recompute", "full"), "allow ZeRO-3": ("zero", 3)}
            axis, value = word.get(lever, ("offload", "optimizer"))
            offered = given.run.model_dump()[axis]
            assert feasible(replace(given, run=given.run.replaced(**{axis: [*offered, value]})))
        else:
            judge_devices(given, relaxation)
    return [relaxation.lever.split()[0] for relaxation in found]


def judge_devices(given: Facts, relaxation) -> None:
    """The count fits; the next smaller one that the rule of `more_devices` tries does not."""
    outer = given.fabric.levels[-1].size
    inner = given.fabric.devices // outer
    units = round(relaxation.to_value) // inner
    doubling = outer
    while 2 * doubling < units:
        doubling *= 2
    step = -(-doubling // COUNTS)
    smaller = max(doubling, units - step) if units != 2 * doubling else 2 * doubling - step
    assert given.fabric.devices % inner == 0 and step == 1
    if inner * units <= 12:
        assert feasible(with_outer_units(given, units))
    if inner * smaller <= 12:
        assert not feasible(with_outer_units(given, smaller))


@pytest.mark.parametrize("cause", CAUSES)
def test_relaxations_are_enough_and_no_more_than_needed(cause):
    make, _ = CAUSES[cause]
    assert judge_relaxations(make()) or cause == "a batch that does not divide"


@given(facts(hbm_mb=(12.0, 25.0, 30.0)))
@random_problems(5)
def test_random_relaxations_are_enough_and_no_more_than_needed(given_facts):
    assume(not feasible(given_facts))
    judge_relaxations(given_facts)


def test_the_fewest_devices_are_found_between_the_doublings():
    facts = tiny_facts((2, 2), hbm_mb=20, zero=[3], **SMALL)
    _, found, _, _ = explain_infeasible(problem_of(facts))
    devices = next(r for r in found if r.lever.startswith("devices"))
    assert feasible(with_outer_units(facts, round(devices.to_value) // 2))
    assert not feasible(with_outer_units(facts, round(devices.to_value) // 2 - 1))


def test_only_the_users_own_constraints_conflict_is_said():
    for cause, own in (("two wishes", True), ("three ways on eight heads", False), ("HBM", False)):
        *_, notes = explain_infeasible(problem_of(CAUSES[cause][0]()))
        assert any("only your own constraints" in note for note in notes) is own


def test_a_conflict_says_whose_each_rule_is_and_its_numbers():
    [found], *_ = explain_infeasible(problem_of(CAUSES["the run's placement"][0]()))
    assert found.sentences == [
        "the run's placement: TP stays inside one board; it has 2 devices",
        "you fix tp = 4",
    ]
    [found], *_ = explain_infeasible(problem_of(CAUSES["framework"][0]()))
    assert found.sentences[0] == "megatron's rule: Megatron core runs 1F1B and interleaved 1F1B"
    [found], *_ = explain_infeasible(problem_of(CAUSES["three ways on eight heads"][0]()))
    assert found.sentences[0] == "query heads split evenly over TP; there are 8"


def test_memory_is_explained_with_the_states_the_offer_and_the_leanest_mapping():
    facts = CAUSES["HBM"][0]()
    [found], *_ = explain_infeasible(problem_of(facts))
    [sentence] = found.sentences
    for words in ("model states alone need 34.3 MB per device on 4 devices", "tiny offers 17.1 MB of 20 MB"):
        assert words in sentence
    assert sentence.endswith(f"the leanest mapping peaks at {leanest(problem_of(facts)).peak_bytes / 1e6:,.1f} MB")
    assert usable_hbm_bytes(facts) == pytest.approx(17.1e6)


def test_each_relation_rejects_what_it_rejects_alone():
    facts = tiny_facts((3, 2), constraints={"fix": {"tp": 3}}, **SMALL)
    *_, tally, _ = explain_infeasible(problem_of(facts))
    rejected = 0
    for used in ((3, 2), (2, 2)):
        # Ways to cut both levels over tp, cp, dp and pp; eight heads do not divide by 3 or 6.
        for inner, outer in itertools.product(splits(used[0], 4), splits(used[1], 4)):
            rejected += 8 % (inner[0] * outer[0]) != 0
    assert tally["heads_divide"] == rejected
    assert "user_fix_tp" in tally and "ffn_divides" not in tally


def test_an_explanation_that_runs_out_of_time_keeps_what_it_has():
    problem = problem_of(CAUSES["HBM"][0]())
    conflicts, found, _, notes = explain_infeasible(problem, time.monotonic() - 1.0)
    assert (conflicts, found) == ([], [])
    assert any("time limit" in note for note in notes)


def test_an_interrupted_explanation_keeps_what_it_has(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(conflict_module, "relaxations", stop)
    conflicts, found, _, notes = explain_infeasible(problem_of(CAUSES["HBM"][0]()))
    assert [c.relations for c in conflicts] == [["hbm"]] and not found
    assert any("interrupted" in note for note in notes)


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
