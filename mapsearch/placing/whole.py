"""Large graphs without units to exchange: placements held against each other with all their messages routed.

Contents: choose_whole.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from itertools import islice

import numpy as np

from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.chosen import Chosen, fixed_order
from mapsearch.placing.loads import Cost, partners_of
from mapsearch.placing.placed import Placed, placed_of, reading_for
from mapsearch.placing.placements import placements
from mapsearch.placing.turned import turned
from mapsearch.topologies.graph import graph_of
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.routing import Flows, Pairs, Router, Uniform, busiest, router_of
from mapsearch.topologies.spec import Topology

MOST_DEVICES = 4096
"""Devices up to which this is done: from each to each, paths are followed through the whole network."""
RANKS_TRIED = 2**16
"""Ranks of all placements together that are routed; each is an audit of its own."""


def choose_whole(
    mapping: Mapping, topology: Topology, sent_bytes: Dictionary[str, float], devices: Sequence[str]
) -> Chosen:
    """The best of the mapping's own placement, that along the axes of a torus in other orders, and others of its sizes.

    Nothing is exchanged, so that nothing is proven. Raises InputError as `placed_of`, and for more than MOST_DEVICES.
    """
    if len(devices) > MOST_DEVICES:
        raise InputError(
            f"has no units to exchange, and {len(devices):,} devices are too many to route as a whole (limit "
            f"{MOST_DEVICES:,}); without --links ranks stand along its axes",
            file=topology.name,
        )
    fabric = reading_for(mapping, fabric_of(topology))
    own = placed_of(mapping, topology, fabric)
    most = max(1, RANKS_TRIED // mapping.devices - 2)
    others = [("axes", one) for one in islice(turned(own, fabric), most)]
    if len(fabric.levels) > 1:
        others += [("placement", one) for one in placements(mapping, topology, max(0, most - len(others)))]
    router = router_of(graph_of(topology))
    given, link = _routed(router, own, sent_bytes)
    best = ("given", own, given, link)
    for label, one in others:
        cost, link = _routed(router, one, sent_bytes)
        if cost.better(best[2]):
            best = (label, one, cost, link)
    label, placed, cost, link = best
    names, wires = router.wires.names, router.wires
    return Chosen(
        placed=placed,
        cost=cost,
        given=given,
        fixed=_routed(router, fixed_order(mapping, devices), sent_bytes)[0],
        proven="",
        start=label,
        busiest=(names[int(wires.tail[link])], names[int(wires.head[link])]),
    )


def _routed(router: Router, placed: Placed, sent_bytes: Dictionary[str, float]) -> tuple[Cost, int]:
    """What a placement costs, and its busiest link."""
    place = router.wires.place
    node = np.array([place[device] for device in placed.devices], dtype=np.int64)
    flows: list[Pairs | Uniform] = []
    for axis, bytes_ in sent_bytes.items():
        groups = node[placed.groups[axis]]
        count, members = groups.shape
        if members == 1 or bytes_ == 0.0:
            continue
        if axis == "ep":
            number = np.repeat(np.arange(count), members)
            flows.append(Uniform(groups.ravel(), number, np.full(count, bytes_ / (members - 1))))
            continue
        for source, target, share in partners_of(axis, groups):
            flows.append(Pairs(source, target, np.full(len(source), bytes_ * share)))
    columns: list[Flows] = [flows]
    loads = router.loads_bytes(columns)[0]
    link, seconds = busiest(loads, router.wires)
    return Cost(seconds, float(loads.sum())), link
