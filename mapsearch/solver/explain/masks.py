"""Relations of cells and grids as masks over everything a fabric allows, so that any set of them is judged at once.

Contents: Masks.

Unlike the search, nothing is left out beforehand: pipelines may have more stages than layers, and DP may be any size,
so that relations which the search builds in (whole batches, a layer per chunk) can be found guilty as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.costs.views import CellView
from mapsearch.solver.groups import Group, Mask, along, attention_view, cell_view, expert_view, grids, holds
from mapsearch.solver.options import divisors
from mapsearch.solver.problem import Problem

ByRelation = dict[str, Mask]


@dataclass(frozen=True)
class _Grids:
    """Both grids over what a pipeline leaves: per relation, the options it accepts."""

    dp: NDArray[np.int64]
    """DP sizes, one entry each."""
    place: NDArray[np.intp]
    """For each attention option, the entry of its DP size."""
    attention: ByRelation
    expert: ByRelation
    sizes: tuple[int, int]


@dataclass(frozen=True)
class _Row:
    """One pipeline row: its cells (per relation, shape (dp, variants)) and its grids."""

    stages: int
    cells: ByRelation
    variants: int
    grids: _Grids


class Masks:
    """Which cells and options each relation accepts, by name."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._by_rest: dict[tuple[int, ...], _Grids] = {}
        self._rows = [row for used in problem.used for row in self._rows_of(used)]

    def legal(self, names: Iterable[str]) -> bool:
        """Whether some mapping satisfies all the named relations of cells and grids."""
        asked = list(names)
        return any(_legal(row, asked) for row in self._rows)

    def rejections(self) -> dict[str, int]:
        """How many cells or grid options each relation alone rejects; relations that reject none are left out.

        Pipelines with more stages than layers are not counted.
        """
        counts: dict[str, int] = {}
        for row in self._rows:
            if row.stages > self._problem.facts.model.layers:
                continue
            for masks in (row.cells, row.grids.attention, row.grids.expert):
                for name, mask in masks.items():
                    counts[name] = counts.get(name, 0) + int(mask.size - mask.sum())
        order = [relation.name for relation in self._problem.relations]
        return {name: counts[name] for name in order if counts.get(name)}

    def _rows_of(self, used: tuple[int, ...]) -> Iterator[_Row]:
        for pp_row in itertools.product(*(divisors(size) for size in used)):
            pipelines = self._problem.pipelines(math.prod(pp_row), filled=False)
            if not pipelines:
                continue
            group = Group(used, pp_row, pipelines)
            options = self._grids(group)
            view = cell_view(self._problem, group, along(options.dp, 0))
            axes = (view.dp, view.micro_batch, view.vpp, view.recompute, view.zero, view.offload)
            shape = np.broadcast_shapes(*(np.shape(axis) for axis in axes))
            cells = {name: mask.reshape(len(options.dp), -1) for name, mask in self._masks("cell", view, shape)}
            yield _Row(group.pp, cells, math.prod(shape[1:]), options)

    def _grids(self, group: Group) -> _Grids:
        """Rules of a grid read its own option only, so pipeline rows that leave the same levels share them."""
        if group.rest not in self._by_rest:
            problem = self._problem
            attention, expert = grids(problem, group)
            first = {name: problem.candidates[name][:1] for name in ("micro_batch", "recompute", "zero", "offload")}

            def cell(sizes: NDArray[np.int64], place: int) -> CellView:
                return cell_view(problem, group, along(sizes, place), pipeline=group.pipelines[:1], **first)

            a_view = attention_view(cell(attention.sizes[2], -1), attention)
            e_view = expert_view(cell(np.array([1]), 0), expert)
            dp, place = np.unique(attention.sizes[2], return_inverse=True)
            self._by_rest[group.rest] = _Grids(
                dp,
                place.reshape(-1),
                {name: mask.reshape(-1) for name, mask in self._masks("attention", a_view, np.shape(a_view.tp))},
                {name: mask.reshape(-1) for name, mask in self._masks("expert", e_view, np.shape(e_view.ep))},
                (len(attention), len(expert)),
            )
        return self._by_rest[group.rest]

    def _masks(self, side: str, view: object, shape: tuple[int, ...]) -> Iterator[tuple[str, Mask]]:
        for relation in self._problem.side(side):  # type: ignore[arg-type]
            yield relation.name, np.broadcast_to(holds(relation, view), shape).astype(bool)


def _all(masks: ByRelation, names: list[str], shape: tuple[int, ...]) -> Mask:
    """What every named relation of one side accepts."""
    accepted = np.ones(shape, dtype=bool)
    for name in names:
        if name in masks:
            accepted &= masks[name]
    return accepted


def _legal(row: _Row, names: list[str]) -> bool:
    options = row.grids
    if not _all(options.expert, names, (options.sizes[1],)).any():
        return False
    fed = _all(row.cells, names, (len(options.dp), row.variants)).any(axis=1)
    return bool((np.asarray(fed)[options.place] & _all(options.attention, names, (options.sizes[0],))).any())
