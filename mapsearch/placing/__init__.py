"""Ranks on devices: which device every rank of a mapping stands on, and the groups that follow.

Contents: Placed, placed_of.
"""

from __future__ import annotations

from mapsearch.placing.placed import Placed, placed_of

__all__ = ["Placed", "placed_of"]
