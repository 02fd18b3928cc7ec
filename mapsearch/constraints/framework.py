"""What a framework enforces beyond physics (FORMULAS 5.2), as data: a tuple of relations per framework.

Contents: MEGATRON, TORCHTITAN, DEEPSPEED, relations.
"""

from __future__ import annotations

import numpy as np

from mapsearch.axes import CpKind, Dispatcher, Offload, Recompute, Schedule
from mapsearch.constraints.rules import divides, rule, whole
from mapsearch.costs.views import AttentionView, CellView
from mapsearch.inventories.run import Run
from mapsearch.quantity import Num
from mapsearch.relation import Relation


def _interleave_broken(c: CellView) -> Num:
    """M16 with the default group g = PP: PP <= m, and m mod PP is 0 or at least PP (so 0)."""
    m = c.microbatches
    return (np.asarray(c.schedule) == Schedule.INTERLEAVED) & ((m < c.pp) | (np.mod(m, c.pp) != 0))


def _overlap_broken(c: CellView) -> Num:
    """M17: EP overlap needs VPP when PP > 1, and neither full nor MoE recompute."""
    run = c.facts.run
    again = (np.asarray(c.recompute) & (Recompute.FULL | Recompute.MOE)) != 0
    needs_vpp = (c.pp > 1) & (np.asarray(c.vpp) < 2)
    return (again | needs_vpp) & run.overlap.expert_all_to_all


def _sequence_parallel_broken(a: AttentionView) -> Num:
    return (a.tp > 1) & (a.facts.model.moe is not None) & (not a.facts.run.sequence_parallel)


MEGATRON: tuple[Relation, ...] = (
    rule(
        "megatron_interleave",
        "cell",
        _interleave_broken,
        lambda c: (
            f"Megatron interleaves whole groups of PP microbatches: {whole(c.microbatches)} microbatches on PP {c.pp}"
        ),
        origin="megatron",
        levers=("global batch", "schedule", "pp"),
        source="F5.2 M16",
    ),
    rule(
        "megatron_expert_overlap",
        "cell",
        _overlap_broken,
        lambda c: "Megatron's expert all-to-all overlap needs VPP when PP > 1 and no full or MoE recompute",
        origin="megatron",
        levers=("overlap.expert_all_to_all", "recompute", "vpp"),
        source="F5.2 M17",
    ),
    rule(
        "megatron_sequence_parallel",
        "attention",
        _sequence_parallel_broken,
        lambda a: f"Megatron trains MoE layers with TP {whole(a.tp)} only under sequence parallel",
        origin="megatron",
        levers=("sequence_parallel", "tp"),
        source="F5.2 M9",
    ),
    rule(
        "megatron_mla_cp",
        "attention",
        lambda a: (a.cp > 1) & (np.asarray(a.cp_kind) == CpKind.HYBRID) & (a.facts.model.mla is not None),
        lambda a: "Megatron has no hybrid context parallel for MLA",
        origin="megatron",
        levers=("cp_kind",),
        source="F5.2 M11",
    ),
    rule(
        "megatron_zero",
        "cell",
        lambda c: (np.asarray(c.zero) >= 2) & (c.pp > 1),
        lambda c: f"Megatron's distributed optimizer is ZeRO-1; ZeRO {whole(c.zero)} (Megatron-FSDP) has no pipeline",
        origin="megatron",
        levers=("zero", "pp"),
        source="F3.6, F5.2 M21",
    ),
    rule(
        "megatron_schedule",
        "cell",
        lambda c: ~np.isin(np.asarray(c.schedule), (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)),
        lambda c: "Megatron core runs 1F1B and interleaved 1F1B",
        origin="megatron",
        levers=("schedule",),
        source="F5.2 M15, M16",
    ),
    rule(
        "megatron_offload_activations",
        "cell",
        lambda c: ((np.asarray(c.offload) & Offload.ACTIVATIONS) != 0) & ((c.pp > 1) | (np.asarray(c.recompute) > 0)),
        lambda c: "Megatron offloads activations only with PP 1 and no recompute",
        origin="megatron",
        levers=("offload", "pp", "recompute"),
        source="F5.2 M21",
    ),
)

TORCHTITAN: tuple[Relation, ...] = (
    divides(
        "torchtitan_kv_heads",
        "attention",
        lambda a: a.facts.model.kv_heads if a.facts.model.mla is None else 0,
        lambda a: a.tp,
        "torchtitan splits {amount} KV heads over TP {divisor}",
        origin="torchtitan",
        levers=("tp",),
        source="F5.2 torchtitan",
    ),
    rule(
        "torchtitan_etp",
        "expert",
        lambda e: e.etp > 1,
        lambda e: f"torchtitan has no expert tensor parallel; ETP is {whole(e.etp)}",
        origin="torchtitan",
        levers=("etp",),
        source="F5.2 torchtitan",
    ),
    rule(
        "torchtitan_tied",
        "cell",
        lambda c: np.asarray(c.pp > 1) & c.facts.model.tied_embeddings & (np.asarray(c.vpp) > 0),
        lambda c: "torchtitan does not pipeline models with tied embeddings",
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
        lambda c: f"PyTorch interleaving needs whole rounds: {whole(c.microbatches)} microbatches on PP {c.pp}",
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
        lambda e: f"DeepSpeed's AutoEP needs ETP 1; here it is {whole(e.etp)}",
        origin="deepspeed",
        levers=("etp",),
        source="F5.2 DeepSpeed",
    ),
    rule(
        "deepspeed_cp",
        "attention",
        lambda a: (a.cp > 1) & (np.asarray(a.cp_kind) != CpKind.ULYSSES),
        lambda a: "DeepSpeed's context parallel is Ulysses",
        origin="deepspeed",
        levers=("cp_kind",),
        source="F5.2 DeepSpeed",
    ),
    rule(
        "deepspeed_dispatcher",
        "expert",
        lambda e: (e.ep > 1) & ~np.isin(np.asarray(e.dispatcher), (Dispatcher.ALL_TO_ALL, Dispatcher.FIXED_ALL_TO_ALL)),
        lambda e: "DeepSpeed dispatches tokens by all-to-all",
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
