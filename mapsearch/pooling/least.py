"""The least change of one input of two pools that makes something true, by solving again.

Contents: least_value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mapsearch.errors import InputError
from mapsearch.pooling.levers import PoolLever
from mapsearch.solver.explain.relax import rounded_up

DIGITS = 4
"""Of a value that is tried: what is shown is what was solved."""


def least_value(lever: PoolLever, works: Callable[[float], bool], share: float) -> tuple[float, float | None] | None:
    """The nearest value at which it works, and a nearer one that was tried and fails; None where none works.

    Whole numbers are found exactly, others to `share` of the value; values in between are taken to be in order.
    """

    def true(value: float) -> bool:
        try:
            return works(value)
        except InputError:
            if not lever.gaps:
                raise
            return False

    if lever.choice:
        return (lever.far, None) if true(lever.far) else None
    if lever.exact:
        return next(((value, None) for value in lever.exact if true(value)), None)
    return _whole(lever, true) if lever.whole else _number(lever, true, share)


def _whole(lever: PoolLever, true: Callable[[float], bool]) -> tuple[float, float | None] | None:
    """Steps that double from the value of now on, then halves of the last of them."""
    sign = 1.0 if lever.far > lever.now else -1.0
    low, step = lever.now, 1.0
    while True:
        high = low + sign * step
        if sign * high > sign * lever.far:
            return None
        if true(high):
            break
        low, step = high, 2.0 * step
    while abs(high - low) > 1.0:
        middle = float(math.floor(0.5 * (low + high)))
        low, high = (low, middle) if true(middle) else (middle, high)
    return high, low


def _number(lever: PoolLever, true: Callable[[float], bool], share: float) -> tuple[float, float | None] | None:
    """The far end first; then halves of the way, as far as digits tell them apart."""
    low, high = lever.now, lever.far
    if not true(high):
        return None
    while abs(high - low) > share * abs(high):
        between = math.sqrt(low * high) if low > 0.0 and high > 0.0 else 0.5 * (low + high)
        middle = rounded_up(between, DIGITS)
        if middle in (low, high):
            break
        low, high = (low, middle) if true(middle) else (middle, high)
    return high, low
