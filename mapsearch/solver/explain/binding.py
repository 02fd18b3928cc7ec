"""Binding in value: the least relaxation of a limit that unlocks a faster mapping (FORMULAS 7.1).

Contents: bindings, nearest_bindings.

For every ranked mapping: among the mappings that are faster than it and break only one limit, the one that breaks it
least. Zero slack is neither needed nor enough for a limit to bind. HBM is looked at up to `tables.WHAT_IF` of its
limit, exposure limits up to the whole step.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field

import numpy as np

from mapsearch.answer import Binding
from mapsearch.axes import Offload, first_stages, written
from mapsearch.constraints.capacity import bytes_text, usable_hbm_bytes
from mapsearch.costs.stages import Cut
from mapsearch.costs.step import StageSum
from mapsearch.quantity import Floats
from mapsearch.relation import Relation
from mapsearch.solver.bounds import Slice, memory_floor, memory_limit, quick_bound, slice_bounds
from mapsearch.solver.cells import Block, Index, block_of, evaluate_block, option_bounds, pair_view, widened
from mapsearch.solver.explain.probe import OutOfTime
from mapsearch.solver.explain.relax import rounded_up
from mapsearch.solver.options import Ints
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import KEY
from mapsearch.solver.search import BLOCK, LOOK_AHEAD, Search, key_of
from mapsearch.solver.tables import WHAT_IF, Tables
from mapsearch.solver.top import Candidate, Key

RELAXABLE = ("hbm", "host_memory", "nvme_capacity", "exposed")
"""Relations (by the start of their name) whose limit is a number that a user can raise."""


@dataclass(frozen=True)
class Blocked:
    """A faster mapping that breaks one limit: by how much, and which it is."""

    excess: float
    """Demand over limit: bytes per device, or a share of this mapping's step for limits of exposure."""
    step_time_s: float
    key: Key
    layout: Cut = ()
    recompute_stages: int = 0


@dataclass
class Frontier:
    """Blocked mappings that no other one beats in both excess and step time."""

    points: list[Blocked] = field(default_factory=list)

    def covers(self, excess: float, step_time_s: float) -> bool:
        """True when some point is at least as good in both."""
        return any(p.excess <= excess and p.step_time_s <= step_time_s for p in self.points)

    def add(self, point: Blocked) -> None:
        """Take a point in unless it is covered."""
        if not self.covers(point.excess, point.step_time_s):
            self.points = [
                p for p in self.points if not (point.excess <= p.excess and point.step_time_s <= p.step_time_s)
            ]
            self.points.append(point)

    def steps(self, faster_than_s: float) -> list[Blocked]:
        """What more and more excess unlocks, each faster than the one before and than a given time."""
        taken: list[Blocked] = []
        for point in sorted(self.points, key=lambda p: (p.excess, p.step_time_s, p.key)):
            if point.step_time_s < faster_than_s * (1.0 - 1e-9):
                taken.append(point)
                faster_than_s = point.step_time_s
        return taken

    def nearest(self, faster_than_s: float) -> Blocked | None:
        """The least excess that unlocks something faster."""
        better = [p for p in self.points if p.step_time_s < faster_than_s * (1.0 - 1e-9)]
        return min(better, key=lambda p: (p.excess, p.step_time_s, p.key)) if better else None


def bindings(problem: Problem, found: Search, deadline: float | None = None) -> list[tuple[Binding | None, str]]:
    """For each ranked mapping: what binds it, or a sentence that says why no single limit does.

    When the time ends, or the user stops it, no mapping gets a binding: a limit that was not looked at might be nearer.
    """
    if not found.top:
        return []
    relations = [r for r in problem.side("pair") if r.name.startswith(RELAXABLE) and _may_bind(problem, r)]
    fronts: dict[str, Frontier] = {}
    try:
        for relation in relations:
            if deadline is not None and time.monotonic() > deadline:
                return [(None, "the time limit left no time to find what binds")] * len(found.top)
            fronts[relation.name] = _nearest_front(problem, found, relation)
    except KeyboardInterrupt:
        return [(None, "interrupted before what binds was found")] * len(found.top)
    return [_binding(problem, candidate, relations, fronts) for candidate in found.top]


