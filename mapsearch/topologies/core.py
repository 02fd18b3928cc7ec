"""Regular cores of an irregular cluster: equal fan-outs at every tier, none of which can be raised.

Contents: Tree, Core, Site, regular_core, regular_cores, lost_units, good_children, block_count.

Units are named by paths, outermost index first; a device's path is as long as the tree is deep, the whole cluster's
path is empty. Only units that differ from the rest need to be listed, so that a cluster of any size costs what
its irregular part costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

Path = tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    """A cluster as built: what is alike, what differs, what is broken."""

    sizes: tuple[int, ...]
    """Children of a unit that is not listed, innermost tier first; 0 where every unit is listed."""
    listed: Mapping[Path, int] = field(default_factory=dict)
    """Children as built of the units that differ from `sizes` (of every unit where the size is 0)."""
    broken: frozenset[Path] = frozenset()
    """Units and devices that cannot be used."""
    whole: tuple[bool, ...] = ()
    """Tiers whose units are of use only as built (rings and tori), innermost first."""

    @property
    def depth(self) -> int:
        """Number of tiers."""
        return len(self.sizes)

    def size_of(self, path: Path) -> int:
        """Children of a unit as built."""
        return self.listed.get(path, self.sizes[self.depth - len(path) - 1])

    def working(self, path: Path) -> int:
        """Devices of a unit that are not broken, nor inside anything that is."""
        if path in self.broken or any(path[:length] in self.broken for length in range(len(path))):
            return 0
        if len(path) == self.depth:
            return 1
        if path not in self._inside:
            return math.prod(self.sizes[: self.depth - len(path)])
        return sum(self.working((*path, child)) for child in range(self.size_of(path)))

    @cached_property
    def _inside(self) -> frozenset[Path]:
        """Units that differ, or that hold one that does."""
        return frozenset(path[:length] for path in (*self.listed, *self.broken) for length in range(len(path) + 1))

    def is_whole(self, tier: int) -> bool:
        """True when units of this tier lose their shape with any child."""
        return bool(self.whole) and self.whole[tier - 1]


@dataclass(frozen=True)
class Core:
    """Equal fan-outs, and the units that they leave out."""

    fan_outs: tuple[int, ...]
    """Innermost first; empty when nothing regular is left."""
    lost: tuple[Path, ...]
    """Units without enough good children, broken ones included, outermost first, none inside another."""
    spare: tuple[int, ...]
    """Per tier: good children that a full unit has beyond its fan-out."""

    @property
    def devices(self) -> int:
        """Devices of the core."""
        return math.prod(self.fan_outs) if self.fan_outs else 0


@dataclass(frozen=True)
class Site:
    """An irregular cluster unit by unit: what a core may take, and what everything is called."""

    tree: Tree
    tiers: tuple[int, ...]
    """Tier of the tree, from 1, behind each level of the fabric; units of the other tiers hold one unit each."""
    label: Callable[[Path], str]
    """The name of a unit."""
    gone: tuple[str, ...] = ()
    """What is not in the tree at all: taken out beforehand, or cut off by it."""

    def fan_outs(self, used: tuple[int, ...]) -> tuple[int, ...]:
        """Fan-outs of every tier of the tree, innermost first, for those of the fabric's levels."""
        found = [1] * self.tree.depth
        for tier, size in zip(self.tiers, used, strict=True):
            found[tier - 1] = size
        return tuple(found)


LEAST = 0.5
"""Cores with a smaller share of the largest core's devices are not offered."""


def regular_core(tree: Tree) -> Core:
    """The choice of one fan-out per tier that keeps the most devices (ties: the larger inner fan-out)."""
    return regular_cores(tree)[0]


def regular_cores(tree: Tree) -> list[Core]:
    """Every core in which no fan-out can be raised and none gives way to another, most devices first; at least one.

    Left out: cores with less than half of the largest one's devices, and those that use rings or tori of another size
    than it does. When nothing regular is left, the one core is empty.
    """
    found = [
        (math.prod(fan_outs), fan_outs, lost, spare)
        for fan_outs, lost, spare in _choices(tree, 1, _broken_at(tree, 0), [])
    ]
    found.sort(key=lambda choice: choice[:2], reverse=True)
    kept: list[tuple[int, tuple[int, ...], list[set[Path]], tuple[int, ...]]] = []
    for choice in found:
        devices, fan_outs = choice[:2]
        if kept and (devices < LEAST * kept[0][0] or not _same_rings(tree, fan_outs, kept[0][1])):
            continue
        if not any(all(a <= b for a, b in zip(fan_outs, other[1], strict=True)) for other in kept):
            kept.append(choice)
    return [Core(fan_outs, _outermost(set().union(*lost)), spare) for _, fan_outs, lost, spare in kept] or [
        Core((), _outermost(set(tree.broken)), ())
    ]


