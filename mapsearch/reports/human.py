"""Numbers as people read them: `1.25 TB`, `12.3 s`, `4.2 M`.

Contents: scaled, amount, seconds, count, percent, scaled_unit, measured, plain_number.

These are for reading only; files carry SI floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _digits(value: float, digits: int = 3) -> str:
    """So many significant digits without an exponent: 1.25, 12.3, 123, 1,230."""
    size = abs(value)
    if size >= 999.5 or size == 0.0:
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(size * 1.0005))) if size >= 0.01 else 3
    return f"{value:.{decimals}f}"


def scaled(value: float, unit: str, gap: str = " ") -> str:
    """A value in a unit with a prefix from a thousand on: `4.2 MJ`."""
    if not math.isfinite(value):
        return f"{value} {unit}".strip()
    for step, prefix in _STEPS:
        if abs(value) >= step * 0.9995:
            return f"{_digits(value / step)}{gap}{prefix}{unit}"
    return f"{_digits(value)}{gap if unit else ''}{unit}"


def amount(value_bytes: float) -> str:
    """Memory: `74.1 GB`, `1.25 TB`."""
    return scaled(value_bytes, "B")


def seconds(value_s: float, digits: int = 3) -> str:
    """Time: `12.3 s`, `4.56 ms`, `3.00 us`; from a thousand seconds on, minutes."""
    size = abs(value_s)
    if not math.isfinite(value_s):
        return f"{value_s} s"
    units = ((36000.0, 3600.0, "h"), (999.5, 60.0, "min"), (0.9995, 1.0, "s"), (0.9995e-3, 1e-3, "ms"))
    unit, name = next(((unit, name) for least, unit, name in units if size >= least), (1e-6, "us"))
    return "0 s" if size == 0.0 else f"{_digits(value_s / unit, digits)} {name}"


def count(value: float) -> str:
    """A count: `64`, `1,024`, `4.2 M`, and powers of ten from 1e9 on."""
    if abs(value) >= 1e9:
        return f"{value:.2g}".replace("e+0", "e").replace("e+", "e")
    if abs(value) < 1e5 and float(value).is_integer():
        return f"{value:,.0f}"
    return scaled(value, "")


def percent(fraction: float) -> str:
    """A share: `31.2 %`; small ones keep a digit, zero is `0 %`."""
    hundred = fraction * 100
    if hundred == 0.0:
        return "0 %"
    if abs(hundred) < 0.05:
        return f"{hundred:.2g} %"
    return f"{hundred:.1f} %"


def scaled_unit(unit: str) -> bool:
    """True for the units that `measured` writes into the number itself (bytes, seconds, shares)."""
    return unit in _SCALED


def measured(value: float, unit: str) -> str:
    """A value of a relation in its own unit: bytes, seconds and shares scaled, others as a number with the unit."""
    if unit in _SCALED:
        return _SCALED[unit](value)
    return f"{plain_number(value)} {unit}".strip()


def plain_number(value: float) -> str:
    """A number without a unit, short."""
    return count(value) if float(value).is_integer() else scaled(value, "")


_SCALED: dict[str, Callable[[float], str]] = {
    "bytes": amount,
    "B": amount,
    "s": seconds,
    "seconds": seconds,
    "share": percent,
    "fraction": percent,
}
