"""What loads mean for a run file: capacity factor, skew of ranks, skew of pairs.

Contents: values_of, capacity_rows, routing_text.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mapsearch.expert_load import CapacityRow, ExpertLoad, RoutingValues
from mapsearch.experts.histogram import Histogram
from mapsearch.experts.statistics import capacity_use, least_factor, pair_skew, rank_loads, skew

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FACTORS = (1.0, 1.25, 1.5, 2.0)
"""Capacity factors that are always shown: those of FORMULAS 1.4, and 2."""


def loads_by_rank(histogram: Histogram, placements: list[Ints]) -> Floats:
    """(steps, layers, ranks): assignments of each rank, a placement for each layer."""
    loads = histogram.loads
    return np.stack([rank_loads(loads[:, layer], placed) for layer, placed in enumerate(placements)], axis=1)


def values_of(histogram: Histogram, placements: list[Ints], drop_limit: float) -> RoutingValues:
    """Values of the run's routing record under a placement of every layer.

    Layers run one after the other and each waits for its worst rank, so time goes with the mean of the layers' skews;
    what a rank holds adds up over its layers, so memory goes with the skew of their sum.
    """
    ranks = loads_by_rank(histogram, placements)
    each = skew(ranks)
    whole = skew(ranks.sum(axis=1))
    pairs = each
    if histogram.sources:
        tokens = histogram.tokens
        pairs = np.stack([pair_skew(tokens[:, layer], placed) for layer, placed in enumerate(placements)], axis=1)
    time, memory = float(each.mean()), float(whole.max())
    return RoutingValues(
        capacity_factor=least_factor(histogram.loads, drop_limit),
        rank_skew=max(time, memory),
        time_skew=time,
        memory_skew=memory,
        worst_layer_skew=float(each.max()),
        pair_skew=float(pairs.mean()),
    )


def capacity_rows(histogram: Histogram, factors: tuple[float, ...]) -> list[CapacityRow]:
    """What capacity factors do, all layers and steps together."""
    loads = histogram.loads
    rows = []
    for factor in sorted({*FACTORS, *factors}):
        found = capacity_use(loads, factor)
        slots = found.slots.sum() * histogram.experts
        taken = float((loads.sum(axis=-1) * (1.0 - found.drop_rate)).sum())
        rows.append(
            CapacityRow(
                capacity_factor=factor,
                slots=float(found.slots.mean()),
                use=taken / slots,
                drop_rate=max(0.0, 1.0 - taken / float(loads.sum())),
                waste=1.0 - taken / slots,
                amplification=slots / taken,
                worst_drop_rate=max(0.0, float(found.drop_rate.max())),
            )
        )
    return rows


def routing_text(load: ExpertLoad, *, placed: bool) -> str:
    """The `routing` record of a run file as YAML, each value with its source; rounded up."""
    from mapsearch import documents

    values = load.placed if placed else load.now
    where = "experts placed by mapsearch experts" if placed else "experts consecutive on ranks"
    who = f"{load.source}, {where}"
    dropped = "drops nothing" if load.drop_limit == 0.0 else f"drops {100 * load.drop_limit:g} % at most"
    even = "" if load.sources else ", sources taken as even"
    notes = {
        "capacity_factor": f"{load.source}: {dropped}",
        "rank_skew": f"{who}, {load.ranks} ranks",
        "pair_skew": f"{who}, {load.ranks} ranks{even}",
    }
    record = {
        name: {
            "value": math.ceil(max(1.0, getattr(values, name)) * 1e6 - 1e-3) / 1e6,
            "source": load.origin,
            "note": note,
        }
        for name, note in notes.items()
    }
    return documents.dump({"routing": record})
