"""Quantities as people write them (`96 GB`, `400 Gb/s`, `3 us`), as SI floats inside.

Contents: Dimension, parse, render, Bytes, BytesPerSecond, Seconds, Flops.

Bytes and bits are told apart by case (`GB` is bytes, `Gb` is bits); a bare number is refused where a unit
is needed, since bits against bytes is the commonest mistake in published topologies.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from mapsearch.errors import listed

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"^\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*?)?\s*$")


@dataclass(frozen=True)
class Dimension:
    """One kind of quantity: its name, its accepted units with their factor to SI, and examples."""

    name: str
    factors: dict[str, float]
    examples: tuple[str, ...]


def _scaled(suffix: str, factor: float = 1.0, *, binary: bool = False) -> dict[str, float]:
    units = {prefix + suffix: scale * factor for prefix, scale in _PREFIXES.items()}
    if binary:
        units |= {prefix + suffix: scale * factor for prefix, scale in _BINARY.items()}
    return units


BYTES = Dimension("an amount of memory", _scaled("B", binary=True), ("96 GB", "80 GiB"))
RATE = Dimension(
    "a bandwidth",
    {
        **_scaled("B/s", binary=True),
        **_scaled("b/s", 0.125, binary=True),
        **_scaled("bit/s", 0.125),
        **_scaled("bps", 0.125),
    },
    ("50 GB/s", "400 Gb/s"),
)
TIME = Dimension("a time", dict(_TIMES), ("3 us", "1.5 ms"))
FLOPS = Dimension(
    "a compute rate",
    {**_scaled("FLOP/s"), **_scaled("FLOPS"), **_scaled("flop/s"), **_scaled("FLOPs/s")},
    ("400 TFLOP/s", "2.5 PFLOP/s"),
)
POWER = Dimension("a power", _scaled("W"), ("700 W", "1.2 kW"))


def parse(value: object, dimension: Dimension) -> float:
    """Read `value` as `dimension`, in SI units.

    Raises ValueError (one sentence with the accepted units) for a bare number, an unknown unit, a number
    that is not finite, or a negative one.
    """
    text = str(value)
    match = _NUMBER.match(text) if isinstance(value, str) else None
    hint = f"write {dimension.name} with its unit, such as {listed(dimension.examples)}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{text!r} is not {dimension.name}; {hint}")
    if not isinstance(value, str):
        raise ValueError(f"{text} has no unit; {hint}")
    if match is None:
        raise ValueError(f"{text!r} is not {dimension.name}; {hint}")
    number, unit = match.group(1).replace("_", ""), match.group(2) or ""
    if not unit:
        raise ValueError(f"{text!r} has no unit; {hint}")
    if unit not in dimension.factors:
        raise ValueError(f"{text!r} has the unit {unit!r}, which is not one of {dimension.name}; {hint}")
    result = _product(number, dimension.factors[unit])
    if not math.isfinite(result):
        raise ValueError(f"{text!r} is not a finite number; {hint}")
    if result < 0:
        raise ValueError(f"{text!r} is negative; {hint}")
    return result


def _product(number: str, factor: float) -> float:
    """A decimal number times a factor, rounded once: `10 us` is 1e-05, not 9.999999999999999e-06."""
    plain = float(number)
    if plain == 0.0 or not math.isfinite(plain):
        return plain
    return float(Decimal(number) * Decimal(repr(factor)))


def render(value: float, dimension: Dimension) -> str:
    """Write an SI value so that `parse` reads the same value back: the shortest exact decimal form."""
    preferred = {
        "an amount of memory": ("GB", "B"),
        "a bandwidth": ("GB/s", "B/s"),
        "a time": ("us", "s"),
        "a compute rate": ("TFLOP/s", "FLOP/s"),
        "a power": ("W",),
    }[dimension.name]
    for unit in preferred:
        scaled = value / dimension.factors[unit]
        for digits in range(1, 18):
            text = f"{scaled:.{digits}g}"
            if "e" not in text and _product(text, dimension.factors[unit]) == value:
                return f"{text} {unit}"
    return f"{value!r} {preferred[-1]}"


def _unit_type(dimension: Dimension) -> Any:
    def read(value: object) -> float:
        return parse(value, dimension)

    def write(value: float) -> str:
        return render(value, dimension)

    schema = {
        "type": "string",
        "description": f"{dimension.name} with its unit",
        "examples": list(dimension.examples),
    }
    return (
        BeforeValidator(read),
        PlainSerializer(write, return_type=str),
        WithJsonSchema(schema),
    )


Bytes = Annotated[float, *_unit_type(BYTES)]
BytesPerSecond = Annotated[float, *_unit_type(RATE)]
Seconds = Annotated[float, *_unit_type(TIME)]
FlopsPerSecond = Annotated[float, *_unit_type(FLOPS)]
Watts = Annotated[float, *_unit_type(POWER)]
