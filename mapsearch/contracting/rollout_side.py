"""Rows of domains 4, 7, 8 and 9 that the rollout side of two pools fills in (FORMULAS 1.4, 1.7, 1.8).

Contents: routing_rows, precision_rows, layout_rows, manifest_row, one_version_row, loads_of.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase
from mapsearch.costs import routing
from mapsearch.costs.estimate import number
from mapsearch.expert_load import ExpertLoad
from mapsearch.inventories.manifest import RECIPES, Manifest

MANIFEST = (
    "train_version, rollout_version, fp8_format, scaling_recipe, sharding_layout, checksum, activation_time, "
    "rollback_parent"
)
POLICIES = {
    "drain": "requests end before their replica switches",
    "restart": "requests under way begin again on the new version",
    "side-by-side": "requests end on the old weights, which stay beside the new ones",
}


def routing_rows(case: ContractCase) -> list[Row]:
    """Experts of a replica: ranks, tokens and distinct ranks of one decode step."""
    pool = case.pool
    if pool.ep is None or pool.sequences is None:
        return []
    moe, origin = routing.routed(case.model), ["model.moe.experts", "model.moe.top_k"]
    row = partial(case.row, domain=4, formula="F1.4", kind="model", origins=origin)
    loads = "tokens that each expert of each layer received in a decode step of one replica, by rank"
    return [
        row(
            "routing.rollout_mean_load",
            meaning=f"rollout: mean tokens of one expert in a decode step of {pool.sequences:,} requests",
            predicted=pool.sequences * moe.top_k / moe.experts,
            unit="tokens",
            record=loads,
            compute="mean of n_e",
        ),
        row(
            "routing.rollout_rank_skew",
            meaning=f"rollout: load of the busiest of {pool.ep} expert ranks over the mean; the serving model takes 1",
            predicted=1.0,
            unit="ratio",
            record=loads,
            compute="sum n_e over the experts of each rank; largest over mean",
        ),
        row(
            "routing.rollout_distinct_ranks",
            meaning="rollout: u_R, distinct ranks that hold the K experts of a token, uniform routing",
            predicted=number(routing.distinct_units(pool.ep, model=case.model)),
            unit="units",
            record=loads,
            compute="mean over the tokens of the number of different destination ranks",
        ),
    ]


def loads_of(case: ContractCase, load: ExpertLoad, mean: float) -> dict[str, float]:
    """What a record of `mapsearch experts` says of the loads, at this mapping's mean load of an expert."""
    spread = load.by_expert
    factor = case.run.routing.capacity_factor
    nearest = min(load.capacity, key=lambda row: abs(row.capacity_factor - factor), default=None)
    told = {
        "load_mean": mean,
        "load_min": mean * spread.min / spread.mean,
        "load_p95": mean * spread.p95 / spread.mean,
        "load_max": mean * spread.max / spread.mean,
        "expert_skew": spread.skew,
        "variation": spread.variation,
    }
    if load.ranks == case.mapping.ep:
        told["rank_skew"] = load.now.rank_skew
    if nearest is not None and nearest.capacity_factor == factor:
        told["drop_rate"] = nearest.drop_rate
    return told


def precision_rows(case: ContractCase) -> list[Row]:
    """Formats of the rollout side, and what its log-probabilities are held against."""
    pool = case.pool
    if pool.weight_format is None or pool.gemm_format is None or pool.kv_format is None:
        return []
    row: Any = partial(case.row, domain=7, unit="word", formula="F1.7, F2.3", origins=())
    trace = "names of the GEMM kernels and the arguments of the serving engine, on one replica"
    words = {
        "weights": ("format and scaling recipe of the rollout weights",
                    f"{pool.weight_format} ({RECIPES[pool.weight_format]})"),
        "products": ("format of the rollout's products", pool.gemm_format),
        "cache": ("format of the KV cache", pool.kv_format),
    }  # fmt: skip
    told = [
        row(f"precision.rollout_{name}", meaning=meaning, predicted=value, record=trace, compute="read them")
        for name, (meaning, value) in words.items()
    ]
    told.append(
        row(
            "precision.error.rollout_logprob",
            meaning="log-probabilities of the same tokens by rollout and by training, same version",
            predicted=None,
            record="log-probabilities of generated tokens, as rollout sampled them and as training recomputes them",
            compute="mean and largest difference; the ratio of importance sampling",
            verdict="must be measured",
            why="a tolerance is yours to state; the model predicts no numerical error",
        ).model_copy(update={"unit": "1"})
    )
    return told


