"""How well the cost model predicts measured runs: step time and peak memory of every published row.

    python -m benchmarks.accuracy [--rows DIR] [--held-out [source|model]] [--unfitted] [--profile FILE] [--json]

Errors are predicted / measured - 1; `bias` is their median, the other figures are of their absolute values. Rows of
quality C are never counted in a group but `quality C`. The shipped fit predicts; with `--held-out` every source, or
with `--held-out model` every model, is predicted by a fit that saw no row of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scores import Scored, groups_of, memory_summary, naive_summary, ordering, summary
from mapsearch.calibration.allocator import fit_fragmentation, held, with_fragmentation
from mapsearch.calibration.fit import BLOCKS, Fit, Observation, fit, folds, observations
from mapsearch.calibration.generations import epoch_of, release_of
from mapsearch.calibration.predict import (
    candidates_that_fit,
    limit_bytes,
    predict,
    predict_memory,
    profile_of,
)
from mapsearch.calibration.rows import Case, Refused, cases_of, read_rows
from mapsearch.calibration.shipped import profile_named, shipped
from mapsearch.costs.estimate import estimate
from mapsearch.costs.flops import training_flops
from mapsearch.costs.views import Facts
from mapsearch.inventories.profile import Profile
from mapsearch.quantity import Floats

PUBLISHED = Path(__file__).parent / "published"
WORST = 20
PROCESSES = 2
ROUNDS = 8
"""Rounds of the fit, as for the shipped one."""


@dataclass(frozen=True)
class Report:
    """Everything that is printed."""

    scored: list[Scored]
    refused: list[Refused]
    no_profile: list[Case]
    seconds: float


def score(task: tuple[Case, Profile]) -> Scored:
    """Predict one case."""
    case, profile = task
    prediction = predict(case, profile)
    flops = float(training_flops(model=case.model, run=case.run))
    memory_error: float | None = None
    fits: bool | None = None
    if case.measured.memory_bytes or case.measured.oom:
        mappings = candidates_that_fit(case, profile) if not case.measured.oom else case.mappings
        peaks = [predict_memory(case, mapping, profile) for mapping in mappings]
        if case.measured.memory_bytes:
            predicted = float(np.median([peak.like(case.measured) for peak in peaks]))
            memory_error = predicted / case.measured.memory_bytes - 1.0
        fits = min(peak.needed for peak in peaks) <= limit_bytes(case, profile)
    return Scored(case, profile, prediction, flops, memory_error, fits)


Profiles = Callable[[Case], Profile | None]
"""Which profile predicts a case; None when there is none for its device."""


def shipped_profiles(case: Case) -> Profile | None:
    """The shipped fit for the case's device and generation of software."""
    base = profile_of(case)
    return None if base is None else shipped().profile(base, *generation(case))


def generation(case: Case) -> tuple[str, str, str]:
    """Framework family, year and release of the software."""
    return case.groups.family, epoch_of(case), release_of(case)


def source_of(case: Case) -> str:
    """The source of a row."""
    return case.groups.source


def model_of(case: Case) -> str:
    """The model of a row by its shape: sources write one model's name in several ways."""
    moe = case.model.moe
    experts = (moe.experts, moe.top_k) if moe else ()
    return "-".join(str(size) for size in (case.model.layers, case.model.hidden, *experts))


LEFT_OUT: dict[str, Callable[[Case], str]] = {"source": source_of, "model": model_of}
"""What whole groups `--held-out` leaves out."""


@dataclass(frozen=True)
class Fitted:
    """The rows of a folder, and the fit to all that count."""

    cases: list[Case]
    seen: list[Observation]
    full: Fit
    table: Floats


@lru_cache(maxsize=1)
def fitted_rows(folder: Path, processes: int) -> Fitted:
    """The fit to a folder of rows, made once for every kind of group that is left out. Raises InputError."""
    rows, hardware = read_rows(folder)
    cases, _ = cases_of(rows, hardware or read_rows(PUBLISHED)[1])
    seen = observations(case for case in cases if case.groups.quality != "C")
    return Fitted(cases, seen, *fit(seen, rounds=ROUNDS, processes=processes))


