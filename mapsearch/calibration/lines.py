"""Straight lines through times by size, in relative error: where one ends and the next begins.

Contents: Line, best_pieces, usable_start.

These are closed forms on sums, fast enough to try every range; the numbers that are reported come from a robust fit.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self

import numpy as np

from mapsearch.quantity import Floats

_NOISE = 0.03
"""Relative residual below which a line is as good as any: repeated runs differ by as much."""
_FEWEST = 4
_MOST_PIECES = 4
_MOST_POINTS = 300


@dataclass(frozen=True)
class Line:
    """T = alpha + slope * S, neither negative."""

    alpha: float
    slope: float
    steepest: float
    """The largest T / S of the points."""

    @classmethod
    def through(cls, sizes: Floats, times: Floats) -> Self:
        """The line of the least squares of relative residuals."""
        sums = _sums(sizes, times)[-1]
        alpha, slope, _ = _solved(sums)
        return cls(float(alpha), float(slope), float(np.max(times / sizes)))

    def off(self, sizes: Floats, times: Floats) -> Floats:
        """Relative residuals, absolute."""
        return np.asarray(np.abs((self.alpha + self.slope * sizes) / times - 1.0))


def _sums(sizes: Floats, times: Floats) -> Floats:
    """Running sums of w, wS, wS^2, wT, wST, wT^2 with w = 1/T^2; S in units of the largest, T of the largest."""
    weight = 1.0 / times**2
    terms = (weight, weight * sizes, weight * sizes**2, weight * times, weight * sizes * times, weight * times**2)
    return np.cumsum(np.stack(terms, axis=-1), axis=0)


def _solved(sums: Floats) -> tuple[Floats, Floats, Floats]:
    """Alpha, slope and squared error of the best line with both not negative, for sums of any shape (..., 6)."""
    w, ws, wss, wt, wst, wtt = np.moveaxis(np.asarray(sums, dtype=np.float64), -1, 0)
    with np.errstate(all="ignore"):
        spread = w * wss - ws**2
        usable = spread > 1e-9 * w * wss
        alpha = np.where(usable, (wt * wss - ws * wst) / spread, 0.0)
        slope = np.where(usable, (w * wst - ws * wt) / spread, wst / wss)
        flat, steep = slope < 0.0, alpha < 0.0
        alpha, slope = (
            np.where(flat, wt / w, np.where(steep, 0.0, alpha)),
            np.where(flat, 0.0, np.where(steep, wst / wss, slope)),
        )
        error = wtt - 2 * (alpha * wt + slope * wst) + alpha**2 * w + 2 * alpha * slope * ws + slope**2 * wss
    return alpha, slope, np.maximum(error, 0.0)


def _thinned(sizes: Floats) -> Floats:
    """Places of at most so many points, even in their order."""
    count = min(len(sizes), _MOST_POINTS)
    return np.unique(np.linspace(0, len(sizes) - 1, count).round().astype(np.int64))


def best_pieces(sizes: Floats, times: Floats) -> list[tuple[int, int]]:
    """Ranges of rows that have a line of their own, as few as the residuals ask for (Schwarz's criterion)."""
    places = _thinned(sizes)
    points = len(places)
    if points < 2 * _FEWEST:
        return [(0, len(sizes))]
    sums = np.concatenate([np.zeros((1, 6)), _sums(sizes[places], times[places])])
    # cost[i, j]: squared error of one line through points i to j - 1; too short ones cost without end.
    cost = _solved(sums[None, :, :] - sums[:, None, :])[2]
    index = np.arange(points + 1)
    cost = np.where(index[None, :] - index[:, None] >= _FEWEST, cost, np.inf)
    best = [np.where(index == 0, 0.0, np.inf)]
    origins = []
    choices = []
    for count in range(1, _MOST_PIECES + 1):
        total = best[-1][:, None] + cost
        origins.append(np.argmin(total, axis=0))
        best.append(np.min(total, axis=0))
        if np.isfinite(best[-1][-1]):
            fit = points * np.log(best[-1][-1] / points + _NOISE**2)
            choices.append((float(fit + 3 * count * np.log(points)), count))
    ends, at = [points], points
    for origin in reversed(origins[: min(choices)[1]]):
        at = int(origin[at])
        ends.append(at)
    bounds = [0 if end == 0 else len(sizes) if end == points else int(places[end]) for end in reversed(ends)]
    return list(itertools.pairwise(bounds))


def usable_start(sizes: Floats, times: Floats, tolerance: float) -> int | None:
    """The first row from which one line fits every row up to the last, within a tolerance; None if none does."""
    for start in _thinned(sizes):
        rest = len(np.unique(sizes[start:]))
        if rest < 3:
            break
        if np.max(Line.through(sizes[start:], times[start:]).off(sizes[start:], times[start:])) <= tolerance:
            return int(start)
    return 0 if len(np.unique(sizes)) < 3 else None
