"""What a histogram says for every number of expert ranks, so that a search weighs EP with the skew it has.

Contents: skew_table, with_loads.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mapsearch.errors import InputError
from mapsearch.experts.histogram import Histogram
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import RankSkew, Run

Floats = NDArray[np.float64]
_DIGITS = 1e6


def from_ranks(tokens: Floats, ranks: int) -> Floats:
    """Loads by source as they come from so many ranks: sources are consecutive shares of the ranks, or the reverse.

    A source's tokens are spread evenly over the ranks that it stands for. Axes: tokens (.., sources, experts).
    """
    sources = tokens.shape[-2]
    edges = np.arange(sources + 1) / sources
    mine = np.arange(ranks + 1) / ranks
    shared = np.minimum(edges[None, 1:], mine[1:, None]) - np.maximum(edges[None, :-1], mine[:-1, None])
    return np.asarray(np.maximum(shared, 0.0) * sources @ tokens)


def _placements(histogram: Histogram, ranks: int, placed: bool) -> list[NDArray[np.int64]]:
    standing = np.arange(histogram.experts).reshape(ranks, -1)
    if not placed or ranks in (1, histogram.experts):
        return [standing] * len(histogram.layers)
    from mapsearch.experts.place import place, spread_over_layers
    from mapsearch.solver.backends.experts import ExpertProblem

    loads = histogram.loads.sum(axis=0)
    layers = [place(ExpertProblem(layer, ranks, histogram.experts // ranks)) for layer in loads]
    return [layer.placement for layer in spread_over_layers(layers)]


def skew_table(histogram: Histogram, *, placed: bool) -> dict[int, RankSkew]:
    """Rank and pair skew on every number of ranks that divides the experts, rounded up to six decimals.

    Experts stand consecutively, or as the rules of `mapsearch experts` place them.
    """
    from dataclasses import replace

    from mapsearch.experts.values import values_of

    count = histogram.experts
    found = {}
    for ranks in (size for size in range(1, count + 1) if count % size == 0):
        there = replace(histogram, tokens=from_ranks(histogram.tokens, ranks)) if histogram.sources else histogram
        values = values_of(there, _placements(histogram, ranks, placed), 0.0)
        rank, pair = (
            math.ceil(max(1.0, value) * _DIGITS - 1e-3) / _DIGITS for value in (values.rank_skew, values.pair_skew)
        )
        found[ranks] = RankSkew(rank_skew=rank, pair_skew=pair)
    return found


def with_loads(run: Run, model: Model) -> Run:
    """The run with what its `routing.loads` gives for every number of expert ranks; itself when it names none.

    Raises InputError: no such file, or loads of other experts than the model's.
    """
    routing = run.routing
    if not routing.loads:
        return run
    from mapsearch.experts.files import read_histogram

    histogram = read_histogram(routing.loads)
    if model.moe is None or model.moe.experts != histogram.experts:
        has = "no experts" if model.moe is None else f"{model.moe.experts:,} experts"
        raise InputError(f"has loads of {histogram.experts:,} experts, and {model.name} has {has}", file=routing.loads)
    told = f"measured: {routing.loads}, experts {routing.experts}"
    table = skew_table(histogram, placed=routing.experts == "placed")
    changed = routing.model_copy(
        update={"loads": "", "by_ranks": table, "sources": {**routing.sources, "by_ranks": told}}
    )
    return run.model_copy(update={"routing": changed})
