"""Fit of profile parameters to measured steps: few numbers, shared by all rows, held towards their datasheet values.

Contents: Sample, Observation, Fit, observations, predicted, evaluated, fit, folds, held_out.

The logarithm of each parameter is a sum: what all rows share, and what device, framework family, year of the software
and its release add.
Each part is held towards 0 by its prior, so a device with few rows keeps the common value. Residuals are
log(predicted / measured) with a robust (Huber) weight. Left-out groups are predicted from a fit without them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from mapsearch.calibration.generations import epoch_of, release_of
from mapsearch.calibration.parameters import PARAMETERS, applied, steps
from mapsearch.calibration.predict import (
    candidates_that_fit,
    point_for,
    point_step_s,
    profile_of,
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


class Sample(Protocol):
    """One measured step time, and the mappings that it may have been measured with."""

    @property
    def profile(self) -> Profile:
        """Where the fit starts from."""

    @property
    def points(self) -> tuple[Point, ...]:
        """The mappings laid out as views."""

    @property
    def measured_s(self) -> float:
        """Measured step time."""

    @property
    def tuned(self) -> bool:
        """True when the fastest of the mappings was measured, False for the one in the middle."""


S = TypeVar("S", bound=Sample)


@dataclass(frozen=True)
class Observation:
    """One row as the fit sees it."""

    case: Case
    device: str
    family: str
    epoch: str
    release: str
    profile: Profile
    points: tuple[Point, ...]

    @property
    def measured_s(self) -> float:
        """Measured step time."""
        return float(self.case.measured.step_time_s or np.nan)

    @property
    def tuned(self) -> bool:
        """True when the source prints its best mapping only."""
        return self.case.tuned


BLOCKS = ("device", "family", "epoch", "release")
"""What adds to the shared parameters: the device, and the framework's family, year and release."""


@dataclass
class Fit:
    """Fitted logarithms: one vector for all, and one per device, framework family, year and release of the software."""

    shared: Floats
    own: dict[str, dict[str, Floats]] = field(default_factory=dict)
    """Block: {name: vector}."""

    def logs(self, **names: str) -> Floats:
        """The sum for one device, family, epoch and release; unknown ones add nothing."""
        total = self.shared
        for block, name in names.items():
            found = self.own.get(block, {}).get(name)
            total = total if found is None else total + found
        return total

    def profile(self, base: Profile, **names: str) -> Profile:
        """The built-in profile with the fitted factors."""
        return applied(base, self.logs(**names))


def observations(cases: Iterable[Case]) -> list[Observation]:
    """Rows with a measured step time and a device that has a profile."""
    found = []
    for case in cases:
        base = profile_of(case)
        if base is None or not case.measured.step_time_s:
            continue
        mappings = candidates_that_fit(case, base) or list(case.mappings)
        points = _candidates([point_for(case, mapping, base) for mapping in mappings], fastest=case.tuned)
        names = (base.name, case.groups.family, epoch_of(case), release_of(case))
        found.append(Observation(case, *names, base, points))
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


def predicted(sample: Sample, logs: Sequence[Floats]) -> Floats:
    """Step time under several parameter vectors: the median over the row's candidates, or the fastest when tuned."""
    sets = applied(sample.profile, np.stack(logs))
    times = np.stack([point_step_s(with_profile(point, sets)).reshape(-1) for point in sample.points])
    return times.min(axis=0) if sample.tuned else np.asarray(np.median(times, axis=0))


_WORK: Sequence[Sample] = ()


def _row(job: tuple[int, list[Floats]]) -> Floats:
    """Residuals of one row under several parameter vectors."""
    index, points = job
    return np.asarray(np.log(predicted(_WORK[index], points) / _WORK[index].measured_s))


def _evaluated(rows: Sequence[Sample], points: list[list[Floats]], processes: int) -> Floats:
    """Residuals of rows, each under parameter vectors of its own: shape (rows, vectors)."""
    global _WORK  # noqa: PLW0603 - what forked workers read
    _WORK = rows
    jobs = list(enumerate(points))
    if processes <= 1:
        return np.stack([_row(job) for job in jobs])
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return np.stack(pool.map(_row, jobs, chunksize=16))


def evaluated(rows: Sequence[S], logs: Callable[[S], Floats], *, slopes: bool, processes: int) -> Floats:
    """Residuals (and slopes) of all rows: shape (rows, 1 or 1 + parameters)."""
    moves = steps(len(PARAMETERS), STEP) if slopes else [np.zeros(len(PARAMETERS))]
    found = _evaluated(rows, [[logs(row) + move for move in moves] for row in rows], processes)
    return np.concatenate([found[:, :1], (found[:, 1:] - found[:, :1]) / STEP], axis=1)


@dataclass(frozen=True)
class _Layout:
    """Which columns of the design a row's parameters stand in."""

    names: list[tuple[str, str]]
    """(block, name) of each vector after the shared one."""
    kinds: tuple[str, ...] = BLOCKS
    """The blocks that a row has a name in."""

    @property
    def size(self) -> int:
        """Unknowns."""
        return len(PARAMETERS) * (1 + len(self.names))

    def blocks(self, row: Sample) -> list[int]:
        """First column of each vector that adds to a row."""
        own = [1 + self.names.index((block, getattr(row, block))) for block in self.kinds]
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


def layout_of(rows: Sequence[Sample], kinds: tuple[str, ...] = BLOCKS) -> _Layout:
    """The unknowns that rows can speak about."""
    return _Layout(sorted({(block, getattr(row, block)) for row in rows for block in kinds}), kinds)


