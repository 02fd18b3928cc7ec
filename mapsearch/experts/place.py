"""The best placement of one layer's experts: by rule, by exchanges, and by a solver where a gap is left.

Contents: Placed, place, groups_solved, solved, spread_over_layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mapsearch.experts.bounds import Bound, bound_of, lightest_node
from mapsearch.experts.greedy import (
    copies_of,
    filled,
    grouped_nodes,
    groups_on_nodes,
    improved,
    longest_first,
    members_of,
    node_problem,
    quieter,
    split_to,
)
from mapsearch.experts.packing import packed
from mapsearch.solver.backends.experts import TOLERANCE, ExpertProblem, literals_of, solve_experts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Solver = Literal["cpsat", "milp"]
MOST_LITERALS = 2**16
"""Programs above this are not given to a solver: they would not be built in reasonable time."""
EVEN_GROUPS = "heaviest node, groups as even as can be"
_SPLITS = 12
"""Sizes of the largest copy that are tried, from the mean of a rank down to the smallest possible."""
_TRIALS = 200
"""Handovers of a copy that are tried in a layer or node."""
_CANDIDATES = 8
"""Experts that may take a copy, and that may give one."""
_NEAR = 1e-3
"""No further size is tried this near the bound."""
_WIDE = 5e-3
"""Groups change nodes only while the worst rank is further above the bound, and without groups no more is tried."""
_EXCHANGES = 12
"""Exchanges of two groups that are tried in a layer."""


@dataclass(frozen=True)
class Placed:
    """A layer's experts on ranks."""

    problem: ExpertProblem
    placement: Ints
    """(ranks, slots): experts."""
    greedy: Ints
    """The greedy rule's placement."""
    bound: Bound
    proof: Literal["bound", "cpsat", "milp", ""] = ""
    traffic_proven: bool = False

    @property
    def worst(self) -> float:
        """Load of the worst rank."""
        return self.problem.worst(self.placement)

    @property
    def gap(self) -> float:
        """How far the worst rank may be above the best one; 0 when proven."""
        return 0.0 if self.proof else max(0.0, self.worst / self.bound.value - 1.0)


def place(problem: ExpertProblem) -> Placed:
    """The placement by rule and exchanges, held against the bound; never worse than the greedy rule's."""
    bound = bound_of(problem)
    greedy = longest_first(problem)
    if problem.grouped:
        nodes, least = _groups_even(problem)
        found, bound = _in_nodes(problem, nodes), _higher(bound, least)
    else:
        found = _flat(problem, greedy, bound.value)
    found, bound = _packed(problem, found if problem.worst(found) <= problem.worst(greedy) else greedy, bound)
    placement = quieter(problem, found)
    reached = problem.worst(placement) <= bound.value * (1.0 + TOLERANCE)
    return Placed(problem, placement, greedy, bound, "bound" if reached else "")


def _flat(problem: ExpertProblem, greedy: Ints, bound: float) -> Ints:
    """The best found without groups: exchanges from the greedy rule on, and with copies handed out in other ways."""
    best = improved(problem, greedy, bound)
    if problem.copies == 0:
        return best
    loads, most = problem.loads, problem.most_copies
    smallest = float((loads / copies_of(loads, problem.copies, most)).max())
    largest = max(float(loads.sum()) / problem.ranks, smallest)
    tried = set[bytes]()
    for part in range(_SPLITS + 1):
        if problem.worst(best) <= bound * (1.0 + _NEAR):
            break
        counts = split_to(loads, problem.copies, most, largest + (smallest - largest) * part / _SPLITS)
        if counts is None or counts.tobytes() in tried:
            continue
        tried.add(counts.tobytes())
        found = improved(problem, filled(problem, counts), bound)
        best = found if problem.worst(found) < problem.worst(best) else best
    return _recopied(problem, best, bound)


def _recopied(problem: ExpertProblem, best: Ints, bound: float) -> Ints:
    """One copy taken from an expert and given to another, as long as that makes the worst rank lighter."""
    counts = np.bincount(best.ravel(), minlength=problem.experts)
    trials = _TRIALS
    moved = True
    while moved and problem.worst(best) > bound * (1.0 + _NEAR):
        moved = False
        for giver, taker in _handovers(problem, counts):
            if trials == 0:
                return best
            trials -= 1
            changed = counts.copy()
            changed[giver] -= 1
            changed[taker] += 1
            found = improved(problem, filled(problem, changed), bound)
            if problem.worst(found) < problem.worst(best) * (1.0 - TOLERANCE):
                best, counts, moved = found, changed, True
                break
    return best


def _handovers(problem: ExpertProblem, counts: Ints) -> list[tuple[int, int]]:
    """Experts that may give a copy and that may take one, the likeliest first: light givers, heavy takers."""
    share = problem.loads / counts
    takers = [int(e) for e in np.argsort(-share, kind="stable") if counts[e] < problem.most_copies][:_CANDIDATES]
    after = problem.loads / np.maximum(counts - 1, 1)
    givers = [int(e) for e in np.argsort(after, kind="stable") if counts[e] > 1][:_CANDIDATES]
    return [(giver, taker) for giver in givers for taker in takers if giver != taker]