def layout_rows(case: ContractCase) -> list[Row]:
    """Both layouts: what a training rank sends to a rollout rank, what each sends and receives, and the bound."""
    pool = case.pool
    texts = {
        "peers": ("ranks of one replica that a training rank sends to, at most", "ranks",
                  "peers of every training rank during one publication", "largest number"),
        "pair_bytes": ("most bytes from one training rank to one rollout rank", "bytes",
                       "bytes of every pair of ranks during one publication", "largest"),
        "sent_bytes": ("bytes that the busiest training device sends for one version", "bytes",
                       "bytes sent by every training device during one publication", "largest"),
        "received_bytes": ("bytes that the fullest rollout device receives of one version", "bytes",
                           "bytes received by every rollout device during one publication", "largest"),
        "bound_s": ("no transfer between these pools is shorter", "s",
                    "first byte sent to last byte received", "measured seconds are not below it"),
    }  # fmt: skip
    told = []
    for name, (meaning, unit, record, compute) in texts.items():
        value = getattr(pool, name)
        if value is not None:
            limit = pool.transfer_s if name == "bound_s" else None
            row = case.row(
                f"publish.{name}", 8, meaning, value, unit, kind="model", formula="F1.7", origins=(), record=record,
                compute=compute, limit=limit, why="publish.transfer_s" if limit else "",
            )  # fmt: skip
            told.append(row)
    return told


def manifest_row(case: ContractCase) -> Row:
    """The manifest of a published version: held against the layout and format of the rollout side."""
    pool = case.pool
    record: Any = {
        "formula": "F1.7",
        "record": "the manifest of every published version",
        "compute": "every field is there, and the checksum is that of what the replica has loaded",
    }
    meaning = f"fields of the manifest that goes with every version: {MANIFEST}"
    if pool.weight_format is None or pool.replicas is None or pool.ep is None:
        return case.missing(
            "publish.manifest", 8, meaning, "word",
            needs="rollout.weight_format and the manifest of a published version", **record,
        )  # fmt: skip
    layout = {"replicas": pool.replicas, "tp": pool.tp, "dp": pool.dp, "ep": pool.ep}
    words = f"{pool.weight_format}, {pool.replicas} x TP{pool.tp} DP{pool.dp} EP{pool.ep}"
    if pool.manifest is None:
        return case.row(
            "publish.manifest", 8, meaning, words, "word", origins=(), verdict="must be measured",
            why="mapsearch rollout manifest writes one and refuses what would let a request see two versions; "
            "--manifest holds it against this layout", **record,
        )  # fmt: skip
    wrong = _apart(pool.manifest, pool.weight_format, layout)
    return case.row(
        "publish.manifest", 8, meaning, words, "word", origins=(), verdict="broken" if wrong else "holds",
        why=wrong or f"version {pool.manifest.rollout_version}: {len(pool.manifest.shards):,} shards, one activation, "
        f"back to version {pool.manifest.rollback_parent}", **record,
    )  # fmt: skip


def _apart(manifest: Manifest, weights: str, layout: dict[str, int | None]) -> str:
    """In what a manifest is not that of the answer; empty where it is."""
    if manifest.fp8_format != weights:
        return f"version {manifest.rollout_version} is in {manifest.fp8_format}, the answer's replicas serve {weights}"
    for name, value in layout.items():
        here = getattr(manifest.sharding_layout, name)
        if here != value:
            return f"version {manifest.rollout_version} is cut for {name} {here}, the answer has {name} {value}"
    return ""


def one_version_row(case: ContractCase) -> Row:
    """Domain 9: one version serves a request."""
    told: Any = {
        "formula": "F1.8",
        "record": "version that served prefill and each decode step of a request, on every rank",
        "compute": "one version per request",
    }
    meaning = "one request is served by one version: prefill, every decode step and every expert"
    if case.pool.in_flight is None:
        return case.missing(
            "async.one_version", 9, meaning, "word", needs="rollout.version policy of the serving side", **told
        )
    return case.row(
        "async.one_version", 9, meaning, case.pool.in_flight, "word", origins=(), verdict="must be measured",
        why=POLICIES[case.pool.in_flight], **told,
    )  # fmt: skip
