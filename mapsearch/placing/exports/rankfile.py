"""Open MPI: a rankfile, and the order of devices on each host.

Contents: EXPORT.

`rank R=HOST slot=A-B` puts a rank on a host and binds it to cores A to B; local ranks count the ranks of a host upward.
Source: mpirun(1) of Open MPI, rankfiles.
"""

from __future__ import annotations

import re
from collections import Counter

from mapsearch.errors import UsageError
from mapsearch.placing.exports.job import Export, Files, Job, Launched, device_lines, read_device_lines
from mapsearch.placing.hosts import Seat

_LINE = re.compile(r"rank (\d+)=(\S+) slot=\d+(?:-\d+)?")
_LAUNCH = """#!/bin/sh
# sh launch.sh COMMAND...   (Open MPI 4: --rankfile FILE instead of --map-by rankfile:file=FILE)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec mpirun -np %(ranks)d --map-by "rankfile:file=$here/rankfile" \\
  -x MASTER_ADDR="${MASTER_ADDR:-%(first)s}" -x MASTER_PORT="${MASTER_PORT:-29500}" sh "$here/task.sh" "$@"
"""
_TASK = """#!/bin/sh
# One rank: its devices in the order of the placement, and what torch.distributed reads.
here=$(dirname "$0")
host=${MAPSEARCH_HOST:-$(hostname -s)}
export CUDA_VISIBLE_DEVICES=$(awk -v h="$host" '$1 == h {print $2}' "$here/devices")
export RANK="$OMPI_COMM_WORLD_RANK" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE" LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK"
exec "$@"
"""


def _write(job: Job) -> Files:
    """rankfile, devices, launch.sh and task.sh; each rank is bound to its share of the host's cores, else to one."""
    most = max(len(host.ranks) for host in job.hosts)
    share = 1 if job.cores_per_host is None else job.cores_per_host // most
    if not share:
        raise UsageError(f"is {job.cores_per_host}, fewer than the {most} ranks of a host", field="--cores-per-host")
    local: Counter[str] = Counter()
    lines = []
    for rank, (host, _) in enumerate(job.seats):
        first = local[host] * share
        lines.append(f"rank {rank}={host} slot={first if share == 1 else f'{first}-{first + share - 1}'}\n")
        local[host] += 1
    told = {"ranks": len(job.seats), "first": job.seats[0][0]}
    return {
        "rankfile": "".join(lines),
        "devices": device_lines(job.hosts),
        "launch.sh": _LAUNCH % told,
        "task.sh": _TASK,
    }


def _read(files: Files) -> Launched:
    devices = read_device_lines(files["devices"])
    host_of = {int(rank): host for rank, host in _LINE.findall(files["rankfile"])}
    local: Counter[str] = Counter()
    seats: list[Seat] = []
    for rank in range(len(host_of)):
        host = host_of[rank]
        seats.append((host, devices[host][local[host]]))
        local[host] += 1
    return Launched(seats)


EXPORT = Export(_write, _read)
