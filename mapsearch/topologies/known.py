"""Warnings about numbers that look like a slip for a known part: bits for bytes, both ways added, sparse peaks.

Contents: Part, PARTS, suspicions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapsearch.topologies.spec import Topology


def suspicions(topology: Topology) -> list[str]:
    """One sentence for each number that looks wrong."""
    return []
