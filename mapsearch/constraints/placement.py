"""High-bandwidth-domain placement: axes whose groups may not leave one unit of a level.

Contents: relations (from the run's `placement` and the user's `inside`), priced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mapsearch import arrays as np
from mapsearch.axes import ATTENTION_GRID
from mapsearch.errors import InputError, listed, near_miss
from mapsearch.inventories.run import Run
from mapsearch.quantity import Num
from mapsearch.relation import Relation, Side
from mapsearch.topologies.fabric import Fabric


def side_of(axis: str) -> Side:
    """Which view holds an axis: the cell (pp, dp), a grid otherwise."""
    if axis == "pp":
        return "cell"
    return "attention" if axis in ATTENTION_GRID else "expert"


def ways_outside(row: Num, levels: int) -> Num:
    """How many ways a row is cut beyond its first `levels` levels; 1 when it stays inside."""
    return np.prod(np.asarray(row)[..., levels:], axis=-1) + 0.0


def stays_inside(axis: str, levels: int, fabric: Fabric, origin: str) -> Relation:
    """The relation `axis lives inside one unit of the given number of inner levels`."""
    row: Callable[[Any], Num] = lambda view: getattr(view, f"{axis}_row")  # noqa: E731
    unit, devices = fabric.levels[levels - 1].name, math.prod(fabric.fan_outs[:levels])
    statement = f"{axis.upper()} stays inside one {unit}"

    def sentence(view: Any, demand: float, _limit: float) -> str:
        size = f"{axis.upper()} {math.prod(np.asarray(row(view)).reshape(-1).tolist())}"
        if demand <= 1:
            return f"{size} stays inside one {unit} of {devices:,} devices"
        return f"{size} is cut {demand:g} ways beyond one {unit} of {devices:,} devices, but must stay inside"

    return Relation(
        name=f"{axis}_inside_{unit}",
        side=side_of(axis),
        unit="ways cut outside",
        demand=lambda view: ways_outside(row(view), levels),
        limit=lambda _view: 1.0,
        sentence=sentence,
        origin=origin,
        levers=(f"placement.{axis}", axis),
        source="F1.9 domain 10",
        statement=statement,
        given=lambda _facts: f"it has {devices:,} devices",
    )


def _needs_domain(axis: str, rule: str, fabric: Fabric) -> None:
    if not fabric.domain_levels:
        what = f"keeps {axis}" if rule == "inside" else f"prices {axis} being"
        raise InputError(
            f"placement {what} inside the high-bandwidth domain, but no level of {fabric.name} is marked "
            "high_bandwidth",
            field=f"placement.{axis}",
        )


def priced(run: Run, fabric: Fabric) -> list[tuple[str, Relation]]:
    """Axes whose place inside the high-bandwidth domain is priced, with the rule that a second search obeys."""
    axes = sorted(axis for axis, rule in run.placement.items() if rule == "priced")
    return [(axis, stays_inside(axis, fabric.domain_levels, fabric, "placement")) for axis in axes]


def relations(run: Run, fabric: Fabric) -> tuple[Relation, ...]:
    """Placement rules of a run on a fabric. Raises InputError for a level the fabric does not have."""
    found = []
    for axis, rule in sorted(run.placement.items()):
        if rule != "free":
            _needs_domain(axis, rule, fabric)
        if rule == "inside":
            found.append(stays_inside(axis, fabric.domain_levels, fabric, "placement"))
    for level, members in run.constraints.inside.items():
        if level not in fabric.level_names:
            raise InputError(
                f"{fabric.name} has no level {level!r}{near_miss(level, fabric.level_names)}; "
                f"levels: {listed(fabric.level_names)}",
                field="constraints.inside",
            )
        depth = fabric.level_names.index(level) + 1
        found += [stays_inside(axis, depth, fabric, "user") for axis in members]
    distinct = {relation.name: relation for relation in found}
    return tuple(distinct.values())
