"""Other ways to lay the ranks of a placement along the axes of a torus.

Contents: turned.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.placing.members import regular_devices
from mapsearch.placing.placed import Placed
from mapsearch.placing.standing import standing
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology


def turned(placed: Placed, topology: Topology, fabric: Fabric) -> Iterator[Placed]:
    """The same groups with the axes of one torus level filled in another order, for every order that differs.

    The cost model fills a torus along its first written axis first. Which groups then run round a whole ring, and which
    over part of one, depends on the order; levels do not tell. `fabric`: the reading that the ranks stand on.
    """
    names = regular_devices(topology, fabric)
    if names.size != len(placed.devices):
        return  # part of the torus is not used
    for axis, level in enumerate(reversed(fabric.levels)):
        if names.shape[axis] != level.size or len(set(level.dims)) < 2:
            continue
        seen = {level.dims}
        for order in itertools.permutations(range(len(level.dims))):
            shape = tuple(level.dims[place] for place in order)
            if shape in seen:
                continue
            seen.add(shape)
            other = np.take(names, _refilled(level.dims, order), axis=axis)
            onto = dict(zip(names.ravel().tolist(), other.ravel().tolist(), strict=True))
            devices = tuple(onto[device] for device in placed.devices)
            units, level_names = standing(topology, devices)
            yield replace(placed, devices=devices, units=units, level_names=level_names)


def _refilled(dims: tuple[int, ...], order: tuple[int, ...]) -> NDArray[np.int64]:
    """Numbers of units that count along the first axis first, listed along the axes in another order."""
    count = len(dims)
    places = np.arange(int(np.prod(dims))).reshape(dims[::-1])  # the first axis is the last of the array
    return places.transpose([count - 1 - axis for axis in reversed(order)]).ravel()