def nearest_bindings(
    problem: Problem, found: Search, candidate: Candidate, count: int, deadline: float | None
) -> list[Binding]:
    """The nearest relaxations that unlock something faster than a ranked mapping: of every limit the nearest first.

    A limit's next steps follow, as far as `WHAT_IF` reaches, each of which unlocks something faster still; relative
    excess decides the order. Exact as `bindings` is. Raises OutOfTime.
    """
    relations = [r for r in problem.side("pair") if r.name.startswith(RELAXABLE) and _may_bind(problem, r)]
    firsts: list[tuple[float, Relation, Blocked]] = []
    later: list[tuple[float, Relation, Blocked]] = []
    for relation in relations:
        if deadline is not None and time.monotonic() > deadline:
            raise OutOfTime
        front = blocked_by(problem, found, relation, every=True)
        steps = front.steps(candidate.step_time_s)
        ranked = [(step.excess / _scale(problem, relation), relation, step) for step in steps]
        firsts += ranked[:1]
        later += ranked[1:]
    order = [*sorted(firsts, key=lambda entry: entry[0]), *sorted(later, key=lambda entry: entry[0])]
    return [_told(problem, candidate, relation, point) for _, relation, point in order[:count]]


def _may_bind(problem: Problem, relation: Relation) -> bool:
    """False for a store to which no candidate offloads anything."""
    if relation.name not in ("host_memory", "nvme_capacity"):
        return True
    to_nvme = relation.name == "nvme_capacity"
    return any(code and bool(code & Offload.NVME) == to_nvme for code in problem.candidates["offload"])


STEPS = (LOOK_AHEAD, WHAT_IF)
"""Shares of the HBM limit that are tried in turn: the nearest unlocked mapping is in the first that has one."""


def _nearest_front(problem: Problem, found: Search, relation: Relation) -> Frontier:
    """The frontier as far as it takes to unlock something faster than the fastest mapping."""
    fastest = min(c.step_time_s for c in found.top)
    front = Frontier()
    for share in STEPS if relation.name == "hbm" else (1.0,):
        front = blocked_by(problem, found, relation, share)
        nearest = front.nearest(fastest)
        # Cells that need more than this share were not looked at, so what lies beyond it may not be the nearest.
        if nearest is not None and nearest.excess <= (share - 1.0) * memory_limit(problem):
            break
    return front


def blocked_by(
    problem: Problem, found: Search, relation: Relation, share: float = WHAT_IF, *, every: bool = False
) -> Frontier:
    """The frontier of mappings faster than the slowest listed one that break only this relation.

    `share` of the HBM limit is what a mapping may need, whichever relation is asked for. `every` goes on beyond the
    point nearest to the fastest mapping.
    """
    free = problem.without(relation.name)
    slower_s = max(c.step_time_s for c in found.top)
    reach = _Reach(relation, share * memory_limit(problem), memory_limit(problem), slower_s)
    front, fastest = Frontier(), min(c.step_time_s for c in found.top)
    heap: list[tuple[float, int, int, int]] = []
    lists: dict[tuple[int, int], _Cells] = {}
    for number, tables in enumerate(found.groups):
        for position in range(len(tables.dp)):
            known = _known(problem, found, number, position, share, reach)
            cells = _cells(tables, position, reach, known) if known else None
            if cells and cells.cells:
                lists[number, position] = cells
                heap.append((float(cells.excess[0]), number, position, 0))
    heapq.heapify(heap)
    while heap:
        excess, number, position, rank = heapq.heappop(heap)
        nearest = None if every else front.nearest(fastest)
        if nearest is not None and excess >= nearest.excess:
            break
        cells, tables = lists[number, position], found.groups[number]
        stop = min(rank + BLOCK, len(cells.cells))
        _collect(free, tables, cells, rank, stop, reach, front)
        if stop < len(cells.cells):
            heapq.heappush(heap, (float(cells.excess[stop]), number, position, stop))
    return front


