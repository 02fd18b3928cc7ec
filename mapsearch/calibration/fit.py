"""Fit of profile parameters to measured steps: few numbers, shared by all rows, held towards their datasheet values.

Contents: Observation, Fit, epoch_of, observations, predicted, evaluated, fit, held_out.

The logarithm of each parameter is a sum: what all rows share, and what device, framework family and software year add.
Each part is held towards 0 by its prior, so a device with few rows keeps the common value. Residuals are
log(predicted / measured) with a robust (Huber) weight. Left-out groups are predicted from a fit without them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mapsearch.calibration.parameters import PARAMETERS, applied, steps
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

NOISE = 0.1
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
    family: str
    epoch: str
    profile: Profile
    points: tuple[Point, ...]

    @property
    def measured_s(self) -> float:
        """Measured step time."""
        return float(self.case.measured.step_time_s or np.nan)


BLOCKS = ("device", "family", "epoch")
"""What adds to the shared parameters: the device, the framework family, the year of the software."""


@dataclass
class Fit:
    """Fitted logarithms: one vector for all, and one per device, framework family and software epoch."""

    shared: Floats
    own: dict[str, dict[str, Floats]] = field(default_factory=dict)
    """Block: {name: vector}."""

    def logs(self, **names: str) -> Floats:
        """The sum for one device, family and epoch; unknown ones add nothing."""
        total = self.shared
        for block, name in names.items():
            found = self.own.get(block, {}).get(name)
            total = total if found is None else total + found
        return total

    def profile(self, base: Profile, **names: str) -> Profile:
        """The built-in profile with the fitted factors."""
        return applied(base, self.logs(**names))


EPOCHS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("2021", ("sc21",)),
    ("2022", ("bigscience", "korthikanti")),
    ("2023", ("llm_foundry", "megascale_2402", "zero_bubble", "23.")),
    (
        "2024",
        (
            "24.",
            "internevo",
            "fms_",
            "moe_parallel_folding",
            "r0.8",
            "torchtitan",
            "llama3_herd",
            "ascend",
            "vocabulary",
            "maxtext_tpu_v5",
            "model_reports",
        ),
    ),
    ("2025", ("25.0", "r0.1", "r0.2", "modelzoo", "simumax", "megascale_moe", "kempner", "nemo_automodel", "tpu_v5p")),
)
"""Years of software by words of the source or release; what matches none is of 2026."""


def epoch_of(case: Case) -> str:
    """The year whose kernels and libraries a row used."""
    words = f"{case.groups.source} {case.groups.framework}".lower()
    return next((year for year, signs in EPOCHS if any(sign in words for sign in signs)), "2026")


def observations(cases: Iterable[Case]) -> list[Observation]:
    """Rows with a measured step time and a device that has a profile."""
    found = []
    for case in cases:
        base = profile_of(case)
        if base is None or not case.measured.step_time_s:
            continue
        mappings = candidates_that_fit(case, base) or list(case.mappings)
        points = _candidates([point_for(case, mapping, base) for mapping in mappings], fastest=case.tuned)
        found.append(Observation(case, base.name, case.groups.family, epoch_of(case), base, points))
    return found


def _candidates(points: list[Point], *, fastest: bool) -> tuple[Point, ...]:
    """A few of a row's mappings: the fastest ones where its source prints its best, else an even choice."""
    if len(points) <= MOST_CANDIDATES:
        return tuple(points)
    if fastest:
        times = [float(point_step_s(point).reshape(-1)[0]) for point in points]
        return tuple(points[i] for i in sorted(np.argsort(times, kind="stable")[:MOST_CANDIDATES]))
    index = np.unique(np.linspace(0, len(points) - 1, MOST_CANDIDATES).round().astype(int))
    return tuple(points[i] for i in index)


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

    names: list[tuple[str, str]]
    """(block, name) of each vector after the shared one."""

    @property
    def size(self) -> int:
        """Unknowns."""
        return len(PARAMETERS) * (1 + len(self.names))

    def blocks(self, row: Observation) -> list[int]:
        """First column of each vector that adds to a row."""
        own = [1 + self.names.index((block, getattr(row, block))) for block in BLOCKS]
        return [len(PARAMETERS) * place for place in (0, *own)]

    def priors(self) -> Floats:
        """Prior standard deviation of every unknown."""
        shared = [p.spread for p in PARAMETERS]
        return np.array(shared + [p.own_spread for p in PARAMETERS] * len(self.names))

    def unpacked(self, values: Floats) -> Fit:
        """The unknowns as a fit."""
        shared, *parts = values.reshape(-1, len(PARAMETERS))
        fitted = Fit(shared)
        for (block, name), part in zip(self.names, parts, strict=True):
            fitted.own.setdefault(block, {})[name] = part
        return fitted

    def packed(self, fitted: Fit) -> Floats:
        """A fit as unknowns."""
        nothing = np.zeros(len(PARAMETERS))
        parts = [fitted.own.get(block, {}).get(name, nothing) for block, name in self.names]
        return np.concatenate([fitted.shared, *parts])


