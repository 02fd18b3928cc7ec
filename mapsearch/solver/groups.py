"""Groups of cells, and their axes laid out as arrays that broadcast.

Contents: Group, groups_at, turns, along, cell_view, expert_cell, attention_view, expert_view, holds, allowed_by,
allowed_cells, split_idles, grids, legal_options.

Arrays have the dimensions (dp, micro_batch, pipeline, recompute, zero, offload, option); rows have the level behind.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapsearch.axes import Schedule
from mapsearch.constraints.user import LAYOUT
from mapsearch.costs.layouts import cuts_of, splits_of
from mapsearch.costs.stages import TWO_CHUNK_SCHEDULES, Cut
from mapsearch.costs.views import AttentionView, CellView, ExpertView
from mapsearch.quantity import Num
from mapsearch.solver.options import Options, attention_options, expert_options, nested, of_sizes
from mapsearch.solver.problem import Pipeline, Problem

Mask = NDArray[np.bool_]
VARIANTS = 5
"""Variant dimensions between dp and option."""


@dataclass(frozen=True)
class Group:
    """One used fan-out, one pipeline row, and the schedules, VPP and overlaps of one layout and one split of recompute:
    cells that share lists."""

    used: tuple[int, ...]
    pp_row: tuple[int, ...]
    pipelines: tuple[Pipeline, ...]
    layout: Cut = ()
    """Layers of each chunk; empty: as frameworks cut unless told otherwise."""
    recompute_stages: int = 0
    """Stages from the first on that recompute; 0: all."""

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        return int(np.prod(self.pp_row))

    @property
    def rest(self) -> tuple[int, ...]:
        """Fan-out per level that the pipeline leaves to the grids."""
        return tuple(size // cut for size, cut in zip(self.used, self.pp_row, strict=True))


def layout_class(schedule: int) -> str:
    """Schedules that put the same layers on a stage."""
    if schedule in TWO_CHUNK_SCHEDULES:
        return "folded"
    return "mirrored" if schedule == Schedule.DUALPIPE else "straight"


def groups_at(problem: Problem, used: tuple[int, ...], pp_row: tuple[int, ...], turn: int | None = None) -> list[Group]:
    """The groups of one pipeline row, one per layout of layers and split of recompute; of one turn only, or all."""
    by_layout: dict[str, list[Pipeline]] = {}
    for pipeline in problem.pipelines(int(np.prod(pp_row))):
        by_layout.setdefault(layout_class(pipeline[0]), []).append(pipeline)
    facts, pp = problem.facts, int(np.prod(pp_row))
    found = []
    for pairs in by_layout.values():
        cuts = cuts_of(pp, pairs[0][0], facts.run.layout, model=facts.model, run=facts.run)
        # Explanations also ask what if no layout were asked for.
        cuts = cuts if cuts or any(relation.name == LAYOUT for relation in problem.relations) else [()]
        splits = splits_of(pp, pairs[0][0], facts.run.recompute_stages, problem.candidates["recompute"])
        ways = list(itertools.product(cuts, splits))
        chosen = {None: ways, 0: ways[:1], 1: ways[1:]}[turn]
        found += [Group(used, pp_row, tuple(pairs), *way) for way in chosen]
    return found


def turns(problem: Problem) -> tuple[int, ...]:
    """The first layout and split of every pipeline, and after all of them the others: by then most are above the
    cutoff."""
    run = problem.facts.run
    single = len(run.layout) == len(run.recompute_stages) == 1 and run.layout != ["family"]
    return (0,) if problem.first_look or single else (0, 1)


def along(values: object, position: int) -> NDArray[np.int64]:
    """Values laid along one dimension of the table; `position` -1 is the option dimension."""
    array = np.asarray(values, dtype=np.int64)
    shape = [1] * (VARIANTS + 2)
    shape[position] = len(array)
    return array.reshape(shape)


def cell_view(problem: Problem, group: Group, dp: NDArray[np.int64], **chosen: tuple[Any, ...]) -> CellView:
    """A cell view whose variant axes hold all candidates, or those chosen by name."""
    values = {**problem.candidates, "pipeline": group.pipelines, **chosen}
    pipelines = np.array(values["pipeline"], dtype=np.int64).reshape(-1, 3)
    return CellView(
        facts=problem.facts,
        used=group.used,
        pp_row=group.pp_row,
        dp=dp,
        micro_batch=along(values["micro_batch"], 1),
        schedule=along(pipelines[:, 0], 2),
        vpp=along(pipelines[:, 1], 2),
        recompute=along(values["recompute"], 3),
        zero=along(values["zero"], 4),
        offload=along(values["offload"], 5),
        overlap=along(pipelines[:, 2], 2),
        layout=group.layout,
        recompute_stages=group.recompute_stages,
    )


def expert_cell(problem: Problem, group: Group, products: NDArray[np.int64]) -> CellView:
    """The cell as the expert grid sees it: DP x microbatch in the place of DP."""
    return cell_view(problem, group, along(products, 0), micro_batch=(1,))


def rows_along(row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows laid along the option dimension, the level last."""
    return row.reshape((1,) * (VARIANTS + 1) + row.shape)


