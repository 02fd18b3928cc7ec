"""Clusters put together from what tools say: the inside of a node, a fabric between nodes, known parts.

Contents: Wishes, composed, imported.
"""

from __future__ import annotations

from mapsearch.topologies.composing.cluster import composed, imported
from mapsearch.topologies.composing.wishes import Wishes

__all__ = ["Wishes", "composed", "imported"]
