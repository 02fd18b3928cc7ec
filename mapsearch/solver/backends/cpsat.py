"""OR-Tools CP-SAT: the integer model as it is, maxima as equalities.

Contents: CpSat, STATUS.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

from mapsearch.solver.backends.base import stoppable
from mapsearch.solver.backends.encoding import Cut, Encoding
from mapsearch.solver.backends.rounds import Raw, RoundsBackend, Session
from mapsearch.solver.quantise import Rounded, RoundedMax, span, span_of_max

STATUS: dict[str, Literal["optimal", "found", "infeasible", "stopped"]] = {
    "OPTIMAL": "optimal",
    "FEASIBLE": "found",
    "INFEASIBLE": "infeasible",
    "UNKNOWN": "stopped",
}
"""CP-SAT's words in ours; MODEL_INVALID is missing on purpose: it is a bug."""


class CpSat(RoundsBackend):
    """CP-SAT with gap limits of zero and a fixed seed; one worker by default, so that runs repeat."""

    name = "cpsat"
    features = frozenset({"integers"})
    tolerance = 0

    def __init__(self, workers: int = 1, most_literals: int = 1) -> None:
        self.workers = workers
        self.most_literals = most_literals

    def available(self) -> bool:
        """Whether OR-Tools is installed."""
        # Looked up, not imported: the import takes 0.2 s, which the search does not have to wait for.
        return find_spec("ortools") is not None and find_spec("ortools.sat.python.cp_model") is not None

    def session(self, encoding: Encoding, at_most: int | None, *, minimise: bool) -> Session:
        """A CP-SAT model of the encoding."""
        return _Session(encoding, at_most, minimise, self.workers)


class _Session(Session):
    def __init__(self, encoding: Encoding, at_most: int | None, minimise: bool, workers: int) -> None:
        from ortools.sat.python import cp_model

        self.cp: Any = cp_model
        self.model: Any = cp_model.CpModel()
        self.workers = workers
        self.minimise = minimise
        self.attention: list[list[Any]] = []
        self.expert: list[list[Any]] = []
        new = self.model.new_bool_var
        chosen = []
        times = []
        for number, encoded in enumerate(encoding.cells):
            y = new(f"y{number}")
            self.attention.append([new(f"a{number}_{i}") for i in range(len(encoded.cell.attention))])
            self.expert.append([new(f"e{number}_{j}") for j in range(len(encoded.cell.expert))])
            for literals in (self.attention[-1], self.expert[-1]):
                self.model.add_exactly_one([*literals, y.negated()])
            chosen.append(y)
            times.append(self._value(number, encoded.time))
            for _, _, relation in encoded.relations:
                self.model.add(self._value(number, relation) <= relation.error)
        self.model.add_exactly_one(chosen)
        total = sum(times)
        if at_most is not None:
            self.model.add(total <= at_most)
        if minimise:
            self.model.minimize(total)

    def _value(self, number: int, value: Rounded) -> Any:
        weighted = self.cp.LinearExpr.weighted_sum
        total = weighted(self.attention[number], value.attention.tolist())
        total += weighted(self.expert[number], value.expert.tolist())
        for sign, node in value.maxima:
            total += sign * self._maximum(number, node)
        return total

    def _maximum(self, number: int, node: RoundedMax) -> Any:
        result = self.model.new_int_var(*span_of_max(node), "")
        self.model.add_max_equality(result, [self._named(number, argument) for argument in node.arguments])
        return result

    def _named(self, number: int, value: Rounded) -> Any:
        """The value as a variable: presolve otherwise lists every sum that an argument's literals could make."""
        result = self.model.new_int_var(*span(value), "")
        self.model.add(result == self._value(number, value))
        return result

    def cut(self, cut: Cut) -> None:
        literals = []
        for number, attention, expert in cut:
            literals += [self.attention[number][i] for i in attention]
            literals += [self.expert[number][j] for j in expert]
        self.model.add(sum(literals) <= 1)

    def solve(self, seconds: float) -> Raw:
        solver = self.cp.CpSolver()
        parameters = solver.parameters
        parameters.num_workers = self.workers
        parameters.random_seed = 1
        parameters.relative_gap_limit = 0.0
        parameters.absolute_gap_limit = 0.0
        # Several workers share what they learn at fixed points only, so that the search still repeats.
        parameters.interleave_search = self.workers > 1
        if seconds != float("inf"):
            parameters.max_time_in_seconds = seconds
        parameters.catch_sigint_signal = False
        found = stoppable(lambda: solver.solve(self.model), solver.stop_search)
        status = STATUS[solver.status_name(found)]
        if status in ("infeasible", "stopped"):
            return Raw(status)
        for number, attention in enumerate(self.attention):
            for i, literal in enumerate(attention):
                if solver.boolean_value(literal):
                    j = next(j for j, other in enumerate(self.expert[number]) if solver.boolean_value(other))
                    return Raw(status, (number, i, j))
        raise RuntimeError("CP-SAT reports a solution without a mapping")
