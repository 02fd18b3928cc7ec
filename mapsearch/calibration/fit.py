"""Fit of profile parameters to measured steps: few numbers, shared by all rows, held towards their datasheet values.

Contents: Observation, Fit, fit, held_out, generation_of.

The logarithm of each parameter is a sum: what all rows share, what a device adds, what a software generation adds.
Each part is held towards 0 by its prior, so a device with few rows keeps the common value. Residuals are
log(predicted / measured) with a robust (Huber) weight. Left-out groups are predicted from a fit without them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mapsearch.calibration.parameters import NAMES, PARAMETERS, applied, steps
from mapsearch.calibration.predict import (
    candidates_that_fit,
    point_for,
    point_step_s,
    profile_of,
    stacked,
    with_profile,
)
from mapsearch.calibration.rows import Case
from mapsearch.costs.estimate import Point
from mapsearch.inventories.profile import Profile
from mapsearch.quantity import Floats

NOISE = 0.05
"""Standard deviation of a log residual that the fit takes for granted: releases differ by 7 % in the median."""
HUBER = 1.5
"""Residuals beyond so many standard deviations count linearly."""
STEP = 0.02
MOST_CANDIDATES = 5
"""Mappings per row that are evaluated where the row leaves some open."""


@dataclass(frozen=True)
class Observation:
    """One row as the fit sees it."""

    case: Case
    device: str
    generation: str
    profile: Profile
    points: tuple[Point, ...]

    @property
    def measured_s(self) -> float:
        """Measured step time."""
        return float(self.case.measured.step_time_s or np.nan)


@dataclass
class Fit:
    """Fitted logarithms: one vector for all, one per device, one per software generation."""

    shared: Floats
    devices: dict[str, Floats] = field(default_factory=dict)
    generations: dict[str, Floats] = field(default_factory=dict)

    def logs(self, device: str, generation: str) -> Floats:
        """The sum for one device under one software generation; unknown ones add nothing."""
        nothing = np.zeros(len(PARAMETERS))
        return self.shared + self.devices.get(device, nothing) + self.generations.get(generation, nothing)

    def profile(self, base: Profile, device: str, generation: str) -> Profile:
        """The built-in profile with the fitted factors."""
        return applied(base, self.logs(device, generation))


EPOCHS = (
    ("megatron-2021", ("2021",)),
    ("megatron-2022", ("2022", "megatron-lm fork")),
    ("megatron-2024", ("23.", "24.", "25.02", "25.01", "2023", "r0.8", "folding")),
    ("megatron-2025", ("25.", "r0.1", "r0.2")),
)
"""Epochs of Megatron-family software by words of the release or source; everything later is of 2026."""


def generation_of(case: Case) -> str:
    """The software generation whose habits a row shows: framework family and, for Megatron, its epoch."""
    groups = case.groups
    if groups.family == "fsdp":
        return f"fsdp-{groups.source.split('_')[0]}"
    if groups.family not in ("megatron", "megatron-deepspeed"):
        return groups.family
    words = f"{groups.framework} {groups.source}".lower()
    for name, signs in EPOCHS:
        if any(sign in words for sign in signs):
            return name
    return "megatron-2026"


def observations(cases: Iterable[Case]) -> list[Observation]:
    """Rows with a measured step time and a device that has a profile."""
    found = []
    for case in cases:
        base = profile_of(case)
        if base is None or not case.measured.step_time_s:
            continue
        mappings = candidates_that_fit(case, base) or list(case.mappings)
        index = np.unique(np.linspace(0, len(mappings) - 1, min(len(mappings), MOST_CANDIDATES)).round().astype(int))
        points = tuple(point_for(case, mappings[i], base) for i in index)
        found.append(Observation(case, base.name, generation_of(case), base, points))
    return found


def predicted(observation: Observation, logs: Sequence[Floats]) -> Floats:
    """Step time under several parameter vectors: the median over the row's candidates, or the fastest when tuned."""
    sets = stacked([applied(observation.profile, log) for log in logs])
    times = np.stack([point_step_s(with_profile(point, sets)).reshape(-1) for point in observation.points])
    return times.min(axis=0) if observation.case.tuned else np.asarray(np.median(times, axis=0))


_WORK: list[Observation] = []


def _row(job: tuple[int, Floats, bool]) -> Floats:
    """Residual of one row, followed by its derivative to each parameter when asked."""
    index, logs, slopes = job
    observation = _WORK[index]
    points = [logs + step for step in steps(len(PARAMETERS), STEP)] if slopes else [logs]
    residuals = np.log(predicted(observation, points) / observation.measured_s)
    return np.concatenate([residuals[:1], (residuals[1:] - residuals[0]) / STEP])


def evaluated(
    rows: list[Observation], logs: Callable[[Observation], Floats], *, slopes: bool, processes: int
) -> Floats:
    """Residuals (and slopes) of all rows: shape (rows, 1 or 1 + parameters)."""
    global _WORK  # noqa: PLW0603 - what forked workers read
    _WORK = rows
    jobs = [(index, logs(row), slopes) for index, row in enumerate(rows)]
    if processes <= 1:
        return np.stack([_row(job) for job in jobs])
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return np.stack(pool.map(_row, jobs, chunksize=16))


