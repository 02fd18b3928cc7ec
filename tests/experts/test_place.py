"""Placements of experts: against all placements one by one, the greedy rule, and bounds."""

import random

import numpy as np
import pytest

from mapsearch.experts.bounds import bound_of, traffic_bound
from mapsearch.experts.greedy import copies_of, longest_first
from mapsearch.experts.place import Placed, groups_solved, place, solved, spread_over_layers
from mapsearch.experts.synthetic import dirichlet, zipf
from mapsearch.solver.backends.experts import ExpertProblem, solve_experts
from tests.experts.brute import best, measured

SHAPES = [
    # experts, ranks, slots, nodes, groups
    (6, 3, 2, 1, 1),
    (8, 4, 2, 1, 1),
    (8, 2, 4, 1, 1),
    (6, 2, 4, 1, 1),
    (5, 3, 2, 1, 1),
    (4, 4, 2, 1, 1),
    (4, 4, 2, 2, 1),
    (8, 4, 2, 2, 4),
    (4, 4, 2, 2, 2),
    (8, 4, 2, 2, 1),
]


def small(seed):
    rng = random.Random(seed)
    experts, ranks, slots, nodes, groups = SHAPES[seed % len(SHAPES)]
    top = rng.choice((5, 30, 1000))
    sources = np.array([[rng.randint(0, top) for _ in range(experts)] for _ in range(max(nodes, 2))])
    sources[0] += 1
    if rng.random() < 0.4:
        sources[:, rng.randrange(experts)] *= 6
    loads = sources.sum(axis=0).astype(float)
    off_node = None
    if nodes > 1 and rng.random() < 0.7:
        off_node = (loads[None] - sources).T.astype(float)
    return ExpertProblem(loads, ranks, slots, nodes, groups, off_node)


def legal(problem, placement):
    assert placement.shape == (problem.ranks, problem.slots)
    assert all(len(set(row)) == problem.slots for row in placement.tolist())
    found = measured(problem, [set(row) for row in placement.tolist()])
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(120))
def test_equals_all_placements_one_by_one(seed):
    problem = small(seed)
    worst, traffic = best(problem)
    rule = place(problem)
    assert legal(problem, rule.greedy)[0] >= legal(problem, rule.placement)[0] >= worst
    assert rule.bound.value <= float(worst) * (1 + 1e-9)
    if rule.proof:
        assert float(legal(problem, rule.placement)[0]) == pytest.approx(float(worst))
    if problem.off_node is not None:
        assert traffic_bound(problem, float(worst), float(traffic)) <= float(traffic) * (1 + 1e-9)
        assert traffic_bound(problem, float(worst), 10.0 * float(traffic)) <= float(traffic) * (1 + 1e-9)
    for backend in ("cpsat", "milp") if seed % 2 == 0 else ("cpsat",):
        found = solve_experts(problem, rule.placement, backend)
        assert found.worst_proven
        assert found.traffic_proven == (problem.off_node is not None)
        assert [float(one) for one in legal(problem, found.placement)] == pytest.approx([float(worst), float(traffic)])
        through = solved(rule, backend, np.inf)
        assert through.proof and through.gap == 0.0
        assert through.worst == pytest.approx(float(worst))


def test_several_groups_on_a_node_with_copies_against_all_placements():
    for seed in range(3):
        loads = np.floor(np.random.default_rng(seed).pareto(1.0, 6) * 100) + 1
        problem = ExpertProblem(loads, 4, 2, 2, 6)
        worst = float(best(problem)[0])
        found = place(problem)
        assert found.bound.value <= worst * (1 + 1e-9)
        assert float(legal(problem, found.placement)[0]) == pytest.approx(worst)


def test_the_small_instances_are_of_every_kind():
    kinds = [small(seed) for seed in range(120)]
    assert sum(one.copies > 0 for one in kinds) > 30
    assert sum(one.grouped for one in kinds) > 15
    assert sum(one.off_node is not None for one in kinds) > 25
    assert sum(not place(one).proof for one in kinds) >= 3  # where the solver has something left to do


