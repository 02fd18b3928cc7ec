"""Memory limits: HBM on every stage, host memory and NVMe for what is offloaded.

Contents: usable_hbm_bytes, hbm_for, bytes_text, hbm, host_memory, nvme_capacity, RELATIONS.
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


def hbm_for(needed_bytes: float, facts: Facts) -> float:
    """HBM of a device of which so much may be filled: the inverse of `usable_hbm_bytes`. Unit: bytes."""
    return needed_bytes / (1.0 - facts.run.reserve) + facts.profile.runtime_bytes


SCALES = ((1e12, "TB", 2), (1e9, "GB", 1), (1e6, "MB", 1))


def bytes_text(value: float) -> str:
    """Bytes as people say them: TB, GB or MB, whichever has a digit before the point."""
    size, unit, digits = next((row for row in SCALES if value >= row[0]), SCALES[-1])
    return f"{round(value / size, digits):,} {unit}".replace(".0 ", " ")


def _offer(facts: Facts) -> str:
    usable, whole = bytes_text(usable_hbm_bytes(facts)), bytes_text(facts.fabric.device.hbm_bytes)
    reserve = f"{100 * facts.run.reserve:g} % reserve"
    return f"{facts.fabric.name} offers {usable} of {whole} per device after context and {reserve}"


def _peak(view: PairView) -> Num:
    return maximum(view.memory[0], *view.memory[1:])


hbm = Relation(
    name="hbm",
    side="pair",
    unit="bytes",
    demand=_peak,
    limit=lambda view: usable_hbm_bytes(view.facts),
    sentence=lambda view, demand, limit: f"the worst stage needs {bytes_text(demand)} per device; {_offer(view.facts)}",
    levers=("HBM", "devices", "recompute", "pp", "zero", "offload", "overlap"),
    source="F1.1",
    statement="the worst stage fits into the memory of a device",
    given=_offer,
)

host_memory = Relation(
    name="host_memory",
    side="pair",
    unit="bytes",
    demand=lambda view: view.host_bytes,
    limit=lambda view: view.facts.fabric.device.host_memory_bytes,
    sentence=lambda _view, demand, limit: (
        f"offload keeps {bytes_text(demand)} per device in host memory; there are {bytes_text(limit)}"
        if demand
        else f"does not apply: nothing is offloaded to the {bytes_text(limit)} of host memory per device"
    ),
    levers=("host memory", "offload"),
    source="F1.1",
    statement="what is offloaded to host memory fits into it",
    given=lambda facts: (
        f"{facts.fabric.name} has {bytes_text(facts.fabric.device.host_memory_bytes)} of host memory per device"
    ),
)

nvme_capacity = Relation(
    name="nvme_capacity",
    side="pair",
    unit="bytes",
    demand=lambda view: view.nvme_bytes,
    limit=lambda view: view.facts.fabric.device.nvme_bytes,
    sentence=lambda _view, demand, limit: (
        f"offload keeps {demand / 1e9:,.1f} GB per device on NVMe; there are {limit / 1e9:,.1f} GB"
        if demand
        else f"does not apply: nothing is offloaded to the {limit / 1e9:,.1f} GB of NVMe per device"
    ),
    levers=("NVMe", "offload"),
    source="F1.1",
    statement="what is offloaded to NVMe fits onto it",
    given=lambda facts: f"{facts.fabric.name} has {facts.fabric.device.nvme_bytes / 1e9:,.1f} GB of NVMe per device",
)

RELATIONS: tuple[Relation, ...] = (hbm, host_memory, nvme_capacity)
