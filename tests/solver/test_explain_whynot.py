"""`explain --why-not`: the conflict and the fewest edits, or the difference and when it would win; by plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from explain_oracle import judged, with_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_explain_binding import SMALL, random_facts
from test_explain_mapping import explained
from tiny_cases import tiny_facts

import mapsearch
from mapsearch.axes import written
from mapsearch.costs.views import Facts
from mapsearch.errors import UsageError
from mapsearch.explaining.levers import bandwidths
from mapsearch.explaining.wishes import read_wish
from mapsearch.solver.explain.relax import with_hbm
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import KEY
from mapsearch.solver.search import search

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


def fewest_edits(facts: Facts, codes: dict[str, int]) -> tuple[int, float]:
    """The fewest values that have to change before something fits, and the least step time with so few changed."""
    # What is asked for may be granted also where the run does not offer it.
    lists = {axis: [*facts.run.model_dump()[axis], written(axis, codes[axis])] for axis in codes if axis == "recompute"}
    oracle = judged(with_run(facts, **{axis: list(dict.fromkeys(values)) for axis, values in lists.items()}))
    fits = oracle.satisfying(oracle.names)
    keys = np.array(oracle.keys)
    changed = sum((keys[:, KEY.index(axis)] != code).astype(int) for axis, code in codes.items())
    if not fits.any():
        return -1, np.inf
    fewest = int(changed[fits].min())
    return fewest, float(oracle.step_time_s[fits & (changed == fewest)].min())


def judge(facts: Facts, codes: dict[str, int]) -> str:
    text = ",".join(f"{axis}={written(axis, code)}" for axis, code in codes.items())
    why = explained(facts, why_not=text).why_not
    fewest, fastest = fewest_edits(facts, codes)
    assert why.sentences
    if fewest == 0:
        assert why.mapping.step_time_s == pytest.approx(fastest, rel=1e-9) and not why.conflicts
        for axis, code in codes.items():
            here = why.mapping.sizes.get(axis, why.mapping.choices.get(axis))
            assert here == written(axis, code)
        assert why.step_time_s[-1].values[1] == pytest.approx(why.mapping.step_time_s)
        assert sum(term.differences[1] for term in why.step_time_s[:-1]) == pytest.approx(
            why.step_time_s[-1].differences[1], abs=1e-12
        )
        return "fits"
    assert why.mapping is None and why.conflicts
    if fewest < 0:
        assert why.edited is None
        return "nothing fits"
    assert len(why.edit.split(", ")) == fewest
    assert why.edited.step_time_s == pytest.approx(fastest, rel=1e-9)
    return "edited"


def test_partial_wishes_that_fit_and_that_do_not():
    facts = tiny_facts(hbm_mb=50, **SMALL)
    said = {judge(facts, {"tp": tp, "pp": pp}) for tp in (1, 2, 4) for pp in (1, 2, 4)}
    assert said == {"fits", "edited"}
    assert judge(tiny_facts(hbm_mb=5, **SMALL), {"tp": 2}) == "nothing fits"


@st.composite
def wishes(draw):
    axes = draw(st.lists(st.sampled_from(["tp", "cp", "dp", "pp", "ep", "etp"]), min_size=1, max_size=4, unique=True))
    codes = {axis: draw(st.sampled_from([1, 2, 3, 4])) for axis in axes}
    if draw(st.booleans()):
        codes["recompute"] = draw(st.sampled_from([0, 64]))
    return codes


@given(random_facts(), wishes())
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=CHECKS)
def test_random_wishes(facts, codes):
    judge(facts, codes)


@pytest.mark.slow
@given(random_facts(), wishes())
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=CHECKS)
def test_many_random_wishes(facts, codes):
    judge(facts, codes)


def test_a_value_that_the_run_does_not_offer_is_tried_all_the_same():
    facts = tiny_facts(hbm_mb=200, recompute=["none"], micro_batch=[1], schedule=["1f1b"])
    why = explained(facts, why_not="recompute=full,micro_batch=2").why_not
    assert why.mapping.choices["recompute"] == "full" and why.mapping.sizes["micro_batch"] == 2


def test_a_whole_mapping_is_judged_where_it_is_placed():
    facts = tiny_facts((2, 2), hbm_mb=200, placement={"tp": "inside"}, **SMALL)
    across = {"tp": 2, "dp": 2, "ep": 4, "placement": {"tp": {"rack": 2}, "dp": {"board": 2}}}
    why = explained(facts, why_not=mapsearch.Mapping.model_validate(across)).why_not
    assert [margin.relation for margin in why.broken] == ["tp_inside_board"]
    assert why.mapping.placement["tp"] == {"board": 2}
    assert any("another placement fits" in text for text in why.sentences)
    inside = {**across, "placement": {"tp": {"board": 2}, "dp": {"rack": 2}}}
    why = explained(facts, why_not=mapsearch.Mapping.model_validate(inside)).why_not
    assert not why.broken and why.complete and why.mapping.sizes["tp"] == 2


def test_the_answer_itself_is_called_the_answer():
    facts = tiny_facts(hbm_mb=200, **SMALL)
    best = explained(facts).mapping
    why = explained(facts, why_not=",".join(f"{axis}={value}" for axis, value in best.sizes.items())).why_not
    assert why.slower_by == 0.0 and why.sentences[-1] == "it is the fastest mapping"


def test_at_a_searched_win_nothing_is_faster():
    facts = tiny_facts(hbm_mb=200, **SMALL)
    levers = {lever.name: lever for lever in bandwidths(facts)}
    verified = 0
    for tp, pp in itertools.product((1, 2, 4), (1, 2)):
        why = explained(facts, why_not=f"tp={tp},pp={pp}").why_not
        for win in [win for win in (why.wins if why else []) if win.verified]:
            at = with_hbm(facts, win.value) if win.input == "hbm" else levers[win.input].at(win.value)
            best = search(problem_of(at), 1).top[0]
            assert win.step_time_s <= best.step_time_s * (1 + 1e-9)
            verified += 1
    assert verified, "the instances show nothing"


def test_wishes_that_cannot_be_read():
    for text, said in {
        "tp": "not read",
        "tpp=2": "did you mean 'tp'",
        "tp=2,tp=4": "given twice",
        "tp=x": "whole number",
        "tp=0": "at least 1",
        "schedule=2f2b": "accepted",
        " , ": "is empty",
    }.items():
        with pytest.raises(UsageError, match=said):
            read_wish(text)


def test_what_the_run_does_not_offer_may_be_all_that_fits_or_faster():
    cramped = tiny_facts(hbm_mb=44, recompute=["none"], micro_batch=[1], schedule=["1f1b"])
    assert not search(problem_of(cramped), 1).top
    found = explained(cramped, why_not="recompute=full")
    assert found.why_not.mapping is not None and found.why_not.slower_by is None
    assert "nothing that the run offers fits" in found.why_not.sentences[-1] and not found.notes
    slow = tiny_facts(hbm_mb=200, recompute=["full"], micro_batch=[1], schedule=["1f1b"])
    why = explained(slow, why_not="recompute=none").why_not
    assert why.slower_by < 0.0 and "shorter than the fastest that the run offers" in why.sentences[0] and not why.wins


def test_the_fastest_sizes_in_a_worse_place_are_not_the_answer():
    facts = tiny_facts(hbm_mb=48, zero=[3], recompute=["none"], reserve=0.0, **SMALL)
    best = explained(facts).mapping
    assert (best.sizes["tp"], best.sizes["cp"]) == (2, 2)
    inside, outside = ({"board": 2}, {"rack": 2})
    for tp, cp in ((inside, outside), (outside, inside)):
        placement = {"tp": tp, "cp": cp, "ep": best.placement["ep"]}
        given = mapsearch.Mapping.model_validate({**best.sizes, **best.choices, "placement": placement})
        why = explained(facts, why_not=given).why_not
        if why.mapping.placement == best.placement:
            assert why.slower_by == 0.0
        else:
            assert why.slower_by > 0.0 and "another placement" in why.sentences[0] and not why.wins


def test_a_wish_beside_a_stopped_search_is_not_judged():
    found = explained(tiny_facts(hbm_mb=200, **SMALL), why_not="tp=2", time_limit=1e-9)
    assert found.status == "feasible" or found.why_not is None
