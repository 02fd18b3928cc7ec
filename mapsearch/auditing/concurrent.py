"""What runs in the background beside what stands in line: which axes do, and what they can cost each other.

Contents: background, contended_shares.

The cost model lets background traffic (streams of parameters and gradients, exchanges behind another microbatch) run
under compute only, and exposes what exceeds the compute. So on a link that both use, the time of both is counted, one
after the other: a step as long as that is reached when in-line messages go first. Without priorities both get half of
the link while both are there, and the in-line one is through later by what the other has sent meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mapsearch.axes import Hidden
from mapsearch.costs.estimate import number
from mapsearch.topologies.wires import Floats

if TYPE_CHECKING:
    from mapsearch.auditing.measure import Measured


def background(measured: Measured) -> set[str]:
    """Axes whose transfers the schedule has under the compute of all that others do, so beside theirs (FORMULAS 4.3).

    A ring of context parallel is not among them: it hides behind its own layer's attention, where nothing else stands
    in line.
    """
    point = measured.point
    cell, overlap = point.cell, point.facts.run.overlap
    found = set()
    if number(cell.hides(Hidden.EXPERT_ALL_TO_ALL)):
        found.add("ep")
    for axis, side in zip(("dp", "edp"), point.sides, strict=False):
        if "dp" in side.under_compute or overlap.grad_reduce or number(cell.hides(Hidden.PARAM_GATHER)):
            found.add(axis)
    if overlap.pp and point.mapping.vpp > 1:
        found.add("pp")
    return found


def contended_shares(measured: Measured, tolerance: float) -> dict[str, float]:
    """Share of its bandwidth that each axis in line keeps where background traffic gets as much of a link as it does.

    At least so much: background traffic is taken to be there whenever the axis sends, until it is through. Axes that
    keep all but the tolerance are left out.
    """
    hidden = background(measured)
    streams, once = _busy(measured, hidden)
    rounds = number(measured.point.cell.microbatches)
    found: dict[str, float] = {}
    for index, traffic in enumerate(measured.traffic):
        mine = measured.busy_s[index]
        alone = float(mine.max(initial=0.0))
        if traffic.axis in hidden or not alone:
            continue
        # What is sent once per step meets the messages of one microbatch only.
        together = mine + np.minimum(mine, streams) + np.minimum(mine / rounds, once)
        share = alone / float(together.max())
        if share < 1.0 - tolerance:
            found[traffic.axis] = min(share, found.get(traffic.axis, 1.0))
    return found


def _busy(measured: Measured, hidden: set[str]) -> tuple[Floats, Floats]:
    """Seconds per step that background axes keep each link busy: with every microbatch, and once."""
    sides = zip(("dp", "edp"), measured.point.sides, strict=False)
    streaming = {axis for axis, side in sides if "dp" in side.under_compute} | {"ep", "pp"}
    streams, once = (np.zeros(measured.busy_s.shape[1]) for _ in range(2))
    for index, traffic in enumerate(measured.traffic):
        if traffic.axis in hidden and traffic.axis in streaming:
            streams += measured.busy_s[index]
        elif traffic.axis in hidden:
            once += measured.busy_s[index]
    return streams, once
