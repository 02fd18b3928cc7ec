"""Better seats for ranks on a graph: exchanges, exact assignment of single ranks or of whole units.

Contents: Seated, seated, EXACT_RANKS, EXACT_UNITS.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.placing.loads import Cost, Demand, Routes, cost_of, link_seconds
from mapsearch.solver.backends.assignment import Instance, assign

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Tier = Sequence[Sequence[int]]

EXACT_RANKS = 8
"""Ranks up to which CP-SAT places every rank by itself, with proof."""
EXACT_UNITS = 8
"""Units up to which CP-SAT exchanges whole units, with proof for the order inside them."""
SOLVER_BUDGET = 60.0
"""Deterministic seconds of CP-SAT for one question; without an end in time the best so far counts, unproven."""
EXCHANGED_UNITS = 5_000
"""Exchanges of two whole units that are tried on one tier."""
EXCHANGES = 20_000
"""Exchanges that are tried in all; a number and not a time, so that equal inputs give equal seats."""


@dataclass(frozen=True)
class Seated:
    """The device of every rank, by index into the routes' devices, and what is known about it."""

    seats: Ints
    cost: Cost
    proven: str
    """`all`: no bijection is better. `units`: no exchange of whole units of one tier is. Empty: found by exchanges."""


def seated(routes: Routes, demand: Demand, starts: Sequence[Ints], tiers: Sequence[Tier] = ()) -> Seated:
    """The best seats that are found from the given ones.

    `tiers`: devices, by index, of each unit, innermost tier first; units of equal size may be exchanged as a whole.
    Few ranks: CP-SAT proves that nothing is better. Else whole units change places, the outermost first, by CP-SAT
    where there are few of them; then two ranks, or a rank and a free device, while one such exchange helps.
    """
    best = min((Seated(seats, cost_of(routes, demand, seats), "") for seats in starts), key=lambda one: one.cost)
    if len(starts[0]) <= EXACT_RANKS and len(routes.devices) <= EXACT_RANKS + 2:
        best = _exchanged(routes, demand, best, EXCHANGES)
        return _exactly(routes, demand, best, [[place] for place in range(len(routes.devices))], "all")
    for tier in reversed(tiers):
        best = _moved(routes, demand, best, tier)
    moved = _exchanged(routes, demand, best, EXCHANGES)
    if moved is not best and tiers:
        moved = _moved(routes, demand, moved, tiers[0])
    return moved


def _moved(routes: Routes, demand: Demand, best: Seated, units: Tier) -> Seated:
    """Whole units of one tier exchanged: exactly where there are few, else two at a time while it helps."""
    if not len(units) >= 2:
        return best
    if len(units) <= EXACT_UNITS and len({len(unit) for unit in units}) == 1:
        return _exactly(routes, demand, best, units, "units")
    inside = [np.array(unit, dtype=np.int64) for unit in units]
    budget, improved = EXCHANGED_UNITS, True
    while improved and budget > 0:
        improved = False
        for first, second in itertools.combinations(inside, 2):
            if len(first) != len(second):
                continue
            budget -= 1
            other = np.arange(len(routes.devices))
            other[first], other[second] = second, first
            trial = other[best.seats]
            if np.array_equal(trial, best.seats):
                continue
            cost = cost_of(routes, demand, trial)
            if cost.better(best.cost):
                best, improved = Seated(trial, cost, ""), True
            if budget <= 0:
                break
    return best


def _exchanged(routes: Routes, demand: Demand, best: Seated, budget: int) -> Seated:
    """Exchange two ranks, or move one to a free device, while it helps; ranks that load the busiest link first."""
    table = _Table(routes, demand, best.seats.copy())
    improved = True
    while improved and budget > 0:
        improved = False
        for first in _busy(routes, demand, table.seats):
            for second in table.partners(first):
                budget -= 1
                improved = table.exchange(first, second)
                if improved or budget <= 0:
                    break
            if improved or budget <= 0:
                break
    cost = cost_of(routes, demand, table.seats)
    return Seated(table.seats, cost, "") if cost.better(best.cost) else best


class _Table:
    """Seats with the loads that they make, so that an exchange costs what the messages of two ranks cost."""

    def __init__(self, routes: Routes, demand: Demand, seats: Ints) -> None:
        self.routes, self.demand, self.seats = routes, demand, seats
        touching: list[list[int]] = [[] for _ in range(len(seats))]
        for message, (a, b) in enumerate(zip(demand.source.tolist(), demand.target.tolist(), strict=True)):
            touching[a].append(message)
            touching[b].append(message)
        self.touching = [np.array(messages, dtype=np.int64) for messages in touching]
        self.free = sorted(set(range(len(routes.devices))) - set(seats.tolist()))
        self._count()

    def _count(self) -> None:
        self.busy_s = link_seconds(self.routes, self.demand, self.seats)
        self.cost = cost_of(self.routes, self.demand, self.seats)

    def partners(self, first: int) -> list[int]:
        """Ranks to exchange with, then, counted on, free devices."""
        return [rank for rank in range(len(self.seats) + len(self.free)) if rank != first]

    def exchange(self, first: int, second: int) -> bool:
        """Exchange if that is better."""
        count = len(self.seats)
        trial = self.seats.copy()
        if second < count:
            trial[first], trial[second] = self.seats[second], self.seats[first]
            messages = np.union1d(self.touching[first], self.touching[second])
        else:
            trial[first] = self.free[second - count]
            messages = self.touching[first]
        before, hops_before = self._part(messages, self.seats)
        after, hops_after = self._part(messages, trial)
        worst = float((self.busy_s - before + after).max(initial=0.0))
        if not Cost(worst, self.cost.byte_hops - hops_before + hops_after).better(self.cost):
            return False
        if second >= count:
            self.free[second - count] = int(self.seats[first])
        self.seats = trial
        self._count()
        return True

    def _part(self, messages: Ints, seats: Ints) -> tuple[Floats, float]:
        demand, routes = self.demand, self.routes
        source, target = seats[demand.source[messages]], seats[demand.target[messages]]
        sent = demand.sent_bytes[messages]
        loads = routes.loads_bytes(source, target, sent) / routes.bytes_per_s
        return loads, float(sent @ routes.hops[source, target])


