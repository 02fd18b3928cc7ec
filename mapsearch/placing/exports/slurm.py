"""Slurm: a host per task, in the order of ranks, and the order of devices on each host.

Contents: EXPORT, write, read.

With --distribution=arbitrary, srun takes the host of each task from the file that SLURM_HOSTFILE names, one per line;
local task numbers count the tasks of a host in that order. Source: srun(1), --distribution and SLURM_HOSTFILE.
"""

from __future__ import annotations

from collections import Counter

from mapsearch.placing.exports.job import Export, Files, Job, Launched, device_lines, read_device_lines
from mapsearch.placing.hosts import Seat

_LAUNCH = """#!/bin/sh
# Inside an allocation of the %(nodes)d hosts: sh launch.sh COMMAND...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export SLURM_HOSTFILE="$here/tasks"
export MASTER_ADDR="${MASTER_ADDR:-%(first)s}" MASTER_PORT="${MASTER_PORT:-29500}"
exec srun --distribution=arbitrary --nodes=%(nodes)d --ntasks=%(ranks)d sh "$here/task.sh" "$@"
"""
_TASK = """#!/bin/sh
# One task: its devices in the order of the placement, and what torch.distributed reads.
here=$(dirname "$0")
export CUDA_VISIBLE_DEVICES=$(awk -v h="$SLURMD_NODENAME" '$1 == h {print $2}' "$here/devices")
export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"
exec "$@"
"""


def write(job: Job) -> Files:
    """tasks, devices, launch.sh and task.sh."""
    tasks = "".join(f"{host}\n" for host, _ in job.seats)
    told = {"nodes": len(job.hosts), "ranks": len(job.seats), "first": job.seats[0][0]}
    return {"tasks": tasks, "devices": device_lines(job.hosts), "launch.sh": _LAUNCH % told, "task.sh": _TASK}


def read(files: Files) -> Launched:
    """Seats by rank: the k-th task of a host has local number k."""
    devices = read_device_lines(files["devices"])
    local: Counter[str] = Counter()
    seats: list[Seat] = []
    for host in files["tasks"].split():
        seats.append((host, devices[host][local[host]]))
        local[host] += 1
    return Launched(seats)


EXPORT = Export(write, read)
