"""What each relation of cells and grids accepts, over everything a fabric allows, so that any set is judged at once.

Contents: Masks, minimal.

Unlike the search, nothing is left out beforehand: pipelines may have more stages than layers, and DP may be any size,
so that relations which the search builds in (whole batches, a layer per chunk) can be found guilty as well.

What a cell or an option breaks is a set of relations, kept as the bits of a number. There are few different ones, so
each is kept once with how many cells or options break just these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mapsearch.costs.views import CellView
from mapsearch.relation import Relation
from mapsearch.solver.groups import Group, along, attention_view, cell_view, expert_view, grids, holds
from mapsearch.solver.options import divisors
from mapsearch.solver.problem import Problem

Codes = NDArray[np.int64]
SIDES = ("cell", "attention", "expert")


@dataclass(frozen=True)
class _Broken:
    """Different sets of broken relations of one side, and how many cells or options break each."""

    codes: Codes
    counts: Codes

    @property
    def size(self) -> int:
        """All cells or options."""
        return int(self.counts.sum())

    def breaking(self, bit: int) -> int:
        """How many break one relation."""
        return int(self.counts[(self.codes >> bit) & 1 == 1].sum())

    def without(self, mask: int) -> int:
        """How many break none of the relations in a mask."""
        return int(self.counts[self.codes & mask == 0].sum())


@dataclass(frozen=True)
class _Grids:
    """Both grids over what a pipeline leaves."""

    dp: NDArray[np.int64]
    """DP sizes, one entry each."""
    attention: list[_Broken]
    """For each DP size."""
    expert: _Broken


@dataclass(frozen=True)
class _Row:
    """One pipeline row: its cells for each DP size, and its grids."""

    cells: list[_Broken]
    grids: _Grids

    def slices(self) -> Iterator[tuple[_Broken, _Broken, _Broken]]:
        """Cells, attention and expert options that may be joined: those of one DP size."""
        for cells, attention in zip(self.cells, self.grids.attention, strict=True):
            yield cells, attention, self.grids.expert


def minimal(sets: Iterable[int]) -> list[int]:
    """Those sets, as bits, that contain no other one; smallest first."""
    kept: list[int] = []
    for one in sorted(set(sets), key=lambda bits: (bits.bit_count(), bits)):
        if not any(other & one == other for other in kept):
            kept.append(one)
    return kept


class Masks:
    """Which cells and options each relation accepts."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._by_rest: dict[tuple[int, ...], _Grids] = {}
        self._sides: dict[str, list[Relation]] = {side: list(problem.side(side)) for side in SIDES}  # type: ignore[arg-type]
        self.relations = [relation for side in SIDES for relation in self._sides[side]]
        """Relations of cells and grids; the place in this list is the bit in a joint set."""
        self._rows = [row for used in problem.used for row in self._rows_of(used)]

    @cached_property
    def least_broken(self) -> list[frozenset[str]]:
        """What mappings break at least: every mapping breaks all relations of one of these sets."""
        found: set[int] = set()
        seen = set()
        widths = [len(self._sides[side]) for side in SIDES]
        for row in self._rows:
            for parts in row.slices():
                lists = tuple(tuple(minimal(part.codes.tolist())) for part in parts)
                if lists not in seen:
                    seen.add(lists)
                    found |= {
                        c | a << widths[0] | e << (widths[0] + widths[1]) for c, a, e in itertools.product(*lists)
                    }
        return [self._names(code) for code in minimal(found)]

    def _names(self, code: int) -> frozenset[str]:
        return frozenset(relation.name for bit, relation in enumerate(self.relations) if code >> bit & 1)

    def legal(self, names: Iterable[str]) -> bool:
        """Whether some mapping satisfies all the named relations of cells and grids."""
        asked = frozenset(names)
        return any(not broken & asked for broken in self.least_broken)

    @cached_property
    def mappings(self) -> int:
        """Joint mappings that the fabric and the run's choices allow, before any relation."""
        return sum(math.prod(part.size for part in parts) for row in self._rows for parts in row.slices())

    def rejections(self) -> dict[str, int]:
        """How many joint mappings each relation alone rejects; relations that reject none are left out."""
        counts = dict.fromkeys((relation.name for relation in self._problem.relations), 0)
        for row in self._rows:
            for parts in row.slices():
                sizes = [part.size for part in parts]
                for place, side in enumerate(SIDES):
                    others = math.prod(sizes[:place] + sizes[place + 1 :])
                    for bit, relation in enumerate(self._sides[side]):
                        counts[relation.name] += parts[place].breaking(bit) * others
        return {name: count for name, count in counts.items() if count}

    def first_rejections(self, order: Iterable[Relation]) -> dict[str, int]:
        """How many joint mappings each relation rejects that those before it in the order accept."""
        counts: dict[str, int] = {}
        masks = dict.fromkeys(SIDES, 0)
        before = self.mappings
        for relation in order:
            masks[relation.side] |= 1 << self._sides[relation.side].index(relation)
            after = sum(
                math.prod(part.without(masks[side]) for part, side in zip(parts, SIDES, strict=True))
                for row in self._rows
                for parts in row.slices()
            )
            counts[relation.name] = before - after
            before = after
        return {name: count for name, count in counts.items() if count}

    def _rows_of(self, used: tuple[int, ...]) -> Iterator[_Row]:
        for pp_row in itertools.product(*(divisors(size) for size in used)):
            pipelines = self._problem.pipelines(math.prod(pp_row), filled=False)
            if not pipelines:
                continue
            group = Group(used, pp_row, pipelines)
            options = self._grids(group)
            view = cell_view(self._problem, group, along(options.dp, 0))
            axes = (view.dp, view.micro_batch, view.vpp, view.recompute, view.zero, view.offload)
            codes = self._codes("cell", view, np.broadcast_shapes(*(np.shape(axis) for axis in axes)))
            yield _Row([_counted(row) for row in codes.reshape(len(options.dp), -1)], options)

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
            a_codes = self._codes("attention", a_view, np.shape(a_view.tp)).reshape(-1)
            e_codes = self._codes("expert", e_view, np.shape(e_view.ep)).reshape(-1)
            dp, place = np.unique(attention.sizes[2], return_inverse=True)
            by_dp = [_counted(a_codes[place.reshape(-1) == number]) for number in range(len(dp))]
            self._by_rest[group.rest] = _Grids(dp, by_dp, _counted(e_codes))
        return self._by_rest[group.rest]

    def _codes(self, side: str, view: object, shape: tuple[int, ...]) -> Codes:
        """The relations of one side that each cell or option breaks, as bits."""
        codes = np.zeros(shape, dtype=np.int64)
        for bit, relation in enumerate(self._sides[side]):
            broken = ~np.asarray(holds(relation, view), dtype=bool)
            codes |= broken.astype(np.int64) << bit
        return codes


def _counted(codes: Codes) -> _Broken:
    return _Broken(*np.unique(codes, return_counts=True))
