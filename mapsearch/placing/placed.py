"""Ranks on the devices of a regular cluster, so that every axis is cut on every level as its mapping says.

Contents: Placed, placed_of, reading_for, rank_groups, grid_groups, same_groups, AXES.

Each level gives its units two numbers with several digits: one over TP, CP, DP, PP and one over ETP, EP, EDP, PP, each
digit as large as the axis is cut there. PP has the slowest digit in both, so that both grids have the same stages.
A rank's place on an axis is made of the axis' digits of all levels, the innermost fastest: rings run inside units
before they leave them, and ranks that differ on an outer level only stand at the same place inside their units (rails).
Where digits can be shared out so that ranks count through both grids alike, as Megatron-LM's do, they are: in its usual
order of axes, else in another one.
Source: parallelism matrices, FORMULAS section 6; both grids, FORMULAS 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import ATTENTION_GRID, EXPERT_GRID, SIZES
from mapsearch.costs.placement import Rows, rows_of
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.digits import ORDERS, USUAL_ORDER, Plan, chained_digits, grids_of, joint_digits
from mapsearch.placing.members import members
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.spec import Topology

Ints = NDArray[np.int64]
AXES = SIZES
"""Axes that have groups: TP, CP, DP, PP of the dense grid; ETP, EP, EDP of the expert grid, which shares PP."""


@dataclass(frozen=True)
class Placed:
    """Devices by rank, and the groups of every axis. Ranks count through the axes in `order`, the first fastest."""

    devices: tuple[str, ...]
    """Name of the device of each rank, as in `topologies.graph.graph_of`; the index is the global rank."""
    groups: dict[str, Ints]
    """Per axis: an array (groups, size) of ranks, groups by their lowest rank. Members stand as their devices do, the
    innermost level fastest, which is how rings run; that of CP and PP is also the order of the axis. Where devices are
    not on levels: in the order of the axis."""
    units: Ints = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    """(ranks, levels): index of the rank's unit inside the next outer one, innermost level first. No column where the
    devices are not on levels."""
    level_names: tuple[str, ...] = ()
    """Names of those levels, innermost first."""
    order: str = USUAL_ORDER
    """As Megatron-LM writes it: the expert grid counts ETP for TP and EDP for DP."""
    counted: bool = True
    """Ranks count through the expert grid in this order too; if not, no numbering of ranks in any order does."""

    @property
    def sizes(self) -> dict[str, int]:
        """Size of every axis."""
        return {axis: self.groups[axis].shape[1] for axis in AXES}

    def devices_of(self, axis: str, group: int) -> tuple[str, ...]:
        """Devices of one group, in the order of the axis."""
        return tuple(self.devices[rank] for rank in self.groups[axis][group])


def placed_of(mapping: Mapping, topology: Topology, fabric: Fabric | None = None) -> Placed:
    """A mapping's ranks on the regular part of a topology, as its placement says (or in the usual order without one).

    `fabric`: which reading of the topology, where there are several; else the first on which the mapping fits.
    Raises InputError as `rows_of`, BackendMissing.
    """
    fabric = fabric or reading_for(mapping, fabric_of(topology))
    rows = rows_of(mapping, fabric)
    names = members(topology, fabric, rows.used)
    at, units, order, counted = coordinates(rows, ordered=fabric.linked)
    sizes = {axis: int(getattr(mapping, axis)) for axis in AXES}
    by_rank = np.argsort(_joined(at, grids_of(order)[0], sizes))
    return Placed(
        devices=tuple(names.ravel()[by_rank].tolist()),
        groups=grid_groups({axis: places[by_rank] for axis, places in at.items()}, sizes, by_rank),
        units=units[by_rank],
        level_names=fabric.level_names,
        order=order,
        counted=counted,
    )


def reading_for(mapping: Mapping, fabric: Fabric, notes: Collection[str] | None = None) -> Fabric:
    """The reading of a cluster that a mapping was searched on.

    `notes`: those of its answer, which holds the notes of the reading that counted; without them the first reading on
    which the mapping fits, else the first one.
    """
    every = (fabric, *fabric.alternatives)
    if len(every) == 1:
        return fabric
    if notes is not None:
        told = [one for one in every if set(one.notes) <= set(notes)]
        return max(told, key=lambda one: len(one.notes), default=fabric)
    for one in every:
        try:
            rows_of(mapping, one)
        except InputError:
            continue
        return one
    return fabric


def coordinates(rows: Rows, *, ordered: bool = False) -> tuple[dict[str, Ints], Ints, str, bool]:
    """Place of every device in use on each axis, its unit index per level, and the order in which ranks count.

    Devices are counted with the innermost level fastest; unit indices have shape (devices, levels), innermost first.
    The last value is False where ranks that count through one grid cannot count through the other in any order.
    `ordered`: some level is a ring or torus, where the cost model has the axes in their usual order, whatever order
    ranks count in.
    """
    used = rows.used
    units = np.indices(tuple(reversed(used))).reshape(len(used), -1).T[:, ::-1].astype(np.int64)
    usual = _places(joint_digits(rows), units)
    for order in ORDERS:
        plain = usual if ordered else _places(joint_digits(rows, order), units)
        if _in_rank_order(plain, order):
            return plain, units, order, True
        chained = None if ordered else chained_digits(rows, order)
        if chained is not None:
            return _places(chained, units), units, order, True
    return usual, units, USUAL_ORDER, False


def _in_rank_order(at: Dictionary[str, Ints], order: str) -> bool:
    """True when ranks count through both grids alike, as Megatron-LM's do."""
    first, second = (
        _joined(at, grid, {axis: int(at[axis].max(initial=0)) + 1 for axis in grid}) for grid in grids_of(order)
    )
    return bool(np.array_equal(first, second))


