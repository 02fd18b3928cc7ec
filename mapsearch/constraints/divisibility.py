"""Arithmetic that any framework needs: whole shards, whole batches, whole stages.

Contents: RELATIONS (visible tuple).
"""

from __future__ import annotations

import numpy as np

from mapsearch.axes import CpKind, Schedule
from mapsearch.constraints.rules import divides, rule, whole
from mapsearch.costs.stages import TWO_CHUNK_SCHEDULES
from mapsearch.costs.views import AttentionView, CellView
from mapsearch.quantity import Num
from mapsearch.relation import Relation


def chunks(cell: CellView) -> Num:
    """Pipeline chunks: stages times virtual stages, twice the stages in V-shaped schedules."""
    folded = np.isin(np.asarray(cell.schedule), TWO_CHUNK_SCHEDULES)
    return cell.pp * np.where(folded, 2, cell.vpp)


batch_divides = divides(
    "batch_divides",
    "cell",
    lambda c: c.facts.run.global_batch,
    lambda c: c.micro_batch * c.dp,
    "the global batch of {amount} sequences splits into microbatch x DP = {divisor}",
    levers=("global batch", "dp", "micro_batch"),
    source="F5.2 M12",
)

layers_fill_stages = Relation(
    name="layers_fill_stages",
    side="cell",
    unit="layers",
    demand=lambda c: chunks(c) + 0.0,
    limit=lambda c: float(c.facts.model.layers),
    sentence=lambda c, demand, limit: f"{demand:g} pipeline chunks need a layer each; the model has {limit:g} layers",
    levers=("pp", "vpp"),
    source="F3.5",
)


def _vpp_without_interleaving(c: CellView) -> Num:
    interleaved = np.asarray(c.schedule) == Schedule.INTERLEAVED
    return np.where(interleaved, (np.asarray(c.vpp) < 2) | (c.pp < 2), np.asarray(c.vpp) > 1)


schedule_takes_vpp = rule(
    "schedule_takes_vpp",
    "cell",
    _vpp_without_interleaving,
    lambda c: f"VPP {whole(c.vpp)} on PP {c.pp}: interleaved needs VPP >= 2 and PP >= 2, other schedules VPP 1",
    levers=("schedule", "vpp"),
    source="F3.5",
)


def _bidirectional_batch_broken(c: CellView) -> Num:
    dual = np.isin(np.asarray(c.schedule), (Schedule.DUALPIPE, Schedule.DUALPIPE_V))
    m = c.microbatches
    odd_stages = (np.asarray(c.schedule) == Schedule.DUALPIPE) & (c.pp % 2 == 1)
    return dual & (odd_stages | (m < 2 * c.pp) | (np.mod(m, 2) != 0))


bidirectional_batch = rule(
    "bidirectional_batch",
    "cell",
    _bidirectional_batch_broken,
    lambda c: (
        f"DualPipe needs an even number of microbatches, at least 2 PP = {2 * c.pp}; there are {whole(c.microbatches)}"
    ),
    levers=("global batch", "pp", "schedule"),
    source="F3.5",
)

heads_divide = divides(
    "heads_divide",
    "attention",
    lambda a: a.facts.model.heads,
    lambda a: a.tp,
    "{amount} query heads split over TP {divisor}",
    levers=("tp",),
    source="F5.2 M5",
)

kv_heads_divide = rule(
    "kv_heads_divide",
    "attention",
    lambda a: (
        np.zeros(np.shape(a.tp), bool)
        if a.facts.model.mla
        else (np.mod(a.facts.model.kv_heads, a.tp) != 0) & (np.mod(a.tp, a.facts.model.kv_heads) != 0)
    ),
    lambda a: f"{a.facts.model.kv_heads} KV heads are split over or replicated on TP {whole(a.tp)}",
    levers=("tp",),
    source="F5.2 M6",
)

ffn_divides = divides(
    "ffn_divides",
    "attention",
    lambda a: a.facts.model.ffn if a.facts.model.dense_layers else 0,
    lambda a: a.tp,
    "dense FFN width {amount} splits over TP {divisor}",
    levers=("tp",),
    source="F5.2 M8",
)

shared_ffn_divides = divides(
    "shared_ffn_divides",
    "attention",
    lambda a: a.facts.model.moe.shared_ffn if a.facts.model.moe else 0,
    lambda a: a.tp,
    "shared-expert width {amount} splits over TP {divisor}",
    levers=("tp",),
    source="F5.2 M8",
)


def _sequence_parts(a: AttentionView) -> Num:
    """Pieces one sequence is cut into: 2 CP for the balanced causal split, times TP under sequence parallel."""
    zigzag = np.where((np.asarray(a.cp_kind) != CpKind.ULYSSES) & (a.cp > 1), 2, 1)
    split = a.tp if a.facts.run.sequence_parallel else 1
    return np.lcm(a.cp * zigzag, a.cp * split)


sequence_divides = divides(
    "sequence_divides",
    "attention",
    lambda a: a.facts.run.sequence_length,
    _sequence_parts,
    "a sequence of {amount} tokens is cut into {divisor} pieces (CP, its causal halves, TP)",
    levers=("sequence length", "cp", "tp"),
    source="F5.2 M9",
)


def _ulysses_broken(a: AttentionView) -> Num:
    model = a.facts.model
    kind = np.asarray(a.cp_kind)
    spread = kind == CpKind.ULYSSES
    queries = np.mod(model.heads, a.tp * a.cp) != 0
    keys = (
        np.zeros_like(queries)
        if model.mla
        else (np.mod(model.kv_heads, a.tp * a.cp) != 0) & (np.mod(a.tp * a.cp, model.kv_heads) != 0)
    )
    return (a.cp > 1) & spread & (queries | keys)


ulysses_heads_divide = rule(
    "ulysses_heads_divide",
    "attention",
    _ulysses_broken,
    lambda a: (
        f"Ulysses spreads {a.facts.model.heads} query and {a.facts.model.kv_heads} KV heads over "
        f"TP x CP = {whole(a.tp * a.cp)}"
    ),
    levers=("cp", "cp_kind", "tp"),
    source="F5.2 M10",
)


experts_divide = divides(
    "experts_divide",
    "expert",
    lambda e: e.facts.model.moe.experts if e.facts.model.moe else 1,
    lambda e: e.ep,
    "{amount} routed experts split over EP {divisor}",
    levers=("ep",),
    source="F5.2 M4",
)

expert_ffn_divides = divides(
    "expert_ffn_divides",
    "expert",
    lambda e: e.facts.model.moe.expert_ffn if e.facts.model.moe else 1,
    lambda e: e.etp,
    "expert FFN width {amount} splits over ETP {divisor}",
    levers=("etp",),
    source="F5.2 M8",
)


RELATIONS: tuple[Relation, ...] = (
    batch_divides,
    layers_fill_stages,
    schedule_takes_vpp,
    bidirectional_batch,
    heads_divide,
    kv_heads_divide,
    ffn_divides,
    shared_ffn_divides,
    sequence_divides,
    ulysses_heads_divide,
    experts_divide,
    expert_ffn_divides,
)
