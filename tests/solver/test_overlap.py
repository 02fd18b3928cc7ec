"""What overlaps as a choice of the search: time against memory, a framework's rule, and what explanations say of it."""

from __future__ import annotations

import bruteforce
import numpy as np
import pytest
from tiny_cases import tiny_facts

from mapsearch.api import check, solve
from mapsearch.axes import Hidden
from mapsearch.inventories.mapping import Mapping
from mapsearch.solver.backends import BACKENDS
from mapsearch.solver.backends.base import every_cell
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import search

BOTH = {"expert_all_to_all": [False, True]}
CASE = {"schedule": ["interleaved"], "vpp": [2], "recompute": ["none"], "micro_batch": [1], "framework": "megatron"}
AWAY = Hidden.EXPERT_ALL_TO_ALL | Hidden.PARAM_GATHER


def slow_network(hbm_mb, overlap, **run):
    """Two stages of two devices on a network so slow that hiding the all-to-all is worth a third of the step."""
    fixed = {"constraints": {"fix": {"pp": 2}}}
    return tiny_facts((2, 2), hbm_mb=hbm_mb, speed=0.02, overlap=overlap, **{**CASE, **fixed, **run})


def best(facts):
    top = search(problem_of(facts), 1).top
    return (top[0].step_time_s, mapping_of(top[0])) if top else None


def inputs(facts):
    return {"model": facts.model, "run": facts.run, "topology": facts.fabric, "profile": facts.profile}


def test_the_mapping_without_overlap_wins_where_the_other_one_does_not_fit():
    assert best(slow_network(54, {"expert_all_to_all": True})) is None
    slow_s, plain = best(slow_network(54, BOTH))
    fast_s, hiding = best(slow_network(64, BOTH))
    assert (plain.overlap, hiding.overlap) == (Hidden.PARAM_GATHER, AWAY)
    assert fast_s < 0.75 * slow_s
    assert slow_s == best(slow_network(54, {}))[0]
    assert fast_s == best(slow_network(64, {"expert_all_to_all": True}))[0]


def test_explanations_name_the_overlap():
    """More memory would unlock it; and a run that insists on it learns what it would get without."""
    answer = solve(**inputs(slow_network(54, BOTH)), top=1)
    assert answer.status == "optimal"
    assert answer.best.choices["overlap"] == "param-gather"
    assert answer.best.binding.relation == "hbm"
    assert "overlap param-gather -> expert-all-to-all+param-gather" in str(answer.best.binding)
    refused = solve(**inputs(slow_network(54, {"expert_all_to_all": True})), top=1)
    assert refused.status == "infeasible"
    assert "expert all-to-alls without overlap" in str(refused.relaxations)


@pytest.mark.parametrize("backend", ["cpsat", "milp"])
def test_backends_rank_both_alike(backend):
    for facts in (slow_network(60, BOTH), slow_network(64, BOTH | {"param_gather": [True, False]}, zero=[1, 3])):
        problem = problem_of(facts)
        cells = list(every_cell(problem))
        truth = bruteforce.ranking(facts, 5)
        found = BACKENDS[backend]().best(problem, cells, 5)
        assert len({code for code in (mapping_of(c).overlap for c in found.candidates)}) > 1
        expected = [seconds for seconds, _ in truth]
        np.testing.assert_allclose([c.step_time_s for c in found.candidates], expected, rtol=1e-9, atol=found.error_s)
        assert [(c.step_time_s, c.key) for c in search(problem, 5).top] == [
            (pytest.approx(seconds, rel=1e-12), key) for seconds, key in truth
        ]


def test_the_best_of_both_is_the_better_of_each():
    """A list of alternatives is never worse and never better than the alternatives by themselves."""
    for hbm in (54, 60, 80):
        apart = [
            best(slow_network(hbm, {"expert_all_to_all": e, "param_gather": g}, zero=[0, 1, 3], framework="none"))
            for e in (True, False)
            for g in (True, False)
        ]
        both = {"expert_all_to_all": [True, False], "param_gather": [False, True]}
        together = best(slow_network(hbm, both, zero=[0, 1, 3], framework="none"))
        assert together[0] == pytest.approx(min(found[0] for found in apart if found), rel=1e-12)


def test_prefetching_is_given_up_where_only_that_fits():
    """ZeRO-3 holds one gathered unit less when it waits for each."""
    choices = {"param_gather": [True, False]}
    few = {"zero": [3], "schedule": ["1f1b"], "framework": "none", "constraints": {"fix": {"pp": 1, "dp": 4}}}
    peaks = {}
    for gather in (True, False):
        facts = slow_network(1e3, {"param_gather": gather}, **few)
        peaks[gather] = check(best(facts)[1], **inputs(facts)).mapping.peak_memory_bytes
    assert peaks[False] < peaks[True]
    reserve = 1.0 - slow_network(1, {}).run.reserve
    between_mb = (peaks[True] + peaks[False]) / 2 / reserve / 1e6 + 1.0
    assert best(slow_network(between_mb, {"param_gather": True}, **few)) is None
    assert best(slow_network(between_mb, choices, **few))[1].overlap == Hidden.NONE
    assert best(slow_network(1e3, choices, **few))[1].overlap == Hidden.PARAM_GATHER


def test_a_mapping_that_names_none_overlaps_as_the_run_states_first():
    facts = slow_network(64, {"expert_all_to_all": [True, False]})
    hiding = "expert-all-to-all+param-gather"
    sizes = {"pp": 2, "tp": 2, "ep": 2, "schedule": "interleaved", "vpp": 2, "recompute": "none"}
    first = check(Mapping.model_validate(sizes), **inputs(facts)).mapping
    named = check(Mapping.model_validate({**sizes, "overlap": hiding}), **inputs(facts)).mapping
    other = check(Mapping.model_validate({**sizes, "overlap": "param-gather"}), **inputs(facts)).mapping
    assert first.choices["overlap"] == hiding
    assert (first.step_time_s, first.peak_memory_bytes) == (named.step_time_s, named.peak_memory_bytes)
    assert other.step_time_s > first.step_time_s
    assert other.peak_memory_bytes < first.peak_memory_bytes


def test_megatrons_rule_reads_the_choice_of_the_mapping():
    """M17: no MoE recompute beside the overlap, so either one or the other."""
    facts = slow_network(64, BOTH, recompute=["none", "moe"])
    found = {(m.overlap, m.recompute) for m in (mapping_of(c) for c in search(problem_of(facts), 100).top)}
    hiding = {recompute for overlap, recompute in found if overlap & Hidden.EXPERT_ALL_TO_ALL}
    plain = {recompute for overlap, recompute in found if not overlap & Hidden.EXPERT_ALL_TO_ALL}
    assert (hiding, plain) == ({0}, {0, 32})


def test_the_users_constraints_reach_it():
    facts = slow_network(64, {}, constraints={"fix": {"pp": 2, "overlap": "expert-all-to-all+param-gather"}})
    assert best(facts)[1].overlap == AWAY
    facts = slow_network(64, BOTH, constraints={"allow": {"overlap": ["param-gather"]}})
    assert best(facts)[1].overlap == Hidden.PARAM_GATHER


def test_a_dense_model_has_no_expert_all_to_all_to_hide():
    problem = problem_of(slow_network(64, BOTH))
    dense = problem_of(tiny_facts((2, 2), model={"moe": None}, overlap=BOTH))
    assert len(problem.overlaps) == 2
    assert dense.overlaps == (Hidden.PARAM_GATHER,)
