"""How long placing ranks takes, and how much a placement on the actual links gains over the fixed order.

    python -m benchmarks.place [--json]

`listed` is a mapping of 131,072 ranks placed, its groups summed up, and written as JSON. `graphs` are small random ones
on which CP-SAT proves the placement. `links` are fat trees with oversubscription and one degraded leaf: seconds of the
busiest link in the fixed order over those found. `tori` are lists of cables: what laying ranks along the axes gains.
CPU seconds of one run each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import resource
import time
from typing import Any

from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.api import placement_of, placing_of
from mapsearch.placing.choose import choose
from mapsearch.topologies import Topology

DEVICE = {"name": "part", "hbm": "80 GB", "hbm_bandwidth": "3 TB/s", "peak": {"bf16": "1 PFLOP/s"}}
LEVELS = (("board", 8, 100), ("rack", 8, 25), ("pod", 16, 12.5), ("hall", 128, 6.25))
LEAVES = ((4, 4, 4), (8, 8, 4), (32, 8, 4), (128, 8, 8), (512, 8, 8), (512, 32, 8))
"""Leaves, devices of a leaf, oversubscription."""
TORI = ((16, 8, 8), (32, 16, 8))
"""Axes of tori that are given by their cables."""
SENT_BYTES = {"tp": 4e9, "cp": 2e9, "dp": 20e9, "pp": 1e9, "etp": 0.0, "ep": 6e9, "edp": 8e9}
"""Bytes per rank and step in the examples of `links`."""


def listed() -> dict[str, Any]:
    """131,072 ranks on four levels."""
    levels = [
        {"name": name, "size": size, "bandwidth": f"{rate} GB/s", "latency": "1 us"} for name, size, rate in LEVELS
    ]
    topology = Topology.model_validate({"name": "large", "device": DEVICE, "levels": levels})
    mapping = Mapping(tp=8, cp=8, dp=64, pp=32, ep=64, edp=64)
    start = time.process_time()
    text = placement_of(placing_of(mapping, topology)).to_json()
    return {"ranks": mapping.devices, "cpu_s": time.process_time() - start, "json_bytes": len(text)}


def fat_tree(leaves: int, devices: int, over: int) -> Topology:
    """Leaves under one spine; the uplinks of a leaf in the middle have half the rate of the others'."""
    nodes: list[dict[str, Any]] = [{"id": "spine", "type": "switch"}]
    links: list[dict[str, Any]] = []
    for leaf in range(leaves):
        nodes.append({"id": f"leaf{leaf}", "type": "switch"})
        up = 50.0 * devices / over / (2 if leaf == leaves // 2 else 1)
        links.append({"a": f"leaf{leaf}", "b": "spine", "bandwidth": f"{up} GB/s"})
        for device in range(devices):
            nodes.append({"id": f"n{leaf}/gpu{device}"})
            links.append({"a": f"n{leaf}/gpu{device}", "b": f"leaf{leaf}", "bandwidth": "50 GB/s"})
    return Topology.model_validate({"name": "fat tree", "device": DEVICE, "nodes": nodes, "links": links})


def links() -> list[dict[str, Any]]:
    """Every fat tree with a mapping whose heaviest axis is DP."""
    found = []
    for leaves, devices, over in LEAVES:
        ranks = leaves * devices
        mapping = Mapping(tp=4, dp=ranks // 8, pp=2, ep=8, edp=ranks // 16)
        start = time.process_time()
        chosen = choose(mapping, fat_tree(leaves, devices, over), SENT_BYTES)
        found.append(
            {
                "ranks": ranks,
                "oversubscription": over,
                "cpu_s": time.process_time() - start,
                "worst_s": chosen.cost.worst_s,
                "fixed_over_found": chosen.fixed.worst_s / chosen.cost.worst_s,
                "proven": chosen.proven,
            }
        )
    return found


def torus(dims: tuple[int, ...]) -> Topology:
    """Devices joined to their neighbours along every axis, listed in no order."""
    places = list(itertools.product(*map(range, dims)))
    names = {place: f"gpu{number}" for place, number in zip(places, _shuffled(len(places)), strict=True)}
    cables: list[dict[str, Any]] = []
    for place, axis in itertools.product(places, range(len(dims))):
        other = (*place[:axis], (place[axis] + 1) % dims[axis], *place[axis + 1 :])
        cables.append({"a": names[place], "b": names[other], "bandwidth": "50 GB/s"})
    nodes = [{"id": f"gpu{number}"} for number in range(len(places))]
    return Topology.model_validate({"name": "torus", "device": DEVICE, "nodes": nodes, "links": cables})


def _shuffled(count: int) -> list[int]:
    numbers = list(range(count))
    random.Random(0).shuffle(numbers)
    return numbers


def tori() -> list[dict[str, Any]]:
    """Tori given by their cables alone: along the axes, in the best order of these, and in the order of the list."""
    found = []
    for dims in TORI:
        ranks = math.prod(dims)
        mapping = Mapping(tp=8, cp=4, dp=ranks // 32, ep=32, edp=ranks // 32)
        start = time.process_time()
        chosen = choose(mapping, torus(dims), SENT_BYTES)
        given = chosen.given.worst_s if chosen.given else math.nan
        found.append(
            {
                "dims": dims,
                "cpu_s": time.process_time() - start,
                "fixed_over_given": chosen.fixed.worst_s / given,
                "given_over_found": given / chosen.cost.worst_s,
            }
        )
    return found


def graphs(count: int = 20) -> dict[str, Any]:
    """Eight ranks on random graphs of eight devices and three switches."""
    rng = random.Random(0)
    start, proven = time.process_time(), 0
    for _ in range(count):
        nodes = [{"id": f"g{i}"} for i in range(8)] + [{"id": f"s{i}", "type": "switch"} for i in range(3)]
        ends = [(f"g{i}", f"s{s}") for i in range(8) for s in rng.sample(range(3), 2)] + [("s0", "s1"), ("s1", "s2")]
        cables = [{"a": a, "b": b, "bandwidth": f"{rng.choice((12, 25, 50, 100))} GB/s"} for a, b in ends]
        topology = Topology.model_validate({"name": "small", "device": DEVICE, "nodes": nodes, "links": cables})
        chosen = choose(Mapping(tp=2, dp=2, pp=2, ep=4), topology, SENT_BYTES)
        proven += chosen.proven == "all"
    return {"graphs": count, "proven": proven, "cpu_s_each": (time.process_time() - start) / count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    wanted = parser.parse_args()
    found = {"listed": listed(), "graphs": graphs(), "links": links(), "tori": tori()}
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # type: ignore[assignment]
    if wanted.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        for row in value if isinstance(value, list) else [value]:
            print(f"{name}: {row}")


if __name__ == "__main__":
    main()