def held_out_profiles(folder: Path, by: str = "source", processes: int = PROCESSES) -> Profiles:
    """Profiles by fits that each saw no row of the case's source, or of its model."""
    group, all_rows = LEFT_OUT[by], fitted_rows(folder, processes)
    full, cases = all_rows.full, all_rows.cases
    reserved = [(group(case), one) for case in cases if case.groups.quality != "C" for one in held([case])]
    fitted = folds(all_rows.seen, full, all_rows.table, lambda row: group(row.case), processes=processes)
    names = {group(case) for case in cases}
    memory = {name: fit_fragmentation([one for key, one in reserved if key != name]) for name in names}

    def pick(case: Case) -> Profile | None:
        base, name = profile_of(case), group(case)
        if base is None:
            return None
        found = fitted.get(name, full).profile(base, **dict(zip(BLOCKS, (base.name, *generation(case)), strict=True)))
        return with_fragmentation(found, memory[name], case.groups.family)

    return pick


def run(folder: Path, profiles: Profiles = shipped_profiles, processes: int = PROCESSES) -> Report:
    """Score every row of a folder. Raises InputError."""
    started = time.monotonic()
    rows, hardware = read_rows(folder)
    if not hardware:
        hardware = read_rows(PUBLISHED)[1]
    cases, refused = cases_of(rows, hardware)
    tasks: list[tuple[Case, Profile]] = []
    no_profile: list[Case] = []
    for case in cases:
        profile = profiles(case)
        if profile is None:
            no_profile.append(case)
        else:
            tasks.append((case, profile))
    if processes > 1:
        with multiprocessing.Pool(processes) as pool:
            scored = pool.map(score, tasks, chunksize=16)
    else:
        scored = [score(task) for task in tasks]
    return Report(scored, refused, no_profile, time.monotonic() - started)


def document(report: Report) -> dict[str, Any]:
    """The JSON object."""
    counted = [one for one in report.scored if one.case.groups.quality != "C"]
    by_group = groups_of(counted)
    by_group["quality C"] = [one for one in report.scored if one.case.groups.quality == "C"]
    tau, regret = ordering(counted)
    oom = Counter(one.oom_right for one in counted if one.oom_right is not None)
    reasons = Counter(f"{one.kind}: {one.reason}" for one in report.refused if one.quality != "C")
    return {
        "time": {
            name: summary([e for one in group if (e := one.time_error) is not None]) for name, group in by_group.items()
        },
        "memory": {name: memory_summary(group) for name, group in by_group.items()},
        "tau": tau,
        "regret": regret,
        "naive": naive_summary(counted),
        "oom": {"right": oom[True], "wrong": oom[False]},
        "not_counted": {
            "no profile": len(report.no_profile),
            **Counter(one.kind for one in report.refused),
        },
        "reasons": dict(reasons.most_common()),
        "rows": len(report.scored) + len(report.refused) + len(report.no_profile),
        "seconds": report.seconds,
    }


# --- text ----------------------------------------------------------------------------------------------------------


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{100 * value:{sign}.1f}"


