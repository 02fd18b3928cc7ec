"""Distributions of lengths and of times: means, tails, what is left of one that is met, the last of many.

Contents: Distribution, distribution, constant, listed, lognormal, from_quantiles, held_tokens, batch_finish_tokens.

A distribution is its values in rising order with their shares, in tokens or in seconds. What is continuous becomes
STEPS equal shares, each at the value of its middle. Time is counted in tokens where nothing else is said: one token of
every request under way per decode step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from mapsearch.inventories.lengths import Lengths
from mapsearch.quantity import Floats, Num

STEPS = 2048
"""Equal shares that quantiles are cut into: the mean of a straight piece is exact, its largest within 1/4096 of it."""


@dataclass(frozen=True, eq=False)
class Distribution:
    """Values in rising order, and the share of each."""

    values: Floats
    shares: Floats

    @cached_property
    def mean(self) -> float:
        """Mean. Unit: that of the values."""
        return float(self.values @ self.shares)

    @property
    def longest(self) -> float:
        """Largest value that occurs. Unit: that of the values."""
        return float(self.values[self.shares > 0.0].max())

    @cached_property
    def mean_rest(self) -> float:
        """Mean rest of one that is met at a random moment: E[x^2] / (2 E[x]); its mean age is the same.

        Unit: that of the values. Source: renewal theory (inspection paradox): long ones are met more often.
        """
        return float(self.values**2 @ self.shares) / (2.0 * self.mean)

    def within(self, value: Num) -> Floats:
        """Share of at most so much; 0 below zero. Axes: any."""
        sums = np.concatenate([[0.0], np.cumsum(self.shares)])
        return np.asarray(sums[np.searchsorted(self.values, np.asarray(value, dtype=np.float64), side="right")])

    def quantile(self, share: float) -> float:
        """The least value that so large a share does not exceed. Unit: that of the values."""
        place = int(np.searchsorted(np.cumsum(self.shares), share - 1e-12))
        return float(self.values[min(place, len(self.values) - 1)])

    def last_of(self, count: float) -> float:
        """Expected largest of so many independent ones: sum of x [F(x)^n - F(x-)^n]. Unit: that of the values.

        Source: order statistics of a discrete distribution. Ignores: that responses to one prompt resemble each other.
        """
        below = np.concatenate([[0.0], np.minimum(np.cumsum(self.shares), 1.0)])
        below[-1] = 1.0
        return float(self.values @ np.diff(below**count))

    def rest(self) -> Distribution:
        """What is left of one that is met at a random moment: density S(t) / mean, in small steps.

        Source: renewal theory. Its mean is `mean_rest`, but for the steps.
        """
        evenly = np.linspace(0.0, float(self.values[-1]), 2 * STEPS + 1)
        edges = np.unique(np.concatenate([evenly, self.values]))
        middles = (edges[1:] + edges[:-1]) / 2.0
        parts = np.diff(edges) * (1.0 - self.within(middles)) / self.mean
        return Distribution(middles, parts / parts.sum())

    def times(self, factor: float) -> Distribution:
        """Every value times a positive factor."""
        return Distribution(self.values * factor, self.shares)

    def plus(self, amount: float) -> Distribution:
        """Every value and so much."""
        return Distribution(self.values + amount, self.shares)

    def drawn(self, chance: np.random.Generator, count: int) -> Floats:
        """So many independent values. Unit: that of the values."""
        places = np.searchsorted(np.cumsum(self.shares), chance.random(count), side="right")
        return np.asarray(self.values[np.minimum(places, len(self.values) - 1)])


def distribution(given: Lengths) -> Distribution:
    """The distribution that a record describes. Unit: tokens."""
    if given.quantiles:
        shares = sorted(given.quantiles)
        return from_quantiles(shares, [given.quantiles[share] for share in shares])
    if given.histogram:
        return listed([float(length) for length in given.histogram], list(given.histogram.values()))
    if given.values:
        return listed(given.values, given.weights)
    return lognormal(float(given.mean or 0.0), float(given.cv or 0.0))


def constant(value: float) -> Distribution:
    """All are equally long."""
    return Distribution(np.array([float(value)]), np.ones(1))


def listed(values: Sequence[float] | Floats, weights: Sequence[float] = ()) -> Distribution:
    """Measured values, equally likely or with weights of any scale; equal ones become one."""
    parts = np.asarray(weights if len(weights) else np.ones(len(values)), dtype=np.float64)
    rising, place = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)
    return Distribution(rising, np.bincount(place, weights=parts) / parts.sum())


def lognormal(mean: float, cv: float) -> Distribution:
    """A lognormal of given mean and standard deviation over mean, in equal shares with that exact mean."""
    if cv == 0.0:
        return constant(mean)
    width, normal = float(np.sqrt(np.log1p(cv * cv))), NormalDist()
    values = np.exp([width * normal.inv_cdf((place + 0.5) / STEPS) for place in range(STEPS)])
    return Distribution(values * (mean / values.mean()), np.full(STEPS, 1.0 / STEPS))


def from_quantiles(shares: Sequence[float], values: Sequence[float]) -> Distribution:
    """Straight lines between quantiles: `values[i]` is not exceeded by the share `shares[i]`, from 0 to 1."""
    middles = (np.arange(STEPS) + 0.5) / STEPS
    return Distribution(np.interp(middles, np.asarray(shares), np.asarray(values)), np.full(STEPS, 1.0 / STEPS))


def held_tokens(prompts: Distribution, responses: Distribution) -> float:
    """Mean tokens in the cache of a request under way: its prompt and what it has generated so far. Unit: tokens.

    E[p] + E[r^2] / (2 E[r]): longer responses are under way for longer. Source: renewal theory.
    Ignores: a dependence between the lengths of prompt and response.
    """
    return prompts.mean + responses.mean_rest


def batch_finish_tokens(responses: Distribution, count: float, slots: float) -> float:
    """Decode steps until the last of `count` requests ends that share `slots` places, as places become free.

    count <= slots: the longest. Otherwise places are full until none waits: count E[r] / slots - E[rest], and then the
    longest rest of `slots` requests is left. Unit: tokens (decode steps). Source: renewal theory; exact for many
    requests per place.
    """
    if count <= slots:
        return responses.last_of(count)
    full = count * responses.mean / slots - responses.mean_rest
    return max(full + responses.rest().last_of(slots), responses.last_of(count))
