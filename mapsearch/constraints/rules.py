"""Small helpers to write relations: remainders, yes/no rules, and sentences with numbers.

Contents: remainder, flag, first, whole, word, divides, rule.

A sentence is made from one template per relation and says what holds or is broken with the numbers of the mapping, or
that the rule does not apply to it and why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mapsearch import arrays as np
from mapsearch.axes import written
from mapsearch.costs.views import Facts
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
    return float(value) if np.plain(value) else float(np.asarray(value).reshape(-1)[0])


def whole(value: Num) -> int:
    """The single whole number of a one-mapping view."""
    return round(first(value))


def word(axis: str, value: Num) -> str:
    """The single value of an axis as people write it."""
    return str(written(axis, whole(value)))


def nothing(_: Any) -> str:
    """The rule applies to every mapping."""
    return ""


def divides(
    name: str,
    side: Side,
    amount: Callable[[Facts], float],
    divisor: Callable[[Any], Num],
    what: str,
    over: str,
    *,
    absent: Callable[[Facts], str] = nothing,
    origin: str = "physics",
    levers: tuple[str, ...] = (),
    source: str = "",
) -> Relation:
    """A relation `amount % divisor = 0`: `amount` things, `what`, split evenly over `over`.

    `absent` says why facts have nothing to split; its amount is then 0 or 1 and always splits.
    """
    shown = over if " " not in over else f"{over} ="
    ruler = "" if origin == "physics" else f"{origin}: "

    def sentence(view: Any, demand: float, _limit: float) -> str:
        reason = absent(view.facts)
        if reason:
            return f"does not apply: {reason}"
        count, parts = f"{ruler}{amount(view.facts):,g} {what}", f"{shown} {whole(divisor(view)):,}"
        if demand == 0:
            return f"{count} split evenly over {parts}"
        return f"{count} do not split evenly over {parts}: {demand:g} left over"

    return Relation(
        name=name,
        side=side,
        unit="left over",
        demand=lambda view: remainder(amount(view.facts), divisor(view)),
        limit=zero,
        sentence=sentence,
        origin=origin,
        levers=levers,
        source=source,
        statement=f"{what} split evenly over {over}",
        given=lambda facts: absent(facts) or f"there are {amount(facts):,g}",
    )


def rule(
    name: str,
    side: Side,
    broken: Callable[[Any], Num],
    statement: str,
    here: Callable[[Any], str],
    *,
    absent: Callable[[Any], str] = nothing,
    given: Callable[[Facts], str] | None = None,
    origin: str = "physics",
    levers: tuple[str, ...] = (),
    source: str = "",
) -> Relation:
    """A yes/no relation: demand 1 where broken, limit 0.

    `statement` says the rule, `here` what the mapping does, `absent` why it has nothing to do with this mapping.
    """

    def sentence(view: Any, demand: float, _limit: float) -> str:
        reason = absent(view)
        if demand == 0 and reason:
            return f"does not apply: {reason}"
        return f"{statement}{', but ' if demand else ': '}{here(view)}"

    return Relation(
        name=name,
        side=side,
        unit="broken rules",
        demand=lambda view: flag(broken(view)),
        limit=zero,
        sentence=sentence,
        origin=origin,
        levers=levers,
        source=source,
        statement=statement,
        given=given,
    )
