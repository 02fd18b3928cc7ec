"""Writes the measured figures into docs/explanation/accuracy.md: the table of targets, and the tables at its end.

    python -m benchmarks.page

The words of the page are written by hand; what stands between its markers is replaced by this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy import (
    PUBLISHED,
    Profiles,
    Report,
    document,
    held_out_profiles,
    run,
    shipped_profiles,
    table,
    text,
)
from benchmarks.scores import summary
from mapsearch.calibration.predict import profile_of

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "accuracy.md"
KINDS = ("left out by source", "left out by model", "in the fit", "unfitted")


@dataclass(frozen=True)
class Target:
    """One line of the table of targets: what must hold, and where the measured figure stands in the JSON object."""

    name: str
    goal: str
    path: tuple[str, ...]
    percent: bool = True
    signed: bool = False

    def shown(self, found: dict[str, Any]) -> str:
        """The figure as the page writes it."""
        value: Any = found
        for key in self.path:
            value = value[key]
        if value is None:
            return "-"
        return f"{100 * value:{'+' if self.signed else ''}.1f}" if self.percent else f"{value:.2f}"


TARGETS = (
    Target("Megatron family on NVIDIA: median", "6", ("time", "megatron_nvidia", "median")),
    Target("Megatron family on NVIDIA: 90th percentile", "15", ("time", "megatron_nvidia", "p90")),
    Target("All: median", "9", ("time", "all", "median")),
    Target("All: 90th percentile", "25", ("time", "all", "p90")),
    Target("MoE: median", "8", ("time", "moe", "median")),
    Target("Bias, all", "within 3", ("time", "all", "bias"), signed=True),
    Target("Bias, Megatron family on NVIDIA", "within 3", ("time", "megatron_nvidia", "bias"), signed=True),
    Target("Bias, MoE", "within 3", ("time", "moe", "bias"), signed=True),
    Target("SimuMax, 29 of its 43 rows: mean", "5", ("time", "simumax_b200", "mean")),
    Target("SimuMax, its MoE rows: mean", "6", ("simumax_moe", "mean")),
    Target("Korthikanti 22B to 1T: mean", "3.6", ("time", "korthikanti_2205.05198", "mean")),
    Target("Order in studies: median of Kendall's tau", "at least 0.80", ("tau", "median"), percent=False),
    Target("Regret: median", "1", ("regret", "median")),
    Target("Regret: 90th percentile", "5", ("regret", "p90")),
    Target("Peak memory, SimuMax: mean", "1", ("memory", "simumax_b200", "mean")),
    Target("Peak memory, all: median", "5", ("memory", "all", "median")),
)


def figures(report: Report) -> dict[str, Any]:
    """The JSON object, and the group that only the targets ask for."""
    moe = [
        one.time_error
        for one in report.scored
        if one.case.groups.source == "simumax_b200" and one.case.groups.arch == "moe" and one.time_error is not None
    ]
    return {**document(report), "simumax_moe": summary(moe)}


def targets(found: list[dict[str, Any]]) -> str:
    """The table of targets, one column per kind of prediction."""
    lines = [f"| percent unless said | target | {' | '.join(KINDS)} |", f"|---|---:|{'---:|' * len(KINDS)}"]
    lines += [
        f"| {target.name} | {target.goal} | {' | '.join(target.shown(one) for one in found)} |" for target in TARGETS
    ]
    counts = found[0]["time"]
    rows = f"{counts['all']['n']} rows with a time ({counts['megatron_nvidia']['n']} of the Megatron family on NVIDIA, "
    rows += f"{counts['moe']['n']} MoE), {found[0]['memory']['all']['n']} with memory; "
    oom = found[0]["oom"]
    return "\n".join([*lines, "", f"{rows}out of memory: {oom['right']} rows called rightly, {oom['wrong']} wrongly."])


def between(page: str, marker: str, new: str) -> str:
    """The page with what stands between two markers replaced. Raises ValueError when a marker is missing."""
    first, last = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
    start, stop = page.index(first) + len(first), page.index(last)
    return f"{page[:start]}\n\n{new}\n\n{page[stop:]}"


def main() -> None:
    """Predict all rows in four ways and rewrite the page."""
    made: list[Callable[[], Profiles]] = [
        lambda: held_out_profiles(PUBLISHED),
        lambda: held_out_profiles(PUBLISHED, "model"),
        lambda: shipped_profiles,
        lambda: profile_of,
    ]
    reports = [run(PUBLISHED, make()) for make in made]
    found = [figures(report) for report in reports]
    page = between(PAGE.read_text(encoding="utf-8"), "targets", targets(found))
    tables = [f"## Left out by source\n\n{text(reports[0], markdown=True)}"]
    tables += [
        f"## {kind[0].upper()}{kind[1:]}\n\n" + "\n".join(table("Step time: error in percent", one["time"], True))
        for kind, one in zip(KINDS[1:], found[1:], strict=True)
    ]
    PAGE.write_text(between(page, "tables", "\n".join(tables).strip()), encoding="utf-8")


if __name__ == "__main__":
    main()
