"""Which host and which device index each rank of a placement has: what launchers want to know.

Contents: Host, Seat, hosts_of, seats_of, named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mapsearch.errors import InputError, UsageError
from mapsearch.placing.placed import Placed
from mapsearch.topologies.condense import device_tiers
from mapsearch.topologies.graph import graph_of, nodes_of_type
from mapsearch.topologies.spec import Topology

_TAIL = re.compile(r"\d+$")
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Seat = tuple[str, int]
"""Host, and index of the device on it as its driver counts (CUDA_VISIBLE_DEVICES)."""


@dataclass(frozen=True)
class Host:
    """One host with the ranks that it runs."""

    name: str
    ranks: tuple[int, ...]
    """Ascending: the place is the local rank."""
    devices: tuple[int, ...]
    """Index of the device of each local rank."""


def hosts_of(placed: Placed, topology: Topology, per_host: int | None = None) -> list[Host]:
    """The hosts of a placement, in the order in which the topology lists their devices.

    A device called HOST/DEVICE is on HOST; others are on the host of their innermost unit. `per_host` parts larger
    units into hosts of so many devices. Host names have no blanks or slashes: `rack3/board2` becomes `rack3-board2`.
    Raises InputError when a name does not say its host.
    """
    place = _places(placed, topology, per_host)
    ranks: dict[str, list[tuple[int, int]]] = {}
    for rank, device in enumerate(placed.devices):
        host, index = place[device]
        ranks.setdefault(host, []).append((rank, index))
    order = {host: number for number, host in enumerate(dict.fromkeys(host for host, _ in place.values()))}
    return [
        Host(host, tuple(rank for rank, _ in ranks[host]), tuple(index for _, index in ranks[host]))
        for host in sorted(ranks, key=order.__getitem__)
    ]


def seats_of(hosts: Sequence[Host]) -> list[Seat]:
    """Host and device index by rank."""
    seats = {rank: (host.name, index) for host in hosts for rank, index in zip(host.ranks, host.devices, strict=True)}
    return [seats[rank] for rank in sorted(seats)]


def named(hosts: Sequence[Host], text: str, file: str) -> list[Host]:
    """The hosts under names of one's own: one per line, blank lines and # comments left out. Raises InputError."""
    names = [line.split("#")[0].strip() for line in text.splitlines()]
    names = [name for name in names if name]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise InputError(f"{name!r} is not a host name; write one name per line", file=file)
    if len(names) != len(hosts):
        raise InputError(
            f"has {len(names):,} names; the placement uses {len(hosts):,} hosts, from {hosts[0].name} to "
            f"{hosts[-1].name}",
            file=file,
        )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"names {twice!r} twice; every host has its own name", file=file)
    return [replace(host, name=name) for host, name in zip(hosts, names, strict=True)]


def _places(placed: Placed, topology: Topology, per_host: int | None) -> dict[str, Seat]:
    """Host and index of every device in use; devices that are down keep their index."""
    if topology.levels:
        units = {device: device.rpartition("/")[0] or topology.name for device in placed.devices}
        indices = {device: int(_TAIL.search(device).group()) for device in placed.devices}  # type: ignore[union-attr]
        order = sorted(placed.devices, key=lambda name: [int(n) for n in re.findall(r"(\d+)(?=/|$)", name)])
    else:
        whole = topology.model_copy(update={"down": []})
        order = nodes_of_type(graph_of(whole), "device")
        units = _units(order, whole)
        indices = _indices(order, units)
        used = set(placed.devices)
        order = [device for device in order if device in used]
    found = {}
    for device in order:
        unit, index = units[device], indices[device]
        part = "" if per_host is None or _size(topology, units, unit) <= per_host else f"-{index // per_host}"
        found[device] = (f"{unit}{part}".replace("/", "-"), index if not part or per_host is None else index % per_host)
    if len(set(found.values())) < len(found):
        raise InputError("has units whose names are alike once slashes are dashes; rename them", file=topology.name)
    for host, _ in found.values():
        if not _HOST_NAME.fullmatch(host):
            raise UsageError(f"no host name can be made of the unit {host!r}; name hosts in a file", field="--hosts")
    return found


def _size(topology: Topology, units: dict[str, str], unit: str) -> int:
    if topology.levels:
        return topology.levels[0].size
    return sum(other == unit for other in units.values())


def _units(devices: Sequence[str], topology: Topology) -> dict[str, str]:
    """What the names say before the last slash, else the innermost units of the graph, called after their devices."""
    if all("/" in device for device in devices):
        return {device: device.rpartition("/")[0] for device in devices}
    tiers = device_tiers(topology)
    found = dict.fromkeys(devices, "host0")
    for number, unit in enumerate(tiers[0] if tiers else []):
        found |= dict.fromkeys(unit, f"host{number}")
    return found


def _indices(devices: Sequence[str], units: dict[str, str]) -> dict[str, int]:
    """The number at the end of each name where these tell a host's devices apart from 0 on, else the place in order."""
    inside: dict[str, list[str]] = {}
    for device in devices:
        inside.setdefault(units[device], []).append(device)
    found: dict[str, int] = {}
    for members in inside.values():
        tails = [_TAIL.search(device) for device in members]
        numbers = [int(tail.group()) for tail in tails if tail]
        told = sorted(numbers) == list(range(len(members)))
        found |= dict(zip(members, numbers if told else range(len(members)), strict=True))
    return found
