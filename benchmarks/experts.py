"""How long placing experts takes, and how near the bound it comes.

    python -m benchmarks.experts [--json]

80 layers of 384 experts, 131,072 tokens: worst rank over the mean by the greedy rule and as placed, layers proven, and
the largest gap; CPU seconds of one run each, bound and all solvers included. `top 1` lets one expert take any share,
`top 16` at most every token.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import numpy as np

from mapsearch.experts.api import Wanted, experts
from mapsearch.experts.histogram import Histogram, histogram_of
from mapsearch.experts.synthetic import dirichlet, zipf

SHAPE: dict[str, Any] = {"layers": 80, "experts": 384, "tokens": 131072, "seed": 0}
ZIPF = 1.2


def by_source(histogram: Histogram, ranks: int) -> Histogram:
    """The same loads from as many sources as there are ranks, each with tastes of its own."""
    random = np.random.default_rng(1)
    loads = histogram.loads[0]
    shares = random.dirichlet(np.full(ranks, 2.0), size=loads.shape)
    tokens = np.floor(loads[:, None, :] * np.moveaxis(shares, -1, 1))
    return histogram_of(tokens[None] + 1.0, f"{histogram.name}, sources apart")


def cases() -> list[tuple[Histogram, Wanted]]:
    """Loads, and what they are placed on."""
    found = []
    for top_k in (1, 16):
        skewed = zipf(ZIPF, top_k=top_k, **SHAPE)
        found += [(skewed, Wanted(64)), (skewed, Wanted(64, copies=64))]
        found += [(skewed, Wanted(64, nodes=8, groups=8)), (skewed, Wanted(64, nodes=8, groups=8, copies=64))]
        found += [(skewed, Wanted(64, nodes=8, groups=groups, copies=64)) for groups in (16, 32)]
    for largest in (1.5, 3.0):
        mild = dirichlet(largest, top_k=16, **SHAPE)
        found += [(mild, Wanted(64)), (mild, Wanted(64, copies=64)), (mild, Wanted(64, nodes=8, groups=8))]
    return [*found, (by_source(dirichlet(3.0, top_k=16, **SHAPE), 64), Wanted(64, nodes=8))]


def timed(histogram: Histogram, wanted: Wanted) -> dict[str, Any]:
    """One case."""
    start, clock = time.process_time(), time.perf_counter()
    found = experts(histogram, wanted)
    row = {
        "loads": histogram.name,
        "ranks": wanted.ranks,
        "nodes": wanted.nodes,
        "groups": wanted.groups,
        "copies": wanted.copies,
        "cpu_s": time.process_time() - start,
        "wall_s": time.perf_counter() - clock,
        "consecutive": found.now.time_skew,
        "lpt": found.greedy.time_skew,
        "placed": found.placed.time_skew,
        "proven": found.proven,
        "largest_gap": found.largest_gap,
        "mean_gap": float(np.mean([layer.gap for layer in found.layers])),
    }
    if found.layers[0].off_node is not None:
        shares = [
            [layer.off_node or 0.0, layer.placed_off_node or 0.0, layer.off_node_bound or 0.0] for layer in found.layers
        ]
        row |= dict(
            zip(("off_node", "placed_off_node", "off_node_bound"), np.mean(shares, axis=0).tolist(), strict=True)
        )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    wanted = parser.parse_args()
    rows = [timed(*case) for case in cases()]
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if wanted.json:
        print(json.dumps({"cases": rows, "peak_mib": peak_mib}, indent=2))
        return
    for row in rows:
        shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}
        print("  ".join(f"{name} {value}" for name, value in shown.items()))
    print(f"peak {peak_mib:.0f} MiB")


if __name__ == "__main__":
    main()
