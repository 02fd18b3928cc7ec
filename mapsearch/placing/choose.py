"""Where a mapping's ranks go on a cluster as it is: its own placement, every other one, and what the graph allows.

Contents: choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.chosen import Chosen, fixed_order
from mapsearch.placing.improve import seated
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
from mapsearch.placing.placed import Placed, placed_of, reading_for, same_groups
from mapsearch.placing.placements import MOST_PLACEMENTS, placements
from mapsearch.placing.standing import standing
from mapsearch.placing.turned import turned
from mapsearch.solver.options import divisors
from mapsearch.topologies.condense import device_tiers
from mapsearch.topologies.graph import graph_of, nodes_of_type
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.spec import Topology

Ints = NDArray[np.int64]

IMPROVED = 3
"""Starts from which exchanges are tried."""
OWN = ("given", "axes")
"""Starts with the groups of the mapping's own placement."""


def choose(mapping: Mapping, topology: Topology, sent_bytes: Dictionary[str, float]) -> Chosen:
    """The ranks of a mapping on the devices of a graph so that the busiest link is the least busy, then fewest hops.

    `sent_bytes`: bytes that a rank sends per step, by axis. Groups are those of the rank order tp-cp-ep-dp-pp; the
    mapping's own placement is tried too where its groups are others. Graphs that are too large to be routed device by
    device are looked at unit by unit (`units.choose_units`), or as a whole where there are no units
    (`whole.choose_whole`).
    Raises InputError: more ranks than devices that work, parts without a path, and, unit by unit, a mapping that does
    not fit the regular part.
    """
    graph = graph_of(topology)
    devices = nodes_of_type(graph, "device")
    if len(devices) > MAX_ROUTED_DEVICES:
        return _choose_large(mapping, topology, sent_bytes, devices)
    if mapping.devices > len(devices):
        raise InputError(
            f"has {len(devices):,} devices that work, fewer than the mapping's {mapping.devices:,} ranks",
            file=topology.name,
        )
    routes = routes_of(graph, devices)
    place = {device: number for number, device in enumerate(devices)}
    fixed = fixed_order(mapping, devices)
    tiers = device_tiers(topology)
    starts = [("fixed", fixed), *(("packed", one) for one in _packed(fixed, tiers[0] if tiers else []))]
    own = _given(mapping, topology)
    if own is not None:
        starts = [("given", own), *starts]
        starts += [("axes", one) for one in turned(own, reading_for(mapping, fabric_of(topology)))]
        starts += [
            ("placement", one)
            for one in placements(mapping, topology, MOST_PLACEMENTS)
            if same_groups(one.groups, fixed.groups)
        ]
    plain = demand_of(fixed.groups, sent_bytes)
    other = plain if own is None or same_groups(own.groups, fixed.groups) else demand_of(own.groups, sent_bytes)
    units = [[[place[device] for device in unit] for unit in tier] for tier in tiers]
    tried = [
        (cost_of(routes, other if label in OWN else plain, _seats(one, place)), label, one) for label, one in starts
    ]
    best: Chosen | None = None
    for label, one, demand in _to_improve(tried, plain, other):
        found = seated(routes, demand, [_seats(one, place)], units)
        if best is None or found.cost.better(best.cost):
            best = Chosen(
                placed=_moved(one, [devices[seat] for seat in found.seats.tolist()], topology),
                cost=found.cost,
                given=next((cost for cost, name, _ in tried if name == "given"), None),
                fixed=next(cost for cost, name, _ in tried if name == "fixed"),
                proven=found.proven,
                start=label,
                busiest=_busiest(routes, demand, found.seats),
            )
    assert best is not None
    return best


def _choose_large(
    mapping: Mapping, topology: Topology, sent_bytes: Dictionary[str, float], devices: Sequence[str]
) -> Chosen:
    """Unit by unit where some tier has few enough units, else whole placements against each other."""
    if any(len(units) <= MAX_ROUTED_DEVICES for units in device_tiers(topology)):
        from mapsearch.placing.units import choose_units

        return choose_units(mapping, topology, sent_bytes, devices)
    from mapsearch.placing.whole import choose_whole

    return choose_whole(mapping, topology, sent_bytes, devices)


def _to_improve(
    tried: Sequence[tuple[Cost, str, Placed]], plain: Demand, other: Demand
) -> Iterator[tuple[str, Placed, Demand]]:
    """The best starts of each kind of groups: `plain` is a question of its own, `other` only where groups differ."""
    ranked = sorted(tried, key=lambda one: one[0])
    seen: set[tuple[str, ...]] = set()
    for _, label, one in ranked:
        if label == "given" and other is not plain:
            yield label, one, other
        elif one.devices not in seen and len(seen) < IMPROVED:
            seen.add(one.devices)
            yield label, one, other if label in OWN else plain


def _given(mapping: Mapping, topology: Topology) -> Placed | None:
    """The mapping's own placement on the regular part; None where it does not fit."""
    try:
        return placed_of(mapping, topology)
    except InputError:
        return None


def _packed(fixed: Placed, units: Sequence[Sequence[str]]) -> Iterator[Placed]:
    """Ranks in blocks that do not straddle units: for each block size that fits, units filled one after the other."""
    ranks = len(fixed.devices)
    for block in reversed(divisors(ranks)[1:]):
        if sum(len(unit) // block for unit in units) * block >= ranks:
            whole = [device for unit in units for device in unit[: len(unit) // block * block]]
            yield replace(fixed, devices=tuple(whole[:ranks]))


def _seats(placed: Placed, place: Dictionary[str, int]) -> Ints:
    return np.array([place[device] for device in placed.devices], dtype=np.int64)


def _moved(placed: Placed, devices: Sequence[str], topology: Topology) -> Placed:
    """The same groups on other devices."""
    units, names = standing(topology, devices)
    return replace(placed, devices=tuple(devices), units=units, level_names=names)


def _busiest(routes: Routes, demand: Demand, seats: Ints) -> tuple[str, str]:
    return routes.links[int(np.argmax(link_seconds(routes, demand, seats)))]