@dataclass(frozen=True)
class _Reach:
    """How far a relaxation goes."""

    relation: Relation
    memory_bytes: float
    """Bytes per device that a mapping may need."""
    limit_bytes: float
    slower_s: float
    """Only faster mappings are of interest."""


@dataclass(frozen=True)
class _Cells:
    """Cells of one DP size that could be faster without the relation, by the least excess they could have."""

    cells: list[Index]
    excess: Floats
    best_attention: list[StageSum]
    best_expert: list[StageSum]


def _known(problem: Problem, found: Search, number: int, position: int, share: float, reach: _Reach) -> Slice | None:
    """Bounds of one DP size: the search's own where they reach far enough; None where nothing can be faster."""
    opened = found.opened.get((number, position))
    # Sizes that expose too much were not opened either, however fast they are.
    if share <= LOOK_AHEAD and (opened or not any(_is_share(relation) for relation in problem.relations)):
        return opened.sharp if opened else None
    tables = found.groups[number]
    if quick_bound(tables, position, reach.memory_bytes) >= reach.slower_s:
        return None
    return slice_bounds(tables, position, reach.memory_bytes)


def _cells(tables: Tables, position: int, reach: _Reach, sharp: Slice) -> _Cells:
    inside = sharp.bounds < reach.slower_s
    excess = np.zeros(inside.shape)
    if reach.relation.name == "hbm":
        excess = np.maximum(memory_floor(tables, position) - reach.limit_bytes, 0.0)
    excess = np.broadcast_to(excess, inside.shape)
    places = np.argwhere(inside)
    values = excess[inside]
    order = np.lexsort((sharp.bounds[inside], values))
    cells = [(position, *place) for place in places[order].tolist()]
    return _Cells(cells, values[order], sharp.best_attention, sharp.best_expert)


def _collect(
    free: Problem, tables: Tables, cells: _Cells, start: int, stop: int, reach: _Reach, front: Frontier
) -> None:
    """Add the blocked pairs of a block of cells to the frontier."""
    block, attention, expert = _narrowed(tables, cells, start, stop, reach.slower_s)
    if not len(attention) or not len(expert):
        return
    result, view, relation = evaluate_block(free, block), pair_view(widened(block)), reach.relation
    over = relation.demand(view) - relation.limit(view)
    excess = np.broadcast_to(over / result.step_time_s if _is_share(relation) else over, result.step_time_s.shape)
    hits = result.feasible & (result.step_time_s < reach.slower_s) & (excess > 0.0)
    if relation.name == "hbm":
        # Options that fit each on its own may need more together; beyond the reach not all mappings are looked at.
        hits &= excess <= reach.memory_bytes - reach.limit_bytes
    places = np.argwhere(hits)
    order = np.lexsort((result.step_time_s[hits], excess[hits]))
    fastest = np.inf
    for number, i, j in places[order]:
        seconds = float(result.step_time_s[number, i, j])
        if seconds >= fastest:
            continue
        fastest = seconds
        key = key_of(tables, block.cells[number], int(attention[i]), int(expert[j]))
        group = tables.group
        front.add(Blocked(float(excess[number, i, j]), seconds, key, group.layout, group.recompute_stages))


def _narrowed(tables: Tables, cells: _Cells, start: int, stop: int, slower_s: float) -> tuple[Block, Ints, Ints]:
    """The block of cells with the options that could be faster at all."""
    chosen = cells.cells[start:stop]
    attention = np.flatnonzero(tables.attention.options.sizes[2] == tables.dp[chosen[0][0]])
    expert = np.arange(len(tables.expert.options))
    block = block_of(tables, chosen, attention, expert)
    bounds = option_bounds(block, cells.best_attention, cells.best_expert)
    attention = attention[(bounds[0] < slower_s).any(axis=0)]
    expert = expert[(bounds[1] < slower_s).any(axis=0)]
    if not len(attention) or not len(expert):
        return block, attention, expert
    return block_of(tables, chosen, attention, expert), attention, expert


