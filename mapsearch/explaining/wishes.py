"""The mapping that `--why-not` asks about: a file, one of an answer, or some axes (`tp=8,ep=64`).

Contents: Wish, read_wish, is_file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mapsearch.axes import written
from mapsearch.constraints.user import asked_for
from mapsearch.costs.views import Facts
from mapsearch.errors import UsageError, listed, near_miss
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.run import Run, read_axis
from mapsearch.relation import Relation
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.ranking import KEY, VARIANT, key_of_mapping

FIELD = "why-not"
CHOICES = (*VARIANT, "cp_kind", "dispatcher")
"""Axes whose values a run lists."""


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

    def granted(self, facts: Facts) -> Problem:
        """The problem of the fastest mapping that grants the wish: lists of wished choices hold nothing else."""
        lists = {axis: [written(axis, code)] for axis, code in self.codes.items() if axis in CHOICES}
        return self._asked(facts, facts.run.replaced(**lists))

    def edited(self, facts: Facts) -> Problem:
        """The same, with everything that the run offers beside it: what is asked when parts of the wish may go."""
        lists = {axis: _with(facts.run, axis, code) for axis, code in self.codes.items() if axis in CHOICES}
        return self._asked(facts, facts.run.replaced(**lists))

    def _asked(self, facts: Facts, run: Run) -> Problem:
        problem = problem_of(replace(facts, run=run))
        return replace(problem, relations=(*problem.relations, *self.relations))


def _with(run: Run, axis: str, code: int) -> list[str | int]:
    """What a run lists for an axis, as written, and one more value."""
    return [written(axis, value) for value in dict.fromkeys([*(int(v) for v in getattr(run, axis)), code])]


def read_wish(given: str | Mapping) -> Wish:
    """A wish from a mapping, or from `tp=8,ep=64`. Raises UsageError, one sentence."""
    if isinstance(given, Mapping):
        return Wish(dict(zip(KEY, key_of_mapping(given), strict=True)), given)
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
