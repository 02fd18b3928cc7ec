"""torchtitan: what it refuses beyond physics, by release (FORMULAS 5.2).

Contents: RULES, JOINT.

`main` is September 2026: no expert tensor parallel (pull request 3167), EP of at least TP for MoE (4794). Before, with
ETP 1, EP took whole TP x CP groups (distributed/parallel_dims.py).
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import Schedule
from mapsearch.constraints.frameworks.rules import FrameworkRule, JointRule, always, ranged
from mapsearch.constraints.frameworks.shared import microbatches, not_interleaved
from mapsearch.constraints.rules import divides, rule, whole
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model

RULES: tuple[FrameworkRule, ...] = (
    *always(
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
            microbatches,
            absent=not_interleaved,
            origin="torchtitan",
            levers=("global batch", "pp"),
            source="F5.2 PT",
        ),
    ),
    ranged(
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
        since="main",
    ),
)


def _expert_tp(mapping: Mapping, _model: Model) -> str:
    if mapping.etp in (1, mapping.tp):
        return ""
    return f"ETP is 1 or TP = {mapping.tp}, but it is {mapping.etp}"


def _region(mapping: Mapping, _model: Model) -> str:
    inner = mapping.tp * mapping.cp
    if mapping.ep == 1 or mapping.etp != 1 or mapping.ep % inner == 0:
        return ""
    return f"EP takes whole groups of TP x CP = {inner}, but EP is {mapping.ep}; EP {inner} or {2 * inner} would do"


def _at_least_tp(mapping: Mapping, model: Model) -> str:
    if model.moe is None or mapping.ep >= mapping.tp:
        return ""
    return f"MoE models take EP of at least TP {mapping.tp}, but EP is {mapping.ep}; EP {mapping.tp} would do"


JOINT: tuple[JointRule, ...] = (
    JointRule("torchtitan_etp_or_tp", _expert_tp, before="main", source="distributed/parallel_dims.py"),
    JointRule("torchtitan_ep_region", _region, before="main", source="distributed/parallel_dims.py"),
    JointRule("torchtitan_ep_at_least_tp", _at_least_tp, since="main", source="pytorch/torchtitan pull request 4794"),
)
