"""What was measured, as the typed record of an audit.

Contents: axis_audits, beside, overlaps, busiest_links, audited_step_s, named_shares.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mapsearch.audited import AxisAudit, GroupRate, LinkLoad, Overlap
from mapsearch.auditing.concurrent import background
from mapsearch.auditing.measure import TOLERANCE, Measured, with_shares
from mapsearch.auditing.traffic import every_level, flows_of_groups
from mapsearch.costs.estimate import point_of
from mapsearch.errors import UsageError, listed
from mapsearch.topologies.events import MOST_DEVICES, MOST_MESSAGES, simulated_s
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.routing import Pairs, Uniform, busiest, written_out

SHOWN = 10
"""Busiest links that are listed."""


def axis_audits(measured: Measured, tolerance: float = TOLERANCE) -> list[AxisAudit]:
    """Every axis of the mapping that has more than one member."""
    fabric = measured.point.facts.fabric
    shares = measured.shares(tolerance)
    found = []
    for index, traffic in enumerate(measured.traffic):
        sent, model, routed = measured.sent_bytes(index), measured.model_unit_s[index], measured.routed_unit_s[index]
        simulated, rates = _small(measured, index)
        link = busiest(measured.unit_load[index], measured.ground.router.wires)[0]
        differs = abs(measured.ratios[index] - 1.0) > tolerance
        found.append(
            AxisAudit(
                axis=traffic.axis,
                pattern=traffic.pattern,
                groups=len(traffic.groups),
                members=traffic.members,
                ways={name: ways for name, ways in zip(fabric.level_names, traffic.row, strict=True) if ways > 1},
                model_bytes_per_s=sent / model,
                routed_bytes_per_s=sent / routed,
                alone_bytes_per_s=sent / measured.alone_s(index),
                simulated_bytes_per_s=None if simulated is None else sent / simulated,
                ratio=measured.ratios[index],
                model_s=measured.step_s[index],
                routed_s=measured.step_s[index] / measured.ratios[index],
                worst=link_load(measured, link, [index]),
                shares=named_shares(fabric, {traffic.axis: shares[traffic.axis]})[traffic.axis] if differs else {},
                rates=rates,
            )
        )
    return found


def beside(axes: list[AxisAudit], measured: Mapping[str, float]) -> list[AxisAudit]:
    """The axes with what was measured of them, bytes/s. Raises UsageError for an axis that sends nothing."""
    there = dict.fromkeys(axis.axis for axis in axes)
    for name, rate in measured.items():
        if name not in there:
            raise UsageError(f"{name} sends nothing in this mapping; give {listed(there)}", field="measured")
        if not rate > 0.0:
            raise UsageError(f"{name} is {rate:g} B/s; give what was measured, such as 47.7 GB/s", field="measured")
    return [axis.model_copy(update={"measured_bytes_per_s": measured.get(axis.axis)}) for axis in axes]


def named_shares(fabric: Fabric, shares: dict[str, tuple[float, ...]]) -> dict[str, dict[str, float]]:
    """Shares by axis and level name, levels that no group crosses (share 1) left out."""
    return {
        axis: {name: share for name, share in zip(fabric.level_names, row, strict=True) if share != 1.0}
        for axis, row in shares.items()
    }


def link_load(measured: Measured, link: int, axes: list[int]) -> LinkLoad:
    """What some of the axes put on a link in a step."""
    wires = measured.ground.router.wires
    busy: dict[str, float] = {}
    for index in axes:
        seconds = float(measured.busy_s[index, link])
        if seconds:
            axis = measured.traffic[index].axis
            busy[axis] = busy.get(axis, 0.0) + seconds
    rate = float(wires.bytes_per_s[link])
    return LinkLoad(
        source=wires.names[int(wires.tail[link])],
        target=wires.names[int(wires.head[link])],
        bytes_per_s=rate,
        load_bytes=sum(busy.values()) * rate,
        seconds=sum(busy.values()),
        by_axis=busy,
    )


def busiest_links(measured: Measured) -> list[LinkLoad]:
    """The links that all axes together keep busy longest, one of each kind of load."""
    total = measured.busy_s.sum(axis=0)
    every = list(range(len(measured.traffic)))
    kinds = np.vstack([measured.busy_s, measured.ground.router.wires.bytes_per_s])
    scale = np.maximum(kinds.max(axis=1, initial=0.0), 1e-300)[:, None]
    _, first, alike = np.unique(np.round(kinds / scale, 9), axis=1, return_index=True, return_counts=True)
    order = np.lexsort((first, -total[first]))[:SHOWN]
    return [
        link_load(measured, int(first[kind]), every).model_copy(update={"alike": int(alike[kind])})
        for kind in order
        if total[first[kind]] > 0.0
    ]


def overlaps(measured: Measured, tolerance: float = TOLERANCE) -> list[Overlap]:
    """Pairs of axes that share links at the same time and lose more than the tolerance by it, the worst first.

    What runs in the background may meet anything; the others meet only what runs there.
    """
    hidden, busy = background(measured), measured.busy_s
    found = []
    for one, first in enumerate(measured.traffic):
        for other, second in enumerate(measured.traffic):
            both = first.axis in hidden and second.axis in hidden
            if first.axis not in hidden or first.axis == second.axis or (both and other < one):
                continue
            alone = float(max(busy[one].max(), busy[other].max()))
            link = int(np.argmax(busy[one] + busy[other]))
            together = float(busy[one, link] + busy[other, link])
            if together > alone * (1.0 + tolerance):
                found.append(
                    Overlap(
                        hidden=first.axis,
                        other=second.axis,
                        alone_s=alone,
                        together_s=together,
                        link=link_load(measured, link, [one, other]),
                    )
                )
    return sorted(found, key=lambda each: -(each.together_s - each.alone_s))


def audited_step_s(measured: Measured, tolerance: float = TOLERANCE, *, contended: bool = False) -> float:
    """Step time of the mapping with what its axes get on the graph. Unit: s.

    `contended`: background traffic takes its half of the links that it shares with what stands in line.
    """
    facts = with_shares(measured.point.facts, measured.shares(tolerance, contended=contended))
    return point_of(measured.mapping, facts).step_time_s()


def _small(measured: Measured, index: int) -> tuple[float | None, list[GroupRate]]:
    """Seconds of a unit payload by the discrete-event check, and the rate of each group, where the graph is small."""
    router, traffic = measured.ground.router, measured.traffic[index]
    if int(router.wires.device.sum()) > MOST_DEVICES:
        return None, []
    fabric, units = measured.point.facts.fabric, measured.placed.units
    columns = [
        every_level(flows_of_groups(traffic, [group]), fabric, measured.node, units)
        for group in range(len(traffic.groups))
    ]
    loads = router.loads_bytes(columns)
    busy = measured.unit_load[index] / router.wires.bytes_per_s
    rates = []
    for group, load in enumerate(loads):
        devices = [measured.placed.devices[rank] for rank in traffic.groups[group].tolist()]
        slowest = float(busy[load > 0.0].max())
        rates.append(GroupRate(first=devices[0], last=devices[-1], bytes_per_s=measured.sent_bytes(index) / slowest))
    messages = _messages([flow for flows in columns for flow in flows], len(router.wires.names))
    if len(messages.source) > MOST_MESSAGES:
        return None, rates
    return simulated_s(router, messages, together=traffic.pattern == "gather"), rates


def _messages(flows: list[Pairs | Uniform], nodes: int) -> Pairs:
    """All messages of some flows, one for each pair of devices."""
    pairs = [each for flow in flows for each in (written_out(flow) if isinstance(flow, Uniform) else [flow])]
    source, target, sent = (np.concatenate([getattr(p, name) for p in pairs]) for name in Pairs.__dataclass_fields__)
    keys, place = np.unique(source * nodes + target, return_inverse=True)
    total = np.bincount(place.ravel(), weights=sent)
    kept = (total > 1e-12 * total.max()) & (keys // nodes != keys % nodes)
    return Pairs(keys[kept] // nodes, keys[kept] % nodes, total[kept])
