"""Lower bounds of the worst rank's load and of the traffic off nodes, whatever the placement.

Contents: Bound, bound_of, traffic_bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mapsearch.experts.greedy import copies_of
from mapsearch.solver.backends.experts import ExpertProblem

Floats = NDArray[np.float64]
ROUNDS = 300
"""Steps of the multipliers."""


class Bound(NamedTuple):
    """A load that the worst rank cannot be below, and why."""

    value: float
    why: str


def bound_of(problem: ExpertProblem) -> Bound:
    """The largest of the bounds that hold for the problem (docs/how-to/router-load.md lists them)."""
    found = [Bound(float(problem.loads.sum()) / problem.ranks, "mean of the ranks")]
    if problem.grouped:
        found.append(_heaviest_node(problem))
    elif problem.copies:
        found.append(_largest_copy(problem))
    else:
        found += _hottest(problem) + _pigeonholes(problem)
    best = max(found, key=lambda bound: bound.value)
    if problem.copies == 0 and bool((problem.loads == np.rint(problem.loads)).all()):
        return Bound(float(math.ceil(best.value * (1.0 - 1e-12))), best.why)
    return best


def _hottest(problem: ExpertProblem) -> list[Bound]:
    """The j hottest experts on j ranks, whose other slots take the lightest at least: the mean of those ranks.

    Or two of them share a rank. j = 1: the hottest expert and its fillers; j = R: the mean of all.
    """
    falling = np.sort(problem.loads)[::-1]
    lightest = np.concatenate([[0.0], np.cumsum(falling[::-1])])
    slots = problem.slots
    bounds = []
    for j in range(1, problem.ranks + 1):
        apart = (falling[:j].sum() + lightest[j * (slots - 1)]) / j
        together = falling[j - 2] + falling[j - 1] + lightest[max(slots - 2, 0)] if j > 1 and slots > 1 else math.inf
        why = "hottest expert and the lightest fillers" if j == 1 else f"{j} hottest experts and the lightest fillers"
        bounds.append(Bound(float(min(apart, together)), why))
    return bounds


def _pigeonholes(problem: ExpertProblem) -> list[Bound]:
    """k of the (k - 1) R + 1 heaviest experts share a rank, with the lightest fillers."""
    falling = np.sort(problem.loads)[::-1]
    bounds = []
    for k in range(2, problem.slots + 1):
        last = (k - 1) * problem.ranks + 1
        value = falling[last - k : last].sum() + falling[::-1][: problem.slots - k].sum()
        bounds.append(Bound(float(value), f"{k} of the {last} heaviest experts share a rank"))
    return bounds


def _largest_copy(problem: ExpertProblem) -> Bound:
    """The rank of the largest copy, filled with the lightest: least over how copies are shared between the two.

    With m of the X copies spent on fillers, the largest copy is at least the least possible with X - m. A filler that
    is itself heavier than that, whole, must be split as well: its copy is at least that over the most copies.
    """
    most, extra = problem.most_copies, problem.copies
    tops = [float((problem.loads / copies_of(problem.loads, left, most)).max()) for left in range(extra, -1, -1)]
    light = np.minimum(np.sort(problem.loads)[: problem.slots - 1], tops[0] / most)
    fillers = [float(light.sum())]
    counts = np.ones(len(light))
    for _ in range(extra if len(light) else 0):
        gain = light / counts - light / (counts + 1.0)
        counts[int(np.argmax(gain))] += 1.0
        fillers.append(float((light / counts).sum()))
    fillers += [fillers[-1]] * (extra + 1 - len(fillers))
    value = min(top + filled for top, filled in zip(tops, fillers, strict=True))
    return Bound(value, "hottest copy and the lightest fillers")


def _heaviest_node(problem: ExpertProblem) -> Bound:
    """The node of each group by itself, its other groups replaced by what is lighter than any: by the lightest groups
    in sum, and by experts of which the i-th of a group are the lightest i-th ones of all groups.
    """
    loads = np.sort(problem.loads.reshape(problem.groups, -1), axis=1)
    others = problem.groups // problem.nodes - 1
    total = loads.sum(axis=1)
    bounds = []
    for group in range(problem.groups):
        rest = np.arange(problem.groups) != group
        mean = float(total[group] + np.sort(total[rest])[:others].sum()) / problem.per_node
        bounds.append(Bound(mean, f"node of group {group}: the lightest groups beside it"))
        bound = bound_of(lightest_node(problem, group))
        bounds.append(Bound(bound.value, f"node of group {group}: {bound.why}"))
    return max(bounds, key=lambda bound: bound.value)


def lightest_node(problem: ExpertProblem, group: int) -> ExpertProblem:
    """A node with this group that is no heavier, expert by expert, than the group's node in any placement."""
    loads = np.sort(problem.loads.reshape(problem.groups, -1), axis=1)
    rest = np.sort(np.delete(loads, group, axis=0), axis=0)[: problem.groups // problem.nodes - 1]
    return ExpertProblem(np.concatenate([loads[group], rest.ravel()]), problem.per_node, problem.slots)


def traffic_bound(problem: ExpertProblem, worst: float, found: float) -> float:
    """Least assignments off their nodes when no rank is above `worst`; `found` is what a placement has.

    Experts (with groups, whole groups) go to nodes that take equally many and no more load than their ranks: relaxed
    with multipliers of both limits, of which any give a bound. Copies may stand anywhere: then each expert at its best.
    Raises ValueError: sources are not known.
    """
    if problem.off_node is None:
        raise ValueError("sources are not known, so no traffic is either")
    cost, loads = problem.off_node, problem.loads
    if problem.grouped:
        cost, loads = (value.reshape(problem.groups, -1, *value.shape[1:]).sum(axis=1) for value in (cost, loads))
    elif problem.copies:
        return float(cost.min(axis=1).sum())
    room, limit = len(loads) / problem.nodes, worst * problem.per_node
    # Loads in units of a node's, so that both multipliers are of one size.
    weight, limit = loads / limit * room, room
    price, toll = np.zeros(problem.nodes), np.zeros(problem.nodes)
    best, pace, still = 0.0, 1.0, 0
    for _ in range(ROUNDS):
        each = cost + price + toll * weight[:, None]
        chosen = each.argmin(axis=1)
        value = float(each.min(axis=1).sum() - room * price.sum() - limit * toll.sum())
        best, still = (value, 0) if value > best else (best, still + 1)
        if still == 10:
            pace, still = pace / 2.0, 0
        over = np.bincount(chosen, minlength=problem.nodes) - room
        heavy = np.bincount(chosen, weights=weight, minlength=problem.nodes) - limit
        length = float(over @ over + heavy @ heavy)
        if length == 0.0 or value >= found:
            break
        step = pace * (found - value) / length
        price, toll = price + step * over, np.maximum(toll + step * heavy, 0.0)
    return min(best, found)
