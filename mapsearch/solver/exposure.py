"""Limits of exposed communication as bounds: cells and options that expose too much whatever they are joined with.

Contents: Limited, limited_at, limited_size, hopeless_cells, least_excess, hopeless_options.

A limit says T - T0 <= share T, where T0 is the step without the limit's communication; that is
(1 - share) (T - T0) <= share T0. T - T0 is at least what the communication adds to each kind of stage, and T0 at most
the step of the largest sums: where even these two break the limit, no pair keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mapsearch.arrays import PLAIN
from mapsearch.constraints.exposure import Limit, limits
from mapsearch.costs.step import ALL_CLASSES, StageSum, Timing, step_time_s
from mapsearch.quantity import Floats, Num, less, minimum, positive_part
from mapsearch.solver.bounds import Leasts, Pick, Slice, cell_pick, has_options, quick_leasts
from mapsearch.solver.cells import Block, block_rows
from mapsearch.solver.problem import Problem
from mapsearch.solver.tables import Tables

Mask = NDArray[np.bool_]
Stages = list[StageSum]
ROUNDING = 1e-9
"""Share of the longest step by which sums of the same terms may differ."""


@dataclass(frozen=True)
class _Extremes:
    """What the options of one grid add at the least and at the most, per kind of stage."""

    change: Stages
    """What the limit's communication adds, at least; only what is in line."""
    least: Stages
    """All together, at least."""
    most: Stages
    """All but the limit's communication, at most."""


@dataclass(frozen=True)
class Limited:
    """One limit in the cells of a DP size."""

    limit: Limit
    attention: _Extremes
    expert: _Extremes

    @property
    def rest(self) -> frozenset[str]:
        """The classes of communication that are counted beside."""
        return ALL_CLASSES - self.limit.classes


def _limits(problem: Problem) -> list[Limit]:
    asked = {relation.name for relation in problem.relations}
    return [limit for limit in limits(problem.facts.run) if limit.name in asked]


def limited_at(problem: Problem, tables: Tables, picks: Leasts, sharp: Slice) -> tuple[Limited, ...]:
    """The problem's limits of exposure with what either grid adds in the cells of one DP size; () where none is set."""
    least_a, least_e, _ = picks
    best = sharp.best_attention, sharp.best_expert
    return tuple(_limited(limit, tables, (least_a, least_e), best) for limit in _limits(problem))


def limited_size(problem: Problem, tables: Tables, position: int) -> tuple[Limited, ...]:
    """As `limited_at`, over all options, whatever fits in memory: quick, before cells are bounded."""
    found = _limits(problem)
    if not found or not has_options(tables, position):
        return ()
    picks = quick_leasts(tables, position)
    whole = tables.attention.sums[ALL_CLASSES], tables.expert.sums[ALL_CLASSES]
    best = [[stage.each(pick) for stage in stages] for stages, pick in zip(whole, picks, strict=True)]
    return tuple(_limited(limit, tables, picks, (best[0], best[1])) for limit in found)


def _limited(limit: Limit, tables: Tables, picks: tuple[Pick, Pick], best: tuple[Stages, Stages]) -> Limited:
    extremes = []
    for table, pick, least in zip((tables.attention, tables.expert), picks, best, strict=True):
        whole, rest = table.sums[ALL_CLASSES], table.sums[ALL_CLASSES - limit.classes]
        change = [stage.each(pick) for stage in _in_line(whole, rest)]
        extremes.append(_Extremes(change, least, [stage.each(_most(pick)) for stage in rest]))
    return Limited(limit, *extremes)


def _most(least: Pick) -> Pick:
    def most(value: Num) -> Num:
        return value if type(value) in PLAIN else -1.0 * least(-1.0 * value)

    return most


def _in_line(whole: Stages, rest: Stages) -> Stages:
    """What some communication adds to the sums of which nothing is hidden any more."""
    return [
        StageSum(steady=less(a.steady, b.steady), ramp_forward=less(a.ramp_forward, b.ramp_forward))
        for a, b in zip(whole, rest, strict=True)
    ]


def hopeless_cells(found: Sequence[Limited], tables: Tables, position: int) -> Mask:
    """Cells of one DP size in which every pair that fits breaks a limit.

    Shape: that of the slice's bounds, dimensions it does not depend on being 1.
    """
    hopeless: Mask = np.zeros((1,) * 7, dtype=bool)
    for one, sums, constants in _in_cells(found, tables, position):
        hopeless = hopeless | _broken(one.limit.share, *sums, constants)
    return hopeless[0, ..., 0]


def least_excess(found: Sequence[Limited], tables: Tables, position: int) -> Floats:
    """How much more than its limit the step's exposed share is at least, in each cell of one DP size: of the limits the
    greatest. Negative where all may be kept; shape as `hopeless_cells`."""
    excess: Floats = np.full((1,) * 7, -np.inf)
    for one, (change, least, most), constants in _in_cells(found, tables, position):
        # Cells without an option that fits have infinite sums; they are not asked about.
        with np.errstate(invalid="ignore"):
            floor_s, longest_s = _exposed_floor_s(change, least, most, constants), step_time_s(most, constants)
            excess = np.maximum(excess, floor_s / (floor_s + longest_s) - one.limit.share)
    return np.nan_to_num(excess[0, ..., 0])


