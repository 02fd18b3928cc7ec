"""Every placement of given sizes that fills a regular cluster: both parallelism matrices (FORMULAS section 6).

Contents: MOST_PLACEMENTS, placements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from mapsearch.axes import SIZES
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.placed import Placed, placed_of
from mapsearch.solver.options import divisors
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.spec import Topology

MOST_PLACEMENTS = 300
"""Other placements of the same sizes that are tried as starts."""


def placements(mapping: Mapping, topology: Topology, most: int) -> Iterator[Placed]:
    """The mapping's sizes in every placement that fills all devices of the regular part, up to a number."""
    whole = fabric_of(topology)
    fabric = whole.regular
    if fabric.devices != mapping.devices:
        return
    sizes = tuple(int(getattr(mapping, axis)) for axis in SIZES)
    for rows in itertools.islice(_rows(sizes, fabric), most):
        placement = {
            axis: {level: cuts[place] for level, cuts in zip(fabric.level_names, rows, strict=True)}
            for place, axis in enumerate(SIZES)
        }
        yield placed_of(mapping.model_copy(update={"placement": placement}), topology, whole)


def _rows(sizes: tuple[int, ...], fabric: Fabric, level: int = 0) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Cuts of all axes level by level, innermost first, so that both grids fill every level."""
    if level == len(fabric.levels):
        if max(sizes) == 1:
            yield ()
        return
    fan_out = fabric.fan_outs[level]
    dense, pp, expert = sizes[:3], sizes[3], sizes[4:]
    for cut in divisors(math.gcd(pp, fan_out)):
        for first in _filling(dense, fan_out // cut):
            for second in _filling(expert, fan_out // cut):
                here = (*first, cut, *second)
                left = tuple(size // ways for size, ways in zip(sizes, here, strict=True))
                for rest in _rows(left, fabric, level + 1):
                    yield (here, *rest)


def _filling(sizes: tuple[int, ...], product: int) -> Iterator[tuple[int, ...]]:
    """Divisors of the sizes with this product, the first as large as it can be first."""
    if not sizes:
        if product == 1:
            yield ()
        return
    for ways in reversed(divisors(math.gcd(sizes[0], product))):
        for rest in _filling(sizes[1:], product // ways):
            yield (ways, *rest)
