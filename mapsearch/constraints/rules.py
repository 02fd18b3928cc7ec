"""Small helpers to write relations: remainders, yes/no rules, and sentences with numbers.

Contents: remainder, flag, size, first, divides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mapsearch.quantity import Num
from mapsearch.relation import Relation, Side


def remainder(value: Num, divisor: Num) -> Num:
    """What is left over when `value` is cut into `divisor` equal parts; fractions count as left over."""
    return np.mod(value, divisor)


def flag(broken: Num) -> Num:
    """Demand of a yes/no rule: 1 where it is broken, 0 where it holds (limit 0)."""
    return np.where(broken, 1.0, 0.0)


def zero(_: Any) -> float:
    """The limit of remainders and yes/no rules."""
    return 0.0


def first(value: Num) -> float:
    """The single number of a one-mapping view."""
    return float(np.asarray(value).reshape(-1)[0])


def whole(value: Num) -> int:
    """The single whole number of a one-mapping view."""
    return round(first(value))


def divides(
    name: str,
    side: Side,
    amount: Callable[[Any], Num],
    divisor: Callable[[Any], Num],
    words: str,
    *,
    origin: str = "physics",
    levers: tuple[str, ...] = (),
    source: str = "",
) -> Relation:
    """A relation `amount % divisor = 0`; `words` is formatted with `amount` and `divisor`."""

    def sentence(view: Any, demand: float, _limit: float) -> str:
        text = words.format(amount=whole(amount(view)), divisor=whole(divisor(view)))
        return text if demand == 0 else f"{text}: {demand:g} left over"

    return Relation(
        name=name,
        side=side,
        unit="left over",
        demand=lambda view: remainder(amount(view), divisor(view)),
        limit=zero,
        sentence=sentence,
        origin=origin,
        levers=levers,
        source=source,
    )


def rule(
    name: str,
    side: Side,
    broken: Callable[[Any], Num],
    words: Callable[[Any], str],
    *,
    origin: str = "physics",
    levers: tuple[str, ...] = (),
    source: str = "",
) -> Relation:
    """A yes/no relation: demand 1 where broken, limit 0; `words(view)` states it for one mapping."""
    return Relation(
        name=name,
        side=side,
        unit="broken rules",
        demand=lambda view: flag(broken(view)),
        limit=zero,
        sentence=lambda view, _demand, _limit: words(view),
        origin=origin,
        levers=levers,
        source=source,
    )