def large(seed):
    rng = np.random.default_rng(seed)
    ranks = int(rng.choice([4, 8, 16]))
    nodes = int(rng.choice([1, 2, 4]))
    slots = int(rng.integers(2, 7))
    groups = nodes * int(rng.choice([1, 2])) if rng.random() < 0.5 else 1
    experts = ranks * slots
    if experts % groups:
        groups = 1
    if rng.random() < 0.5 and ranks > nodes:  # copies
        slots += 1
    loads = np.ceil(rng.pareto(rng.uniform(0.6, 3.0), experts) * 100) + rng.integers(0, 2)
    off_node = np.floor(loads[:, None] * rng.random((experts, nodes))) if nodes > 1 and rng.random() < 0.5 else None
    return ExpertProblem(loads, ranks, slots, nodes, groups, off_node)


@pytest.mark.parametrize("block", range(8))
def test_never_worse_than_the_greedy_rule_nor_better_than_the_bound(block):
    better = 0
    for seed in range(block * 40, block * 40 + 40):
        problem = large(seed)
        found = place(problem)
        legal(problem, found.placement)
        worst, greedy = problem.worst(found.placement), problem.worst(found.greedy)
        assert worst <= greedy * (1 + 1e-9), seed
        assert worst >= found.bound.value * (1 - 1e-9), seed
        better += worst < greedy * (1 - 1e-9)
    assert better >= 5


def test_the_solver_is_never_worse_than_its_start():
    for seed in range(12):
        problem = large(1000 + seed)
        rule = place(problem)
        found = solved(rule, "cpsat", 0.01)
        legal(problem, found.placement)
        assert problem.worst(found.placement) <= problem.worst(rule.placement) * (1 + 1e-9)
        assert problem.worst(found.placement) >= found.bound.value * (1 - 1e-9)


def test_exchanges_between_nodes_only_lower_the_traffic():
    lower = 0
    for seed in range(60):
        problem = large(seed)
        if problem.off_node is None or problem.nodes == 1:
            continue
        found = place(problem)
        plain = place(ExpertProblem(problem.loads, problem.ranks, problem.slots, problem.nodes, problem.groups))
        assert problem.worst(found.placement) <= problem.worst(plain.placement) * (1 + 1e-9)
        assert problem.traffic(found.placement) <= problem.traffic(plain.placement) * (1 + 1e-9)
        lower += problem.traffic(found.placement) < problem.traffic(plain.placement) * (1 - 1e-9)
    assert lower >= 5


def test_groups_on_nodes_as_even_as_can_be_are_a_bound():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        problem = ExpertProblem(np.floor(rng.pareto(2.0, 64) * 100) + 1, 8, 8 + seed % 2, 4, 16)
        rule = place(problem)
        found = groups_solved(rule, "cpsat", np.inf)
        legal(problem, found.placement)
        assert rule.bound.value <= found.bound.value <= found.worst * (1 + 1e-9) <= rule.worst * (1 + 2e-9)
        assert found.gap <= rule.gap <= 0.03


def test_copies_have_the_smallest_largest_copy():
    rng = random.Random(3)
    for _ in range(50):
        loads = np.array([rng.randint(1, 50) for _ in range(4)], dtype=float)
        extra, most = rng.randint(0, 4), rng.randint(2, 5)
        counts = copies_of(loads, extra, most)
        assert counts.sum() == 4 + extra and counts.max() <= most
        ways = [c for c in np.ndindex(*[most] * 4) if sum(c) == extra]
        assert (loads / counts).max() == pytest.approx(min(max(loads / (np.array(c) + 1)) for c in ways))


