"""Lengths of trajectories as plain arrays: values and their shares.

Contents: Lengths, constant, lognormal, listed_lengths, from_quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from mapsearch.quantity import Floats

_POINTS = 1024
"""Equally likely values that a continuous distribution becomes."""


@dataclass(frozen=True)
class Lengths:
    """A distribution of tokens per trajectory: values, and the share of trajectories that each has."""

    tokens: Floats
    shares: Floats

    @property
    def mean(self) -> float:
        """Mean. Unit: tokens."""
        return float(self.tokens @ self.shares)

    @property
    def longest(self) -> float:
        """Largest value that occurs. Unit: tokens."""
        return float(self.tokens[self.shares > 0.0].max())

    def drawn(self, chance: np.random.Generator, count: int) -> Floats:
        """So many independent lengths. Unit: tokens."""
        places = np.searchsorted(np.cumsum(self.shares), chance.random(count), side="right")
        return np.asarray(self.tokens[np.minimum(places, len(self.tokens) - 1)])


def constant(tokens: float) -> Lengths:
    """Every trajectory is equally long. Unit: tokens."""
    return Lengths(np.array([float(tokens)]), np.ones(1))


def listed_lengths(tokens: Sequence[float], weights: Sequence[float] = ()) -> Lengths:
    """Measured lengths, equally likely or with weights of any scale. Unit: tokens."""
    parts = np.asarray(weights if len(weights) else [1.0] * len(tokens), dtype=np.float64)
    return Lengths(np.asarray(tokens, dtype=np.float64), parts / parts.sum())


def lognormal(mean_tokens: float, cv: float) -> Lengths:
    """A lognormal of given mean and standard deviation over mean, as equally likely values with that exact mean."""
    if cv == 0.0:
        return constant(mean_tokens)
    width = float(np.sqrt(np.log1p(cv * cv)))
    normal = NormalDist()
    values = np.exp([width * normal.inv_cdf((place + 0.5) / _POINTS) for place in range(_POINTS)])
    return listed_lengths(values * (mean_tokens / values.mean()))


def from_quantiles(shares: Sequence[float], tokens: Sequence[float]) -> Lengths:
    """Straight lines between quantiles: `tokens[i]` is not exceeded by the share `shares[i]`, from 0 to 1."""
    middles = (np.arange(_POINTS) + 0.5) / _POINTS
    return listed_lengths(np.interp(middles, np.asarray(shares), np.asarray(tokens)))
