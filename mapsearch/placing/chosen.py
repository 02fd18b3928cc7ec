"""What placing ranks on a graph comes to, and the fixed order that it is compared with.

Contents: Chosen, fixed_order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.loads import Cost
from mapsearch.placing.placed import AXES, Placed, rank_groups


@dataclass(frozen=True)
class Chosen:
    """Ranks on devices, and how that compares."""

    placed: Placed
    cost: Cost
    given: Cost | None
    """Cost of the mapping's own placement; None when it does not fit the cluster as it is."""
    fixed: Cost
    """Cost of the fixed order: ranks tp-cp-ep-dp-pp on the devices as the cluster lists them."""
    proven: str
    """`all`: no other bijection is better; `units`: none that exchanges whole units of one tier; empty: not proven."""
    start: str
    """What the seats were found from: `given`, `axes` (those of a torus in another order), `placement`, `packed` or
    `fixed`."""
    busiest: tuple[str, str]
    """The busiest link, from and to."""


def fixed_order(mapping: Mapping, devices: Sequence[str]) -> Placed:
    """Ranks tp-cp-ep-dp-pp on the first devices as they are listed."""
    sizes = {axis: int(getattr(mapping, axis)) for axis in AXES}
    return Placed(tuple(devices[: mapping.devices]), rank_groups(sizes))
