"""Figures of loads: FORMULAS 1.4's tables, cases by hand, and synthetic loads."""

import numpy as np
import pytest

from mapsearch.costs import routing
from mapsearch.experts.histogram import histogram_of
from mapsearch.experts.statistics import (
    capacity_use,
    least_factor,
    mean_spread,
    off_unit,
    pair_skew,
    rank_loads,
    skew,
    spread,
    variation,
)
from mapsearch.experts.synthetic import dealt, dirichlet, zipf
from mapsearch.experts.values import capacity_rows, values_of

N, E, K = 131072, 384, 16


def even():
    """A router as even as whole tokens allow."""
    loads = np.full(E, N * K // E, dtype=float)
    loads[: N * K - int(loads.sum())] += 1
    return loads


@pytest.mark.parametrize(
    ("factor", "slots", "use", "amplified"),
    [(1.00, 5462, 0.99988, 1.00012), (1.25, 6827, 0.79996, 1.25006), (1.50, 8192, 0.66667, 1.50000)],
)
def test_capacity_table_of_an_even_router(factor, slots, use, amplified):
    # F1.4: C, A / (E C) and E C / A for 131,072 tokens of which each takes 16 of 384 experts.
    found = capacity_use(even(), factor)
    assert found.slots == slots
    assert float(found.use) == pytest.approx(use, abs=5e-6)
    assert float(found.drop_rate) == pytest.approx(0.0, abs=1e-12)
    row = next(row for row in capacity_rows(histogram_of(even(), "even"), ()) if row.capacity_factor == factor)
    assert row.amplification == pytest.approx(amplified, abs=5e-6)
    assert row.waste == pytest.approx(1.0 - use, abs=5e-6)


def test_a_factor_of_one_drops_under_any_imbalance():
    loads = even()
    loads[0] += 2000
    loads[1] -= 2000
    found = capacity_use(loads, 1.0)
    assert float(found.drop_rate) == pytest.approx((loads[0] - 5462) / (N * K))
    assert 0.0 < float(found.drop_rate) < 0.001


def test_the_worst_case_is_24_times_the_mean():
    # F1.4: min(K, E/R) R / K = 24 from 32 ranks on: one rank receives every assignment that can go to it.
    loads = np.zeros(E)
    loads[:K] = N
    assert skew(loads) == 24.0
    for ranks, most in ((8, 8.0), (16, 16.0), (32, 24.0), (64, 6 * 4.0)):
        placement = np.arange(E).reshape(ranks, -1)
        worst = np.zeros(E)
        held = min(K, E // ranks)
        worst[:held] = N  # the first rank's experts take every token, the rest are spread over others
        worst[E // ranks : E // ranks + K - held] = N
        assert skew(rank_loads(worst, placement)) == pytest.approx(most)
        assert routing.worst_case_amplification(ranks, experts=E, top_k=K) == most


def test_distinct_ranks_against_sampled_routers():
    # F1.4: u_R = 7.10 of 8 ranks, 14.51 of 64 for uniform routing of 16 of 384 experts.
    rng = np.random.default_rng(0)
    picks = np.argsort(rng.random((4000, E)), axis=1)[:, :K]
    for ranks, expected in ((8, 7.10), (64, 14.51)):
        seen = np.mean([len(set(row // (E // ranks))) for row in picks])
        assert seen == pytest.approx(expected, abs=0.05)


def test_figures_by_hand():
    loads = np.array([1.0, 2.0, 3.0, 6.0])
    assert skew(loads) == 2.0
    assert variation(loads) == pytest.approx(np.sqrt(3.5) / 3.0)
    told = spread(loads)
    assert (told.min, told.mean, told.max, told.skew) == (1.0, 3.0, 6.0, 2.0)
    assert told.p95 == pytest.approx(6.0 - 0.15 * 3.0)
    assert mean_spread(np.array([[1.0, 3.0], [2.0, 2.0]])).skew == 1.25


def test_copies_share_the_load_of_their_expert():
    placement = np.array([[0, 1], [0, 2], [0, 3]])
    assert list(rank_loads(np.array([9.0, 1.0, 2.0, 3.0]), placement)) == [4.0, 5.0, 6.0]


def test_pairs_are_the_traffic_matrix():
    tokens = np.array([[4.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]])  # sources by experts
    placement = np.array([[0, 1], [2, 3]])
    # Source 0 sends 4 and 2, source 1 sends 0 and 2: largest 4 over a mean of 2; the ranks' own skew is 1.
    assert pair_skew(tokens, placement) == 2.0
    assert skew(rank_loads(tokens.sum(axis=0), placement)) == 1.0
    assert off_unit(tokens, np.array([0, 1]), 2).tolist() == [[0.0, 4.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("limit", [0.0, 0.001, 0.05, 0.4])
def test_the_least_factor_just_keeps_within_the_limit(limit):
    loads = zipf(0.8, layers=3, experts=32, tokens=100_000, top_k=4, seed=1).loads
    factor = least_factor(loads, limit)
    dropped = [
        float((loads.sum(-1) * capacity_use(loads, f).drop_rate).sum() / loads.sum()) for f in (factor, factor - 0.01)
    ]
    assert dropped[0] <= limit + 1e-9
    assert factor == 1.0 or dropped[1] > limit


def test_memory_adds_up_over_layers_and_time_waits_for_each():
    # The hot rank is another one in each layer: every layer waits, and no rank holds more than the others.
    histogram = histogram_of(np.array([[3.0, 1.0], [1.0, 3.0]]), "two")
    told = values_of(histogram, [np.array([[0], [1]])] * 2, 0.0)
    assert (told.time_skew, told.memory_skew, told.rank_skew) == (1.5, 1.0, 1.5)
    same = values_of(histogram_of(np.array([[3.0, 1.0], [3.0, 1.0]]), "same"), [np.array([[0], [1]])] * 2, 0.0)
    assert same.memory_skew == 1.5


@pytest.mark.parametrize("top_k", [1, 8])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.2, 4.0])
def test_synthetic_loads_add_up_and_no_expert_takes_a_token_twice(exponent, top_k):
    loads = zipf(exponent, layers=5, experts=48, tokens=1000, top_k=top_k, seed=3).loads[0]
    assert (loads.sum(axis=1) == 1000 * top_k).all()
    assert (loads <= 1000).all() and (loads == np.rint(loads)).all()
    assert (zipf(exponent, layers=5, experts=48, tokens=1000, top_k=top_k, seed=3).loads[0] == loads).all()
    if 0.0 < exponent < 4.0:
        assert (zipf(exponent, layers=5, experts=48, tokens=1000, top_k=top_k, seed=4).loads[0] != loads).any()


def test_zipf_follows_its_exponent_where_nothing_is_cut():
    loads = np.sort(zipf(1.2, layers=1, experts=384, tokens=10**9, top_k=1, seed=0).loads[0, 0])[::-1]
    assert loads[0] / loads[99] == pytest.approx(100**1.2, rel=1e-4)


def test_what_is_cut_goes_to_the_others_in_proportion():
    found = dealt(np.array([8.0, 1.0, 1.0, 2.0]), 100.0, 2)
    assert found.tolist() == [100.0, 25.0, 25.0, 50.0]


@pytest.mark.parametrize("largest", [1.2, 3.0, 10.0])
def test_dirichlet_has_the_largest_over_mean_asked_for(largest):
    loads = dirichlet(largest, layers=80, experts=384, tokens=N, top_k=K, seed=7).loads
    assert float(skew(loads).mean()) == pytest.approx(largest, rel=2e-3)
    assert (loads.sum(axis=-1) == N * K).all()
