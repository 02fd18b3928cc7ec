"""The best mappings so far.

Contents: Key, Candidate, Top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapsearch.solver.cells import Index
    from mapsearch.solver.tables import Tables

Key = tuple[int, ...]
"""The sizes and choices of a mapping: what makes two of them distinct."""


@dataclass(frozen=True)
class Candidate:
    """A feasible mapping as positions in its tables; `key` holds its sizes and choices."""

    step_time_s: float
    key: Key
    tables: Tables
    index: Index
    attention: int
    """Position in the group's list of attention options."""
    expert: int
    """Position in the group's list of expert options."""

    @property
    def order(self) -> tuple[float, Key]:
        """Sort key: step time, then the mapping itself, so that ties are always listed alike."""
        return self.step_time_s, self.key


@dataclass
class Top:
    """The k best distinct mappings so far."""

    k: int
    by_key: dict[Key, Candidate] = field(default_factory=dict)
    cutoff_s: float = math.inf
    """No mapping slower than this can enter: of the k-th best, or what is known of it before it is found."""

    def wants(self, step_time_s: float, key: Key) -> bool:
        """Whether a mapping with this time and key would enter."""
        held = self.by_key.get(key)
        return step_time_s <= self.cutoff_s and (held is None or step_time_s < held.step_time_s)

    def offer(self, candidate: Candidate) -> None:
        """Take in a candidate that is wanted, and drop the last one beyond k."""
        self.by_key[candidate.key] = candidate
        if len(self.by_key) > self.k:
            worst = max(self.by_key.values(), key=lambda c: c.order)
            del self.by_key[worst.key]
        if self.full:
            self.cutoff_s = min(self.cutoff_s, max(c.step_time_s for c in self.by_key.values()))

    @property
    def full(self) -> bool:
        """Whether there are k of them."""
        return len(self.by_key) == self.k

    @property
    def best_s(self) -> float:
        """Step time of the best so far, infinite before there is one."""
        return min((c.step_time_s for c in self.by_key.values()), default=math.inf)

    @property
    def ranked(self) -> list[Candidate]:
        """Best first."""
        return sorted(self.by_key.values(), key=lambda c: c.order)
