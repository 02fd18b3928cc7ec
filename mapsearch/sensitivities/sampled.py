"""Inputs that enter times: solved at chosen values, and more of them wherever the best mapping changes.

Contents: Sample, Sampler, crossing, Stretch, refine, stretches.

A breakpoint is bracketed: on one side one mapping is the best, on the other side another, both by exact search. Where
two mappings cross is known from their own times, so the next values to solve lie close around the crossing.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mapsearch.answer import Proof
from mapsearch.costs.views import Facts
from mapsearch.interrupts import requested
from mapsearch.inventories.mapping import Mapping
from mapsearch.progress import Progress
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.proof import MOST_PAIRS, SAME, prove, whole_space
from mapsearch.solver.ranking import mapping_of, time_of
from mapsearch.solver.search import Search, search

HALVINGS = 60
"""Steps of the bisection for the crossing of two known mappings: to the last digits of a float."""
INWARD = 0.45
"""How far from a crossing the next values lie, as a share of the widest bracket: both within one."""


@dataclass(frozen=True)
class Sample:
    """The optimum at one value of the input."""

    value: float
    problem: Problem
    found: Search
    mapping: Mapping | None
    """None when nothing fits, or nothing was found in time."""
    proof: Proof | None

    @property
    def step_time_s(self) -> float:
        """Step time of the best mapping; infinite when there is none."""
        return self.found.top[0].step_time_s if self.found.top else math.inf


@dataclass
class Sampler:
    """Solves values, each once, until the time is over."""

    facts_at: Callable[[float], Facts]
    deadline: float | None
    tell: Callable[[Progress], None]
    backend: str | None
    """Who proves each solve; None: small spaces are enumerated, others are left to the search."""
    samples: dict[float, Sample] = field(default_factory=dict)
    unsolved: list[float] = field(default_factory=list)
    interrupted: bool = False

    def late(self) -> bool:
        """True when nothing more is to be solved."""
        self.interrupted = self.interrupted or requested()
        return self.interrupted or (self.deadline is not None and time.monotonic() > self.deadline)

    def solve(self, value: float) -> Sample | None:
        """The optimum at a value; None, remembered as unsolved, when the time is over."""
        if value in self.samples:
            return self.samples[value]
        if self.samples and self.late():
            self.unsolved.append(value)
            return None
        problem = problem_of(self.facts_at(value))
        best = min((sample.step_time_s for sample in self.samples.values() if sample.mapping), default=None)
        self.tell(Progress(f"value {len(self.samples) + 1}", incumbent_s=best))
        # What is best at other values takes so long here: nothing slower has to be looked at.
        mappings = [sample.mapping for sample in self.samples.values() if sample.mapping is not None]
        known_s = min((time_of(mapping, problem) for mapping in mappings), default=math.inf)
        found = search(problem, 1, deadline=self.deadline, known_s=known_s)
        if found.complete and not found.top and known_s < math.inf:
            # A mapping that fits to the last digit alone, and not in the tables' sums.
            found = search(problem, 1, deadline=self.deadline)
        self.interrupted = self.interrupted or found.interrupted
        mapping = mapping_of(found.top[0]) if found.top else None
        self.samples[value] = Sample(value, problem, found, mapping, self._proof(problem, found))
        return self.samples[value]

    def _proof(self, problem: Problem, found: Search) -> Proof | None:
        if not found.complete or self.interrupted:
            return None
        if self.backend is not None:
            return prove(problem, found, self.backend, self.deadline)
        small = whole_space(problem, found.mappings, MOST_PAIRS["exhaustive"], self.deadline) is not None
        return prove(problem, found, "auto", self.deadline) if small else None

    def time_s(self, mapping: Mapping | None, value: float) -> float:
        """Step time of a known mapping at a value; infinite when it does not fit there."""
        sample = self.samples.get(value)
        problem = sample.problem if sample else problem_of(self.facts_at(value))
        return math.inf if mapping is None else time_of(mapping, problem)

    def best_at(self, mapping: Mapping | None, sample: Sample) -> bool:
        """Whether a mapping is as fast as the best one at a solved value; nothing is, where nothing fits."""
        if mapping is None or sample.mapping is None:
            return mapping is sample.mapping
        return self.time_s(mapping, sample.value) <= sample.step_time_s * (1.0 + SAME)

    def crossing(self, first: Sample, second: Sample) -> float:
        """Where the mapping of the second begins to win over that of the first, by bisection; a middle value if
        nothing fits on one side."""
        if first.mapping is None or second.mapping is None:
            return math.sqrt(first.value * second.value)
        return crossing(
            lambda value: self.time_s(first.mapping, value),
            lambda value: self.time_s(second.mapping, value),
            first.value,
            second.value,
        )


def crossing(first_s: Callable[[float], float], second_s: Callable[[float], float], near: float, far: float) -> float:
    """Where the second step time falls below the first, by bisection from a value where it does not to one where it
    does."""
    for _ in range(HALVINGS):
        middle = 0.5 * (near + far)
        if second_s(middle) < first_s(middle):
            far = middle
        else:
            near = middle
    return far


def refine(sampler: Sampler, values: list[float], tolerance: float) -> None:
    """Solve the values, and then inside every pair of neighbours with another best mapping down to the tolerance."""
    for value in values:
        sampler.solve(value)
    solved = sorted(sampler.samples)
    todo = list(itertools.pairwise(solved))
    while todo:
        low, high = todo.pop()
        first, second = sampler.samples[low], sampler.samples[high]
        same = sampler.best_at(first.mapping, second) or sampler.best_at(second.mapping, first)
        if same or high - low <= tolerance * high:
            continue
        inner = [value for value in _probes(sampler, first, second, tolerance) if sampler.solve(value) is not None]
        if inner:
            ends = [low, *inner, high]
            todo += itertools.pairwise(ends)


def _probes(sampler: Sampler, first: Sample, second: Sample, tolerance: float) -> list[float]:
    """The next values between two solved ones: a narrow pair around the crossing, the middle when it is at an end."""
    low, high = first.value, second.value
    cross = sampler.crossing(first, second)
    around = [cross * (1.0 - INWARD * tolerance), cross * (1.0 + INWARD * tolerance)]
    inside = [value for value in around if low < value < high]
    # Near an end little is gained: halving bounds the number of solves.
    if first.mapping is None or second.mapping is None or len(inside) < 2:
        return [math.sqrt(low * high)]
    return inside


@dataclass(frozen=True)
class Stretch:
    """Neighbouring solved values at which one mapping is the best."""

    samples: tuple[Sample, ...]
    mapping: Mapping | None
    of: Sample
    """The solve that found it."""
    since: tuple[float, float] | None
    """Between these two values it takes over from the one before."""


def stretches(sampler: Sampler, *, each: bool = False) -> list[Stretch]:
    """The solved values in order, neighbours joined as long as the first mapping stays the best; or each alone."""
    made: list[Stretch] = []
    for value in sorted(sampler.samples):
        sample = sampler.samples[value]
        last = made[-1] if made else None
        if last is not None and not each and sampler.best_at(last.mapping, sample):
            made[-1] = Stretch((*last.samples, sample), last.mapping, last.of, last.since)
            continue
        before = last.samples[-1] if last else None
        if before is not None and not each and before.mapping is not None and sampler.best_at(sample.mapping, before):
            # Equally fast at the value before: the change is there.
            made.append(Stretch((before, sample), sample.mapping, sample, (before.value, before.value)))
            continue
        since = (before.value, value) if before is not None and not each else None
        made.append(Stretch((sample,), sample.mapping, sample, since))
    return made
