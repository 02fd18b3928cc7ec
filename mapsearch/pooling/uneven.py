"""What is said of clusters whose outer units are unlike: with holes, or several types of device.

Contents: irregular, words, which_of, left_out.
"""

from __future__ import annotations

from collections.abc import Sequence

from mapsearch.topologies import fabric_of
from mapsearch.topologies.division import OuterUnit
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology


def irregular(topology: Topology) -> bool:
    """True where units differ: something is down, of another type, of another size or slower."""
    if topology.down or topology.other_devices:
        return True
    fabric = fabric_of(topology) if topology.nodes else None
    return fabric is not None and bool(fabric.cores or fabric.alternatives)


def words(training: Fabric, serving: Fabric) -> str:
    """How both clusters are read, where there is a choice."""
    sides = [f"{one.reading} {does}" for one, does in ((training, "trains"), (serving, "rolls out")) if one.reading]
    return ", ".join(sides)


def which_of(training: Fabric, serving: Fabric, kept: Sequence[OuterUnit], others: Sequence[OuterUnit]) -> str:
    """What an uneven division is: types of device of either side, or whose the holes are."""
    if len({name for unit in (*kept, *others) for name in unit.types}) > 1:
        return f"{_side(training, kept)} train, {_side(serving, others)} roll out"
    most = max(unit.working for unit in (*kept, *others))
    holes = [sum(unit.working < most for unit in side) for side in (kept, others)]
    told = [f"{count} {does}" for count, does in zip(holes, ("in training", "in rollout"), strict=True) if count]
    return f"units with holes: {' and '.join(told)}" if told else ""


def left_out(*, unlike: bool, pays: bool) -> list[str]:
    """What a search of unlike units does not look at: the proof is over the rest."""
    if not unlike:
        return []
    told = [
        "of every number of training units two choices are searched, the fastest and most whole ones and the others"
    ]
    return [*told, "devices that stay unused are not searched where units are unlike"] if pays else told


def _side(fabric: Fabric, units: Sequence[OuterUnit]) -> str:
    if len({name for unit in units for name in unit.types}) == 1:
        return f"{fabric.devices:,} x {fabric.device.name}"
    alone = fabric.reading.endswith(" alone")
    return f"{fabric.devices:,} {f'x {fabric.device.name} alone' if alone else 'at the slower type'}"
