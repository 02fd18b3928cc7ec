"""How units are joined: full mesh, ring, torus, or no regular shape; and the narrowest cut of what has none.

Contents: Neighbours, shape_of, neighbourhoods, narrowest_cut.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping

import numpy as np

from mapsearch.topologies.fabric import LevelKind

Neighbours = Mapping[int, Mapping[int, float]]
"""Unit: linked unit: bytes/s between them, one way."""

SAMPLES = 16
"""Units from which distances are counted, or cuts are grown."""
ANGLES = 24
"""Mixtures of two spectral vectors that are tried."""
LARGEST_SPECTRAL = 512
"""Units up to which the spectral cut is tried too."""


def shape_of(linked: Neighbours) -> tuple[LevelKind, tuple[int, ...]] | None:
    """The regular shape of directly linked units and the axes of a torus, or None.

    Two or three units all linked are a full mesh. A torus is recognised by its degree and by the number of units at
    each distance, seen from several units. Pairs of axes of 2 are reported as one of 4, which is the same graph.
    """
    count = len(linked)
    degrees = {len(others) for others in linked.values()}
    if count > 1 and degrees == {count - 1}:
        return "full_mesh", ()
    if len(degrees) != 1:
        return None
    degree = degrees.pop()
    seen = [_distances(linked, unit) for unit in list(linked)[:: max(1, count // SAMPLES)][:SAMPLES]]
    if degree == 2 and all(sum(distances.values()) == count for distances in seen):
        return "ring", ()
    for dims in _torus_dims(count, degree):
        expected = _torus_distances(dims)
        if all(distances == expected for distances in seen):
            return "torus", dims
    return None


def _distances(linked: Neighbours, start: int) -> Counter[int]:
    """How many units are at each distance from one."""
    distance = {start: 0}
    queue = deque([start])
    while queue:
        unit = queue.popleft()
        for other in linked[unit]:
            if other not in distance:
                distance[other] = distance[unit] + 1
                queue.append(other)
    return Counter(distance.values())


def _torus_dims(count: int, degree: int) -> Iterator[tuple[int, ...]]:
    """Axes, longest first, at most one of them 2, whose product is `count` and whose links make the degree."""
    for dims in _factors(count, count):
        if len(dims) > 1 and sum(1 if extent == 2 else 2 for extent in dims) == degree and dims.count(2) <= 1:
            yield dims


def _factors(count: int, largest: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield ()
    for extent in range(min(count, largest), 1, -1):
        if count % extent == 0:
            for rest in _factors(count // extent, extent):
                yield (extent, *rest)


def _torus_distances(dims: tuple[int, ...]) -> Counter[int]:
    total = np.ones(1, dtype=np.int64)
    for extent in dims:
        places = np.arange(extent)
        total = np.convolve(total, np.bincount(np.minimum(places, extent - places)))
    return Counter({distance: int(number) for distance, number in enumerate(total) if number})


def neighbourhoods(linked: Neighbours, switches: list[Mapping[int, float]]) -> dict[int, set[int]]:
    """The units next to each unit, by a link or a switch."""
    joined: dict[int, set[int]] = {unit: set(others) for unit, others in linked.items()}
    for switch in switches:
        for unit in switch:
            joined[unit] |= set(switch) - {unit}
    return joined


def narrowest_cut(
    linked: Neighbours, switches: list[Mapping[int, float]], joined: Mapping[int, set[int]] | None = None
) -> float:
    """Bandwidth per unit of the switch that would be as slow, for uniform traffic, as the narrowest cut found.

    A cut with n1 of n units on one side and capacity C lets each unit send C (n - 1) / (n1 (n - n1)).
    `switches`: for each switch, what links it to which units; it takes the cheaper side of a cut. `joined`: the
    neighbourhoods of both, where they are known.
    Source: the cut bound of uniform all-to-all traffic. Ignores cuts that neither a unit alone, nor a ball around
    one, nor the spectral order shows.
    """
    units = list(linked)
    place = {unit: index for index, unit in enumerate(units)}
    count = len(units)
    first, second, rate = _as_arrays(linked, place)
    ports = [_port_array(switch, place) for switch in switches]
    best = np.inf
    for order in _orders(linked, switches, place, joined or neighbourhoods(linked, switches)):
        rank = np.empty(count, dtype=np.int64)
        rank[order] = np.arange(count)
        capacity = np.zeros(count + 1)
        low, high = np.minimum(rank[first], rank[second]), np.maximum(rank[first], rank[second])
        np.add.at(capacity, low + 1, rate)
        np.add.at(capacity, high + 1, -rate)
        capacity = np.cumsum(capacity)[1:count]
        for members, rates in ports:
            inside = np.cumsum(np.bincount(rank[members], weights=rates, minlength=count))
            capacity = capacity + np.minimum(inside, inside[-1] - inside)[: count - 1]
        sizes = np.arange(1, count)
        best = min(best, float(np.min(capacity * (count - 1) / (sizes * (count - sizes)))))
    return best


def _as_arrays(linked: Neighbours, place: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pairs = [(place[a], place[b], rate) for a, others in linked.items() for b, rate in others.items() if a < b]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 3)
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2]


def _port_array(switch: Mapping[int, float], place: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([place[unit] for unit in switch]), np.array(list(switch.values()))


def _orders(
    linked: Neighbours,
    switches: list[Mapping[int, float]],
    place: Mapping[int, int],
    joined: Mapping[int, set[int]],
) -> Iterator[np.ndarray]:
    """Orders of the units whose prefixes are the cuts to try: each unit first once, balls, the spectral order."""
    units, count = list(place), len(place)
    for start in [*units[:: max(1, count // SAMPLES)][:SAMPLES]]:
        yield np.array([place[unit] for unit in _ball(joined, start)])
    weakest = sorted(units, key=lambda unit: sum(linked[unit].values()) + sum(s.get(unit, 0.0) for s in switches))
    yield np.array([place[unit] for unit in weakest])
    if count <= LARGEST_SPECTRAL:
        laplacian = np.zeros((count, count))
        for unit, others in joined.items():
            for other in others:
                weight = linked[unit].get(other, 0.0) or 1.0
                laplacian[place[unit], place[other]] -= weight
                laplacian[place[unit], place[unit]] += weight
        slow = np.linalg.eigh(laplacian)[1][:, 1:4]
        for angle in np.arange(ANGLES) * (np.pi / ANGLES):  # symmetric graphs have whole planes of slowest vectors
            for one, other in ((0, 1), (0, 2), (1, 2)):
                if other < slow.shape[1]:
                    mixed = np.cos(angle) * slow[:, one] + np.sin(angle) * slow[:, other]
                    yield np.argsort(np.round(mixed, 9), kind="stable")


def _ball(joined: Mapping[int, set[int]], start: int) -> list[int]:
    seen = [start]
    known = {start}
    for unit in seen:
        for other in sorted(joined[unit] - known):
            known.add(other)
            seen.append(other)
    return seen
