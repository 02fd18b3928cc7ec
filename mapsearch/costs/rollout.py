"""Asynchronous rollout beside training: waiting, duty and staleness (FORMULAS 1.8).

Contents: supply_s, wait_s, step_s, duty, queue_delay_s, queue_versions, version_lag_bound, token_lag,
publish_budget_s.

Rates are effective: tokens per second that survive the filter and enter a training batch.
"""

from __future__ import annotations

import numpy as np

from mapsearch.quantity import Floats, Num, maximum, positive_part

_ROUNDING = 1e-12
"""Share taken off before a ceil: a lag of exactly two steps is two versions."""


def supply_s(batch_tokens: Num, rollout_tokens_per_s: Num) -> Num:
    """Seconds in which rollout generates one training batch: B_tok / lambda_roll. Unit: s. Source: F1.8."""
    return batch_tokens / rollout_tokens_per_s


def wait_s(train_s: Num, batch_tokens: Num, rollout_tokens_per_s: Num) -> Num:
    """Seconds per step that training waits for tokens, in a steady state without backlog.

    max(0, B_tok / lambda_roll - T_train). Unit: s. Source: F1.8.
    """
    return positive_part(supply_s(batch_tokens, rollout_tokens_per_s) - train_s)


def step_s(train_s: Num, batch_tokens: Num, rollout_tokens_per_s: Num) -> Num:
    """Step with its waiting: max(T_train, B_tok / lambda_roll). Unit: s. Source: F1.8."""
    return maximum(train_s, supply_s(batch_tokens, rollout_tokens_per_s))


def duty(train_s: Num, batch_tokens: Num, rollout_tokens_per_s: Num) -> Num:
    """Share of the step in which the training devices train. Unit: none. Source: F1.8."""
    return train_s / step_s(train_s, batch_tokens, rollout_tokens_per_s)


def queue_delay_s(queue_tokens: Num, train_tokens_per_s: Num) -> Num:
    """Age that a first-in-first-out queue adds: Q / lambda_train (Little). Unit: s. Source: F1.8."""
    return queue_tokens / train_tokens_per_s


def queue_versions(queue_tokens: Num, batch_tokens: Num) -> Num:
    """Versions that a queue adds: Q / B_tok. Unit: versions. Source: F1.8."""
    return queue_tokens / batch_tokens


def version_lag_bound(
    generate_s: Num, publish_s: Num, queue_tokens: Num, train_tokens_per_s: Num, step_s: Num
) -> Floats:
    """Largest difference between the version that trains on a sample and the one that generated it.

    ceil((T_gen + T_pub + Q / lambda_train) / T_step). Unit: versions. Source: F1.8.
    """
    age = np.asarray(generate_s + publish_s + queue_delay_s(queue_tokens, train_tokens_per_s), dtype=np.float64)
    return np.asarray(np.ceil(age / step_s * (1.0 - _ROUNDING)))


def token_lag(versions: Num, batch_tokens: Num) -> Num:
    """Tokens trained between the two versions: the batches of the versions in between. Unit: tokens. Source: F1.8."""
    return versions * batch_tokens


def publish_budget_s(versions: Num, generate_s: Num, queue_tokens: Num, train_tokens_per_s: Num, step_s: Num) -> Num:
    """Longest publishing time that keeps the lag within `versions`; negative when nothing does.

    versions * T_step - T_gen - Q / lambda_train. Unit: s. Source: F1.8, solved for T_pub.
    """
    return versions * step_s - generate_s - queue_delay_s(queue_tokens, train_tokens_per_s)
