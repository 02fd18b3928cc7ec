"""Families: pipeline rows that differ in placement only, whose sizes are bounded once for all of them.

Contents: Families.

What depends on sizes alone, bytes and floors, is alike in all rows that cut one fan-out into equally many stages. The
floors say which sizes can be within memory and cutoff; only options with those are kept, row by row, and costed for
many rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.solver.floors import Reach, within_reach
from mapsearch.solver.groups import Group, Mask, allowed_cells, along, cell_view, groups_at
from mapsearch.solver.options import Options, distinct_rows
from mapsearch.solver.problem import Problem
from mapsearch.solver.sized import Sized, can_fit, legal_grids, products_of, sized
from mapsearch.solver.tables import Tables, placed_together

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""A used fan-out and a pipeline row."""
TOGETHER = 10_000
"""Options of rows that are costed at once: for fewer, calling numpy takes longer than what it calculates; for more, the
search would wait long for its first cells."""


class Families:
    """Pipeline rows of a search; a family is bounded when the first of its rows is asked for."""

    def __init__(self, problem: Problem, rows: Iterable[Row], limit_bytes: float, turn: int | None = None) -> None:
        self.problem = problem
        self.limit_bytes = limit_bytes
        self.turn = turn
        self.left: dict[tuple[tuple[int, ...], int], list[tuple[int, ...]]] = {}
        self.made: dict[Row, list[Sized]] = {}
        self.costed: dict[Row, list[Tables]] = {}
        for used, row in rows:
            self.left.setdefault((used, math.prod(row)), []).append(row)

    def take(self, used: tuple[int, ...], row: tuple[int, ...], cutoff_s: float) -> list[Sized]:
        """The groups of a row with what is within memory and cutoff; each row can be asked for once."""
        if (used, row) not in self.made:
            family = self.left.pop((used, math.prod(row)))
            self.made |= _bounded(self, used, family, cutoff_s)
        return self.made.pop((used, row))

    def tables(
        self, used: tuple[int, ...], row: tuple[int, ...], cutoff_s: float, *, prune: bool = True
    ) -> list[Tables]:
        """The tables of what `take` gives; `prune` leaves out placements that another one beats."""
        if (used, row) not in self.costed:
            self.costed |= _costed(self.problem, self._together(used, row, cutoff_s), prune=prune)
        return self.costed.pop((used, row))

    def _together(self, used: tuple[int, ...], row: tuple[int, ...], cutoff_s: float) -> dict[Row, list[Sized]]:
        """The groups of a row, and of others of its family as long as their options are few."""
        taken = {(used, row): self.take(used, row, cutoff_s)}
        options = _options(taken[used, row])
        family = [place for place in self.made if place[0] == used and math.prod(place[1]) == math.prod(row)]
        for place in family:
            options += _options(self.made[place])
            if options > TOGETHER:
                break
            taken[place] = self.made.pop(place)
        return taken

    def drop(self, used: tuple[int, ...], row: tuple[int, ...]) -> None:
        """Leave out a row that was dealt with otherwise."""
        self.left[used, math.prod(row)].remove(row)


def _costed(problem: Problem, rows: dict[Row, list[Sized]], *, prune: bool) -> dict[Row, list[Tables]]:
    """The tables of rows of one family; groups of one layout and split are costed at once."""
    made: dict[Row, list[Tables]] = {row: [] for row in rows}
    alike: dict[tuple[object, ...], list[tuple[Row, Sized]]] = {}
    for row, groups in rows.items():
        for one in groups:
            alike.setdefault((one.group.pipelines, one.group.layout, one.group.recompute_stages), []).append((row, one))
    for ones in alike.values():
        tables = placed_together(problem, [one for _, one in ones], prune=prune)
        for (row, _), table in zip(ones, tables, strict=True):
            made[row].append(table)
    return made


def _options(groups: list[Sized]) -> int:
    return sum(len(group.attention) + len(group.expert) for group in groups)


@dataclass(frozen=True)
class _Listed:
    """The legal options of one row, and the place of each among the sizes of its family."""

    attention: Options
    expert: Options
    sizes_a: NDArray[np.intp]
    sizes_e: NDArray[np.intp]


