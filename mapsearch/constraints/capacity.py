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
    statement="the worst stage fits into the memory of a device",
    given=lambda facts: (
        f"{facts.fabric.name} offers {usable_hbm_bytes(facts) / 1e9:,.1f} GB of "
        f"{facts.fabric.device.hbm_bytes / 1e9:,.0f} GB per device after context and {facts.run.reserve:.0%} reserve"
    ),
)

host_memory = Relation(
    name="host_memory",
    side="pair",
    unit="bytes",
    demand=lambda view: view.host_bytes,
    limit=lambda view: view.facts.fabric.device.host_memory_bytes,
    sentence=lambda _view, demand, limit: (
        f"offload keeps {demand / 1e9:,.1f} GB per device in host memory; there are {limit / 1e9:,.1f} GB"
        if demand
        else f"does not apply: nothing is offloaded to the {limit / 1e9:,.1f} GB of host memory per device"
    ),
    levers=("host memory", "offload"),
    source="F1.1",
    statement="what is offloaded fits into host memory",
    given=lambda facts: (
        f"{facts.fabric.name} has {facts.fabric.device.host_memory_bytes / 1e9:,.1f} GB of host memory per device"
    ),
)

RELATIONS: tuple[Relation, ...] = (hbm, host_memory)
