"""Seconds that the trajectories of a loop take, as distributions.

Contents: durations, delayed.
"""

from __future__ import annotations

import numpy as np

from mapsearch.costs.lengths import Distribution, lognormal
from mapsearch.looping.facts import LoopFacts
from mapsearch.quantity import Floats

_SPEEDS = 65
_MOST = 256
"""Points that a factor of a product of distributions keeps."""


def durations(facts: LoopFacts, *, by_tokens: bool = False) -> Distribution:
    """Times of the trajectories of a loop when none waits and rollout does not pause. Unit: s.

    `by_tokens`: shares are of tokens rather than of trajectories.
    """
    lengths = facts.lengths
    shares = lengths.shares * lengths.values / lengths.mean if by_tokens else lengths.shares
    times = Distribution(np.asarray(facts.seconds(lengths.values)), shares)
    if facts.speed_cv == 0.0:
        return times
    slow = _coarse(lognormal(1.0, facts.speed_cv), _SPEEDS)
    return _outer(_coarse(times, _MOST), slow.values, slow.shares, np.multiply)


def delayed(times: Distribution, share: float, span_s: float) -> Distribution:
    """With a delay before it: none for so large a share, evenly spread from 0 to `span_s` for the others."""
    if share >= 1.0 or span_s <= 0.0:
        return times
    delays = np.concatenate([[0.0], (np.arange(32) + 0.5) / 32 * span_s])
    parts = np.concatenate([[share], np.full(32, (1.0 - share) / 32)])
    return _outer(_coarse(times, _MOST), delays, parts, np.add)


def _coarse(one: Distribution, most: int) -> Distribution:
    """On fewer points, so that a product of two stays small; the mean is kept."""
    if len(one.values) <= most:
        return one
    edges = np.linspace(0, len(one.values), most + 1).astype(int)
    parts = np.add.reduceat(one.shares, edges[:-1])
    sums = np.add.reduceat(one.shares * one.values, edges[:-1])
    return Distribution(sums / np.where(parts > 0.0, parts, 1.0), parts)


def _outer(one: Distribution, others: Floats, parts: Floats, join: np.ufunc) -> Distribution:
    values = join.outer(one.values, others).ravel()
    shares = np.outer(one.shares, parts).ravel()
    order = np.argsort(values, kind="stable")
    return Distribution(values[order], shares[order])
