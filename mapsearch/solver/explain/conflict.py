"""Why nothing fits: all minimal sets of relations that no mapping satisfies together.

Contents: minimal_conflict, Enumeration, minimal_conflicts, kind_of, blamed.

No mapping satisfies all of a conflict, and every proper subset of it can be satisfied (FORMULAS 7.2). Conflicts are
found as minimal hitting sets: of every set of relations that a mapping was seen to satisfy, a conflict holds one that
this set lacks. A minimal set that does so either is a conflict (each of its proper subsets was seen satisfied), or a
mapping satisfies it and gives another set to hit. Smallest first; of equals what nobody can change comes before what a
user asked for. Relations that need a layout of layers (memory, exposure) count as broken by a mapping that has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from mapsearch.axes import CHOICES, SIZES
from mapsearch.relation import Relation
from mapsearch.solver.explain.hitting import Hitting, TooMany, enumerate_conflicts
from mapsearch.solver.explain.probe import Probe
from mapsearch.solver.problem import Problem

Kind = Literal["physics", "framework", "user", "mixed"]
BLAME = ("physics", "topology", "placement")
"""Origins in the order of blame; frameworks follow, and the user's own constraints come last."""
OWN = ("user", "placement")
"""Origins of rules that the user wrote into the run."""
AXES = frozenset((*SIZES, *CHOICES))


def blamed(relation: Relation) -> int:
    """The place of a relation's origin in the order of blame."""
    if relation.origin in BLAME:
        return BLAME.index(relation.origin)
    return len(BLAME) + (relation.origin == "user")


def kind_of(core: Iterable[Relation]) -> Kind:
    """Whose rules conflict. A limit of exposure is the user's, but what is exposed is physics."""
    parties = set()
    for relation in core:
        if relation.origin in OWN:
            parties.add("user")
        elif relation.name.startswith("exposed"):
            parties |= {"user", "physics"}
        else:
            parties.add("physics" if relation.origin in ("physics", "topology") else "framework")
    if parties == {"user"}:
        return "user"
    if "user" in parties:
        return "mixed"
    return "framework" if "framework" in parties else "physics"


def minimal_conflict(problem: Problem, probe: Probe | None = None) -> list[Relation]:
    """Relations that no mapping satisfies together and every proper subset of which some mapping does.

    The smallest such set; empty when the problem can be satisfied after all.
    """
    found = minimal_conflicts(probe or Probe(problem), most=1)
    return found.conflicts[0] if found.conflicts else []


@dataclass
class Enumeration:
    """Minimal conflicts in the order in which they were found."""

    conflicts: list[list[Relation]] = field(default_factory=list)
    complete: bool = False
    """True when there is no other minimal conflict."""
    restates: list[int] = field(default_factory=list)
    """For each conflict: the number of an earlier one that is the same fact, from 1 on; 0 when it is a fact of its
    own."""


def minimal_conflicts(probe: Probe, most: int, found: Enumeration | None = None) -> Enumeration:
    """So many minimal conflicts at most, as distinct facts as there are first.

    They are entered into `found` one by one, so that it holds something when the time ends. Raises OutOfTime.
    """
    result = found if found is not None else Enumeration()
    relations = sorted(probe.problem.relations, key=blamed)
    bits = {relation.name: bit for bit, relation in enumerate(relations)}
    every = (1 << len(relations)) - 1
    pair = [relation.name for relation in probe.problem.side("pair")]
    lacking = [_bits(bits, (*broken, *pair)) for broken in probe.masks.least_broken]

    def named(code: int) -> list[Relation]:
        return [relation for bit, relation in enumerate(relations) if code >> bit & 1]

    def witness(code: int) -> int | None:
        satisfied = probe.witness(relation.name for relation in named(code))
        return None if satisfied is None else _bits(bits, satisfied) & every

    with suppress(TooMany):
        result.complete = enumerate_conflicts(
            Hitting.of(lacking or [0]),
            every,
            witness,
            enter=lambda code: _enter(result, named(code), probe.problem),
            order=lambda code: _order(code, relations, result),
            most=most,
        )
    return result


def _bits(places: dict[str, int], names: Iterable[str]) -> int:
    return sum(1 << places[name] for name in names)


def _order(code: int, relations: list[Relation], result: Enumeration) -> tuple[bool, int, list[int], int]:
    """Facts of their own first, then small sets, then what nobody can change, then the order of relations."""
    core = [relation for bit, relation in enumerate(relations) if code >> bit & 1]
    again = any(_alike(core, other) for other in result.conflicts)
    return again, len(core), sorted((blamed(relation) for relation in core), reverse=True), code


def _alike(core: list[Relation], other: list[Relation]) -> bool:
    """One fact told by two rules.

    The same wishes of the user against laws about the same axis; all the same but for one law in the place of another
    about the same axis; or a limit of memory or exposure in the place of a layer for each pipeline chunk, without which
    there is no memory to speak of.
    """
    here, there = ({relation.name: relation for relation in one} for one in (core, other))
    mine, theirs = ([one[name] for name in one if name not in rest] for one, rest in ((here, there), (there, here)))
    if len(mine) == len(theirs) == 1 and mine[0].side == "pair" and theirs[0].name == "layers_fill_stages":
        return True
    laws = [relation for relation in (*mine, *theirs) if relation.origin in OWN or relation.side == "pair"]
    if laws or len(mine) == len(core) or not mine or not theirs:
        return False
    wishes = [relation for relation in core if relation.origin in OWN]
    return (bool(wishes) or len(mine) == len(theirs) == 1) and bool(_axes(mine) & _axes(theirs))


def _axes(relations: list[Relation]) -> set[str]:
    return {lever for relation in relations for lever in relation.levers if lever in AXES}


def _enter(result: Enumeration, core: list[Relation], problem: Problem) -> None:
    place = {relation.name: number for number, relation in enumerate(problem.relations)}
    again = next((n for n, other in enumerate(result.conflicts, start=1) if _alike(core, other)), 0)
    result.conflicts.append(sorted(core, key=lambda relation: place[relation.name]))
    result.restates.append(result.restates[again - 1] or again if again else 0)
