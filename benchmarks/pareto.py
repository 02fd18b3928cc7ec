"""How long an exact front takes: points, evaluated pairs, seconds, peak memory.

Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from typing import Any

from benchmarks.cases import CASES, facts_of
from mapsearch.solver.front import front
from mapsearch.solver.front_proof import by_exhaustion, certify
from mapsearch.solver.objectives import objectives_of
from mapsearch.solver.problem import problem_of

FRONTS = {
    "pareto-moe5t": ("moe5t-4096", ("step_time", "peak_memory", "devices")),
    "pareto-moe5t-memory": ("moe5t-4096", ("step_time", "peak_memory")),
    "pareto-dsv3": ("dsv3-1024", ("step_time", "peak_memory")),
}
"""Name: the problem of `benchmarks.cases`, and the objectives."""


def measure(name: str, certified: bool = False) -> dict[str, Any]:
    """One front; figures in SI units. `proven`: it went through the whole space, and no second way disagrees."""
    started = time.monotonic()
    case, names = FRONTS[name]
    problem = problem_of(facts_of(CASES[case]))
    objectives = objectives_of(names, problem.facts.fabric.device)
    found = front(problem, objectives)
    proofs = [by_exhaustion(problem, objectives, found)]
    proofs += [certify(problem, objectives, found)] if certified else []
    given = [proof for proof in proofs if proof is not None]
    return {
        "title": f"{CASES[case].title}: {', '.join(names)}",
        "proven": found.complete and all(proof.status == "proven" for proof in given),
        "backend": given[-1].backend if given else "search",
        "mappings": found.mappings,
        "cells": found.cells,
        "evaluated": found.pairs,
        "points": len(found.points),
        "optimum_s": found.seconds,
        "certify_s": given[-1].seconds if certified and given else None,
        "detail": given[-1].detail if given else "",
        "wall_s": time.monotonic() - started,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def alone(name: str, certified: bool = False) -> dict[str, Any]:
    """As `measure`, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (name, certified))


def main() -> None:
    """Entry point of `python -m benchmarks.pareto`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pareto", description=__doc__)
    parser.add_argument("--case", action="append", choices=sorted(FRONTS), help="only this case; may be repeated")
    parser.add_argument("--certify", action="store_true", help="have CP-SAT refute the gaps as well")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    results = {name: alone(name, options.certify) for name in options.case or list(FRONTS)}
    if options.json:
        print(json.dumps({"cases": results}))
        return
    for result in results.values():
        print(
            f"{result['title']}: {result['points']} points of {result['mappings']:.3g} mappings, "
            f"{result['evaluated']:,} pairs evaluated, {result['optimum_s']:.1f} s, "
            f"{result['peak_rss_bytes'] / 2**20:,.0f} MiB, {'proven' if result['proven'] else 'not proven'} "
            f"({result['backend']})"
        )


if __name__ == "__main__":
    main()
