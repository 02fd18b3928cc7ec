"""A fit to measured runs, published or a user's own, as data and as a table.

Contents: rows_data, rows_lines, steps_data, steps_lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.text import Text

from mapsearch.calibration.allocator import Fragmentation
from mapsearch.calibration.fit import Fit, Observation
from mapsearch.calibration.parameters import NAMES
from mapsearch.calibration.rows import Refused
from mapsearch.calibration.steps import StepsFit
from mapsearch.quantity import Floats
from mapsearch.reports import human
from mapsearch.reports.layout import Column, flowed, grid, section

STEPS_SCHEMA = "mapsearch.calibration-steps/1"
MOVED = 0.005
"""A factor nearer to 1 than this is not listed as moved."""


def rows_data(
    rows: Sequence[Observation],
    fitted: Fit,
    residuals: Floats,
    left_out: Floats,
    refused: Sequence[Refused],
    memory: Fragmentation,
) -> dict[str, Any]:
    """Errors of a fit to measured runs, in the fit and left out, over all and per source, as plain data."""
    sources = [row.case.groups.source for row in rows]

    def figures(logs: Floats, inside: list[int]) -> dict[str, float]:
        errors = np.expm1(logs[inside])
        return {
            "median": float(np.median(np.abs(errors))),
            "p90": float(np.quantile(np.abs(errors), 0.9)),
            "bias": float(np.median(errors)),
        }

    groups = {"all": list(range(len(rows)))}
    groups |= {name: [i for i, source in enumerate(sources) if source == name] for name in sorted(set(sources))}
    return {
        "rows": len(rows),
        "refused": len(refused),
        "groups": {
            name: {"n": len(members), "fitted": figures(residuals, members), "left_out": figures(left_out, members)}
            for name, members in groups.items()
        },
        "factors": {name: float(np.exp(value)) for name, value in zip(NAMES, fitted.shared, strict=True)},
        "memory": {"rows": memory.rows, "fragmentation": {name: memory.share(name) for name in sorted(memory.own)}},
    }


def rows_lines(data: dict[str, Any], *, width: int) -> list[Text]:
    """The errors of a fit to measured runs as text."""
    lines = [f"{data['rows']} runs fitted, {data['refused']} rows not represented", ""]
    lines.append(f"{'source':<40}{'n':>5}{'in the fit: median, p90':>26}{'left out: median, p90, bias':>32}")
    for name, group in data["groups"].items():
        inside, outside = group["fitted"], group["left_out"]
        lines.append(
            f"{name:<40}{group['n']:>5}{inside['median']:>17.1%}{inside['p90']:>9.1%}"
            f"{outside['median']:>14.1%}{outside['p90']:>9.1%}{outside['bias']:>9.1%}"
        )
    lines += ["", "Factors on the built-in profiles that all rows share:"]
    lines += [f"  {name:<14}{value:8.3f}" for name, value in data["factors"].items()]
    shares = data["memory"]["fragmentation"]
    if shares:
        lines += ["", f"Reserved over allocated memory, less 1 ({data['memory']['rows']} rows that print it):"]
        lines += [f"  {name:<20}{value:8.3f}" for name, value in shares.items()]
    return [Text(line[:width] if width else line) for line in lines]


def steps_data(found: StepsFit) -> dict[str, Any]:
    """Measured and predicted step times before the fit, in it, and left out of it, as plain data."""

    def predicted(logs: Floats | None, place: int) -> float | None:
        return None if logs is None else float(found.steps[place].measured_s * np.exp(logs[place]))

    return {
        "schema": STEPS_SCHEMA,
        "file": found.file,
        "from": found.steps[0].profile.name,
        "steps": [
            {
                "name": step.name,
                "measured_s": step.measured_s,
                "before_s": predicted(found.before, place),
                "fitted_s": predicted(found.inside, place),
                "left_out_s": predicted(found.left_out, place),
            }
            for place, step in enumerate(found.steps)
        ],
        "factors": found.factors,
    }


def steps_lines(found: StepsFit, *, width: int) -> list[Text]:
    """The same as text."""
    data = steps_data(found)["steps"]

    def errors(key: str) -> list[str]:
        return ["-" if one[key] is None else f"{one[key] / one['measured_s'] - 1.0:+.1%}" for one in data]

    lines = grid([
        Column("step", [str(one["name"]) for one in data], left=True),
        Column("measured", [human.seconds(one["measured_s"]) for one in data]),
        Column("before", errors("before_s")),
        Column("in the fit", errors("fitted_s")),
        Column("left out", errors("left_out_s")),
    ])  # fmt: skip
    moved = {name: factor for name, factor in found.factors.items() if abs(factor - 1.0) >= MOVED}
    words = [f"{name} x {factor:.3g}" for name, factor in sorted(moved.items(), key=lambda one: -abs(np.log(one[1])))]
    text = ", ".join(words) or "none: the profile fits as it is"
    about = f"Factors on {found.steps[0].profile.name}"
    note = "Left out is what to expect of a step that is not in the file; errors are predicted over measured, less 1."
    return [*lines, *section(about, flowed(text, width=width, indent=2), width=width), *flowed(note, width=width)]
