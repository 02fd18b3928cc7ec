"""Where a mapping's ranks go on a cluster as it is: its own placement, every other one, and what the graph allows.

Contents: Chosen, choose, placements, fixed_order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping as Dictionary
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import ATTENTION_GRID, SIZES
from mapsearch.costs.placement import placement_of
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.improve import Seated, seated
from mapsearch.placing.loads import Cost, Demand, cost_of, demand_of, routes_of
from mapsearch.placing.placed import AXES, Placed, placed_of, rank_groups
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.graph import graph_of, nodes_of_type
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.spec import Topology

Ints = NDArray[np.int64]

MOST_PLACEMENTS = 300
"""Other placements of the same sizes that are tried as starts."""


@dataclass(frozen=True)
class Chosen:
    """Ranks on devices, and how that compares."""

    placed: Placed
    cost: Cost
    given: Cost | None
    """Cost of the mapping's own placement; None when it does not fit the cluster as it is."""
    fixed: Cost
    """Cost of the fixed order: ranks as Megatron-LM counts them, on the devices as they are listed."""
    proven: str
    """`all`: no other bijection is better; `units`: none that exchanges whole units; empty: not proven."""
    start: str
    """What the seats were found from: `given`, `placement`, `packed` or `fixed`."""
    link: str
    """The busiest link, from and to."""


def choose(mapping: Mapping, topology: Topology, sent_bytes: Dictionary[str, float]) -> Chosen:
    """The ranks of a mapping on the devices of a graph so that the busiest link is the least busy, then fewest hops.

    `sent_bytes`: bytes that a rank sends per step, by axis. Groups stay as Megatron-LM's rank order and the mapping's
    placement make them; which device each rank stands on is free. Raises InputError: more ranks than devices, more
    devices than can be routed pair by pair, or parts without a path.
    """
    graph = graph_of(topology)
    devices = nodes_of_type(graph, "device")
    if mapping.devices > len(devices):
        raise InputError(
            f"the mapping has {mapping.devices:,} ranks; {topology.name} has {len(devices):,} devices that work"
        )
    routes = routes_of(graph, devices)
    place = {device: number for number, device in enumerate(devices)}
    fixed = fixed_order(mapping, devices)
    plain = demand_of(fixed.groups, sent_bytes)
    fixed_cost = cost_of(routes, plain, _seats(fixed, place))
    units = _units(topology, place)
    starts: list[tuple[str, Placed]] = [("fixed", fixed)]
    starts += [("packed", one) for one in _packed(mapping, devices, units)]
    given = None
    try:
        own = placed_of(mapping, topology)
        starts.insert(0, ("given", own))
        given = cost_of(routes, demand_of(own.groups, sent_bytes), _seats(own, place))
    except InputError:
        pass  # it does not fit the regular part; the other starts use every device that works
    starts += [("placement", one) for one in placements(mapping, topology)]
    costs = [cost_of(routes, demand_of(one.groups, sent_bytes), _seats(one, place)) for _, one in starts]
    best: tuple[Seated, str, Placed] | None = None
    for label, one in _distinct(starts, costs):
        demand = demand_of(one.groups, sent_bytes)
        found = seated(routes, demand, [_seats(one, place)], units)
        if best is None or found.cost.better(best[0].cost):
            best = (found, label, one)
    assert best is not None
    found, label, one = best
    return Chosen(
        placed=_moved(one, [devices[seat] for seat in found.seats]),
        cost=found.cost,
        given=given,
        fixed=fixed_cost,
        proven=found.proven,
        start=label,
        link=_busiest(routes, demand_of(one.groups, sent_bytes), found.seats),
    )
