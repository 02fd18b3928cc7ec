"""Limits: the optimum is a step function of HBM or of the exposed share, and its steps are the points of a front.

Contents: OBJECTIVE, step_objectives, Step, steps_of, least_hbm, least_float, certified.

Either input enters nothing but one relation, demand <= limit, so a mapping has the same step time at every value that
it fits in. The fastest mapping at a value is the fastest one that fits there, and those are the points of the front of
step time and demand: one search at the upper end of the range has them all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mapsearch.answer import Proof
from mapsearch.constraints.capacity import hbm_for, usable_hbm_bytes
from mapsearch.costs.estimate import point_of
from mapsearch.costs.views import Facts
from mapsearch.progress import Progress
from mapsearch.solver.backends.base import remaining_s
from mapsearch.solver.explain.relax import with_hbm
from mapsearch.solver.front import FrontPoint, FrontSearch
from mapsearch.solver.objectives import Objectives
from mapsearch.solver.problem import problem_of
from mapsearch.solver.proof import SAME, prove
from mapsearch.solver.ranking import mapping_of, pair_view
from mapsearch.solver.search import search

OBJECTIVE = {"hbm": "peak_memory", "exposed_limit": "exposed_fraction"}
"""Input: the objective that it limits."""
At = Callable[[float], Facts]
JUST_BELOW = 1e-6
"""Share of a limit by which a certificate stays below a breakpoint: encodings round to a tenth of it."""


def step_objectives(name: str, low: float, facts: Facts) -> Objectives:
    """Step time and what the input limits; what fits at the lower end of the range is not told apart."""
    objective = OBJECTIVE[name]
    floor = usable_hbm_bytes(with_hbm(facts, low)) if name == "hbm" else low
    return Objectives(("step_time", objective), {}, {objective: floor})


@dataclass(frozen=True)
class Step:
    """One piece of the function: from `low` on, up to the next one."""

    low: float
    high: float
    point: FrontPoint | None
    """None where nothing fits."""
    settled: bool


def steps_of(name: str, found: FrontSearch, at: At, low: float, high: float) -> list[Step]:
    """The pieces of a range, ascending; the first may hold nothing."""
    points = sorted(found.points, key=lambda point: -point.candidate.step_time_s)
    needs = [min(max(_need(name, point, at), low), high) for point in points]
    starts: list[tuple[float, FrontPoint | None]] = list(zip(needs, points, strict=True))
    if not starts or starts[0][0] > low:
        starts.insert(0, (low, None))
    ends = [start for start, _ in starts[1:]] + [high]
    steps = []
    for (start, point), end in zip(starts, ends, strict=True):
        if start < end or end == high:
            limit = usable_hbm_bytes(at(end)) if name == "hbm" else end
            steps.append(Step(start, end, point, _settled(found, point, limit)))
    return steps


def _settled(found: FrontSearch, point: FrontPoint | None, limit: float) -> bool:
    """Whether no unseen mapping can be faster than the point below this limit."""
    time_s = math.inf if point is None else point.candidate.step_time_s
    return not any(bound[0] < time_s and bound[1] < limit for bound in found.open_bounds.tolist())


def _need(name: str, point: FrontPoint, at: At) -> float:
    """The least value of the input, as a float, at which the mapping fits."""
    base = at(1.0)
    view = pair_view(point_of(mapping_of(point.candidate), base))
    if name == "exposed_limit":
        time_s, exposed_s = view.step_time_s, view.step_time_s - view.step_time_with(frozenset())
        return least_float(exposed_s / time_s, lambda share: exposed_s <= time_s * share)
    # Tables and single views add up in another order: the larger sum fits by either.
    return least_hbm(max(point.peak_bytes, *map(float, view.memory)), base)


def least_hbm(peak_bytes: float, facts: Facts) -> float:
    """HBM of a device, as the least float, of which so much may be used. Unit: bytes."""
    return least_float(hbm_for(peak_bytes, facts), lambda hbm: usable_hbm_bytes(with_hbm(facts, hbm)) >= peak_bytes)


def least_float(guess: float, fits: Callable[[float], bool]) -> float:
    """The least float that fits, a few units in the last place around a guess."""
    value = guess
    while not fits(value):
        value = math.nextafter(value, math.inf)
    while value > 0.0 and fits(math.nextafter(value, 0.0)):
        value = math.nextafter(value, 0.0)
    return value


def certified(
    steps: Iterable[Step],
    at: At,
    backend: str,
    deadline: float | None,
    tell: Callable[[Progress], None],
) -> Proof:
    """Solve again just below the end of every piece, with a proof: nothing is faster there than the piece's mapping."""
    started, todo = time.monotonic(), list(steps)
    name, detail, status = backend, "", "proven"
    for number, step in enumerate(todo):
        if remaining_s(deadline) <= 0.0:
            status, detail = "not proven", f"time ran out after {number} of {len(todo)} pieces"
            break
        tell(Progress("proof", number, len(todo)))
        last = number == len(todo) - 1
        problem = problem_of(at(step.high if last else max(step.low, step.high * (1.0 - JUST_BELOW))))
        again = search(problem, 1, deadline=deadline)
        proof = prove(problem, again, backend, deadline)
        name, best = proof.backend, again.top[0].step_time_s if again.top else math.inf
        mine = math.inf if step.point is None else step.point.candidate.step_time_s
        if proof.status == "proven" and not math.isclose(best, mine, rel_tol=SAME):
            status, detail = "disagrees", f"from {step.low!r} on the front has {mine!r} s, a search of its own {best!r}"
            break
        if proof.status != "proven":
            status, detail = proof.status, f"piece from {step.low!r} on: {proof.detail}"
            break
    detail = detail or f"{len(todo)} pieces solved again at their ends, each with a proof"
    seconds = time.monotonic() - started
    kind = "pieces solved again"
    return Proof.model_validate({"backend": name, "status": status, "kind": kind, "detail": detail, "seconds": seconds})
