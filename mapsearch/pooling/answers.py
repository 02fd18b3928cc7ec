"""An answer about two pools and its question: what the answer rests on, and both read again from it.

Contents: rollout_of, provenance_of_pools, pools_of, objective_asked, pair_of.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mapsearch.answer import Provenance
from mapsearch.api import mapping_given
from mapsearch.errors import InputError
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.rollout import Rollout
from mapsearch.inventories.run import Run
from mapsearch.pooled import TwoPools
from mapsearch.pooling.objective import DEVICE_HOURS, TOKENS, Objective
from mapsearch.pooling.problem import Pools, pace_of, read_pools
from mapsearch.pooling.sides import Sides
from mapsearch.pooling.split import Pair
from mapsearch.records import Record
from mapsearch.solver.problem import problem_of
from mapsearch.solver.provenance import assumptions, checksum, provenance_of
from mapsearch.solver.ranking import time_of
from mapsearch.topologies.spec import Topology

SAME = 1e-9
"""Relative difference of two times that add up in another order."""


def rollout_of(answer: TwoPools) -> Rollout:
    """The rollout inventory of an answer, read again. Raises InputError when it is not what it was."""
    found = load_inventory(Rollout, answer.rollout)
    if checksum(found) != answer.provenance.input_sha256["rollout"]:
        raise InputError("is not the rollout that the answer was solved for; give it as it was, or solve again",
                         file=answer.rollout)  # fmt: skip
    return found


def provenance_of_pools(pools: Pools) -> Provenance:
    """Names, checksums and assumptions of the inputs of both sides."""
    about = provenance_of(pools.inputs.named, pools.asked.devices)
    rollout = pools.rollout
    other: list[tuple[str, str, Record]] = [("rollout", pools.rollout_name, rollout)]
    if pools.own is not None:
        profile = pools.part(0).serving.profile
        other.append(("pool_topology", rollout.pool.topology or pools.own.name, pools.own))
        other.append(("pool_profile", rollout.pool.profile or profile.name, profile))
    return about.model_copy(
        update={
            "input_sha256": {**about.input_sha256, **{kind: checksum(record) for kind, _, record in other}},
            "assumptions": [*about.assumptions, *(line for kind, name, record in other
                                                  for line in assumptions(record, kind, name))],
        }
    )  # fmt: skip


def pools_of(
    answer: TwoPools,
    *,
    model: str | Model | None = None,
    run: str | Run | None = None,
    topology: str | Topology | None = None,
    profile: str | Profile | None = None,
    rollout: str | Rollout | None = None,
    devices: int | None = None,
) -> Pools:
    """The question of an answer, read again from the inputs that it names; what is given wins. Raises InputError.

    A topology that is given stands by itself: the answer's profile and number of devices belong to its own.
    """
    about, other = answer.provenance, topology is not None
    named = {kind: getattr(about, kind).removesuffix(" (built in)") for kind in ("model", "run", "topology", "profile")}
    return read_pools(
        model or named["model"],
        run or named["run"],
        topology or named["topology"],
        rollout or answer.rollout,
        profile or (None if other else named["profile"]),
        devices or (None if other else about.devices),
    )


def objective_asked(answer: TwoPools) -> Objective:
    """What the answer is the best in, with its prices."""
    cost = answer.cost
    if answer.objective == "cost" and cost is not None:
        return Objective("cost", cost.training_per_hour or 0.0, cost.rollout_per_hour or 0.0)
    return DEVICE_HOURS if answer.objective == "device-hours" else TOKENS


def pair_of(pools: Pools, answer: TwoPools, *, file: str = "answer") -> Pair:
    """The pair of an answer on its division, costed again.

    Raises InputError when it has none, or when these inputs do not give it the step that the answer says.
    """
    if answer.mapping is None or answer.serving is None or answer.steady is None:
        raise InputError(f"holds no pair of mappings (status {answer.status})", file=file)
    plan, mapping, asked = answer.serving, mapping_given(answer.mapping), objective_asked(answer)
    sides = Sides(pools, asked.pays)
    parts = {part.training.fabric.devices: part for part in sides.training}
    served = {facts.fabric.devices: facts for _, facts in sides.serving}
    part, facts = parts.get(answer.training_devices), served.get(answer.rollout_devices)
    wanted = (plan.tp, plan.dp, plan.ep, plan.sequences_per_replica, plan.prefill_replicas, plan.replicas)
    offers = [] if facts is None else pools.server.offers(facts)
    offer = next(
        (one for one in offers if (one.shape.tp, one.shape.dp, one.shape.ep, one.sequences, one.prefill_replicas,
                                   one.replicas) == wanted), None,
    )  # fmt: skip
    train_s = math.inf if part is None else time_of(mapping, problem_of(part.training))
    if part is not None and facts is not None and offer is not None and math.isfinite(train_s):
        whole = replace(part, serving=facts)
        pace = pace_of(pools, whole, offer, train_s, mapping)
        value = pace.step_s * float(asked.weight(answer.training_devices, answer.rollout_devices))
        if math.isclose(pace.step_s, answer.steady.step_s, rel_tol=SAME):
            return Pair(whole, mapping, train_s, offer, pace, value)
    raise InputError(
        "was solved for other inputs than are read now; give the inputs as they were, or solve again", file=file
    )
