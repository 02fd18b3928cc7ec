"""The devices behind a core: which units of an irregular cluster a mapping takes, what is spare and what is stranded.

Contents: Taken, taken_units, core_use, core_notes, first_names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from mapsearch.answer import CoreUse, RankedMapping
from mapsearch.axes import ATTENTION_GRID
from mapsearch.solver.backends.packing import common_places
from mapsearch.solver.problem import Problem
from mapsearch.topologies.core import Path, Site, good_children, lost_units

NAMED = 4
"""Units that a note names one by one."""


@dataclass(frozen=True)
class Taken:
    """One core, unit by unit."""

    site: Site
    fan_outs: tuple[int, ...]
    """Of every tier of the tree, innermost first."""
    lost: tuple[frozenset[Path], ...]
    """Per number of tiers inside (devices first): units that cannot be used."""
    places: tuple[tuple[int, ...], ...]
    """Per tier: the places that units fill where they can."""

    def children(self, path: Path) -> tuple[list[int], list[int]]:
        """Children of a unit that are taken, and those that could be: the common places first, then the lowest."""
        tier = self.site.tree.depth - len(path)
        lost, wanted = self.lost[tier - 1], self.places[tier - 1]
        good = [child for child in range(self.site.tree.size_of(path)) if (*path, child) not in lost]
        preferred = sorted(good, key=lambda child: (child not in wanted, child))
        count = self.fan_outs[tier - 1]
        return sorted(preferred[:count]), sorted(preferred[count:])

    def _units(self) -> Iterator[tuple[Path, list[int], list[int]]]:
        """Every unit that is taken, outermost first, with its taken and its spare children."""
        todo: list[Path] = [()]
        for path in todo:
            if len(path) < self.site.tree.depth:
                inside, spare = self.children(path)
                yield path, inside, spare
                todo += [(*path, child) for child in inside]

    def devices(self) -> list[Path]:
        """The devices of the core; their order is that of the levels, the innermost one fastest."""
        found: list[Path] = [()]
        for _ in range(self.site.tree.depth):
            found = [(*path, child) for path in found for child in self.children(path)[0]]
        return found

    @cached_property
    def spares(self) -> list[Path]:
        """Units that are good for this core and not needed, outermost first."""
        return [(*path, child) for path, _, spare in self._units() for child in spare]

    @cached_property
    def stranded(self) -> list[Path]:
        """Units that work in part or whole and are left out since too little of them works, outermost first."""
        tree = self.site.tree
        found = []
        for path, inside, spare in self._units():
            held = {*inside, *spare}
            found += [
                (*path, child)
                for child in range(tree.size_of(path))
                if child not in held and tree.working((*path, child))
            ]
        return found

    @property
    def out_of_place(self) -> int:
        """Taken units that fill other places than the common ones."""
        tree = self.site.tree
        return sum(set(inside) != set(self.places[tree.depth - len(path) - 1]) for path, inside, _ in self._units())

    def names(self, paths: Sequence[Path]) -> list[str]:
        """The names of units."""
        return [self.site.label(path) for path in paths]

    def working(self, paths: Sequence[Path]) -> int:
        """Working devices in units."""
        return sum(self.site.tree.working(path) for path in paths)


def taken_units(site: Site, used: tuple[int, ...]) -> Taken:
    """The units that a mapping with these fan-outs takes; `used` is innermost first, as the fabric's levels.

    Raises ValueError when the cluster does not hold them, BackendMissing when OR-Tools is not installed.
    """
    tree, fan_outs = site.tree, site.fan_outs(used)
    lost = lost_units(tree, fan_outs)
    if () in lost[-1]:
        raise ValueError(f"the cluster has no {' x '.join(map(str, reversed(used)))} units")
    places: list[tuple[int, ...]] = []
    for tier, count in enumerate(fan_outs, start=1):
        counts, alike = good_children(tree, tier, set(lost[tier - 1]))
        sets = {path: _good(site, path, lost[tier - 1]) for path in counts if path not in lost[tier]}
        units = Counter(sets.values())
        if alike:
            units[frozenset(range(alike))] += math.prod(tree.sizes[tier:]) - len(counts)
        most = 1 + max(max(good) for good in units)
        bent = _bent(tree.depth, tier, places, lost, sets, site) if tier > 1 else Counter()
        places.append(common_places(units, count, [len(counts) - bent[place] for place in range(most)]))
    return Taken(site, fan_outs, tuple(frozenset(units) for units in lost), tuple(places))


def _good(site: Site, path: Path, lost: set[Path] | frozenset[Path]) -> frozenset[int]:
    return frozenset(child for child in range(site.tree.size_of(path)) if (*path, child) not in lost)


def _bent(
    depth: int,
    tier: int,
    places: list[tuple[int, ...]],
    lost: Sequence[set[Path]],
    sets: dict[Path, frozenset[int]],
    site: Site,
) -> Counter[int]:
    """For each place: children there that cannot fill their tier's common places; those are better left out."""
    wanted = frozenset(places[-1])
    found: Counter[int] = Counter()
    losing = {path[: depth - tier + 1] for path in lost[tier - 2]}
    for path in losing:
        if path[:-1] in sets and path[-1] in sets[path[:-1]] and not wanted <= _good(site, path, lost[tier - 2]):
            found[path[-1]] += 1
    return found


def core_use(problem: Problem, mapping: RankedMapping) -> CoreUse | None:
    """What a mapping takes of an irregular cluster; None in a regular one. Raises BackendMissing."""
    fabric = problem.facts.fabric
    if fabric.site is None:
        return None
    names = fabric.level_names
    cuts = [mapping.placement.get(axis, {}) for axis in ATTENTION_GRID]
    used = tuple(math.prod(cut.get(name, 1) for cut in cuts) for name in names)
    taken = taken_units(fabric.site, used)
    return CoreUse(
        units=dict(zip(names, used, strict=True)),
        devices=math.prod(used),
        spares=taken.names(taken.spares),
        spare_devices=taken.working(taken.spares),
        stranded=taken.names(taken.stranded),
        stranded_devices=taken.working(taken.stranded),
        out_of_place=taken.out_of_place,
        searched=[dict(zip(names, sizes, strict=True)) for sizes in problem.used],
    )


def core_notes(core: CoreUse | None) -> list[str]:
    """What a reader should know about the part of an irregular cluster that the first mapping takes."""
    if core is None:
        return []
    shape = " x ".join(str(units) for units in reversed(core.units.values()))
    parts = [f"the first mapping takes {core.devices:,} devices as {shape}, of {len(core.searched)} choices searched"]
    if core.spares:
        parts.append(f"spare: {first_names(core.spares)} ({core.spare_devices:,} devices)")
    if core.stranded:
        parts.append(
            f"stranded beside broken ones: {first_names(core.stranded)} ({core.stranded_devices:,} working devices)"
        )
    if core.out_of_place:
        parts.append(f"{core.out_of_place:,} units fill other places than their siblings")
    return ["; ".join(parts)]


def first_names(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")
