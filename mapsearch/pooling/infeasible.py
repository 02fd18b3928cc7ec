"""Why no pair of mappings fits any division, and the least change that helps, solved again.

Contents: explained.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mapsearch.costs import serving
from mapsearch.errors import InputError
from mapsearch.inputs import read_inputs
from mapsearch.pooled import LeastChange
from mapsearch.pooling.problem import Part, Pools
from mapsearch.pooling.replicas import shapes_of
from mapsearch.pooling.split import Found, best_pair, offer_bounds
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search
from mapsearch.topologies.scale import scaled
from mapsearch.topologies.spec import Topology

MOST_TIMES = 64
"""Times the cluster's outer units that are tried at most."""


def explained(pools: Pools, found: Found) -> tuple[list[str], list[LeastChange]]:
    """Sentences with numbers, and changes after which something fits."""
    for told in (_full_queue(pools), _without_room(pools)):
        if told is not None:
            return told
    why: list[str] = []
    parts, changes = pools.parts(), []
    statuses = {one.units: one.status for one in found.divisions}
    if all(status == "rollout" for status in statuses.values()):
        need, limit, hbm = _least_serving(pools, parts[0])
        why.append(
            f"no replica of {pools.model.name} fits: its leanest cut needs {need / 1e9:,.1f} GB per device for "
            f"weights, buffers and one longest sequence, and {parts[0].serving.fabric.name} offers "
            f"{limit / 1e9:,.1f} GB after context and reserve"
        )
        changes += _more_memory(pools, hbm)
    else:
        trained = [one for one in found.divisions if one.status == "training"]
        most = max(one.training_devices for one in trained)
        why.append(
            f"where a replica fits beside it, training has at most {most:,} devices, and no mapping of "
            f"{pools.model.name} fits on them"
        )
    changes += _more_devices(pools)
    return why, changes


def _full_queue(pools: Pools) -> tuple[list[str], list[LeastChange]] | None:
    """The case that the queue cannot hold a batch beside what it keeps."""
    queue = pools.rollout.queue
    if queue.held_batches + 1.0 <= queue.most_batches:
        return None
    least = queue.held_batches + 1.0
    why = (
        f"the queue holds {queue.held_batches:g} batches and takes {queue.most_batches:g} at most, so that the next "
        "batch never comes together beside them"
    )
    wider = queue.model_copy(update={"most_batches": least})
    best = best_pair(replace(pools, rollout=pools.rollout.model_copy(update={"queue": wider}))).best
    step_s = best.step_s if best else None
    return [why], [LeastChange(what="most_batches", from_value=queue.most_batches, to_value=least, step_s=step_s)]


def _without_room(pools: Pools) -> tuple[list[str], list[LeastChange]] | None:
    """The case that no step, however long, keeps samples young enough."""
    rollout = pools.rollout
    held, every = rollout.queue.held_batches, rollout.publishing.every
    if rollout.versions > held + every - 1:
        return None
    least = math.floor(held + every - 1) + 1
    why = (
        f"a sample may be {rollout.versions} versions old, but waiting in a queue of {held:g} batches and publishing "
        f"every {every} steps alone take {held + every - 1:g}, so none is ever young enough"
    )
    again = replace(pools, rollout=rollout.replaced(versions=least))
    best = best_pair(again).best
    step_s = best.step_s if best else None
    return [why], [LeastChange(what="versions", from_value=rollout.versions, to_value=least, step_s=step_s)]


def _least_serving(pools: Pools, part: Part) -> tuple[float, float, float]:
    """Bytes per device of the leanest replica, the limit, and the HBM at which they are equal."""
    facts, demand = part.serving, pools.server.demand
    copies = 2 if pools.rollout.publishing.in_flight == "side-by-side" else 1
    sized: Any = {"model": facts.model, "serving": facts.serving}
    needs = []
    for shape in shapes_of(pools.model, pools.rollout, facts.fabric):
        cut = (shape.tp, shape.dp, shape.ep)
        longest = float(serving.cache_bytes_per_sequence(shape.tp, demand.most_tokens, **sized))
        needs.append(copies * serving.weight_bytes(*cut, **sized) + serving.buffer_bytes(*cut, **sized) + longest)
    limit = serving.hbm_limit_bytes(facts)
    need = min(needs, default=math.inf)
    return need, limit, facts.fabric.device.hbm_bytes + (need - limit) / (1.0 - facts.serving.reserve)


def _more_memory(pools: Pools, hbm_bytes: float) -> list[LeastChange]:
    """HBM at which the leanest replica fits, solved again; nothing where rollout has a cluster of its own."""
    if pools.own is not None or not math.isfinite(hbm_bytes):
        return []
    whole = math.ceil(hbm_bytes / 1e8) * 1e8
    device = pools.topology.device.model_copy(update={"hbm": whole})
    best = best_pair(_on(pools, pools.topology.model_copy(update={"device": device}))).best
    if best is None:
        return []
    before = pools.topology.device.hbm
    return [LeastChange(what="hbm_bytes", from_value=before, to_value=whole, step_s=best.step_s)]


def _on(pools: Pools, topology: Topology) -> Pools:
    """The same question on another cluster."""
    facts = pools.inputs.facts
    inputs = read_inputs(facts.model, facts.run, topology, facts.profile, None)
    return replace(pools, inputs=inputs, topology=topology)


def _more_devices(pools: Pools) -> list[LeastChange]:
    """The fewest devices, in whole outer units, on which something fits: doubled, then halved, searched each time."""
    if pools.own is not None:
        return []
    each = pools.unit_devices

    def fits(units: int) -> bool:
        try:
            return _fits(_on(pools, scaled(pools.topology, units * each)))
        except InputError:  # the outermost level does not grow to so many
            return False

    units = _least(fits, pools.units)
    if units is None:
        return []
    best = best_pair(_on(pools, scaled(pools.topology, units * each))).best
    step_s = best.step_s if best else None
    return [LeastChange(what="devices", from_value=pools.units * each, to_value=units * each, step_s=step_s)]


def _fits(pools: Pools) -> bool:
    """Whether some pair fits some division; those with the most training devices first."""
    for part in reversed(pools.parts()):
        offers = pools.server.offers(part.serving)
        served = any(math.isfinite(bound) for bound in offer_bounds(pools, part, offers))
        if served and search(problem_of(part.training), 1, first=True).top:
            return True
    return False


def _least(fits: Callable[[int], bool], fails: int) -> int | None:
    """The least number above `fails` that fits; numbers between two tries are taken to be in order."""
    high, most = 2 * fails, MOST_TIMES * fails
    while not fits(high):
        fails, high = high, 2 * high
        if high > most:
            return None
    while high - fails > 1:
        middle = (high + fails) // 2
        fails, high = (fails, middle) if fits(middle) else (middle, high)
    return high
