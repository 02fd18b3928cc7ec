"""What a framework's rule is: a relation, the releases in which it holds, and the values that would satisfy it.

Contents: FrameworkRule, JointRule, always, ranged, satisfying, explained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mapsearch.axes import SIZES, WORDS, written
from mapsearch.constraints.rules import first
from mapsearch.errors import listed
from mapsearch.frameworks import range_text, within
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.relation import Relation

MOST_SHOWN = 6
CANDIDATES = (*range(1, 17), 20, 24, 30, 32, 36, 40, 48, 64, 72, 96, 128, 256)
"""Sizes tried for `would satisfy it`."""


@dataclass(frozen=True)
class FrameworkRule:
    """One rule of a framework: it holds in the releases from `since` on and `before` another; empty bounds are open."""

    relation: Relation
    since: str = ""
    before: str = ""

    def holds_in(self, release: str) -> bool:
        """Whether a release has the rule."""
        return within(release, self.since, self.before)

    def releases(self, framework: str) -> str:
        """The range in words: `Megatron core before 0.16`, `torchtitan up to 0.2`."""
        return range_text(framework, self.since, self.before)


@dataclass(frozen=True)
class JointRule:
    """A rule that reads both grids, which the search judges one by one: `check` and cases know it, `solve` does not."""

    name: str
    broken: Callable[[Mapping, Model], str]
    """The sentence with the mapping's numbers where it is broken, else empty."""
    since: str = ""
    before: str = ""
    source: str = ""

    def holds_in(self, release: str) -> bool:
        """Whether a release has the rule."""
        return within(release, self.since, self.before)

    def releases(self, framework: str) -> str:
        """The range in words."""
        return range_text(framework, self.since, self.before)


def always(*relations: Relation) -> tuple[FrameworkRule, ...]:
    """Rules that hold in every known release."""
    return tuple(FrameworkRule(explained(relation)) for relation in relations)


def ranged(relation: Relation, *, since: str = "", before: str = "") -> FrameworkRule:
    """A rule with the releases in which it holds."""
    return FrameworkRule(explained(relation), since, before)


def satisfying(relation: Relation, view: Any, axis: str) -> list[str]:
    """Values of one axis, as written, with which the relation holds when all else stays; empty when it has no such."""
    field = "pp_row" if axis == "pp" else axis
    if field not in getattr(view, "__dataclass_fields__", ()):
        return []
    found = []
    for code in _codes(axis):
        other = replace(view, **{field: (code,) if axis == "pp" else code})
        if first(relation.demand(other)) <= first(relation.limit(other)):
            found.append(str(written(axis, code)))
    return found


def _codes(axis: str) -> tuple[int, ...]:
    if axis in WORDS:
        words = WORDS[axis]
        return tuple(sorted(code for code in set(words.by_word.values()) if not code or code & ~words.modifiers))
    if axis == "zero":
        return (0, 1, 2, 3)
    return CANDIDATES if axis in (*SIZES, "vpp", "micro_batch") else ()


def explained(relation: Relation) -> Relation:
    """The relation whose broken sentence ends with values that satisfy it, of the first lever that has any."""

    def sentence(view: Any, demand: float, limit: float) -> str:
        said = relation.sentence(view, demand, limit)
        if demand <= limit:
            return said
        for axis in relation.levers:
            values = satisfying(relation, view, axis)
            if values:
                more = " and more" if len(values) > MOST_SHOWN else ""
                shown = axis.upper() if axis in SIZES else axis
                return f"{said}; {shown} {listed(values[:MOST_SHOWN])}{more} would satisfy it"
        return said

    return replace(relation, sentence=sentence)
