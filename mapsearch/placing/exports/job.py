"""What every export writes from and is checked against.

Contents: Job, Launched, Export, checked, host_lines, read_host_lines, device_lines, read_device_lines, consecutive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mapsearch.axes import SIZES
from mapsearch.errors import InputError
from mapsearch.placing.hosts import Host, Seat, seats_of
from mapsearch.placing.placed import Placed

Files = dict[str, str]


@dataclass(frozen=True)
class Job:
    """A placement on hosts."""

    placed: Placed
    hosts: tuple[Host, ...]
    cores_per_host: int | None = None

    @cached_property
    def seats(self) -> list[Seat]:
        """Host and device index by rank."""
        return seats_of(self.hosts)


@dataclass(frozen=True)
class Launched:
    """What a set of files makes of a job: read from the files alone."""

    seats: list[Seat]
    """Host and device index by the rank that the launcher gives."""
    groups: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    """Groups by axis, in the launcher's ranks, where the files settle them; else the ranks are the placement's."""


@dataclass(frozen=True)
class Export:
    """One format."""

    write: Callable[[Job], Files]
    read: Callable[[Files], Launched]
    single: str = ""
    """Name of the file when there is only one."""


def checked(job: Job, format_: str, launched: Launched) -> None:
    """Raise RuntimeError, which is a bug, unless every group has the same devices as in the placement."""
    seats = job.seats
    if len(launched.seats) != len(seats) or set(launched.seats) != set(seats):
        raise RuntimeError(f"{format_}: the files place ranks on other devices than the placement")
    if not launched.groups:
        if launched.seats != seats:
            raise RuntimeError(f"{format_}: the files give ranks other devices than the placement")
        return
    for axis in SIZES:
        ours = {frozenset(seats[rank] for rank in group) for group in job.placed.groups[axis].tolist()}
        theirs = {frozenset(launched.seats[rank] for rank in group) for group in launched.groups[axis]}
        if ours != theirs:
            raise RuntimeError(f"{format_}: the files make other {axis.upper()} groups than the placement")


def host_lines(hosts: Sequence[Host]) -> str:
    """A hostfile: a line `HOST slots=N` per host."""
    return "".join(f"{host.name} slots={len(host.ranks)}\n" for host in hosts)


def read_host_lines(text: str) -> list[tuple[str, int]]:
    """Hosts and slots of a hostfile."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, int(slots.removeprefix("slots="))) for name, slots in rows]


def device_lines(hosts: Sequence[Host]) -> str:
    """A line `HOST 0,1,2,3` per host: device indices by local rank, as CUDA_VISIBLE_DEVICES takes them."""
    return "".join(f"{host.name} {','.join(map(str, host.devices))}\n" for host in hosts)


def read_device_lines(text: str) -> dict[str, list[int]]:
    """Device indices by local rank of every host."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {row[0]: [int(index) for index in row[1].split(",")] for row in rows}


def consecutive(job: Job, number: np.ndarray, launcher: str) -> list[Host]:
    """The hosts in the order of their ranks, where every host has as many, one after the other.

    `number`: the launcher's rank of each rank of the placement. Raises InputError otherwise.
    """
    hosts = []
    for host in job.hosts:
        order = sorted(range(len(host.ranks)), key=lambda place: int(number[host.ranks[place]]))
        ranks = tuple(int(number[host.ranks[place]]) for place in order)
        hosts.append(Host(host.name, ranks, tuple(host.devices[place] for place in order)))
    hosts.sort(key=lambda host: host.ranks[0])
    size = len(hosts[0].ranks)
    for place, host in enumerate(hosts):
        if len(host.ranks) != size:
            raise InputError(
                f"{launcher} starts as many ranks on every host, but {hosts[0].name} has {size} and {host.name} "
                f"{len(host.ranks)}; export slurm or rankfile, which name the host of each rank"
            )
        if host.ranks != tuple(range(place * size, (place + 1) * size)):
            shown = ", ".join(map(str, host.ranks[:4])) + (", .." if size > 4 else "")
            raise InputError(
                f"{launcher} numbers ranks host by host, but this placement puts ranks {shown} on {host.name}; "
                "export slurm or rankfile, which name the host of each rank"
            )
    return hosts
