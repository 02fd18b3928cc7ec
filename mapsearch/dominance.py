"""Fronts against each other: coverage, hypervolume, and where they cross.

Contents: vectors_of, coverages, hypervolumes, crossings.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from mapsearch.comparison import Coverage, Crossing
from mapsearch.front import Front
from mapsearch.quantity import Floats

BEYOND = 1.1
"""The reference of the hypervolume, in ranges from the best corner: the usual tenth beyond the worst."""
SAME = 1e-9
"""Relative difference of two step times that is rounding."""


def vectors_of(front: Front, objectives: Sequence[str]) -> Floats:
    """Its vectors with the objectives in the given order; shape (points, objectives)."""
    rows = [[point.objectives[name] for name in objectives] for point in front.points]
    return np.array(rows, dtype=float).reshape(-1, len(objectives))


def coverages(fronts: Sequence[Front], names: Sequence[str]) -> list[Coverage]:
    """The C-metric of every ordered pair of fronts that have points."""
    sets = {name: vectors_of(front, fronts[0].objectives) for name, front in zip(names, fronts, strict=True)}
    share = {
        (by, of): float((sets[by][:, None] <= sets[of][None]).all(axis=2).any(axis=0).mean())
        for by, of in itertools.permutations(names, 2)
        if len(sets[by]) and len(sets[of])
    }
    return [
        Coverage(by=by, of=of, share=value, dominates=value == 1.0 and share[of, by] < 1.0)
        for (by, of), value in share.items()
    ]


def hypervolumes(fronts: Sequence[Front]) -> tuple[list[float | None], dict[str, float], list[str]]:
    """Share of the reference box that each front dominates, the reference in SI units, and what to note.

    Objectives are scaled to the range of all fronts together; those on which all points agree are left out.
    """
    objectives = fronts[0].objectives
    sets = [vectors_of(front, objectives) for front in fronts]
    joined = np.concatenate(sets)
    if not len(joined):
        return [None for _ in fronts], {}, ["no front has a point, so there is no hypervolume"]
    ideal, span = joined.min(axis=0), np.ptp(joined, axis=0)
    axes = np.flatnonzero(span > 0.0)
    reference = dict(zip(objectives, (ideal + BEYOND * span).tolist(), strict=True))
    if not len(axes):
        return [1.0 if len(one) else 0.0 for one in sets], reference, ["all points are equal in every objective"]
    try:
        import moocore
    except ImportError:
        hint = "the hypervolume needs moocore: pip install 'mapsearch[compare]'"
        return [None for _ in fronts], reference, [hint]
    corner = np.full(len(axes), BEYOND)
    scaled = [(one[:, axes] - ideal[axes]) / span[axes] for one in sets]
    volumes = [float(moocore.hypervolume(one, ref=corner)) if len(one) else 0.0 for one in scaled]
    return [volume / BEYOND ** len(axes) for volume in volumes], reference, []


def crossings(fronts: Sequence[Front], names: Sequence[str]) -> list[Crossing]:
    """Where the faster of two fronts changes as one other objective is allowed to grow, the rest without limit."""
    found = []
    for (first, mine), (second, theirs) in itertools.combinations(zip(names, fronts, strict=True), 2):
        for objective in fronts[0].objectives:
            if objective != "step_time":
                pair = [vectors_of(front, ("step_time", objective)) for front in (mine, theirs)]
                found += _changes_of_lead(first, second, objective, *pair)
    return found


def _changes_of_lead(first: str, second: str, objective: str, mine: Floats, theirs: Floats) -> list[Crossing]:
    """All values from which on the other front has the least step time; stretches of equal times are passed over."""
    found: list[Crossing] = []
    leader = ""
    for place in np.unique(np.concatenate([mine[:, 1], theirs[:, 1]])).tolist():
        a, b = (float(min(one[one[:, 1] <= place, 0], default=np.inf)) for one in (mine, theirs))
        if a == b or abs(a - b) <= SAME * min(a, b):
            continue
        now = first if a < b else second
        if now != leader:
            crossing = {"first": first, "second": second, "objective": objective, "at": place}
            found.append(Crossing(**crossing, leader_below=leader, leader_above=now))
        leader = now
    return found
