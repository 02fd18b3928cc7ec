"""Dominance among vectors of objectives, all minimised.

Contents: ROUNDING, dominates, minimal, told_apart, Shield.

A vector dominates another that it is nowhere above and somewhere below; equal ones do not dominate each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.quantity import Floats

Mask = NDArray[np.bool_]
CHUNK = 4096
"""Vectors compared with a whole front at a time; bounds the memory of the comparison."""


ROUNDING = 1e-12
"""Relative difference below which two values may be one sum of the same terms in another order."""


def dominates(first: Floats, second: Floats) -> Mask:
    """Whether `first` dominates `second`; the objective is the last dimension, the others broadcast."""
    return np.asarray((first <= second).all(axis=-1) & (first < second).any(axis=-1))


def minimal(values: Floats) -> NDArray[np.intp]:
    """Positions of the vectors that no other one dominates, in order; equal ones all stay. Shape: (count, axes)."""
    if not len(values):
        return np.arange(0)
    # In lexicographic order a vector is dominated by one before it only, and by a minimal one.
    order = np.lexsort(values.T[::-1])
    sorted_values = values[order]
    if values.shape[1] == 2:
        return np.sort(order[_minimal_pairs(sorted_values)])
    kept: list[int] = []
    alive = np.ones(len(order), dtype=bool)
    for place in range(len(order)):
        if alive[place]:
            kept.append(place)
            alive[place + 1 :] &= ~dominates(sorted_values[place], sorted_values[place + 1 :])
    return np.sort(order[kept])


def _minimal_pairs(values: Floats) -> Mask:
    """As `minimal` for sorted vectors of two: those below all before them, or equal to the last such."""
    second = values[:, 1]
    before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
    lower = second < before
    leader = np.maximum.accumulate(np.where(lower, np.arange(len(values)), 0))
    return np.asarray(lower | (values == values[leader]).all(axis=1))


def told_apart(values: Floats) -> NDArray[np.intp]:
    """Positions of the vectors that are better than every other one by more than rounding somewhere, in order.

    A minimal vector may owe its place to a unit in the last place of one objective: without it, another one is as good
    there and better elsewhere. Of vectors that differ by rounding only the first stays. Shape: (count, axes).
    """
    kept = []
    for place, vector in enumerate(values):
        slack = ROUNDING * np.abs(vector)
        as_good = (values <= vector + slack).all(axis=1)
        better = as_good & (values < vector - slack).any(axis=1)
        if not better.any() and not (as_good[:place] & (values[:place] >= vector - slack).all(axis=1)).any():
            kept.append(place)
    return np.array(kept, dtype=np.intp)


@dataclass(frozen=True)
class Shield:
    """A front as mappings with one number of devices see it: what it excludes by time, memory and exposure."""

    time_s: Floats
    """A point excludes mappings that are slower than this,"""
    memory: Floats
    """need as much memory or more (-inf when memory is no objective),"""
    exposed: Floats | None
    """and expose as much or more (None when exposure is no objective)."""

    def hides(self, time_s: Floats, memory: Floats, exposed: Floats | None) -> Mask:
        """Which vectors (or bounds of vectors) some point strictly beats in time and is not above otherwise."""
        time_s, memory = np.broadcast_arrays(time_s, memory)
        if not len(self.time_s):
            return np.zeros(time_s.shape, dtype=bool)
        if self.exposed is None or exposed is None:
            order = np.argsort(self.memory, kind="stable")
            best = np.concatenate([[np.inf], np.minimum.accumulate(self.time_s[order])])
            return time_s > best[np.searchsorted(self.memory[order], memory, side="right")]
        share = np.broadcast_to(exposed, time_s.shape).reshape(-1)
        flat_t, flat_m = time_s.reshape(-1), memory.reshape(-1)
        hidden = np.zeros(len(flat_t), dtype=bool)
        for start in range(0, len(flat_t), CHUNK):
            here = slice(start, start + CHUNK)
            hidden[here] = (
                (flat_t[here, None] > self.time_s)
                & (flat_m[here, None] >= self.memory)
                & (share[here, None] >= self.exposed)
            ).any(axis=1)
        return hidden.reshape(time_s.shape)
