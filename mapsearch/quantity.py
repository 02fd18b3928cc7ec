"""Quantities: pure numpy functions whose scope is their signature.

Contents: Quantity, quantity, Num, added, less, scaled, maximum, minimum, positive_part.

Positional parameters are axes, by their official name; everything else is a fact and keyword-only. The
functions `maximum`, `minimum` and `positive_part` are the only non-linear operations of the compositions, and
they also accept the symbolic and interval values of the solver: one composition serves numbers, bounds and
encoders (docs/explanation/formulation.md).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from mapsearch import arrays
from mapsearch.arrays import PLAIN
from mapsearch.axes import SCOPE

Num: TypeAlias = Any
"""A scalar, a numpy array, or a solver value with + - * and `max_with`."""
Floats: TypeAlias = NDArray[np.float64]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Quantity(Generic[P, R]):
    """A named, pure function of axes: value, unit, scope and source of its formula."""

    function: Callable[P, R]
    unit: str
    source: str
    scope: tuple[str, ...]
    facts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The function's name, which ends in its unit."""
        return self.function.__name__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The value of the quantity, over scalars or arrays."""
        return self.function(*args, **kwargs)


def quantity(unit: str, source: str) -> Callable[[Callable[P, R]], Quantity[P, R]]:
    """Declare a quantity. Raises TypeError at import when a positional parameter is not an axis."""

    def declare(function: Callable[P, R]) -> Quantity[P, R]:
        parameters = inspect.signature(function).parameters.values()
        scope = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        facts = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        strangers = [name for name in scope if name not in SCOPE]
        if strangers:
            raise TypeError(f"{function.__name__}: {', '.join(strangers)} is not an axis; make it keyword-only")
        if not inspect.getdoc(function):
            raise TypeError(f"{function.__name__} has no docstring")
        # Calling the quantity calls the function itself: one mapping asks for more than a hundred quantities.
        kind: Any = type("Quantity", (Quantity,), {"__call__": staticmethod(function)})
        declared: Quantity[P, R] = kind(function, unit, source, scope, facts)
        declared.__dict__["__doc__"] = function.__doc__
        return declared

    return declare


def added(first: Num, second: Num) -> Num:
    """first + second; a plain 0 adds nothing and costs nothing. What is returned may be one of the two themselves."""
    if type(second) is float and second == 0.0:
        return first
    if type(first) is float and first == 0.0:
        return second
    return first + second


def less(first: Num, second: Num) -> Num:
    """first - second; a plain 0 takes nothing off, as in `added`."""
    return first if type(second) is float and second == 0.0 else first - second


def scaled(value: Num, factor: Num) -> Num:
    """value * factor; a plain 0 stays one, and a plain 1 changes nothing, as in `added`."""
    if type(value) is float and value == 0.0:
        return value
    return value if type(factor) is float and factor == 1.0 else value * factor


def maximum(first: Num, *others: Num) -> Num:
    """The largest of the values, elementwise; symbolic when any of them is."""
    result = first
    for other in others:
        if type(result) in PLAIN and type(other) in PLAIN:
            result = arrays.maximum(result, other)
        elif hasattr(result, "max_with"):
            result = result.max_with(other)
        elif hasattr(other, "max_with"):
            result = other.max_with(result)
        else:
            result = arrays.maximum(result, other)
    return result


def minimum(first: Num, *others: Num) -> Num:
    """The smallest of the values, as the negated maximum of their negations."""
    return -1.0 * maximum(-1.0 * first, *(-1.0 * other for other in others))


def positive_part(value: Num) -> Num:
    """max(0, value): what is left of a communication after its window."""
    return maximum(value, 0.0)
