"""Finding a topology by path or catalogue name, and turning it into a fabric.

Contents: load_topology, names, fabric_of.
"""

from __future__ import annotations

from dataclasses import replace

from mapsearch.errors import InputError
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
    """The cluster as the cost model sees it; what is left out and what looks odd is in its notes. Raises InputError.

    Of several types of device, or of units of unequal bandwidth, the other ways to read it are its `alternatives`.
    """
    if not (topology.other_devices or topology.only_type):
        return _of_one_type(topology)
    from mapsearch.topologies.types import readings_of

    found: list[Fabric] = []
    for name, plain, note in readings_of(topology):
        try:
            fabric = _of_one_type(plain)
        except InputError:
            if not found:
                raise
            continue  # nothing regular is left of this type alone
        others = fabric.alternatives
        notes = (*([note] if note else []), *fabric.notes)
        found += [replace(fabric, reading=name or fabric.reading, notes=notes, alternatives=()), *others]
    return replace(found[0], alternatives=tuple(found[1:]))


def _of_one_type(topology: Topology) -> Fabric:
    if topology.levels:
        return fabric_of_levels(topology)
    from mapsearch.topologies.hierarchy import fabric_of_graph

    return fabric_of_graph(topology)
