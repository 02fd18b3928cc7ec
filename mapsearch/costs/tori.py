"""Groups on a ring or torus: how far they reach along its axes, and what of their hops runs over one link.

Contents: Reach, reaches, TorusCut, torus_cut, axis_loads.

Groups of an axis stand `apart` places from one member to the next: so many groups lie side by side, and the hops of all
of them run over each link. Axes of the torus are filled in the written order, first by what stands inside the group,
then by the group: it reaches along some axes from end to end (closed: its hops go all round) and along the last one it
may stop short, where what goes back to the start runs over the same links.

Forms, with W = bandwidth / (2 axes) one way on a link, s places apart, w members along an axis, and c = 1 where closed,
else 2 (docs/explanation/audit.md derives them; F4.1 has them for s = 1, c = 1):

- gather: an axis carries 2 W / (s c); parts of the tensor take the axes in any order, which comes to
  max over sets S of axes of (1 / ways outside S - 1 / ways) / (what the axes in S carry);
- exchange of v sent bytes: max over axes of v s c floor(w^2 / 4) / (2 w W);
- hop to the next member: s / W, half of it for two opposite places of a ring, which go both ways round.

Messages along a closed axis and an open one may choose where to change: the middle of the open one gets more
(`_middle`, DRIFT).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from mapsearch import arrays as np
from mapsearch.quantity import Floats, Num
from mapsearch.topologies.fabric import Level


@dataclass(frozen=True)
class Reach:
    """One axis of a ring or torus as the groups of an axis use it."""

    ways: Floats
    """Members along it."""
    apart: Floats
    """Places from one member to the next."""
    closed: Floats
    """1 where the members stand all round it, else 0."""

    @property
    def used(self) -> Floats:
        """1 where there is more than one member along it, else 0."""
        return np.floats(self.ways > 1)

    @property
    def detour(self) -> Floats:
        """How often a link carries what one hop round the group's members sends: s c."""
        return self.apart * (2.0 - self.closed)


class TorusCut(NamedTuple):
    """What a group sees of a ring or torus, as `collectives` asks for it; shapes as the group's ways."""

    share: Floats
    """Share of the bandwidth that a gather can use."""
    exchange: Floats
    """Seconds times bandwidth of an all-to-all, per byte that a member sends (its own part included)."""
    steps: Floats
    """Hops of a ring through all members."""
    hops: Floats
    """Hops between the two farthest members."""
    link: Floats
    """Share of the bandwidth on the way to the next member."""
    onward: Floats
    """Hops to the next member."""


def reaches(ways: Num, apart: Num, level: Level) -> tuple[list[Reach], Floats]:
    """How groups lie along each axis longer than 1, and where they do not lie as a box (1, else 0).

    They do where what stands inside them, and then they, fill axes one after the other, and on a ring always.
    """
    left, inside, lengths = np.asarray(ways, dtype=np.int64), np.asarray(apart, dtype=np.int64), _lengths(level)
    if len(lengths) == 1:
        closed = (left * inside == lengths[0]) & (left > 1)
        return [Reach(_floats(left), _floats(inside), _floats(closed))], np.zeros(np.shape(left * inside))
    found, odd = [], np.zeros_like(left, dtype=bool)
    for length in lengths:
        skipped = np.gcd(inside, length)
        inside, room = inside // skipped, length // skipped
        here = np.gcd(left, room)
        left = left // here
        odd = odd | ((room > 1) & (inside > 1)) | ((here < room) & (left > 1))
        found.append(Reach(_floats(here), _floats(skipped), _floats((here == room) & (here > 1))))
    return found, _floats(odd | (left > 1) | (inside > 1))


_floats = np.floats


def _lengths(level: Level) -> list[int]:
    return [length for length in level.dims or (level.size,) if length > 1] or [1]


DRIFT = 1.25
"""Most that a link gets of one axis' hops, over the mean, where messages that also go along an open axis choose among
shortest paths; found by routing them (tests/auditing/test_level_model.py)."""


