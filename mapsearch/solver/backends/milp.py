"""PuLP with HiGHS, or CBC where HiGHS is missing: maxima as rows, with a selector where an upper side is needed.

Contents: Milp, STATUS, watched, quiet.

A row `z >= argument` is enough for a maximum that only ever makes a sum larger which is bounded from above or
minimised: any solution stays one when z sinks to the maximum. The others also get `z <= argument` for one argument.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal

from mapsearch.errors import BackendMissing
from mapsearch.interrupts import interruptible, requested
from mapsearch.solver.backends.encoding import Cut, Encoding
from mapsearch.solver.backends.rounds import Raw, RoundsBackend, Session
from mapsearch.solver.quantise import Rounded, RoundedMax, span, span_of_max

ROW_UNIT = 1e-6
"""Ulps to row units: a step near the cutoff is then about 1000, far above the libraries' tolerances."""
STATUS: dict[tuple[str, str], Literal["optimal", "found", "infeasible", "stopped"]] = {
    ("Optimal", "Optimal Solution Found"): "optimal",
    ("Optimal", "Solution Found"): "found",
    ("Infeasible", "No Solution Exists"): "infeasible",
    ("Infeasible", "No Solution Found"): "infeasible",  # CBC: no integer solution
    ("Not Solved", "No Solution Found"): "stopped",
    ("Not Solved", "Solution Found"): "found",
}
"""PuLP's status and solution status in our words; what is missing is a bug."""


class Milp(RoundsBackend):
    """Row literals in a MILP; gap 0, one thread."""

    name = "milp"
    features = frozenset({"integers", "tolerances"})
    tolerance = 20_000

    def __init__(self, solver: Literal["auto", "highs", "cbc"] = "auto", most_literals: int = 1) -> None:
        self.solver = solver
        self.most_literals = most_literals

    def available(self) -> bool:
        """Whether PuLP and one of its solvers can run."""
        return self._library() is not None

    def _library(self) -> str | None:
        try:
            import pulp
        except ImportError:
            return None
        for name, make in (("highs", pulp.HiGHS), ("cbc", pulp.PULP_CBC_CMD)):
            if self.solver in ("auto", name) and _runs(make):
                if name == "highs":
                    _greet()
                return name
        return None

    def session(self, encoding: Encoding, at_most: int | None, *, minimise: bool) -> Session:
        """A PuLP model of the encoding. Raises BackendMissing."""
        library = self._library()
        if library is None:
            raise BackendMissing("backend milp needs PuLP with HiGHS or CBC: pip install pulp highspy")
        with quiet():
            return _Session(encoding, at_most, minimise, library)


