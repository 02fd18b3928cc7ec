"""Contracts that several tests look at: vector E1 (FORMULAS 8), and moe-5t on the built-in ASIC cluster."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "solver"))

from tiny_cases import E1_MAPPING, e1_facts

from mapsearch.contracting.api import contract_of
from mapsearch.inventories.mapping import Mapping

ASIC_MAPPING = {
    **{"tp": 4, "cp": 8, "dp": 128, "pp": 1, "etp": 1, "ep": 16, "edp": 256},
    **{"recompute": "norm+activation+moe", "zero": 3, "offload": "optimizer", "dispatcher": "all-gather"},
    "placement": {
        "tp": {"board": 4},
        "cp": {"pod": 8},
        "dp": {"board": 2, "rack": 8, "pod": 8},
        "ep": {"board": 4, "rack": 4},
        "edp": {"board": 2, "rack": 2, "pod": 64},
    },
}


def e1_contract(mapping=None, model=None, profile=None, **run):
    facts = e1_facts(**run)
    efficiencies = facts.profile.replaced(**(profile or {}))
    changed = facts.model if model is None else facts.model.replaced(**model)
    wanted = Mapping.model_validate({**E1_MAPPING, **(mapping or {})})
    return contract_of(wanted, model=changed, run=facts.run, topology=facts.fabric, profile=efficiencies)
