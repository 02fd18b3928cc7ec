"""The Python API of router load: `experts` judges a histogram and places the experts of every layer.

Contents: Wanted, experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mapsearch.constraints.capacity import bytes_text
from mapsearch.costs.estimate import Point
from mapsearch.errors import InputError, UsageError
from mapsearch.expert_load import CopiesCost, ExpertLoad, HeldOut, LayerLoad
from mapsearch.experts.bounds import traffic_bound
from mapsearch.experts.copied import copies_cost
from mapsearch.experts.effect import effects_of
from mapsearch.experts.histogram import Histogram
from mapsearch.experts.place import Placed, Solver, groups_solved, place, solved, spread_over_layers
from mapsearch.experts.statistics import mean_spread, off_unit, skew, spread
from mapsearch.experts.values import capacity_rows, loads_by_rank, values_of
from mapsearch.interrupts import requested
from mapsearch.solver.backends.experts import TOLERANCE, ExpertProblem, literals_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SMALL = 4096
"""Literals up to which a solver also looks for the least traffic of a layer."""
LEAST_EFFORT = 0.5
"""Of a layer that a solver is asked about: with less it finds nothing in a large one."""


@dataclass(frozen=True)
class Wanted:
    """What to place experts on, and how hard to try."""

    ranks: int
    nodes: int = 1
    groups: int = 1
    copies: int = 0
    drop_limit: float = 0.0
    capacity_factor: float | None = None
    """The run's own, for the table."""
    backend: Literal["auto", "cpsat", "milp", "none"] = "auto"
    gap: float = 5e-3
    """A solver is asked about layers whose worst rank is further above its bound."""
    effort: float = 10.0
    """Of the solver, all layers together: CP-SAT's deterministic seconds, HiGHS's seconds."""


def experts(histogram: Histogram, wanted: Wanted, point: Point | None = None, name: str = "") -> ExpertLoad:
    """How evenly experts and ranks are loaded, the best placement of every layer, and what both mean for a run.

    `point` is a mapping with as many expert ranks, `name` what it is called: it is estimated again under each skew.
    Raises InputError, UsageError: ranks, nodes, groups, copies or sources that do not fit the experts.
    """
    _check(histogram, wanted)
    problems = _problems(histogram, wanted)
    layers = spread_over_layers(_placed(problems, wanted))
    standing = np.arange(histogram.experts).reshape(wanted.ranks, -1)
    now, greedy, best = (
        [standing] * len(layers),
        [layer.placement for layer in spread_over_layers([_as_greedy(layer) for layer in layers])],
        [layer.placement for layer in layers],
    )
    values = [values_of(histogram, tables, wanted.drop_limit) for tables in (now, greedy, best)]
    own = () if wanted.capacity_factor is None else (wanted.capacity_factor,)
    return ExpertLoad(
        source=histogram.name,
        origin=histogram.origin,
        steps=len(histogram.tokens),
        layer_count=len(layers),
        experts=histogram.experts,
        assignments=float(histogram.loads.sum(axis=-1).mean()),
        ranks=wanted.ranks,
        nodes=wanted.nodes,
        slots=problems[0].slots,
        copies=wanted.copies,
        groups=wanted.groups,
        sources=histogram.sources,
        by_expert=mean_spread(histogram.loads),
        by_rank=mean_spread(loads_by_rank(histogram, now)),
        placed_by_rank=mean_spread(loads_by_rank(histogram, best)),
        capacity=capacity_rows(histogram, (*own, values[0].capacity_factor)),
        drop_limit=wanted.drop_limit,
        now=values[0],
        greedy=values[1],
        placed=values[2],
        held_out=_held_out(histogram, wanted),
        copies_cost=copies_cost(point, wanted.copies) if point is not None and wanted.copies else None,
        effects=[] if point is None else effects_of(point, values[0], values[1], values[2], wanted.copies),
        mapping=name,
        layers=[_told(layer, title, standing) for layer, title in zip(layers, histogram.layers, strict=True)],
        notes=_notes(histogram, wanted, point),
    )


