"""MindSpeed on Ascend: the rules of the Megatron core that it patches, with its own in place of some (FORMULAS 5.2).

Contents: RULES, JOINT.

Releases are those of the patched core (branches core_r0.8.0, core_r0.12.1). Its own: DualPipeV
(pipeline_parallel/dualpipev_feature.py), hybrid context parallel (context_parallel/context_parallel_feature.py).
"""

from __future__ import annotations

from dataclasses import replace

from mapsearch import arrays as np
from mapsearch.axes import CpKind, Schedule
from mapsearch.constraints.frameworks import megatron
from mapsearch.constraints.frameworks.rules import FrameworkRule, JointRule, always
from mapsearch.constraints.rules import rule, whole, word
from mapsearch.costs.views import AttentionView, CellView
from mapsearch.quantity import Num
from mapsearch.relation import Relation

REPLACED = (
    "megatron_schedule",
    "megatron_mla_cp",
    "megatron_latent_attention",
    "megatron_latent_tp",
    "megatron_offload_optimizer",
)
"""Rules of the core that MindSpeed patches away: its schedules, latent attention and swapped optimizer are its own."""
SCHEDULES = (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.DUALPIPE_V)


def _renamed(relation: Relation) -> Relation:
    name = relation.name.replace("megatron", "mindspeed")
    return replace(relation, name=name, origin="mindspeed")


def _hybrid_only(a: AttentionView) -> Num:
    return (a.cp > 1) & ~np.isin(np.asarray(a.cp_kind), (CpKind.RING, CpKind.HYBRID, CpKind.ULYSSES))


def _tied_broken(c: CellView) -> Num:
    return (np.asarray(c.schedule) == Schedule.DUALPIPE_V) & c.facts.model.tied_embeddings


RULES: tuple[FrameworkRule, ...] = (
    *(replace(one, relation=_renamed(one.relation)) for one in megatron.RULES if one.relation.name not in REPLACED),
    *always(
        rule(
            "mindspeed_schedule",
            "cell",
            lambda c: (c.pp > 1) & ~np.isin(np.asarray(c.schedule), SCHEDULES),
            "MindSpeed runs 1F1B, interleaved 1F1B and DualPipeV",
            lambda c: f"the schedule is {word('schedule', c.schedule)} on PP {c.pp}",
            absent=lambda c: "one stage has nothing to schedule: PP is 1" if c.pp == 1 else "",
            origin="mindspeed",
            levers=("schedule",),
            source="MindSpeed, features_manager/pipeline_parallel",
        ),
        rule(
            "mindspeed_dualpipe_tied",
            "cell",
            _tied_broken,
            "MindSpeed's DualPipeV needs embedding and output head untied",
            lambda c: f"{c.facts.model.name} ties them",
            absent=lambda c: "" if whole(c.schedule) == Schedule.DUALPIPE_V else "the schedule is not dualpipe-v",
            origin="mindspeed",
            levers=("schedule",),
            source="MindSpeed, dualpipev_feature.py",
        ),
        rule(
            "mindspeed_cp_kind",
            "attention",
            _hybrid_only,
            "MindSpeed's context parallel is ring, Ulysses or both",
            lambda a: f"CP {whole(a.cp)} exchanges by {word('cp_kind', a.cp_kind)}",
            absent=lambda a: "CP is 1" if whole(a.cp) == 1 else "",
            origin="mindspeed",
            levers=("cp_kind",),
            source="MindSpeed, context_parallel_feature.py",
        ),
    ),
)

JOINT: tuple[JointRule, ...] = tuple(
    replace(one, name=one.name.replace("megatron", "mindspeed")) for one in megatron.JOINT
)
