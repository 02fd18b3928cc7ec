"""PyTorch's own FSDP2 and pipelining: what they refuse beyond physics, by release of PyTorch (FORMULAS 5.2).

Contents: RULES.

Interleaving took m mod PP = 0 until pytorch/pytorch pull request 129597 (2.5), whole rounds of microbatches since.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import Schedule
from mapsearch.constraints.frameworks.rules import FrameworkRule, always, ranged
from mapsearch.constraints.frameworks.shared import microbatches, not_interleaved
from mapsearch.constraints.rules import rule, whole
from mapsearch.costs.views import CellView
from mapsearch.quantity import Num


def _rounds_broken(c: CellView) -> Num:
    rounds = np.maximum(1.0, np.floor(c.microbatches / c.pp))
    return (np.asarray(c.schedule) == Schedule.INTERLEAVED) & (np.mod(c.microbatches, rounds) != 0)


def _multiple_broken(c: CellView) -> Num:
    return (np.asarray(c.schedule) == Schedule.INTERLEAVED) & (np.mod(c.microbatches, float(c.pp)) != 0)


RULES: tuple[FrameworkRule, ...] = (
    *always(
        rule(
            "fsdp2_zero",
            "cell",
            lambda c: (np.asarray(c.zero) < 2) & (c.devices > c.pp),
            "FSDP2 shards gradients and weights: ZeRO 2 or 3",
            lambda c: f"ZeRO is {whole(c.zero)}",
            absent=lambda c: "a stage is one device" if c.devices == c.pp else "",
            origin="fsdp2",
            levers=("zero",),
            source="torch.distributed.fsdp.fully_shard",
        ),
        rule(
            "fsdp2_etp",
            "expert",
            lambda e: e.etp > 1,
            "FSDP2 has no expert tensor parallel",
            lambda e: f"ETP is {whole(e.etp)}",
            origin="fsdp2",
            levers=("etp",),
            source="F5.2 torchtitan",
        ),
    ),
    ranged(
        rule(
            "fsdp2_interleave",
            "cell",
            _rounds_broken,
            "PyTorch interleaves whole rounds of microbatches over the stages",
            microbatches,
            absent=not_interleaved,
            origin="fsdp2",
            levers=("global batch", "pp"),
            source="F5.2 PT",
        ),
        since="2.5",
    ),
    ranged(
        rule(
            "fsdp2_interleave_multiple",
            "cell",
            _multiple_broken,
            "PyTorch interleaves a multiple of PP microbatches",
            microbatches,
            absent=not_interleaved,
            origin="fsdp2",
            levers=("global batch", "pp"),
            source="F5.2 PT; pytorch/pytorch pull request 129597",
        ),
        before="2.5",
    ),
)
