"""An answer about two pools and its question: what the answer rests on, and both read again from it.

Contents: rollout_of, provenance_of_pools, pools_of, objective_asked, pair_of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

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
from mapsearch.pooling.problem import Part, Pools, pace_of, read_pools, working
from mapsearch.pooling.replicas import Offer
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
    wanted = plan.tp, plan.dp, plan.ep, plan.sequences_per_replica, plan.prefill_replicas, plan.replicas
    for part in _divisions(pools, answer, asked):
        train_s = time_of(mapping, problem_of(part.training))
        offer = next((one for one in pools.server.offers(part.serving) if _told(one) == wanted), None)
        if offer is None or not math.isfinite(train_s):
            continue
        pace = pace_of(pools, part, offer, train_s, mapping)
        if math.isclose(pace.step_s, answer.steady.step_s, rel_tol=SAME):
            value = pace.step_s * float(asked.weight(answer.training_devices, answer.rollout_devices))
            return Pair(part, mapping, train_s, offer, pace, value)
    raise InputError(
        "was solved for other inputs than are read now; give the inputs as they were, or solve again", file=file
    )


def _told(offer: Offer) -> tuple[int, ...]:
    """An offer as an answer tells it."""
    shape = offer.shape
    return shape.tp, shape.dp, shape.ep, offer.sequences, offer.prefill_replicas, offer.replicas


def _divisions(pools: Pools, answer: TwoPools, asked: Objective) -> Iterator[Part]:
    """Divisions with the devices, and the units, that an answer names; several where a cluster is read in many ways."""
    sides = Sides(pools, asked.pays)
    sizes = np.array([size for size, _ in sides.serving])
    for part in sides.training:
        units = [pools.unlike[at].name for at in part.trains]
        if (part.training.fabric.devices, units) != (answer.training_devices, answer.training_units):
            continue
        for (_, facts), beside in zip(sides.serving, sides.beside(part, sizes).tolist(), strict=True):
            if beside and working(facts.fabric) == answer.rollout_devices:
                yield replace(part, serving=facts)
