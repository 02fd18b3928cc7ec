"""Exposed communication: what the step loses to it, in total and by class.

Contents: exposed_s, Limit, limits, relations (made for the classes a run limits).

Exposed time is T_step with the communication minus T_step with it removed: a difference that can be measured on a
machine as well (FORMULAS 1.5).
"""

from __future__ import annotations

from dataclasses import dataclass

from mapsearch.constraints.views import PairView
from mapsearch.costs.step import ALL_CLASSES
from mapsearch.inventories.run import Run
from mapsearch.quantity import Num
from mapsearch.relation import Relation


def exposed_s(view: PairView, classes: frozenset[str] = ALL_CLASSES) -> Num:
    """Step time that the named classes cost: T - T(without them). Unit: s. Source: FORMULAS 1.5."""
    return view.step_time_s - view.step_time_with(ALL_CLASSES - classes)


@dataclass(frozen=True)
class Limit:
    """How much some classes of communication may expose."""

    name: str
    """Of its relation."""
    classes: frozenset[str]
    share: float
    """Of the step; below 1."""
    label: str


def limits(run: Run) -> list[Limit]:
    """The exposure limits that a run sets; a limit of 1 is no limit."""
    found = [Limit("exposed", ALL_CLASSES, run.exposed_limit, "communication")]
    for name, share in sorted(run.exposed_limit_by_class.items()):
        found.append(Limit(f"exposed_{name}", frozenset({name}), share, f"{name.upper()} communication"))
    return [limit for limit in found if limit.share < 1.0]


def _relation(limit: Limit) -> Relation:
    return Relation(
        name=limit.name,
        side="pair",
        unit="s",
        demand=lambda view: exposed_s(view, limit.classes),
        limit=lambda view: view.step_time_s * limit.share,
        sentence=lambda _view, demand, most: (
            f"{limit.label} exposes {demand:,.3g} s of the step; {100 * limit.share:.4g} % of it, {most:,.3g} s, "
            "is allowed"
        ),
        levers=("exposed_limit", "bandwidth", "overlap"),
        source="F1.5",
        statement=f"{limit.label} exposes at most {100 * limit.share:.4g} % of the step",
    )


def relations(run: Run) -> tuple[Relation, ...]:
    """A relation for each exposure limit that a run sets."""
    return tuple(_relation(limit) for limit in limits(run))
