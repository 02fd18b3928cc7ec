"""Megatron core: what it refuses beyond physics, by release (FORMULAS 5.2, M1 to M21).

Contents: OLDER, RULES, JOINT.

Where a release is named: the changelog of Megatron core (uneven stages in 0.9, MLA and parallel folding in 0.10, TP of
MLA, uneven virtual stages and CPU offload of the optimizer in 0.11, optimizer instances in 0.13); KV heads:
modelscope/ms-swift issue 8219, refused by 0.15, run by 0.16.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import CpKind, Hidden, Offload, Recompute, Schedule
from mapsearch.constraints.divisibility import chunks
from mapsearch.constraints.frameworks.rules import FrameworkRule, JointRule, always, ranged
from mapsearch.constraints.frameworks.shared import microbatches, not_interleaved
from mapsearch.constraints.rules import divides, rule, whole, word
from mapsearch.costs.views import AttentionView, CellView
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.quantity import Num


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


def _even_stages(c: CellView) -> str:
    return f"{c.facts.model.layers} layers meet PP {c.pp}"


def _even_chunks(c: CellView) -> str:
    return f"{c.facts.model.layers} layers meet PP {c.pp} x VPP {whole(c.vpp)}"


def _no_mla(a: AttentionView) -> str:
    return "" if a.facts.model.mla else "the model has no latent attention"


def _latent(a: AttentionView) -> str:
    mla = a.facts.model.mla
    return f"{a.facts.model.name} compresses keys to rank {mla.kv_rank}" if mla else "the model has none"


def _unfolded(mapping: Mapping, _model: Model) -> str:
    if mapping.ep == 1 or (mapping.dp % mapping.ep == 0 and mapping.etp == mapping.tp):
        return ""
    here = f"DP is {mapping.dp} with EP {mapping.ep}, TP {mapping.tp} with ETP {mapping.etp}"
    return f"without parallel folding EP divides DP and ETP is TP, but {here}"


def _uneven_chunks(c: CellView) -> Num:
    return (np.asarray(c.vpp) > 1) & (np.mod(float(c.facts.model.layers), chunks(c)) != 0)


OLDER: tuple[FrameworkRule, ...] = (
    ranged(
        divides(
            "megatron_kv_heads",
            "attention",
            lambda facts: 0 if facts.model.mla else facts.model.kv_heads,
            lambda a: a.tp,
            "KV heads",
            "TP",
            absent=lambda facts: "latent attention has no KV heads to split" if facts.model.mla else "",
            origin="megatron",
            levers=("tp",),
            source="F5.2 M6; ms-swift issue 8219",
        ),
        before="0.16",
    ),
    ranged(
        rule(
            "megatron_even_stages",
            "cell",
            lambda c: np.mod(float(c.facts.model.layers), float(c.pp)) + 0.0 * np.asarray(c.dp) != 0,
            "Megatron core gives all stages as many layers",
            _even_stages,
            given=lambda facts: f"the model has {facts.model.layers} layers",
            origin="megatron",
            levers=("pp",),
            source="F5.2 M13; changelog of core 0.9",
        ),
        before="0.9",
    ),
    ranged(
        rule(
            "megatron_even_chunks",
            "cell",
            _uneven_chunks,
            "Megatron core gives all virtual stages as many layers",
            _even_chunks,
            absent=not_interleaved,
            given=lambda facts: f"the model has {facts.model.layers} layers",
            origin="megatron",
            levers=("vpp", "pp"),
            source="F5.2 M14; changelog of core 0.11",
        ),
        before="0.11",
    ),
    ranged(
        rule(
            "megatron_latent_attention",
            "attention",
            lambda a: (np.asarray(a.tp) >= 1) & (a.facts.model.mla is not None),
            "Megatron core has no latent attention",
            _latent,
            absent=_no_mla,
            origin="megatron",
            source="changelog of core 0.10",
        ),
        before="0.10",
    ),
    ranged(
        rule(
            "megatron_latent_tp",
            "attention",
            lambda a: (np.asarray(a.tp) > 1) & (a.facts.model.mla is not None),
            "Megatron core does not split latent attention by TP",
            lambda a: f"TP is {whole(a.tp)}",
            absent=_no_mla,
            origin="megatron",
            levers=("tp",),
            source="changelog of core 0.11",
        ),
        before="0.11",
    ),
    ranged(
        rule(
            "megatron_offload_optimizer",
            "cell",
            lambda c: (np.asarray(c.offload) & Offload.OPTIMIZER) != 0,
            "Megatron core keeps the optimizer on the device",
            lambda c: f"offload is {word('offload', c.offload)} on {c.devices} devices",
            absent=lambda c: "" if whole(c.offload) & Offload.OPTIMIZER else "no optimizer states are offloaded",
            origin="megatron",
            levers=("offload",),
            source="changelog of core 0.11",
        ),
        before="0.11",
    ),
)
"""What older releases refuse and the newest accepts."""

RULES: tuple[FrameworkRule, ...] = (
    *always(
        rule(
            "megatron_interleave",
            "cell",
            _interleave_broken,
            "Megatron interleaves whole groups of PP microbatches",
            microbatches,
            absent=not_interleaved,
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
            lambda c: (
                ((np.asarray(c.offload) & Offload.ACTIVATIONS) != 0) & ((c.pp > 1) | (np.asarray(c.recompute) > 0))
            ),
            "Megatron offloads activations only with PP 1 and no recompute",
            lambda c: f"PP is {c.pp} and recompute is {word('recompute', c.recompute)}",
            absent=lambda c: "" if whole(c.offload) & Offload.ACTIVATIONS else "no activations are offloaded",
            origin="megatron",
            levers=("offload", "pp", "recompute"),
            source="F5.2 M21",
        ),
        rule(
            "megatron_optimizer_instances",
            "expert",
            lambda e: np.mod(e.edp, float(e.facts.run.shard_replicas)) != 0,
            "expert DP splits evenly over the instances of the distributed optimizer",
            lambda e: f"EDP {whole(e.edp)} meets {e.facts.run.shard_replicas} instances",
            absent=lambda e: "there is one instance" if e.facts.run.shard_replicas == 1 else "",
            origin="megatron",
            levers=("shard_replicas", "ep", "etp"),
            source="F5.2 M20; NVIDIA/Megatron-LM issue 4342",
        ),
    ),
    *OLDER,
)
"""Every rule; the search obeys those of the run's release."""

JOINT: tuple[JointRule, ...] = (
    JointRule("megatron_folding", _unfolded, before="0.10", source="F5.2 M2; changelog of core 0.10"),
)
