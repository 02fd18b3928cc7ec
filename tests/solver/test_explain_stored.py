"""Explanations from a stored answer: the ranking that it proved is taken, and nothing that has changed since."""

from __future__ import annotations

import pytest
from test_explain_binding import SMALL
from test_explain_mapping import explained
from tiny_cases import tiny_facts

import mapsearch
from mapsearch.explaining import api

TAKEN = "the ranking is the answer's"
WISHES = ("tp=2", "tp=4,pp=2", "tp=1,pp=1", "tp=16", "recompute=full")


def solved(facts):
    return mapsearch.solve(facts.model, facts.run, facts.fabric, profile=facts.profile, top=api.TOP)


@pytest.mark.parametrize("wish", WISHES)
def test_with_the_answer_the_explanation_is_the_same(wish, monkeypatch):
    facts = tiny_facts(hbm_mb=200, **SMALL)
    answer, plain = solved(facts), explained(facts, why_not=wish)
    monkeypatch.setattr(api, "search", None)  # the ranking is not searched for
    stored = explained(facts, why_not=wish, answer=answer)
    assert stored.why_not == plain.why_not and stored.status == plain.status
    assert stored.notes[-1].startswith(TAKEN) and "10 mappings were costed again" in stored.notes[-1]
    assert stored.space.cells == plain.space.cells


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "feasible"}, "not proven (status feasible)"),
        ({"provenance": {"version": "0.0"}}, "written by version 0.0"),
        ({"provenance": {"input_sha256": {"run": "other"}}}, "solved for another topology, run, profile or model"),
        ({"slower": 1.001}, "its mapping 1 takes"),
    ],
)
def test_what_no_longer_holds_is_searched_again(change, said):
    facts = tiny_facts(hbm_mb=200, **SMALL)
    answer = solved(facts)
    if "slower" in change:
        first = answer.mappings[0]
        changed = first.model_copy(update={"step_time_s": first.step_time_s * change["slower"]})
        answer = answer.model_copy(update={"mappings": [changed, *answer.mappings[1:]]})
    elif "provenance" in change:
        answer = answer.model_copy(update={"provenance": answer.provenance.model_copy(update=change["provenance"])})
    else:
        answer = answer.model_copy(update=change)
    told = explained(facts, why_not="tp=2", answer=answer)
    assert told.why_not == explained(facts, why_not="tp=2").why_not
    assert said in told.notes[-1] and told.space.pairs_evaluated > 0


def test_a_ranking_that_lacks_the_fastest_is_forgotten():
    facts = tiny_facts(hbm_mb=200, **SMALL)
    answer = solved(facts)
    fastest = answer.mappings[0]
    wish = ",".join(f"{axis}={value}" for axis, value in fastest.sizes.items() if axis != "vpp")
    forged = answer.model_copy(update={"mappings": answer.mappings[1:]})
    told = explained(facts, why_not=wish, answer=forged)
    assert told.why_not == explained(facts, why_not=wish).why_not
    assert told.notes[-1] == "the answer's ranking is not taken: a faster mapping was found"


def test_without_a_wish_the_space_is_searched():
    facts = tiny_facts(hbm_mb=200, **SMALL)
    told, plain = explained(facts, answer=solved(facts)), explained(facts)
    assert (told.mapping, told.bindings, told.space) == (plain.mapping, plain.bindings, plain.space)
