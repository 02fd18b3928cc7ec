"""Random loops: rates on both sides of balance, every policy, publishing short and long, spread and alike lengths."""

from __future__ import annotations

import math

import numpy as np

from mapsearch.costs.lengths import constant, from_quantiles, lognormal
from mapsearch.looping.facts import LoopFacts
from mapsearch.looping.measured import Measured, measured
from mapsearch.looping.simulator import simulate


def random_loop(seed: int) -> LoopFacts:
    """A loop that may be stable or not."""
    chance = np.random.default_rng(seed)
    mean, per_batch = float(chance.choice([512, 2048, 8192])), int(chance.integers(64, 513))
    batch, rate, kept = mean * per_batch, 1e5, float(chance.choice([1.0, 1.0, 0.6]))
    train_s = batch / (rate * kept) * float(np.exp(chance.uniform(-1.0, 1.0)))
    publish_s = float(chance.choice([0.0, 0.3, 0.8, 1.6])) * train_s
    tailed = from_quantiles([0.0, 0.5, 0.9, 1.0], [mean * 0.1, mean * 0.8, mean * 2.0, mean * 4.0])
    lengths = [constant(mean), lognormal(mean, 0.5), lognormal(mean, 1.0), tailed][int(chance.integers(4))]
    return LoopFacts(
        batch_tokens=batch,
        train_s=train_s,
        rollout_tokens_per_s=rate,
        concurrency=int(chance.integers(16, 257)),
        lengths=lengths,
        publish_s=publish_s,
        pause_s=publish_s * float(chance.choice([0.0, 0.0, 0.2])),
        publish_stall_s=publish_s * float(chance.choice([0.0, 0.0, 0.1])),
        speed_cv=float(chance.choice([0.0, 0.3])),
        kept_share=kept,
        most_queue_tokens=float(chance.choice([1.5, 2.0, 4.0, math.inf])) * batch,
        most_versions=float(chance.choice([1.0, 2.0, 4.0, 8.0, math.inf])),
        policy=str(chance.choice(["wait", "drop", "down-weight"])),  # type: ignore[arg-type]
        decay=0.5,
        publishing=str(chance.choice(["latest", "every"])),  # type: ignore[arg-type]
        switching=str(chance.choice(["finish", "finish", "in-flight"])),  # type: ignore[arg-type]
    )


def run_of(facts: LoopFacts, seed: int, trajectories: int) -> Measured:
    """The means over so many used trajectories, after as many to settle."""
    per_batch = facts.batch_tokens / facts.lengths.mean
    steps = 2 * int(min(400, max(60, trajectories / per_batch)))
    found = measured(facts, simulate(facts, steps=steps, seed=seed))
    assert found is not None, (seed, "starved")
    return found
