"""The levels form as a fabric: straight from the numbers, without building a graph.

Contents: fabric_of_levels.
"""

from __future__ import annotations

from mapsearch.topologies.fabric import Fabric, Level
from mapsearch.topologies.spec import LevelSpec, Topology


def level_of(spec: LevelSpec) -> Level:
    """One level in SI units."""
    return Level(
        name=spec.name,
        kind=spec.kind,
        size=spec.size,
        bytes_per_s=spec.bytes_per_s,
        latency_s=spec.latency,
        high_bandwidth=spec.high_bandwidth,
        dims=tuple(spec.dims),
        in_network_reduction=spec.in_network_reduction,
    )


def fabric_of_levels(topology: Topology) -> Fabric:
    """The fabric of a topology in the levels form."""
    sources = dict(topology.sources)
    for level in topology.levels:
        sources |= {f"{level.name}.{field}": source for field, source in level.sources.items()}
    return Fabric(
        name=topology.name,
        device=topology.device.device(),
        levels=tuple(level_of(level) for level in topology.levels),
        variable_all_to_all=topology.all_to_all == "variable",
        sources=sources,
        notes=tuple(topology.warnings()),
    )
