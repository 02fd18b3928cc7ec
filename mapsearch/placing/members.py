"""The devices that a mapping takes, by their place: which device stands where on every level.

Contents: members, regular_devices.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mapsearch.topologies.fabric import Fabric, Level
from mapsearch.topologies.spec import Topology, unit_words

Names = NDArray[np.str_]


def regular_devices(topology: Topology, fabric: Fabric) -> Names:
    """All devices of the largest regular part: an axis per level, outermost first."""
    return members(topology, fabric, fabric.cores[0] if fabric.cores else fabric.fan_outs)


def members(topology: Topology, fabric: Fabric, used: tuple[int, ...]) -> Names:
    """Names of the devices that a mapping with so many units takes: an axis per level, outermost level first.

    `used`: units of each level, innermost first. Of a regular cluster the first units are taken, of an irregular one
    those that the search takes (`solver.cores`). Units of a ring stand along it; those of a torus so that its first
    written axis runs fastest, which is how the cost model fills a torus.
    Raises ValueError when the cluster does not hold them, BackendMissing without OR-Tools in an irregular cluster.
    """
    if fabric.site is not None:
        from mapsearch.solver.cores import taken_units

        taken = taken_units(fabric.site, used)
        names = np.array(taken.names(taken.devices())).reshape(tuple(reversed(used)))
    else:
        names = _all(topology, fabric)
        names = names[tuple(slice(0, units) for units in reversed(used))] if not _torus(fabric) else names
    for axis, level in enumerate(reversed(fabric.levels)):
        if names.shape[axis] == level.size:
            names = np.take(names, _filling(level), axis=axis)
    return names[tuple(slice(0, units) for units in reversed(used))]


def _all(topology: Topology, fabric: Fabric) -> Names:
    """All devices of a regular cluster."""
    sizes = tuple(level.size for level in reversed(fabric.levels))
    if topology.levels:
        words = unit_words([level.name for level in topology.levels])
        parts = [[f"{word}{index}" for index in range(size)] for word, size in zip(words, sizes, strict=True)]
        return np.array(["/".join(each) for each in product(*parts)]).reshape(sizes)
    from mapsearch.topologies.hierarchy import regular_members

    return np.array(regular_members(topology)).reshape(sizes)


def _torus(fabric: Fabric) -> bool:
    return any(level.dims for level in fabric.levels)


def _filling(level: Level) -> NDArray[np.int64]:
    """Units of one level in the order in which axes are laid over them; those of a torus are numbered row by row."""
    dims = level.dims if level.dims and math.prod(level.dims) == level.size else (level.size,)
    return np.arange(level.size).reshape(dims).T.ravel()
