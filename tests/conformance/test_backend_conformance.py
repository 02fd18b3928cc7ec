"""What every backend has to do, walked over the visible list; nobody registers a backend here."""

import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "solver"))

from tiny_cases import tiny_facts

from mapsearch.errors import BackendMissing, InputError
from mapsearch.solver import backends
from mapsearch.solver.backends import BACKENDS, backend_named, choose
from mapsearch.solver.backends.base import every_cell
from mapsearch.solver.problem import problem_of

K = 3


@pytest.fixture(scope="module")
def problem():
    return problem_of(tiny_facts())


@pytest.fixture(scope="module")
def cells(problem):
    return list(every_cell(problem))


@pytest.fixture(scope="module")
def truth(problem, cells):
    return BACKENDS["exhaustive"]().best(problem, cells, 2 * K).candidates


@pytest.fixture(params=sorted(BACKENDS))
def backend(request):
    return BACKENDS[request.param]()


def test_it_is_named_as_it_is_listed(backend):
    assert BACKENDS[backend.name] is type(backend)
    assert backend.available()
    assert backend.features <= {"exact floats", "integers", "tolerances"} and backend.features


def test_it_finds_the_best_in_order(backend, problem, cells, truth):
    outcome = backend.best(problem, cells, K)
    assert outcome.complete
    times = [candidate.step_time_s for candidate in outcome.candidates]
    assert times == sorted(times)
    np.testing.assert_allclose(times, [c.step_time_s for c in truth[:K]], rtol=1e-9, atol=outcome.error_s)


def test_it_proves_that_nothing_else_is_faster(backend, problem, cells, truth):
    result = backend.refute(problem, cells, truth[K - 1].step_time_s, {c.key for c in truth[:K]})
    assert result.verdict == "proven"
    assert 0.0 <= result.error_s < 1e-3 * truth[0].step_time_s


def test_it_shows_what_is_faster(backend, problem, cells, truth):
    # The second best is left out of the known ones, and the cutoff lies well above it.
    gaps = [b.step_time_s - a.step_time_s for a, b in pairwise(truth)]
    last = int(np.argmax(gaps[1:])) + 2
    known = {c.key for c in truth[:last]} - {truth[1].key}
    result = backend.refute(problem, cells, truth[last].step_time_s, known)
    assert result.verdict == "counterexample"
    assert result.witness is not None and result.witness.key == truth[1].key
    assert result.witness.step_time_s < truth[last].step_time_s


def test_without_a_cutoff_it_asks_for_any_other_mapping(backend, problem, cells, truth):
    one = [cell for cell in cells if cell.tables is truth[0].tables and cell.index == truth[0].index]
    every = BACKENDS["exhaustive"]().best(problem, one, 10_000).candidates
    assert backend.refute(problem, one, np.inf, {c.key for c in every}).verdict == "proven"
    result = backend.refute(problem, one, np.inf, {c.key for c in every[1:]})
    assert result.verdict == "counterexample" and result.witness.key == every[0].key


def test_no_cells_hold_nothing(backend, problem):
    assert backend.best(problem, [], K).candidates == []
    assert backend.refute(problem, [], 1.0, set()).verdict == "proven"


def test_a_passed_deadline_is_no_proof(backend, problem, cells, truth):
    past = time.monotonic() - 1.0
    assert not backend.best(problem, cells, K, past).complete
    assert backend.refute(problem, cells, truth[0].step_time_s * 2, set(), past).verdict == "unknown"


def test_the_same_question_has_the_same_answer(backend, problem, cells):
    first, second = (backend.best(problem, cells, K).candidates for _ in range(2))
    assert [(c.step_time_s, c.key, c.attention, c.expert) for c in first] == [
        (c.step_time_s, c.key, c.attention, c.expert) for c in second
    ]


def test_an_unknown_or_missing_backend_is_named(monkeypatch):
    with pytest.raises(InputError, match="accepted: exhaustive, cpsat or milp"):
        backend_named("cplex")
    with pytest.raises(InputError, match="accepted: auto, exhaustive, cpsat or milp"):
        choose("cplex")
    assert choose("auto").name == "cpsat"
    monkeypatch.setattr(backends.CpSat, "available", lambda self: False)
    assert choose("auto").name == "milp"
    with pytest.raises(BackendMissing, match="pip install ortools"):
        choose("cpsat")
