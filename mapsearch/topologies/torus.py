"""The axes of a torus that is given by its links alone: which unit stands where.

Contents: along_axes.

A torus is a product of rings. Two steps along different axes close a square, two along one axis do not (but in rings
of 4, which are squares themselves, any two of whose axes may change places). So the rings through one unit are told
apart by what its neighbours have in common, and every other place is the fourth corner of a square.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from mapsearch.topologies.shapes import Neighbours

Place = tuple[int, ...]


def along_axes(linked: Neighbours, dims: Sequence[int]) -> list[int] | None:
    """The units of a torus row by row, the last axis fastest; None where the links are not those of such a torus.

    `linked`: by unit; the first one becomes the origin. `dims`: lengths of the axes. Which of several axes of one
    length is which, and its direction, is free: those with the lower units come first.
    """
    rings = _rings(linked, next(iter(linked)))
    if rings is None or sorted(map(len, rings)) != sorted(dims) or math.prod(dims) != len(linked):
        return None
    lines = [rings.pop(next(at for at, ring in enumerate(rings) if len(ring) == extent)) for extent in dims]
    found: dict[Place, int] = {}
    for place in itertools.product(*map(range, dims)):
        moved = [axis for axis, steps in enumerate(place) if steps]
        if len(moved) < 2:
            found[place] = lines[moved[0]][place[moved[0]]] if moved else lines[0][0]
            continue
        first, second = moved[:2]
        corner = found[_back(place, first, second)]
        sides = linked[found[_back(place, first)]].keys() & linked[found[_back(place, second)]].keys()
        if len(sides) != 2 or corner not in sides:
            return None
        found[place] = next(unit for unit in sides if unit != corner)
    return list(found.values()) if _holds(found, linked, dims) else None


def _back(place: Place, *axes: int) -> Place:
    """One step back along each of the axes."""
    return tuple(steps - (axis in axes) for axis, steps in enumerate(place))


def _holds(found: dict[Place, int], linked: Neighbours, dims: Sequence[int]) -> bool:
    """Every unit has one place, and its links are those to the next places, no others."""
    if len(set(found.values())) != len(linked):
        return False
    for place, unit in found.items():
        around = {
            found[(*place[:axis], (place[axis] + step) % extent, *place[axis + 1 :])]
            for axis, extent in enumerate(dims)
            for step in (1, -1)
        }
        if around != set(linked[unit]):
            return False
    return True


def _rings(linked: Neighbours, start: int) -> list[list[int]] | None:
    """The rings through a unit, one for each axis, each from that unit on; None where they cannot be told."""
    rings: list[list[int]] = []
    left = sorted(linked[start])
    for unit in tuple(left):
        if unit not in left:
            continue
        opposite = [other for other in left if other != unit and linked[unit].keys() & linked[other].keys() == {start}]
        if len(opposite) > 1:
            return None
        if opposite:
            near = opposite[0] in linked[unit]
            ring = [start, unit, opposite[0]] if near else _walk(linked, start, unit)
            if ring is None or ring[-1] != opposite[0]:
                return None
            rings.append(ring)
            left = [other for other in left if other not in (unit, opposite[0])]
    while len(left) > 1:
        one, other, *left = left
        across = (linked[one].keys() & linked[other].keys()) - {start}
        if len(across) != 1:
            return None
        rings.append([start, one, across.pop(), other])
    return [*rings, *([start, unit] for unit in left)]


def _walk(linked: Neighbours, start: int, unit: int) -> list[int] | None:
    """Straight on along a ring of five or more: a step that closes no square with the one before."""
    ring = [start, unit]
    while len(ring) <= len(linked):
        before, here = ring[-2:]
        onward = [
            other
            for other in linked[here]
            if other != before and linked[before].keys() & linked[other].keys() == {here}
        ]
        if len(onward) != 1:
            return None
        if onward[0] == start:
            return ring
        ring.append(onward[0])
    return None
