"""A sweep of 200 items on two Dask workers, one of them killed midway: how long, and whether each item is there once.

Scheduler and workers are a real `LocalCluster`; the killed worker gets SIGKILL, as from a machine without memory.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import distributed

from mapsearch.sweeps.run import SweepProgress, plan_of, sweep

SWEEP: dict[str, Any] = {
    "name": "benchmark",
    "base": {
        "topology": "hgx-h100",
        "at_most.cp": 8,
        "run.micro_batch": [1],
        "run.vpp": [1],
        "run.schedule": ["1f1b"],
        "run.recompute": ["full"],
        "run.zero": [1, 3],
        "run.offload": ["none"],
        "run.cp_kind": ["ring"],
        "run.dispatcher": ["all-to-all"],
    },
    "grid": {
        "model": ["llama-3.1-8b", "mixtral-8x7b"],
        "devices": [8, 16, 32, 64],
        "run.sequence_length": [2048, 4096, 8192, 16384, 32768],
        "run.global_batch": [64, 128, 256, 512, 1024],
    },
}
"""2 x 4 x 5 x 5 searches of about a second each; some are infeasible."""


def measure(items: int, workers: int) -> dict[str, Any]:
    """Run the sweep, kill one worker when half of it is done, and count what is in the file."""
    plan = plan_of(SWEEP)
    plan = replace(plan, items=plan.items[:items])
    killed: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        )
        try:
            pids = [worker.process.pid for worker in cluster.workers.values()]

            def watch(report: SweepProgress) -> None:
                if report.done >= len(plan.items) // 2 and not killed:
                    killed.append(pids[0])
                    os.kill(pids[0], signal.SIGKILL)

            started = time.monotonic()
            result = sweep(plan, folder, scheduler=cluster.scheduler_address, progress=watch)
            wall_s = time.monotonic() - started
        finally:
            cluster.close()
        lines = (Path(folder) / "results.jsonl").read_text(encoding="utf-8").splitlines()
    counts = Counter(json.loads(line)["key"] for line in lines)
    return {
        "items": len(plan.items),
        "workers": workers,
        "killed": len(killed),
        "results": len(lines),
        "distinct": len(counts),
        "twice": sum(count > 1 for count in counts.values()),
        "counts": result.counts(),
        "wall_s": wall_s,
        "search_s": sum(record.timings_s.get("wall", 0.0) for record in result.records),
    }


def main() -> None:
    """Entry point of `python -m benchmarks.sweep`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--items", type=int, default=200, help="how many items (default and most: 200)")
    parser.add_argument("--workers", type=int, default=2, help="Dask workers (default: 2)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    options = parser.parse_args()
    found = measure(options.items, options.workers)
    if options.json:
        print(json.dumps(found))
        return
    told = ", ".join(f"{count} {status}" for status, count in found["counts"].items())
    print(
        f"{found['items']} items on {found['workers']} Dask workers, {found['killed']} killed midway: "
        f"{found['results']} results ({told}), {found['twice']} of them twice, in {found['wall_s']:.1f} s "
        f"({found['search_s']:.1f} s of searching)"
    )


if __name__ == "__main__":
    main()
