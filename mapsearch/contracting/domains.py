"""The ten domains in order: the one list from which contracts are made.

Contents: Domain, DOMAINS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mapsearch.contract import Row
from mapsearch.contracting import (
    context,
    efficiency,
    exchange,
    places,
    precision,
    publishing,
    rollout,
    routing,
    state,
    structure,
)
from mapsearch.contracting.case import ContractCase


@dataclass(frozen=True)
class Domain:
    """One domain: its predicate, and the function that makes its rows."""

    number: int
    title: str
    predicate: str
    """What must be true of the machine (FORMULAS 1.9)."""
    rows: Callable[[ContractCase], list[Row]]


DOMAINS = (
    Domain(1, "model structure", "recomputed P, P_act and FLOP per layer equal the report", structure.rows),
    Domain(2, "long context", "at least one run with a true sequence of the longest length", context.rows),
    Domain(3, "training state", "the sum of all parts fits on the worst rank: <= (1 - r) M_use", state.rows),
    Domain(4, "MoE routing", "skew and overflow can be laid to an expert and a rank", routing.rows),
    Domain(5, "EP communication", "waste = 1 - valid / sent is reported, per peer and level", exchange.rows),
    Domain(6, "compute efficiency", "compute loss is told apart from waiting", efficiency.rows),
    Domain(7, "precision", "loss, log-probabilities, router and outputs stay within tolerance", precision.rows),
    Domain(8, "weight publishing", "T_pub is within the staleness budget", publishing.rows),
    Domain(9, "asynchronous co-operation", "no sustained starvation, no over-age sample", rollout.rows),
    Domain(10, "topology", "no hot group spans an unverified slow link", places.rows),
)
