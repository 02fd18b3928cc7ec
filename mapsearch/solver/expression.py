"""Symbolic values for the encoders: sums over the options of both grids, and maxima of such sums.

Contents: Expr, Max, attention, expert, bounds.

The composition in costs/step.py runs on these as it runs on numbers. An expression is
`sum_i attention[i] a_i + sum_j expert[j] e_j + constant + sum coefficient * Max(...)`, where a and e are the 0/1
literals of a cell's options; a backend only has to know sums and maxima.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapsearch.quantity import Floats


@dataclass(frozen=True, eq=False)
class Max:
    """The maximum of expressions; compared by identity so that a backend encodes it once."""

    arguments: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Expr:
    """A linear expression over the options of one cell, plus weighted maxima."""

    attention: Floats
    expert: Floats
    constant: float = 0.0
    maxima: tuple[tuple[float, Max], ...] = ()

    __array_ufunc__ = None  # numpy scalars defer to the operators below

    def __add__(self, other: Expr | float) -> Expr:
        if not isinstance(other, Expr):
            return Expr(self.attention, self.expert, self.constant + float(other), self.maxima)
        return Expr(
            self.attention + other.attention,
            self.expert + other.expert,
            self.constant + other.constant,
            self.maxima + other.maxima,
        )

    __radd__ = __add__

    def __mul__(self, factor: float) -> Expr:
        scale = float(factor)
        maxima = tuple((scale * weight, node) for weight, node in self.maxima if scale * weight != 0.0)
        return Expr(scale * self.attention, scale * self.expert, scale * self.constant, maxima)

    __rmul__ = __mul__

    def __neg__(self) -> Expr:
        return self * -1.0

    def __sub__(self, other: Expr | float) -> Expr:
        return self + other * -1.0

    def __rsub__(self, other: float) -> Expr:
        return self * -1.0 + other

    def max_with(self, other: Expr | float) -> Expr:
        """The maximum with another value; constants and nested maxima are flattened by the encoders."""
        right = other if isinstance(other, Expr) else self * 0.0 + float(other)
        return Expr(0.0 * self.attention, 0.0 * self.expert, 0.0, ((1.0, Max(_flat(self) + _flat(right))),))

    @property
    def is_constant(self) -> bool:
        """True when no option changes the value."""
        return not self.maxima and not self.attention.any() and not self.expert.any()

    def at(self, attention: int, expert: int) -> float:
        """The value for one pair of options."""
        total = float(self.attention[attention] + self.expert[expert] + self.constant)
        for weight, node in self.maxima:
            total += weight * max(argument.at(attention, expert) for argument in node.arguments)
        return total


def _flat(value: Expr) -> tuple[Expr, ...]:
    """The arguments of a bare maximum, or the value itself."""
    bare = not value.attention.any() and not value.expert.any() and value.constant == 0.0
    if bare and len(value.maxima) == 1 and value.maxima[0][0] == 1.0:
        return value.maxima[0][1].arguments
    return (value,)


def attention(values: Floats, experts: int) -> Expr:
    """A value per attention option."""
    return Expr(np.asarray(values, dtype=float), np.zeros(experts))


def expert(values: Floats, attentions: int) -> Expr:
    """A value per expert option."""
    return Expr(np.zeros(attentions), np.asarray(values, dtype=float))


def bounds(value: Expr) -> tuple[float, float]:
    """Least and greatest value over all pairs of options (maxima bounded one by one)."""
    low = value.constant + float(value.attention.min(initial=np.inf)) + float(value.expert.min(initial=np.inf))
    high = value.constant + float(value.attention.max(initial=-np.inf)) + float(value.expert.max(initial=-np.inf))
    for weight, node in value.maxima:
        ends = [bounds(argument) for argument in node.arguments]
        least, most = max(end[0] for end in ends), max(end[1] for end in ends)
        low += weight * (least if weight > 0 else most)
        high += weight * (most if weight > 0 else least)
    return low, high
