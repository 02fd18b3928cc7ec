"""Robust least squares, the one place of the calibration that needs scipy.

Contents: Robust, robust_fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mapsearch.errors import BackendMissing
from mapsearch.quantity import Floats

NOISE = 0.01
"""Least relative noise of a measurement, where too few rows are there to see it (repeated runs differ by more)."""


@dataclass(frozen=True)
class Robust:
    """The solution of a fit, the standard error of each parameter, and the residuals."""

    values: Floats
    errors: Floats
    """Infinite where the measurements do not tell the parameter."""
    residuals: Floats


def robust_fit(
    residuals: Callable[[Floats], Floats],
    start: Sequence[float],
    *,
    lower: Sequence[float],
    upper: Sequence[float],
    outlier: float = 0.05,
) -> Robust:
    """Least squares in which residuals beyond `outlier` count linearly (soft L1), inside bounds.

    Residuals are relative (differences of logarithms). Raises BackendMissing without scipy.
    """
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise BackendMissing("scipy is not installed; pip install 'mapsearch[calibrate]'") from None
    inside = np.clip(np.asarray(start, dtype=np.float64), lower, upper)
    found = least_squares(
        residuals, inside, bounds=(lower, upper), loss="soft_l1", f_scale=outlier, x_scale="jac", max_nfev=200
    )
    left = residuals(found.x)
    free = max(len(left) - len(found.x), 1)
    noise = max(float(np.sqrt(np.sum(left**2) / free)), NOISE)
    # The Jacobian of the plain residuals: soft L1 has scaled the one that scipy hands back.
    slopes = np.stack([_slope(residuals, found.x, at) for at in range(len(found.x))], axis=-1)
    information = slopes.T @ slopes / noise**2
    with np.errstate(all="ignore"):
        try:
            variances = np.diag(np.linalg.inv(information))
        except np.linalg.LinAlgError:
            variances = np.full(len(found.x), np.inf)
        errors = np.where(variances > 0, np.sqrt(np.abs(variances)), np.inf)
    return Robust(np.asarray(found.x), np.asarray(errors), np.asarray(left))


def _slope(residuals: Callable[[Floats], Floats], point: Floats, at: int) -> Floats:
    step = 1e-6 * max(abs(float(point[at])), 1e-3)
    moved = point.copy()
    moved[at] += step
    return np.asarray((residuals(moved) - residuals(point)) / step)
