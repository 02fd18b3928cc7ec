"""Physics and framework told apart: what a mapping's broken rules are, and what other releases say of it.

Contents: joint_margins, framework_notes.
"""

from __future__ import annotations

from mapsearch.answer import Margin
from mapsearch.constraints.framework import older_refusals, refused
from mapsearch.costs.estimate import Point
from mapsearch.frameworks import WHOSE, named


def joint_margins(point: Point) -> list[Margin]:
    """The rules over both grids that the run's release has and the mapping breaks; the search does not know them."""
    name, _ = named(point.facts.run.framework)
    broken = refused(point.facts.run, point.mapping, point.facts.model)
    return [
        Margin(
            relation=one.name,
            demand=1.0,
            limit=0.0,
            margin=-1.0,
            unit="broken rules",
            origin=name,
            reason=f"{one.releases(name)}: {said}",
        )
        for one, said in broken
    ]


def framework_notes(point: Point, found: list[Margin]) -> list[str]:
    """Which refusals are a framework's and not the hardware's, and what other releases refuse."""
    run, model, mapping = point.facts.run, point.facts.model, point.mapping
    name, release = named(run.framework)
    broken = [margin for margin in found if margin.margin < 0]
    if any(margin.origin != name for margin in broken):
        return []
    if broken:
        rules = ", ".join(margin.relation for margin in broken)
        return [f"legal on hardware; {WHOSE[name]} {release} refuses it ({rules})"]
    views = {"cell": point.cell, "attention": point.attention, "expert": point.expert}
    return older_refusals(run, mapping, model, views.__getitem__)
