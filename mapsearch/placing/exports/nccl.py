"""The order of devices on every host: what CUDA_VISIBLE_DEVICES has to say so that local rank K is on the right one.

Contents: EXPORT.

NCCL numbers the ranks of a communicator as the frame does and takes each one's device from CUDA_VISIBLE_DEVICES and the
local rank. Source: CUDA C++ programming guide, environment variables.
"""

from __future__ import annotations

from mapsearch.placing.exports.job import Export, Files, Job, Launched
from mapsearch.placing.hosts import Seat

_FILE = "devices.txt"


def _write(job: Job) -> Files:
    """A line per host: its name, CUDA_VISIBLE_DEVICES, and the global rank on each of these devices."""
    rows = [
        f"{host.name} CUDA_VISIBLE_DEVICES={','.join(map(str, host.devices))} RANKS={','.join(map(str, host.ranks))}\n"
        for host in job.hosts
    ]
    return {_FILE: "".join(rows)}


def _read(files: Files) -> Launched:
    seats: dict[int, Seat] = {}
    for line in files[_FILE].splitlines():
        host, devices, ranks = line.split()
        indices = devices.removeprefix("CUDA_VISIBLE_DEVICES=").split(",")
        for index, rank in zip(indices, ranks.removeprefix("RANKS=").split(","), strict=True):
            seats[int(rank)] = (host, int(index))
    return Launched([seats[rank] for rank in range(len(seats))])


EXPORT = Export(_write, _read, _FILE)
