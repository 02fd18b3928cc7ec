"""Other ways to lay the ranks of a placement along the axes of a torus.

Contents: turned.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.placing.placed import Placed
from mapsearch.topologies.fabric import Fabric

Ints = NDArray[np.int64]


def turned(placed: Placed, fabric: Fabric) -> Iterator[Placed]:
    """The same groups with the axes of one torus level filled in another order, for every order that differs.

    The cost model fills a torus along its first written axis first. Which groups then run round a whole ring, and which
    over part of one, depends on the order; levels do not tell. `fabric`: the reading that the ranks stand on. None
    where part of it is not used.
    """
    if len(placed.devices) != math.prod(fabric.fan_outs):
        return
    stride = np.cumprod([1, *fabric.fan_outs[:-1]])
    at = np.empty(len(placed.devices), dtype=np.int64)
    at[placed.units @ stride] = np.arange(len(at))
    for place, level in enumerate(fabric.levels):
        seen = {level.dims}
        for order in itertools.permutations(range(len(level.dims))):
            shape = tuple(level.dims[axis] for axis in order)
            if shape in seen:
                continue
            seen.add(shape)
            units = placed.units.copy()
            units[:, place] = _refilled(level.dims, order)[units[:, place]]
            ranks = at[units @ stride].tolist()
            yield replace(placed, devices=tuple(placed.devices[rank] for rank in ranks), units=units)


def _refilled(dims: tuple[int, ...], order: tuple[int, ...]) -> Ints:
    """Numbers of units that count along the first axis first, listed along the axes in another order."""
    count = len(dims)
    places = np.arange(math.prod(dims)).reshape(dims[::-1])  # the first axis is the last of the array
    return places.transpose([count - 1 - axis for axis in reversed(order)]).ravel()
