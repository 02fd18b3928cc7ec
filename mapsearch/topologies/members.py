"""The devices of a regular cluster by their place: which device stands where on every level.

Contents: members.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mapsearch.topologies.core import Core, Path
from mapsearch.topologies.fabric import Fabric, Level
from mapsearch.topologies.levels import regular_part
from mapsearch.topologies.spec import Topology, unit_words


def members(topology: Topology, fabric: Fabric) -> NDArray[np.str_]:
    """Names of the devices of the regular cluster: an axis per level of its fabric, outermost level first.

    Names are those of `graph.graph_of`. Units of a ring stand in the order of the ring. Units of a torus stand so that
    its first written axis runs fastest, which is how the cost model fills a torus.
    """
    if topology.levels:
        names = _of_levels(topology)
    else:
        from mapsearch.topologies.hierarchy import regular_members

        names = np.array(regular_members(topology))
    sizes = tuple(level.size for level in reversed(fabric.levels))
    names = names.reshape(sizes)
    for axis, level in enumerate(reversed(fabric.levels)):
        names = np.take(names, _filling(level), axis=axis)
    return names


def _of_levels(topology: Topology) -> NDArray[np.str_]:
    """The levels form: names by counting, without a graph."""
    words = unit_words([level.name for level in topology.levels])
    sizes = [level.size for level in reversed(topology.levels)]
    if not topology.down:
        parts = [[f"{word}{index}" for index in range(size)] for word, size in zip(words, sizes, strict=True)]
        return np.array(["/".join(each) for each in product(*parts)])
    core = regular_part(topology)
    kept = _kept(core, sizes)
    return np.array(["/".join(f"{word}{i}" for word, i in zip(words, path, strict=True)) for path in kept])


def _kept(core: Core, sizes: list[int]) -> list[Path]:
    """Paths of the devices that the core keeps: of every unit its first good children, as many as the fan-out."""
    lost = set(core.lost)
    paths: list[Path] = [()]
    for size, fan_out in zip(sizes, reversed(core.fan_outs), strict=True):
        paths = [
            child
            for path in paths
            for child in [(*path, index) for index in range(size) if (*path, index) not in lost][:fan_out]
        ]
    return paths


def _filling(level: Level) -> NDArray[np.int64]:
    """Units of one level in the order in which axes are laid over them; those of a torus are numbered row by row."""
    dims = level.dims if level.dims and math.prod(level.dims) == level.size else (level.size,)
    return np.arange(level.size).reshape(dims).T.ravel()
