"""Model states: what they need at least, in words and as a floor of memory (FORMULAS 1.2).

Contents: states_sentence, state_floor_bytes.
"""

from __future__ import annotations

import numpy as np

from mapsearch.axes import Offload
from mapsearch.constraints.capacity import bytes_text
from mapsearch.costs.memory import gradient_bytes, optimizer_bytes, weight_bytes
from mapsearch.costs.parameters import ledger
from mapsearch.costs.views import Facts
from mapsearch.inventories.run import Run


def _each(run: Run) -> tuple[float, float]:
    """Bytes of one parameter's weights and gradients, and of its optimizer state, undivided. Source: FORMULAS 1.2."""
    one = np.float64(1.0)
    kept = weight_bytes(one, one, 0, run=run) + gradient_bytes(one, one, 0, run=run)
    return float(kept), float(optimizer_bytes(one, one, 0, run=run))


def states_sentence(facts: Facts) -> str:
    """What model states alone need per device when they are spread evenly: c P / W."""
    total = float(ledger(model=facts.model).total)
    each, devices = sum(_each(facts.run)), facts.fabric.devices
    nominal = facts.model.nominal_parameters
    text = (
        f"model states alone need {bytes_text(each * total / devices)} per device on {devices:,} devices "
        f"({each:g} B x {_count(total)} parameters)"
    )
    if nominal:
        text += f", {bytes_text(each * nominal / devices)} at the nominal {nominal / 1e12:g} T"
    return text


def _count(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:,.3f} {letter}"
    return f"{value:,.0f}"


def state_floor_bytes(facts: Facts, devices: int, offload: tuple[int, ...], offload_limit_bytes: float) -> float:
    """What the fullest of so many devices holds at least: all shards together are one copy or more.

    Optimizer states may be in host memory or on NVMe where a choice of `offload` says so, as far as those reach.
    """
    total = float(ledger(model=facts.model).total)
    kept, optimizer = (each * total / devices for each in _each(facts.run))
    if any(choice & Offload.OPTIMIZER for choice in offload):
        return max(kept, kept + optimizer - offload_limit_bytes)
    return kept + optimizer