def _in_cells(
    found: Sequence[Limited], tables: Tables, position: int
) -> Iterator[tuple[Limited, tuple[Stages, Stages, Stages], Timing]]:
    """Each limit with the sums of both grids and the cell: what its communication adds, all at least, the rest at most.

    And the constants to compose them with.
    """
    pick = cell_pick(position)
    own = {classes: [stage.each(pick) for stage in stages] for classes, stages in tables.own.items()}
    constants = replace(tables.timing, steady_rounds=pick(tables.timing.steady_rounds))
    for one in found:
        a, e, whole, rest = one.attention, one.expert, own[ALL_CLASSES], own[one.rest]
        change = _added(a.change, e.change, _in_line(whole, rest))
        yield one, (change, _added(a.least, e.least, whole), _added(a.most, e.most, rest)), constants


def hopeless_options(found: Sequence[Limited], block: Block) -> tuple[Mask, Mask]:
    """Options of both grids that break a limit with every partner, in each cell of a block.

    Shapes: (cells, attention options) and (cells, expert options).
    """
    joined, rows = block.problem, block_rows(block)
    grids = joined.attention, joined.expert
    masks: list[Mask] = [np.zeros((len(block.cells), len(grid)), dtype=bool) for grid in grids]
    for one in found:
        own = joined.own[ALL_CLASSES], joined.own[one.rest]
        for number, (grid, other) in enumerate(zip(grids, (one.expert, one.attention), strict=True)):
            whole, rest = grid.sums[ALL_CLASSES], grid.sums[one.rest]
            beside = [[stage.each(rows) for stage in stages] for stages in (other.change, other.least, other.most)]
            change = _added(_in_line(whole, rest), beside[0], _in_line(*own))
            least, most = _added(whole, beside[1], own[0]), _added(rest, beside[2], own[1])
            masks[number] = masks[number] | _broken(one.limit.share, change, least, most, joined.timing)
    return masks[0], masks[1]


def _added(first: Stages, second: Stages, third: Stages) -> Stages:
    return [a + b + c for a, b, c in zip(first, second, third, strict=True)]


def _broken(share: float, change: Stages, least: Stages, most: Stages, constants: Timing) -> Mask:
    """Whether the limit is broken by the least that is exposed against the longest step that nothing of it exposes."""
    # Without an option that fits, extremes are infinite; such cells are out already.
    with np.errstate(invalid="ignore"):
        floor_s = _exposed_floor_s(change, least, most, constants)
        longest_s = step_time_s(most, constants)
        return np.asarray((1.0 - share) * floor_s > (share + ROUNDING) * longest_s)


def _exposed_floor_s(change: Stages, least: Stages, most: Stages, constants: Timing) -> Num:
    """Least step time that some classes of communication cost, as `step_time_s` composes stages and tail. Unit: s.

    `change`: what they add to the sums, at least; `least`: sums with them, at least; `most`: sums without, at most.
    The slowest stage without them is slower with them by its own change, so by the least change of all kinds.
    """
    kinds = list(zip(change, least, most, strict=True))
    steady = [
        _behind_host(_stage_floor_s(*kind, constants), kind[1].steady, kind[2].launch, constants) for kind in kinds
    ]
    ramp = 0.0
    for (more, low, high), count in zip(kinds, constants.counts, strict=True):
        own = _behind_host(more.ramp_forward, low.ramp_forward, high.launch_ramp_forward, constants)
        ramp = ramp + count * own
    tails = [_tail_floor_s(low, high) for _, low, high in kinds]
    busy = minimum(steady[0], *steady[1:]) * constants.steady_rounds + ramp * constants.ramp_scale
    return (busy + minimum(tails[0], *tails[1:])) * constants.stretch


def _stage_floor_s(change: StageSum, least: StageSum, most: StageSum, constants: Timing) -> Num:
    """What is in line, and what is too much to hide."""
    floor = change.steady
    if constants.coupled:
        floor = floor + _more(least.load + least.stream, most.load + most.stream)
    if constants.shared_coupled:
        floor = floor + _more(least.shared_load, most.shared_load)
    return floor


def _behind_host(change_s: Num, least_s: Num, launch_s: Num, constants: Timing) -> Num:
    """Of a change, what shows where a stage takes at least as long as the host takes to launch it."""
    return minimum(change_s, positive_part(least_s - launch_s)) if constants.hosted else change_s


def _tail_floor_s(least: StageSum, most: StageSum) -> Num:
    return _more(least.reduce, most.reduce) + _more(least.gather, most.gather)


def _more(least: Num, most: Num) -> Num:
    return positive_part(positive_part(least) - positive_part(most))
