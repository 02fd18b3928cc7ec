"""From floats to integers for the solver libraries: the one place where the models round.

Contents: Rounded, RoundedMax, rounded, span, option_floors.

Every coefficient becomes the nearest multiple of one unit (an ulp). A value of a pair of options is the sum of one
attention and one expert coefficient, the constant being part of the attention's, so a plain sum is off by at most
half an ulp twice. A maximum is off by no more than its worst argument, because its factor is multiplied into the
arguments before they are rounded. The bound therefore counts rounded terms, whatever the sizes of the factors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.quantity import Floats
from mapsearch.solver.expression import Expr, Max

Ints = NDArray[np.int64]
WHOLE_BITS = 50
"""Floats of up to so many bits are rounded exactly; larger ones are refused by `safe_scale`."""


@dataclass(frozen=True, eq=False)
class RoundedMax:
    """The maximum of rounded values."""

    arguments: tuple[Rounded, ...]

    @property
    def error(self) -> int:
        """Ulps that the maximum may be off by."""
        return max(argument.error for argument in self.arguments)


@dataclass(frozen=True, eq=False)
class Rounded:
    """attention[i] + expert[j] + sum of sign * maximum, in ulps."""

    attention: Ints
    expert: Ints
    maxima: tuple[tuple[int, RoundedMax], ...]

    @property
    def error(self) -> int:
        """Ulps that a value may be off by: half for each of its two terms, and what its maxima add."""
        return 1 + sum(node.error for _, node in self.maxima)

    def at(self, attention: int, expert: int) -> int:
        """The value for one pair of options."""
        total = int(self.attention[attention]) + int(self.expert[expert])
        for sign, node in self.maxima:
            total += sign * max(argument.at(attention, expert) for argument in node.arguments)
        return total


def rounded(value: Expr, scale: float) -> Rounded:
    """An expression in units of 1/scale; factors of maxima are multiplied into their arguments."""
    weights: dict[int, float] = {}
    nodes: dict[int, Max] = {}
    for weight, node in value.maxima:
        nodes[id(node)] = node
        weights[id(node)] = weights.get(id(node), 0.0) + weight
    maxima = tuple(
        (1 if weights[key] > 0 else -1, _rounded_max(node, scale * abs(weights[key])))
        for key, node in nodes.items()
        if weights[key] != 0.0
    )
    return Rounded(_nearest(scale * (value.attention + value.constant)), _nearest(scale * value.expert), maxima)


def _rounded_max(node: Max, scale: float) -> RoundedMax:
    return RoundedMax(tuple(rounded(argument, scale) for argument in node.arguments))


def _nearest(values: Floats) -> Ints:
    return np.rint(values).astype(np.int64)


def safe_scale(wanted: float, largest: float, terms: int) -> float:
    """The wanted scale, or the largest at which a sum of so many terms cannot overflow 64 bits."""
    limit = min(2.0**WHOLE_BITS, 2.0**60 / max(terms, 1))
    return min(wanted, limit / largest) if largest > 0.0 else wanted


def largest(value: Expr) -> float:
    """The largest magnitude that any coefficient of an expression has, factors of maxima included."""
    found = float(np.max(np.abs(value.attention + value.constant), initial=0.0))
    found = max(found, float(np.max(np.abs(value.expert), initial=0.0)))
    for weight, node in value.maxima:
        found = max(found, *(abs(weight) * largest(argument) for argument in node.arguments))
    return found


def span(value: Rounded) -> tuple[int, int]:
    """Least and greatest value over all pairs of options and zero, each maximum bounded by itself."""
    low = int(value.attention.min()) + int(value.expert.min())
    high = int(value.attention.max()) + int(value.expert.max())
    for sign, node in value.maxima:
        least, most = span_of_max(node)
        low += least if sign > 0 else -most
        high += most if sign > 0 else -least
    return min(low, 0), max(high, 0)


def span_of_max(node: RoundedMax) -> tuple[int, int]:
    """Least and greatest value of a maximum, zero included."""
    spans = [span(argument) for argument in node.arguments]
    return max(low for low, _ in spans), max(high for _, high in spans)


def option_floors(value: Expr) -> tuple[Floats, Floats]:
    """Per attention option and per expert option, a lower bound of the value over all partners."""
    (low_a, low_e), _ = _ranges(value)
    return low_a, low_e


def _ranges(value: Expr) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Lower and upper bounds of a value per option of either grid."""
    a, e = value.attention + value.constant, value.expert
    low_a, low_e = a + e.min(), e + a.min()
    high_a, high_e = a + e.max(), e + a.max()
    for weight, node in value.maxima:
        ranges = [_ranges(argument) for argument in node.arguments]
        least_a, least_e = (np.max([low[side] for low, _ in ranges], axis=0) for side in (0, 1))
        most_a, most_e = (np.max([high[side] for _, high in ranges], axis=0) for side in (0, 1))
        up = weight > 0.0
        low_a = low_a + weight * (least_a if up else most_a)
        low_e = low_e + weight * (least_e if up else most_e)
        high_a = high_a + weight * (most_a if up else least_a)
        high_e = high_e + weight * (most_e if up else least_e)
    return (low_a, low_e), (high_a, high_e)
