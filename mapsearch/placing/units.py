"""Large graphs: whole units of the regular part exchanged by what the links between them carry.

Contents: choose_units.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.chosen import Chosen, fixed_order
from mapsearch.placing.improve import Seated, seated
from mapsearch.placing.loads import (
    MAX_ROUTED_DEVICES,
    Cost,
    Demand,
    Routes,
    cost_of,
    demand_of,
    link_seconds,
    routes_of,
)
from mapsearch.placing.members import regular_devices
from mapsearch.placing.placed import Placed, placed_of
from mapsearch.placing.placements import MOST_PLACEMENTS, placements
from mapsearch.placing.standing import standing
from mapsearch.topologies.condense import Condensed, condensed
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.spec import Topology

Ints = NDArray[np.int64]

RANKS_TRIED = 2_000_000
"""Ranks of all other placements together that are tried."""


def choose_units(
    mapping: Mapping, topology: Topology, sent_bytes: Dictionary[str, float], devices: Sequence[str]
) -> Chosen:
    """A placement with whole units exchanged so that the busiest link between units is the least busy.

    Starts from the mapping's own placement and from the best of the others of its sizes. Units are the innermost ones
    of which there are few enough, and all tiers outside them; what limits traffic inside the innermost is not seen.
    Raises InputError as `placed_of` and `condensed`.
    """
    own = placed_of(mapping, topology)
    ground = _ground(own, topology)
    given = ground.cost(own, sent_bytes)
    most = max(1, min(MOST_PLACEMENTS, RANKS_TRIED // mapping.devices))
    others = list(placements(mapping, topology, most))
    costs = [ground.cost(one, sent_bytes) for one in others]
    found = [("given", own, ground.improved(own, sent_bytes))]
    if others and min(costs).better(given):
        best = others[costs.index(min(costs))]
        found.append(("placement", best, ground.improved(best, sent_bytes)))
    label, start, seated_ = min(found, key=lambda one: one[2].cost)
    demand, taken, part = ground.demand(start, sent_bytes)
    onto = [ground.slots[seat] for seat in seated_.seats.tolist()]
    return Chosen(
        placed=_moved(start, topology, part, ground.inside, taken, onto),
        cost=seated_.cost,
        given=given,
        fixed=_fixed_cost(mapping, ground.whole, sent_bytes, devices),
        proven="units" if seated_.proven else "",
        start=label,
        busiest=_busiest(ground.routes, demand, seated_.seats),
    )


@dataclass(frozen=True)
class _Ground:
    """A large graph as units that can take each other's place."""

    whole: Condensed
    inside: dict[str, list[str]]
    """The regular part's devices of every unit, in the order of the levels."""
    slots: list[str]
    """Units with as many of these devices as those in use."""
    routes: Routes
    """Between slots."""

    @cached_property
    def unit_of(self) -> dict[str, str]:
        """Unit of every device of the regular part."""
        return {device: unit for unit, held in self.inside.items() for device in held}

    def demand(self, placed: Placed, sent_bytes: Dictionary[str, float]) -> tuple[Demand, list[str], Ints]:
        """What units in use send each other, these units, and the number of each rank's one among them."""
        homes = [self.unit_of[device] for device in placed.devices]
        block = {unit: place for place, unit in enumerate(dict.fromkeys(homes))}
        part = np.array([block[unit] for unit in homes], dtype=np.int64)
        return demand_of(placed.groups, sent_bytes, part), list(block), part

    def seats(self, taken: Sequence[str]) -> Ints:
        """Numbers of units among the slots."""
        number = {unit: place for place, unit in enumerate(self.slots)}
        return np.array([number[unit] for unit in taken], dtype=np.int64)

    def cost(self, placed: Placed, sent_bytes: Dictionary[str, float]) -> Cost:
        """Cost between units as placed."""
        demand, taken, _ = self.demand(placed, sent_bytes)
        return cost_of(self.routes, demand, self.seats(taken))

    def improved(self, placed: Placed, sent_bytes: Dictionary[str, float]) -> Seated:
        """The best exchange of whole units that is found."""
        demand, taken, _ = self.demand(placed, sent_bytes)
        number = {unit: place for place, unit in enumerate(self.slots)}
        tiers = [[[number[unit] for unit in held if unit in number] for held in tier] for tier in self.whole.tiers]
        return seated(self.routes, demand, [self.seats(taken)], tiers)


def _ground(own: Placed, topology: Topology) -> _Ground:
    whole = condensed(topology, MAX_ROUTED_DEVICES)
    inside = _regular(topology, whole)
    first = next(held for held in inside.values() if own.devices[0] in held)
    slots = [unit for unit, held in inside.items() if len(held) == len(first)]
    return _Ground(whole, inside, slots, routes_of(whole.graph, slots))


def _regular(topology: Topology, whole: Condensed) -> dict[str, list[str]]:
    """The regular part's devices of every unit, in the order of the levels."""
    home = {device: unit for unit, held in whole.units.items() for device in held}
    found: dict[str, list[str]] = {}
    for device in regular_devices(topology, fabric_of(topology)).ravel().tolist():
        found.setdefault(home[device], []).append(device)
    return found


def _fixed_cost(mapping: Mapping, whole: Condensed, sent_bytes: Dictionary[str, float], devices: Sequence[str]) -> Cost:
    """Cost between units of the fixed order."""
    home = {device: unit for unit, held in whole.units.items() for device in held}
    fixed = fixed_order(mapping, [device for device in devices if device in home])
    used = list(dict.fromkeys(home[device] for device in fixed.devices))
    place = {unit: number for number, unit in enumerate(used)}
    part = np.array([place[home[device]] for device in fixed.devices], dtype=np.int64)
    return cost_of(routes_of(whole.graph, used), demand_of(fixed.groups, sent_bytes, part), np.arange(len(used)))


def _moved(
    own: Placed,
    topology: Topology,
    part: Ints,
    inside: Dictionary[str, list[str]],
    taken: Sequence[str],
    onto: Sequence[str],
) -> Placed:
    """Every rank at the same place of the unit that its block has moved to."""
    place = {device: index for unit in taken for index, device in enumerate(inside[unit])}
    devices = [inside[onto[block]][place[device]] for block, device in zip(part.tolist(), own.devices, strict=True)]
    units, names = standing(topology, devices)
    return replace(own, devices=tuple(devices), units=units, level_names=names)


def _busiest(routes: Routes, demand: Demand, seats: Ints) -> tuple[str, str]:
    return routes.links[int(np.argmax(link_seconds(routes, demand, seats)))]