def torus_cut(ways: Num, apart: Num, level: Level) -> TorusCut:
    """The forms above for groups of so many units of a ring or torus, so many places apart. Source: F4.1."""
    found, odd = reaches(ways, apart, level)
    axes = len(found)
    exchange = steps = hops = link = onward = np.zeros(np.shape(odd))
    for index, reach in enumerate(found):
        longest = np.floor(reach.ways * reach.ways / 4.0)
        each = reach.used * reach.detour * longest / reach.ways
        hop = reach.used * reach.apart * np.where((reach.ways == 2) & (reach.closed > 0), 0.5, 1.0)
        for after in found[index + 1 :]:
            open_after = (after.used > 0) & (after.closed == 0)
            each = each * np.where(open_after, _middle(after.ways), 1.0)
            hop = hop * np.where(open_after & (after.ways > 2), DRIFT, 1.0)
        exchange, link = np.maximum(exchange, each), np.maximum(link, hop)
        steps = steps + (reach.ways - 1.0) * reach.apart
        farthest = np.where(reach.closed > 0, np.floor(reach.ways / 2.0), reach.ways - 1.0)
        hops = hops + reach.used * farthest * reach.apart
        onward = np.where(onward > 0, onward, reach.used * reach.apart)
    cut = TorusCut(
        _gather_share(found, axes),
        exchange * axes,
        steps,
        hops,
        0.5 / (axes * np.where(link > 0, link, 1.0)),
        np.maximum(onward, 1.0),
    )
    if not np.any(odd):
        return cut
    other = _odd_cut(ways, apart, level)
    return TorusCut(*(np.where(odd > 0, rough, exact) for rough, exact in zip(other, cut, strict=True)))


def _odd_cut(ways: Num, apart: Num, level: Level) -> TorusCut:
    """Groups that run along rows of a torus and on into the next: bounds, which routing them has not passed.

    Members that are next to each other are at most `far` hops apart on any axis, and no two are more than half round.
    """
    lengths = _lengths(level)
    axes, count, inside, far = len(lengths), _floats(ways), _floats(apart), np.zeros(np.shape(ways))
    for length in lengths:
        far = np.maximum(far, np.minimum(inside, np.floor(length / 2.0)))
        inside = np.ceil(inside / length)
    crossing = np.minimum(far * np.floor(count * count / 4.0) / count, max(lengths) / 3.0)
    all_round = float(sum(length // 2 for length in lengths))
    return TorusCut(
        0.5 / (axes * DRIFT * far),
        2.0 * axes * DRIFT * crossing,
        (count - 1.0) * far * axes,
        np.minimum((count - 1.0) * far * axes, all_round),
        0.5 / (axes * 2.0 * far),
        far * axes,
    )


def _middle(ways: Num) -> Floats:
    """Share of the hops along other axes that are made in the middle of an open axis, over the mean of its places.

    Members at y and z of the axis make them in equal parts at all places from y to z: 1, 1, 1.11, 1.21 for up to 4.
    """
    most = int(np.max(ways))
    counts = np.asarray(ways, dtype=np.int64)
    return _floats(np.asarray([_middle_of(count) for count in range(most + 1)], dtype=np.float64)[counts])


@lru_cache
def _middle_of(count: int) -> float:
    place = (count - 1) // 2
    pairs = itertools.product(range(place + 1), range(place, count))
    # Every pair goes both ways, but a member to itself.
    return sum((2.0 - (one == other)) / (other - one + 1) for one, other in pairs) / max(count, 1)


def _gather_share(found: Sequence[Reach], axes: int) -> Floats:
    """What all axes together carry of a gather, over the bandwidth: the least that any set of them leaves."""
    rates = [reach.used / (reach.detour * axes) for reach in found]
    whole = math.prod((reach.ways for reach in found[1:]), start=found[0].ways)
    worst = np.zeros(np.shape(whole))
    for count in range(1, axes + 1):
        for chosen in itertools.combinations(range(axes), count):
            rate = sum(rates[axis] for axis in chosen)
            outside = math.prod((reach.ways for axis, reach in enumerate(found) if axis not in chosen), start=1.0)
            lacking = 1.0 / outside - 1.0 / whole
            worst = np.maximum(worst, np.where(rate > 0, lacking / np.where(rate > 0, rate, 1.0), 0.0))
    return np.where(worst > 0, (1.0 - 1.0 / whole) / np.where(worst > 0, worst, 1.0), 1.0)


def axis_loads(ways: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Shares of a gathered tensor that a device passes on along each axis, so that the slowest axis ends soonest.

    `rates`: what each axis carries, in any unit. The sets of axes that bind are settled one after the other, the
    slowest first; what is left is a gather over the others. Unit: share of the tensor.
    """
    loads, left = [0.0] * len(ways), {axis for axis, count in enumerate(ways) if count > 1}
    while left:
        whole = math.prod(ways[axis] for axis in left)
        sets = [c for count in range(1, len(left) + 1) for c in itertools.combinations(sorted(left), count)]

        def seconds(chosen: tuple[int, ...], left: set[int] = left, whole: int = whole) -> float:
            outside = math.prod(ways[axis] for axis in left if axis not in chosen)
            return (1.0 / outside - 1.0 / whole) / sum(rates[axis] for axis in chosen)

        slowest = max(sets, key=lambda chosen: (round(seconds(chosen), 12), len(chosen)))
        for axis in slowest:
            loads[axis] = rates[axis] * seconds(slowest)
        left -= {*slowest}
    return loads
