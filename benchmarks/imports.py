"""How long fabrics of many nodes take to read, format by format.

    python -m benchmarks.imports [--nodes N] [--json]

Each text names N nodes under leaf switches of 32 (ibnetdiscover: hosts of eight adapters, N in all). Seconds are
processor time of one reading in this process; the first import of modules is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from mapsearch.topologies.importers import importer_of, read_text
from mapsearch.topologies.importers.base import Between

LEAF = 32
SPINE = 64
"""Leaf switches under one of the next tier."""
ADAPTERS = 8


def slurm_conf(nodes: int) -> str:
    """A tree of three tiers with ranges."""
    leaves = nodes // LEAF
    lines = [f"SwitchName=leaf{i} Nodes=n[{i * LEAF}-{i * LEAF + LEAF - 1}]" for i in range(leaves)]
    spines = range(0, leaves, SPINE)
    lines += [f"SwitchName=spine{i} Switches=leaf[{i}-{min(i + SPINE, leaves) - 1}]" for i in spines]
    return "\n".join([*lines, f"SwitchName=top Switches={','.join(f'spine{i}' for i in spines)}", ""])


def slurm_conf_names(nodes: int) -> str:
    """Two tiers, every node by its name."""
    leaves = nodes // LEAF
    lines = [f"SwitchName=leaf{i} Nodes={','.join(f'n{i * LEAF + k}' for k in range(LEAF))}" for i in range(leaves)]
    return "\n".join([*lines, f"SwitchName=top Switches=leaf[0-{leaves - 1}]", ""])


def slurm_yaml(nodes: int) -> str:
    """A tree, and blocks of 16 over the same nodes."""
    leaves, blocks = nodes // LEAF, nodes // 16
    switches = [f"{{switch: leaf{i}, nodes: 'n[{i * LEAF}-{i * LEAF + LEAF - 1}]'}}" for i in range(leaves)]
    switches.append(f"{{switch: top, children: 'leaf[0-{leaves - 1}]'}}")
    parts = [f"{{block: b{i}, nodes: 'n[{i * 16}-{i * 16 + 15}]'}}" for i in range(blocks)]
    tree = "".join(f"    - {switch}\n" for switch in switches)
    block = "".join(f"    - {part}\n" for part in parts)
    return (
        f"- topology: fabric\n  cluster_default: true\n  tree:\n    switches:\n{tree}"
        f"- topology: racks\n  block:\n    block_sizes: [16]\n    blocks:\n{block}"
    )


def ibnetdiscover(nodes: int) -> str:
    """Adapters on leaf switches, every cable from both ends."""
    lines = []
    for leaf in range(nodes // LEAF):
        lines.append(f'Switch\t65 "S-{leaf:016x}"\t\t# "MF0;leaf{leaf}:QM/U1" enhanced port 0 lid 3 lmc 0')
        for port in range(LEAF):
            here = leaf * LEAF + port
            name = f"node{here // ADAPTERS} mlx5_{here % ADAPTERS}"
            lines.append(f'[{port + 1}]\t"H-{2**40 + here:016x}"[1](a) \t\t# "{name}" lid 12 4xNDR')
    for here in range(nodes):
        lines.append(f'Ca\t1 "H-{2**40 + here:016x}"\t\t# "node{here // ADAPTERS} mlx5_{here % ADAPTERS}"')
        end = f'"S-{here // LEAF:016x}"[{here % LEAF + 1}]'
        lines.append(f'[1](a) \t{end}\t\t# lid 9 lmc 0 "MF0;leaf{here // LEAF}:QM/U1" lid 3 4xNDR')
    return "\n".join(lines)


def kubernetes(nodes: int) -> str:
    """The output of `kubectl get nodes -o json`, labels only."""
    items = [
        {
            "kind": "Node",
            "metadata": {
                "name": f"n{i}",
                "labels": {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": f"z{i // LEAF}"},
            },
            "status": {"allocatable": {"nvidia.com/gpu": "8"}},
        }
        for i in range(nodes)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


TEXTS: dict[str, Callable[[int], str]] = {
    "topology.conf, ranges": slurm_conf,
    "topology.conf, names": slurm_conf_names,
    "topology.yaml, tree and blocks": slurm_yaml,
    "ibnetdiscover": ibnetdiscover,
    "kubectl get nodes": kubernetes,
}


def measured(nodes: int) -> dict[str, dict[str, float]]:
    """Seconds, bytes and nodes of every text."""
    results = {}
    for name, make in TEXTS.items():
        text = make(nodes)
        importer_of(text, name)
        started = time.process_time()
        fabric = read_text(text, file=name)
        seconds = time.process_time() - started
        found = len(fabric.nodes) if isinstance(fabric, Between) else 0
        results[name] = {"seconds": seconds, "bytes": len(text), "nodes": found}
    return results


def main() -> None:
    """Entry point of `python -m benchmarks.imports`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imports", description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=16384, help="nodes, a multiple of 32 (default: 16384)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    results = measured(max(options.nodes // LEAF, 1) * LEAF)
    if options.json:
        print(json.dumps({"imports": results}, indent=2))
        return
    print(f"{'format':32} {'nodes':>8} {'kB':>8} {'s':>6}")
    for name, found in results.items():
        print(f"{name:32} {found['nodes']:8,} {found['bytes'] / 1e3:8,.0f} {found['seconds']:6.2f}")


if __name__ == "__main__":
    main()
