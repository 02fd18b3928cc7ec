"""Leaving out dominated placements must not change a ranking, whatever is limited."""

import pytest
from tiny_cases import tiny_facts

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
