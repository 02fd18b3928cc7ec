"""The search at its limits: proven top 10 of large problems, an exact front, and how fast pairs are evaluated.

`--json` prints {"cases": {name: {proven, backend, mappings, evaluated, optimum_s, wall_s, peak_rss_bytes}},
"evaluator": {mappings_per_s}}; cases other than fronts also have first_mapping_s, and gap_after_s: how much slower than
the optimum the best mapping was after 1, 2 and 5 seconds of the search. Each case runs in a process of its own, so that
its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from typing import Any

import numpy as np

from benchmarks import pareto, solve
from benchmarks.cases import CASES, facts_of
from mapsearch.solver.backends.base import every_table
from mapsearch.solver.cells import block_of, evaluate_block
from mapsearch.solver.problem import problem_of

NAMES = ("dsv3-1024", "moe5t-4096", "moe5t-16384", "moe5t-131072", "gpt3-4096", "pareto-moe5t")
FIELDS = ("proven", "backend", "mappings", "evaluated", "optimum_s", "wall_s", "peak_rss_bytes")
ANYTIME = ("first_mapping_s", "gap_after_s")
"""How early the search has something to show; fronts have no such figures."""
EVALUATED = "gpt3-4096"
"""The dense space whose pairs are all evaluated."""
LEAST_S = 10.0
"""Evaluation is stopped after so long: the rate is known by then."""
PAIRS = 20_000
"""Pairs evaluated at a time: enough to spread the cost of a call, few enough for the cache."""


def case(name: str) -> dict[str, Any]:
    """One case's figures."""
    found = pareto.measure(name) if name in pareto.FRONTS else solve.measure(name, 10, "auto")
    return {field: found[field] for field in (*FIELDS, *(field for field in ANYTIME if field in found))}


def early(found: dict[str, Any]) -> str:
    """How early there was a mapping, in words."""
    if found.get("first_mapping_s") is None:
        return ""
    gaps = (f"{after} s {'none' if gap is None else f'+{gap:.1%}'}" for after, gap in found["gap_after_s"].items())
    return f", first mapping after {found['first_mapping_s']:.2f} s; over the optimum after {', '.join(gaps)}"


def evaluator() -> dict[str, float]:
    """Pairs per second and core through the exact evaluation, nothing bounded or pruned."""
    problem = problem_of(facts_of(CASES[EVALUATED]))
    pairs, spent = 0, 0.0
    for tables in every_table(problem):
        allowed = np.asarray(tables.allowed)[..., 0]
        every = np.arange(len(tables.expert.options))
        for position, dp in enumerate(tables.dp):
            own = np.flatnonzero(tables.attention.options.sizes[2] == dp)
            cells = [(position, *map(int, place)) for place in np.argwhere(allowed[position])]
            size = max(1, PAIRS // max(1, len(own) * len(every)))
            for start in range(0, len(cells) if len(own) else 0, size):
                started = time.process_time()
                result = evaluate_block(problem, block_of(tables, cells[start : start + size], own, every))
                spent += time.process_time() - started
                pairs += result.feasible.size
        if spent > LEAST_S:
            break
    return {"mappings_per_s": pairs / spent if spent else 0.0}


def main() -> None:
    """Entry point of `python -m benchmarks.search`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--case", action="append", choices=NAMES, help="only this case; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results: dict[str, dict[str, Any]] = {}
    for name in options.case or NAMES:
        with context.Pool(1) as pool:
            results[name] = pool.apply(case, (name,))
    with context.Pool(1) as pool:
        rate = pool.apply(evaluator)
    if options.json:
        print(json.dumps({"cases": results, "evaluator": rate}))
        return
    for name, found in results.items():
        print(
            f"{name}: {'proven' if found['proven'] else 'not proven'} by {found['backend']}, {found['mappings']:.3g} "
            f"mappings, {found['evaluated']:,} evaluated, optimum {found['optimum_s']:.1f} s, all "
            f"{found['wall_s']:.1f} s, {found['peak_rss_bytes'] / 2**20:,.0f} MiB" + early(found)
        )
    print(f"evaluator: {rate['mappings_per_s']:,.0f} mappings/s")


if __name__ == "__main__":
    main()
