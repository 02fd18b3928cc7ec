"""Random loops as the benchmark draws them, and their simulated means."""

from __future__ import annotations

import numpy as np

from benchmarks import loop
from mapsearch.looping.facts import LoopFacts
from mapsearch.looping.measured import Measured, measured
from mapsearch.looping.simulator import simulate


def random_loop(seed: int) -> LoopFacts:
    """A loop that may be stable or not, without drains and restarts."""
    return loop.random_loop(np.random.default_rng(seed), ("finish", "finish", "in-flight"))


def run_of(facts: LoopFacts, seed: int, trajectories: int) -> Measured:
    """The means over so many used trajectories, after as many to settle."""
    found = measured(facts, simulate(facts, steps=loop.enough_steps(facts, trajectories), seed=seed))
    assert found is not None, (seed, "starved")
    return found