@dataclass(frozen=True)
class _Layout:
    """Which columns of the design a row's parameters stand in."""

    devices: list[str]
    generations: list[str]

    @property
    def size(self) -> int:
        """Unknowns."""
        return len(PARAMETERS) * (1 + len(self.devices) + len(self.generations))

    def blocks(self, row: Observation) -> list[int]:
        """First column of each block that adds to a row."""
        count = len(PARAMETERS)
        return [
            0,
            count * (1 + self.devices.index(row.device)),
            count * (1 + len(self.devices) + self.generations.index(row.generation)),
        ]

    def priors(self) -> Floats:
        """Prior standard deviation of every unknown."""
        shared = [p.spread for p in PARAMETERS]
        own = [p.own_spread for p in PARAMETERS]
        return np.array(shared + own * (len(self.devices) + len(self.generations)))

    def unpacked(self, values: Floats) -> Fit:
        """The unknowns as a fit."""
        parts = values.reshape(-1, len(PARAMETERS))
        middle = 1 + len(self.devices)
        return Fit(
            parts[0],
            dict(zip(self.devices, parts[1:middle], strict=True)),
            dict(zip(self.generations, parts[middle:], strict=True)),
        )

    def packed(self, fitted: Fit) -> Floats:
        """A fit as unknowns."""
        nothing = np.zeros(len(PARAMETERS))
        return np.concatenate(
            [
                fitted.shared,
                *(fitted.devices.get(name, nothing) for name in self.devices),
                *(fitted.generations.get(name, nothing) for name in self.generations),
            ]
        )


def layout_of(rows: list[Observation]) -> _Layout:
    """The unknowns that rows can speak about."""
    return _Layout(sorted({row.device for row in rows}), sorted({row.generation for row in rows}))


def solved(rows: list[Observation], table: Floats, start: Floats, layout: _Layout, weights: Floats) -> Floats:
    """One Gauss-Newton step: ridge least squares on the linearised, robustly weighted residuals."""
    residuals, slopes = table[:, 0], table[:, 1:]
    design = np.zeros((len(rows), layout.size))
    for index, row in enumerate(rows):
        for block in layout.blocks(row):
            design[index, block : block + len(PARAMETERS)] += slopes[index]
    here = residuals.copy()
    values: Floats = start.copy()
    priors = layout.priors()
    for _ in range(12):
        robust = weights * np.minimum(1.0, HUBER * NOISE / np.maximum(np.abs(here), 1e-12)) / NOISE**2
        normal = design.T @ (robust[:, None] * design) + np.diag(priors**-2)
        right = design.T @ (robust * (design @ start - residuals))
        values = np.linalg.solve(normal, right)
        here = residuals + design @ (values - start)
    return np.asarray(np.clip(values, start - 0.5, start + 0.5), dtype=np.float64)


def fit(
    rows: list[Observation],
    *,
    weights: Floats | None = None,
    start: Fit | None = None,
    rounds: int = 6,
    processes: int = 2,
) -> tuple[Fit, Floats]:
    """Fit all parameters; also the residuals and slopes at the end, shape (rows, 1 + parameters)."""
    layout = layout_of(rows)
    weight = np.ones(len(rows)) if weights is None else weights
    fitted = start or Fit(np.zeros(len(PARAMETERS), dtype=np.float64))
    for _ in range(rounds):
        table = evaluated(rows, _logs(fitted), slopes=True, processes=processes)
        fitted = layout.unpacked(solved(rows, table, layout.packed(fitted), layout, weight))
    return fitted, evaluated(rows, _logs(fitted), slopes=True, processes=processes)


def _logs(fitted: Fit) -> Callable[[Observation], Floats]:
    return lambda row: fitted.logs(row.device, row.generation)


def held_out(
    rows: list[Observation], full: Fit, table: Floats, group: Callable[[Observation], Any], *, processes: int = 2
) -> Floats:
    """Log residual of every row predicted by a fit that saw no row of its group.

    The linearisation at the full fit serves all folds; the held-out rows are then evaluated exactly.
    """
    layout = layout_of(rows)
    start = layout.packed(full)
    keys = [group(row) for row in rows]
    logs: list[Floats] = [np.zeros(len(PARAMETERS))] * len(rows)
    for key in sorted(set(keys), key=str):
        inside = np.array([k != key for k in keys])
        kept = [row for row, stays in zip(rows, inside, strict=True) if stays]
        values = solved(kept, table[inside], start, layout, np.ones(len(kept)))
        fold = layout.unpacked(values)
        for index in np.flatnonzero(~inside):
            logs[index] = fold.logs(rows[index].device, rows[index].generation)
    by_id = {id(row): log for row, log in zip(rows, logs, strict=True)}
    return evaluated(rows, lambda row: by_id[id(row)], slopes=False, processes=processes)[:, 0]


__all__ = ["NAMES", "Fit", "Observation", "evaluated", "fit", "generation_of", "held_out", "observations", "predicted"]
