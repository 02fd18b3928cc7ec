"""All minimal conflicts, and the tally of rejections, held to plain loops over every mapping."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from explain_oracle import Judged, judged
from hypothesis import given
from infeasible_cases import CAUSES, FEW, SMALL, facts, random_problems
from tiny_cases import tiny_facts

from mapsearch.solver.explain.conflict import blamed, minimal_conflict, minimal_conflicts
from mapsearch.solver.explain.hitting import Hitting
from mapsearch.solver.explain.infeasible import explain_infeasible
from mapsearch.solver.explain.probe import Probe
from mapsearch.solver.explain.sentences import conflict_of
from mapsearch.solver.explain.tally import tally_of
from mapsearch.solver.problem import problem_of

MOST = 12


def judge_conflicts(oracle: Judged, probe: Probe) -> list[list[str]]:
    """Each is unsatisfiable, each proper subset of it satisfiable, and none is missing where none is said to be."""
    found = minimal_conflicts(probe, most=MOST)
    names = [[relation.name for relation in core] for core in found.conflicts]
    if oracle.satisfying(oracle.names).any():
        assert names == [] and found.complete
        return names
    assert names and len({frozenset(one) for one in names}) == len(names)
    for one in names:
        assert not oracle.satisfying(one).any(), f"{one} can be satisfied together"
        for name in one:
            rest = [other for other in one if other != name]
            assert oracle.satisfying(rest).any(), f"{rest} conflicts already, without {name}"
    if found.complete:
        # A conflict that is not listed would be left in what remains when each listed one has lost a relation.
        for lost in {frozenset(one) for one in itertools.product(*names)}:
            rest = [name for name in oracle.names if name not in lost]
            assert oracle.satisfying(rest).any(), f"a conflict within {rest} is missing"
    else:
        assert len(names) == MOST
    sizes = [len(one) for one, again in zip(names, found.restates, strict=True) if not again]
    assert sizes == sorted(sizes)
    return names


def judge_tally(oracle: Judged, probe: Probe) -> None:
    """What each relation rejects alone, and what it rejects first, counted one by one."""
    tally = tally_of(probe, [], thorough=True)
    relations = probe.problem.relations
    pair = [relation.name for relation in relations if relation.side == "pair"]
    order = sorted((relation for relation in relations if relation.side != "pair"), key=blamed)
    laid_out = np.isfinite(oracle.peak_bytes)
    alone: dict[str, int] = {}
    first: dict[str, int] = {}
    left = np.ones(len(oracle.keys), dtype=bool)
    for name in [*(relation.name for relation in order), *pair]:
        broken = ~oracle.satisfying([name]) & (laid_out if name in pair else True)
        alone[name], first[name] = int(broken.sum()), int((left & broken).sum())
        left &= oracle.satisfying([name])
    assert tally.rejections_of == len(oracle.keys)
    assert tally.rejections == {name: count for name, count in alone.items() if count}
    assert tally.first_rejections == {name: count for name, count in first.items() if count}
    assert sum(tally.first_rejections.values()) + int(left.sum()) == tally.rejections_of
    assert "not counted" not in tally.rejections_note


def judge_quick_tally(probe: Probe) -> None:
    """What is counted without going through mappings is the same."""
    cores = minimal_conflicts(probe, most=MOST).conflicts
    quick, whole = (tally_of(probe, cores, thorough=thorough) for thorough in (False, True))
    told = dict.fromkeys((*quick.rejections, *quick.first_rejections))
    assert all(quick.rejections.get(name) == whole.rejections.get(name) for name in told)
    assert all(quick.first_rejections.get(name) == whole.first_rejections.get(name) for name in told)


def judge(given_facts) -> list[list[str]]:
    oracle, probe = judged(given_facts), Probe(problem_of(given_facts))
    judge_tally(oracle, probe)
    judge_quick_tally(probe)
    return judge_conflicts(oracle, probe)


@pytest.mark.parametrize("cause", CAUSES)
def test_the_first_conflict_names_the_cause(cause):
    make, expected = CAUSES[cause]
    found = judge(make())
    assert set(found[0]) == expected
    assert {relation.name for relation in minimal_conflict(problem_of(make()))} == expected


@given(facts())
@random_problems(FEW)
def test_random_conflicts_are_minimal_and_none_is_missing(given_facts):
    judge(given_facts)


@pytest.mark.slow
def test_five_hundred_random_infeasible_problems():
    infeasible = 0

    @given(facts())
    @random_problems(750)
    def each(given_facts):
        nonlocal infeasible
        infeasible += bool(judge(given_facts))

    each()
    assert infeasible >= 500


def conflicts_of(given_facts):
    probe = Probe(problem_of(given_facts))
    found = minimal_conflicts(probe, most=MOST)
    return [conflict_of(probe, *pair) for pair in zip(found.conflicts, found.restates, strict=True)]


def test_one_fact_told_by_several_rules_is_marked():
    found = conflicts_of(tiny_facts((3, 2), constraints={"fix": {"tp": 3}}, **SMALL))
    assert found[0].relations == ["heads_divide", "user_fix_tp"] and found[0].restates == 0
    others = {one.relations[0]: one.restates for one in found[1:] if one.relations[-1] == "user_fix_tp"}
    assert others["kv_heads_divide"] == 1 and others["sequence_divides"] == 1


def test_without_a_layer_per_chunk_limits_of_memory_say_nothing_new():
    found = conflicts_of(tiny_facts((4, 2), constraints={"fix": {"pp": 8}}, **SMALL))
    assert found[0].relations == ["layers_fill_stages", "user_fix_pp"]
    assert all(one.restates == 1 for one in found if one.relations in (["hbm", "user_fix_pp"],))


KINDS = {
    "HBM": "physics",
    "two wishes": "user",
    "the run's placement": "user",
    "more ways than devices": "user",
    "three ways on eight heads": "mixed",
    "framework": "mixed",
    "exposure": "mixed",
}


@pytest.mark.parametrize("cause", KINDS)
def test_conflicts_among_wishes_alone_are_told_apart_from_physics(cause):
    found = conflicts_of(CAUSES[cause][0]())[0]
    assert found.kind == KINDS[cause]
    assert ("only your own constraints conflict" in found.statement) == (KINDS[cause] == "user")


def test_a_framework_that_refuses_what_the_hardware_could_do_is_told_apart():
    given_facts = tiny_facts(
        framework="megatron", overlap={"expert_all_to_all": True}, **{**SMALL, "recompute": ["full"]}
    )
    found = conflicts_of(given_facts)[0]
    assert (found.relations, found.kind) == (["megatron_expert_overlap"], "framework")
    assert found.statement == "megatron's rules: the hardware could do it, the framework refuses"


def test_a_conflict_says_whose_each_rule_is_its_numbers_and_where_they_stand():
    found = conflicts_of(CAUSES["the run's placement"][0]())[0]
    assert found.sentences == [
        "the run's placement: TP stays inside one board; it has 2 devices",
        "you fix tp = 4",
    ]
    assert found.fields == [["tiny: placement.tp"], ["tiny: constraints.fix.tp"]]
    found = conflicts_of(CAUSES["framework"][0]())[0]
    assert found.sentences[0] == "megatron's rule: Megatron core runs 1F1B and interleaved 1F1B"
    assert found.fields[0] == ["tiny: framework"]
    found = conflicts_of(CAUSES["three ways on eight heads"][0]())[0]
    assert found.sentences[0] == "query heads split evenly over TP; there are 8"
    assert found.fields[0] == ["tiny: heads"]


def test_the_bound_on_conflicts_cuts_the_list_and_says_so():
    problem = problem_of(tiny_facts((3, 2), constraints={"fix": {"tp": 3}}, **SMALL))
    told = explain_infeasible(problem, conflicts=2, thorough=True)
    assert len(told.conflicts) == 2 and not told.conflicts_complete
    every = explain_infeasible(problem, conflicts=100, thorough=True)
    assert len(every.conflicts) > 2 and every.conflicts_complete
    assert every.conflicts[:2] == told.conflicts


def test_minimal_hitting_sets():
    assert sorted(Hitting.of([0b011, 0b110]).sets) == [0b010, 0b101]
    assert Hitting.of([0b001, 0b111]).sets == [0b001]
    assert Hitting.of([0b001, 0b000]).sets == []
    assert Hitting.of([]).sets == [0]
