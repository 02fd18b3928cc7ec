"""The least change of one number that makes something fit, found by solving again.

Contents: Lever, tight, stepped.

A mapping that fits with a larger change says itself how far the change can be taken back (its own estimate, no search);
then 1 % less is searched, and so on. What is reported fits, and what was tried just short of it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mapsearch.answer import Relaxation
from mapsearch.costs.views import Facts
from mapsearch.relation import Relation
from mapsearch.solver.explain.probe import Probe, certified
from mapsearch.solver.explain.relax import rounded_up, shown
from mapsearch.solver.problem import problem_of
from mapsearch.solver.top import Candidate

SHORT = 0.99
"""Of a value that is reported: what is tried just short of it."""
HALVINGS = 40
"""Of the way between a value that does not fit and one that does, for one mapping: below the digits shown."""
STEPS = 16
"""Steps of a whole number between two doublings."""


@dataclass(frozen=True)
class Lever:
    """A number among the inputs whose change may make something fit."""

    name: str
    relation: str
    unit: str
    before: float
    far: float
    """As far as it is taken."""
    at: Callable[[float], Facts]
    words: Callable[[float], str]
    """The change to a value in words."""
    eases: Callable[[Relation], bool]
    """Relations that it may ease: it helps only when it eases one of every conflict."""


def tight(probe: Probe, lever: Lever) -> Relaxation | None:
    """The least value of a number that grows, to five digits: 1 % less does not fit. None when none fits."""

    def solved(value: float) -> Candidate | None:
        return probe.fits(problem_of(lever.at(value)))

    candidate = solved(lever.far)
    if candidate is None:
        return None
    value, low = _snug(lever, candidate, lever.far), lever.before
    while True:
        short = SHORT * value
        if short <= lever.before:
            short = lever.before
            break
        candidate = solved(short)
        if candidate is None:
            break
        value = _snug(lever, candidate, short)
        middle = math.sqrt(value * low) if low > 0.0 else 0.5 * value
        if middle > lever.before and (candidate := solved(middle)) is not None:
            value = _snug(lever, candidate, middle)
        elif middle > low:
            low = middle
    return told(probe, lever, value, short)


def told(
    probe: Probe, lever: Lever, value: float, short: float, candidate: Candidate | None = None
) -> Relaxation | None:
    """The relaxation to a value with the fastest mapping, or the one given, that then fits.

    One unit in the last digit more where sums round the other way.
    """
    for final in (value, rounded_up(value * (1.0 + 1e-9))):
        problem = problem_of(lever.at(final))
        found = shown(
            problem,
            candidate or probe.fastest(problem),
            name=lever.name,
            relation=lever.relation,
            lever=lever.words(final),
            from_value=lever.before,
            to_value=final,
            unit=lever.unit,
            fails_at=short,
        )
        if found is not None:
            return found
    return None


def _snug(lever: Lever, candidate: Candidate, value: float) -> float:
    """The least value, rounded up to five digits, with which this very mapping fits; at most the one given."""
    low, high = lever.before, value
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high) if low > 0.0 else 0.5 * high
        if certified(problem_of(lever.at(middle)), candidate):
            high = middle
        else:
            low = middle
        if high <= low * (1.0 + 1e-7):
            break
    return min(rounded_up(high), value)


def stepped(probe: Probe, lever: Lever, *, up: bool) -> Relaxation | None:
    """The nearest whole number that fits: doublings or halvings, then 16 steps between the last two."""

    def fits(value: int) -> bool:
        return probe.fits(problem_of(lever.at(value))) is not None

    near = round(lever.before)
    while True:
        far = 2 * near if up else near // 2
        if far < 1 or (far > lever.far if up else far < lever.far):
            return None
        if fits(far):
            break
        near = far
    step = max(1, abs(far - near) // STEPS) * (1 if up else -1)
    values = [*range(near, far, step), far]
    low, high = 0, len(values) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(values[middle]) else (middle, high)
    return told(probe, lever, float(values[high]), float(values[low]))
