"""One mapping on the graph: loads of all links by axis, and the bandwidths that follow.

Contents: Ground, ground_of, Measured, measure, TOLERANCE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mapsearch.auditing.concurrent import contended_shares
from mapsearch.auditing.ideal import axis_seconds, ideal_facts, level_seconds, unit_seconds
from mapsearch.auditing.traffic import Traffic, every_level, flows_by_level, flows_of_groups, traffic_of
from mapsearch.costs.estimate import Point, point_of
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.profile import Rings
from mapsearch.placing.placed import Placed, placed_of
from mapsearch.topologies.routing import Router, busiest, router_of
from mapsearch.topologies.spec import Topology

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
TOLERANCE = 0.05
"""Share by which routed and assumed bandwidth may differ before the difference counts."""
ALONE = 8
"""Groups of an axis that are tried alone."""


@dataclass(frozen=True)
class Ground:
    """A topology, made ready for routing, and how its software sends."""

    topology: Topology
    router: Router
    rings: Rings | None = None
    """Those of the profile where not told."""


def ground_of(topology: Topology, *, relay: bool = True, rings: Rings | None = None) -> Ground:
    """The graph of a topology with its parallel cables. Raises InputError when it is too large to draw."""
    from mapsearch.topologies.graph import graph_of

    cables: dict[frozenset[str], int] = {}
    for link in topology.links:
        ends = frozenset((link.a, link.b))
        cables[ends] = cables.get(ends, 0) + link.count
    return Ground(topology, router_of(graph_of(topology), cables, relay=relay), rings)


@dataclass(frozen=True)
class Measured:
    """All axes of one mapping on the graph."""

    ground: Ground
    point: Point
    placed: Placed
    traffic: list[Traffic]
    unit_loads: list[list[Floats]]
    """Per axis and level: bytes on every link for a unit payload."""
    model_unit_s: list[float]
    """Per axis: seconds of a unit payload by the level model."""
    step_s: list[float]
    """Per axis: seconds per step by the level model."""

    @property
    def mapping(self) -> Mapping:
        """The mapping."""
        return self.point.mapping

    @cached_property
    def node(self) -> Ints:
        """Number of the node of each rank."""
        return _nodes(self.ground, self.placed)

    @cached_property
    def unit_load(self) -> list[Floats]:
        """Per axis: bytes on every link for a unit payload, all levels."""
        return [np.sum(levels, axis=0) for levels in self.unit_loads]

    @cached_property
    def routed_unit_s(self) -> list[float]:
        """Per axis: seconds of a unit payload on its busiest link."""
        return [busiest(load, self.ground.router.wires)[1] for load in self.unit_load]

    @cached_property
    def ratios(self) -> list[float]:
        """Per axis: routed over model bandwidth."""
        return [model / routed for model, routed in zip(self.model_unit_s, self.routed_unit_s, strict=True)]

    @cached_property
    def busy_s(self) -> Floats:
        """(axes, links): seconds per step that each axis keeps each link busy."""
        rates = self.ground.router.wires.bytes_per_s
        scales = [step / unit for step, unit in zip(self.step_s, self.model_unit_s, strict=True)]
        return np.array([scale * load / rates for scale, load in zip(scales, self.unit_load, strict=True)]).reshape(
            len(self.traffic), len(rates)
        )

    @cached_property
    def level_busy_s(self) -> dict[str, float]:
        """Level: seconds per step that messages which cross it, of all axes, keep their busiest link busy."""
        rates, names = self.ground.router.wires.bytes_per_s, self.point.facts.fabric.level_names
        scales = [step / unit for step, unit in zip(self.step_s, self.model_unit_s, strict=True)]
        found = {}
        for place, name in enumerate(names):
            loads = (scale * each[place] for scale, each in zip(scales, self.unit_loads, strict=True))
            found[name] = float(np.max(sum(loads, 0.0 * rates) / rates, initial=0.0))
        return found

    def sent_bytes(self, index: int) -> float:
        """Bytes that a device sends for a unit payload of an axis."""
        traffic = self.traffic[index]
        if traffic.crossing:
            return traffic.crossing[0]
        return 1.0 if traffic.pattern == "hop" else 1.0 - 1.0 / traffic.members

    def alone_s(self, index: int) -> float:
        """Seconds of a unit payload of one group by itself: the slowest of some groups."""
        traffic = self.traffic[index]
        chosen = np.unique(np.linspace(0, len(traffic.groups) - 1, ALONE).astype(int))
        fabric, units = self.point.facts.fabric, self.placed.units
        columns = [
            every_level(flows_of_groups(traffic, [group]), fabric, self.node, units) for group in chosen.tolist()
        ]
        loads = self.ground.router.loads_bytes(columns)
        return max(busiest(load, self.ground.router.wires)[1] for load in loads)

    def shares(self, tolerance: float = TOLERANCE, *, contended: bool = False) -> dict[str, tuple[float, ...]]:
        """For each axis that differs by more than the tolerance: the share of each level's bandwidth that explains it.

        A level's share is what its own messages get; all shares of an axis are then scaled so that the level model,
        given them, takes exactly as long as the busiest link. `contended`: what stands in line shares links with the
        background besides (`concurrent.contended_shares`).
        """
        found: dict[str, tuple[float, ...]] = {}
        for index, traffic in enumerate(self.traffic):
            if abs(self.ratios[index] - 1.0) > tolerance:
                mine = self._shares_of(index)
                theirs = found.get(traffic.axis, mine)
                found[traffic.axis] = tuple(min(a, b) for a, b in zip(mine, theirs, strict=True))
        if contended:
            rows = {traffic.axis: traffic.row for traffic in self.traffic}
            for axis, kept in contended_shares(self, tolerance).items():
                before = found.get(axis, (1.0,) * len(rows[axis]))
                found[axis] = tuple(
                    share * kept if ways > 1 else share for share, ways in zip(before, rows[axis], strict=True)
                )
        return found

    def _shares_of(self, index: int) -> tuple[float, ...]:
        traffic, facts = self.traffic[index], ideal_facts(self.point.facts)
        shares = []
        for level, load in enumerate(self.unit_loads[index]):
            routed = busiest(load, self.ground.router.wires)[1]
            shares.append(level_seconds(traffic, level, facts) / routed if routed else 1.0)
        seen = replace(facts.fabric, axis_shares={traffic.axis: tuple(shares)})
        excess = unit_seconds(traffic, replace(facts, fabric=seen)) / self.routed_unit_s[index]
        used = [ways > 1 for ways in traffic.row]
        return tuple(share * excess if here else 1.0 for share, here in zip(shares, used, strict=True))


def with_shares(facts: Facts, shares: dict[str, tuple[float, ...]]) -> Facts:
    """The same facts with shares of bandwidth per axis and level."""
    return replace(facts, fabric=replace(facts.fabric, axis_shares=shares))


def measure(mapping: Mapping, facts: Facts, ground: Ground, placed: Placed | None = None) -> Measured:
    """Route all groups of all axes of a mapping. Raises InputError when it does not fit, or devices are not joined.

    `facts`: without shares of an earlier audit. `placed`: ranks on devices, where they are not to stand as the
    mapping's own placement says.
    """
    point = point_of(mapping, facts)
    placed = placed or placed_of(mapping, ground.topology, facts.fabric)
    traffic = traffic_of(point, placed, ground.rings)
    ideal = ideal_facts(facts)
    node = _nodes(ground, placed)
    by_level = [flows_by_level(each, facts.fabric, node, placed.units) for each in traffic]
    columns = [flows for levels in by_level for flows in levels]
    loads: Sequence[Floats] = list(ground.router.loads_bytes(columns))
    depth = len(facts.fabric.levels)
    return Measured(
        ground=ground,
        point=point,
        placed=placed,
        traffic=traffic,
        unit_loads=[list(loads[index * depth : (index + 1) * depth]) for index in range(len(traffic))],
        model_unit_s=[unit_seconds(each, ideal) for each in traffic],
        step_s=axis_seconds(mapping, facts, traffic),
    )


def _nodes(ground: Ground, placed: Placed) -> Ints:
    place = ground.router.wires.place
    missing = next((name for name in placed.devices if name not in place), None)
    if missing is not None:
        raise InputError(f"has no device {missing!r} that works, and a rank stands on it", file=ground.topology.name)
    return np.array([place[name] for name in placed.devices], dtype=np.int64)