class _Session(Session):
    def __init__(self, encoding: Encoding, at_most: int | None, minimise: bool, library: str) -> None:
        import pulp

        self.pulp: Any = pulp
        self.library = library
        self.problem: Any = pulp.LpProblem("cells", pulp.LpMinimize)
        self.names = 0
        self.chosen: list[Any] = []
        self.attention: list[list[Any]] = []
        self.expert: list[list[Any]] = []
        times = []
        for number, encoded in enumerate(encoding.cells):
            y = self._binary()
            self.chosen.append(y)
            self.attention.append([self._binary() for _ in range(len(encoded.cell.attention))])
            self.expert.append([self._binary() for _ in range(len(encoded.cell.expert))])
            for literals in (self.attention[-1], self.expert[-1]):
                self.problem += pulp.lpSum(literals) == y
            times.append(self._value(number, encoded.time, low_side=True))
            for _, _, relation in encoded.relations:
                allowance = (relation.error + encoding.tolerance) * ROW_UNIT
                self.problem += self._value(number, relation, low_side=True) <= allowance
        self.problem += pulp.lpSum(self.chosen) == 1
        total = pulp.lpSum(times)
        if at_most is not None:
            self.problem += total <= at_most * ROW_UNIT
        if minimise:
            self.problem.setObjective(total)
        else:
            self.problem.setObjective(pulp.lpSum([]))

    def _binary(self) -> Any:
        self.names += 1
        return self.pulp.LpVariable(f"b{self.names}", cat="Binary")

    def _value(self, number: int, value: Rounded, *, low_side: bool) -> Any:
        """The value in row units; `low_side` when it matters only that it is not too small."""
        terms = [
            (variable, float(ulps) * ROW_UNIT)
            for variables, column in ((self.attention, value.attention), (self.expert, value.expert))
            for variable, ulps in zip(variables[number], column, strict=True)
            if ulps
        ]
        total = self.pulp.LpAffineExpression(terms)
        for sign, node in value.maxima:
            total += sign * self._maximum(number, node, low_side=low_side and sign > 0)
        return total

    def _maximum(self, number: int, node: RoundedMax, *, low_side: bool) -> Any:
        low, high = span_of_max(node)
        self.names += 1
        result = self.pulp.LpVariable(f"z{self.names}", low * ROW_UNIT, high * ROW_UNIT)
        arguments = [self._value(number, argument, low_side=low_side) for argument in node.arguments]
        for argument in arguments:
            self.problem += result >= argument
        if low_side:
            return result
        selectors = [self._binary() for _ in arguments]
        self.problem += self.pulp.lpSum(selectors) == self.chosen[number]
        for argument, bounded, selector in zip(arguments, node.arguments, selectors, strict=True):
            above = (high - span(bounded)[0]) * ROW_UNIT
            self.problem += result <= argument + above * (self.chosen[number] - selector)
        return result

    def cut(self, cut: Cut) -> None:
        literals = []
        for number, attention, expert in cut:
            literals += [self.attention[number][i] for i in attention]
            literals += [self.expert[number][j] for j in expert]
        self.problem += self.pulp.lpSum(literals) <= 1

    def solve(self, seconds: float) -> Raw:
        limit = None if math.isinf(seconds) else max(seconds, 0.1)
        common = {"msg": False, "timeLimit": limit, "gapRel": 0.0, "gapAbs": 0.0, "threads": 1}
        with quiet():
            if self.library == "highs":
                exact = {"mip_feasibility_tolerance": 1e-9, "primal_feasibility_tolerance": 1e-9, "random_seed": 1}
                self.problem.solve(self.pulp.HiGHS(**common, **exact, **watched()))
            else:
                options = ["primalTolerance 1e-9", "integerTolerance 1e-9", "randomSeed 1"]
                solver = self.pulp.PULP_CBC_CMD(**common, options=options)
                with interruptible():  # a process of its own: nothing here is half done when it ends
                    self.problem.solve(solver)
        if requested():
            return Raw("stopped")
        words = self.pulp.LpStatus[self.problem.status], self.pulp.LpSolution[self.problem.sol_status]
        status = STATUS[words]
        if status in ("infeasible", "stopped"):
            return Raw(status)
        number = _largest(self.chosen)
        return Raw(status, (number, _largest(self.attention[number]), _largest(self.expert[number])))


def watched() -> dict[str, Any]:
    """PuLP's arguments with which HiGHS looks every now and then whether the user wants to stop."""
    import highspy

    kinds = highspy.cb.HighsCallbackType

    def look(kind: Any, message: str, out: Any, into: Any, data: Any) -> None:
        into.user_interrupt = requested()

    return {
        "callbackTuple": (look, None),
        "callbacksToActivate": [kinds.kCallbackMipInterrupt, kinds.kCallbackSimplexInterrupt],
    }


def _runs(make: Any) -> bool:
    with quiet():
        return bool(make(msg=False).available())


@contextmanager
def quiet() -> Iterator[None]:
    """Without PuLP 3's notes on what PuLP 4 will call differently: the dependency is kept below 4."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@lru_cache(maxsize=1)
def _greet() -> None:
    """Let HiGHS print its banner where nobody reads it: the first object of a process writes to file descriptor 1,
    before any option can tell it not to, and that is where answers go."""
    import highspy

    try:
        kept = os.dup(1)
    except OSError:  # nothing is open there
        return
    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            highspy.Highs()
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _largest(variables: list[Any]) -> int:
    return max(range(len(variables)), key=lambda i: variables[i].value() or 0.0)
