"""Quantities: what a mapping costs in parameters, bytes, FLOP and seconds.

Contents: ALL (every declared quantity, in the order of the modules).
"""

from __future__ import annotations

from typing import Any

from mapsearch.costs import (
    activations,
    collectives,
    communication,
    compute,
    data_parallel,
    flops,
    memory,
    parameters,
    pipeline,
    publishing,
    recompute,
    rollout,
    routing,
    volumes,
)
from mapsearch.quantity import Quantity

MODULES = (
    parameters,
    flops,
    routing,
    activations,
    memory,
    pipeline,
    recompute,
    compute,
    collectives,
    communication,
    data_parallel,
    volumes,
    publishing,
    rollout,
)


def _all() -> tuple[Quantity[..., Any], ...]:
    found = [quantity for module in MODULES for quantity in getattr(module, "QUANTITIES", ())]
    by_name = {quantity.name: quantity for quantity in found}
    for quantity in found:
        if by_name[quantity.name] is not quantity:
            raise TypeError(f"two quantities share the name {quantity.name}")
    return tuple(by_name.values())


ALL: tuple[Quantity[..., Any], ...] = _all()