def table(title: str, groups: dict[str, dict[str, Any]], markdown: bool) -> list[str]:
    """Errors by group as lines of text, or of Markdown."""
    shown = {name: values for name, values in groups.items() if values["n"]}
    columns = ("n", "median", "mean", "p90", "max", "bias")
    lines = [f"### {title}" if markdown else title, ""]
    width = max([len(name) for name in shown] + [5])
    if markdown:
        lines += [f"| group | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    else:
        lines.append("  ".join([f"{'group':{width}}", *(f"{name:>7}" for name in columns)]))
    for name, values in shown.items():
        cells = [str(values["n"]), *(_percent(values[c]) for c in columns[1:-1]), _percent(values["bias"], "+")]
        if markdown:
            lines.append(f"| {name} | {' | '.join(cells)} |")
        else:
            lines.append("  ".join([f"{name:{width}}", *(f"{cell:>7}" for cell in cells)]))
    return [*lines, ""]


def _breakdown(one: Scored) -> str:
    case, profile = one.case, one.profile
    found = estimate(one.prediction.mapping, Facts(case.model, case.run, case.fabric, profile))
    parts = sorted(found.breakdown_s.items(), key=lambda item: -abs(item[1]))[:6]
    return ", ".join(f"{name} {100 * seconds / found.step_time_s:.0f} %" for name, seconds in parts)


def _worst(report: Report, markdown: bool) -> list[str]:
    counted = [one for one in report.scored if one.case.groups.quality != "C" and one.time_error is not None]
    counted.sort(key=lambda one: -abs(one.time_error or 0.0))
    lines = [f"### The worst {WORST} rows" if markdown else f"The worst {WORST} rows", ""]
    if markdown:
        lines += [
            "| row | measured s | predicted s (range) | error % | largest parts of the prediction |",
            "|---|---:|---:|---:|---|",
        ]
    for one in counted[:WORST]:
        measured, guess = one.case.measured.step_time_s or 0.0, one.prediction
        span = f" ({guess.least_s:.3g} to {guess.most_s:.3g})" if guess.candidates > 1 else ""
        error, parts = _percent(one.time_error, "+"), _breakdown(one)
        if markdown:
            lines.append(f"| {one.case.id} | {measured:.4g} | {guess.step_time_s:.4g}{span} | {error} | {parts} |")
        else:
            lines.append(
                f"{one.case.id}: {error} %, measured {measured:.4g} s, predicted {guess.step_time_s:.4g} s{span}"
            )
            lines.append(f"    {parts}")
    return [*lines, ""]


def text(report: Report, markdown: bool) -> str:
    """The tables."""
    found = document(report)
    lines = table("Step time: error in percent", found["time"], markdown)
    lines += table("Constant guess, leave-one-out: error in percent", found["naive"], markdown)
    lines += table("Peak memory: error in percent", found["memory"], markdown)
    tau, regret, oom = found["tau"], found["regret"], found["oom"]
    lines += [
        f"Order inside {tau['n']} studies of at least 5 alternatives: Kendall's tau, median {_number(tau['median'])}.",
        f"Regret of the mapping the model would pick: median {_percent(regret['median'])} %, "
        f"p90 {_percent(regret['p90'])} %.",
        f"Out of memory: {oom['right']} rows called rightly, {oom['wrong']} wrongly.",
        "",
    ]
    lines += _worst(report, markdown)
    not_counted = ", ".join(f"{count} {kind}" for kind, count in found["not_counted"].items())
    lines.append(f"{found['rows']} rows; not counted: {not_counted}. Of quality A and B:")
    lines += ["", *(f"- {count} x {reason}" for reason, count in found["reasons"].items())]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=Path, default=PUBLISHED, help="folder of rows in the schema of SCHEMA.md")
    parser.add_argument("--profile", help="one profile for all rows instead of the built-in one of each device")
    parser.add_argument(
        "--held-out",
        nargs="?",
        const="source",
        choices=tuple(LEFT_OUT),
        help="predict every source (or model) by a fit that left it out",
    )
    parser.add_argument("--unfitted", action="store_true", help="the built-in profiles as written")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--markdown", action="store_true", help="tables in Markdown")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    given = parser.parse_args(arguments)
    profiles: Profiles = shipped_profiles
    if given.profile:
        chosen = profile_named(given.profile)
        profiles = lambda case: chosen  # noqa: E731
    elif given.unfitted:
        profiles = profile_of
    elif given.held_out:
        profiles = held_out_profiles(given.rows, given.held_out, given.processes)
    report = run(given.rows, profiles, given.processes)
    if given.json:
        json.dump(document(report), sys.stdout, indent=2)
        print()
    else:
        print(text(report, given.markdown))
        print(f"\n{report.seconds:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
