"""Domain 2, long context: short sequences, one true longest sequence, and packings, told apart (FORMULAS 1.5, 4.2).

Contents: SHORT, PIECES, PLANNED, Plan, plans_of, rows.

Each run of the test plan is the same mapping estimated again under that run: as many tokens per step and, where the
length differs, as many tokens per microbatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mapsearch import axes
from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.contract import Row
from mapsearch.contracting import packing
from mapsearch.contracting.case import ContractCase, Text, changed
from mapsearch.contracting.wire import traffic_of
from mapsearch.costs.estimate import Estimate, Point, estimate_point, layout_trouble, point_of
from mapsearch.costs.flops import kv_cache_bytes_per_token

SHORT = 4096
"""Tokens of the short sequences: the length of most published throughputs, and of vector E1 (FORMULAS 8)."""
PIECES = (4096, 16384, 65536)
"""Tokens of the pieces that fill the longest sequence in the packed runs."""


PLANNED = {
    "step_s": Text("step time of that run", "s", "median seconds between optimizer steps after warm-up", "time"),
    "tokens_per_s": Text(
        "tokens per second of all devices in that run",
        "tokens/s",
        "tokens per step over its seconds, padding not counted",
        "time",
    ),
    "peak_bytes": Text(
        "peak of live tensors on the worst stage in that run",
        "bytes",
        "largest max_memory_allocated over the ranks",
        "model",
    ),
    "cp_bytes": Text(
        "bytes that one rank sends for context parallel in a step of that run",
        "bytes",
        "sum of the bytes of all ring steps, gathers or all-to-alls of the CP group, from the trace",
    ),
    "cp_exposed_share": Text(
        "share of that step that context-parallel communication costs",
        "share",
        "1 - seconds of the step with CP communication removed / seconds with it",
        "model",
    ),
    "cp_imbalance": Text(
        "attention work of the busiest CP rank over the mean, zig-zag split of these pieces",
        "ratio",
        "largest over mean seconds of the attention kernels of the CP group's ranks",
        "model",
    ),
    "attended_tokens": Text(
        "sum(L_i^2) / sum(L_i): the length that attention sees",
        "tokens",
        "from the lengths of the documents (cu_seqlens)",
    ),
}
"""What each run of the plan predicts."""


@dataclass(frozen=True)
class Plan:
    """One run of the test plan."""

    name: str
    title: str
    length: int
    pieces: tuple[int, ...]
    """What fills one sequence slot."""


def plans_of(case: ContractCase) -> list[Plan]:
    """The runs of the test plan: short, long, and the long one's tokens in pieces."""
    longest = longest_of(case)
    short = min(SHORT, longest)
    plans = [
        Plan("short", f"sequences of {short:,} tokens", short, (short,)),
        Plan("long", f"one true sequence of {longest:,} tokens", longest, (longest,)),
    ]
    for piece in (one for one in PIECES if one < longest):
        filling = tuple(packing.filled(longest, piece))
        plans.append(Plan(f"packed_{piece}", f"{longest:,} tokens packed from pieces of {piece:,}", longest, filling))
    if longest // 2 > SHORT:
        filling = tuple(packing.filled(longest, longest // 2, SHORT))
        words = f"{longest:,} tokens packed from one of {longest // 2:,} and the rest in {SHORT:,}"
        plans.append(Plan("packed_mixed", words, longest, filling))
    return plans


def longest_of(case: ContractCase) -> int:
    """The longest sequence that must be shown: what the model was made for, or the run's where that is longer."""
    return max(case.model.max_sequence_length, case.run.sequence_length)


def planned(case: ContractCase, plan: Plan) -> Point:
    """The mapping under one run of the plan."""
    run, mapping = case.run, case.mapping
    sequences = max(1, round(run.tokens_per_step / plan.length))
    batch = max(1, round(mapping.micro_batch * run.sequence_length / plan.length))
    square = None
    if len(plan.pieces) > 1:
        # All ranks of a CP group wait for the busiest one: attention takes as long as its share does.
        busiest = packing.zigzag_imbalance(plan.pieces, mapping.cp)
        square = packing.mean_square_length(plan.pieces) * busiest
    facts = changed(case.facts, sequence_length=plan.length, global_batch=sequences, mean_square_length=square)
    return point_of(mapping.model_copy(update={"micro_batch": batch}), facts)


def rows(case: ContractCase) -> list[Row]:
    """What context parallel does to one sequence, and the runs of the test plan."""
    told = _shape(case)
    for plan in plans_of(case):
        told += _plan_rows(case, plan)
    return told


def _shape(case: ContractCase) -> list[Row]:
    model, mapping, longest = case.model, case.mapping, longest_of(case)
    row = partial(case.row, domain=2, formula="F1.5")
    length_of = "model.max_sequence_length" if model.max_sequence_length else "run.sequence_length"
    lengths = "lengths of all documents in the batch, as the attention kernel gets them (cu_seqlens)"
    true_one = longest == case.run.sequence_length and case.run.mean_square_length is None
    return [
        row(
            "context.longest_tokens",
            meaning="length of the longest true sequence that trains: one document, not packed short ones",
            predicted=longest,
            unit="tokens",
            origins=[length_of, "run.sequence_length"],
            record=lengths,
            compute="the largest of them",
            why="the run itself is of that length" if true_one else "the run is shorter or packed; the plan has it",
        ),
        row(
            "context.local_tokens",
            meaning="tokens of that sequence on one context-parallel rank: s / CP",
            predicted=longest / mapping.cp,
            unit="tokens",
            origins=[length_of, "mapping.cp"],
            record="shape of the queries that enter the attention kernel",
            compute="tokens times TP where the heads are split",
        ),
        row(
            "context.chunk_tokens",
            meaning="tokens of one chunk of the load-balanced causal split: s / (2 CP)",
            predicted=longest / (2.0 * mapping.cp),
            unit="tokens",
            origins=[length_of, "mapping.cp"],
            record="the framework's split of the sequence",
            compute="length of one chunk",
        ),
        row(
            "context.kv_layer_bytes",
            meaning="KV cache of that sequence in one layer, in 16 bits, not split",
            predicted=kv_cache_bytes_per_token(model=model) * longest,
            unit="bytes",
            origins=[length_of, "model.kv_heads", "model.head_dim"],
            record="bytes of K and V (MLA: of the latent) of one layer",
            compute="sum over the ranks of TP and CP, copies counted once",
        ),
        _kind(case),
    ]


def _kind(case: ContractCase) -> Row:
    """What divides the sequence."""
    model, mapping = case.model, case.mapping
    return case.row(
        "context.attention",
        2,
        "kind of attention, and of context parallel",
        f"{model.attention}, {axes.written('cp_kind', mapping.cp_kind)} over {mapping.cp}",
        "word",
        formula="F1.5",
        origins=["model.attention", "mapping.cp_kind"],
        record="names of the attention kernels and of the collectives around them in a trace",
        compute="read them: a ring sends to one neighbour, all-gather and Ulysses call collectives",
    )


def _plan_rows(case: ContractCase, plan: Plan) -> list[Row]:
    point = planned(case, plan)
    trouble = layout_trouble(point)
    if trouble:
        return [
            case.missing(
                f"context.{plan.name}.step_s",
                2,
                f"step time with {plan.title}",
                "s",
                needs=trouble,
                formula="F1.5",
                record="a run of that length",
                compute="seconds between optimizer steps",
            )
        ]
    return _told(case, plan, point, estimate_point(point))


def _told(case: ContractCase, plan: Plan, point: Point, estimate: Estimate) -> list[Row]:
    micro, batch = point.mapping.micro_batch, point.facts.run.global_batch
    limit = case.run.exposed_limit_by_class.get("cp")
    values = {
        "step_s": estimate.step_time_s,
        "tokens_per_s": estimate.tokens_per_s,
        "peak_bytes": estimate.peak_memory_bytes,
        "cp_bytes": traffic_of(point).step["cp"],
        "cp_exposed_share": estimate.exposed_s["cp"] / estimate.step_time_s,
        "cp_imbalance": packing.zigzag_imbalance(plan.pieces, case.mapping.cp),
        "attended_tokens": packing.mean_square_length(plan.pieces),
    }
    capped = {"limit": usable_hbm_bytes(case.facts), "why": "(1 - reserve) (HBM - context)"}
    said = "run.exposed_limit_by_class.cp" if limit is not None else "the run sets no limit for CP"
    return case.tabled(
        f"context.{plan.name}",
        2,
        PLANNED,
        values,
        {"peak_bytes": capped, "cp_exposed_share": {"limit": limit, "why": said}},
        formula="F1.5, F3.2, F4.2, F4.3",
        origins=["run.global_batch", "mapping.micro_batch", "mapping.cp"],
        record=f"a run of {plan.title}, micro-batch {micro}, {batch:,} sequences per step, the mapping otherwise the "
        "same",
    )
