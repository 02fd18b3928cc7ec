"""Arithmetic that any framework needs: whole shards, whole batches, whole stages.

Contents: RELATIONS (visible tuple).
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import CpKind, Schedule
from mapsearch.constraints.rules import divides, first, rule, whole, word
from mapsearch.costs.communication import innermost_part
from mapsearch.costs.stages import TWO_CHUNK_SCHEDULES
from mapsearch.costs.views import AttentionView, CellView, Facts
from mapsearch.quantity import Num
from mapsearch.relation import Relation


def chunks(cell: CellView) -> Num:
    """Pipeline chunks: stages times virtual stages, twice the stages in V-shaped schedules."""
    folded = np.isin(np.asarray(cell.schedule), TWO_CHUNK_SCHEDULES)
    return cell.pp * np.where(folded, 2, cell.vpp)


def _no_experts(facts: Facts) -> str:
    return "" if facts.model.moe else "the model has no routed experts"


batch_divides = divides(
    "batch_divides",
    "cell",
    lambda facts: facts.run.global_batch,
    lambda c: c.micro_batch * c.dp,
    "sequences of the global batch",
    "microbatch x DP",
    levers=("global batch", "dp", "micro_batch"),
    source="F5.2 M12",
)

layers_fill_stages = Relation(
    name="layers_fill_stages",
    side="cell",
    unit="layers",
    demand=lambda c: chunks(c) + 0.0,
    limit=lambda c: float(c.facts.model.layers),
    sentence=lambda c, demand, limit: (
        f"each of {demand:g} pipeline chunks (PP {c.pp}, {demand / c.pp:g} per stage) needs a layer; "
        f"the model has {limit:g}"
    ),
    levers=("pp", "vpp"),
    source="F3.5",
    statement="each pipeline chunk needs a layer",
    given=lambda facts: f"the model has {facts.model.layers} layers",
)


def _vpp_without_interleaving(c: CellView) -> Num:
    interleaved = np.asarray(c.schedule) == Schedule.INTERLEAVED
    return np.where(interleaved, (np.asarray(c.vpp) < 2) | (c.pp < 2), np.asarray(c.vpp) > 1)


schedule_takes_vpp = rule(
    "schedule_takes_vpp",
    "cell",
    _vpp_without_interleaving,
    "interleaving takes VPP and PP of 2 or more, other schedules VPP 1",
    lambda c: f"{word('schedule', c.schedule)} runs with VPP {whole(c.vpp)} on PP {c.pp}",
    levers=("schedule", "vpp"),
    source="F3.5",
)

BIDIRECTIONAL = (Schedule.DUALPIPE, Schedule.DUALPIPE_V)


def _bidirectional_batch_broken(c: CellView) -> Num:
    dual = np.isin(np.asarray(c.schedule), BIDIRECTIONAL)
    m = c.microbatches
    odd_stages = (np.asarray(c.schedule) == Schedule.DUALPIPE) & (c.pp % 2 == 1)
    return dual & (odd_stages | (m < 2 * c.pp) | (np.mod(m, 2) != 0))


bidirectional_batch = rule(
    "bidirectional_batch",
    "cell",
    _bidirectional_batch_broken,
    "DualPipe takes an even number of microbatches, two or more per stage, and without the V an even PP",
    lambda c: f"{first(c.microbatches):,g} microbatches meet PP {c.pp} in {word('schedule', c.schedule)}",
    absent=lambda c: "" if whole(c.schedule) in BIDIRECTIONAL else f"the schedule is {word('schedule', c.schedule)}",
    levers=("global batch", "pp", "schedule"),
    source="F3.5",
)

zero_bubble_batch = rule(
    "zero_bubble_batch",
    "cell",
    lambda c: (np.asarray(c.schedule) == Schedule.ZB_2P) & (c.pp > 1) & (c.microbatches < 2 * c.pp),
    "ZB-2P fills its bubble from two microbatches per stage on",
    lambda c: f"{first(c.microbatches):,g} microbatches meet PP {c.pp}",
    absent=lambda c: "" if whole(c.schedule) == Schedule.ZB_2P else f"the schedule is {word('schedule', c.schedule)}",
    levers=("global batch", "pp", "schedule"),
    source="F3.5",
)

heads_divide = divides(
    "heads_divide",
    "attention",
    lambda facts: facts.model.heads,
    lambda a: a.tp,
    "query heads",
    "TP",
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
    "KV heads split evenly over TP, or TP is a multiple of them",
    lambda a: f"{a.facts.model.kv_heads} KV heads meet TP {whole(a.tp)}",
    absent=lambda a: "latent attention has no KV heads to split" if a.facts.model.mla else "",
    given=lambda facts: f"the model has {facts.model.kv_heads} KV heads",
    levers=("tp",),
    source="F5.2 M6",
)

ffn_divides = divides(
    "ffn_divides",
    "attention",
    lambda facts: facts.model.ffn if facts.model.dense_layers else 0,
    lambda a: a.tp,
    "columns of the dense FFN",
    "TP",
    absent=lambda facts: "" if facts.model.dense_layers else "the model has no dense layers",
    levers=("tp",),
    source="F5.2 M8",
)


def _shared_ffn(facts: Facts) -> int:
    return facts.model.moe.shared_ffn if facts.model.moe else 0


shared_ffn_divides = divides(
    "shared_ffn_divides",
    "attention",
    _shared_ffn,
    lambda a: a.tp,
    "columns of the shared expert",
    "TP",
    absent=lambda facts: "" if _shared_ffn(facts) else "the model has no shared expert",
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
    lambda facts: facts.run.sequence_length,
    _sequence_parts,
    "tokens of a sequence",
    "the pieces of CP and TP",
    levers=("sequence length", "cp", "tp"),
    source="F5.2 M9",
)


def _ulysses_degree(a: AttentionView) -> Num:
    """Ranks over which heads are spread: CP under Ulysses, its innermost level under hybrid CP, else 1."""
    kind = np.asarray(a.cp_kind)
    inner = np.prod(innermost_part(a.cp_row)[0], axis=-1)
    return np.where(kind == CpKind.ULYSSES, a.cp, np.where(kind == CpKind.HYBRID, inner, 1))


def _ulysses_broken(a: AttentionView) -> Num:
    model, degree = a.facts.model, _ulysses_degree(a)
    ranks = a.tp * degree
    queries = np.mod(model.heads, ranks) != 0
    keys = (
        np.zeros_like(queries)
        if model.mla
        else (np.mod(model.kv_heads, ranks) != 0) & (np.mod(ranks, model.kv_heads) != 0)
    )
    return (degree > 1) & (queries | keys)


def _heads(facts: Facts) -> str:
    model = facts.model
    return f"{model.heads} query heads" + ("" if model.mla else f" and {model.kv_heads} KV heads")


def _not_ulysses(a: AttentionView) -> str:
    if whole(a.cp) == 1:
        return "CP is 1"
    kind = word("cp_kind", a.cp_kind)
    return "" if kind in ("ulysses", "hybrid") else f"CP exchanges by {kind}"


def _spread_over(a: AttentionView) -> str:
    ways = "CP" if word("cp_kind", a.cp_kind) == "ulysses" else "CP of its innermost level"
    return f"{_heads(a.facts)} meet TP x {ways} = {whole(a.tp * _ulysses_degree(a))}"


ulysses_heads_divide = rule(
    "ulysses_heads_divide",
    "attention",
    _ulysses_broken,
    "Ulysses spreads heads evenly over TP x CP",
    _spread_over,
    absent=_not_ulysses,
    given=lambda facts: f"the model has {_heads(facts)}",
    levers=("cp", "cp_kind", "tp"),
    source="F5.2 M10",
)


experts_divide = divides(
    "experts_divide",
    "expert",
    lambda facts: facts.model.moe.experts if facts.model.moe else 0,
    lambda e: e.ep,
    "routed experts",
    "EP",
    absent=_no_experts,
    levers=("ep",),
    source="F5.2 M4",
)

expert_ffn_divides = divides(
    "expert_ffn_divides",
    "expert",
    lambda facts: facts.model.moe.expert_ffn if facts.model.moe else 0,
    lambda e: e.etp,
    "columns of an expert's FFN",
    "ETP",
    absent=_no_experts,
    levers=("etp",),
    source="F5.2 M8",
)


RELATIONS: tuple[Relation, ...] = (
    batch_divides,
    layers_fill_stages,
    schedule_takes_vpp,
    bidirectional_batch,
    zero_bubble_batch,
    heads_divide,
    kv_heads_divide,
    ffn_divides,
    shared_ffn_divides,
    sequence_divides,
    ulysses_heads_divide,
    experts_divide,
    expert_ffn_divides,
)
