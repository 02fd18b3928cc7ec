"""Lengths of prompts and responses as distributions, and what their tail costs (order statistics).

Contents: Distribution, distribution, mean_tokens, largest_tokens, remaining_tokens, largest_remaining_tokens,
held_tokens, batch_finish_tokens.

A distribution is its lengths in rising order with their probabilities. Quantiles become STEPS equal shares, each at
the length of its middle. Time is counted in tokens: one token of every request under way per decode step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapsearch.inventories.rollout import Lengths
from mapsearch.quantity import Floats

STEPS = 2048
"""Equal shares that quantiles are cut into: the mean of a straight piece is exact, its largest within 1/4096 of it."""


class Distribution(NamedTuple):
    """Lengths in rising order and the probability of each."""

    lengths: Floats
    chances: Floats


def distribution(given: Lengths) -> Distribution:
    """The distribution that values, a histogram or quantiles describe. Unit: tokens and shares."""
    if given.quantiles:
        shares = np.array(sorted(given.quantiles))
        ends = np.array([given.quantiles[share] for share in shares])
        middles = (np.arange(STEPS) + 0.5) / STEPS
        return Distribution(np.interp(middles, shares, ends), np.full(STEPS, 1.0 / STEPS))
    counted = [(float(length), weight) for length, weight in given.histogram.items()]
    each = counted or [(value, 1.0) for value in given.values]
    lengths, place = np.unique(np.array([length for length, _ in each], dtype=np.float64), return_inverse=True)
    weights = np.bincount(place, weights=[weight for _, weight in each])
    return Distribution(lengths, weights / weights.sum())


def mean_tokens(lengths: Distribution) -> float:
    """Mean length. Unit: tokens."""
    return float(lengths.lengths @ lengths.chances)


def largest_tokens(lengths: Distribution, count: float) -> float:
    """Expected longest of `count` independent lengths: sum of x [F(x)^n - F(x-)^n]. Unit: tokens.

    Source: order statistics of a discrete distribution. Ignores: that responses to one prompt resemble each other.
    """
    below = np.concatenate([[0.0], np.minimum(np.cumsum(lengths.chances), 1.0)])
    below[-1] = 1.0
    return float(lengths.lengths @ np.diff(below**count))


def remaining_tokens(lengths: Distribution) -> float:
    """Mean rest of a request met at a random moment: E[x^2] / (2 E[x]); its mean age is the same. Unit: tokens.

    Source: renewal theory (inspection paradox): long requests are met more often.
    """
    return float(lengths.lengths**2 @ lengths.chances) / (2.0 * mean_tokens(lengths))


def largest_remaining_tokens(lengths: Distribution, count: float) -> float:
    """Expected longest rest among `count` requests met at a random moment. Unit: tokens.

    The rest exceeds t with chance G(t) = E[(x - t)+] / E[x]; the longest of n: integral of 1 - (1 - G)^n, by
    trapezoids between the lengths. Source: renewal theory.
    """
    grid = _refined(lengths.lengths)
    above = np.concatenate([np.cumsum((lengths.lengths * lengths.chances)[::-1])[::-1], [0.0]])
    many = np.concatenate([np.cumsum(lengths.chances[::-1])[::-1], [0.0]])
    place = np.searchsorted(lengths.lengths, grid, side="right")
    over = np.clip((above[place] - grid * many[place]) / mean_tokens(lengths), 0.0, 1.0)
    return float(np.trapezoid(1.0 - (1.0 - over) ** count, grid))


def _refined(lengths: Floats) -> Floats:
    """0, every length, and equal steps in between."""
    return np.unique(np.concatenate([np.linspace(0.0, float(lengths[-1]), 2 * STEPS + 1), lengths]))


def held_tokens(prompts: Distribution, responses: Distribution) -> float:
    """Mean tokens in the cache of a request under way: its prompt and what it has generated so far. Unit: tokens.

    E[p] + E[r^2] / (2 E[r]): longer responses are under way for longer. Source: renewal theory.
    Ignores: a dependence between the lengths of prompt and response.
    """
    return mean_tokens(prompts) + remaining_tokens(responses)


def batch_finish_tokens(responses: Distribution, count: float, slots: float) -> float:
    """Decode steps until the last of `count` requests ends that share `slots` places, as places become free.

    count <= slots: the longest. Otherwise places are full until none waits: count E[r] / slots - E[rest], and then the
    longest rest of `slots` requests is left. Unit: tokens (decode steps). Source: renewal theory; exact for many
    requests per place.
    """
    if count <= slots:
        return largest_tokens(responses, count)
    full = count * mean_tokens(responses) / slots - remaining_tokens(responses)
    return max(full + largest_remaining_tokens(responses, slots), largest_tokens(responses, count))