def _busy(routes: Routes, demand: Demand, seats: Ints) -> list[int]:
    """Ranks whose messages cross a busiest link, then the others, each by number."""
    loads = link_seconds(routes, demand, seats)
    worst = int(np.argmax(loads)) if len(loads) else 0
    pair = seats[demand.source] * len(routes.devices) + seats[demand.target]
    at = np.flatnonzero(routes.link == worst)
    over = np.unique(np.searchsorted(routes.first, at, side="right") - 1)
    crossing = np.isin(pair, over)
    first = sorted({*demand.source[crossing].tolist(), *demand.target[crossing].tolist()})
    return [*first, *(rank for rank in range(len(seats)) if rank not in set(first))]


def _exactly(routes: Routes, demand: Demand, best: Seated, units: Tier, proven: str) -> Seated:
    """CP-SAT on whole units: which unit's ranks go to which unit, each rank to the same place inside."""
    blocks = _blocks(best.seats, units)
    if blocks is None:
        return best
    instance = _instance(routes, demand, blocks, units)
    found = assign(instance, np.array([unit for unit, _ in blocks], dtype=np.int64), SOLVER_BUDGET)
    seats = best.seats.copy()
    for (_, ranks), unit in zip(blocks, found.slot_of.tolist(), strict=True):
        for place, rank in enumerate(ranks):
            if rank >= 0:
                seats[rank] = units[unit][place]
    cost = cost_of(routes, demand, seats)
    said = proven if found.proven else ""
    if not cost.better(best.cost):
        return Seated(best.seats, best.cost, "" if best.cost.better(cost) else said)
    return Seated(seats, cost, said)


def _blocks(seats: Ints, units: Tier) -> list[tuple[int, list[int]]] | None:
    """Of each unit with ranks: its number, and the rank on each of its devices (-1: none). None: units differ."""
    if len({len(unit) for unit in units}) != 1:
        return None
    rank_on = {int(seat): rank for rank, seat in enumerate(seats)}
    rows = [(number, [rank_on.get(device, -1) for device in unit]) for number, unit in enumerate(units)]
    rows = [(number, ranks) for number, ranks in rows if max(ranks) >= 0]
    there = sum(rank >= 0 for _, ranks in rows for rank in ranks)
    return rows if there == len(seats) else None


def _instance(routes: Routes, demand: Demand, blocks: Sequence[tuple[int, list[int]]], units: Tier) -> Instance:
    """What blocks of ranks load by the units that they stand on."""
    inside = np.array(units, dtype=np.int64)
    count = 1 + max(rank for _, ranks in blocks for rank in ranks)
    block_of = np.zeros(count, dtype=np.int64)
    place_of = np.zeros(count, dtype=np.int64)
    for block, (_, ranks) in enumerate(blocks):
        for place, rank in enumerate(ranks):
            if rank >= 0:
                block_of[rank], place_of[rank] = block, place
    a, b = block_of[demand.source], block_of[demand.target]
    pairs = sorted({(min(x, y), max(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True) if x != y})
    count, resources = len(units), len(routes.links)
    load = np.zeros((len(pairs), count, count, resources))
    price = np.zeros((len(pairs), count, count))
    own = np.zeros((len(blocks), count, resources))
    own_price = np.zeros((len(blocks), count))

    def at(chosen: NDArray[np.bool_], first: int, second: int) -> tuple[NDArray[np.float64], float]:
        source = inside[first, place_of[demand.source[chosen]]]
        target = inside[second, place_of[demand.target[chosen]]]
        sent = demand.sent_bytes[chosen]
        loads = routes.loads_bytes(source, target, sent) / routes.bytes_per_s
        return loads, float(sent @ routes.hops[source, target])

    for block in range(len(blocks)):
        alone = (a == block) & (b == block)
        for unit in range(count):
            own[block, unit], own_price[block, unit] = at(alone, unit, unit)
    for k, (x, y) in enumerate(pairs):
        there, back = (a == x) & (b == y), (a == y) & (b == x)
        for p in range(count):
            for q in range(count):
                if p != q:
                    out, out_price = at(there, p, q)
                    home, home_price = at(back, q, p)
                    load[k, p, q], price[k, p, q] = out + home, out_price + home_price
    return Instance(np.array(pairs, dtype=np.int64).reshape(-1, 2), load, price, own, own_price)
