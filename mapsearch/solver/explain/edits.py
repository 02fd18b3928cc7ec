"""The nearest legal edit of a wish: the fewest of a user's fixed values that have to go before something fits.

Contents: smallest_corrections.

A correction has to hit every conflict that the fixed values are in. The smallest set that hits all conflicts found so
far is tried; where it does not do, what is left holds one more conflict (FORMULAS 7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mapsearch.relation import Relation
from mapsearch.solver.explain.hitting import Hitting, members

Satisfiable = Callable[[Iterable[Relation]], bool]


def smallest_corrections(
    hard: list[Relation], soft: list[Relation], satisfiable: Satisfiable, most: int
) -> list[list[Relation]]:
    """All smallest sets of `soft` without which the rest can hold together with `hard`, at most `most` of them.

    Empty when `hard` cannot hold by itself. In the order of `soft`. Raises TooMany.
    """
    if not satisfiable(hard):
        return []
    conflicts, seen = Hitting(), set[int]()
    found: list[list[Relation]] = []
    while len(found) < most:
        untried = sorted((bits for bits in conflicts.sets if bits not in seen), key=_order)
        if not untried or (found and untried[0].bit_count() > len(found[0])):
            break
        bits = untried[0]
        seen.add(bits)
        kept = [relation for place, relation in enumerate(soft) if not bits >> place & 1]
        if satisfiable([*hard, *kept]):
            found.append([soft[place] for place in members(bits)])
        else:
            core = _shrunk(hard, kept, satisfiable)
            conflicts.add(sum(1 << place for place, relation in enumerate(soft) if relation in core))
    return found


def _order(bits: int) -> tuple[int, list[int]]:
    return bits.bit_count(), list(members(bits))


def _shrunk(hard: list[Relation], kept: list[Relation], satisfiable: Satisfiable) -> list[Relation]:
    """A minimal conflict among soft relations, by leaving out one after the other."""
    core = list(kept)
    for relation in kept:
        rest = [other for other in core if other is not relation]
        if not satisfiable([*hard, *rest]):
            core = rest
    return core
