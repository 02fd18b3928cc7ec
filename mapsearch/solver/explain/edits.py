"""The nearest legal edit of a wish: the fewest of a user's fixed values that have to go before something fits.

Contents: smallest_corrections.

Implicit hitting sets: a correction has to hit every conflict that the fixed values are in. The smallest set that hits
all conflicts found so far is tried; where it does not do, what is left holds one more conflict (FORMULAS 7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mapsearch.relation import Relation

Satisfiable = Callable[[Iterable[Relation]], bool]


def smallest_corrections(
    hard: list[Relation], soft: list[Relation], satisfiable: Satisfiable, most: int
) -> list[list[Relation]]:
    """All smallest sets of `soft` without which the rest can hold together with `hard`, at most `most` of them.

    Empty when `hard` cannot hold by itself. In the order of `soft`.
    """
    if not satisfiable(hard):
        return []
    by_name = {relation.name: relation for relation in soft}
    conflicts: list[frozenset[str]] = []
    found: list[list[Relation]] = []
    seen: set[frozenset[str]] = set()
    while len(found) < most:
        untried = [hit for hit in minimal_hitting_sets(conflicts, list(by_name)) if hit not in seen]
        if not untried or (found and len(untried[0]) > len(found[0])):
            break
        hit = untried[0]
        seen.add(hit)
        kept = [relation for relation in soft if relation.name not in hit]
        if satisfiable([*hard, *kept]):
            found.append([by_name[name] for name in by_name if name in hit])
        else:
            conflicts.append(_shrunk(hard, kept, satisfiable))
    return found


def _shrunk(hard: list[Relation], kept: list[Relation], satisfiable: Satisfiable) -> frozenset[str]:
    """A minimal conflict among soft relations, by leaving out one after the other."""
    core = list(kept)
    for relation in kept:
        rest = [other for other in core if other is not relation]
        if not satisfiable([*hard, *rest]):
            core = rest
    return frozenset(relation.name for relation in core)


def minimal_hitting_sets(sets: Iterable[frozenset[str]], order: list[str]) -> list[frozenset[str]]:
    """The inclusion-minimal sets with a member of every given set, smallest first, ties in the given order.

    Berge's multiplication: the sets are taken in one by one, and what holds another is dropped.
    """
    hits: list[frozenset[str]] = [frozenset()]
    for one in sets:
        grown = {wider for hit in hits for wider in ([hit] if hit & one else [hit | {name} for name in one])}
        hits = [hit for hit in grown if not any(other < hit for other in grown)]
    place = {name: number for number, name in enumerate(order)}
    return sorted(hits, key=lambda hit: (len(hit), sorted(place[name] for name in hit)))
