"""`rollout`: two pools in one search, as a typed answer.

Contents: rollout, answer_of, pair_told, bounds_of.
"""

from __future__ import annotations

import math
import time
from typing import Any

from mapsearch.answer import Answer, RankedMapping
from mapsearch.api import solve
from mapsearch.costs import pacing
from mapsearch.costs import rollout as steady
from mapsearch.costs.estimate import point_of
from mapsearch.interrupts import Interrupts
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.rollout import Rollout
from mapsearch.inventories.run import Run
from mapsearch.pooled import Cost, DivisionTold, ServingPlan, Steady, TwoPools
from mapsearch.pooling.answers import provenance_of_pools
from mapsearch.pooling.infeasible import explain_infeasible
from mapsearch.pooling.objective import DEVICE_HOURS, Objective, objective_of
from mapsearch.pooling.problem import Pools, read_pools
from mapsearch.pooling.published import published
from mapsearch.pooling.split import Division, Found, Pair, Told, best_pair
from mapsearch.pooling.uneven import left_out
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import ranked_mapping
from mapsearch.topologies.spec import Topology


def rollout(
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology = "asic",
    *,
    rollout: str | Rollout = "default",
    profile: str | Profile | None = None,
    devices: int | None = None,
    objective: str = "tokens",
    training_price: float | None = None,
    rollout_price: float | None = None,
    time_limit: float | None = None,
    proof: str = "auto",
    told: Told | None = None,
) -> TwoPools:
    """Training mapping, way to serve and division of the devices with the most RL tokens per second, proven.

    `objective` is tokens, cost (prices per device-hour, else those of the topology and the rollout) or device-hours;
    `run` is the training side; `proof` is that of `solve` for the training mapping. After `time_limit` seconds, or on
    Ctrl-C, the best so far with its gap. Raises MapsearchError.
    """
    started = time.monotonic()
    deadline = None if time_limit is None else started + time_limit
    with Interrupts():
        pools = read_pools(model, run, topology, rollout, profile, devices)
        asked = objective_of(pools, objective, training_price, rollout_price)
        found = best_pair(pools, deadline, told, objective=asked)
        answer = answer_of(pools, found, proof=proof)
        if found.best is None and found.complete:
            told_why = explain_infeasible(pools, deadline=deadline).fields()
            answer = answer.model_copy(update={**told_why, "notes": [*answer.notes, *told_why["notes"]]})
        return answer.model_copy(update={"seconds": time.monotonic() - started})


def answer_of(pools: Pools, found: Found, *, proof: str = "none") -> TwoPools:
    """What was found as the typed answer; the training side by itself is left out of one that was cut short."""
    pair, named, asked = found.best, {one.kind: one.name for one in pools.inputs.named}, found.objective
    told: dict[str, Any] = {
        "model": named["model"],
        "run": named["run"],
        "topology": named["topology"],
        "rollout": pools.rollout_name,
        "objective": asked.name,
        **bounds_of(pools, found, found.bound),
        "divisions": [_division(pools, found, one) for one in found.divisions],
        "offers": found.offers,
        "mappings": found.mappings,
        "provenance": provenance_of_pools(pools),
        "interrupted": found.interrupted,
        "notes": left_out(unlike=bool(pools.unlike), pays=asked.pays),
    }
    if pair is None:
        status = "infeasible" if found.complete else "unknown"
        empty = dict.fromkeys(("steady", "mapping", "serving", "publishing", "training"))
        return TwoPools(status=status, training_devices=0, rollout_devices=0, **told, **empty)
    training = _training(pools, pair, proof) if found.complete else None
    proven = training is not None and training.status in ("optimal", "feasible" if proof == "none" else "optimal")
    return TwoPools(
        status="optimal" if proven else "feasible",
        **pair_told(pools, pair, found),
        training_units=[pools.unlike[at].name for at in pair.part.trains],
        training=training,
        **told,
    )


def pair_told(pools: Pools, pair: Pair, found: Found) -> dict[str, Any]:
    """The fields of an answer, and of a point of a front, that say what the best pair is."""
    sizes = pair.part.training.fabric.devices, pair.part.rollout_devices
    return {
        "training_devices": sizes[0],
        "rollout_devices": sizes[1],
        "idle_devices": pools.devices - sum(sizes),
        "gap": max(0.0, (pair.value - found.bound) / pair.value),
        "cost": _cost(pair, found.objective),
        "steady": _steady(pools, pair),
        "mapping": _mapping(pair),
        "serving": _serving(pools, pair),
        "publishing": published(pools, pair),
    }


