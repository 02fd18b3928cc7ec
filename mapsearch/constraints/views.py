"""A joined mapping as relations see it: step time, memory and offloaded bytes of a pair of options.

Contents: PairView.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mapsearch.costs.views import CellView, Facts
from mapsearch.quantity import Num


@dataclass
class PairView:
    """One cell with an attention and an expert option joined; numbers, arrays, or solver expressions."""

    cell: CellView
    step_time_s: Num
    memory: list[Num]
    """Peak bytes per kind of stage."""
    host_bytes: Num
    """Host memory bytes of the stage that keeps most there."""
    nvme_bytes: Num
    """NVMe bytes of the stage that keeps most there."""
    without: Callable[[frozenset[str]], Num]
    """Step time with only the named classes of communication."""
    _cache: dict[frozenset[str], Num] = field(default_factory=dict)

    @property
    def facts(self) -> Facts:
        """The given inventories."""
        return self.cell.facts

    def step_time_with(self, classes: frozenset[str]) -> Num:
        """Step time with only the named classes of communication, computed once."""
        if classes not in self._cache:
            self._cache[classes] = self.without(classes)
        return self._cache[classes]
