"""Certified rankings: every way by itself, nothing leaning on the search's bounds, and wrong ways are found out."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, seed, settings
from instances import problems
from test_backends import SETTINGS
from tiny_cases import tiny_facts

import mapsearch
from mapsearch.cli.solve import exit_code
from mapsearch.errors import BackendMissing, ExitCode, UsageError
from mapsearch.solver import backends, proof
from mapsearch.solver.backends.base import SolverFault, every_table
from mapsearch.solver.backends.exhaustive import feasible_times
from mapsearch.solver.backends.milp import Milp
from mapsearch.solver.bounds import memory_limit, slice_bounds
from mapsearch.solver.cells import cell_problem
from mapsearch.solver.certify import certify
from mapsearch.solver.intervals import Interval, hull, interval
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search
from mapsearch.solver.sieve import sieved

K = 3
BY_ITSELF = "bounds and exact evaluation"


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


def shown(proofs):
    return [(p.backend, p.status, p.kind) for p in proofs]


def test_a_small_space_is_ranked_by_all_backends_alone(problem, found, monkeypatch):
    monkeypatch.setitem(proof.MOST_PAIRS, "cpsat", 10**9)
    monkeypatch.setitem(proof.MOST_PAIRS, "milp", 0)
    proofs = certify(problem, found)

    assert shown(proofs) == [
        ("decomposition", "exact", BY_ITSELF),
        ("exhaustive", "proven", "exhaustion"),
        ("cpsat", "proven", "all cells"),
        ("milp", "proven", "cutoff alone"),
    ]
    assert all(p.leans_on and p.cells for p in proofs)


def test_a_large_space_is_held_against_the_cutoff(problem, found, large):
    proofs = certify(problem, found)

    assert shown(proofs) == [
        ("decomposition", "exact", BY_ITSELF),
        ("cpsat", "proven", "cells under the cutoff"),
        ("cpsat", "proven", "cutoff alone"),
        ("milp", "proven", "cutoff alone"),
    ]
    assert {p.cells for p in proofs[2:]} == {sum(int(np.sum(t.allowed)) for t in every_table(problem))}
    assert "none of the search's bounds" in proofs[-1].leans_on


@pytest.mark.parametrize("backend", ["exhaustive", "cpsat", "milp"])
def test_a_named_backend_certifies_alone(problem, found, large, backend):
    assert shown(certify(problem, found, backend))[1:] == [(backend, "proven", "cutoff alone")]


def test_bounds_of_the_search_do_not_matter(problem, found, large):
    """Cells that its bounds lost, with the best mapping in one of them, are found by who leans on none of them."""
    lost = replace(search(problem, K + 1), open_cells=[])
    lost = replace(lost, top=lost.top[1:], k=K)
    first = str(found.top[0].key)
    by_bounds, *alone = certify(problem, lost)[1:]

    assert by_bounds.status == "proven"  # and wrong
    assert [p.status for p in alone] == ["disagrees", "disagrees"]
    assert all(first in p.detail and all(str(c.key) in p.detail for c in lost.top) for p in alone)


class WrongList(Milp):
    """Overlooks the best mapping."""

    def best(self, *arguments):
        outcome = super().best(*arguments)
        return replace(outcome, candidates=outcome.candidates[1:])


class WrongRefutation(Milp):
    """Calls a listed mapping a faster one that is not listed."""

    def refute(self, problem, cells, cutoff_s, known, deadline=None):
        found = search(problem, 1).top[0]
        result = super().refute(problem, cells, cutoff_s, known, deadline)
        return replace(result, verdict="counterexample", witness=replace(found, step_time_s=cutoff_s / 2))


class Faulty(Milp):
    """Contradicts itself."""

    def refute(self, *_arguments):
        raise SolverFault("7 ulps away")


def solved(**options):
    facts = tiny_facts()
    inputs = {"model": facts.model, "run": facts.run, "topology": facts.fabric, "profile": facts.profile}
    return mapsearch.solve(**inputs, top=K, certify=True, **options)


@pytest.mark.parametrize(
    ("wrong", "mappings", "says"),
    [
        (WrongList, 10**9, "rank 1: the search has"),
        (WrongRefutation, 0, "the backend found"),
        (Faulty, 0, "7 ulps away"),
    ],
)
def test_a_wrong_backend_makes_the_answer_feasible_and_both_sides_are_shown(wrong, mappings, says, monkeypatch, found):
    monkeypatch.setitem(backends.BACKENDS, "milp", wrong)
    monkeypatch.setitem(proof.MOST_PAIRS, "milp", 10**9)
    monkeypatch.setattr(proof, "MOST_MAPPINGS", mappings)
    answer = solved()

    assert answer.status == "feasible"
    states = {p.backend: p.status for p in answer.proofs}
    assert states["milp"] == "disagrees" and states["cpsat"] == "proven"
    detail = answer.proofs[-1].detail
    assert says in detail
    if wrong is not Faulty:
        listed, theirs = detail.split("the search lists ")[1].split("the backend lists ")
        assert all(str(candidate.key) in listed for candidate in found.top)
        assert "1. " in theirs and str(found.top[1 if wrong is WrongList else 0].key) in theirs


def test_the_answer_of_a_certified_solve_is_optimal():
    answer = solved()
    assert answer.status == "optimal"
    assert [p.backend for p in answer.proofs] == ["decomposition", "exhaustive", "cpsat", "milp"]
    assert '"leans_on"' in answer.to_json()


def test_what_was_not_proven_says_why(problem, found, large):
    late = certify(problem, found, deadline=time.monotonic() - 1.0)
    assert [p.status for p in late[1:]] == ["not proven"] * 3
    assert all("time ran out" in p.detail for p in late[1:])
    cut = certify(problem, replace(found, complete=False))
    assert [(p.status, p.detail) for p in cut] == [("not proven", "the search was cut short")] * 3


def test_a_required_proof_is_every_certificate():
    answer = solved()
    assert exit_code(answer, require_proof=True) is ExitCode.FOUND
    missing = answer.proofs[-1].model_copy(update={"status": "not proven"})
    partly = answer.model_copy(update={"proofs": [*answer.proofs[:-1], missing]})
    assert partly.status == "optimal"
    assert exit_code(partly, require_proof=True) is ExitCode.STOPPED


def test_the_decomposition_alone_proves_nothing(monkeypatch):
    from mapsearch.solver import certify as module

    monkeypatch.setattr(module, "SOLVERS", ())
    monkeypatch.setattr(module, "whole_space", lambda *_: None)
    monkeypatch.setattr(module, "prove", lambda *_: proof.Proof(backend="cpsat", status="not proven", kind="none"))
    assert solved().status == "feasible"


def test_nothing_fits_is_certified_as_well(large):
    full = problem_of(tiny_facts(hbm_mb=2.0))
    proofs = certify(full, search(full, K))
    assert {p.status for p in proofs[1:]} == {"proven"}
    assert all(p.cells_solved == 0 and p.bound_s is None for p in proofs[2:])


def test_certifying_needs_a_proof_and_all_libraries(monkeypatch):
    with pytest.raises(UsageError, match="exclude each other"):
        solved(proof="none")
    monkeypatch.setattr(Milp, "available", lambda _self: False)
    with pytest.raises(BackendMissing):
        solved()


@seed(5)
@settings(max_examples=15, **SETTINGS)
@given(problems())
def test_no_cell_with_a_mapping_up_to_the_cutoff_is_left_out(problem):
    best = search(problem, K).top
    for cutoff in {np.inf, *(c.step_time_s for c in best)}:
        for tables in every_table(problem):
            found = sieved(problem, tables, cutoff)
            left = set(found.left)
            allowed = np.asarray(tables.allowed)[..., 0]
            assert found.cells == int(allowed.sum())
            for place in np.argwhere(allowed).tolist()[::3]:
                cell = cell_problem(tables, tuple(place))
                if tuple(place) not in left and len(cell.attention) and len(cell.expert):
                    times = feasible_times(problem, cell)
                    assert not (np.isfinite(times) & (times <= cutoff)).any()


def test_intervals_exclude_as_much_as_the_bounds_of_the_search(problem, found):
    cutoff, most = found.top[-1].step_time_s, memory_limit(problem)
    for tables in every_table(problem):
        by_bounds = sum(
            int((slice_bounds(tables, position, most).bounds <= cutoff).sum()) for position in range(len(tables.dp))
        )
        assert len(sieved(problem, tables, cutoff).left) <= by_bounds


def test_interval_arithmetic():
    x = Interval(np.array([-1.0]), np.array([2.0]))
    for value, low, high in (
        (x + 1.0, 0.0, 3.0),
        (1.0 - x, -1.0, 2.0),
        (x - x, -3.0, 3.0),
        (x * -2.0, -4.0, 2.0),
        (np.array([3.0]) * x, -3.0, 6.0),
        (x * x, -2.0, 4.0),
        (x.max_with(0.0), 0.0, 2.0),
    ):
        assert (value.low.item(), value.high.item()) == (low, high)
    assert interval(x) is x
    some = hull(np.array([[1.0, 5.0, 3.0]]), np.array([[True, False, True]]))
    assert (some.low.item(), some.high.item()) == (1.0, 3.0)
