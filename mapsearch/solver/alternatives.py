"""What the fastest mapping is worth: the best under one more rule, found by a second search with k = 1.

Contents: fastest, prices, inside_price, idle_devices_note.

Both explain a search that went through the whole space; they are left out with a note when the time ends first.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mapsearch.answer import Price
from mapsearch.constraints.placement import priced
from mapsearch.costs.estimate import Point, number, point_of
from mapsearch.relation import Relation
from mapsearch.solver.explain.conflict import minimal_conflict
from mapsearch.solver.explain.probe import OutOfTime, Probe
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import search
from mapsearch.solver.top import Candidate


def fastest(problem: Problem, deadline: float | None, known_s: float = math.inf) -> Candidate | None:
    """The fastest mapping of a problem, None when there is none. Raises OutOfTime when it was stopped before.

    `known_s`: only a mapping of at most so long is asked for.
    """
    found = search(problem, 1, deadline=deadline, known_s=known_s)
    if not found.complete:
        raise OutOfTime
    return found.top[0] if found.top else None


def prices(problem: Problem, best: Candidate, deadline: float | None) -> tuple[list[Price], list[str]]:
    """What each priced axis would cost inside the high-bandwidth domain, and notes on prices that are not known."""
    facts = problem.facts
    found: list[Price] = []
    notes: list[str] = []
    for axis, rule in priced(facts.run, facts.fabric):
        try:
            found.append(inside_price(problem, best, axis, rule, deadline))
        except OutOfTime:
            notes.append(f"no time was left to price {axis.upper()} inside the high-bandwidth domain")
    return found, notes


def inside_price(problem: Problem, best: Candidate, axis: str, rule: Relation, deadline: float | None) -> Price:
    """The price of one rule: 0 when the best mapping obeys it anyway. Raises OutOfTime."""
    facts = problem.facts
    point = point_of(mapping_of(best), facts)
    free_s = point.step_time_s()
    unit = facts.fabric.levels[facts.fabric.domain_levels - 1].name
    if _obeys(point, rule):
        return Price(axis=axis, unit=unit, step_time_s=free_s, price=0.0)
    forced = fastest(replace(problem, relations=(*problem.relations, rule)), deadline)
    if forced is None:
        return Price(axis=axis, unit=unit, step_time_s=None, price=None)
    step_time_s = point_of(mapping_of(forced), facts).step_time_s()
    return Price(axis=axis, unit=unit, step_time_s=step_time_s, price=max(0.0, step_time_s / free_s - 1.0))


def _obeys(point: Point, rule: Relation) -> bool:
    view = {"cell": point.cell, "attention": point.attention, "expert": point.expert}[rule.side]
    return number(rule.demand(view)) <= number(rule.limit(view))


def idle_devices_note(problem: Problem, best: Candidate, deadline: float | None) -> str:
    """Why the fastest mapping leaves devices idle, in numbers; empty when it uses all."""
    facts = problem.facts
    point, present = point_of(mapping_of(best), facts), facts.fabric.devices
    if point.cell.devices >= present:
        return ""
    text = f"the fastest mapping uses {point.cell.devices:,} of {present:,} devices"
    everywhere = replace(problem, all_devices=True)
    try:
        candidate = fastest(everywhere, deadline)
        if candidate is None:
            broken = minimal_conflict(everywhere, Probe(everywhere, deadline))
            return f"{text}: no mapping on all {present:,} is feasible ({'; '.join(rule.words for rule in broken)})"
    except OutOfTime:
        return f"{text}; no time was left to search on all of them"
    step_time_s = point_of(mapping_of(candidate), facts).step_time_s()
    longer = step_time_s / point.step_time_s() - 1.0
    return f"{text}: the fastest one on all {present:,} takes {step_time_s:,.4g} s, {100 * longer:.1f} % longer"
