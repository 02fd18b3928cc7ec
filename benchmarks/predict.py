"""How long one prediction takes through the Python API: one mapping, all quantities.

    python -m benchmarks.predict [--rows DIR] [--count N] [--repeat N] [--json]

`all quantities` is step time with its breakdown, communication and exposure by class, memory by part and stage, and the
margin of every relation with its sentence. The inventories are read; every row has sizes, model, run and cluster of its
own. `new sizes` is one problem with other sizes each time. A figure is the fastest of `--repeat` runs of one
prediction, so that what else the machine does counts little; caches are as a first run over the rows leaves them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import PUBLISHED, shipped_profiles
from benchmarks.cases import CASES, facts_of
from mapsearch import check
from mapsearch.answer import RankedMapping
from mapsearch.calibration.predict import predict_memory, predict_step_s
from mapsearch.calibration.rows import Case, cases_of, read_rows
from mapsearch.costs.estimate import estimate, point_of
from mapsearch.costs.views import Facts
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.profile import Profile
from mapsearch.relation import Relation
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import mapping_of, ranked_mapping
from mapsearch.solver.search import search

DEFAULT = "moe5t-4096"
SIZES = 50
"""Mappings of the default problem that are predicted."""

Row = tuple[Case, Profile, Mapping, Facts, tuple[Relation, ...]]
Runs = list[Callable[[], Any]]


def rows_of(folder: Path, count: int) -> list[Row]:
    """Rows evenly spread over the folder's, each with its first mapping."""
    rows, hardware = read_rows(folder)
    cases, _ = cases_of(rows, hardware or read_rows(PUBLISHED)[1])
    pairs = [(case, profile) for case in cases if (profile := shipped_profiles(case)) is not None]
    chosen = np.unique(np.linspace(0, len(pairs) - 1, min(count, len(pairs))).round().astype(int))
    found = []
    for case, profile in (pairs[index] for index in chosen):
        facts = Facts(case.model, case.run, case.fabric, profile)
        found.append((case, profile, case.mappings[0], facts, problem_of(facts).relations))
    return found


def whole(mapping: Mapping, facts: Facts, relations: tuple[Relation, ...]) -> RankedMapping:
    """All quantities of one mapping."""
    return ranked_mapping(1, point_of(mapping, facts), relations)


def runs_of(rows: list[Row]) -> dict[str, Runs]:
    """What is timed, by name."""
    problem = problem_of(facts_of(CASES[DEFAULT]))
    facts, relations = problem.facts, problem.relations
    mappings = [mapping_of(candidate) for candidate in search(problem, SIZES).top]

    def checked(mapping: Mapping) -> Any:
        return check(mapping, model=facts.model, run=facts.run, topology=facts.fabric, profile=facts.profile)

    new = "moe-5t on asic, new sizes"
    return {
        "published rows: step time": [partial(predict_step_s, case, mapping, p) for case, p, mapping, _, _ in rows],
        "published rows: memory": [partial(predict_memory, case, mapping, p) for case, p, mapping, _, _ in rows],
        "published rows: estimate": [partial(estimate, mapping, given) for _, _, mapping, given, _ in rows],
        "published rows: all quantities": [partial(whole, mapping, given, each) for _, _, mapping, given, each in rows],
        f"{new}: estimate": [partial(estimate, mapping, facts) for mapping in mappings],
        f"{new}: all quantities": [partial(whole, mapping, facts, relations) for mapping in mappings],
        f"{new}: mapsearch.check": [partial(checked, mapping) for mapping in mappings],
    }


def timed(runs: Runs, repeat: int) -> dict[str, float]:
    """Seconds of one prediction: median and 90th percentile over the runs."""
    fastest = [np.inf] * len(runs)
    for _ in range(1 + repeat):
        for index, predict in enumerate(runs):
            started = time.perf_counter()
            predict()
            fastest[index] = min(fastest[index], time.perf_counter() - started)
    return {"count": len(runs), "median_s": float(np.median(fastest)), "p90_s": float(np.quantile(fastest, 0.9))}


def main() -> None:
    """Entry point of `python -m benchmarks.predict`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predict", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=Path, default=PUBLISHED, help="folder of rows in the schema of SCHEMA.md")
    parser.add_argument("--count", type=int, default=200, help="rows to predict (default: 200)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each prediction after the first (default: 5)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    runs = runs_of(rows_of(options.rows, options.count))
    results = {name: timed(each, options.repeat) for name, each in runs.items()}
    if options.json:
        print(json.dumps({"predictions": results}, indent=2))
        return
    width = max(map(len, results))
    print(f"{'one prediction':{width}}  mappings  median ms  p90 ms")
    for name, found in results.items():
        print(f"{name:{width}}  {found['count']:8d}  {1e3 * found['median_s']:9.2f}  {1e3 * found['p90_s']:6.2f}")


if __name__ == "__main__":
    main()
