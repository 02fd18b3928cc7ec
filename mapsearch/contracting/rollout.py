"""Domain 9, asynchronous co-operation: supply, waiting, queue and age of samples (FORMULAS 1.8).

Contents: rows.

What training needs follows from the mapping. The rest needs facts of the rollout side (`case.Pool`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase
from mapsearch.contracting.publishing import publish_transfer_s
from mapsearch.contracting.rollout_side import one_version_row
from mapsearch.costs import publishing, rollout

_SIDES = "tokens that entered training batches, and tokens that rollout finished and the filter kept, by minute"


def rows(case: ContractCase) -> list[Row]:
    """Rates, waiting, queue, age, and one version per request."""
    return [*_rates(case), *_waiting(case), *_queue(case), *_age(case), one_version_row(case)]


def _or_missing(case: ContractCase, name: str, meaning: str, value: Any, unit: str, *, needs: str, **told: Any) -> Row:
    """A row with its value, or one that says what it needs."""
    if value is None:
        texts = {key: told[key] for key in ("record", "compute")}
        return case.missing(name, 9, meaning, unit, needs=needs, formula="F1.8", **texts)
    return case.row(name, 9, meaning, float(value), unit, formula="F1.8", kind="model", origins=(), **told)


def _consumed(case: ContractCase) -> float:
    """Tokens per second that training takes: of the step of both pools, where it is known."""
    step_s = case.pool.step_s
    return case.estimate.tokens_per_s if step_s is None else float(case.run.tokens_per_step) / step_s


def _rates(case: ContractCase) -> list[Row]:
    return [
        case.row(
            "async.train_tokens_per_s",
            9,
            "lambda_train: tokens per second that training takes",
            case.estimate.tokens_per_s,
            "tokens/s",
            kind="time",
            formula="F1.8",
            origins=["run.global_batch", "run.sequence_length"],
            record=_SIDES,
            compute="tokens that entered batches over time",
        ),
        case.row(
            "async.batch_tokens",
            9,
            "B_tok: tokens of one batch",
            case.run.tokens_per_step,
            "tokens",
            formula="F1.8",
            origins=["run.global_batch", "run.sequence_length"],
            record="tokens of one training batch",
            compute="count them, padding apart",
        ),
        _or_missing(
            case,
            "async.rollout_tokens_per_s",
            "lambda_roll: effective tokens per second of rollout, after the filter; at least what is consumed",
            case.pool.rollout_tokens_per_s,
            "tokens/s",
            needs="rollout.rollout_tokens_per_s",
            limit=_consumed(case),
            sense=">=",
            why="lambda_train" if case.pool.step_s is None else "tokens per second of the step of both pools",
            record=_SIDES,
            compute="tokens that the filter kept over time",
        ),
    ]


def _waiting(case: ContractCase) -> list[Row]:
    step, batch, rate = case.estimate.step_time_s, float(case.run.tokens_per_step), case.pool.rollout_tokens_per_s
    planned = 0.0 if case.pool.step_s is None else max(0.0, case.pool.step_s - step)
    row = partial(_or_missing, case, needs="rollout.rollout_tokens_per_s", record="seconds of every step, by activity")
    return [
        row(
            "async.supply_s",
            "seconds in which rollout makes one batch: B_tok / lambda_roll",
            None if rate is None else rollout.supply_s(batch, rate),
            "s",
            compute="B_tok over lambda_roll",
        ),
        row(
            "async.wait_s",
            "seconds per step that training waits for tokens",
            None if rate is None else rollout.wait_s(step, batch, rate),
            "s",
            limit=planned,
            why="no sustained starvation" if case.pool.step_s is None else "no more than in the step of both pools",
            compute="seconds per step in which the trainer waits for its batch, mean over an hour",
        ),
        row(
            "async.duty",
            "share of the step in which training trains",
            None if rate is None else rollout.duty(step, batch, rate),
            "share",
            compute="training seconds over all seconds",
        ),
    ]


def _queue(case: ContractCase) -> list[Row]:
    pool = case.pool
    tokens, rate = pool.queue_tokens, _consumed(case)
    needs = "rollout.queue_tokens"
    row = partial(_or_missing, case, needs=needs, record="Q: tokens in the queue, every minute")
    return [
        row(
            "async.queue_tokens",
            "Q: tokens between rollout and training, at most Q_max",
            tokens,
            "tokens",
            limit=pool.most_queue_tokens,
            why="rollout.most_queue_tokens" if pool.most_queue_tokens else "rollout.most_queue_tokens is not given",
            compute="mean and largest",
        ),
        row(
            "async.queue_least_tokens",
            "Q: tokens between rollout and training, at least Q_min",
            tokens,
            "tokens",
            limit=pool.least_queue_tokens,
            sense=">=",
            why="rollout.least_queue_tokens" if pool.least_queue_tokens else "rollout.least_queue_tokens is not given",
            compute="least",
        ),
        row(
            "async.queue_delay_s",
            "age that a first-in-first-out queue adds: Q / lambda_train",
            None if tokens is None else rollout.queue_delay_s(tokens, rate),
            "s",
            compute="t_use - t_finish of each sample",
        ),
        row(
            "async.queue_versions",
            "versions that the queue adds: Q / B_tok",
            None if tokens is None else rollout.queue_versions(tokens, case.run.tokens_per_step),
            "versions",
            compute="versions published between finish and use of each sample",
        ),
    ]


def _age(case: ContractCase) -> list[Row]:
    pool, estimate = case.pool, case.estimate
    stages = (pool.quantise_s, pool.reshard_s, pool.verify_s, pool.switch_s)
    moved = publish_transfer_s(case)
    lag = pool.lag
    if lag is None and moved is not None and None not in stages and None not in (pool.generate_s, pool.queue_tokens):
        took = publishing.serial_publish_s(stages[0], stages[1], moved, stages[2], stages[3])
        rates = (estimate.tokens_per_s, estimate.step_time_s)
        lag = float(rollout.version_lag_bound(pool.generate_s, took, pool.queue_tokens, *rates))
    row = partial(
        _or_missing,
        case,
        needs="rollout.generate_s, rollout.queue_tokens and the parts of T_pub (domain 8)",
        record="version and time of generation, version and time of use, of every sample",
    )
    return [
        row(
            "async.version_lag",
            "dv: versions between generation and use, at most",
            lag,
            "versions",
            limit=pool.version_lag,
            why="rollout.version_lag" if pool.version_lag is not None else "rollout.version_lag is not given",
            compute="v_train(use) - v_roll(generation): largest and p99; no sample over the limit",
        ),
        row(
            "async.token_lag",
            "dtok: tokens trained between the two versions",
            None if lag is None else rollout.token_lag(lag, case.run.tokens_per_step),
            "tokens",
            compute="tokens of the batches between the two versions",
        ),
    ]
