"""What a framework enforces beyond physics (FORMULAS 5.2), as data: a tuple of relations per framework.

Contents: MEGATRON, TORCHTITAN, DEEPSPEED, relations.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import CpKind, Dispatcher, Hidden, Offload, Recompute, Schedule
from mapsearch.constraints.rules import divides, first, rule, whole, word
from mapsearch.costs.views import AttentionView, CellView, ExpertView
from mapsearch.inventories.run import Run
from mapsearch.quantity import Num
from mapsearch.relation import Relation


def _interleave_broken(c: CellView) -> Num:
    """M16 with the default group g = PP: PP <= m, and m mod PP is 0 or at least PP (so 0)."""
    m = c.microbatches
    return (np.asarray(c.schedule) == Schedule.INTERLEAVED) & ((m < c.pp) | (np.mod(m, c.pp) != 0))


def _overlap_broken(c: CellView) -> Num:
    """M17: EP overlap needs VPP when PP > 1, and neither full nor MoE recompute."""
    asked = c.hides(Hidden.EXPERT_ALL_TO_ALL) * (c.facts.model.moe is not None)
    again = (np.asarray(c.recompute) & (Recompute.FULL | Recompute.MOE)) != 0
    needs_vpp = (c.pp > 1) & (np.asarray(c.vpp) < 2)
    return (again | needs_vpp) * asked


def _sequence_parallel_broken(a: AttentionView) -> Num:
    return (a.tp > 1) & (a.facts.model.moe is not None) & (not a.facts.run.sequence_parallel)


def _microbatches(c: CellView) -> str:
    return f"{first(c.microbatches):,g} microbatches meet PP {c.pp}"


def _not_interleaved(c: CellView) -> str:
    schedule = word("schedule", c.schedule)
    return "" if schedule == "interleaved" else f"the schedule is {schedule}"


def _no_overlap(c: CellView) -> str:
    if not c.facts.model.moe:
        return "the model has no routed experts"
    return "" if c.hides(Hidden.EXPERT_ALL_TO_ALL) else "the expert all-to-all is not overlapped"


def _no_sequence_parallel_needed(a: AttentionView) -> str:
    if not a.facts.model.moe:
        return "the model has no MoE layers"
    return "TP is 1" if whole(a.tp) == 1 else ""


def _no_latent_cp(a: AttentionView) -> str:
    if not a.facts.model.mla:
        return "the model has no latent attention"
    return "CP is 1" if whole(a.cp) == 1 else ""


def _no_dispatch(e: ExpertView) -> str:
    return "EP is 1" if whole(e.ep) == 1 else ""


MEGATRON: tuple[Relation, ...] = (
    rule(
        "megatron_interleave",
        "cell",
        _interleave_broken,
        "Megatron interleaves whole groups of PP microbatches",
        _microbatches,
        absent=_not_interleaved,
        origin="megatron",
        levers=("global batch", "schedule", "pp"),
        source="F5.2 M16",
    ),
    rule(
        "megatron_expert_overlap",
        "cell",
        _overlap_broken,
        "Megatron overlaps the expert all-to-all only without full or MoE recompute, and with VPP where PP > 1",
        lambda c: f"recompute is {word('recompute', c.recompute)} with VPP {whole(c.vpp)} on PP {c.pp}",
        absent=_no_overlap,
        origin="megatron",
        levers=("overlap.expert_all_to_all", "recompute", "vpp"),
        source="F5.2 M17",
    ),
    rule(
        "megatron_sequence_parallel",
        "attention",
        _sequence_parallel_broken,
        "Megatron trains MoE layers with TP only under sequence parallel",
        lambda a: f"TP is {whole(a.tp)} with sequence parallel {'on' if a.facts.run.sequence_parallel else 'off'}",
        absent=_no_sequence_parallel_needed,
        origin="megatron",
        levers=("sequence_parallel", "tp"),
        source="F5.2 M9",
    ),
    rule(
        "megatron_mla_cp",
        "attention",
        lambda a: (a.cp > 1) & (np.asarray(a.cp_kind) == CpKind.HYBRID) & (a.facts.model.mla is not None),
        "Megatron has no hybrid context parallel for latent attention",
        lambda a: f"CP {whole(a.cp)} exchanges by {word('cp_kind', a.cp_kind)}",
        absent=_no_latent_cp,
        origin="megatron",
        levers=("cp_kind",),
        source="F5.2 M11",
    ),
    rule(
        "megatron_zero",
        "cell",
        lambda c: (np.asarray(c.zero) >= 2) & (c.pp > 1),
        "Megatron pipelines with ZeRO 0 or 1 only; ZeRO 2 and 3 (Megatron-FSDP) take PP 1",
        lambda c: f"ZeRO is {whole(c.zero)} on PP {c.pp}",
        origin="megatron",
        levers=("zero", "pp"),
        source="F3.6, F5.2 M21",
    ),
    rule(
        "megatron_schedule",
        "cell",
        lambda c: (c.pp > 1) & ~np.isin(np.asarray(c.schedule), (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)),
        "Megatron core runs 1F1B and interleaved 1F1B",
        lambda c: f"the schedule is {word('schedule', c.schedule)} on PP {c.pp}",
        absent=lambda c: "one stage has nothing to schedule: PP is 1" if c.pp == 1 else "",
        origin="megatron",
        levers=("schedule",),
        source="F5.2 M15, M16",
    ),
    rule(
        "megatron_offload_activations",
        "cell",
        lambda c: ((np.asarray(c.offload) & Offload.ACTIVATIONS) != 0) & ((c.pp > 1) | (np.asarray(c.recompute) > 0)),
        "Megatron offloads activations only with PP 1 and no recompute",
        lambda c: f"PP is {c.pp} and recompute is {word('recompute', c.recompute)}",
        absent=lambda c: "" if whole(c.offload) & Offload.ACTIVATIONS else "no activations are offloaded",
        origin="megatron",
        levers=("offload", "pp", "recompute"),
        source="F5.2 M21",
    ),
)

TORCHTITAN: tuple[Relation, ...] = (
    divides(
        "torchtitan_kv_heads",
        "attention",
        lambda facts: 0 if facts.model.mla else facts.model.kv_heads,
        lambda a: a.tp,
        "KV heads",
        "TP",
        absent=lambda facts: "latent attention has no KV heads to split" if facts.model.mla else "",
        origin="torchtitan",
        levers=("tp",),
        source="F5.2 torchtitan",
    ),
    rule(
        "torchtitan_etp",
        "expert",
        lambda e: e.etp > 1,
        "torchtitan has no expert tensor parallel",
        lambda e: f"ETP is {whole(e.etp)}",
        origin="torchtitan",
        levers=("etp",),
        source="F5.2 torchtitan",
    ),
    rule(
        "torchtitan_tied",
        "cell",
        lambda c: np.asarray(c.pp > 1) & c.facts.model.tied_embeddings & (np.asarray(c.vpp) > 0),
        "torchtitan does not pipeline models with tied embeddings",
        lambda c: f"PP is {c.pp}",
        absent=lambda c: "" if c.facts.model.tied_embeddings else "the model's embeddings are not tied",
        origin="torchtitan",
        levers=("pp",),
        source="F5.2 torchtitan",
    ),
    rule(
        "torchtitan_interleave",
        "cell",
        lambda c: (
            (np.asarray(c.schedule) == Schedule.INTERLEAVED)
            & (np.mod(c.microbatches, np.maximum(1.0, np.floor(c.microbatches / c.pp))) != 0)
        ),
        "PyTorch interleaves whole rounds of microbatches over the stages",
        _microbatches,
        absent=_not_interleaved,
        origin="torchtitan",
        levers=("global batch", "pp"),
        source="F5.2 PT",
    ),
)

DEEPSPEED: tuple[Relation, ...] = (
    rule(
        "deepspeed_etp",
        "expert",
        lambda e: e.etp > 1,
        "DeepSpeed's AutoEP takes ETP 1",
        lambda e: f"ETP is {whole(e.etp)}",
        origin="deepspeed",
        levers=("etp",),
        source="F5.2 DeepSpeed",
    ),
    rule(
        "deepspeed_cp",
        "attention",
        lambda a: (a.cp > 1) & (np.asarray(a.cp_kind) != CpKind.ULYSSES),
        "DeepSpeed's context parallel is Ulysses",
        lambda a: f"CP {whole(a.cp)} exchanges by {word('cp_kind', a.cp_kind)}",
        absent=lambda a: "CP is 1" if whole(a.cp) == 1 else "",
        origin="deepspeed",
        levers=("cp_kind",),
        source="F5.2 DeepSpeed",
    ),
    rule(
        "deepspeed_dispatcher",
        "expert",
        lambda e: (e.ep > 1) & ~np.isin(np.asarray(e.dispatcher), (Dispatcher.ALL_TO_ALL, Dispatcher.FIXED_ALL_TO_ALL)),
        "DeepSpeed dispatches tokens by all-to-all",
        lambda e: f"EP {whole(e.ep)} exchanges by {word('dispatcher', e.dispatcher)}",
        absent=_no_dispatch,
        origin="deepspeed",
        levers=("dispatcher",),
        source="F5.2 DeepSpeed",
    ),
)

BY_NAME: dict[str, tuple[Relation, ...]] = {
    "megatron": MEGATRON,
    "torchtitan": TORCHTITAN,
    "deepspeed": DEEPSPEED,
    "none": (),
}


def relations(run: Run) -> tuple[Relation, ...]:
    """The rules of the run's framework."""
    return BY_NAME[run.framework]
