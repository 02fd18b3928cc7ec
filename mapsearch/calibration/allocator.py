"""What a caching allocator reserves beyond live tensors: one share, fitted per family of frameworks.

Contents: Held, held, Fragmentation, fit_fragmentation, with_fragmentation.

Predicted are live tensors; rows that print reserved memory, or the memory in use on the device, hold more. The
logarithm of (1 + share) is a sum of what all rows share and what the framework family adds, each held towards 0 by a
prior, like the factors of `parameters`. Context and communicators are facts of the profile and not fitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mapsearch.calibration.fit import HUBER
from mapsearch.calibration.predict import candidates_that_fit, predict_memory, profile_of
from mapsearch.calibration.rows import Case
from mapsearch.inventories.profile import Profile

NOISE = 0.05
"""Standard deviation of a log residual that the fit takes for granted."""
SPREAD, OWN_SPREAD = 0.2, 0.1
"""Prior standard deviation of the shared logarithm, and of what a family adds."""


@dataclass(frozen=True)
class Held:
    """One row: the logarithm of reserved over allocated bytes."""

    source: str
    family: str
    log: float


def held(cases: Iterable[Case]) -> list[Held]:
    """Rows that say what was reserved, against what they print as allocated, else against the predicted tensors."""
    found = []
    for case in cases:
        told, profile = case.measured, profile_of(case)
        if profile is None or not told.memory_bytes:
            continue
        if told.reserved_bytes:
            log = np.log(told.reserved_bytes / told.memory_bytes)
        elif told.memory_kind != "allocated":
            peaks = [predict_memory(case, m, profile) for m in candidates_that_fit(case, profile)]
            log = np.median([np.log(peak.reserved_over_tensors(told)) for peak in peaks])
        else:
            continue
        found.append(Held(case.groups.source, case.groups.family, float(log)))
    return found


@dataclass(frozen=True)
class Fragmentation:
    """Fitted logarithms of reserved over allocated bytes, and what they rest on."""

    shared: float = 0.0
    own: dict[str, float] = field(default_factory=dict)
    """Family of frameworks: what it adds."""
    rows: int = 0
    sources: tuple[str, ...] = ()

    def share(self, family: str) -> float:
        """Reserved over allocated bytes, less 1, of one family; never below 0."""
        return max(0.0, float(np.expm1(self.shared + self.own.get(family, 0.0))))


def fit_fragmentation(rows: Sequence[Held]) -> Fragmentation:
    """Ridge least squares with a Huber weight; nothing is fitted without rows."""
    if not rows:
        return Fragmentation()
    families = sorted({row.family for row in rows})
    design = np.array([[1.0, *(float(row.family == name) for name in families)] for row in rows])
    logs = np.array([row.log for row in rows])
    priors = np.diag([SPREAD**-2, *[OWN_SPREAD**-2] * len(families)])
    values = np.zeros(len(priors))
    for _ in range(12):
        gap = np.abs(logs - design @ values)
        weights = np.minimum(1.0, HUBER * NOISE / np.maximum(gap, 1e-12)) / NOISE**2
        values = np.linalg.solve(design.T @ (weights[:, None] * design) + priors, design.T @ (weights * logs))
    own = {name: float(value) for name, value in zip(families, values[1:], strict=True)}
    return Fragmentation(float(values[0]), own, len(rows), tuple(sorted({row.source for row in rows})))


def with_fragmentation(profile: Profile, fitted: Fragmentation, family: str) -> Profile:
    """The profile with the fitted share of a family, to four digits, and its source."""
    if not fitted.rows:
        return profile
    note = f"fitted: {fitted.rows} measured runs that print reserved memory; {family}"
    share = float(f"{fitted.share(family):.4g}")
    sources = {**profile.sources, "fragmentation": note}
    return profile.model_copy(update={"fragmentation": share, "sources": sources})
