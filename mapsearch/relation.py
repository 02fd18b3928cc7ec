"""Relations: quantity <= limit, with a margin, a reason and levers.

Contents: Side, Relation.

A relation never answers with a bare bool: its margin is `limit - demand` in its unit, negative when broken.
Pure yes/no rules have demand 0 or 1 and limit 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Side = Literal["cell", "attention", "expert", "pair"]
"""Which part of a mapping a relation reads: the shared cell, one grid's option, or both together."""


@dataclass(frozen=True)
class Relation:
    """A rule over a mapping: `demand(...) <= limit(...)`, each an array over the options of its side.

    `demand` and `limit` receive the side's view (see constraints/views.py) and return arrays that broadcast
    over its options, or solver values on the pair side. `sentence` states the broken or held rule for one
    mapping, with its numbers.
    """

    name: str
    side: Side
    unit: str
    demand: Callable[[Any], Any]
    limit: Callable[[Any], Any]
    sentence: Callable[[Any, float, float], str]
    origin: str = "physics"
    levers: tuple[str, ...] = field(default=())
    source: str = ""
    statement: str = ""
    """The rule in words without a mapping's numbers, for conflicts; its name when left out."""
    given: Callable[[Any], str] | None = None
    """What the facts alone say of it, with their numbers: `the model has 8 query heads`."""

    @property
    def words(self) -> str:
        """The rule in words."""
        return self.statement or self.name.replace("_", " ")

    def told(self, facts: Any) -> str:
        """The rule in words with the numbers that the facts give it."""
        given = self.given(facts) if self.given else ""
        return f"{self.words}; {given}" if given else self.words
