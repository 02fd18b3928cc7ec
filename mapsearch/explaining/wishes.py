"""The mapping that `--why-not` asks about: a file, one of an answer, or some axes (`tp=8,ep=64`).

Contents: Wish, read_wish, is_file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mapsearch.axes import CHOICES, written
from mapsearch.constraints.user import asked_for
from mapsearch.errors import UsageError, listed, near_miss
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.run import read_axis
from mapsearch.relation import Relation
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import KEY

FIELD = "why-not"


@dataclass(frozen=True)
class Wish:
    """Values for some axes, or for all of them with a place on the cluster."""

    codes: dict[str, int]
    """Axis: the value asked for, coded; in the order of a candidate's key."""
    mapping: Mapping | None = None
    """The whole mapping, when one was given."""

    @property
    def text(self) -> str:
        """The wish as it may be written: `tp=8 ep=64`."""
        return " ".join(f"{axis}={written(axis, code)}" for axis, code in self.codes.items())

    @property
    def relations(self) -> list[Relation]:
        """One relation per axis."""
        return [asked_for(axis, code) for axis, code in self.codes.items()]

    def granted(self, problem: Problem) -> Problem:
        """The problem of the fastest mapping that grants the wish: wished choices have no other value."""
        return self._asked(problem, {axis: (code,) for axis, code in self.codes.items() if axis in CHOICES})

    def edited(self, problem: Problem) -> Problem:
        """The same, with everything that the run offers beside it: what is asked when parts of the wish may go."""
        lists = {axis: (*problem.candidates[axis], code) for axis, code in self.codes.items() if axis in CHOICES}
        return self._asked(problem, {axis: tuple(dict.fromkeys(values)) for axis, values in lists.items()})

    def _asked(self, problem: Problem, offered: dict[str, tuple[int, ...]]) -> Problem:
        return replace(problem, relations=(*problem.relations, *self.relations), offered=offered)


def read_wish(given: str | Mapping) -> Wish:
    """A wish from a mapping, or from `tp=8,ep=64`. Raises UsageError, one sentence."""
    if isinstance(given, Mapping):
        values = {axis: getattr(given, axis) for axis in KEY}
        return Wish({axis: int(value) for axis, value in values.items() if value is not None}, given)
    codes: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in given.replace(";", ",").split(","))):
        name, found, value = (piece.strip() for piece in part.partition("="))
        axis = name.lower().replace("-", "_")
        if not found or not value:
            raise UsageError(f"{part!r} is not read; write a file, or axes as tp=8,ep=64", field=FIELD)
        if axis not in KEY:
            raise UsageError(f"{name!r} is not an axis{near_miss(axis, KEY)}; accepted: {listed(KEY)}", field=FIELD)
        if axis in codes:
            raise UsageError(f"{axis} is given twice; leave one of both out", field=FIELD)
        codes[axis] = _code(axis, value)
    if not codes:
        raise UsageError("is empty; write a file, or axes as tp=8,ep=64", field=FIELD)
    return Wish({axis: codes[axis] for axis in KEY if axis in codes})


def _code(axis: str, value: str) -> int:
    try:
        return read_axis(axis, value)
    except ValueError as problem:
        raise UsageError(str(problem), field=FIELD) from None


def is_file(given: str) -> bool:
    """Whether a wish names a file rather than axes."""
    return "=" not in given or Path(given.partition("#")[0]).exists()