def layout_of(rows: list[Observation]) -> _Layout:
    """The unknowns that rows can speak about."""
    return _Layout(sorted({(block, getattr(row, block)) for row in rows for block in BLOCKS}))


def logs_of(fitted: Fit, row: Observation) -> Floats:
    """The parameters that a fit gives a row."""
    return fitted.logs(**{block: getattr(row, block) for block in BLOCKS})


def solved(
    rows: list[Observation], table: Floats, start: Floats, layout: _Layout, weights: Floats, *, reach: float = 0.5
) -> Floats:
    """One Gauss-Newton step: ridge least squares on the linearised, robustly weighted residuals.

    No unknown moves by more than `reach`.
    """
    residuals, slopes = table[:, 0], table[:, 1:]
    design = np.zeros((len(rows), layout.size))
    for index, row in enumerate(rows):
        for block in layout.blocks(row):
            design[index, block : block + len(PARAMETERS)] += slopes[index]
    here: Floats = np.array(residuals, dtype=np.float64)
    values: Floats = start.copy()
    priors = layout.priors()
    for _ in range(12):
        robust = weights * np.minimum(1.0, HUBER * NOISE / np.maximum(np.abs(here), 1e-12)) / NOISE**2
        normal = design.T @ (robust[:, None] * design) + np.diag(priors**-2)
        right = design.T @ (robust * (design @ start - residuals))
        values = np.asarray(np.linalg.solve(normal, right), dtype=np.float64)
        here = np.asarray(residuals + design @ (values - start), dtype=np.float64)
    return np.asarray(np.clip(values, start - reach, start + reach), dtype=np.float64)


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
    for turn in range(rounds):
        table = evaluated(rows, _logs(fitted), slopes=True, processes=processes)
        start_at = layout.packed(fitted)
        # Kinks of the maxima make full steps overshoot; later steps are shorter.
        step = 1.0 if turn < 2 else 0.5
        fitted = layout.unpacked(start_at + step * (solved(rows, table, start_at, layout, weight) - start_at))
    return fitted, evaluated(rows, _logs(fitted), slopes=True, processes=processes)


def _logs(fitted: Fit) -> Callable[[Observation], Floats]:
    return lambda row: logs_of(fitted, row)


AGAIN = 8
"""Rows of a group from which its fold is linearised a second time: leaving few rows out moves the fit little."""


def folds(
    rows: list[Observation], full: Fit, table: Floats, group: Callable[[Observation], Any], *, processes: int = 2
) -> dict[Any, Fit]:
    """For every group, a fit that saw no row of it.

    The first step uses the linearisation at the full fit and may go as far as the rows that are left ask for; a fold
    that leaves many rows out is then linearised where it arrived, and solved again.
    """
    layout = layout_of(rows)
    start = layout.packed(full)
    keys = [group(row) for row in rows]
    found: dict[Any, Fit] = {}
    for key in sorted(set(keys), key=str):
        stays = np.array([k != key for k in keys])
        kept = [row for row, inside in zip(rows, stays, strict=True) if inside]
        weights = np.ones(len(kept))
        fold = layout.unpacked(solved(kept, table[stays], start, layout, weights, reach=np.inf))
        if len(rows) - len(kept) >= AGAIN:
            again = evaluated(kept, _logs(fold), slopes=True, processes=processes)
            fold = layout.unpacked(solved(kept, again, layout.packed(fold), layout, weights))
        found[key] = fold
    return found


def held_out(
    rows: list[Observation], full: Fit, table: Floats, group: Callable[[Observation], Any], *, processes: int = 2
) -> Floats:
    """Log residual of every row predicted by the fit that saw no row of its group."""
    found = folds(rows, full, table, group, processes=processes)
    return evaluated(rows, lambda row: logs_of(found[group(row)], row), slopes=False, processes=processes)[:, 0]
