"""Where any devices stand on the levels of a cluster, also outside its regular part.

Contents: standing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mapsearch.errors import InputError
from mapsearch.topologies.condense import device_tiers
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.spec import Topology, unit_index

Ints = NDArray[np.int64]


def standing(topology: Topology, devices: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Index of each device's unit inside the next outer one, innermost level first, and the names of the levels."""
    if topology.levels:
        paths = [unit_index(device, topology.levels)[::-1] for device in devices]
        return np.array(paths, dtype=np.int64), tuple(level.name for level in topology.levels)
    tiers = device_tiers(topology)
    every = [device for unit in (tiers[0] if tiers else [devices]) for device in unit]
    homes = [{device: number for number, unit in enumerate(tier) for device in unit} for tier in tiers]
    nested = [{device: number for number, device in enumerate(every)}, *homes, dict.fromkeys(every, 0)]
    columns = []
    for inner, outer in itertools.pairwise(nested):
        seen: dict[int, dict[int, int]] = {}
        place = {}
        for device in every:
            children = seen.setdefault(outer[device], {})
            place[device] = children.setdefault(inner[device], len(children))
        columns.append([place[device] for device in devices])
    return np.array(columns, dtype=np.int64).T, _names(topology, len(columns))


def _names(topology: Topology, count: int) -> tuple[str, ...]:
    """Names of the derived levels where there is one for each tier, else numbers."""
    try:
        names = fabric_of(topology).level_names
    except InputError:  # nothing regular is left
        names = ()
    return names if len(names) == count else tuple(f"tier{tier}" for tier in range(1, count + 1))
