"""What redundant copies of experts cost a mapping that trains them: bytes on every rank, and one reduction more.

Contents: copies_cost.
"""

from __future__ import annotations

import numpy as np

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs import data_parallel
from mapsearch.costs.estimate import Point, number
from mapsearch.costs.footprint import routed_parameters
from mapsearch.expert_load import CopiesCost


def copies_cost(point: Point, copies: int) -> CopiesCost:
    """Bytes and seconds of so many copies in each MoE layer, on the stage whose peak is largest with them.

    A copy is one more expert of its rank: it keeps weights, gradients and optimizer states as the mapping keeps them
    for the rank's own, on every layer of the stage. Its gradients are added up with those of its expert once per step:
    charged as an all-reduce of the copied parameters over the whole EP group behind the step, an upper bound.
    Raises ValueError: the mapping has no experts.
    """
    facts = point.facts
    if facts.model.moe is None:
        raise ValueError(f"{facts.model.name} has no experts")
    share = copies / facts.model.moe.experts
    attention, expert = point.memory
    peaks = np.sum([*attention.values(), *expert.values()], axis=0)
    weights, gradients, optimizer = (share * expert[name] for name in ("weights", "gradients", "optimizer"))
    weights = weights + share * expert["gathered_weights"]  # a layer's copies are gathered with it
    after = peaks + weights + gradients + optimizer
    worst = int(np.argmax(after))
    # A rank that holds copies also holds experts that have copies elsewhere: at most all of its own.
    local = max(number(parameters) for parameters in routed_parameters(point.expert))
    reduced_s = data_parallel.expert_gradient_s(
        np.asarray(point.rows["ep"]),
        (share + min(share, 1.0)) * local,
        np.int64(0),
        model=facts.model,
        run=facts.run,
        fabric=facts.fabric,
        profile=facts.profile,
    )
    usable = usable_hbm_bytes(facts)
    return CopiesCost(
        per_rank=copies // point.mapping.ep,
        weight_bytes=float(weights[worst]),
        gradient_bytes=float(gradients[worst]),
        optimizer_bytes=float(optimizer[worst]),
        total_bytes=float((weights + gradients + optimizer)[worst]),
        gradient_s=number(reduced_s),
        usable_bytes=usable,
        peak_bytes=float(after[worst]),
        fits=bool(after[worst] <= usable),
    )
