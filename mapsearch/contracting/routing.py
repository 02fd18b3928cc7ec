"""Domain 4, MoE routing: load by expert and rank, capacity, drops (FORMULAS 1.4).

Contents: rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mapsearch.axes import Dispatcher
from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase, Text
from mapsearch.contracting.rollout_side import loads_of, routing_rows
from mapsearch.costs import routing
from mapsearch.costs.estimate import number

FACTORS = (1.0, 1.25, 1.5)
"""Capacity factors of the table in FORMULAS 1.4; the run's own is added."""
LOADS = "n_e: tokens that each expert of each MoE layer received in a step, before drops, by rank (all-reduced counts)"
EVEN = "the estimate takes a router that spreads tokens evenly over experts"
_WHO = "over the experts of one layer; say which layer, expert and rank it is"
LOADED = {
    "load_mean": Text(
        "mean of n_e over the experts, one microbatch of one EP group",
        "tokens",
        "mean over the experts of one layer",
        "model",
    ),
    "load_min": Text("least n_e, one microbatch of one EP group", "tokens", f"least {_WHO}", "model"),
    "load_p95": Text("p95 of n_e, one microbatch of one EP group", "tokens", f"p95 {_WHO}", "model"),
    "load_max": Text("largest n_e, one microbatch of one EP group", "tokens", f"largest {_WHO}", "model"),
    "expert_skew": Text(
        "rho_e = max n_e / mean n_e: the hot expert",
        "ratio",
        "largest over mean of n_e in each layer; the worst layer counts",
        "model",
    ),
    "rank_skew": Text(
        "rho_r: load of the busiest rank over the mean, which sets compute time and activations",
        "ratio",
        "sum n_e over the experts of each rank; largest over mean",
        "model",
    ),
    "variation": Text(
        "CV = std(n_e) / mean(n_e)", "ratio", "standard deviation over mean of n_e in each layer", "model"
    ),
    "drop_rate": Text(
        "share of the assignments that find no slot: 1 - sum min(n_e, C) / A",
        "share",
        "by expert and by source rank; 0 for a dropless dispatcher",
        "model",
    ),
}
"""What is logged of the loads."""


def rows(case: ContractCase) -> list[Row]:
    """Assignments, loads, capacity, and what padding or skew multiplies."""
    if case.model.moe is None:
        return []
    return [*_domain(case), *_capacity(case), *_source_rank(case), *_loads(case), *_spread(case), *routing_rows(case)]


def _domain(case: ContractCase) -> list[Row]:
    """One longest sequence as the routing domain."""
    moe = routing.routed(case.model)
    tokens = float(case.model.max_sequence_length or case.run.sequence_length)
    row = partial(case.row, domain=4, formula="F1.4", record=LOADS)
    length = "model.max_sequence_length" if case.model.max_sequence_length else "run.sequence_length"
    return [
        row(
            "routing.assignments",
            meaning=f"A = N K: copies of the tokens of one sequence of {tokens:,.0f} in one layer; no token count",
            predicted=tokens * moe.top_k,
            unit="assignments",
            origins=[length, "model.moe.top_k"],
            compute="sum of n_e over the experts",
        ),
        row(
            "routing.mean_load",
            meaning="mean load of one expert from that sequence",
            predicted=tokens * moe.top_k / moe.experts,
            unit="tokens",
            origins=[length, "model.moe.top_k", "model.moe.experts"],
            compute="mean of n_e",
        ),
    ]


def _capacity(case: ContractCase) -> list[Row]:
    """Capacity of one sequence as the routing domain at several capacity factors."""
    moe, own = routing.routed(case.model), case.run.routing.capacity_factor
    tokens = float(case.model.max_sequence_length or case.run.sequence_length)
    told = []
    for factor in sorted({*FACTORS, own}):
        slots = number(routing.capacity_slots(tokens, experts=moe.experts, top_k=moe.top_k, capacity_factor=factor))
        accepted = tokens * moe.top_k
        origins = ["run.routing.capacity_factor"] if factor == own else []
        row = partial(
            case.row,
            domain=4,
            formula="F1.4",
            origins=[*origins, "model.moe.experts", "model.moe.top_k"],
            record=LOADS,
        )
        name = f"routing.cf_{factor:g}"
        told += [
            row(
                f"{name}.slots",
                meaning=f"C = ceil({factor:g} N K / E): slots of one expert for that sequence",
                predicted=slots,
                unit="slots",
                compute="rows that the dispatcher reserves for one expert",
            ),
            row(
                f"{name}.use",
                meaning="use of these slots when nothing is dropped: A / (E C)",
                predicted=min(1.0, accepted / (moe.experts * slots)),
                unit="share",
                compute="sum of min(n_e, C) over E C",
            ),
            row(
                f"{name}.amplification",
                meaning="slots over assignments: what padding multiplies",
                predicted=moe.experts * slots / accepted,
                unit="ratio",
                compute="E C over the sum of min(n_e, C)",
            ),
        ]
    return told


