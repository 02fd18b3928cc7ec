"""How launch files come through: 28 transcribed ones with their verdicts, and what exports of solved mappings keep.

    python -m benchmarks.launch [--json]

The files of `benchmarks/launch_scripts` hold values of flags transcribed from public repositories (each names its own,
with the licence), in the words of `mapsearch import --from launch`. The exports are those of the 20 fastest mappings
of a search: how many say the same mapping when they are read again, which axes the others cannot say, how many the
framework's rules refuse, and the CPU time of one export.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mapsearch.api import solve
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.run import Run
from mapsearch.judging.judge import judge
from mapsearch.launching.api import KINDS, export, read_launch
from mapsearch.launching.cases import case_of

SCRIPTS = Path(__file__).parent / "launch_scripts"


def searches() -> dict[str, dict[str, Any]]:
    """The searches whose mappings are exported."""
    run = load_inventory(Run, "long-context-128k")
    interleaved: Any = run.replaced(
        framework="megatron", global_batch=1024, constraints={"fix": {"schedule": "interleaved"}}
    )
    return {
        "moe-5t, 128K, 4,096 ASICs": {"model": "moe-5t", "run": run, "topology": "asic"},
        "moe-5t, 128K, 16,384 ASICs, interleaved": {
            "model": "moe-5t",
            "run": interleaved,
            "topology": "asic",
            "devices": 16384,
        },
    }


def verdicts() -> list[dict[str, str]]:
    """A row per transcribed file."""
    rows = []
    for path in sorted(SCRIPTS.glob("*.yaml")):
        found = judge(case_of(read_launch(str(path)), file=path.name), name=path.stem)
        rows.append({"file": path.stem, "verdict": found.verdict, "relation": found.relation, "because": found.because})
    return rows


def exports() -> list[dict[str, Any]]:
    """A row per search and format."""
    rows = []
    for name, inputs in searches().items():
        mappings = solve(**inputs, top=20).mappings
        for to in KINDS:
            start = time.process_time()
            made = [export(mapping, to, **inputs) for mapping in mappings]
            seconds = (time.process_time() - start) / len(made)
            lost = Counter(one.what for found in made for one in found.unexpressed)
            rows.append(
                {
                    "search": name,
                    "to": to,
                    "mappings": len(made),
                    "same": sum(found.same for found in made),
                    "refused": sum(bool(found.refused) for found in made),
                    "unexpressed": dict(sorted(lost.items())),
                    "cpu_s": round(seconds, 3),
                }
            )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables, or both as JSON."""
    parser = argparse.ArgumentParser(description="Launch files: verdicts, and what exports keep.")
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args(arguments).json
    files, made = verdicts(), exports()
    if as_json:
        print(json.dumps({"launch_scripts": files, "exports": made}, indent=2))
        return
    for row in files:
        print(f"{row['file']:40} {row['verdict']:14} {row['relation']}")
    counts = Counter(row["verdict"] for row in files)
    print(f"{len(files)} files: " + ", ".join(f"{count} {word}" for word, count in counts.most_common()))
    for line in made:
        lost = ", ".join(f"{what} {count}" for what, count in line["unexpressed"].items()) or "nothing"
        print(
            f"{line['search']}, {line['to']}: {line['same']} of {line['mappings']} the same, "
            f"{line['refused']} refused, {line['cpu_s']} s each; not expressed: {lost}"
        )


if __name__ == "__main__":
    main()
