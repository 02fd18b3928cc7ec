"""Exposed communication: what the step loses to it, in total and by class.

Contents: exposed_s, relations (made for the classes a run limits).

Exposed time is T_step with the communication minus T_step with it removed: a difference that can be measured on a
machine as well (FORMULAS 1.5).
"""

from __future__ import annotations

from mapsearch.constraints.views import PairView
from mapsearch.costs.step import ALL_CLASSES
from mapsearch.inventories.run import Run
from mapsearch.quantity import Num
from mapsearch.relation import Relation


def exposed_s(view: PairView, classes: frozenset[str] = ALL_CLASSES) -> Num:
    """Step time that the named classes cost: T - T(without them). Unit: s. Source: FORMULAS 1.5."""
    return view.step_time_s - view.step_time_with(ALL_CLASSES - classes)


def _limit(name: str, classes: frozenset[str], share: float, label: str) -> Relation:
    return Relation(
        name=name,
        side="pair",
        unit="s",
        demand=lambda view: exposed_s(view, classes),
        limit=lambda view: view.step_time_s * share,
        sentence=lambda _view, demand, limit: (
            f"{label} exposes {demand:,.3g} s of the step; {100 * share:.4g} % of it, {limit:,.3g} s, is allowed"
        ),
        levers=("exposed_limit", "bandwidth", "overlap"),
        source="F1.5",
        statement=f"{label} exposes at most {100 * share:.4g} % of the step",
    )


def relations(run: Run) -> tuple[Relation, ...]:
    """The exposure limits that a run sets; a limit of 1 is no limit."""
    found = []
    if run.exposed_limit < 1.0:
        found.append(_limit("exposed", ALL_CLASSES, run.exposed_limit, "communication"))
    for name, share in sorted(run.exposed_limit_by_class.items()):
        found.append(_limit(f"exposed_{name}", frozenset({name}), share, f"{name.upper()} communication"))
    return tuple(found)