def _held_out(histogram: Histogram, wanted: Wanted) -> HeldOut | None:
    """Experts placed by rule for the first half of the steps, on the second; None with one step."""
    count = len(histogram.tokens)
    if count < 2:
        return None
    first, second = (replace(histogram, tokens=half) for half in np.split(histogram.tokens, [count // 2]))
    early, late = ([place(problem).placement for problem in _problems(half, wanted)] for half in (first, second))
    standing = [np.arange(histogram.experts).reshape(wanted.ranks, -1)] * len(histogram.layers)
    now, kept, best = (float(skew(loads_by_rank(second, tables)).mean()) for tables in (standing, early, late))
    return HeldOut(steps=len(second.tokens), now=now, early=kept, late=best)


def _copies_told(cost: CopiesCost) -> list[str]:
    """What copies take, and that they do not fit."""
    parts = f"{bytes_text(cost.weight_bytes)} of it weights"
    told = [
        f"copies take {bytes_text(cost.total_bytes)} on each rank ({parts}), and {cost.gradient_s:.3g} s of a step to "
        "add up their gradients over the EP group (at most, not hidden); the estimate of placed experts has both"
    ]
    if not cost.fits:
        told.append(
            f"the copies do not fit: {bytes_text(cost.peak_bytes)} with them of {bytes_text(cost.usable_bytes)} that "
            "the device offers; take fewer --copies or a mapping with room"
        )
    return told


def _as_greedy(layer: Placed) -> Placed:
    return Placed(layer.problem, layer.greedy, layer.greedy, layer.bound)


def _check(histogram: Histogram, wanted: Wanted) -> None:
    """Refuse what cannot be placed. Raises UsageError, InputError."""
    experts_, ranks, nodes, groups = histogram.experts, wanted.ranks, wanted.nodes, wanted.groups
    if ranks < 2 or experts_ % ranks:
        raise UsageError(
            f"{experts_:,} experts cannot stand in equal numbers on {ranks:,} ranks; give a divisor from 2 on",
            field="--ranks",
        )
    if ranks % nodes:
        raise UsageError(f"{ranks:,} ranks do not fill {nodes:,} nodes evenly", field="--per-node")
    if experts_ % groups or (nodes > 1 and groups > 1 and groups % nodes):
        raise UsageError(
            f"{groups:,} groups of equally many of {experts_:,} experts cannot share {nodes:,} nodes evenly; give a "
            "divisor of the experts that the nodes divide",
            field="--groups",
        )
    if wanted.copies % ranks:
        raise UsageError(
            f"{wanted.copies:,} copies give {ranks:,} ranks unequal numbers of experts; give a multiple of {ranks:,}",
            field="--copies",
        )
    held = experts_ // nodes if groups > 1 else experts_
    if (experts_ + wanted.copies) // ranks > held:
        most = (held - experts_ // ranks) * ranks
        raise UsageError(
            f"{wanted.copies:,} copies fill ranks with more than the {held:,} different experts that can stand there; "
            f"give {most:,} at most",
            field="--copies",
        )
    if histogram.sources not in (0, ranks, nodes):
        raise InputError(
            f"tells {histogram.sources:,} sources apart, which are neither the {ranks:,} ranks nor the {nodes:,} nodes",
            file=histogram.name,
            field="source",
        )


def _problems(histogram: Histogram, wanted: Wanted) -> list[ExpertProblem]:
    """One problem for each layer, its steps added up."""
    slots = (histogram.experts + wanted.copies) // wanted.ranks
    by_source = histogram.tokens.sum(axis=0)
    node = np.arange(histogram.sources) * wanted.nodes // max(histogram.sources, 1)
    told = histogram.sources > 0 and wanted.nodes > 1
    return [
        ExpertProblem(
            layer.sum(axis=0),
            wanted.ranks,
            slots,
            wanted.nodes,
            wanted.groups,
            off_unit(layer, node, wanted.nodes) if told else None,
        )
        for layer in by_source
    ]


def _placed(problems: list[ExpertProblem], wanted: Wanted) -> list[Placed]:
    """Every layer by rule, and those with a gap by a solver, which share its effort: the largest gaps first."""
    layers = [place(problem) for problem in problems]
    if wanted.backend == "none":
        return layers
    solver: Solver = "milp" if wanted.backend == "milp" else "cpsat"
    if wanted.groups > wanted.nodes > 1:
        layers = [groups_solved(one, solver, LEAST_EFFORT) if one.gap > wanted.gap else one for one in layers]
    left = [
        number
        for number, layer in enumerate(layers)
        if layer.gap > wanted.gap or (layer.problem.off_node is not None and literals_of(layer.problem) <= SMALL)
    ]
    left.sort(key=lambda number: -layers[number].gap)
    del left[max(1, int(wanted.effort / LEAST_EFFORT)) :]
    for number in left:
        if requested():
            break
        layers[number] = solved(layers[number], solver, wanted.effort / len(left))
    return layers


def _told(layer: Placed, title: str, standing: Ints) -> LayerLoad:
    problem = layer.problem
    total = float(problem.loads.sum())
    known = problem.off_node is not None
    sent = problem.traffic(layer.placement)
    least = sent if layer.traffic_proven or not known else traffic_bound(problem, layer.worst, sent)
    return LayerLoad(
        layer=title,
        experts=spread(problem.loads),
        hottest=int(np.argmax(problem.loads)),
        ranks=spread(problem.rank_loads(standing)),
        lpt=problem.worst(layer.greedy),
        worst=layer.worst,
        bound=layer.bound.value,
        bound_from=layer.bound.why,
        gap=layer.gap,
        proof=layer.proof,
        off_node=problem.traffic(standing) / total if known else None,
        placed_off_node=sent / total if known else None,
        off_node_bound=least / total if known else None,
        off_node_proven=known and (layer.traffic_proven or sent <= least * (1.0 + TOLERANCE)),
        placement=layer.placement.tolist(),
    )


def _notes(histogram: Histogram, wanted: Wanted, point: Point | None) -> list[str]:
    notes = list(histogram.notes)
    if not histogram.sources:
        notes.append(
            "sources are not told apart, so every rank is taken to send alike: the pair skew is that of the ranks, the "
            "real one is at least as large, and no placement changes how much leaves a node"
        )
    elif wanted.nodes == 1:
        notes.append("nodes are not told apart (--per-node), so traffic off them is not looked at")
    if len(histogram.tokens) > 1:
        notes.append(
            f"experts are placed for the sum of {len(histogram.tokens):,} steps, where they are never worse than "
            "longest first; skews are means over steps, where loads that drift may order them otherwise"
        )
    if wanted.copies and point is None:
        notes.append("what the copies cost in memory is not looked at: name a mapping (--answer)")
    if wanted.copies and point is not None:
        notes += _copies_told(copies_cost(point, wanted.copies))
    if point is not None:
        moe = point.facts.model.moe
        if moe is not None and moe.groups > 1 and wanted.groups == 1 and wanted.nodes > 1:
            notes.append(
                f"{point.facts.model.name} routes in {moe.groups} groups; --groups {moe.groups} keeps each in a node"
            )
    return notes