def _binding(
    problem: Problem, candidate: Candidate, relations: list[Relation], fronts: dict[str, Frontier]
) -> tuple[Binding | None, str]:
    """The relation whose relative relaxation is smallest, or a note that none helps."""
    nearest = {r.name: fronts[r.name].nearest(candidate.step_time_s) for r in relations}
    scale = {r.name: _scale(problem, r) for r in relations}
    blocked = {name: point for name, point in nearest.items() if point is not None}
    if not blocked:
        share = f"{WHAT_IF - 1.0:.0%}"
        return None, f"no limit binds: up to {share} more HBM would unlock nothing faster"
    name = min(blocked, key=lambda n: blocked[n].excess / scale[n])
    relation = next(r for r in relations if r.name == name)
    return _told(problem, candidate, relation, blocked[name]), ""


def _told(problem: Problem, candidate: Candidate, relation: Relation, point: Blocked) -> Binding:
    """A blocked mapping as what binds: the lever in the user's own input, and what it unlocks."""
    relax, lever = _lever(problem, relation, point)
    return Binding(
        relation=relation.name,
        lever=lever,
        relax_by=relax,
        unit="share of the step" if _is_share(relation) else relation.unit,
        unlock=difference(
            candidate.key,
            point.key,
            recut=candidate.tables.group.layout != point.layout,
            split=(candidate.tables.group.recompute_stages, point.recompute_stages),
        ),
        gain=1.0 - point.step_time_s / candidate.step_time_s,
        step_time_s=point.step_time_s,
    )


def _is_share(relation: Relation) -> bool:
    return relation.name.startswith("exposed")


def _scale(problem: Problem, relation: Relation) -> float:
    """What the excess is compared with: the limit itself, or the whole step."""
    device = problem.facts.fabric.device
    offered = {
        "hbm": usable_hbm_bytes(problem.facts),
        "host_memory": device.host_memory_bytes,
        "nvme_capacity": device.nvme_bytes,
    }
    return max(offered.get(relation.name, 1.0), 1.0)


def _lever(problem: Problem, relation: Relation, point: Blocked) -> tuple[float, str]:
    """How much the user's own input has to change: HBM is raised before context and reserve are taken off."""
    if _is_share(relation):
        share = rounded_up(point.excess, 4)
        return share, f"{relation.name.replace('_', ' ')} limit +{100 * share:.4g} % of the step"
    whole = 1.0 - problem.facts.run.reserve if relation.name == "hbm" else 1.0
    more = rounded_up(point.excess / whole, 4)
    what = {"hbm": "HBM", "host_memory": "host memory", "nvme_capacity": "NVMe"}[relation.name]
    return more, f"{what} per device +{bytes_text(more)}"


def difference(before: Key, after: Key, *, recut: bool = False, split: tuple[int, int] = (0, 0)) -> str:
    """Axes in which two mappings differ, as `PP16 -> PP8, recompute full -> norm`; placement when none does.

    `recut`: their layers are cut differently, which is said where the number of stages is the same. `split`: stages
    that recompute in either, 0 for all.
    """
    parts = []
    for axis, old, new in zip(KEY, before, after, strict=True):
        if old != new:
            first, second = written(axis, old), written(axis, new)
            parts.append(
                f"{axis.upper()}{first} -> {axis.upper()}{second}"
                if isinstance(first, int) and len(axis) <= 3
                else f"{axis.replace('_', ' ')} {first} -> {second}"
            )
    stages = KEY.index("pp")
    if recut and before[stages] == after[stages]:
        parts.append("another layout")
    if split[0] != split[1] and after[KEY.index("recompute")]:
        parts.append(f"recompute on {f'the {first_stages(split[1])}' if split[1] else 'all stages'}")
    return ", ".join(parts) or "another placement"