def _bounded(
    families: Families, used: tuple[int, ...], rows: list[tuple[int, ...]], cutoff_s: float
) -> dict[Row, list[Sized]]:
    """The groups of every row of a family with what is within reach."""
    problem, limit_bytes = families.problem, families.limit_bytes
    found: dict[Row, list[Sized]] = {(used, row): [] for row in rows}
    groups = {row: groups_at(problem, used, row, families.turn) for row in rows}
    legal = {row: legal_grids(problem, own[0]) for row, own in groups.items() if own}
    there = {row: grids for row, grids in legal.items() if grids is not None}
    if not there:
        return found
    listed, attention, expert = _by_size(there)
    dp = np.unique(attention.sizes[2])
    if not len(products_of(problem, dp)):
        return found
    for layout in zip(*(groups[row] for row in listed), strict=True):
        masks = [allowed_cells(problem, cell_view(problem, group, along(dp, 0))) for group in layout]
        allowed = np.logical_or.reduce(masks)
        if not allowed.any():
            continue
        whole = sized(problem, layout[0], attention, expert, dp, allowed)
        reach = _reach(problem, whole, limit_bytes, cutoff_s)
        for group, mask in zip(layout, masks, strict=True):
            small = _kept(problem, whole, reach, group, mask, listed[group.pp_row])
            found[used, group.pp_row] += [small] if small else []
    return found


def _by_size(
    grids: dict[tuple[int, ...], tuple[Options, Options]],
) -> tuple[dict[tuple[int, ...], _Listed], Options, Options]:
    """The options of each row with their sizes' place in the family, and one option for each of those sizes."""
    (attention, places_a), (expert, places_e) = (_united([pair[side] for pair in grids.values()]) for side in (0, 1))
    listed = {
        row: _Listed(*pair, place_a, place_e)
        for (row, pair), place_a, place_e in zip(grids.items(), places_a, places_e, strict=True)
    }
    return listed, attention, expert


def _united(lists: list[Options]) -> tuple[Options, list[NDArray[np.intp]]]:
    """One option for each distinct size and choice of several lists, and the place of each list's options there."""
    own = [distinct_rows([*options.sizes, options.choice]) for options in lists]
    few = [options.take(first) for options, (first, _) in zip(lists, own, strict=True)]
    joined = Options.joined(few)
    first, place = distinct_rows([*joined.sizes, joined.choice])
    ends = np.cumsum([len(options) for options in few])[:-1]
    places = [part[entry] for part, (_, entry) in zip(np.split(place, ends), own, strict=True)]
    return joined.take(first), places


def _reach(problem: Problem, whole: Sized, limit_bytes: float, cutoff_s: float) -> Reach:
    """What of a family is within memory and cutoff."""
    fit_a, fit_e = (can_fit(memory, limit_bytes) for memory in (whole.memory_attention, whole.memory_expert))
    batches, sizes_a, sizes_e = len(problem.candidates["micro_batch"]), len(whole.attention), len(whole.expert)
    attention = np.zeros((batches, sizes_a), dtype=bool)
    if not len(fit_a) or not len(fit_e):
        return Reach(attention, whole.products[:0], np.zeros((0, sizes_e), dtype=bool))
    reach = within_reach(problem, whole.take(fit_a, fit_e), limit_bytes, cutoff_s)
    attention[:, fit_a] = reach.attention
    expert = np.zeros((len(reach.products), sizes_e), dtype=bool)
    expert[:, fit_e] = reach.expert
    return Reach(attention, reach.products, expert)


def _kept(problem: Problem, whole: Sized, reach: Reach, group: Group, allowed: Mask, listed: _Listed) -> Sized | None:
    """One row's group with the options, DP sizes and products that are within reach; None without any."""
    alive = reach.attention[:, listed.sizes_a]
    attention = np.flatnonzero(alive.any(axis=0))
    batches = np.asarray(problem.candidates["micro_batch"], dtype=np.int64)
    sizes = listed.attention.sizes[2]
    products = np.unique((batches[:, None] * sizes)[alive])
    within = np.asarray(reach.expert[np.isin(reach.products, products)].any(axis=0))
    expert = np.flatnonzero(within[listed.sizes_e])
    if not len(attention) or not len(expert) or not allowed.any():
        return None
    return Sized(
        group,
        whole.dp,
        whole.products,
        allowed,
        listed.attention.take(attention),
        listed.expert.take(expert),
        whole.memory_attention.take(listed.sizes_a[attention]),
        whole.memory_expert.take(listed.sizes_e[expert]),
    ).fed(np.unique(sizes[attention]), batches, products)
