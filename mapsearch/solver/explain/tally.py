"""What each relation rejects, counted over joint mappings from the tables.

Contents: Tally, tally_of.

Rules of cells and grids are counted exactly from the sets of rules that cells and options break. Memory and exposure
need a cell with an option of each grid; they are counted where that is few enough numbers to go through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.quantity import Num
from mapsearch.relation import Relation
from mapsearch.solver.bounds import by_microbatch
from mapsearch.solver.cells import block_of, evaluate_block
from mapsearch.solver.explain.conflict import blamed
from mapsearch.solver.explain.probe import MEMORY, Probe
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import BLOCK
from mapsearch.solver.sized import Sized, sized_groups
from mapsearch.solver.space import rows_of
from mapsearch.solver.tables import tabulate

COMPARED = 3e8
"""Sums of bytes that are compared with a limit at most."""
AT_ONCE = 2e7
"""The same in one array, so that it stays small."""
TIMED = 2e6
"""Mappings whose step times are computed at most."""


class TooMany(Exception):
    """Counting would take too long."""


@dataclass(frozen=True)
class Tally:
    """How many joint mappings relations reject."""

    rejections: dict[str, int] = field(default_factory=dict)
    first_rejections: dict[str, int] = field(default_factory=dict)
    rejections_of: int = 0
    rejections_note: str = ""


def tally_of(probe: Probe, cores: list[list[Relation]], *, thorough: bool) -> Tally:
    """The tally of a problem with these conflicts; `thorough` counts what memory and exposure reject one by one.

    Without that only a limit that is a conflict by itself is counted: it rejects every mapping. Raises OutOfTime.
    """
    masks, problem = probe.masks, probe.problem
    alone = sorted((r for r in problem.relations if r.side != "pair"), key=blamed)
    pair = [relation.name for relation in problem.side("pair")]
    every, first = masks.rejections(), masks.first_rejections(alone)
    if thorough:
        counts = _counted_pairs(probe, alone, pair)
    else:
        laid_out = masks.mappings - every.get("layers_fill_stages", 0)
        hopeless = [core[0].name for core in cores if len(core) == 1]
        counts = _hopeless(pair, hopeless, laid_out, masks.mappings - sum(first.values()))
    for name in pair:
        all_of_them, of_the_rest = counts.get(name, (0, 0))
        every |= {name: all_of_them} if all_of_them else {}
        first |= {name: of_the_rest} if of_the_rest else {}
    order = [relation.name for relation in problem.relations]
    return Tally(
        {name: every[name] for name in order if name in every},
        first,
        masks.mappings,
        _note(masks.mappings, pair, [name for name in pair if name not in counts]),
    )


Counts = dict[str, tuple[int, int]]
"""Mappings that a relation rejects alone, and those of them that all relations before it accept."""


def _hopeless(pair: list[str], hopeless: list[str], laid_out: int, left: int) -> Counts:
    """Counts where one limit rejects all there is; of the limits before it nothing is known."""
    first = next((place for place, name in enumerate(pair) if name in hopeless), None)
    if first != 0:
        return {}
    return {name: (laid_out, left if place == 0 else 0) for place, name in enumerate(pair) if name in hopeless}


def _counted_pairs(probe: Probe, alone: list[Relation], pair: list[str]) -> Counts:
    rejected = _chain(probe, [], [[name] for name in pair])
    in_order = _chain(probe, alone, [pair[: place + 1] for place in range(len(pair))])
    counts: Counts = {}
    for place, name in enumerate(pair):
        whole, kept, before, after = rejected[0], rejected[place + 1], in_order[place], in_order[place + 1]
        if whole is not None and kept is not None and before is not None and after is not None:
            counts[name] = whole - kept, before - after
    return counts


def _note(mappings: int, pair: list[str], uncounted: list[str]) -> str:
    text = (
        f"of {mappings:,} joint mappings: every cut of the levels over both grids with every choice that the run offers"
    )
    counted = [name for name in pair if name not in uncounted]
    if counted:
        text += f"; {', '.join(counted)}: of those with a layer for each pipeline chunk"
    if uncounted:
        text += f"; {', '.join(uncounted)}: not counted"
    return text


def _chain(probe: Probe, rules: list[Relation], limits: list[list[str]]) -> list[int | None]:
    """How many mappings with a layout keep some rules, and of these each list of limits; None: too many to count."""
    ruled = probe.subset(rules)
    names = {relation.name for relation in rules}
    wanted: list[list[str]] = [[], *limits]
    memory = [one for one in wanted if all(name in MEMORY for name in one)]
    counts = dict(zip(map(tuple, memory), _sized(probe, ruled, memory, [COMPARED]), strict=True))
    for one in wanted:
        if tuple(one) not in counts:
            counts[tuple(one)] = _timed(probe, probe.subset_of(names | set(one)))
    return [counts[tuple(one)] for one in wanted]


def _timed(probe: Probe, problem: Problem) -> int | None:
    """Mappings that satisfy all relations, step times included."""
    free = problem.without("hbm")  # the tables then hold every option
    total, left = 0, TIMED
    for used, row in rows_of(free):
        probe.hurry()
        for tables in tabulate(free, used, row, prune=False):
            expert = np.arange(len(tables.expert.options))
            for position in range(len(tables.dp)):
                attention = np.flatnonzero(tables.attention.options.sizes[2] == tables.dp[position])
                cells = [(position, *place[:-1]) for place in np.argwhere(tables.allowed[position]).tolist()]
                left -= len(cells) * len(attention) * len(expert)
                if left < 0:
                    return None
                for start in range(0, len(cells) if len(attention) else 0, BLOCK):
                    block = block_of(tables, cells[start : start + BLOCK], attention, expert)
                    total += int(evaluate_block(problem, block).feasible.sum())
    return total


def _sized(probe: Probe, ruled: Problem, limits: list[list[str]], budget: list[float]) -> list[int | None]:
    """Mappings that keep all rules and each list of memory limits."""
    device = ruled.facts.fabric.device
    bytes_of = {"hbm": usable_hbm_bytes(ruled.facts), "host_memory": device.host_memory_bytes}
    bytes_of["nvme_capacity"] = device.nvme_bytes
    totals: list[int | None] = [0 for _ in limits]
    for used, row in rows_of(ruled):
        probe.hurry()
        for sized in sized_groups(ruled, used, row):
            for position in range(len(sized.dp)):
                for number, names in enumerate(limits):
                    total = totals[number]
                    if total is None:
                        continue
                    try:
                        asked = {name: bytes_of[name] for name in names}
                        totals[number] = total + _slice(ruled, sized, position, asked, budget)
                    except TooMany:
                        totals[number] = None
    return totals


def _slice(problem: Problem, sized: Sized, position: int, limits: dict[str, float], budget: list[float]) -> int:
    """Mappings of one DP size within all limits: options of equal bytes are compared once and counted together."""
    own = np.flatnonzero(sized.attention.sizes[2] == sized.dp[position])
    allowed = sized.allowed[position]
    if not len(own) or not allowed.any():
        return 0
    memory_a, memory_e = sized.memory_attention.take(own), sized.memory_expert
    weights_a, weights_e = np.bincount(memory_a.entry), np.bincount(memory_e.entry)
    pick = by_microbatch(
        sized.products, int(sized.dp[position]), np.array(problem.candidates["micro_batch"], dtype=np.int64)
    )
    left: dict[str, list[tuple[Num, Num]]] = {}
    whole = allowed[None, ..., 0]
    stores = {"hbm": (memory_a.hbm, memory_e.hbm), "host_memory": (memory_a.host, memory_e.host)}
    stores["nvme_capacity"] = (memory_a.nvme, memory_e.nvme)
    for name, limit in limits.items():
        for a, e in zip(*stores[name], strict=True):
            first, second = _full(a), _full(pick(e))
            least = first.min(axis=-1) + second.min(axis=-1)
            most = first.max(axis=-1) + second.max(axis=-1)
            whole = whole & (least <= limit)
            if (most > limit).any():
                left.setdefault(name, []).append((first, second))
    cells = int(whole.sum())
    if not left or not cells:
        return cells * int(weights_a.sum()) * int(weights_e.sum())
    return _compared(left, limits, whole, (weights_a, weights_e), budget)


def _full(value: Num) -> NDArray[Any]:
    """A table's values with all its dimensions."""
    array = np.asarray(value)
    return array.reshape((1,) * 7) if array.ndim == 0 else array


