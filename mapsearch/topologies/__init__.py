"""Clusters as their owners describe them, and as the cost model sees them.

Contents: Device, Level, Fabric, Topology, load_topology, fabric_of, names, scaled.
"""

from __future__ import annotations

from mapsearch.topologies.fabric import Device, Fabric, Level
from mapsearch.topologies.load import fabric_of, load_topology, names
from mapsearch.topologies.scale import scaled
from mapsearch.topologies.spec import Topology

__all__ = ["Device", "Fabric", "Level", "Topology", "fabric_of", "load_topology", "names", "scaled"]
