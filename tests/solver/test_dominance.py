"""Leaving out dominated placements must not change a ranking, whatever is limited."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from tiny_cases import tiny_facts

from mapsearch.solver.dominance import front_of
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search

SMALL = {"micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"], "global_batch": 16}


@pytest.mark.parametrize(
    "limits",
    [
        {"exposed_limit_by_class": {"pp": 0.2}},  # a slower exchange of another class makes room for a slower hop
        {"exposed_limit_by_class": {"ep": 0.1, "dp": 0.1}},
        {"exposed_limit": 0.3},
        {},
    ],
    ids=str,
)
def test_pruned_placements_do_not_change_the_ranking(limits):
    problem = problem_of(tiny_facts((2, 2, 2), hbm_mb=45, speed=0.2, **SMALL, **limits))
    pruned, whole = (search(problem, 8, prune=prune).top for prune in (True, False))

    assert [c.step_time_s for c in pruned] == pytest.approx([c.step_time_s for c in whole], rel=1e-9)


@settings(max_examples=200, deadline=None)
@example(np.array([[1.0, 1e-17], [1.0, 0.0], [0.0, 2.0]]))  # sums are equal, rows are not
@given(
    arrays(float, array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.sampled_from([0.0, 1e-17, 1.0, 2.0]))
)
def test_the_front_is_what_comparing_each_with_each_leaves(rows):
    def beats(i, j):
        """Row i is nowhere above row j, and somewhere below it or before it."""
        return all(rows[i] <= rows[j]) and (any(rows[i] < rows[j]) or i < j)

    count = len(rows)
    assert list(front_of(rows)) == [j for j in range(count) if not any(beats(i, j) for i in range(count) if i != j)]