def _groups_even(problem: ExpertProblem) -> tuple[Ints, Bound]:
    """Groups of each node (nodes, groups of a node) with the heaviest node as light as can be found, and what its ranks
    cannot be below."""
    coarse = groups_on_nodes(problem)
    nodes, bound = grouped_nodes(problem), bound_of(coarse).value
    if coarse.worst(nodes) > bound * (1.0 + _NEAR):
        nodes, bound = packed(coarse, nodes, bound)
    return nodes, Bound(bound / problem.per_node, EVEN_GROUPS)


def _in_nodes(problem: ExpertProblem, nodes: Ints) -> Ints:
    """Each node by itself, with these groups."""
    return np.concatenate([_node_placed(problem, groups) for groups in nodes])


def _node_placed(problem: ExpertProblem, groups: Ints) -> Ints:
    """One node with these groups."""
    members = members_of(problem, groups)
    node = node_problem(problem, members)
    return np.asarray(members[_flat(node, longest_first(node), bound_of(node).value)])


def _packed(problem: ExpertProblem, placement: Ints, bound: Bound) -> tuple[Ints, Bound]:
    """Heavy experts in every way: of each node, the heaviest next, until none is left that could be lighter.

    What no node can be below bounds the layer too where each node has one group, or where there are no groups at all;
    else the heaviest group beside experts that are lighter than any does, and groups change nodes.
    """
    if not problem.grouped:
        if problem.worst(placement) > bound.value * (1.0 + _WIDE):
            found = packed(problem, placement, bound.value)
            return found.placement, _higher(bound, Bound(found.bound, "heavy experts in every way"))
        return placement, bound
    table, lower = _nodes_packed(problem, placement, bound.value)
    if problem.groups == problem.nodes:
        return table, _higher(bound, lower)
    if problem.worst(table) > bound.value * (1.0 + _NEAR):
        rows = _heaviest(problem, table)
        group = int(problem.loads[table[rows]].argmax())
        group = int(table[rows].ravel()[group]) * problem.groups // problem.experts
        node = lightest_node(problem, group)
        found = packed(node, longest_first(node), bound.value)
        bound = _higher(bound, Bound(found.bound, f"node of group {group}: heavy experts in every way"))
    return _groups_exchanged(problem, table, bound.value), bound


def _higher(one: Bound, other: Bound) -> Bound:
    return other if other.value > one.value else one


def _heaviest(problem: ExpertProblem, table: Ints) -> slice:
    """Ranks of the node with the worst rank."""
    node = int(np.argmax(problem.rank_loads(table).reshape(problem.nodes, -1).max(axis=1)))
    return slice(node * problem.per_node, (node + 1) * problem.per_node)


def _nodes_packed(problem: ExpertProblem, placement: Ints, bound: float) -> tuple[Ints, Bound]:
    """The heaviest node again and again, while it gets lighter; and the largest load that one of them cannot be below,
    with the groups that it has."""
    table, lower = placement.copy(), Bound(0.0, "")
    done = set[int]()
    while problem.worst(table) > bound * (1.0 + _NEAR):
        rows = _heaviest(problem, table)
        if rows.start in done:
            break
        done.add(rows.start)
        members = np.unique(table[rows])
        inner = node_problem(problem, members)
        found = packed(inner, np.searchsorted(members, table[rows]), bound_of(inner).value)
        table[rows] = members[found.placement]
        group = int(members[0]) * problem.groups // problem.experts
        lower = _higher(lower, Bound(found.bound, f"node of group {group}: heavy experts in every way"))
    return table, lower


def _groups_exchanged(problem: ExpertProblem, placement: Ints, bound: float) -> Ints:
    """Groups of the heaviest node exchanged with those of others, as long as that makes the worst rank lighter."""
    table, trials = placement, _EXCHANGES
    moved = True
    while moved and problem.worst(table) > bound * (1.0 + _WIDE):
        moved = False
        for other in _exchanges(problem, table):
            if trials == 0:
                return table
            trials -= 1
            changed, _ = _nodes_packed(problem, other, bound)
            if problem.worst(changed) < problem.worst(table) * (1.0 - TOLERANCE):
                table, moved = changed, True
                break
    return table