def _source_rank(case: ContractCase) -> list[Row]:
    """Capacity as frameworks count it: from the tokens of the source rank."""
    told = case.shaped
    row = partial(
        case.row,
        domain=4,
        formula="F1.4",
        origins=["run.routing.capacity_factor", "run.routing.min_capacity", "mapping.tp", "mapping.cp"],
        record="rows of the send buffer of one rank in one layer",
    )
    return [
        row(
            "routing.rank_tokens",
            meaning="N_src: tokens of one microbatch on one rank",
            predicted=case.tokens,
            unit="tokens",
            compute="rows that enter the router",
        ),
        row(
            "routing.source_slots",
            meaning="C_src: slots that one rank reserves at each expert when it pads",
            predicted=number(routing.capacity(case.tokens, **told)),
            unit="slots",
            compute="rows of the send buffer over the experts",
        ),
        row(
            "routing.source_amplification",
            meaning="E C_src / (N_src K): rows sent over rows routed when each rank pads",
            predicted=number(routing.amplification(case.tokens, **told)),
            unit="ratio",
            compute="rows of the send buffer over N_src K",
        ),
    ]


def _loads(case: ContractCase) -> list[Row]:
    """What must be logged of the loads; the run's skew is what the prediction rests on."""
    run, moe = case.run.routing, routing.routed(case.model)
    padded = case.mapping.dispatcher == Dispatcher.FIXED_ALL_TO_ALL
    mean = case.tokens * case.mapping.ep * moe.top_k / moe.experts
    values = {
        **dict.fromkeys(("load_mean", "load_min", "load_p95", "load_max"), mean),
        "expert_skew": 1.0,
        "rank_skew": number(routing.received_skew(case.mapping.ep, **case.shaped)),
        "variation": 0.0,
        "drop_rate": 0.0,
    }
    if case.load is not None:
        values |= loads_of(case, case.load, mean)
    hot = "run.routing.capacity_factor: above it tokens are dropped"
    dropped = f"{EVEN}, which drops nothing at {run.capacity_factor:g}" if padded else "the dispatcher drops nothing"
    each: dict[str, dict[str, Any]] = {
        "load_mean": {"origins": ["model.moe.top_k", "model.moe.experts", "mapping.ep"], "why": ""},
        "rank_skew": {"why": "run.routing.rank_skew"},
        "drop_rate": {"origins": ["run.routing.capacity_factor"], "why": dropped},
    }
    if padded:
        each["expert_skew"] = {"limit": run.capacity_factor, "why": hot, "verdict": "must be measured"}
    origins = ["run.routing.rank_skew"]
    why = EVEN
    if case.load is not None:
        why = f"{case.load.source} ({case.load.origin})"
        each = {name: {**told, "why": why} for name, told in each.items()}
    return case.tabled("routing", 4, LOADED, values, each, formula="F1.4", record=LOADS, origins=origins, why=why)


def _spread(case: ContractCase) -> list[Row]:
    """How many ranks and units a token's experts live in."""
    ep, model = case.mapping.ep, case.model
    dealt = case.run.routing.consecutive
    row = partial(case.row, domain=4, formula="F1.4", kind="model", unit="units", record=LOADS)
    origins = ["model.moe.experts", "model.moe.top_k", "mapping.ep"]
    told = [
        row(
            "routing.distinct_ranks",
            meaning="u_R: distinct ranks that hold the K experts of a token, uniform routing",
            predicted=number(routing.distinct_units(ep, model=model, consecutive=dealt)),
            origins=origins,
            compute="mean over the tokens of the number of different destination ranks",
        )
    ]
    ways = case.point.rows["ep"]
    for place, level in enumerate(case.fabric.levels[1:], start=1):
        spanned = 1
        for cut in ways[place:]:
            spanned *= cut
        if spanned > 1:
            told.append(
                row(
                    f"routing.remote_units.{level.name}",
                    meaning=f"distinct {case.fabric.level_names[place - 1]}s other than its own that a token goes to, "
                    f"of {spanned}",
                    predicted=number(routing.remote_units(spanned, model=model, consecutive=dealt)),
                    origins=[*origins, f"topology.levels.{level.name}.size"],
                    compute="mean over the tokens of the number of different destination units",
                )
            )
    return told
