"""Which places the units of an irregular cluster fill, by CP-SAT: as many units as possible fill the same ones.

Contents: common_places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def common_places(units: Mapping[frozenset[int], int], count: int, preferred: Sequence[int]) -> tuple[int, ...]:
    """The `count` places that the most units can fill alike, ascending.

    `units`: the good places of a unit, and how many units have just those; `preferred`: for each place, how much it is
    liked where several choices serve equally many units (then the lower places). Alike matters where place i of every
    unit sits on rail i: a unit that leaves out another place than its siblings sends across rails.
    Raises BackendMissing when OR-Tools is not installed.
    """
    places = len(preferred)
    everywhere = frozenset.intersection(*units)
    if len(everywhere) >= count:
        return tuple(sorted(sorted(everywhere, key=lambda place: (-preferred[place], place))[:count]))
    from mapsearch.solver.backends import backend_named

    backend_named("cpsat")
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    taken = [model.new_bool_var(f"place{place}") for place in range(places)]
    model.add(sum(taken) == count)
    served = []
    for number, (good, weight) in enumerate(units.items()):
        alike = model.new_bool_var(f"unit{number}")
        for place in range(places):
            if place not in good:
                model.add_implication(alike, taken[place].negated())
        served.append(weight * alike)
    # One unit more outweighs every preference, and one step of preference every order of places.
    order = places * places + 1
    liked = sum((preferred[place] * order + places - place) * taken[place] for place in range(places))
    most = sum((preferred[place] * order + places - place) for place in range(places)) + 1
    model.maximize(most * sum(served) + liked)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    if solver.status_name(solver.solve(model)) != "OPTIMAL":
        raise RuntimeError("CP-SAT finds no places, though any choice of them is one")
    return tuple(place for place in range(places) if solver.boolean_value(taken[place]))
