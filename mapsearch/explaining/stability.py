"""Stability: how far each input may worsen before a ranked mapping loses its rank.

Contents: stability, LEAST_SHARE, RESOLUTION.

Memory and limits on exposure enter no time: a mapping keeps its rank exactly as long as it fits. A bandwidth enters
times: where a rival overtakes is known from both mappings' own times, and a search at that value says whether anyone
else overtook before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mapsearch.costs.estimate import Point
from mapsearch.costs.views import Facts
from mapsearch.explaining.levers import SAME, Lever, bandwidths, rivals_at
from mapsearch.explanation import Stability
from mapsearch.inventories.mapping import Mapping
from mapsearch.relation import Relation
from mapsearch.sensitivities.exact import least_float, least_hbm
from mapsearch.solver.explain.binding import difference
from mapsearch.solver.explain.probe import OutOfTime
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import key_of_mapping, mapping_of, pair_view
from mapsearch.solver.top import Key

LEAST_SHARE = 0.125
"""Bandwidths are lowered to this share of what they are."""
RESOLUTION = 0.01
"""Width of the bracket around a bandwidth at which the rank is lost, as a share of it."""
ROUNDS = 32
"""Values of one bandwidth that are looked at, most of them with a search."""


def stability(
    problem: Problem, point: Point, rank: int, deadline: float | None, *, bandwidths_too: bool
) -> Iterator[Stability | str]:
    """How far each input may worsen: limits exactly, bandwidths bracketed; notes on those that time did not allow."""
    for relation in problem.side("pair"):
        yield from _limit(problem.facts, relation, point)
    for lever in bandwidths(problem.facts) if bandwidths_too else []:
        try:
            yield _bandwidth(lever, problem.facts, point.mapping, rank, deadline)
        except OutOfTime:
            yield f"no time was left to see how far {lever.name} may fall"


def _limit(facts: Facts, relation: Relation, point: Point) -> Iterator[Stability]:
    """How far a limit that enters no time may fall: until the mapping no longer fits."""
    view = pair_view(point)
    demand = float(relation.demand(view))
    exact: dict[str, Any] = {"resolution": 0.0, "tried": 0.0, "what": "it no longer fits"}
    if relation.name == "hbm":
        now, least = facts.fabric.device.hbm_bytes, least_hbm(demand, facts)
        yield Stability(input="hbm", unit="bytes", now=now, until=least, **exact)
    elif relation.name in ("host_memory", "nvme_capacity") and demand > 0.0:
        now = float(relation.limit(view))
        yield Stability(input=relation.name, unit="bytes", now=now, until=demand, **exact)
    elif relation.name.startswith("exposed"):
        step_s = float(view.step_time_s)
        least = least_float(max(demand, 0.0) / step_s, lambda share: demand <= step_s * share)
        now = float(relation.limit(view)) / step_s
        name = relation.name.replace("exposed", "exposed_limit", 1)
        yield Stability(input=name, unit="share", now=now, until=least, **exact)


def _bandwidth(lever: Lever, facts: Facts, mapping: Mapping, rank: int, deadline: float | None) -> Stability:
    """Where so many rivals are faster that the rank is lost, from the present value downwards. Raises OutOfTime."""
    own, low = key_of_mapping(mapping, facts), LEAST_SHARE * lever.now
    at, overtaken, what = low, None, ""
    selves, known = [mapping], dict[Key, Mapping]()
    for _ in range(ROUNDS):
        mine_s = lever.best_s(selves, at)
        if math.isinf(mine_s):
            # A limit on exposure is broken from here on; whether a rival overtook before is seen just above.
            overtaken, what = lever.crossing([], selves, at, lever.now), "it no longer fits"
            at = overtaken * (1.0 + RESOLUTION)
            if at >= lever.now:
                break
            continue
        faster = [key for key, rival in known.items() if lever.time_s(rival, at) < mine_s * (1.0 - SAME)]
        if len(faster) < rank:
            rivals, complete = rivals_at(lever.problem(at), mine_s, rank, deadline)
            if not complete:
                raise OutOfTime
            better = [mapping_of(rival) for rival in rivals if rival.key == own]
            if better:
                # The same sizes and choices in another place are the same mapping: it is faster than was thought, so
                # whoever overtook it may not have.
                selves, at, overtaken, what = [*selves, *better], low, None, ""
                continue
            known |= {rival.key: mapping_of(rival) for rival in rivals}
            faster = [rival.key for rival in rivals]
        if len(faster) < rank:
            break
        crossings = [(lever.crossing(selves, [known[key]], lever.now, at), key) for key in faster]
        overtaken, key = sorted(crossings, reverse=True)[rank - 1]
        what = f"{difference(own, key)} is then faster"
        at = overtaken * (1.0 + RESOLUTION)
        if at >= lever.now:
            break
    else:
        raise OutOfTime
    return Stability(
        input=lever.name,
        unit=lever.unit,
        now=lever.now,
        until=overtaken,
        tried=low,
        resolution=RESOLUTION if overtaken is not None else 0.0,
        what=what,
    )
