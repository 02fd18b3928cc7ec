"""Differential tests of whole problems: the search, CP-SAT, MILP and plain loops rank the same top k.

The loops (bruteforce.py) cost every mapping alone; they share no enumeration, table, bound or pruning with the others.
Each part has a seed of its own, so that a failure can be repeated and the parts run beside each other.
"""

from collections import Counter
from dataclasses import replace

import bruteforce
import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from instances import TINY_SHAPES, problems, with_hole
from test_backends import SETTINGS

from mapsearch.solver.backends import backend_named
from mapsearch.solver.backends.base import every_cell
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import search
from mapsearch.solver.space import count_space, rows_of

K = 4
MOST_MAPPINGS = 6_000
"""Mappings that the loops go through in a few seconds."""
PARTS = 12
PER_PART = 100
FIRST_SEED = 1_000
KINDS = ("feasible", "infeasible", "tied", "fewer than k", "dense", "exposure limited", "user")


def mappings_of(problem: Problem) -> int:
    return sum(count_space(problem, used, row)[0] for used, row in rows_of(problem))


def compare(problem, seen):
    """All four ways give the same k step times, and every mapping listed takes what the loops say."""
    seen["made"] += 1
    if mappings_of(problem) > MOST_MAPPINGS:
        seen["too large"] += 1
        return
    every = bruteforce.every(problem.facts)
    expected = np.array(sorted(every.values())[:K])
    cells = list(every_cell(problem))
    lists = {"search": (search(problem, K).top, 0.0), "search unpruned": (search(problem, K, prune=False).top, 0.0)}
    for name in ("cpsat", "milp"):
        outcome = backend_named(name).best(problem, cells, K)
        assert outcome.complete, name
        lists[name] = outcome.candidates, outcome.error_s
    for name, (listed, error_s) in lists.items():
        times = [candidate.step_time_s for candidate in listed]
        np.testing.assert_allclose(times, expected, rtol=1e-9, atol=error_s, err_msg=name)
        assert len({candidate.key for candidate in listed}) == len(listed), name
        for candidate in listed:
            assert every[candidate.key] == pytest.approx(candidate.step_time_s, rel=1e-9), name
    seen["compared"] += 1
    seen["feasible" if len(expected) else "infeasible"] += 1
    seen["no cell"] += not cells
    seen["fewer than k"] += 0 < len(expected) < K
    seen["tied"] += bool(np.any(np.diff(expected) <= 1e-12 * expected[:-1]))
    seen["dense"] += problem.facts.model.moe is None
    seen["exposure limited"] += any(relation.name.startswith("exposed") for relation in problem.relations)
    seen["user"] += any(relation.origin == "user" for relation in problem.relations)


def never_slower(told, usual, seen, what):
    """More choices never make the best mapping slower; counts where they make something fit, or faster."""
    best, before = search(told, 1).top, search(usual, 1).top
    assert not before or best[0].step_time_s <= before[0].step_time_s * (1.0 + 1e-12)
    seen[f"only {what} fits"] += bool(best) and not before
    seen[f"{what} is faster"] += bool(best and before) and best[0].step_time_s < 0.999 * before[0].step_time_s


def run_many(count, number):
    seen = Counter()

    @seed(number)
    @settings(max_examples=count, **SETTINGS)
    @given(problems(shapes=TINY_SHAPES))
    def check(problem):
        compare(problem, seen)

    check()
    return seen


def test_four_ways_agree_on_a_few_problems():
    seen = run_many(4, FIRST_SEED - 1)
    assert seen["compared"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_four_ways_agree_on_a_thousand_problems(part, capsys):
    seen = run_many(PER_PART, FIRST_SEED + part)
    with capsys.disabled():
        print(f"\nseed {FIRST_SEED + part}: {dict(sorted(seen.items()))}")
    assert seen["compared"] >= PER_PART // 2
    for kind in KINDS:
        assert seen[kind] >= 1, kind


def test_four_ways_agree_in_clusters_with_holes():
    """One device of each cluster is dead: the search goes over all regular parts and fewer of their units."""
    seen = Counter()

    @settings(max_examples=15, **SETTINGS)
    @seed(FIRST_SEED - 1)
    @given(problems(shapes=((4,), (6,), (3, 2), (2, 3), (3, 3), (4, 2))), st.data())
    def run(problem, data):
        fabric = data.draw(with_hole(problem.facts.fabric))
        compare(problem.with_facts(replace(problem.facts, fabric=fabric)), seen)

    run()
    assert seen["compared"] >= 5 and seen["feasible"] >= 2
