"""The space of a search before anything is tabulated: its pipeline rows, and how large it is.

Contents: rows_of, count_space.
"""

from __future__ import annotations

import math

from mapsearch.solver.groups import groups_at, split_idles
from mapsearch.solver.options import option_counts, pipeline_rows
from mapsearch.solver.problem import Problem


def rows_of(problem: Problem) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Used fan-outs and pipeline rows of a problem, in a fixed order.

    Most devices first, then pipelines that run along one level: good mappings are often there, and early ones help.
    """
    layers = problem.facts.model.layers
    rows = [(used, row) for used in problem.used for row in pipeline_rows(used, layers)]
    if problem.first_look:
        # One row for each number of stages, cut as far outside as possible.
        rows = list({math.prod(r[1]): r for r in sorted(rows, key=lambda r: (math.prod(r[0]), r[1][::-1]))}.values())
    return sorted(rows, key=lambda r: (-math.prod(r[0]), sum(cut > 1 for cut in r[1]) > 1, math.prod(r[1])))


def count_space(problem: Problem, used: tuple[int, ...], row: tuple[int, ...]) -> tuple[int, int, int]:
    """Joint mappings, cells and grid options of a pipeline row, before any relation but the fan-out's own."""
    groups = groups_at(problem, used, row)
    if not groups:
        return 0, 0, 0
    kinds, dispatchers = (len(problem.candidates[name]) for name in ("cp_kind", "dispatcher"))
    moe = problem.facts.model.moe is not None
    attention, expert, sizes = option_counts(groups[0].rest, kinds, dispatchers, moe)
    names = ("micro_batch", "recompute", "zero", "offload")
    variants = math.prod(len(problem.candidates[name]) for name in names)
    idle = variants // len(problem.candidates["recompute"]) if 0 in problem.candidates["recompute"] else 0
    variants = sum(
        (variants - idle * split_idles(problem, group.recompute_stages)) * len(group.pipelines) for group in groups
    )
    return attention * expert * variants, variants * sizes, attention + expert
