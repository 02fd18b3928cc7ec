"""The largest regular core of an irregular cluster: equal fan-outs at every tier, the most devices.

Contents: Tree, Core, regular_core.

Units are named by paths, outermost index first; a device's path is as long as the tree is deep, the whole cluster's
path is empty. Only units that differ from the rest need to be listed, so that a cluster of any size costs what
its irregular part costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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


def regular_core(tree: Tree) -> Core:
    """The choice of one fan-out per tier that keeps the most devices (ties: the larger inner fan-out)."""
    best: tuple[int, tuple[int, ...], list[set[Path]], tuple[int, ...]] = (0, (), [], ())
    for fan_outs, lost, spare in _choices(tree, 1, _broken_at(tree, 0), []):
        devices = math.prod(fan_outs)
        if (devices, fan_outs) > (best[0], best[1]):
            best = (devices, fan_outs, lost, spare)
    every = set().union(*best[2]) if best[2] else set(tree.broken)
    outer = [path for path in every if not any(path[:n] in every for n in range(len(path)))]
    return Core(best[1], tuple(sorted(outer, key=lambda path: (len(path), path))), best[3])


def _broken_at(tree: Tree, tier: int) -> set[Path]:
    return {path for path in tree.broken if len(path) == tree.depth - tier}


def _choices(
    tree: Tree, tier: int, lost: set[Path], before: list[set[Path]]
) -> Iterator[tuple[tuple[int, ...], list[set[Path]], tuple[int, ...]]]:
    """Every useful fan-out of this tier, joined with every choice of the tiers outside it."""
    counts, alike = _good_children(tree, tier, lost)
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


def _good_children(tree: Tree, tier: int, lost: set[Path]) -> tuple[dict[Path, int], int]:
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
