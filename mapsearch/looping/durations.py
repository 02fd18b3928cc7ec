"""Seconds that trajectories take, as a distribution on points: shares over a time, residual times, the last of many.

Contents: Durations, durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from mapsearch.looping.facts import LoopFacts
from mapsearch.quantity import Floats, Num

_SPEEDS = 65
_RESIDUES = 256
_MOST = 2048
"""Points that a distribution keeps."""


@dataclass(frozen=True)
class Durations:
    """Times in rising order, and the share of trajectories that each has."""

    seconds: Floats
    shares: Floats

    @property
    def mean(self) -> float:
        """Mean. Unit: s."""
        return float(self.seconds @ self.shares)

    def within(self, time_s: Num) -> Floats:
        """Share that takes at most so long; 0 below zero. Axes: any."""
        sums = np.concatenate([[0.0], np.cumsum(self.shares)])
        return np.asarray(sums[np.searchsorted(self.seconds, np.asarray(time_s, dtype=np.float64), side="right")])

    def quantile(self, share: float) -> float:
        """The least time within which so large a share ends. Unit: s."""
        place = int(np.searchsorted(np.cumsum(self.shares), share - 1e-12))
        return float(self.seconds[min(place, len(self.seconds) - 1)])

    def last_of(self, count: float) -> float:
        """Mean of the longest of so many independent ones. Unit: s."""
        powers = np.concatenate([[0.0], np.minimum(np.cumsum(self.shares), 1.0) ** count])
        powers[-1] = 1.0
        return float(self.seconds @ np.diff(powers))

    def residual(self) -> Durations:
        """What is left of one that is looked at some time after its start: density S(t) / mean."""
        evenly = (np.arange(_RESIDUES) + 0.5) / _RESIDUES * self.seconds[-1]
        points = np.unique(np.concatenate([self.seconds, evenly]))
        edges = np.concatenate([[0.0], points])
        middles = (edges[1:] + edges[:-1]) / 2.0
        return Durations(middles, np.diff(edges) * (1.0 - self.within(middles)) / self.mean)

    def plus_uniform(self, share: float, span_s: float) -> Durations:
        """With a delay before it: none for so large a share, evenly spread from 0 to `span_s` for the others."""
        if share >= 1.0 or span_s <= 0.0:
            return self
        delays = np.concatenate([[0.0], (np.arange(32) + 0.5) / 32 * span_s])
        parts = np.concatenate([[share], np.full(32, (1.0 - share) / 32)])
        return _outer(_coarse(self), delays, parts, np.add)


def durations(facts: LoopFacts, *, by_tokens: bool = False) -> Durations:
    """Times of the trajectories of a loop when none waits and rollout does not pause. Unit: s.

    `by_tokens`: shares are of tokens rather than of trajectories.
    """
    order = np.argsort(facts.lengths.tokens)
    tokens, shares = facts.lengths.tokens[order], facts.lengths.shares[order]
    if by_tokens:
        shares = shares * tokens / facts.lengths.mean
    lengths = Durations(tokens * (facts.concurrency / facts.rollout_tokens_per_s), shares)
    if facts.speed_cv == 0.0:
        return lengths
    width = float(np.sqrt(np.log1p(facts.speed_cv**2)))
    normal = NormalDist()
    slow = np.exp([width * normal.inv_cdf((place + 0.5) / _SPEEDS) for place in range(_SPEEDS)])
    return _outer(_coarse(lengths), slow / slow.mean(), np.full(_SPEEDS, 1.0 / _SPEEDS), np.multiply)


def _coarse(one: Durations) -> Durations:
    """On fewer points, so that a product of two stays small; the mean is kept."""
    if len(one.seconds) <= _MOST // 8:
        return one
    edges = np.linspace(0, len(one.seconds), _MOST // 8 + 1).astype(int)
    parts = np.add.reduceat(one.shares, edges[:-1])
    sums = np.add.reduceat(one.shares * one.seconds, edges[:-1])
    return Durations(sums / np.where(parts > 0.0, parts, 1.0), parts)


def _outer(one: Durations, others: Floats, parts: Floats, join: np.ufunc) -> Durations:
    seconds = join.outer(one.seconds, others).ravel()
    shares = np.outer(one.shares, parts).ravel()
    order = np.argsort(seconds, kind="stable")
    return Durations(seconds[order], shares[order])
