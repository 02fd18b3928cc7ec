"""How large a space is, how much of it is evaluated, and how long optimum and proof take.

Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from typing import Any

from benchmarks.cases import CASES, LARGE, facts_of
from mapsearch.solver.problem import problem_of
from mapsearch.solver.proof import prove
from mapsearch.solver.search import Search, search

WATCHED_S = (1, 2, 5)
"""Seconds of the search after which the best mapping so far is compared with the optimum."""


def gap_after(found: Search, after_s: float) -> float | None:
    """How much slower than the optimum the best mapping so far was, as a share of the optimum; None without any."""
    so_far = [step_time_s for seconds, step_time_s in found.trace if seconds <= after_s]
    return so_far[-1] / found.top[0].step_time_s - 1.0 if so_far else None


def measure(name: str, top: int, backend: str) -> dict[str, Any]:
    """Solve one case and prove it; figures in SI units."""
    started = time.monotonic()
    problem = problem_of(facts_of(CASES[name]))
    found = search(problem, top)
    proof = prove(problem, found, backend)
    return {
        "title": CASES[name].title,
        "mappings": found.mappings,
        "cells": found.cells,
        "evaluated": found.pairs,
        "optimum_s": found.seconds,
        "best_found_s": found.seconds_to_best,
        "proof_s": proof.seconds,
        "wall_s": time.monotonic() - started,
        "backend": proof.backend,
        "kind": proof.kind,
        "proven": proof.status == "proven",
        "step_time_s": [candidate.step_time_s for candidate in found.top],
        "first_mapping_s": found.trace[0][0] if found.trace else None,
        "gap_after_s": {str(after): gap_after(found, after) for after in WATCHED_S},
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as aligned text."""
    head = ("case", "mappings", "cells", "pairs evaluated", "optimum", "proof", "by", "peak RSS", "best step")
    rows = [
        (
            result["title"],
            f"{result['mappings']:.3g}",
            f"{result['cells']:,}",
            f"{result['evaluated']:,}",
            f"{result['optimum_s']:.2f} s",
            f"{result['proof_s']:.2f} s" if result["proven"] else "not proven",
            result["backend"],
            f"{result['peak_rss_bytes'] / 2**20:,.0f} MiB",
            f"{result['step_time_s'][0]:.4g} s" if result["step_time_s"] else "none",
        )
        for result in results.values()
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    """Entry point of `python -m benchmarks.solve`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solve", description=__doc__)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only this case; may be repeated")
    parser.add_argument("--top", type=int, default=10, help="mappings to rank (default: 10)")
    parser.add_argument("--backend", default="auto", choices=("auto", "exhaustive", "cpsat", "milp"))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    names = options.case or [name for name in CASES if name not in LARGE]
    context = multiprocessing.get_context("spawn")
    results = {}
    for name in names:
        with context.Pool(1) as pool:
            results[name] = pool.apply(measure, (name, options.top, options.backend))
    print(json.dumps({"cases": results}) if options.json else table(results))


if __name__ == "__main__":
    main()