def attention_view(cell: CellView, options: Options) -> AttentionView:
    """The attention options of a cell view as a relation or quantity sees them."""
    tp, cp, _ = (along(size, -1) for size in options.sizes)
    tp_row, cp_row, dp_row = (rows_along(row) for row in options.rows)
    return AttentionView(cell, tp, cp, tp_row, cp_row, dp_row, along(options.choice, -1))


def expert_view(cell: CellView, options: Options) -> ExpertView:
    """The expert options of a cell view as a relation or quantity sees them."""
    etp, ep, edp = (along(size, -1) for size in options.sizes)
    etp_row, ep_row, edp_row = (rows_along(row) for row in options.rows)
    return ExpertView(cell, etp, ep, edp, etp_row, ep_row, edp_row, along(options.choice, -1))


def holds(relation: object, view: object) -> Num:
    """Where a relation's margin is not negative."""
    return np.asarray(relation.demand(view)) <= np.asarray(relation.limit(view))  # type: ignore[attr-defined]


def allowed_by(problem: Problem, side: str, view: object, shape: tuple[int, ...]) -> Mask:
    """Where all of the problem's relations of one side hold; at least of the given shape."""
    mask = np.ones(shape, dtype=bool)
    for relation in problem.side(side):  # type: ignore[arg-type]
        mask = mask & holds(relation, view)
    return mask


def allowed_cells(problem: Problem, cell: CellView) -> Mask:
    """Where all cell relations hold: shape (dp, micro_batch, pipeline, recompute, zero, offload, 1)."""
    axes = (cell.dp, cell.micro_batch, cell.vpp, cell.recompute, cell.zero, cell.offload)
    shape = np.broadcast_shapes(*(np.shape(axis) for axis in axes))
    allowed = np.broadcast_to(allowed_by(problem, "cell", cell, shape), shape)
    return allowed & (np.asarray(cell.recompute) != 0) if split_idles(problem, cell.recompute_stages) else allowed


def split_idles(problem: Problem, recompute_stages: int) -> bool:
    """True where a split without any recompute stands beside the same cells in a group without a split."""
    return bool(recompute_stages) and "all" in problem.facts.run.recompute_stages


def grids(problem: Problem, group: Group) -> tuple[Options, Options]:
    """All options of both grids in a group, before any relation."""
    attention = attention_options(group.rest, problem.candidates["cp_kind"])
    expert = expert_options(group.rest, problem.candidates["dispatcher"], problem.facts.model.moe is not None)
    if problem.sizes is not None:
        return of_sizes(attention, problem.sizes[0]), of_sizes(expert, problem.sizes[1])
    return (nested(attention), nested(expert)) if problem.first_look else (attention, expert)


def legal_options(problem: Problem, side: str, group: Group, options: Options) -> Options:
    """Options that some variant of the group allows: most are cut here, before anything is costed."""
    if not len(options):
        return options
    dp = along(options.sizes[2], -1) if side == "attention" else along([1], 0)
    first = {name: problem.candidates[name][:1] for name in ("micro_batch", "recompute", "zero", "offload")}
    cell = cell_view(problem, group, dp, pipeline=group.pipelines[:1], **first)
    view = attention_view(cell, options) if side == "attention" else expert_view(cell, options)
    mask = allowed_by(problem, side, view, (1,) * (VARIANTS + 1) + (len(options),))
    return options.take(np.flatnonzero(mask.reshape(-1, len(options)).any(axis=0)))
