"""torchrun: hosts in the order of their node rank, and the order of devices on each.

Contents: EXPORT, write_hosts, read_hosts.

torchrun gives the ranks of node rank K the numbers K x N to K x N + N - 1. Source: PyTorch documentation, torchrun.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mapsearch.placing.exports.job import (
    Export,
    Files,
    Job,
    Launched,
    consecutive,
    device_lines,
    host_lines,
    read_device_lines,
    read_host_lines,
)
from mapsearch.placing.hosts import Host, Seat

_LAUNCH = """#!/bin/sh
# On every host: sh launch.sh SCRIPT ARGUMENTS...   (the files hostfile and devices stand beside this one)
set -eu
here=$(dirname "$0")
host=${MAPSEARCH_HOST:-$(hostname -s)}
node_rank=$(awk -v h="$host" '$1 == h {print NR - 1}' "$here/hostfile")
export CUDA_VISIBLE_DEVICES=$(awk -v h="$host" '$1 == h {print $2}' "$here/devices")
exec torchrun --nnodes=%(nodes)d --nproc-per-node=%(size)d --node-rank="$node_rank" \\
  --master-addr="${MASTER_ADDR:-%(first)s}" --master-port="${MASTER_PORT:-29500}" "$@"
"""


def write_hosts(hosts: Sequence[Host]) -> Files:
    """hostfile, devices and launch.sh of hosts in the order of their node rank."""
    told = {"nodes": len(hosts), "size": len(hosts[0].ranks), "first": hosts[0].name}
    return {"hostfile": host_lines(hosts), "devices": device_lines(hosts), "launch.sh": _LAUNCH % told}


def read_hosts(files: Files) -> list[Seat]:
    """Host and device index by rank."""
    devices = read_device_lines(files["devices"])
    return [(name, devices[name][slot]) for name, slots in read_host_lines(files["hostfile"]) for slot in range(slots)]


def _write(job: Job) -> Files:
    return write_hosts(consecutive(job, np.arange(len(job.placed.devices)), "torchrun"))


EXPORT = Export(_write, lambda files: Launched(read_hosts(files)))
