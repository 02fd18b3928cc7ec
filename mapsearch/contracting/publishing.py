"""Domain 8, weight publishing: bytes by format, the parts of T_pub, and its budget (FORMULAS 1.7, 1.8).

Contents: rows, publish_transfer_s, STAGES.

Bytes follow from the model. Seconds need facts of the rollout side (`case.Pool`): what is not given is named.
"""

from __future__ import annotations

from functools import partial

from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase
from mapsearch.contracting.rollout_side import layout_rows, manifest_row
from mapsearch.costs import publishing, rollout
from mapsearch.costs.parameters import ledger

STAGES = {
    "quantise": ("quantising the weights for rollout", "start and end of quantisation on the slowest rank"),
    "reshard": ("bringing them into the rollout layout", "start and end of resharding on the slowest rank"),
    "verify": ("checking what arrived", "start and end of the check on the slowest replica"),
    "switch": ("switching the replicas over", "from the last check to the first token of the new version"),
}
NEEDS = {
    **{name: f"rollout.{name}_s" for name in STAGES},
    "transfer": "rollout.bytes_per_s, rollout.replicas and rollout.weight_format",
}
"""Stage: the facts of the rollout side that it needs."""


def rows(case: ContractCase) -> list[Row]:
    """Bytes, stages, T_pub against its budget, and the manifest."""
    return [*_bytes(case), *_stages(case), *layout_rows(case), *_publish(case), manifest_row(case)]


def _bytes(case: ContractCase) -> list[Row]:
    """Bytes of all weights in every format that rollout engines read, and their scales."""
    sizes = {"": ledger(model=case.model).total}
    if case.model.nominal_parameters:
        sizes["_nominal"] = case.model.nominal_parameters
    row = partial(case.row, domain=8, formula="F1.7")
    told = []
    for suffix, count in sizes.items():
        origin = ["model.nominal_parameters" if suffix else "model.layers"]
        of = "nominal size" if suffix else "all parameters"
        for name, weights in publishing.FORMATS.items():
            whole = float(publishing.publish_bytes(count, weights))
            told.append(
                row(
                    f"publish.{name}_bytes{suffix}",
                    meaning=f"weights of {of} in {name}, scales included, edge blocks not counted",
                    predicted=whole,
                    unit="bytes",
                    origins=origin,
                    record="bytes of the published tensors and scales, each once",
                    compute="their sum",
                )
            )
            if weights.scale_bytes:
                told.append(
                    row(
                        f"publish.{name}_scale_bytes{suffix}",
                        meaning=f"scales of {of} in {name}",
                        predicted=whole - count * weights.weight_bytes,
                        unit="bytes",
                        origins=origin,
                        record="bytes of the published scales, each once",
                        compute="their sum",
                    )
                )
    return told


def _seconds(case: ContractCase) -> dict[str, float | None]:
    pool = case.pool
    stages = {name: getattr(pool, f"{name}_s") for name in STAGES}
    return {**stages, "transfer": publish_transfer_s(case)}


def publish_transfer_s(case: ContractCase) -> float | None:
    """Least seconds to bring the weights to every replica; None where the rollout side is not given. Source: F1.7."""
    pool = case.pool
    if pool.transfer_s is not None:
        return pool.transfer_s
    if pool.bytes_per_s is None or pool.weight_format is None or pool.replicas is None:
        return None
    count = case.model.nominal_parameters or ledger(model=case.model).total
    volume = publishing.publish_bytes(count, publishing.FORMATS[pool.weight_format])
    return float(publishing.transfer_s(volume, pool.bytes_per_s, replicas=pool.replicas, tree=pool.tree))


def _stages(case: ContractCase) -> list[Row]:
    found = _seconds(case)
    told = []
    words = {**STAGES, "transfer": ("moving them to every replica", "first byte sent to last byte received")}
    for name, (meaning, record) in words.items():
        value = found[name]
        told.append(
            case.row(
                f"publish.{name}_s",
                8,
                f"T_{name}: {meaning}",
                value,
                "s",
                kind="model",
                formula="F1.7",
                origins=(),
                record=record,
                compute="seconds; for the transfer also bytes over seconds, which is B_e2e",
                verdict="not given" if value is None else "must be measured",
                why=NEEDS[name] if value is None else "as the rollout inputs say",
            )
        )
    return told


def _publish(case: ContractCase) -> list[Row]:
    found, pool = _seconds(case), case.pool
    absent = [name for name, value in found.items() if value is None]
    known = {f"{name}_s": value for name, value in found.items() if value is not None}
    total = None if absent else float(publishing.serial_publish_s(**known))
    total = total if pool.publish_s is None else pool.publish_s
    lag, made, queue = pool.version_lag, pool.generate_s, pool.queue_tokens
    budget = pool.budget_s
    if budget is None and lag is not None and made is not None and queue is not None:
        estimate = case.estimate
        budget = float(rollout.publish_budget_s(lag, made, queue, estimate.tokens_per_s, estimate.step_time_s))
    needs = [NEEDS[name] for name in absent]
    needs += ["rollout.version_lag, rollout.generate_s and rollout.queue_tokens"] if budget is None else []
    return [
        case.row(
            "publish.time_s",
            8,
            "T_pub: quantise, reshard, transfer, verify and switch",
            total,
            "s",
            kind="model",
            formula="F1.7, F1.8",
            origins=(),
            limit=budget,
            record="from the end of the step to the first token of the new version, on the slowest replica",
            compute="seconds; stages that overlap take the longest of them and the filling",
            why="; ".join(needs) if needs else "versions allowed times step, less generation and queue",
            verdict="not given" if total is None or budget is None else None,
            parts=[f"publish.{name}_s" for name in found],
        )
    ]
