"""Rules of thumb against lists of all mappings: what follows, what does not, and which is faster."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from tiny_cases import tiny_facts

from mapsearch.axes import Hidden, Schedule
from mapsearch.hypotheses.api import RULES, guidelines
from mapsearch.hypotheses.trial import Trial, bounded, product_bounded
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import KEY
from mapsearch.solver.search import search

SMALL = {"vpp": [1, 2, 4], "zero": [0, 1], "global_batch": 8, "overlap": {"expert_all_to_all": [True, False]}}
CASES = {
    "memory for all": {"hbm_mb": 1e5},
    "tight": {"hbm_mb": 26.0},
    "long": {"hbm_mb": 1e5, "sequence_length": 8192},
    "slow network": {"hbm_mb": 60.0, "speed": 0.02},
}
Key = dict[str, int]


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request):
    """Facts, every mapping by its key with its step time, and what came of every rule."""
    facts = tiny_facts((2, 4), **{**SMALL, **CASES[request.param]})
    every = search(problem_of(facts), 10**6, prune=False)
    listed = [(dict(zip(KEY, one.key, strict=True)), one.step_time_s) for one in every.top]
    found = guidelines(facts.model, facts.run, facts.fabric, profile=facts.profile)
    return facts, listed, {one.name: one for one in found.guidelines}


def fastest(listed: list[tuple[Key, float]], holds: Callable[[Key], bool]) -> float:
    return min((seconds for key, seconds in listed if holds(key)), default=math.inf)


def agrees(one, follows: float, breaks: float) -> None:
    """A finding against the two step times of the list."""
    if math.isinf(follows):
        assert one.outcome == "does not apply", one
        return
    assert one.follows_s == pytest.approx(follows, rel=1e-9)
    if math.isinf(breaks):
        assert one.outcome == "holds" and one.breaks_s is None
        return
    assert one.breaks_s == pytest.approx(breaks, rel=1e-9)
    assert one.outcome == ("holds" if follows <= breaks * (1 + 1e-9) else "does not hold")
    assert one.by == pytest.approx(follows / breaks - 1.0, abs=1e-8)
    assert (one.example is None) == (one.outcome == "holds")


@pytest.mark.parametrize("axis", ["tp", "ep", "pp"])
def test_the_smallest_size_that_fits(case, axis):
    _, listed, found = case
    least = min(key[axis] for key, _ in listed)
    agrees(found[f"smallest {axis.upper()}"], fastest(listed, lambda key: key[axis] == least),
           fastest(listed, lambda key: key[axis] > least))  # fmt: skip


def test_sizes_and_choices(case):
    _, listed, found = case
    most = max(key["dp"] for key, _ in listed)
    agrees(found["largest DP"], fastest(listed, lambda k: k["dp"] == most), fastest(listed, lambda k: k["dp"] < most))
    agrees(found["EP over ETP"], fastest(listed, lambda k: k["etp"] == 1), fastest(listed, lambda k: k["etp"] > 1))
    agrees(found["distributed optimizer"], fastest(listed, lambda k: k["zero"] > 0),
           fastest(listed, lambda k: k["zero"] == 0))  # fmt: skip


def test_context_parallelism_turns_round_with_the_length(case):
    facts, listed, found = case
    split, whole = fastest(listed, lambda key: key["cp"] > 1), fastest(listed, lambda key: key["cp"] == 1)
    agrees(found["CP from 8K"], *((split, whole) if facts.run.sequence_length >= 8192 else (whole, split)))


def test_pipelines(case):
    _, listed, found = case
    several = [(key, seconds) for key, seconds in listed if key["pp"] > 1]
    agrees(found["PP across nodes"], fastest(listed, lambda k: k["pp"] > 1), fastest(listed, lambda k: k["pp"] == 1))
    agrees(found["VPP with PP"], fastest(several, lambda k: k["vpp"] > 1), fastest(several, lambda k: k["vpp"] == 1))


def test_a_hidden_all_to_all_where_experts_leave_the_domain(case):
    _, listed, found = case
    outside = [(key, seconds) for key, seconds in listed if key["etp"] * key["ep"] > 2]
    hidden = lambda key: bool(key["overlap"] & Hidden.EXPERT_ALL_TO_ALL)  # noqa: E731
    agrees(found["merged 1F1B beyond"], fastest(outside, hidden), fastest(outside, lambda key: not hidden(key)))


def test_what_leaves_the_domain_is_never_slower_than_what_must_not(case):
    _, listed, found = case
    for name, axes in (("ETP x EP inside", ("etp", "ep")), ("TP x CP inside", ("tp", "cp"))):
        one = found[name]
        if one.outcome == "does not apply":
            continue
        small = fastest(listed, lambda key, axes=axes: key[axes[0]] * key[axes[1]] <= 2)
        assert one.follows_s >= small * (1 - 1e-9)
        assert one.breaks_s == pytest.approx(min(seconds for _, seconds in listed), rel=1e-9)
        assert one.by >= 0.0


def test_the_middle_of_vpp():
    facts = tiny_facts((2, 4), hbm_mb=1e5, vpp=[1, 2, 4], schedule=["1f1b", "interleaved"],
                       model={"layers": 8}, constraints={"fix": {"pp": 2}})  # fmt: skip
    listed = [(dict(zip(KEY, c.key, strict=True)), c.step_time_s) for c in search(problem_of(facts), 10**6).top]
    found = guidelines(facts.model, facts.run, facts.fabric, profile=facts.profile)
    one = next(one for one in found.guidelines if one.name == "middle VPP")
    ends = fastest(
        listed, lambda key: key["vpp"] in (1, 4) and (key["vpp"] == 1) == (key["schedule"] != Schedule.INTERLEAVED)
    )
    agrees(one, fastest(listed, lambda key: key["vpp"] == 2), ends)


def test_a_product_is_a_rule_of_its_side():
    assert bounded("pp", least=2).side == "cell"
    assert product_bounded(("tp", "cp"), most=4).side == "attention"
    assert product_bounded(("etp", "ep"), least=4).statement == "ETP*EP is at least 4"


def test_equal_questions_are_searched_once(monkeypatch):
    facts = tiny_facts((2, 2), hbm_mb=1e5)
    problem = problem_of(facts)
    trial = Trial(problem, search(problem, 1).top[0], None, None)
    first = trial.fastest(bounded("tp", most=1))
    monkeypatch.setattr("mapsearch.hypotheses.trial.fastest", lambda *_: pytest.fail("searched again"))
    assert trial.fastest(bounded("tp", most=1)) is first


def test_fp8_figures_are_those_of_the_recipe():
    facts = tiny_facts((2, 2), hbm_mb=1e5, precision="bf16")
    found = {
        one.name: one for one in guidelines(facts.model, facts.run, facts.fabric, profile=facts.profile).guidelines
    }
    # (1 + 4/128 + 2) / 4, 1 of 2 bytes, and (2 + 2) of 2: FORMULAS 2.3
    assert found["FP8 dispatch"].found == pytest.approx((1 + 4 / 128 + 2) / 4)
    assert found["FP8 gathers"].found == pytest.approx(0.5)
    assert found["FP8 copies"].found == pytest.approx(2.0)
    assert 0.5 < found["FP8 inputs"].found < 1.0
    assert found["FP8 compute"].outcome in ("holds", "does not hold")


def test_without_time_nothing_is_claimed():
    facts = tiny_facts((2, 2), hbm_mb=1e5)
    found = guidelines(facts.model, facts.run, facts.fabric, profile=facts.profile, time_limit=1e-9)
    assert found.status in ("feasible", "unknown")
    assert all(one.outcome in ("unknown", "does not apply") or one.found is not None for one in found.guidelines)


def test_nothing_fits():
    facts = tiny_facts((2, 2), hbm_mb=0.001)
    found = guidelines(facts.model, facts.run, facts.fabric, profile=facts.profile)
    assert found.status == "infeasible" and found.mapping is None and found.guidelines == []


def test_names_are_told_apart():
    assert len({rule.name for rule in RULES}) == len(RULES)
