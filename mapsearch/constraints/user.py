"""The user's own limits on axes, as relations like any other.

Contents: LAYOUT, relations, asked_for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mapsearch import arrays as np
from mapsearch.axes import Schedule, written
from mapsearch.constraints.rules import whole, word
from mapsearch.costs.layouts import cuts_of
from mapsearch.costs.views import CellView
from mapsearch.errors import listed
from mapsearch.inventories.run import Run, UserConstraints, read_axis
from mapsearch.quantity import Num
from mapsearch.relation import Relation, Side

_SIDE: dict[str, Side] = {
    **dict.fromkeys(("tp", "cp", "cp_kind"), "attention"),
    **dict.fromkeys(("etp", "ep", "edp", "dispatcher"), "expert"),
}


def side_of(axis: str) -> Side:
    """Which view holds an axis; everything that both grids share is in the cell."""
    return _SIDE.get(axis, "cell")


def _axis(axis: str) -> Callable[[Any], Num]:
    return lambda view: getattr(view, axis)


def _among(axis: str, accepted: list[int], verb: str) -> Relation:
    words = listed(written(axis, code) for code in accepted)

    statement = f"you {verb} {axis} = {words}"

    def sentence(view: Any, demand: float, _limit: float) -> str:
        return f"{statement}{', but' if demand else ':'} here it is {word(axis, getattr(view, axis))}"

    return Relation(
        name=f"user_{verb.replace(' ', '_')}_{axis}",
        side=side_of(axis),
        unit="broken rules",
        demand=lambda view: np.where(np.isin(_axis(axis)(view), accepted), 0.0, 1.0),
        limit=lambda _view: 0.0,
        sentence=sentence,
        origin="user",
        levers=(f"--{verb.replace(' ', '-')} {axis}",),
        statement=statement,
    )


def asked_for(axis: str, code: int) -> Relation:
    """The relation that an axis has the value which a question names."""
    return _among(axis, [code], "ask for")


def _bounded(axis: str, bound: float, sign: float, words: str) -> Relation:
    statement = f"you ask for {axis} {words.replace('_', ' ')} {bound:g}"
    return Relation(
        name=f"user_{words}_{axis}",
        side=side_of(axis),
        unit=axis,
        demand=lambda view: sign * (_axis(axis)(view) + 0.0),
        limit=lambda _view: sign * bound,
        sentence=lambda view, demand, limit: (
            f"{statement}{', but' if demand > limit else ':'} here it is {whole(getattr(view, axis))}"
        ),
        origin="user",
        levers=(f"--{words.replace('_', '-')} {axis}",),
        statement=statement,
    )


LAYOUT = "user_layout"
"""Name of the relation that only pipelines for which the run lists a layout satisfy."""


def _without_layout(cell: CellView) -> Num:
    """1 where the run lists no layout for a pipeline, 0 elsewhere."""
    facts, schedules = cell.facts, np.asarray(cell.schedule)
    model, run = facts.model, facts.run
    found = [code for code in Schedule if cuts_of(cell.pp, int(code), run.layout, model=model, run=run)]
    return np.where(np.isin(schedules, found), 0.0, 1.0)


def _layouts(run: Run) -> Relation:
    stages = listed(sorted({len(cut) for cut in run.layout}))
    statement = f"you list layouts for pipelines of {stages} stages"
    return Relation(
        name=LAYOUT,
        side="cell",
        unit="broken rules",
        demand=_without_layout,
        limit=lambda _view: 0.0,
        sentence=lambda view, demand, _limit: f"{statement}{', but' if demand else ':'} here PP is {view.pp}",
        origin="user",
        levers=("--layout", "pp"),
        statement=statement,
    )


def relations(run: Run) -> tuple[Relation, ...]:
    """One relation per constraint the user set."""
    user: UserConstraints = run.constraints
    found = [_among(axis, [read_axis(axis, value)], "fix") for axis, value in user.fix.items()]
    found += [_among(axis, [read_axis(axis, v) for v in values], "allow") for axis, values in user.allow.items()]
    found += [_bounded(axis, bound, 1.0, "at_most") for axis, bound in user.at_most.items()]
    found += [_bounded(axis, bound, -1.0, "at_least") for axis, bound in user.at_least.items()]
    if not any(isinstance(choice, str) for choice in run.layout):
        found.append(_layouts(run))
    return tuple(found)
