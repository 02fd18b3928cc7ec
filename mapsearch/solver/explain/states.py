"""Model states in words: what they need on so many devices (FORMULAS 1.2).

Contents: state_bytes_per_parameter, states_sentence.
"""

from __future__ import annotations

from mapsearch.costs.parameters import ledger
from mapsearch.costs.views import Facts
from mapsearch.inventories.run import Run


def state_bytes_per_parameter(run: Run) -> float:
    """Weights, gradients, master weights and moments of one parameter, in bytes. Source: FORMULAS 1.2."""
    state = run.state
    return state.weight_bytes + state.gradient_bytes + state.master_bytes + state.moment_bytes


def _bytes(value: float) -> str:
    return f"{value / 1e12:,.2f} TB" if value >= 1e12 else f"{value / 1e9:,.1f} GB"


def states_sentence(facts: Facts) -> str:
    """What model states alone need per device when they are spread evenly: c P / W."""
    total = float(ledger(model=facts.model).total)
    each, devices = state_bytes_per_parameter(facts.run), facts.fabric.devices
    nominal = facts.model.nominal_parameters
    text = (
        f"model states alone need {_bytes(each * total / devices)} per device on {devices:,} devices "
        f"({each:g} B x {total / 1e12:,.3f} T parameters)"
    )
    if nominal:
        text += f", {_bytes(each * nominal / devices)} at the nominal {nominal / 1e12:g} T"
    return text
