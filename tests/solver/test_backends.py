"""Differential tests: every backend and the search, with and without pruning, on random small problems."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from instances import problems

from mapsearch.solver.backends import BACKENDS
from mapsearch.solver.backends.base import every_cell
from mapsearch.solver.backends.cpsat import CpSat
from mapsearch.solver.backends.milp import Milp
from mapsearch.solver.search import search

SETTINGS = {
    "deadline": None,
    "database": None,
    "derandomize": False,
    "phases": [Phase.explicit, Phase.generate],
    "suppress_health_check": list(HealthCheck),
}
MOST_PAIRS = 3_000


def times_of(candidates):
    return np.array([candidate.step_time_s for candidate in candidates])


def compare(problem, seen, k=4, backends=("cpsat", "milp")):
    """All ways to solve a problem give the same k step times; counts what kind of instance it was."""
    cells = list(every_cell(problem))
    pairs = sum(len(cell.attention) * len(cell.expert) for cell in cells)
    if pairs > MOST_PAIRS:
        seen["too large"] += 1
        return
    truth = BACKENDS["exhaustive"]().best(problem, cells, k)
    expected = times_of(truth.candidates)
    for prune in (True, False):
        listed = search(problem, k, prune=prune).top
        np.testing.assert_allclose(times_of(listed), expected, rtol=1e-12, err_msg=f"search, prune={prune}")
    for name in backends:
        outcome = BACKENDS[name]().best(problem, cells, k)
        assert outcome.complete, name
        found = times_of(outcome.candidates)
        assert len({candidate.key for candidate in outcome.candidates}) == len(found), name
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=outcome.error_s, err_msg=name)
    seen["all"] += 1
    seen["empty" if not cells else "feasible" if len(expected) else "infeasible"] += 1
    seen["fewer than k"] += 0 < len(expected) < k
    seen["tied"] += bool(len(expected) and np.any(np.diff(expected) <= 1e-12 * expected[:-1]))
    seen["dense"] += problem.facts.model.moe is None
    seen["exposure limited"] += any(name.name.startswith("exposed") for name in problem.relations)
    seen["overlapping"] += any(cell.timing.coupled or cell.timing.shared_coupled for cell in cells)
    seen["user"] += any(relation.origin == "user" for relation in problem.relations)


def run_many(count, number):
    seen = Counter()

    @seed(number)
    @settings(max_examples=count, **SETTINGS)
    @given(problems())
    def check(problem):
        compare(problem, seen)

    check()
    return seen


def test_all_ways_agree_on_small_problems():
    seen = run_many(10, 1)
    assert seen["feasible"] >= 3


@pytest.mark.slow
def test_all_ways_agree_on_hundreds_of_problems(capsys):
    seen = run_many(500, 2)
    with capsys.disabled():
        print(f"\n{dict(sorted(seen.items()))}")
    assert seen["feasible"] + seen["infeasible"] >= 300
    for kind in ("feasible", "infeasible", "tied", "fewer than k", "dense", "exposure limited", "overlapping", "user"):
        assert seen[kind] >= 10, kind


def joint(problem, k=3, most_pairs=600):
    """The first cells of a problem, few enough for one model."""
    cells, pairs = [], 0
    for cell in every_cell(problem):
        pairs += len(cell.attention) * len(cell.expert)
        if pairs > most_pairs:
            break
        cells.append(cell)
    return cells, times_of(BACKENDS["exhaustive"]().best(problem, cells, k).candidates)


@seed(3)
@settings(max_examples=8, **SETTINGS)
@given(problems())
def test_cells_in_one_model_are_solved_like_cells_one_by_one(problem):
    cells, expected = joint(problem)
    for backend in (CpSat(most_literals=10_000), Milp(most_literals=10_000)):
        outcome = backend.best(problem, cells, 3)
        assert outcome.complete
        np.testing.assert_allclose(times_of(outcome.candidates), expected, rtol=1e-9, atol=outcome.error_s)


@seed(4)
@settings(max_examples=8, **SETTINGS)
@given(problems())
def test_cbc_agrees_where_highs_is_missing(problem):
    cells, expected = joint(problem, most_pairs=200)
    outcome = Milp("cbc").best(problem, cells, 3)
    assert outcome.complete
    np.testing.assert_allclose(times_of(outcome.candidates), expected, rtol=1e-9, atol=outcome.error_s)