def _compared(
    left: dict[str, list[tuple[Num, Num]]],
    limits: dict[str, float],
    whole: NDArray[np.bool_],
    weights: tuple[NDArray[np.int64], NDArray[np.int64]],
    budget: list[float],
) -> int:
    """Pairs of entries within all limits, each counted as often as options share its bytes.

    Micro-batch by micro-batch, so that less memory is needed at a time. Raises TooMany.
    """
    pairs = [(np.asarray(a), np.asarray(e), limits[name]) for name, found in left.items() for a, e in found]
    total = 0
    for batch in range(whole.shape[1]):

        def part(array: NDArray[Any], batch: int = batch) -> NDArray[Any]:
            return array[:, batch : batch + 1] if array.shape[1] > 1 else array

        fits = part(whole)[..., None, None]
        for a, e, limit in pairs:
            first, second = part(a)[..., :, None], part(e)[..., None, :]
            size = math.prod(np.broadcast_shapes(fits.shape, first.shape, second.shape))
            budget[0] -= size
            if budget[0] < 0 or size > AT_ONCE:
                raise TooMany
            fits = fits & (first + second <= limit)
        counts = fits.sum(axis=tuple(range(fits.ndim - 2)))
        total += int(weights[0] @ np.broadcast_to(counts, (len(weights[0]), len(weights[1]))) @ weights[1])
    return total
