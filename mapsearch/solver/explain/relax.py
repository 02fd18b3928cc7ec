"""What relaxations are made of: facts with one value changed, and how a change that helps is shown.

Contents: with_hbm, with_device, with_bandwidth, with_outer_units, with_run, rounded_up, shown.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mapsearch.answer import Relaxation
from mapsearch.costs.views import Facts
from mapsearch.solver.explain.probe import certified
from mapsearch.solver.explain.sentences import described
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.top import Candidate


def rounded_up(value: float, digits: int = 5) -> float:
    """The least number of so many significant digits that is not smaller."""
    if value <= 0.0:
        return value
    place = digits - 1 - math.floor(math.log10(value))
    return float(
        math.ceil(value * 10.0**place) / 10.0**place if place >= 0 else math.ceil(value / 10**-place) * 10**-place
    )


def with_device(facts: Facts, **changes: Any) -> Facts:
    """The same facts with another device."""
    return replace(facts, fabric=replace(facts.fabric, device=replace(facts.fabric.device, **changes)))


def with_hbm(facts: Facts, hbm_bytes: float) -> Facts:
    """The same facts with another amount of HBM per device."""
    return with_device(facts, hbm_bytes=hbm_bytes)


def with_bandwidth(facts: Facts, level: str, bytes_per_s: float) -> Facts:
    """The same facts with another bandwidth of one level."""
    levels = (replace(x, bytes_per_s=bytes_per_s) if x.name == level else x for x in facts.fabric.levels)
    return replace(facts, fabric=replace(facts.fabric, levels=tuple(levels)))


def with_outer_units(facts: Facts, units: int) -> Facts:
    """The same facts with another number of units at the outermost level; an irregular cluster as its largest core."""
    fabric = facts.fabric.regular
    *inner, outer = fabric.levels
    return replace(facts, fabric=replace(fabric, levels=(*inner, replace(outer, size=units, dims=()))))


def with_run(facts: Facts, **changes: Any) -> Facts:
    """The same facts with another run; a packed run's mean length never exceeds its sequences."""
    longest = changes.get("sequence_length")
    if longest is not None and facts.run.mean_square_length:
        changes["mean_square_length"] = min(facts.run.mean_square_length, float(longest))
    return replace(facts, run=facts.run.replaced(**changes))


def shown(problem: Problem, candidate: Candidate | None, **fields: Any) -> Relaxation | None:
    """A relaxation with what then fits; None when nothing does, or when its estimate does not agree."""
    if candidate is None or not certified(problem, candidate):
        return None
    return Relaxation(
        mapping=described(mapping_of(candidate)), step_time_s=candidate.step_time_s, **{"unit": "", **fields}
    )