def _places(plan: Plan, units: Ints) -> dict[str, Ints]:
    """Place of every device on each axis of both grids."""
    at = {axis: np.zeros(len(units), dtype=np.int64) for axis in AXES}
    for digits in (plan.expert, plan.dense):  # both have the same digits of PP
        at["pp"] = np.zeros(len(units), dtype=np.int64)
        stride = dict.fromkeys(AXES, 1)
        for digit in digits:
            at[digit.axis] += units[:, digit.level] // digit.stride % digit.ways * stride[digit.axis]
            stride[digit.axis] *= digit.ways
    return at


def rank_groups(sizes: Dictionary[str, int], order: str = USUAL_ORDER) -> dict[str, Ints]:
    """Groups of every axis by ranks alone, which count through the axes of each grid in an order.

    Source: Megatron-LM's ranks, FORMULAS 5.1.
    """
    at: dict[str, Ints] = {}
    for grid in grids_of(order):
        rest = np.arange(math.prod(sizes[axis] for axis in grid))
        for axis in grid:
            at[axis] = rest % sizes[axis]
            rest //= sizes[axis]
    return grid_groups(at, sizes)


def grid_groups(at: Dictionary[str, Ints], sizes: Dictionary[str, int], stands: Ints | None = None) -> dict[str, Ints]:
    """Groups of every axis from the places of the ranks on all axes: ranks that differ on that axis only.

    `at`: per axis the place of each rank. Groups stand by their lowest rank, members by `stands` (a number per rank),
    or by their place on the axis.
    """
    groups = {}
    for axis in AXES:
        grid = ATTENTION_GRID if axis in ATTENTION_GRID else EXPERT_GRID
        order = np.argsort(_joined(at, (axis, *(other for other in grid if other != axis)), sizes))
        table = order.reshape(-1, sizes[axis])
        if stands is not None:
            table = np.take_along_axis(table, np.argsort(stands[table], axis=1), axis=1)
        groups[axis] = table[np.argsort(table.min(axis=1))]
    return groups


def same_groups(first: Dictionary[str, Ints], second: Dictionary[str, Ints]) -> bool:
    """True when every axis has the same groups, in whatever order their members stand."""
    return all(np.array_equal(np.sort(first[axis], axis=1), np.sort(second[axis], axis=1)) for axis in AXES)


def _joined(at: Dictionary[str, Ints], grid: Sequence[str], sizes: Dictionary[str, int]) -> Ints:
    """One number per rank from its places on the axes of a grid, the first axis fastest."""
    strides = [math.prod(sizes[axis] for axis in grid[:place]) for place in range(len(grid))]
    total: Ints = sum(at[axis] * stride for axis, stride in zip(grid, strides, strict=True))  # type: ignore[assignment]
    return total