def _exchanges(problem: ExpertProblem, table: Ints) -> Iterator[Ints]:
    """Placements with one group of the heaviest node exchanged, those first whose two nodes have the least bounds."""
    size = problem.experts // problem.groups
    nodes = np.stack([np.unique(held // size) for held in table.reshape(problem.nodes, -1)])
    weight = problem.loads.reshape(problem.groups, size).sum(axis=1)
    worst = problem.worst(table)
    heavy = _heaviest(problem, table).start // problem.per_node
    ways = []
    for other in range(problem.nodes):
        for one, two in np.ndindex(nodes.shape[1], nodes.shape[1]):
            gain = weight[nodes[heavy, one]] - weight[nodes[other, two]]
            after = max(weight[nodes[heavy]].sum() - gain, weight[nodes[other]].sum() + gain) / problem.per_node
            if other != heavy and after < worst:
                ways.append((after, other, one, two))
    tried = []
    for _, other, one, two in sorted(ways)[: 4 * _EXCHANGES]:
        pair = nodes[[heavy, other]].copy()
        pair[0, one], pair[1, two] = pair[1, two], pair[0, one]
        bounds = [bound_of(node_problem(problem, members_of(problem, groups))).value for groups in pair]
        if max(bounds) < worst * (1.0 - TOLERANCE):
            tried.append((max(bounds), other, pair))
    for _, other, pair in sorted(tried, key=lambda way: way[:2]):
        changed = table.copy().reshape(problem.nodes, problem.per_node, problem.slots)
        for node, groups in zip((heavy, other), pair, strict=True):
            changed[node] = _node_placed(problem, groups)
        yield changed.reshape(table.shape)


def groups_solved(placed: Placed, solver: Solver, effort: float) -> Placed:
    """The same layer with groups on nodes by a solver: the heaviest node as light as it can be, which is a bound of the
    worst rank as well. Raises BackendMissing."""
    problem = placed.problem
    coarse = groups_on_nodes(problem)
    size = problem.experts // problem.groups
    start = np.stack([np.unique(part // size) for part in placed.placement.reshape(problem.nodes, -1)])
    found = solve_experts(coarse, start, solver, effort)
    if not found.worst_proven:
        return placed
    least = Bound(coarse.worst(found.placement) / problem.per_node, EVEN_GROUPS)
    bound = max(placed.bound, least, key=lambda one: one.value)
    other = quieter(problem, _in_nodes(problem, found.placement))
    placement = other if problem.worst(other) < placed.worst * (1.0 - TOLERANCE) else placed.placement
    reached = problem.worst(placement) <= bound.value * (1.0 + TOLERANCE)
    return replace(placed, placement=placement, bound=bound, proof="bound" if reached else placed.proof)


def solved(placed: Placed, solver: Solver, effort: float) -> Placed:
    """The same layer by a solver, from that placement on. Raises BackendMissing."""
    problem = placed.problem
    if problem.grouped and (problem.groups == problem.nodes or literals_of(problem) > MOST_LITERALS):
        return _nodes_solved(placed, solver, effort)
    if literals_of(problem) > MOST_LITERALS:
        return placed
    found = solve_experts(problem, placed.placement, solver, effort)
    placement = found.placement if found.traffic_proven else quieter(problem, found.placement)
    proof = solver if found.worst_proven and not placed.proof else placed.proof
    return replace(placed, placement=placement, proof=proof, traffic_proven=found.traffic_proven)


def _nodes_solved(placed: Placed, solver: Solver, effort: float) -> Placed:
    """Nodes one by one, the heaviest next, until it is proven to be as light as it can; with one group on each node
    that proves the layer."""
    problem = placed.problem
    table = placed.placement.copy()
    proven = set[int]()
    while True:
        loads = problem.rank_loads(table).reshape(problem.nodes, -1).max(axis=1)
        node = int(np.argmax(loads))
        if node in proven:
            done = problem.groups == problem.nodes
            return replace(placed, placement=table, proof=placed.proof or (solver if done else ""))
        rows = slice(node * problem.per_node, (node + 1) * problem.per_node)
        members = np.unique(table[rows])
        inner = node_problem(problem, members)
        if literals_of(inner) > MOST_LITERALS:
            return replace(placed, placement=table)
        found = solve_experts(inner, np.searchsorted(members, table[rows]), solver, effort)
        table[rows] = members[found.placement]
        if not found.worst_proven:
            return replace(placed, placement=table)
        proven.add(node)


def spread_over_layers(layers: list[Placed]) -> list[Placed]:
    """The same placements with ranks renamed, so that the heavy rank is another one in each layer.

    Memory adds up over layers: the heaviest rank of a layer takes the name of the one that holds least so far. Ranks
    keep their node; without nodes any rank may take any name.
    """
    if not layers:
        return []
    problem = layers[0].problem
    units = problem.nodes if problem.nodes > 1 else 1
    each = problem.ranks // units
    held = np.zeros((units, each))
    renamed = []
    for layer in layers:
        loads = layer.problem.rank_loads(layer.placement).reshape(units, each)
        loads = loads / loads.mean()
        table = layer.placement.reshape(units, each, -1)
        new = np.empty_like(table)
        for unit in range(units):
            names = np.argsort(held[unit], kind="stable")
            heavy = np.argsort(-loads[unit], kind="stable")
            new[unit, names] = table[unit, heavy]
            held[unit, names] += loads[unit, heavy]
        renamed.append(replace(layer, placement=np.sort(new.reshape(problem.ranks, -1), axis=1)))
    return renamed
