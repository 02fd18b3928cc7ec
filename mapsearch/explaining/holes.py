"""What the holes of a cluster cost: the fastest mapping with each of them repaired, and with all.

Contents: check_holes, hole_costs, MOST.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mapsearch.errors import UsageError
from mapsearch.explaining.levers import SAME, fastest_below
from mapsearch.explanation import HoleCost
from mapsearch.solver.explain.binding import difference
from mapsearch.solver.problem import Problem
from mapsearch.solver.top import Candidate
from mapsearch.topologies import fabric_of
from mapsearch.topologies.spec import LinkName, Topology

MOST = 32
"""Holes that are repaired one by one; each is a search of its own."""


def check_holes(topology: object) -> Topology:
    """The topology whose holes can be asked about. Raises UsageError when it has none."""
    if not isinstance(topology, Topology) or not topology.down:
        name = getattr(topology, "name", "the cluster")
        raise UsageError(
            f"nothing of {name} is down, so there are no holes to price; list them under down", field="holes"
        )
    return topology


def hole_costs(
    problem: Problem, topology: Topology, best: Candidate, deadline: float | None
) -> Iterator[HoleCost | str]:
    """The cost of every hole by itself, then of all together; a note where there are more than `MOST`.

    A repaired cluster can do what the broken one does, so only something faster is searched for.
    """
    down = list(topology.down)
    if len(down) > 1:
        yield _cost(problem, topology, (f"all {len(down)}", []), best, deadline)
    for place, item in enumerate(down[:MOST]):
        name = f"{item.a} - {item.b}" if isinstance(item, LinkName) else item
        yield _cost(problem, topology, (name, [*down[:place], *down[place + 1 :]]), best, deadline)
    if len(down) > MOST:
        yield f"{len(down) - MOST:,} more holes were not repaired one by one"


def _cost(
    problem: Problem,
    topology: Topology,
    repaired: tuple[str, list[str | LinkName]],
    best: Candidate,
    deadline: float | None,
) -> HoleCost:
    name, down = repaired
    facts = problem.facts
    whole = fabric_of(topology.replaced(down=down))
    faster, complete, cutoff_s = None, True, best.step_time_s
    for fabric in (whole, *whole.alternatives):
        if fabric.device.name == facts.fabric.device.name:  # another type of device has a profile of its own
            found, ended = fastest_below(problem.with_facts(replace(facts, fabric=fabric)), cutoff_s, deadline)
            complete = complete and ended
            if found is not None:
                faster, cutoff_s, whole = found, found.step_time_s, fabric
    now_s = best.step_time_s
    then_s = faster.step_time_s if faster and faster.step_time_s < now_s * (1.0 - SAME) else now_s
    tokens = facts.run.tokens_per_step
    return HoleCost(
        hole=name,
        step_time_s=then_s if complete or faster else None,
        tokens_per_s=tokens / now_s,
        repaired_tokens_per_s=tokens / then_s if complete or faster else None,
        gain=now_s / then_s - 1.0,
        devices=whole.devices,
        unlock=difference(best.key, faster.key) if faster and then_s < now_s else "",
    )
