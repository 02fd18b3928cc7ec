"""What a part of the judgement finds: a kind, the relation that decides, and a sentence with the numbers.

Contents: Finding, Kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["infeasible", "out of memory", "slow", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing found about a case."""

    kind: Kind
    relation: str
    sentence: str
    origin: str = "physics"
    """physics, or whose rule it is."""
