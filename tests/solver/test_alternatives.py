"""What the fastest mapping is worth: prices of placements, and why devices stay idle; against forced solves."""

from __future__ import annotations

from dataclasses import replace

import bruteforce
import pytest
from tiny_cases import tiny_fabric, tiny_facts, tiny_model, tiny_profile, tiny_run

import mapsearch
from mapsearch.errors import InputError
from mapsearch.reports.tables import price_text
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search

SMALL = {"micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"]}
BIG_EXPERTS = {"experts": 8, "top_k": 2, "expert_ffn": 2048}


def solve(sizes=(2, 4), *, hbm_mb=64.0, model=None, **run):
    options = {name: run.pop(name) for name in ("time_limit",) if name in run}
    return mapsearch.solve(
        model=tiny_model(**(model or {})),
        run=tiny_run(**{**SMALL, **run}),
        topology=tiny_fabric(sizes, hbm_mb=hbm_mb),
        profile=tiny_profile(),
        proof="none",
        **options,
    )


@pytest.mark.parametrize("axis", ["tp", "cp", "dp", "pp", "ep", "edp"])
def test_a_price_equals_a_forced_solve(axis):
    priced, forced = (
        solve(placement={axis: rule}, model={"moe": BIG_EXPERTS}, hbm_mb=1e3) for rule in ("priced", "inside")
    )

    (price,) = priced.prices
    assert (price.axis, price.unit) == (axis, "board")
    assert forced.prices == []
    if forced.best is None:
        assert (price.step_time_s, price.price) == (None, None)
    else:
        assert price.step_time_s == forced.best.step_time_s
        assert price.price == pytest.approx(forced.best.step_time_s / priced.best.step_time_s - 1.0, abs=1e-12)
        assert price.price >= 0.0


def test_some_price_is_not_zero_and_free_axes_are_not_priced():
    answer = solve(placement={"ep": "priced", "dp": "free", "edp": "priced"}, model={"moe": BIG_EXPERTS}, hbm_mb=1e3)

    assert [price.axis for price in answer.prices] == ["edp", "ep"]
    assert max(price.price or 0.0 for price in answer.prices) > 0.0
    assert (
        answer.best.step_time_s == solve(model={"moe": BIG_EXPERTS}, hbm_mb=1e3).best.step_time_s
    )  # priced is not enforced


def test_what_cannot_be_inside_says_so():
    (price,) = solve(placement={"ep": "priced"}, constraints={"fix": {"ep": 8}}).prices

    assert price_text(price) == "EP inside one board: no mapping is feasible"


def test_a_price_needs_a_domain_and_time():
    fabric = tiny_fabric((2, 2))
    flat = replace(fabric, levels=tuple(replace(level, high_bandwidth=False) for level in fabric.levels))
    with pytest.raises(InputError, match=r"placement\.ep: placement prices ep being inside .*high_bandwidth"):
        problem_of(replace(tiny_facts(placement={"ep": "priced"}), fabric=flat))

    assert solve(placement={"ep": "priced"}, time_limit=1e-9).prices == []


def test_all_devices_are_the_full_fan_outs_of_plain_loops():
    facts = tiny_facts((3, 2), **SMALL)
    problem = replace(problem_of(facts), all_devices=True)
    used = bruteforce.used_units
    try:
        bruteforce.used_units = lambda size: {size}
        ranking = bruteforce.ranking(facts, 5)
    finally:
        bruteforce.used_units = used

    found = search(problem, 5).top
    assert [c.key for c in found] == [key for _, key in ranking]
    assert [c.step_time_s for c in found] == pytest.approx([seconds for seconds, _ in ranking], rel=1e-9)


def test_idle_devices_are_explained_by_the_best_mapping_on_all():
    answer = solve((3, 4), constraints={"fix": {"dp": 2}})
    everywhere = search(
        replace(problem_of(tiny_facts((3, 4), constraints={"fix": {"dp": 2}}, **SMALL)), all_devices=True), 1
    )

    best, (other,) = answer.best, everywhere.top
    (note,) = [note for note in answer.notes if "devices" in note]
    longer = 100 * (other.step_time_s / best.step_time_s - 1.0)
    assert best.devices == 8
    assert note == (
        f"the fastest mapping uses 8 of 12 devices: the fastest one on all 12 takes {other.step_time_s:.4g} s, "
        f"{longer:.1f} % longer"
    )


def test_idle_devices_are_explained_by_the_rules_that_forbid_all():
    answer = solve((3, 4), constraints={"at_most": {"pp": 2}})

    (note,) = [note for note in answer.notes if "devices" in note]
    assert answer.best.devices == 8
    assert note.startswith("the fastest mapping uses 8 of 12 devices: no mapping on all 12 is feasible (")
    assert "sequences of the global batch split evenly" in note
    assert note.endswith("you ask for pp at most 2)")
