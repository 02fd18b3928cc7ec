"""Relations over mappings. `ALL` lists those that always apply; `relations_of` adds the run's own.

Contents: ALL, relations_of.
"""

from __future__ import annotations

from mapsearch.constraints import capacity, divisibility, exposure, fabric, framework, placement, user
from mapsearch.costs.views import Facts
from mapsearch.relation import Relation

ALL: tuple[Relation, ...] = (*divisibility.RELATIONS, *fabric.RELATIONS, *capacity.RELATIONS)
"""Relations of every problem, in the order of reports."""


def relations_of(facts: Facts) -> tuple[Relation, ...]:
    """All relations of one problem. Raises ValueError when two share a name."""
    found = (
        *ALL,
        *framework.relations(facts.run),
        *placement.relations(facts.run, facts.fabric),
        *exposure.relations(facts.run),
        *user.relations(facts.run),
    )
    names = [relation.name for relation in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"relations share a name: {', '.join(twice)}")
    return found
