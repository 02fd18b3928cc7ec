"""Experts on ranks by rule: redundant copies to the hottest, then longest first; and exchanges from there on.

Contents: copies_of, split_to, members_of, groups_on_nodes, longest_first,
grouped_nodes, filled, improved, quieter.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from mapsearch.solver.backends.experts import TOLERANCE, ExpertProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def copies_of(loads: Floats, extra: int, most: int) -> Ints:
    """Copies of each expert when every further one goes to the expert whose copies are the largest.

    No other way to hand them out has a smaller largest copy.
    """
    counts = np.ones(len(loads), dtype=np.int64)
    heap = [(-load, expert) for expert, load in enumerate(loads) if most > 1]
    heapq.heapify(heap)
    for _ in range(extra):
        _, expert = heapq.heappop(heap)
        counts[expert] += 1
        if counts[expert] < most:
            heapq.heappush(heap, (-loads[expert] / counts[expert], expert))
    return counts


def split_to(loads: Floats, extra: int, most: int, target: float) -> Ints | None:
    """Copies of each expert when all are split until no copy is above `target`, and what is left over is spent on the
    lightest, where it does least harm; None when there are not enough."""
    counts = np.minimum(np.maximum(np.ceil(loads / target * (1.0 - TOLERANCE)), 1.0), most).astype(np.int64)
    left = extra - int(counts.sum() - len(loads))
    if left < 0:
        return None
    for expert in np.argsort(loads, kind="stable"):
        more = min(left, most - int(counts[expert]))
        counts[expert] += more
        left -= more
        if left == 0:
            break
    return counts


def members_of(problem: ExpertProblem, groups: Ints) -> Ints:
    """Experts of these groups, ascending."""
    size = problem.experts // problem.groups
    return np.asarray((np.sort(groups)[:, None] * size + np.arange(size)).ravel())


def node_problem(problem: ExpertProblem, members: Ints) -> ExpertProblem:
    """The experts of one node on its ranks."""
    return ExpertProblem(problem.loads[members], problem.per_node, problem.slots)


def longest_first(problem: ExpertProblem) -> Ints:
    """The greedy rule (LPT): the largest load next, onto the least loaded rank that has room and no copy of it.

    Copies go to the largest copy, one after the other. With groups: whole groups to nodes in the same way, then experts
    inside the node. Returns (ranks, slots).
    """
    if not problem.grouped:
        return filled(problem, copies_of(problem.loads, problem.copies, problem.most_copies))
    placed = []
    for groups in longest_first(groups_on_nodes(problem)):
        members = members_of(problem, groups)
        placed.append(members[longest_first(node_problem(problem, members))])
    return np.concatenate(placed)


def groups_on_nodes(problem: ExpertProblem) -> ExpertProblem:
    """Groups on nodes."""
    weight = problem.loads.reshape(problem.groups, -1).sum(axis=1)
    return ExpertProblem(weight, problem.nodes, problem.groups // problem.nodes)


def grouped_nodes(problem: ExpertProblem) -> Ints:
    """Groups of each node (nodes, groups of a node), so that the heaviest node is light: longest first, exchanges."""
    coarse = groups_on_nodes(problem)
    return improved(coarse, longest_first(coarse), float(problem.loads.sum()) / problem.nodes)


def filled(problem: ExpertProblem, counts: Ints) -> Ints:
    """Experts with so many copies on ranks, longest first."""
    ranks, slots = problem.ranks, problem.slots
    each = np.repeat(np.arange(problem.experts), counts)
    share = (problem.loads / counts)[each]
    order = np.lexsort((each, -share))
    total, used = np.zeros(ranks), np.zeros(ranks, dtype=np.int64)
    table = np.full((ranks, slots), -1, dtype=np.int64)
    for item, load in zip(each[order], share[order], strict=True):
        closed = used == slots
        if counts[item] > 1:
            closed |= (table == item).any(axis=1)
        rank = int(np.argmin(np.where(closed, np.inf, total)))
        if closed[rank]:
            rank = _made_room(table, used, total, int(item), problem.loads / counts)
        table[rank, used[rank]] = item
        used[rank] += 1
        total[rank] += load
    return table


def _made_room(table: Ints, used: Ints, total: Floats, item: int, share: Floats) -> int:
    """Free a slot on a rank without the item: all ranks that have room hold a copy of it already."""
    open_rank = int(np.argmax(used < table.shape[1]))
    for rank in np.flatnonzero(~(table == item).any(axis=1)):
        for slot, other in enumerate(table[rank]):
            if not (table[open_rank] == other).any():
                table[open_rank, used[open_rank]] = other
                used[open_rank] += 1
                table[rank, slot] = table[rank, used[rank] - 1]
                table[rank, used[rank] - 1] = -1
                used[rank] -= 1
                total[open_rank] += share[other]
                total[rank] -= share[other]
                return int(rank)
    raise RuntimeError("no rank can take another copy, though there are fewer copies than ranks")


def improved(problem: ExpertProblem, placement: Ints, target: float) -> Ints:
    """Exchanges of two copies that make the worst rank lighter and no other as heavy, until none does or `target` is
    reached. Groups are not looked at.
    """
    table = placement.copy()
    counts = np.bincount(table.ravel(), minlength=problem.experts)
    share = (problem.loads / counts)[table]
    total = share.sum(axis=1)
    copied = bool((counts > 1).any())
    while True:
        worst = int(np.argmax(total))
        if total[worst] <= target * (1.0 + TOLERANCE):
            return table
        gain = share[worst][:, None, None] - share[None]
        after = np.maximum(total[worst] - gain, total[None, :, None] + gain)
        after[:, worst] = np.inf
        if copied:
            after[_clash(table, worst)] = np.inf
        slot, rank, other = (int(i) for i in np.unravel_index(int(np.argmin(after)), after.shape))
        if after[slot, rank, other] >= total[worst] * (1.0 - TOLERANCE):
            return table
        table[worst, slot], table[rank, other] = table[rank, other], table[worst, slot]
        share[worst, slot], share[rank, other] = share[rank, other], share[worst, slot]
        total[[worst, rank]] = share[[worst, rank]].sum(axis=1)


def _clash(table: Ints, worst: int) -> NDArray[np.bool_]:
    """(slots, ranks, slots): the exchange would put two copies of an expert on one rank."""
    arriving = (table[None] == table[worst][:, None, None]).any(axis=2)
    leaving = np.isin(table, table[worst])
    return np.asarray(arriving[:, :, None] | leaving[None])


def quieter(problem: ExpertProblem, placement: Ints) -> Ints:
    """Exchanges between nodes that send less off them and leave the worst rank no heavier, until none does: of what
    whole nodes hold, and, without groups, of two copies."""
    if problem.off_node is None or problem.nodes == 1:
        return placement
    placement = _nodes_exchanged(problem, placement)
    return placement if problem.grouped else _copies_exchanged(problem, placement)


def _nodes_exchanged(problem: ExpertProblem, placement: Ints) -> Ints:
    counts = np.bincount(placement.ravel(), minlength=problem.experts)
    held = placement.reshape(problem.nodes, -1)
    cost = (_off_node(problem) / counts[:, None])[held].sum(axis=1)
    at = np.arange(problem.nodes)
    while True:
        here = cost[at]
        saved = np.diag(here)[:, None] + np.diag(here)[None] - here - here.T
        one, two = (int(i) for i in np.unravel_index(int(np.argmax(saved)), saved.shape))
        if saved[one, two] <= TOLERANCE * max(1.0, float(cost.max())):
            return np.asarray(held[at].reshape(placement.shape))
        at[one], at[two] = at[two], at[one]


def _off_node(problem: ExpertProblem) -> Floats:
    if problem.off_node is None:
        raise ValueError("sources are not known, so no traffic is either")
    return problem.off_node


def _copies_exchanged(problem: ExpertProblem, placement: Ints) -> Ints:
    table = placement.ravel().copy()
    counts = np.bincount(table, minlength=problem.experts)
    rank = np.repeat(np.arange(problem.ranks), problem.slots)
    node = rank // problem.per_node
    share = (problem.loads / counts)[table]
    cost = _off_node(problem) / counts[:, None]
    total = problem.rank_loads(placement)
    limit = total.max() * (1.0 + TOLERANCE)
    least = TOLERANCE * max(1.0, float(cost.max()))
    while True:
        here = cost[table][:, node]
        saved = np.diag(here)[:, None] + np.diag(here)[None] - here - here.T
        gain = share[:, None] - share[None]
        room = (total[rank][None] + gain <= limit) & (total[rank][:, None] - gain <= limit)
        saved = np.where(room, saved, 0.0)
        moved = set[int]()
        for flat in np.argsort(-saved, axis=None, kind="stable")[: len(table)]:
            one, two = (int(i) for i in np.unravel_index(int(flat), saved.shape))
            if saved[one, two] <= least:
                break
            if moved & {int(rank[one]), int(rank[two])} or _doubled(table, rank, one, two):
                continue
            moved |= {int(rank[one]), int(rank[two])}
            table[one], table[two] = table[two], table[one]
            share[one], share[two] = share[two], share[one]
        if not moved:
            return table.reshape(placement.shape)
        total = problem.rank_loads(table.reshape(placement.shape))


def _doubled(table: Ints, rank: Ints, one: int, two: int) -> bool:
    """Whether the exchange puts two copies of an expert on one rank."""
    return bool((table[rank == rank[two]] == table[one]).any() or (table[rank == rank[one]] == table[two]).any())
