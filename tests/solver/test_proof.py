"""Proofs of the ranking: by itself on small spaces, by refutation on large ones, and contradictions are shown."""

import time
from dataclasses import replace

import pytest
from tiny_cases import tiny_facts

from mapsearch.solver import proof
from mapsearch.solver.problem import problem_of
from mapsearch.solver.proof import prove, solve_with
from mapsearch.solver.search import search

K = 3


@pytest.fixture(scope="module")
def problem():
    return problem_of(tiny_facts())


@pytest.fixture(scope="module")
def found(problem):
    return search(problem, K)


@pytest.fixture
def large(monkeypatch):
    """Every space counts as too large to be handed over."""
    monkeypatch.setattr(proof, "MOST_MAPPINGS", 0)


def test_a_small_space_is_enumerated(problem, found):
    result = prove(problem, found)
    assert (result.backend, result.status, result.kind) == ("exhaustive", "proven", "exhaustion")
    assert result.bound_s == found.top[-1].step_time_s


@pytest.mark.parametrize("backend", ["cpsat", "milp"])
def test_a_named_backend_solves_a_small_space_alone(problem, found, backend, monkeypatch):
    monkeypatch.setattr(proof, "MOST_PAIRS", dict.fromkeys(proof.MOST_PAIRS, 10**9))
    result = prove(problem, found, backend)
    assert (result.backend, result.status, result.kind) == (backend, "proven", "all cells")


@pytest.mark.parametrize(("asked", "backend"), [("auto", "cpsat"), ("milp", "milp"), ("exhaustive", "exhaustive")])
def test_of_a_large_space_the_open_cells_are_refuted(problem, found, large, asked, backend):
    result = prove(problem, found, asked)
    assert (result.backend, result.status, result.kind) == (backend, "proven", "cells under the cutoff")
    assert result.bound_s == pytest.approx(found.top[-1].step_time_s, rel=1e-4)
    assert "bound is not above the cutoff" in result.detail


@pytest.mark.parametrize("backend", ["auto", "cpsat", "milp"])
def test_a_missing_mapping_is_a_contradiction_that_shows_both(problem, found, large, backend):
    # The best one was overlooked, so that the fourth is listed in its place.
    more = search(problem, K + 3)
    lost = replace(more, top=more.top[1:], k=K + 2)
    result = prove(problem, lost, backend)
    assert result.status == "disagrees"
    assert str(more.top[0].key) in result.detail and str(more.top[-1].key) in result.detail


def test_enumeration_shows_a_contradiction_too(problem, found):
    result = prove(problem, replace(found, top=found.top[1:]))
    assert result.status == "disagrees" and str(found.top[0].key) in result.detail


def test_what_was_cut_short_is_not_proven(problem, found, large):
    assert prove(problem, replace(found, complete=False)).status == "not proven"
    assert prove(problem, found, "cpsat", time.monotonic() - 1.0).status == "not proven"


@pytest.mark.parametrize("backend", ["auto", "cpsat", "milp"])
def test_infeasible_is_proven_as_well(large, backend):
    full = problem_of(tiny_facts(hbm_mb=2.0))
    nothing = search(full, K)
    assert nothing.top == []
    result = prove(full, nothing, backend)
    assert (result.status, result.bound_s) == ("proven", None)


@pytest.mark.parametrize("backend", ["auto", "exhaustive", "cpsat", "milp"])
def test_solving_with_a_backend_gives_the_same_list(problem, found, backend):
    solved = solve_with(problem, backend, K)
    assert [c.step_time_s for c in solved] == pytest.approx([c.step_time_s for c in found.top], rel=1e-4)
