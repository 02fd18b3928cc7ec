"""What the cluster's communication library can do at all.

Contents: RELATIONS.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import Dispatcher
from mapsearch.constraints.rules import rule, whole, word
from mapsearch.costs.views import ExpertView
from mapsearch.relation import Relation


def _free(e: ExpertView) -> str:
    if e.facts.fabric.variable_all_to_all:
        return f"{e.facts.fabric.name} has all-to-all of any size"
    return "EP is 1" if whole(e.ep) == 1 else ""


fixed_all_to_all_only = rule(
    "fixed_all_to_all_only",
    "expert",
    lambda e: (
        (e.ep > 1)
        & ~np.isin(np.asarray(e.dispatcher), (Dispatcher.FIXED_ALL_TO_ALL, Dispatcher.ALL_GATHER))
        & (not e.facts.fabric.variable_all_to_all)
    ),
    "tokens leave a rank only by whole-group all-to-all with equal buffers, or by all-gather",
    lambda e: f"EP {whole(e.ep)} exchanges by {word('dispatcher', e.dispatcher)} on {e.facts.fabric.name}",
    absent=_free,
    given=lambda facts: (
        f"{facts.fabric.name} has " + ("every kind" if facts.fabric.variable_all_to_all else "no other")
    ),
    origin="topology",
    levers=("dispatcher", "all_to_all"),
    source="F1.4",
)

RELATIONS: tuple[Relation, ...] = (fixed_all_to_all_only,)
