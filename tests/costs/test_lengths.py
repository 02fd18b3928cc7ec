"""Order statistics and renewal sums of lengths, against closed forms, plain sampling and an event simulation."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest

from mapsearch.costs import lengths
from mapsearch.inventories.base import validate
from mapsearch.inventories.lengths import Lengths
from mapsearch.inventories.rollout import Rollout

LONG_TAIL = {0: 128, 0.5: 2048, 0.9: 8192, 1: 16384}


def told(**given):
    return lengths.distribution(Lengths.model_validate(given))


def test_values_a_histogram_and_quantiles_of_the_same_lengths_agree():
    values = told(values=[10, 10, 20, 40])
    histogram = told(histogram={10: 2, 20: 1, 40: 1})
    np.testing.assert_allclose(values.values, histogram.values)
    np.testing.assert_allclose(values.shares, histogram.shares)
    assert values.mean == 20.0
    uniform = told(quantiles={0: 100, 1: 300})
    assert uniform.mean == pytest.approx(200.0)


def test_the_longest_of_n_uniform_lengths_is_n_of_n_plus_1():
    uniform = told(quantiles={0: 1e-9, 1: 1.0})
    for count in (1, 2, 9, 99):
        assert uniform.last_of(count) == pytest.approx(count / (count + 1), rel=2e-3)


def test_a_die_thrown_twice():
    die = told(values=[1, 2, 3, 4, 5, 6])
    pairs = [max(pair) for pair in itertools.product(range(1, 7), repeat=2)]
    assert die.last_of(2) == pytest.approx(np.mean(pairs))


def test_what_is_left_of_equal_lengths_is_half_and_the_longest_rest_nearly_all():
    equal = told(values=[100.0])
    assert equal.mean_rest == 50.0
    for count in (1, 4, 99):  # rests of equal requests are uniform
        assert equal.rest().last_of(count) == pytest.approx(100 * count / (count + 1), rel=1e-3)


def test_the_longest_rest_is_that_of_requests_met_at_random_moments():
    given = told(quantiles=LONG_TAIL)
    dice = np.random.default_rng(1)
    met = dice.choice(given.values, p=given.values * given.shares / given.mean, size=(4000, 64))
    rest = (met * dice.random(met.shape)).max(axis=1)
    assert given.rest().last_of(64) == pytest.approx(rest.mean(), rel=0.01)


def simulated_finish(given, count, slots, seed):
    """List scheduling, event by event: a place that becomes free takes the next request."""
    drawn = np.random.default_rng(seed).choice(given.values, p=given.shares, size=count)
    places = [0.0] * slots
    for length in drawn:
        heapq.heappush(places, heapq.heappop(places) + length)
    return max(places)


@pytest.mark.parametrize(("count", "slots"), [(64, 64), (512, 64), (2048, 64), (2048, 256), (300, 512)])
def test_the_finish_of_a_batch_is_that_of_the_event_simulation(count, slots):
    given = told(quantiles=LONG_TAIL)
    runs = [simulated_finish(given, count, slots, seed) for seed in range(40)]
    predicted = lengths.batch_finish_tokens(given, count, slots)
    assert predicted == pytest.approx(np.mean(runs), rel=0.05)


def test_cache_that_a_request_holds_counts_the_time_it_is_held():
    prompts, responses = told(values=[100]), told(values=[10, 90])
    held = sum(100 * r + r * r / 2 for r in (10, 90)) / (10 + 90)
    assert lengths.held_tokens(prompts, responses) == pytest.approx(held)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "exactly one"),
        ({"values": [1], "histogram": {1: 1}}, "exactly one"),
        ({"quantiles": {0.1: 5, 1: 9}}, "give 0 and 1"),
        ({"quantiles": {0: 9, 1: 5}}, "fall"),
        ({"histogram": {0: 1}}, "at least 1"),
    ],
)
def test_lengths_that_say_nothing_are_refused(given, problem):
    with pytest.raises(ValueError, match=problem):
        Lengths.model_validate(given)


def test_a_rollout_names_what_it_lacks():
    with pytest.raises(Exception, match=r"publishing: is missing"):
        validate(
            Rollout,
            {
                "name": "x",
                "prompt_tokens": {"values": [1]},
                "response_tokens": {"values": [1]},
                "concurrency": 1,
                "filter_yield": 1,
                "versions": 1,
            },
            file="x.yaml",
        )
