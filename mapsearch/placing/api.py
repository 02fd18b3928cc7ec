"""The Python API of placements: an answer's mapping on its cluster.

Contents: Placing, topology_of, placing_of, placement_of.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass

from mapsearch.answer import Provenance
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.placement import AxisGroups, Placement, Seating
from mapsearch.placing.choose import choose
from mapsearch.placing.chosen import Chosen
from mapsearch.placing.patterns import patterns_of
from mapsearch.placing.placed import AXES, Placed, placed_of, reading_for
from mapsearch.solver.provenance import checksum
from mapsearch.topologies import Topology, fabric_of, load_topology, scaled
from mapsearch.topologies.types import read_as


@dataclass(frozen=True)
class Placing:
    """A mapping on a cluster, both as read."""

    mapping: Mapping
    name: str
    """Where the mapping was read from."""
    topology: Topology
    placed: Placed
    chosen: Chosen | None = None


def topology_of(about: Provenance | None, name: str | None, file: str, *, named: bool) -> Topology:
    """The cluster of an answer by its name, held against the answer's checksum; `named`: it was asked for by name.

    An answer carries the name of its topology and a checksum of its content, not the topology itself.
    Raises InputError: none is named, the file is not there, or its content is another.
    """
    if name is None:
        raise InputError("is a mapping and names no cluster; give one with --topology", file=file)
    try:
        topology = load_topology(name)
    except InputError as problem:
        if named:
            raise
        raise InputError(
            f"was made for the topology {name!r}, which cannot be read here ({problem}); give it with --topology",
            file=file,
        ) from None
    if about is not None and about.devices is not None:
        topology = scaled(topology, about.devices)
    before = None if about is None else about.input_sha256.get("topology")
    if before is not None and checksum(topology) != before:
        raise InputError(
            f"was made for a topology with SHA-256 {before[:12]}.., and {name} now has {checksum(topology)[:12]}..; "
            "give the file as it was with --topology, or solve again",
            file=file,
        )
    return topology


def placing_of(
    mapping: Mapping,
    topology: Topology,
    *,
    name: str = "",
    notes: Collection[str] | None = None,
    sent_bytes: Dictionary[str, float] | None = None,
) -> Placing:
    """The ranks of a mapping on a cluster: as its placement says, or with `sent_bytes` by axis on the actual links.

    `notes`: those of the mapping's answer, which tell how the cluster was read where it can be read in several ways.
    Raises InputError, BackendMissing.
    """
    fabric = reading_for(mapping, fabric_of(topology), notes)
    if sent_bytes is None:
        return Placing(mapping, name, topology, placed_of(mapping, topology, fabric))
    chosen = choose(mapping, read_as(topology, fabric.reading), sent_bytes)
    return Placing(mapping, name, topology, chosen.placed, chosen)


def placement_of(placing: Placing) -> Placement:
    """The typed result of a placing."""
    placed, chosen = placing.placed, placing.chosen
    seating = None
    if chosen is not None:
        seating = Seating(
            worst_s=chosen.cost.worst_s,
            byte_hops=chosen.cost.byte_hops,
            busiest=list(chosen.busiest),
            given_worst_s=None if chosen.given is None else chosen.given.worst_s,
            fixed_worst_s=chosen.fixed.worst_s,
            proven=chosen.proven,
            start=chosen.start,
        )
    return Placement(
        topology=placing.topology.name,
        topology_sha256=checksum(placing.topology),
        mapping=placing.name,
        order=placed.order,
        sizes=placed.sizes,
        level_names=list(placed.level_names),
        axes=[
            AxisGroups(
                axis=axis,
                size=placed.groups[axis].shape[1],
                groups=len(placed.groups[axis]),
                patterns=patterns_of(placed, axis),
            )
            for axis in AXES
        ],
        seating=seating,
        devices=list(placed.devices),
        groups={axis: placed.groups[axis].tolist() for axis in AXES},
        notes=list(fabric_of(placing.topology).notes) if chosen is None else [],
    )
