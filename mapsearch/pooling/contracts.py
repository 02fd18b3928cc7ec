"""What an answer about two pools says to a contract: its rollout side as a `Pool`.

Contents: pool_of, read_answer.
"""

from __future__ import annotations

import json

from pydantic import ValidationError

from mapsearch import documents
from mapsearch.contracting.case import Pool
from mapsearch.errors import InputError
from mapsearch.inventories.manifest import Manifest
from mapsearch.inventories.rollout import Rollout
from mapsearch.pooled import TWO_POOLS_SCHEMA, TwoPools
from mapsearch.records import first_problem


def read_answer(file: str) -> TwoPools:
    """An answer of `rollout --format json`. Raises InputError."""
    data = documents.load(file)
    if not isinstance(data, dict) or data.get("schema") != TWO_POOLS_SCHEMA:
        raise InputError(f"is no answer of `rollout --format json` ({TWO_POOLS_SCHEMA})", file=file)
    try:
        return TwoPools.model_validate_json(json.dumps(data))
    except ValidationError as problem:
        raise first_problem(TwoPools, problem, file) from None


def pool_of(answer: TwoPools, rollout: Rollout | None = None, manifest: Manifest | None = None) -> Pool:
    """The rollout side of an answer: rates, layouts, stages of publishing, queue and versions.

    `rollout` is its inventory, which says formats and policy; `manifest` that of a published version.
    Raises InputError for an answer without a pair.
    """
    plan, serving, steady = answer.publishing, answer.serving, answer.steady
    if plan is None or serving is None or steady is None:
        raise InputError("holds no pair of mappings, so it says nothing of rollout", file=answer.rollout)
    copies = 1 if plan.path == "tree" else serving.replicas
    moved = plan.stages_s["transfer"]
    return Pool(
        # End to end: what the transfer as a whole makes of one copy, or of one copy to each replica.
        bytes_per_s=copies * plan.volume_bytes / moved,
        replicas=serving.replicas,
        weight_format=serving.weights,
        tree=plan.path == "tree",
        quantise_s=plan.stages_s["quantise"],
        reshard_s=plan.stages_s["reshard"],
        verify_s=plan.stages_s["verify"],
        switch_s=plan.stages_s["switch"],
        rollout_tokens_per_s=steady.batch_tokens / steady.supply_s,
        generate_s=serving.longest_request_s,
        queue_tokens=steady.held_batches * steady.batch_tokens,
        least_queue_tokens=steady.least_batches * steady.batch_tokens,
        most_queue_tokens=steady.most_batches * steady.batch_tokens,
        version_lag=steady.versions,
        lag=steady.version_lag,
        step_s=steady.step_s,
        transfer_s=moved,
        publish_s=plan.time_s,
        budget_s=plan.budget_s,
        bound_s=plan.bound_s,
        peers=plan.peers,
        pair_bytes=plan.pair_bytes,
        sent_bytes=plan.sent_bytes,
        received_bytes=plan.received_bytes,
        tp=serving.tp,
        dp=serving.dp,
        ep=serving.ep,
        sequences=serving.sequences_per_replica,
        gemm_format=rollout.serving.gemm_format if rollout else None,
        kv_format=rollout.serving.kv_format if rollout else None,
        in_flight=rollout.publishing.in_flight if rollout else None,
        manifest=manifest,
    )