def lost_units(tree: Tree, fan_outs: tuple[int, ...]) -> list[set[Path]]:
    """Units without enough good children for these fan-outs, broken ones included: devices first, the cluster last."""
    found = [_broken_at(tree, 0)]
    for tier, fan_out in enumerate(fan_outs, start=1):
        counts, alike = good_children(tree, tier, found[-1])
        bad = {path for path, count in counts.items() if count < fan_out}
        found.append(bad | _broken_at(tree, tier) | ({()} if 0 < alike < fan_out else set()))
    return found


def _same_rings(tree: Tree, fan_outs: tuple[int, ...], other: tuple[int, ...]) -> bool:
    pairs = enumerate(zip(fan_outs, other, strict=True), start=1)
    return all(one == two for tier, (one, two) in pairs if tree.is_whole(tier))


def _outermost(lost: set[Path]) -> tuple[Path, ...]:
    """The lost units that are not inside another lost one, outermost first."""
    outer = [path for path in lost if not any(path[:length] in lost for length in range(len(path)))]
    return tuple(sorted(outer, key=lambda path: (len(path), path)))


def _broken_at(tree: Tree, tier: int) -> set[Path]:
    return {path for path in tree.broken if len(path) == tree.depth - tier}


def _choices(
    tree: Tree, tier: int, lost: set[Path], before: list[set[Path]]
) -> Iterator[tuple[tuple[int, ...], list[set[Path]], tuple[int, ...]]]:
    """Every useful fan-out of this tier, joined with every choice of the tiers outside it."""
    counts, alike = good_children(tree, tier, lost)
    broken = _broken_at(tree, tier)
    values = {count for path, count in counts.items() if path not in broken} | ({alike} if alike else set())
    for fan_out in sorted((value for value in values if value > 0), reverse=True):
        whole = tree.is_whole(tier)
        bad = {path for path, count in counts.items() if count < fan_out or (whole and count != fan_out)} | broken
        if alike and alike < fan_out:
            continue
        spare = max([*counts.values(), alike]) - fan_out
        here = [*before, lost]
        if tier == tree.depth:
            if () not in bad:
                yield (fan_out,), [*here, bad], (spare,)
            continue
        for outer, all_lost, spares in _choices(tree, tier + 1, bad, here):
            yield (fan_out, *outer), all_lost, (spare, *spares)


def good_children(tree: Tree, tier: int, lost: set[Path]) -> tuple[dict[Path, int], int]:
    """Good children of the units that differ, and of every other unit (0 when there is no other)."""
    length = tree.depth - tier
    size = tree.sizes[tier - 1]
    losses = Counter(path[:-1] for path in lost)
    listed = {path: count for path, count in tree.listed.items() if len(path) == length}
    counts = {path: listed.get(path, size) - losses[path] for path in {*listed, *losses}}
    if tree.is_whole(tier) and size:
        counts = {path: count if count == size else 0 for path, count in counts.items()}
    units = math.prod(tree.sizes[tier:]) if size else 0
    return counts, size if units > len(counts) else 0


def block_count(tree: Tree, fan_outs: tuple[int, ...], ways: tuple[int, ...]) -> int:
    """How many blocks of devices the cluster holds side by side: `ways` units of each tier, whole inside.

    A block lies in one unit of the outermost tier of which it has more than one; `fan_outs`: what a whole unit has.
    """
    top = max((tier for tier, count in enumerate(ways, start=1) if count > 1), default=0)
    if top == 0:
        return tree.working(())
    counts, alike = good_children(tree, top, lost_units(tree, fan_outs)[top - 1])
    length = tree.depth - top
    alive = {path: count for path, count in counts.items() if not _dead(tree, path)}
    found = sum(count // ways[top - 1] for count in alive.values())
    if alike:
        dead = sum(
            math.prod(tree.sizes[top : tree.depth - len(path)])
            for path in _outermost(set(tree.broken))
            if len(path) <= length
        )
        rest = math.prod(tree.sizes[top:]) - dead - len(alive)
        found += rest * (alike // ways[top - 1])
    return found


def _dead(tree: Tree, path: Path) -> bool:
    return any(path[:length] in tree.broken for length in range(len(path) + 1))
