"""How long it takes from a graph of links to levels, and in how much memory: several shapes at two sizes.

`python -m benchmarks.topology [--json] [--shape NAME] [--devices N]`; each measurement runs in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from mapsearch.topologies import Topology, fabric_of

Link = tuple[str, str, float, float]
"""Both ends, GB/s one way, us."""
SIZES = (16_384, 131_072)
TARGETS = {16_384: (5.0, 6.0), 131_072: (60.0, 6.0)}
"""Seconds and GiB that a graph of so many devices may take."""


def fat_tree(devices: int) -> Iterator[Link]:
    """Nodes of 8 on NVLink, a NIC each, 4 nodes a leaf, 8 leaves and 4 spines a pod."""
    pods = devices // 256
    for pod in range(pods):
        for leaf in range(8):
            for node in range(4):
                for gpu in range(8):
                    name = f"g{pod}.{leaf}.{node}.{gpu}"
                    yield name, f"nvs{pod}.{leaf}.{node}", 450.0, 1.0
                    yield name, f"n-{name}", 64.0, 0.5
                    yield f"n-{name}", f"leaf{pod}.{leaf}", 50.0, 0.5
            for spine in range(4):
                yield f"leaf{pod}.{leaf}", f"spine{pod}.{spine}", 200.0, 2.0
        for spine, core in itertools.product(range(4), range(4)):
            yield f"spine{pod}.{spine}", f"core{core}", 100.0, 2.0


def nvl72(devices: int) -> Iterator[Link]:
    """Racks of 72 on 18 planes; NIC i of every tray on rail i, rails of 16 racks, spines over them at half rate."""
    racks = -(-devices // 72)
    for rack in range(racks):
        unit = rack // 16
        for gpu in range(72):
            name = f"g{rack}.{gpu}"
            for plane in range(18):
                yield name, f"plane{rack}.{plane}", 50.0, 1.0
            yield name, f"n-{name}", 64.0, 0.5
            yield f"n-{name}", f"rail{unit}.{gpu % 4}", 50.0, 0.5
    units = -(-racks // 16)
    for unit, rail, spine in itertools.product(range(units), range(4), range(4)):
        if units > 1:
            yield f"rail{unit}.{rail}", f"spine{spine}", 50.0 * 288 / 8, 2.0


def rails(devices: int) -> Iterator[Link]:
    """Nodes of 8 on 4 NVSwitches; GPU i on rail i of its 32 nodes; spines over the rails at half rate."""
    units = devices // 256
    for unit in range(units):
        for node, gpu in itertools.product(range(32), range(8)):
            name = f"g{unit}.{node}.{gpu}"
            for plane in range(4):
                yield name, f"nvs{unit}.{node}.{plane}", 112.5, 1.0
            yield name, f"n-{name}", 64.0, 0.5
            yield f"n-{name}", f"rail{unit}.{gpu}", 50.0, 0.5
        for gpu, spine in itertools.product(range(8), range(4)):
            yield f"rail{unit}.{gpu}", f"spine{spine}", 200.0, 2.0


def torus(devices: int) -> Iterator[Link]:
    """A 3D torus, as near to a cube as powers of two allow."""
    yield from _grid(devices, wrap=True)


def mesh(devices: int) -> Iterator[Link]:
    """The same without the links around: no regular shape, so a cut is looked for."""
    yield from _grid(devices, wrap=False)


def _grid(devices: int, *, wrap: bool) -> Iterator[Link]:
    power = devices.bit_length() - 1
    extents = [1 << (power + axis) // 3 for axis in range(3)]
    for place in itertools.product(*map(range, extents)):
        for axis, extent in enumerate(extents):
            if place[axis] + 1 < extent or wrap:
                other = (*place[:axis], (place[axis] + 1) % extent, *place[axis + 1 :])
                yield "g" + ".".join(map(str, place)), "g" + ".".join(map(str, other)), 50.0, 1.0


def holes(devices: int) -> Iterator[Link]:
    """The rails with one GPU in every hundred taken out: every node is a case of its own."""
    dead = {f"g{n // 256}.{n // 8 % 32}.{n % 8}" for n in range(0, devices, 101)}
    for a, b, rate, latency in rails(devices):
        if a not in dead and a.removeprefix("n-") not in dead:
            yield a, b, rate, latency


SHAPES: dict[str, Callable[[int], Iterator[Link]]] = {
    "fat tree": fat_tree,
    "nvl72": nvl72,
    "rails": rails,
    "torus": torus,
    "mesh": mesh,
    "holes": holes,
}


def measured(shape: str, devices: int) -> dict[str, Any]:
    """One document: read it, derive its levels. CPU seconds, and the most memory of the process."""
    links = list(SHAPES[shape](devices))
    kinds = {"g": "device", "n": "nic"}
    names = dict.fromkeys(end for link in links for end in link[:2])
    document = {
        "name": shape,
        "device": {"name": "GPU", "hbm": "80 GB", "hbm_bandwidth": "3 TB/s", "peak": {"bf16": "900 TFLOP/s"}},
        "nodes": [{"id": n, "type": "switch" if n.startswith("nvs") else kinds.get(n[0], "switch")} for n in names],
        "links": [{"a": a, "b": b, "bandwidth": f"{gb} GB/s", "latency": f"{us} us"} for a, b, gb, us in links],
    }
    count = len(links)
    del links, names
    started = time.process_time()
    topology = Topology.model_validate(document)
    del document
    read = time.process_time()
    fabric = fabric_of(topology)
    done = time.process_time()
    return {
        "shape": shape,
        "devices": topology.device_count,
        "links": count,
        "read_s": read - started,
        "levels_s": done - read,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "levels": [[level.kind, level.size, level.bytes_per_s / 1e9] for level in fabric.levels],
        "cores": len(fabric.cores),
        "notes": list(fabric.notes),
    }


def main() -> None:
    """Measure all shapes at all sizes, and say which target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="a JSON document instead of a table")
    parser.add_argument("--shape", choices=SHAPES, help="one shape only")
    parser.add_argument("--devices", type=int, help="one size only")
    parser.add_argument("--here", action="store_true", help="one shape of one size, in this process")
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measured(given.shape, given.devices)))
        return
    rows = []
    for devices in [given.devices] if given.devices else SIZES:
        for shape in [given.shape] if given.shape else SHAPES:
            command = [sys.executable, "-m", "benchmarks.topology", "--here", "--shape", shape, "--devices"]
            run = subprocess.run([*command, str(devices)], check=True, capture_output=True, text=True)
            rows.append(json.loads(run.stdout))
            if not given.json:
                _show(rows[-1], devices)
    if given.json:
        print(json.dumps(rows, indent=2))


def _show(row: dict[str, Any], devices: int) -> None:
    levels = " x ".join(f"{kind} {size} at {rate:,.4g}" for kind, size, rate in reversed(row["levels"]))
    seconds, gib = TARGETS.get(devices, (float("inf"), float("inf")))
    late = "" if row["levels_s"] <= seconds and row["peak_gib"] <= gib else f"   above {seconds:g} s or {gib:g} GiB"
    print(
        f"{row['shape']:9} {row['devices']:8,} devices {row['links']:9,} links: read {row['read_s']:5.1f} s, levels "
        f"{row['levels_s']:5.1f} s, {row['peak_gib']:.2f} GiB   {levels}{late}",
        flush=True,
    )


if __name__ == "__main__":
    main()