def test_a_hot_expert_stands_with_the_lightest():
    loads = np.array([100.0, 1, 2, 3, 10, 11, 12, 13])
    found = place(ExpertProblem(loads, 4, 2))
    assert found.worst == 101.0 and found.proof == "bound"
    assert found.bound.why == "hottest expert and the lightest fillers"


@pytest.mark.parametrize("top_k", [1, 16])
@pytest.mark.parametrize("slots", [6, 7])
def test_large_layers_are_within_one_percent_of_the_bound(top_k, slots):
    loads = zipf(1.2, layers=4, experts=384, tokens=131072, top_k=top_k, seed=1).loads[0]
    for layer in loads:
        found = place(ExpertProblem(layer, 64, slots))
        assert found.gap <= 0.01
        assert found.worst <= layer.reshape(64, 6).sum(axis=1).max()
        if slots == 7:  # one copy more on each rank makes the ranks nearly even
            assert found.worst <= 1.01 * layer.sum() / 64


@pytest.mark.parametrize("top_k", [1, 16])
@pytest.mark.parametrize("groups", [8, 16])
def test_copies_in_groups_inside_nodes_are_near_their_bound(top_k, groups):
    gaps = []
    for layer in zipf(1.2, layers=3, experts=384, tokens=131072, top_k=top_k, seed=0).loads[0]:
        found = place(ExpertProblem(layer, 64, 7, 8, groups))
        legal(found.problem, found.placement)
        assert found.worst <= found.problem.worst(found.greedy) * (1 + 1e-9)
        gaps.append(found.gap)
    assert max(gaps) <= (0.01 if groups == 8 else 0.015)
    assert np.mean(gaps) <= 0.005


def test_the_same_input_gives_the_same_placement():
    loads = dirichlet(3.0, layers=1, experts=64, tokens=4096, top_k=4, seed=5).loads[0, 0]
    first, second = (solved(place(ExpertProblem(loads, 8, 9)), "cpsat", 0.05) for _ in range(2))
    assert (first.placement == second.placement).all() and first.proof == second.proof


def test_ranks_are_renamed_so_that_no_rank_is_heavy_in_every_layer():
    loads = zipf(1.2, layers=16, experts=64, tokens=4096, top_k=4, seed=2).loads[0]
    layers = [place(ExpertProblem(layer, 16, 4)) for layer in loads]
    renamed = spread_over_layers(layers)

    def held(them: list[Placed]) -> float:
        total = sum(one.problem.rank_loads(one.placement) for one in them)
        return float(total.max() / total.mean())

    assert held(renamed) < 1.2
    assert held(layers) > 2.0
    for before, after in zip(layers, renamed, strict=True):
        assert sorted(map(sorted, before.placement.tolist())) == sorted(after.placement.tolist())


def test_bound_of_whole_loads_is_whole():
    assert bound_of(ExpertProblem(np.array([3.0, 3, 2, 3]), 2, 2)).value == 6.0


def test_the_greedy_rule_by_hand():
    # 7 | 6 | 5 then 4 to the 5, 3 to the 6, 1 to the 7.
    found = longest_first(ExpertProblem(np.array([7.0, 6, 5, 4, 3, 1]), 3, 2))
    assert [sorted(row) for row in found.tolist()] == [[0, 5], [1, 4], [2, 3]]


def test_the_bound_of_the_traffic_is_near_where_nothing_else_binds():
    # One expert for each of 8 nodes, and sources that each want their own: the bound is reached.
    rng = np.random.default_rng(4)
    for _ in range(20):
        sources = np.floor(rng.random((8, 8)) * 1000)
        loads = sources.sum(axis=0)
        problem = ExpertProblem(loads, 8, 1, 8, 1, (loads[None] - sources).T)
        exact = solve_experts(problem, np.arange(8)[:, None], "cpsat")
        least = problem.traffic(exact.placement)
        assert least * 0.99 <= traffic_bound(problem, float(loads.max()), least) <= least * (1 + 1e-9)
