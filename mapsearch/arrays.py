# mypy: disable-error-code="no-any-return, return-value, arg-type"
"""numpy for quantities: its functions by their names, with a short way for plain numbers.

Contents: PLAIN, plain, remembered, and numpy's functions by their names.

A quantity is written once, for arrays. One mapping has one number where the search has an array, and numpy takes ten
times as long to wrap a number into an array as to calculate with it. Modules of quantities therefore import this one as
`np`: Python's and numpy's numbers stay numbers, with the same values; everything else goes to numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy
from numpy.typing import NDArray

T = TypeVar("T")

bool_ = numpy.bool_
float64 = numpy.float64
int64 = numpy.int64
ndarray = numpy.ndarray

PLAIN = frozenset({float, int, bool, float64, int64, bool_})
"""Types of plain numbers."""
_FLOATS = (float, float64)
_WHOLE = frozenset({int, bool, int64, bool_})


def plain(*values: Any) -> bool:
    """True when all values are plain numbers."""
    for value in values:  # noqa: SIM110 - half as slow as a generator
        if type(value) not in PLAIN:
            return False
    return True


def floats(value: Any) -> NDArray[float64]:
    """The value as an array of floats; a plain number as a float."""
    return value if type(value) is float else asarray(value, float64)


def asarray(value: Any, dtype: Any = None) -> NDArray[Any]:
    """The value as an array; a plain number as it is, or as a float where floats are asked for."""
    kind = type(value)
    if kind in PLAIN:
        return value if dtype is None else float(value) if dtype in _FLOATS else numpy.asarray(value, dtype=dtype)
    if kind is ndarray and value.ndim == 0:
        return asarray(value.item(), dtype)
    return numpy.asarray(value, dtype=dtype)


def where(condition: Any, yes: Any, no: Any) -> NDArray[Any]:
    """`yes` where the condition holds, else `no`."""
    if type(condition) in PLAIN and type(yes) in PLAIN and type(no) in PLAIN:
        return yes if condition else no
    return numpy.where(condition, yes, no)


def select(conditions: list[Any], values: list[Any]) -> NDArray[Any]:
    """The value of the first condition that holds, else 0."""
    if plain(*conditions) and plain(*values):
        found: Any = (value for condition, value in zip(conditions, values, strict=True) if condition)
        return next(found, 0.0)
    return numpy.select(conditions, values)


def maximum(first: Any, second: Any) -> NDArray[Any]:
    """The larger of two values."""
    if type(first) in PLAIN and type(second) in PLAIN:
        return first if first >= second or first != first else second  # noqa: PLR0124 - NaN
    return numpy.maximum(first, second)


def minimum(first: Any, second: Any) -> NDArray[Any]:
    """The smaller of two values."""
    if type(first) in PLAIN and type(second) in PLAIN:
        return first if first <= second or first != first else second  # noqa: PLR0124 - NaN
    return numpy.minimum(first, second)


def ceil(value: Any) -> NDArray[Any]:
    """The least whole number that is not smaller."""
    if type(value) in PLAIN and math.isfinite(value):
        return float(math.ceil(value))
    return numpy.ceil(value)


def floor(value: Any) -> NDArray[Any]:
    """The greatest whole number that is not larger."""
    if type(value) in PLAIN and math.isfinite(value):
        return float(math.floor(value))
    return numpy.floor(value)


def round(value: Any) -> NDArray[Any]:
    """The nearest whole number, the even one of two."""
    if type(value) in PLAIN and math.isfinite(value):
        return value.__round__() + 0.0
    return numpy.round(value)


def clip(value: Any, least: float, most: float) -> NDArray[Any]:
    """The value inside its limits."""
    return minimum(maximum(value, least), most) if type(value) in PLAIN else numpy.clip(value, least, most)


def lcm(first: Any, second: Any) -> NDArray[Any]:
    """The least common multiple."""
    if type(first) in _WHOLE and type(second) in _WHOLE:
        return math.lcm(first, second)
    return numpy.lcm(first, second)


def isin(value: Any, accepted: Any) -> Any:
    """True where the value is one of those accepted."""
    return bool_(value in tuple(accepted)) if type(value) in PLAIN else numpy.isin(value, accepted)


def mod(value: Any, divisor: Any) -> NDArray[Any]:
    """What is left of the value after whole divisors."""
    if type(value) in _WHOLE and type(divisor) in _WHOLE and divisor:
        return value % divisor
    return numpy.mod(value, divisor)


def any(value: Any) -> Any:
    """True where something is not 0."""
    return value != 0 if type(value) in PLAIN else numpy.any(value)


def all(value: Any) -> Any:
    """True where nothing is 0."""
    return value != 0 if type(value) in PLAIN else numpy.all(value)


def prod(value: Any, axis: int | None = None) -> Any:
    """The product along an axis, or of everything."""
    if type(value) is ndarray and value.ndim == 1:
        return math.prod(value.tolist())
    return numpy.prod(value, axis=axis)


def shape(value: Any) -> tuple[int, ...]:
    """The shape of a value; () for a plain number."""
    return () if type(value) in PLAIN else numpy.shape(value)


def ndim(value: Any) -> int:
    """Dimensions of a value; 0 for a plain number."""
    return 0 if type(value) in PLAIN else numpy.ndim(value)


def zeros(size: tuple[int, ...], dtype: Any = float) -> NDArray[Any]:
    """Zeros of a shape; one number for ()."""
    return numpy.zeros(size, dtype) if size else dtype(0)


def stack(values: list[Any], axis: int = 0) -> NDArray[Any]:
    """Values side by side along a new axis."""
    return numpy.stack(values, axis=axis)


def ones(size: tuple[int, ...]) -> NDArray[Any]:
    """Ones of a shape; one number for ()."""
    return numpy.ones(size) if size else 1.0


def zeros_like(value: Any, dtype: Any = None) -> NDArray[Any]:
    """Zeros of a value's shape."""
    if type(value) in PLAIN:
        return (dtype or type(value))(0)
    return numpy.zeros_like(value, dtype=dtype)


def ones_like(value: Any) -> NDArray[Any]:
    """Ones of a value's shape."""
    return 1.0 if type(value) in PLAIN else numpy.ones_like(value)


def __getattr__(name: str) -> Any:
    """Whatever else numpy has, as it is."""
    return getattr(numpy, name)


class _Number:
    """What plain numbers broadcast to."""

    shape: tuple[int, ...] = ()


def broadcast(*values: Any) -> Any:
    """What values broadcast to; only its `shape` is meant."""
    return _Number() if plain(*values) else numpy.broadcast(*values)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    return numpy.broadcast_shapes(*shapes) if len(set(shapes)) > 1 else shapes[0]


def remembered(records: int = 1, most: int = 4096) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """A pure function of frozen records (or arrays that nobody changes) and hashable values, computed once for each.

    The first arguments, `records` of them, are known by their identity: records hold lists and dictionaries and have
    no hash. The last `most` results are kept, and with them their records.
    """

    def declare(function: Callable[..., T]) -> Callable[..., T]:
        kept: dict[tuple[Any, ...], tuple[tuple[Any, ...], T]] = {}

        @wraps(function)
        def found(*given: Any) -> T:
            place = (*map(id, given[:records]), *given[records:])
            entry = kept.get(place)
            if entry is None:
                if len(kept) >= most:
                    kept.pop(next(iter(kept)), None)
                entry = kept[place] = given, function(*given)
            return entry[1]

        return found

    return declare
