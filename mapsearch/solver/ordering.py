"""The cells of one DP size in the order in which a search looks at them.

Contents: Ordered, ordered_cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapsearch.quantity import Floats
from mapsearch.solver.bounds import Slice, leasts, slice_of
from mapsearch.solver.cells import Index
from mapsearch.solver.exposure import Limited, hopeless_cells, least_excess, limited_at
from mapsearch.solver.problem import Problem
from mapsearch.solver.tables import Tables


@dataclass(frozen=True)
class Ordered:
    """The cells of one DP size that may hold a feasible pair, by their bound."""

    sharp: Slice
    bounds: Floats
    cells: list[Index]
    limited: tuple[Limited, ...] = ()
    """Limits of exposure; cells that break one with every pair are not among `cells`."""


def ordered_cells(problem: Problem, tables: Tables, position: int, memory_bytes: float, first: bool = False) -> Ordered:
    """The cells of one DP size that may hold a feasible pair within so much memory, by their bound.

    `first`: where exposure is limited, by how little they may expose; then any feasible pair is asked for.
    """
    picks = leasts(tables, position, memory_bytes)
    sharp = slice_of(tables, position, picks)
    limited = limited_at(problem, tables, picks, sharp)
    bounds = sharp.bounds
    if limited:
        out = hopeless_cells(limited, tables, position) | np.isinf(bounds)
        bounds = np.where(out, np.inf, least_excess(limited, tables, position) if first else bounds)
    flat = bounds.reshape(-1)
    order = np.argsort(flat, kind="stable")
    order = order[np.isfinite(flat[order])]
    places = np.stack(np.unravel_index(order, bounds.shape), axis=1)
    return Ordered(sharp, flat[order], [(position, *place) for place in places.tolist()], limited)
