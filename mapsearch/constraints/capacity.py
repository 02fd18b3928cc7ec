"""Memory limits: HBM on every stage, host memory for what is offloaded.

Contents: usable_hbm_bytes, hbm, host_memory, RELATIONS.
"""

from __future__ import annotations

from mapsearch.constraints.views import PairView
from mapsearch.costs.views import Facts
from mapsearch.quantity import Num, maximum
from mapsearch.relation import Relation


def usable_hbm_bytes(facts: Facts) -> float:
    """HBM that tensors and named buffers may fill: (1 - reserve) (HBM - context).

    Unit: bytes. Source: FORMULAS 1.1; the reserve stands for allocator fragmentation only and is charged once.
    """
    return (1.0 - facts.run.reserve) * (facts.fabric.device.hbm_bytes - facts.profile.runtime_bytes)


def _peak(view: PairView) -> Num:
    return maximum(view.memory[0], *view.memory[1:])


hbm = Relation(
    name="hbm",
    side="pair",
    unit="bytes",
    demand=_peak,
    limit=lambda view: usable_hbm_bytes(view.facts),
    sentence=lambda view, demand, limit: (
        f"the worst stage needs {demand / 1e9:,.1f} GB per device; {view.facts.fabric.name} offers {limit / 1e9:,.1f} "
        f"of {view.facts.fabric.device.hbm_bytes / 1e9:,.0f} GB after context and {view.facts.run.reserve:.0%} reserve"
    ),
    levers=("HBM", "devices", "recompute", "pp", "zero", "offload"),
    source="F1.1",
)

host_memory = Relation(
    name="host_memory",
    side="pair",
    unit="bytes",
    demand=lambda view: view.host_bytes,
    limit=lambda view: view.facts.fabric.device.host_memory_bytes,
    sentence=lambda view, demand, limit: (
        f"offload keeps {demand / 1e9:,.1f} GB per device in host memory; there are {limit / 1e9:,.1f} GB"
    ),
    levers=("host memory", "offload"),
    source="F1.1",
)

RELATIONS: tuple[Relation, ...] = (hbm, host_memory)
