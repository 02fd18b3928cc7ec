"""Minimal sets that share something with every one of some sets: conflicts from corrections, and back.

Contents: Hitting, TooMany, enumerate_conflicts.

Sets are the bits of numbers. Every conflict shares a relation with every correction (what is left out where the rest
can be satisfied), and the minimal sets that do so are the minimal conflicts once all corrections are known
(FORMULAS 7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mapsearch.solver.explain.masks import minimal


class TooMany(Exception):
    """There are more minimal sets than are kept."""


def members(bits: int) -> Iterator[int]:
    """The places of the bits of a set, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class Hitting:
    """All minimal hitting sets of the sets that were added (Berge's multiplication)."""

    def __init__(self, most: int = 5000) -> None:
        self.sets: list[int] = [0]
        self._most = most

    def add(self, one: int) -> None:
        """Take in another set that has to be hit. Raises TooMany."""
        hit = [found for found in self.sets if found & one]
        missed = [found for found in self.sets if not found & one]
        grown = {found | 1 << bit for found in missed for bit in members(one)}
        # Sets that hit it already stay minimal; a grown one is kept when it contains none of them.
        fresh = [found for found in minimal(grown) if not any(kept & found == kept for kept in hit)]
        self.sets = hit + fresh
        if len(self.sets) > self._most:
            raise TooMany

    @classmethod
    def of(cls, sets: Iterable[int]) -> Hitting:
        """The minimal hitting sets of some sets. Raises TooMany."""
        made = cls()
        for one in minimal(sets):
            made.add(one)
        return made


def enumerate_conflicts(
    hitting: Hitting,
    every: int,
    witness: Callable[[int], int | None],
    *,
    enter: Callable[[int], None],
    order: Callable[[int], Any],
    most: int,
) -> bool:
    """Enter so many minimal conflicts at most, in the given order; True when there is no other.

    `witness` says which of `every` constraint something satisfies that satisfies the ones asked about, and None when
    nothing does. A minimal hitting set of what witnesses lack either is a conflict, each of whose proper subsets was
    seen satisfied, or has a witness that gives another set to hit. Raises TooMany, and what `witness` raises.
    """
    known: set[int] = set()
    while True:
        open_sets = [one for one in hitting.sets if one not in known]
        if not open_sets or len(known) >= most:
            return not open_sets
        one = min(open_sets, key=order)
        satisfied = witness(one)
        if satisfied is None:
            known.add(one)
            enter(one)
        else:
            hitting.add(every & ~satisfied)
