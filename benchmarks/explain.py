"""How long explanations take: why nothing fits, what binds, and why not another mapping.

    python -m benchmarks.explain [--case NAME] [--json]

Each question is a whole command in a process of its own, started and read from nothing; where it takes the ranking from
an answer, that one is solved before and not timed. `--json` prints
{"cases": {name: {wall_s, cpu_s, exit_code, asked_s}}}; `asked_s` is the time it should stay under.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MAPSEARCH = (sys.executable, "-m", "mapsearch")
ANSWER = "answer.json"
"""Stands for the answer of `mapsearch solve --topology asic`."""
CASES: dict[str, tuple[tuple[str, ...], float | None]] = {
    "nothing fits (asic-64)": (("--topology", "asic-64"), 10.0),
    "what binds (asic)": (("--topology", "asic"), None),
    "what binds, with bandwidths (asic)": (("--topology", "asic", "--stability"), None),
    "why not tp=8,ep=64 (asic)": (("--topology", "asic", "--why-not", "tp=8,ep=64"), 5.0),
    "why not tp=2,pp=1 (asic)": (("--topology", "asic", "--why-not", "tp=2,pp=1"), 5.0),
    "why not tp=16 (asic)": (("--topology", "asic", "--why-not", "tp=16"), 5.0),
    "why not tp=8,ep=64 (answer of asic)": ((ANSWER, "--why-not", "tp=8,ep=64"), 5.0),
    "why not tp=2,pp=1 (answer of asic)": ((ANSWER, "--why-not", "tp=2,pp=1"), 5.0),
    "why not tp=16 (answer of asic)": ((ANSWER, "--why-not", "tp=16"), 5.0),
}
"""Question: its options, and the seconds that it should stay under."""


def measure(name: str) -> dict[str, Any]:
    """Wall time and processor time of one command."""
    options, asked_s = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        answer = str(Path(folder) / ANSWER)
        if ANSWER in options:
            subprocess.run([*MAPSEARCH, "solve", "--quiet", "--topology", "asic", "-o", answer], check=True)
        return _measured([answer if option == ANSWER else option for option in options], asked_s)


def _measured(options: list[str], asked_s: float | None) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    command = [*MAPSEARCH, "explain", "--quiet", *options]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    wall_s = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": wall_s, "cpu_s": cpu_s, "exit_code": code, "asked_s": asked_s}


def main() -> None:
    """Entry point of `python -m benchmarks.explain`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain", description=__doc__)
    parser.add_argument("--case", action="append", choices=tuple(CASES), help="only this case; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    results = {name: measure(name) for name in options.case or CASES}
    if options.json:
        print(json.dumps({"cases": results}))
        return
    for name, found in results.items():
        asked = f", asked {found['asked_s']:g} s" if found["asked_s"] else ""
        print(
            f"{name}: {found['wall_s']:.1f} s wall, {found['cpu_s']:.1f} s processor{asked}, exit {found['exit_code']}"
        )


if __name__ == "__main__":
    main()
