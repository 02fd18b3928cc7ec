"""An answer about two pools and its question: what the answer rests on, and both read again from it.

Contents: provenance_of_pools, pools_of, pair_of.
"""

from __future__ import annotations

import math

from mapsearch.answer import Provenance
from mapsearch.api import mapping_given
from mapsearch.errors import InputError
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.rollout import Rollout
from mapsearch.inventories.run import Run
from mapsearch.pooled import TwoPools
from mapsearch.pooling.problem import Pools, pace_of, read_pools
from mapsearch.pooling.split import Pair
from mapsearch.records import Record
from mapsearch.solver.problem import problem_of
from mapsearch.solver.provenance import assumptions, checksum, provenance_of
from mapsearch.solver.ranking import time_of
from mapsearch.topologies.spec import Topology

SAME = 1e-9
"""Relative difference of two times that add up in another order."""


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


def pair_of(pools: Pools, answer: TwoPools, *, file: str = "answer") -> Pair:
    """The pair of an answer on its division, costed again.

    Raises InputError when it has none, or when these inputs do not give it the step that the answer says.
    """
    if answer.mapping is None or answer.serving is None or answer.steady is None:
        raise InputError(f"holds no pair of mappings (status {answer.status})", file=file)
    plan, mapping = answer.serving, mapping_given(answer.mapping)
    parts = {part.training.fabric.devices: part for part in pools.parts()}
    part = parts.get(answer.training_devices)
    wanted = (plan.tp, plan.dp, plan.ep, plan.sequences_per_replica, plan.prefill_replicas, plan.replicas)
    offers = [] if part is None else pools.server.offers(part.serving)
    offer = next(
        (one for one in offers if (one.shape.tp, one.shape.dp, one.shape.ep, one.sequences, one.prefill_replicas,
                                   one.replicas) == wanted), None,
    )  # fmt: skip
    train_s = math.inf if part is None else time_of(mapping, problem_of(part.training))
    if part is not None and offer is not None and math.isfinite(train_s):
        pair = Pair(part, mapping, train_s, offer, pace_of(pools, part, offer, train_s, mapping))
        if math.isclose(pair.step_s, answer.steady.step_s, rel_tol=SAME):
            return pair
    raise InputError(
        "was solved for other inputs than are read now; give the inputs as they were, or solve again", file=file
    )
