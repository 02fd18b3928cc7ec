"""Finding a topology by path or catalogue name, and turning it into a fabric.

Contents: load_topology, names, fabric_of.
"""

from __future__ import annotations

from mapsearch.records import catalogue_names, resolve, validate
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.levels import fabric_of_levels
from mapsearch.topologies.spec import Topology

PACKAGE = "mapsearch.topologies"


def names() -> list[str]:
    """Names of the built-in topologies."""
    return catalogue_names(PACKAGE)


def load_topology(name_or_path: str) -> Topology:
    """A topology by path, else by catalogue name. Raises InputError naming file and field."""
    data, shown = resolve(name_or_path, PACKAGE, Topology.kind)
    return validate(Topology, data, file=shown)


def fabric_of(topology: Topology) -> Fabric:
    """The regular cluster of a topology; what is left out and what looks odd is in its notes. Raises InputError."""
    if topology.levels:
        return fabric_of_levels(topology)
    from mapsearch.topologies.hierarchy import fabric_of_graph

    return fabric_of_graph(topology)
