"""Heavy experts in every way: bound and placement against all placements one by one, and against known optima."""

import random

import numpy as np
import pytest

from mapsearch.experts.bounds import bound_of, lightest_node
from mapsearch.experts.greedy import longest_first
from mapsearch.experts.packing import packed
from mapsearch.solver.backends.experts import ExpertProblem
from tests.experts.brute import best, measured

SHAPES = [(6, 3, 2), (6, 3, 3), (5, 3, 3), (4, 4, 2), (6, 2, 5), (8, 2, 4), (5, 4, 2)]


def few(seed):
    rng = random.Random(seed)
    experts, ranks, slots = SHAPES[seed % len(SHAPES)]
    loads = [float(rng.randint(1, rng.choice((4, 40, 400)))) for _ in range(experts)]
    loads[rng.randrange(experts)] *= rng.choice((1, 3, 12))
    return ExpertProblem(np.array(loads), ranks, slots)


def test_bound_and_placement_against_all_placements():
    proven = above = 0
    for seed in range(84):
        problem = few(seed)
        least = float(best(problem)[0])
        start = longest_first(problem)
        found = packed(problem, start, bound_of(problem).value)
        assert measured(problem, [set(row) for row in found.placement.tolist()]) is not None
        worst = problem.worst(found.placement)
        assert bound_of(problem).value * (1 - 1e-12) <= found.bound <= least * (1 + 1e-9), seed
        assert least * (1 - 1e-9) <= worst <= problem.worst(start) * (1 + 1e-12), seed
        proven += worst <= found.bound * (1 + 1e-9)
        above += found.bound > bound_of(problem).value * (1 + 1e-9)
    assert proven >= 60
    assert above >= 8


def test_a_hot_expert_and_a_warm_one_cannot_both_be_split():
    # Loads 59, 11 and crumbs, 8 ranks, 8 further copies: seven copies of the hot one and three of the warm one share a
    # rank somewhere (59/7 + 11/3), so one has fewer copies; the mean of the ranks says nothing about that.
    loads = np.array([5900.0, 1100.0] + [20.0] * 46)
    problem = ExpertProblem(loads, 8, 7)
    found = packed(problem, longest_first(problem), bound_of(problem).value)
    worst = problem.worst(found.placement)
    assert worst == pytest.approx(5900 / 6 + 6 * 20.0 * 0.5, rel=0.06)
    assert found.bound > bound_of(problem).value * 1.01
    assert worst <= found.bound * 1.01


def test_no_node_with_a_group_is_lighter_than_the_one_beside_the_lightest_experts():
    rng = np.random.default_rng(4)
    for _ in range(20):
        problem = ExpertProblem(np.ceil(rng.pareto(1.0, 24) * 50) + 1, 4, 7, 2, 6)
        for group in range(6):
            relaxed = lightest_node(problem, group)
            others = [other for other in range(6) if other != group]
            for pair in [(a, b) for a in others for b in others if a < b]:
                members = np.concatenate([np.arange(4) + 4 * one for one in (group, *pair)])
                real = np.sort(problem.loads[members])
                assert (np.sort(relaxed.loads) <= real).all()


def test_the_same_input_gives_the_same_bytes():
    problem = few(5)
    first, second = (packed(problem, longest_first(problem), 0.0) for _ in range(2))
    assert first.placement.tobytes() == second.placement.tobytes() and first.bound == second.bound
