"""How long an audit takes: all collectives of the best mapping, routed on the graph of the cluster.

    python -m benchmarks.audit [--case NAME] [--json]

The mapping comes from a search that is not counted; reading the inputs, drawing the graph and routing are. Each case
runs in a process of its own. `--json` prints {"cases": {name: {wall_s, cpu_s, peak_bytes, devices, links, asked_s,
ratios}}}; `asked_s` is the time that an audit of 16,384 devices should stay under.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

from mapsearch.api import solve
from mapsearch.auditing.api import audit
from mapsearch.topologies import Topology, load_topology, scaled

CASES: dict[str, tuple[str, str, int]] = {
    "moe-5t on asic, 4,096": ("asic", "moe-5t", 4096),
    "moe-5t on asic, 16,384": ("asic", "moe-5t", 16384),
    "moe-5t on hgx-h100, 16,384": ("hgx-h100", "moe-5t", 16384),
    "moe-5t on gb200-nvl72, 18,432": ("gb200-nvl72", "moe-5t", 18432),
    "moe-5t on tpu-torus, 16,384": ("tpu-torus", "moe-5t", 16384),
    "deepseek-v3 on rails with a spine, 16,384": ("rails", "deepseek-v3", 16384),
}
"""Case: cluster, model, devices."""
ASKED_S = 20.0
RUN = "long-context-128k"


def rails(devices: int, nodes: int = 32, each: int = 8, spines: int = 16) -> Topology:
    """Nodes of 8 on an NVSwitch; device i of a node on rail i of its pod of 32 nodes; rails joined by spines at 2:1."""
    switches: set[str] = set()
    names: list[tuple[str, str, str]] = []
    links: list[tuple[str, str, float]] = []
    for node in range(devices // each):
        for device in range(each):
            name, nic, rail = f"n{node}g{device}", f"n{node}g{device}.nic", f"rail{node // nodes}.{device}"
            names += [(name, "device", f"pod{node // nodes}/node{node % nodes}"), (nic, "nic", "")]
            switches |= {f"nvswitch{node}", rail}
            links += [(name, f"nvswitch{node}", 450), (name, nic, 50), (nic, rail, 50)]
    pods = devices // each // nodes
    for pod in range(pods):
        for device in range(each):
            links += [(f"rail{pod}.{device}", f"spine{spine}", 50 * nodes / 2 / spines) for spine in range(spines)]
    nodes_of = [{"id": name, "type": kind} for name, kind, _ in names]
    nodes_of += [{"id": name, "type": "switch"} for name in [*sorted(switches), *(f"spine{s}" for s in range(spines))]]
    part = load_topology("hgx-h100").device.model_dump(mode="json", exclude={"sources"})
    return Topology.model_validate(
        {
            "name": "rails",
            "device": part,
            "nodes": nodes_of,
            "links": [{"a": a, "b": b, "bandwidth": f"{rate} GB/s", "latency": "2 us"} for a, b, rate in links],
        }
    )


def measure(name: str) -> dict[str, Any]:
    """Wall and processor time of one audit, and what it found."""
    cluster, model, devices = CASES[name]
    topology = rails(devices) if cluster == "rails" else scaled(load_topology(cluster), devices)
    answer = solve(model, RUN, topology, top=1, proof="none")
    if answer.best is None:
        return {"status": answer.status}
    started, before = time.monotonic(), time.process_time()
    found = audit(answer.best, model=model, run=RUN, topology=topology)
    return {
        "wall_s": time.monotonic() - started,
        "cpu_s": time.process_time() - before,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "devices": found.devices,
        "links": found.links,
        "asked_s": ASKED_S,
        "ratios": {axis.axis: axis.ratio for axis in found.axes},
    }


def main() -> None:
    """Entry point of `python -m benchmarks.audit`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__)
    parser.add_argument("--case", action="append", choices=tuple(CASES), help="only this case; may be repeated")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.case or CASES:
        if options.here:
            results[name] = measure(name)
            continue
        command = [sys.executable, "-m", "benchmarks.audit", "--here", "--json", "--case", name]
        results |= json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["cases"]
        if not options.json:
            print(_line(name, results[name]), flush=True)
    if options.json:
        print(json.dumps({"cases": results}))


def _line(name: str, found: dict[str, Any]) -> str:
    if "status" in found:
        return f"{name}: {found['status']}, nothing to audit"
    ratios = " ".join(f"{axis} {ratio:.2f}" for axis, ratio in found["ratios"].items())
    return (
        f"{name}: {found['wall_s']:.1f} s wall, {found['cpu_s']:.1f} s processor (asked {found['asked_s']:g} s), "
        f"{found['peak_bytes'] / 2**20:,.0f} MiB, {found['links']:,} links; routed over model: {ratios}"
    )


if __name__ == "__main__":
    main()
