"""Searches with what audits found, until an audit tells nothing new.

Contents: ROUNDS, Turn, Rounds, fed_back.

A share belongs to an axis and a level: what the groups of that axis got there, as far as the last audited mapping took
them over that level. So a mapping that keeps an axis off a level does not clear what is known of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mapsearch.auditing.measure import TOLERANCE, Ground, Measured, measure, with_shares
from mapsearch.auditing.report import named_shares
from mapsearch.costs.views import Facts
from mapsearch.interrupts import requested
from mapsearch.inventories.mapping import Mapping
from mapsearch.progress import Progress
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import mapping_of, time_of
from mapsearch.solver.search import search

ROUNDS = 8
"""Searches after which the rounds end, fixpoint or not."""
Shares = dict[str, tuple[float, ...]]
NEW = 1e-6
"""Share by which a bandwidth must differ to be told again."""


@dataclass(frozen=True)
class Turn:
    """One search, and the audit of its fastest mapping."""

    mapping: Mapping
    step_time_s: float
    audited_s: float
    """Step time with its own shares; infinite where it breaks a relation with them."""
    shares: Shares
    """Its own."""
    told: Shares
    """What the next search is given."""
    changed: bool


@dataclass(frozen=True)
class Rounds:
    """All turns, and how they ended."""

    turns: list[Turn]
    outcome: Literal["fixpoint", "cycle", "bound", "nothing fits", "interrupted"]

    @property
    def best(self) -> Turn:
        """The turn with the shortest audited step."""
        return min(self.turns, key=lambda turn: turn.audited_s)


def fed_back(
    first: Mapping,
    facts: Facts,
    ground: Ground,
    *,
    rounds: int = ROUNDS,
    tolerance: float = TOLERANCE,
    contended: bool = False,
    tell: Callable[[Progress], Any] = lambda _progress: None,
) -> Rounds:
    """Audit a mapping, search with what was found, audit again, at most so many searches.

    `facts`: without shares. `contended`: background traffic takes its half of links that it shares. Ends when a search
    finds the mapping that it was told about and its audit says the same again (a fixpoint), one that was audited before
    (a cycle), or nothing that fits, and when the user interrupts.
    """

    def turn(mapping: Mapping, given: Shares, *, changed: bool) -> Turn:
        measured = measure(mapping, facts, ground)
        own = measured.shares(tolerance, contended=contended)
        return _turn(mapping, facts, measured, given, own, changed=changed)

    turns = [turn(first, {}, changed=False)]
    seen = {_identity(first)}
    while len(turns) <= rounds:
        last = turns[-1]
        before = turns[-2].told if len(turns) > 1 else {}
        if not last.changed and _same(last.told, before, facts):
            return Rounds(turns, "fixpoint")
        tell(Progress(f"search {len(turns)} with audited bandwidths"))
        given = with_shares(facts, last.told)
        found = search(problem_of(given), 1, report=tell)
        if found.interrupted or requested():
            return Rounds(turns, "interrupted")
        if not found.top:
            return Rounds(turns, "nothing fits")
        mapping = mapping_of(found.top[0])
        changed = _identity(mapping) != _identity(last.mapping)
        turns.append(turn(mapping, last.told, changed=changed))
        if changed and _identity(mapping) in seen:
            return Rounds(turns, "cycle")
        seen.add(_identity(mapping))
    return Rounds(turns, "bound")


def _identity(mapping: Mapping) -> str:
    return mapping.model_dump_json(exclude={"sources"})


def _turn(mapping: Mapping, facts: Facts, measured: Measured, given: Shares, own: Shares, *, changed: bool) -> Turn:
    told = dict(given)
    for traffic in measured.traffic:
        known = given.get(traffic.axis, (1.0,) * len(traffic.row))
        mine = own.get(traffic.axis, (1.0,) * len(traffic.row))
        told[traffic.axis] = tuple(
            now if ways > 1 else before for now, before, ways in zip(mine, known, traffic.row, strict=True)
        )
    return Turn(
        mapping=mapping,
        step_time_s=time_of(mapping, problem_of(with_shares(facts, given))),
        audited_s=time_of(mapping, problem_of(with_shares(facts, own))),
        shares=own,
        told={axis: row for axis, row in told.items() if any(share != 1.0 for share in row)},
        changed=changed,
    )


def _same(one: Shares, other: Shares, facts: Facts) -> bool:
    mine, theirs = named_shares(facts.fabric, one), named_shares(facts.fabric, other)
    names = {(axis, level) for shares in (mine, theirs) for axis, row in shares.items() for level in row}
    return all(math.isclose(mine.get(a, {}).get(n, 1.0), theirs.get(a, {}).get(n, 1.0), rel_tol=NEW) for a, n in names)