def bounds_of(pools: Pools, found: Found, bound: float) -> dict[str, float | None]:
    """A bound of the objective under the name of its unit."""
    asked, known = found.objective, math.isfinite(bound)
    each = asked.per_million(bound, float(pools.run.tokens_per_step)) if known else None
    return {"bound_s": bound if known and not asked.pays else None, "bound_per_million": each}


def _cost(pair: Pair, asked: Objective) -> Cost:
    """What the tokens of a pair cost."""
    sides, tokens = (pair.part.training.fabric.devices, pair.part.rollout_devices), pair.pace.batch_tokens
    hours = DEVICE_HOURS.per_million(pair.step_s * float(DEVICE_HOURS.weight(*sides)), tokens)
    priced = asked.name == "cost"
    return Cost(
        device_hours_per_million=hours or 0.0,
        per_million=asked.per_million(pair.value, tokens) if priced else None,
        training_per_hour=asked.training_per_hour if priced else None,
        rollout_per_hour=asked.rollout_per_hour if priced else None,
    )


def _mapping(pair: Pair) -> RankedMapping:
    """The training mapping of a pair, estimated."""
    relations = problem_of(pair.part.training).relations
    return ranked_mapping(1, point_of(pair.mapping, pair.part.training), relations)


def _training(pools: Pools, pair: Pair, proof: str) -> Answer:
    """The training side by itself, named so that it can be solved again with `--devices`."""
    asked = pools.asked
    if pair.part.trains:
        return solve(asked.model, asked.run, pair.part.topology, profile=asked.profile, top=1, proof=proof)
    devices = asked.devices if pair.part.units == 0 else pair.part.training.fabric.devices
    sides: Any = {"profile": asked.profile, "devices": devices}
    return solve(asked.model, asked.run, asked.topology, **sides, top=1, proof=proof)


def _division(pools: Pools, found: Found, one: Division) -> DivisionTold:
    value = one.value
    return DivisionTold(
        units=one.units,
        training_devices=one.training_devices,
        rollout_devices=one.rollout_devices,
        status=one.status,
        step_s=one.step_s,
        which=one.which,
        per_million=None if value is None else found.objective.per_million(value, float(pools.run.tokens_per_step)),
        **bounds_of(pools, found, one.bound),
    )


def _steady(pools: Pools, pair: Pair) -> Steady:
    """The steady state of a pair."""
    pace = pair.pace
    lag = pace.lag_bound(pace.step_s)
    binds, without_s = pacing.binding(pace)
    return Steady(
        step_s=pace.step_s,
        train_s=pace.train_s,
        supply_s=pace.supply_s,
        fresh_s=pace.fresh_s,
        repeated_s=pace.repeated_s,
        wait_s=pace.step_s - pace.train_s,
        duty=pace.train_s / pace.step_s,
        tokens_per_s=pace.tokens_per_s,
        version_lag=lag,
        versions=pace.versions,
        age_s=pace.age_bound_s(pace.step_s),
        token_lag=float(steady.token_lag(lag, pace.batch_tokens)),
        batch_tokens=pace.batch_tokens,
        held_batches=pace.held_batches,
        least_batches=pools.rollout.queue.least_batches,
        most_batches=pools.rollout.queue.most_batches,
        binding=binds,
        without_binding_s=without_s,
    )


def _serving(pools: Pools, pair: Pair) -> ServingPlan:
    """How a pair serves."""
    offer, shape = pair.offer, pair.offer.shape
    return ServingPlan(
        tp=shape.tp,
        dp=shape.dp,
        ep=shape.ep,
        etp=shape.devices // shape.ep,
        devices_per_replica=shape.devices,
        replicas=offer.replicas,
        prefill_replicas=offer.prefill_replicas,
        sequences_per_replica=offer.sequences,
        weights=pools.rollout.serving.weights,
        decode_step_s=offer.decode_s,
        decode_parts_s=dict(offer.decode_parts_s),
        prefill_s=offer.prefill_s,
        token_s=offer.token_s,
        tokens_per_s=offer.tokens_per_s,
        tokens_per_s_per_replica=offer.tokens_per_s / offer.replicas,
        longest_request_s=offer.generate_s,
        weight_bytes=offer.weight_bytes,
        cache_bytes=offer.cache_bytes,
        buffer_bytes=offer.buffer_bytes,
        limit_bytes=offer.limit_bytes,
    )
