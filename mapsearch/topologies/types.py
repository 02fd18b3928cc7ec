"""Several types of device in one cluster: read as one type each way that the cost model can compute.

Contents: readings_of, read_as, of_one_type, slowest.

All devices of a fabric are alike. So a cluster with two types is read as all its devices at the slower type, in every
number, and as each type alone with the others left out; the search takes whichever is faster. `only_type` leaves one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mapsearch.errors import InputError, listed
from mapsearch.topologies.spec import DeviceSpec, Topology, unit_index, unit_words
from mapsearch.units import BYTES, FLOPS, render

SIZED = ("hbm", "hbm_bandwidth", "host_memory", "host_bandwidth", "nvme", "nvme_bandwidth")


def readings_of(topology: Topology) -> list[tuple[str, Topology, str]]:
    """Each way to read a topology with several types: what it is called, a topology with one, and a note.

    All devices first; then every type alone, the most devices first. One without a name for a topology of one type,
    and for one with `only_type`. Raises InputError when no device is of that type.
    """
    counts = _counts(topology)
    if topology.only_type:
        return [_only(topology, counts)]
    if len(counts) < 2:
        named = next(iter(counts))
        types = {device.name: device for device in (topology.device, *topology.other_devices)}
        return [("", of_one_type(topology, types[named], []), "")] if topology.other_devices else [("", topology, "")]
    types = {device.name: device for device in (topology.device, *topology.other_devices) if device.name in counts}
    shared = slowest([types[name] for name in counts], [counts[name] for name in counts])
    said = " and ".join(f"{count:,} x {name}" for name, count in counts.items())
    note = f"{said}: all are read as the slower in every number ({_numbers(shared)}); " + "; ".join(
        f"of each {name} {_loss(types[name], shared)}" for name in counts if types[name] != shared
    )
    found = [(f"all {sum(counts.values()):,} devices at the slower type", of_one_type(topology, shared, []), note)]
    for name, count in counts.items():
        alone = f"{said}: only the {count:,} x {name} are used, as devices of one mapping are alike"
        found.append((f"the {count:,} x {name} alone", _alone(topology, name), alone))
    return found


def read_as(topology: Topology, reading: str) -> Topology:
    """The topology with one type of device that a fabric with this `reading` was made of; itself where it has one."""
    return next((plain for name, plain, _ in readings_of(topology) if name and name == reading), topology)


def _only(topology: Topology, counts: dict[str, int]) -> tuple[str, Topology, str]:
    """The one reading that `only_type` leaves."""
    name = topology.only_type
    if name not in counts:
        raise InputError(
            f"is {name!r}, and no device is of that type; here are {listed(counts)}",
            file=topology.name,
            field="only_type",
        )
    left = sum(counts.values()) - counts[name]
    note = f"only_type: the {counts[name]:,} x {name} are used, and {left:,} other devices left out" if left else ""
    return "", _alone(topology, name), note


def _alone(topology: Topology, name: str) -> Topology:
    """The topology with the devices of one type, the others as if they were down."""
    types = {device.name: device for device in (topology.device, *topology.other_devices)}
    return of_one_type(topology, types[name], [place for place, of in _typed(topology).items() if of != name])


def of_one_type(topology: Topology, device: DeviceSpec, left_out: Sequence[str]) -> Topology:
    """The topology with this device everywhere and some more units down."""
    nodes = [node.model_copy(update={"device": ""}) for node in topology.nodes]
    down = [*topology.down, *(place for place in left_out if place not in topology.down)]
    return topology.model_copy(
        update={"device": device, "other_devices": [], "types": {}, "only_type": "", "nodes": nodes, "down": down}
    )


def _typed(topology: Topology) -> dict[str, str]:
    """The type of every device, or in the levels form of units that do not overlap and cover all."""
    if topology.nodes:
        return {node.id: node.device or topology.device.name for node in topology.nodes if node.type == "device"}
    return _covering(topology, {unit_index(place, topology.levels): name for place, name in topology.types.items()})


def _covering(topology: Topology, given: dict[tuple[int, ...], str]) -> dict[str, str]:
    """Units as large as they can be with one type inside, and their type; `given`: by index, the innermost counts."""
    words = unit_words([level.name for level in topology.levels])
    sizes = [level.size for level in reversed(topology.levels)]
    found: dict[str, str] = {}

    def visit(index: tuple[int, ...], kind: str) -> None:
        kind = given.get(index, kind)
        if not any(len(other) > len(index) and other[: len(index)] == index for other in given):
            found["/".join(f"{word}{number}" for word, number in zip(words, index, strict=False))] = kind
            return
        for number in range(sizes[len(index)]):
            visit((*index, number), kind)

    visit((), topology.device.name)
    return found


def _counts(topology: Topology) -> dict[str, int]:
    """Devices of each type, most first."""
    sizes = [level.size for level in reversed(topology.levels)]
    counts: Counter[str] = Counter()
    for place, name in _typed(topology).items():
        inside = 1
        for size in sizes[place.count("/") + 1 if place else 0 :]:
            inside *= size
        counts[name] += inside
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def slowest(types: list[DeviceSpec], counts: list[int]) -> DeviceSpec:
    """A device that none of these is slower or smaller than; power and price are what they are on average."""
    formats = set.intersection(*({*device.peak} for device in types))
    least = {field: min(getattr(device, field) for device in types) for field in SIZED}
    base = min(types, key=lambda device: min(device.peak[name] for name in sorted(formats)) if formats else 0.0)
    peak = {name: min(device.peak[name] for device in types) for name in base.peak if name in formats}
    average = {}
    for field in ("power", "price_per_hour"):
        values = [getattr(device, field) for device in types]
        known = all(value is not None for value in values)
        average[field] = sum(v * n for v, n in zip(values, counts, strict=True)) / sum(counts) if known else None
    return base.model_copy(update={**least, **average, "peak": peak})


def _numbers(device: DeviceSpec) -> str:
    peaks = ", ".join(f"{name} {render(value, FLOPS)}" for name, value in device.peak.items())
    return f"{render(device.hbm, BYTES)}, {peaks}"


def _loss(device: DeviceSpec, shared: DeviceSpec) -> str:
    parts = []
    if device.hbm > shared.hbm:
        parts.append(f"{1.0 - shared.hbm / device.hbm:.0%} of its memory")
    parts += [
        f"{1.0 - value / device.peak[name]:.0%} of its {name} peak"
        for name, value in shared.peak.items()
        if device.peak[name] > value
    ]
    if device.hbm_bandwidth > shared.hbm_bandwidth:
        parts.append(f"{1.0 - shared.hbm_bandwidth / device.hbm_bandwidth:.0%} of its memory bandwidth")
    return f"{', '.join(parts)} is lost" if parts else "nothing of note is lost"
