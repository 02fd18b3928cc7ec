"""What a running search tells whoever watches it.

Contents: Progress.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One report of a running search."""

    phase: str
    """What is being done, in a word or two: `bounds`, `join`, `proof (cpsat)`."""
    done: int = 0
    total: int = 0
    """Steps of this phase; 0 when not known."""
    incumbent_s: float | None = None
    """Step time of the best mapping so far."""
    bound_s: float | None = None
    """Lower bound so far."""

    @property
    def gap(self) -> float | None:
        """(incumbent - bound) / incumbent, None while one of them is unknown."""
        if self.incumbent_s is None or self.bound_s is None or self.incumbent_s <= 0.0:
            return None
        return max(0.0, (self.incumbent_s - self.bound_s) / self.incumbent_s)
