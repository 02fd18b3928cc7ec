"""How long two pools take: the joint optimum of training mapping, way to serve and division of the devices.

    python -m benchmarks.rollout [--case NAME] [--proof] [--pareto] [--json]

Reading the inputs, the joint search and, with --proof, a solver's proof of the training mapping are counted. `--json`
prints {"cases": {name: {wall_s, cpu_s, status, step_s, binding, searched, divisions, asked_s}}}; `asked_s` is the time
that the case should stay under. With --pareto the front over versions instead:
{wall_s, cpu_s, status, points, searches}.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from mapsearch.pooling.api import rollout
from mapsearch.pooling.front import rollout_front

CASES: dict[str, dict[str, Any]] = {
    "moe-5t on asic, 4,096": {},
    "moe-5t on asic, 16,384": {"devices": 16384},
    "deepseek-v3 on hgx-h100, 1,024": {"model": "deepseek-v3", "topology": "hgx-h100", "devices": 1024},
}
ASKED_S = {"moe-5t on asic, 4,096": 60.0}


def measured(name: str, *, proof: bool) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = rollout(**CASES[name], proof="auto" if proof else "none")
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "status": found.status,
        "step_s": found.steady.step_s if found.steady else None,
        "binding": found.steady.binding if found.steady else None,
        "searched": sum(one.status == "searched" for one in found.divisions),
        "divisions": len(found.divisions),
        "asked_s": ASKED_S.get(name),
    }


def fronted(name: str) -> dict[str, Any]:
    """The same for the front over versions."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = rollout_front(**CASES[name])
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "status": found.status,
        "points": {point.versions: point.steady.step_s if point.steady else None for point in found.points},
        "searches": found.searches,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--proof", action="store_true", help="Prove the training mapping by a solver as well.")
    parser.add_argument("--pareto", action="store_true", help="The front over versions.")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.case] if given.case else list(CASES)
    found = {name: fronted(name) if given.pareto else measured(name, proof=given.proof) for name in names}
    if given.json:
        print(json.dumps({"cases": found}, indent=2))
        return
    for name, one in found.items():
        if given.pareto:
            steps = ", ".join(f"{at}: {step:.1f} s" if step else f"{at}: -" for at, step in one["points"].items())
            print(f"{name}: {one['status']}, {one['wall_s']:.1f} s ({one['cpu_s']:.1f} s CPU), "
                  f"{one['searches']} searches; step by versions {steps}")  # fmt: skip
            continue
        print(f"{name}: {one['status']}, {one['wall_s']:.1f} s ({one['cpu_s']:.1f} s CPU), step {one['step_s']:.1f} s, "
              f"binds {one['binding']}, {one['searched']} of {one['divisions']} divisions searched")  # fmt: skip


if __name__ == "__main__":
    main()