def logs_of(fitted: Fit, row: Sample) -> Floats:
    """The parameters that a fit gives a row."""
    return fitted.logs(**{block: getattr(row, block) for block in BLOCKS if block in fitted.own})


def solved(
    rows: Sequence[Sample], table: Floats, start: Floats, layout: _Layout, weights: Floats, *, reach: float = 0.5
) -> Floats:
    """One Gauss-Newton step: ridge least squares on the linearised, robustly weighted residuals.

    No unknown moves by more than `reach`.
    """
    residuals, slopes = table[:, 0], table[:, 1:]
    design = np.zeros((len(rows), layout.size))
    for index, row in enumerate(rows):
        for block in layout.blocks(row):
            design[index, block : block + len(PARAMETERS)] += slopes[index]
    # There are fewer rows than unknowns: the normal equations are solved on the side of the rows.
    spread = layout.priors() ** 2
    shared = (design * spread) @ design.T
    wanted = design @ start - residuals
    here: Floats = np.array(residuals, dtype=np.float64)
    values: Floats = start.copy()
    for _ in range(12):
        root = np.sqrt(weights * np.minimum(1.0, HUBER * NOISE / np.maximum(np.abs(here), 1e-12))) / NOISE
        inner = np.eye(len(rows)) + root[:, None] * shared * root
        values = spread * (design.T @ (root * np.linalg.solve(inner, root * wanted)))
        here = np.asarray(residuals + design @ (values - start), dtype=np.float64)
    return np.asarray(np.clip(values, start - reach, start + reach), dtype=np.float64)


SHARES = (1.0, 0.5, 0.25, 0.1)
"""Shares of a step that are tried: kinks of the maxima make whole ones overshoot."""


def _loss(residuals: Floats, values: Floats, layout: _Layout, weights: Floats) -> float:
    """What is minimised: Huber losses of the rows, and the squared distances from the priors."""
    size = np.abs(residuals) / NOISE
    each = np.where(size <= HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER))
    return float(weights @ each + 0.5 * np.sum((values / layout.priors()) ** 2))


def _stepped(
    rows: Sequence[S], values: Floats, layout: _Layout, weights: Floats, processes: int
) -> tuple[Floats, float]:
    """The best share of a Gauss-Newton step, and by how much it lowers the loss; where none does, 0."""
    table = evaluated(rows, _logs(layout.unpacked(values)), slopes=True, processes=processes)
    whole = solved(rows, table, values, layout, weights) - values
    tried = [values + share * whole for share in SHARES]
    fits = [layout.unpacked(one) for one in tried]
    found = _evaluated(rows, [[logs_of(one, row) for one in fits] for row in rows], processes)
    losses = [_loss(found[:, place], one, layout, weights) for place, one in enumerate(tried)]
    best = int(np.argmin(losses))
    gain = _loss(table[:, 0], values, layout, weights) - losses[best]
    return (tried[best], gain) if gain > 0.0 else (values, 0.0)


ENOUGH = 0.01
"""A step that lowers the loss by less ends the fit: a hundredth of a row that is off by one standard deviation."""


def fit(
    rows: Sequence[S],
    *,
    kinds: tuple[str, ...] = BLOCKS,
    weights: Floats | None = None,
    start: Fit | None = None,
    rounds: int = 6,
    processes: int = 2,
) -> tuple[Fit, Floats]:
    """Fit all parameters; also the residuals and slopes at the end, shape (rows, 1 + parameters)."""
    layout = layout_of(rows, kinds)
    weight = np.ones(len(rows)) if weights is None else weights
    values = layout.packed(start or Fit(np.zeros(len(PARAMETERS), dtype=np.float64)))
    for _ in range(rounds):
        values, gain = _stepped(rows, values, layout, weight, processes)
        if gain < ENOUGH:
            break
    fitted = layout.unpacked(values)
    return fitted, evaluated(rows, _logs(fitted), slopes=True, processes=processes)


def _logs(fitted: Fit) -> Callable[[Sample], Floats]:
    return lambda row: logs_of(fitted, row)


AGAIN, MORE = 8, 2
"""Rows of a group from which its fold takes further steps, and how many: leaving few rows out moves the fit little."""


def folds(
    rows: Sequence[S], full: Fit, table: Floats, group: Callable[[S], Any], *, processes: int = 2
) -> dict[Any, Fit]:
    """For every group, a fit that saw no row of it.

    The first step uses the linearisation at the full fit and goes as far as the rows that are left ask for, so that
    nothing stays of those left out; a fold that leaves many rows out then goes on where it arrived.
    """
    keys = [group(row) for row in rows]
    found: dict[Any, Fit] = {}
    for key in sorted(set(keys), key=str):
        stays = np.array([k != key for k in keys])
        kept = [row for row, inside in zip(rows, stays, strict=True) if inside]
        layout, weights = layout_of(kept, tuple(full.own)), np.ones(len(kept))
        values = solved(kept, table[stays], layout.packed(full), layout, weights, reach=np.inf)
        if len(rows) - len(kept) >= AGAIN:
            for _ in range(MORE):
                values, _ = _stepped(kept, values, layout, weights, processes)
        found[key] = layout.unpacked(values)
    return found


def held_out(rows: Sequence[S], full: Fit, table: Floats, group: Callable[[S], Any], *, processes: int = 2) -> Floats:
    """Log residual of every row predicted by the fit that saw no row of its group."""
    found = folds(rows, full, table, group, processes=processes)
    return evaluated(rows, lambda row: logs_of(found[group(row)], row), slopes=False, processes=processes)[:, 0]
