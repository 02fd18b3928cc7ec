"""What the cluster's communication library can do at all.

Contents: RELATIONS.
"""

from __future__ import annotations

import numpy as np

from mapsearch.axes import Dispatcher
from mapsearch.constraints.rules import rule
from mapsearch.relation import Relation

fixed_all_to_all_only = rule(
    "fixed_all_to_all_only",
    "expert",
    lambda e: (
        (e.ep > 1)
        & ~np.isin(np.asarray(e.dispatcher), (Dispatcher.FIXED_ALL_TO_ALL, Dispatcher.ALL_GATHER))
        & (not e.facts.fabric.variable_all_to_all)
    ),
    lambda e: f"{e.facts.fabric.name} offers only whole-group all-to-all with equal buffers",
    origin="topology",
    levers=("dispatcher", "all_to_all"),
    source="F1.4",
)

RELATIONS: tuple[Relation, ...] = (fixed_all_to_all_only,)
