"""Experts on ranks as one integer program, solved by CP-SAT or by PuLP with HiGHS: worst rank first, then traffic.

Contents: ExpertProblem, Solved, literals_of, solve_experts.

A literal per expert, number of copies and rank: the expert has that many copies and one of them stands there. So a
copy's share of its expert's load is a constant, and the program is linear with copies too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mapsearch.errors import BackendMissing
from mapsearch.interrupts import requested
from mapsearch.solver.backends.base import stoppable
from mapsearch.solver.backends.cpsat import STATUS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WHOLE = 2**34
"""What all loads together are scaled to where shares of copies are no whole numbers."""
MOST_WHOLE = 2**44
"""Largest sum of loads that is kept exact."""
TOLERANCE = 1e-9


@dataclass(frozen=True)
class ExpertProblem:
    """Experts of one layer, and the ranks that take them."""

    loads: Floats
    """(experts): assignments."""
    ranks: int
    slots: int
    """Experts that each rank takes, copies included; copies of one expert stand on different ranks."""
    nodes: int = 1
    """Units of equally many consecutive ranks."""
    groups: int = 1
    """Groups of equally many consecutive experts; where there are several, each stays inside one node, and every node
    takes equally many."""
    off_node: Floats | None = None
    """(experts, nodes): assignments that leave their node when the expert stands there."""

    @property
    def experts(self) -> int:
        """Number of experts."""
        return len(self.loads)

    @property
    def copies(self) -> int:
        """Redundant copies of the layer."""
        return self.ranks * self.slots - self.experts

    @property
    def per_node(self) -> int:
        """Ranks of a node."""
        return self.ranks // self.nodes

    @property
    def grouped(self) -> bool:
        """Whether groups are kept inside nodes."""
        return self.groups > 1 and self.nodes > 1

    @property
    def most_copies(self) -> int:
        """Most copies that one expert can have, itself included."""
        extra = self.copies // self.nodes if self.grouped else self.copies
        return min(1 + extra, self.per_node if self.grouped else self.ranks)

    def rank_loads(self, placement: Ints) -> Floats:
        """Load of each rank of a placement (ranks, slots)."""
        counts = np.bincount(placement.ravel(), minlength=self.experts)
        return np.asarray((self.loads / counts)[placement].sum(axis=1))

    def worst(self, placement: Ints) -> float:
        """Load of the worst rank."""
        return float(self.rank_loads(placement).max())

    def traffic(self, placement: Ints) -> float:
        """Assignments that leave their node; 0 without sources."""
        if self.off_node is None:
            return 0.0
        counts = np.bincount(placement.ravel(), minlength=self.experts)
        node = np.arange(self.ranks) // self.per_node
        return float((self.off_node[placement, node[:, None]] / counts[placement]).sum())


@dataclass(frozen=True)
class Solved:
    """What a solver found; proven: nothing is better, in this order (rounding aside)."""

    placement: Ints
    worst_proven: bool
    traffic_proven: bool = False


@dataclass
class _Program:
    """Rows `low <= sum coefficient * literal <= high`, the same for every solver."""

    problem: ExpertProblem
    rows: list[tuple[list[int], list[float], float, float]] = field(default_factory=list)
    literals: int = 0

    def __post_init__(self) -> None:
        p = self.problem
        self.most = p.most_copies
        self.at = np.arange(p.experts * self.most * p.ranks).reshape(p.experts, self.most, p.ranks)
        self.literals = self.at.size
        for rank in range(p.ranks):
            self._row(self.at[:, :, rank].ravel(), p.slots, p.slots)
        if self.most == 1:
            for expert in range(p.experts):
                self._row(self.at[expert].ravel(), 1, 1)
        else:
            self._copies()
        if p.grouped:
            self._groups()
        self.alike = p.off_node is None and not p.grouped
        if self.alike:
            # Ranks are alike, so the heaviest expert may be said to stand on the first.
            self._row(self.at[int(np.argmax(p.loads)), :, 0], 1, 1)

    def _row(self, literals: Any, low: float, high: float, coefficients: Any = None) -> None:
        chosen = [int(one) for one in literals]
        self.rows.append((chosen, [1.0] * len(chosen) if coefficients is None else list(coefficients), low, high))

    def _new(self, count: int) -> Ints:
        self.literals += count
        return np.arange(self.literals - count, self.literals)

    def _copies(self) -> None:
        p = self.problem
        for expert in range(p.experts):
            number = self._new(self.most)
            self._row(number, 1, 1)
            for copies in range(1, self.most + 1):
                stand = [*self.at[expert, copies - 1], number[copies - 1]]
                self._row(stand, 0, 0, [*[1.0] * p.ranks, -float(copies)])

    def _groups(self) -> None:
        p = self.problem
        size = p.experts // p.groups
        inside = self._new(p.groups * p.nodes).reshape(p.groups, p.nodes)
        for group in range(p.groups):
            self._row(inside[group], 1, 1)
        for node in range(p.nodes):
            self._row(inside[:, node], p.groups // p.nodes, p.groups // p.nodes)
        for expert in range(p.experts):
            for rank in range(p.ranks):
                stand = [*self.at[expert, :, rank], inside[expert // size, rank // p.per_node]]
                self._row(stand, -1, 0, [*[1.0] * self.most, -1.0])

    @cached_property
    def shares(self) -> Floats:
        """(experts, copies): load of one copy."""
        return np.asarray(self.problem.loads[:, None] / np.arange(1, self.most + 1))

    def load_row(self, rank: int, shares: NDArray[Any]) -> tuple[list[int], list[Any]]:
        """Literals and coefficients of the load of a rank."""
        return self.at[:, :, rank].ravel().tolist(), shares.ravel().tolist()

    def traffic_row(self) -> tuple[list[int], Floats]:
        """Literals and coefficients of the traffic that leaves its node."""
        p = self.problem
        assert p.off_node is not None
        node = np.arange(p.ranks) // p.per_node
        cost = p.off_node[:, None, node] / np.arange(1, self.most + 1)[None, :, None]
        return self.at.ravel().tolist(), cost.ravel()

    def placement(self, chosen: NDArray[np.bool_]) -> Ints:
        """The placement of a solution, experts of a rank in ascending order."""
        stands = np.asarray(chosen[: self.at.size].reshape(self.at.shape).any(axis=1))
        return np.stack([np.flatnonzero(stands[:, rank]) for rank in range(self.problem.ranks)])

    def hint(self, placement: Ints) -> NDArray[np.bool_]:
        """The literals of a placement that say where experts stand."""
        counts = np.bincount(placement.ravel(), minlength=self.problem.experts)
        if self.alike:
            heaviest = int(np.argmax(self.problem.loads))
            first = next(rank for rank, row in enumerate(placement.tolist()) if heaviest in row)
            placement = np.roll(placement, -first, axis=0)
        hint = np.zeros(self.at.size, dtype=bool)
        for rank, row in enumerate(placement):
            hint[self.at[row, counts[row] - 1, rank]] = True
        return hint


def literals_of(problem: ExpertProblem) -> int:
    """Literals that say where copies stand: the size of the program."""
    return problem.experts * problem.most_copies * problem.ranks


def solve_experts(
    problem: ExpertProblem, start: Ints, backend: Literal["cpsat", "milp"], effort: float = math.inf
) -> Solved:
    """The placement with the least worst rank and, of those, the least traffic off its node; never worse than `start`.

    `effort` bounds CP-SAT's deterministic time, so that equal inputs give equal results, and HiGHS's seconds, so
    that a MILP that is cut off may not; each of the two questions has as much.
    Raises BackendMissing.
    """
    from mapsearch.solver.backends import backend_named

    backend_named(backend)
    minimised = _cpsat if backend == "cpsat" else _milp
    program = _Program(problem)
    found, proven = minimised(program, start, None, effort)
    placement = start if found is None or problem.worst(found) > problem.worst(start) else found
    if problem.off_node is None:
        return Solved(placement, proven)
    found, cheapest = minimised(program, placement, problem.worst(placement), effort)
    if found is not None and problem.worst(found) <= problem.worst(placement) * (1.0 + TOLERANCE):
        placement = found if problem.traffic(found) < problem.traffic(placement) else placement
    return Solved(placement, proven, proven and cheapest)


def _scale(program: _Program) -> float:
    """What makes loads of copies whole numbers: exactly where that is possible."""
    loads = program.problem.loads
    common = math.lcm(*range(1, program.most + 1))
    if bool((loads == np.rint(loads)).all()) and float(loads.sum()) * common < MOST_WHOLE:
        return float(common)
    return WHOLE / float(loads.sum())


def _cpsat(program: _Program, start: Ints, limit: float | None, effort: float) -> tuple[Ints | None, bool]:
    """Least worst rank, or with a limit on it the least traffic."""
    from ortools.sat.python import cp_model

    problem = program.problem
    model: Any = cp_model.CpModel()
    weighted = cp_model.LinearExpr.weighted_sum
    literals: list[Any] = [model.new_bool_var("") for _ in range(program.literals)]
    for row, coefficients, low, high in program.rows:
        total = weighted([literals[one] for one in row], [int(one) for one in coefficients])
        model.add_linear_constraint(total, int(low), int(high))
    scale = _scale(program)
    shares = np.rint(program.shares * scale).astype(np.int64)
    most = 2 * (math.ceil(problem.worst(start) * scale) + problem.slots)
    # A load is off by half a unit for each of its copies.
    top: Any = model.new_int_var(0, most, "worst")
    for rank in range(problem.ranks):
        row, coefficients = program.load_row(rank, shares)
        model.add(weighted([literals[one] for one in row], coefficients) <= top)
    if limit is None:
        model.minimize(top)
    else:
        model.add(top <= math.floor(limit * scale * (1.0 + TOLERANCE)) + (0 if scale.is_integer() else problem.slots))
        row, cost = program.traffic_row()
        whole = WHOLE / max(float(cost.sum()), 1.0) if not (cost == np.rint(cost)).all() else 1.0
        model.minimize(weighted([literals[one] for one in row], np.rint(cost * whole).astype(np.int64).tolist()))
    for literal, value in zip(literals, program.hint(start), strict=False):
        model.add_hint(literal, bool(value))
    solver = cp_model.CpSolver()
    told: Any = solver.parameters
    told.num_workers = 1
    told.random_seed = 1
    told.relative_gap_limit = told.absolute_gap_limit = 0.0
    told.catch_sigint_signal = False
    if math.isfinite(effort):
        told.max_deterministic_time = effort
    status = STATUS[solver.status_name(stoppable(lambda: solver.solve(model), solver.stop_search))]
    if status in ("infeasible", "stopped"):
        return None, False
    return program.placement(np.array([solver.boolean_value(one) for one in literals])), status == "optimal"


def _milp(program: _Program, start: Ints, limit: float | None, effort: float) -> tuple[Ints | None, bool]:
    """The same by PuLP with HiGHS, loads in means of a rank."""
    import pulp

    from mapsearch.solver.backends import milp

    with milp.quiet():
        if not pulp.HiGHS(msg=False).available():
            raise BackendMissing("placing experts by MILP needs PuLP with HiGHS: pip install pulp highspy")
        return _milp_solved(pulp, program, limit, effort)


def _milp_solved(pulp: Any, program: _Program, limit: float | None, effort: float) -> tuple[Ints | None, bool]:
    from mapsearch.solver.backends import milp

    problem = program.problem
    model: Any = pulp.LpProblem("experts", pulp.LpMinimize)
    literals = [pulp.LpVariable(f"b{one}", cat="Binary") for one in range(program.literals)]
    for row, coefficients, low, high in program.rows:
        total = pulp.LpAffineExpression([(literals[one], c) for one, c in zip(row, coefficients, strict=True)])
        if low == high:
            model += total == low
        else:
            model += total <= high
            model += total >= low
    unit = float(problem.loads.sum()) / problem.ranks
    top: Any = pulp.LpVariable("worst", lowBound=0.0)
    for rank in range(problem.ranks):
        row, coefficients = program.load_row(rank, program.shares / unit)
        model += pulp.LpAffineExpression([(literals[o], c) for o, c in zip(row, coefficients, strict=True)]) <= top
    if limit is None:
        model.setObjective(top * 1.0)
    else:
        model += top <= limit / unit * (1.0 + TOLERANCE)
        row, cost = program.traffic_row()
        whole = float(np.abs(cost).max()) or 1.0
        model.setObjective(pulp.LpAffineExpression([(literals[o], c / whole) for o, c in zip(row, cost, strict=True)]))
    exact = {"mip_feasibility_tolerance": 1e-9, "primal_feasibility_tolerance": 1e-9, "mip_abs_gap": 0.0}
    within = effort if math.isfinite(effort) else None
    solver = pulp.HiGHS(msg=False, gapRel=0.0, threads=1, timeLimit=within, random_seed=1, **exact, **milp.watched())
    model.solve(solver)
    if requested():
        return None, False
    status = milp.STATUS[pulp.LpStatus[model.status], pulp.LpSolution[model.sol_status]]
    if status in ("infeasible", "stopped"):
        return None, False
    return program.placement(np.array([(one.varValue or 0.0) > 0.5 for one in literals])), status == "optimal"
