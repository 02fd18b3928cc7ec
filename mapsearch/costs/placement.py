"""Where the axes of one mapping live: rows read from its placement, or the usual order when it has none.

Contents: unit_counts, stepped_counts, core_fan_outs, Rows, rows_of, placement_of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mapsearch.axes import ATTENTION_GRID, EXPERT_GRID, SIZES
from mapsearch.errors import InputError, listed, near_miss
from mapsearch.inventories.mapping import Mapping
from mapsearch.topologies.core import LEAST
from mapsearch.topologies.fabric import Fabric

Row = tuple[int, ...]
STEPS = 8
"""Steps between a power of two and the next one in which fewer units of an irregular cluster are tried."""
MOST_OFFERED = 64
"""Fan-outs of an irregular cluster that are searched: each costs as much as a small search of its own."""


def unit_counts(size: int) -> list[int]:
    """How many units of a level a mapping may use: all of them, or the largest power of two; most first.

    A level of 72 or 13 units has factors that experts and heads do not divide by; using 64 or 8 of them is then the
    better mapping. Other subsets are not searched (docs/explanation/assumptions.md).
    """
    return sorted({size, 1 << (size.bit_length() - 1)}, reverse=True)


def core_fan_outs(fabric: Fabric) -> list[tuple[int, ...]]:
    """Fan-outs that a mapping may use in an irregular cluster, largest device count first.

    Of each regular part: all its units, fewer of a level in steps (see `stepped_counts`), or as many as in a regular
    cluster. Rings and tori take no steps. Smaller ones than half of the largest part are left out, and of more than
    `MOST_OFFERED` those with steps and the fewest devices.
    """
    cores, whole = fabric.cores, [level.kind in ("ring", "torus") for level in fabric.levels]
    plain = {used for core in cores for used in itertools.product(*map(unit_counts, core))}
    stepped = {
        used
        for core in cores
        for used in itertools.product(
            *(
                unit_counts(size) if as_built else stepped_counts(size)
                for size, as_built in zip(core, whole, strict=True)
            )
        )
    }
    least = LEAST * max(math.prod(core) for core in cores)

    def ordered(found: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
        enough = [used for used in found if math.prod(used) >= least]
        return sorted(enough, key=lambda used: (-math.prod(used), used))

    first = ordered(plain)
    return ordered({*first, *ordered(stepped - plain)[: max(0, MOST_OFFERED - len(first))]})


def stepped_counts(size: int) -> list[int]:
    """All units of a level, and fewer of them down to the power of two below, in steps of an eighth of that.

    Of 61 units 60, 56, 52, ... 32: what is left of an irregular cluster is seldom a count that experts and batches
    divide by.
    """
    power = 1 << (size.bit_length() - 1)
    return sorted({size, *range(power, size, max(1, power // STEPS))}, reverse=True)


@dataclass(frozen=True)
class Rows:
    """A row per axis, innermost level first, and the fan-out in use per level."""

    used: Row
    by_axis: dict[str, Row]
    chosen: bool
    """True when some axis had no placement and got the usual one."""


def rows_of(mapping: Mapping, fabric: Fabric) -> Rows:
    """The rows of a mapping on a fabric.

    Axes without a placement are filled in the usual order: TP, CP, DP from the innermost level outward, ETP, EP, EDP
    likewise, PP outermost in both grids. Source: FORMULAS 5.1.
    Raises InputError: an unknown level, more ways than units, grids that use different devices, an axis that does
    not fit a level.
    """
    given: dict[str, Row] = {axis: _row(axis, cuts, fabric) for axis, cuts in mapping.placement.items() if cuts}
    given |= {axis: (1,) * len(fabric.levels) for axis in SIZES if getattr(mapping, axis) == 1}
    if mapping.devices > fabric.devices:
        raise InputError(
            f"the mapping uses {mapping.devices:,} devices (TP x CP x DP x PP); {fabric.name} has {fabric.devices:,}",
            field="mapping",
        )
    problem: InputError | None = None
    regular = itertools.product(*(unit_counts(size) for size in fabric.fan_outs))
    for fan_outs in core_fan_outs(fabric) if fabric.cores else regular:
        try:
            return _filled(mapping, given, fan_outs, fabric)
        except InputError as found:
            problem = problem or found
    assert problem is not None
    raise problem


def _row(axis: str, cuts: dict[str, int], fabric: Fabric) -> Row:
    for level in cuts:
        if level not in fabric.level_names:
            raise InputError(
                f"{fabric.name} has no level {level!r}{near_miss(level, fabric.level_names)}; "
                f"levels: {listed(fabric.level_names)}",
                field=f"placement.{axis}",
            )
    return tuple(cuts.get(level, 1) for level in fabric.level_names)


def _filled(mapping: Mapping, given: dict[str, Row], fan_outs: Row, fabric: Fabric) -> Rows:
    rows = dict(given)
    _fill(mapping, ATTENTION_GRID, rows, fan_outs, fabric)
    used = _joint([rows[axis] for axis in ATTENTION_GRID])
    _fill(mapping, EXPERT_GRID, rows, used, fabric)
    experts = _joint([rows[axis] for axis in EXPERT_GRID])
    if not fabric.holds(used) and all(ours <= size for ours, size in zip(used, fabric.fan_outs, strict=True)):
        cores = (" x ".join(str(size) for size in reversed(core)) for core in fabric.cores)
        raise InputError(
            f"the axes use {' x '.join(str(ours) for ours in reversed(used))} units, outermost level first; "
            f"{fabric.name} has holes and holds no more than {listed(cores)}",
            field="placement",
        )
    for level, size, ours, theirs in zip(fabric.levels, fabric.fan_outs, used, experts, strict=True):
        if ours > size:
            raise InputError(f"the axes cut {level.name} {ours} ways; it has {size} units", field="placement")
        if ours != theirs:
            raise InputError(
                f"TP, CP, DP and PP cut {level.name} {ours} ways, ETP, EP, EDP and PP {theirs} ways; both grids cover "
                "the same devices, so the products must be equal on every level",
                field="placement",
            )
    return Rows(used, rows, chosen=len(given) < len(SIZES))


def _joint(rows: Sequence[Row]) -> Row:
    return tuple(math.prod(cuts) for cuts in zip(*rows, strict=True))


def _fill(mapping: Mapping, grid: Sequence[str], rows: dict[str, Row], fan_outs: Row, fabric: Fabric) -> None:
    """Cut the axes of a grid that have no row yet, in order, over what the others leave of each level."""
    taken = _joint([rows[axis] for axis in grid if axis in rows] or [(1,) * len(fan_outs)])
    free = [size // cut if size % cut == 0 else 1 for size, cut in zip(fan_outs, taken, strict=True)]
    for axis in grid:
        if axis not in rows:
            rows[axis] = _cut(axis, getattr(mapping, axis), free, fabric)
            free = [size // cut for size, cut in zip(free, rows[axis], strict=True)]


def _cut(axis: str, ways: int, free: Sequence[int], fabric: Fabric) -> Row:
    """Take whole levels from the innermost outward, then a part of one. Raises InputError when a remainder is left."""
    row, left = [], ways
    for level, size in zip(fabric.levels, free, strict=True):
        if left % size and size % left:
            raise InputError(
                f"{axis.upper()} {ways} does not fit the usual order: {left} ways are left for {level.name}, which has "
                f"{size} units free; give placement.{axis}",
                field=f"placement.{axis}",
            )
        row.append(min(left, size))
        left //= row[-1]
    if left > 1:
        raise InputError(
            f"{axis.upper()} {ways} does not fit: {left} ways are left beyond {fabric.levels[-1].name}; "
            f"give placement.{axis}",
            field=f"placement.{axis}",
        )
    return tuple(row)


def placement_of(rows: dict[str, Row], fabric: Fabric) -> dict[str, dict[str, int]]:
    """The written form of rows: {axis: {level: ways}}, cuts of 1 and axes of size 1 left out."""
    named = {axis: dict(zip(fabric.level_names, rows[axis], strict=True)) for axis in SIZES}
    cuts = {axis: {level: ways for level, ways in row.items() if ways > 1} for axis, row in named.items()}
    return {axis: row for axis, row in cuts.items() if row}
