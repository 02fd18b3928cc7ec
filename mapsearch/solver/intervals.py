"""Interval arithmetic: the composition of a step over all values that its terms may take.

Contents: Interval, hull.

An interval holds every value that an expression has for some choice of its terms. It knows nothing of what the terms
mean, or which of them lengthen a step: that makes it a second opinion on `bounds.py`, which has a list of those.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.quantity import Floats, Num


@dataclass(frozen=True, eq=False)
class Interval:
    """Arrays of least and greatest values; NaN where nothing is known (it is then never an argument for anything)."""

    low: Floats
    high: Floats

    __array_ufunc__ = None  # numpy arrays defer to the operators below

    def __add__(self, other: Num) -> Interval:
        right = interval(other)
        return Interval(self.low + right.low, self.high + right.high)

    __radd__ = __add__

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Num) -> Interval:
        return self + -interval(other)

    def __rsub__(self, other: Num) -> Interval:
        return interval(other) + -self

    def __mul__(self, other: Num) -> Interval:
        right = interval(other)
        ends = [a * b for a in (self.low, self.high) for b in (right.low, right.high)]
        return Interval(
            np.minimum(np.minimum(ends[0], ends[1]), np.minimum(ends[2], ends[3])),
            np.maximum(np.maximum(ends[0], ends[1]), np.maximum(ends[2], ends[3])),
        )

    __rmul__ = __mul__

    def max_with(self, other: Num) -> Interval:
        """The maximum with another value."""
        right = interval(other)
        return Interval(np.maximum(self.low, right.low), np.maximum(self.high, right.high))


def interval(value: Num) -> Interval:
    """A value as an interval; a number or an array is known exactly."""
    if isinstance(value, Interval):
        return value
    array = np.asarray(value, dtype=float)
    return Interval(array, array)


def hull(values: Floats, kept: NDArray[np.bool_] | None = None) -> Interval:
    """What the kept options (last dimension; all of them by default) take; one value may stand for all of them."""
    if values.shape[-1] == 1:
        return interval(values[..., 0])
    if kept is None:
        return Interval(values.min(axis=-1), values.max(axis=-1))
    low = np.where(kept, values, np.inf).min(axis=-1)
    return Interval(low, np.where(kept, values, -np.inf).max(axis=-1))
