"""When a slower mapping would win: the least change of one input at which it is the fastest.

Contents: wins, REACH.

Candidates are values at which it beats every mapping known so far; the nearest one is searched, and whoever is faster
there joins the known, until none is. Bandwidths are looked at up and down to eight times and an eighth; memory down to
what the mapping itself needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mapsearch.costs.estimate import point_of
from mapsearch.explaining.levers import Lever, bandwidths, rivals_at
from mapsearch.explaining.ranking import Listed
from mapsearch.explanation import Win
from mapsearch.inventories.mapping import Mapping
from mapsearch.sensitivities.exact import least_hbm
from mapsearch.solver.explain.relax import with_hbm
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import key_of_mapping, mapping_of, time_of

REACH = 8.0
"""Bandwidths are looked at up to so many times as much, and down to as small a part."""
SAMPLES = 6
"""Values of a range at which the mapping is compared with those known, evenly in logarithms."""
ROUNDS = 8
"""Searches for one mapping at most."""
RESOLUTION = 0.01
"""Width of the bracket around the value at which it begins to win, as a share of it."""


def wins(problem: Problem, top: list[Listed], mapping: Mapping, deadline: float | None) -> list[Win]:
    """For each input, the nearest value at which the mapping beats the known ones; the least change is searched."""
    facts, key = problem.facts, key_of_mapping(mapping, problem.facts)
    known = [one.mapping for one in top if one.key != key]
    ways = [
        _Way(lever, _spread(lever.now, end), mapping, known)
        for lever in bandwidths(facts)
        for end in (lever.now / REACH, lever.now * REACH)
    ]
    memory, need = _memory(problem, mapping)
    if need < memory.now:
        ways.append(_Way(memory, [need], mapping, known))
    for _ in range(ROUNDS):
        nearest = min(ways, key=lambda way: way.change)
        if nearest.value is None:
            break
        mine = nearest.lever.time_s(mapping, nearest.value)
        rivals, complete = rivals_at(nearest.lever.problem(nearest.value), mine, 1, deadline)
        faster = [mapping_of(rival) for rival in rivals if rival.key != key]
        if not faster:
            nearest.verified = complete
            break
        for way in ways:
            way.meet(faster)
    return [way.told() for way in ways]


def _spread(now: float, end: float) -> list[float]:
    return [now * (end / now) ** (step / SAMPLES) for step in range(1, SAMPLES + 1)]


def _memory(problem: Problem, mapping: Mapping) -> tuple[Lever, float]:
    """HBM as a lever, and what the mapping itself needs."""
    facts = problem.facts
    lever = Lever("hbm", "bytes", facts.fabric.device.hbm_bytes, lambda value: with_hbm(facts, value))
    return lever, least_hbm(max(map(float, point_of(mapping, facts).kind_memory_bytes)), facts)


@dataclass
class _Way:
    """One input in one direction."""

    lever: Lever
    samples: list[float]
    """Values at which the mapping is compared with the known ones, nearest to the present one first."""
    mapping: Mapping
    known: list[Mapping]
    value: float | None = None
    """The nearest value at which the mapping beats all that are known; None where none does."""
    verified: bool = False
    problems: dict[float, Problem] = field(default_factory=dict)
    times: dict[tuple[float, int], float] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    """The known mappings as they are compared."""

    def __post_init__(self) -> None:
        self.order = list(range(len(self.known)))
        self.value = self._nearest()

    @property
    def change(self) -> float:
        """How much the input changes, as a ratio of at least 1; infinite when no value helps."""
        if self.value is None:
            return math.inf
        return max(self.value / self.lever.now, self.lever.now / self.value)

    def meet(self, faster: list[Mapping]) -> None:
        """Compare with more mappings."""
        self.order = [*range(len(self.known), len(self.known) + len(faster)), *self.order]
        self.known = [*self.known, *faster]
        if self.value is not None and not self._beats(self.value):
            self.value = self._nearest()

    def _beats(self, value: float) -> bool:
        mine = self._time_s(value, -1)
        for place, number in enumerate(self.order):
            if mine > self._time_s(value, number):
                # Who is faster here is likely to be faster at the next value as well, so it is asked first.
                self.order.insert(0, self.order.pop(place))
                return False
        return True

    def _time_s(self, value: float, number: int) -> float:
        """Step time of a known mapping, or of the one asked about (-1), at a value; each is computed once."""
        if (value, number) not in self.times:
            if value not in self.problems:
                self.problems[value] = self.lever.problem(value)
            mapping = self.mapping if number < 0 else self.known[number]
            self.times[value, number] = time_of(mapping, self.problems[value])
        return self.times[value, number]

    def _nearest(self) -> float | None:
        before = self.lever.now
        for sample in self.samples:
            if self._beats(sample):
                return self._edge(before, sample)
            before = sample
        return None

    def _edge(self, loses: float, beats: float) -> float:
        """Between a value where it loses and one where it wins, the first at which it wins, up to the resolution."""
        while abs(beats - loses) > RESOLUTION * min(beats, loses):
            middle = 0.5 * (beats + loses)
            loses, beats = (loses, middle) if self._beats(middle) else (middle, beats)
        return beats

    def told(self) -> Win:
        """The finding."""
        ends = (min(self.lever.now, *self.samples), max(self.lever.now, *self.samples))
        step_time_s = None if self.value is None else self.lever.time_s(self.mapping, self.value)
        return Win(
            input=self.lever.name,
            unit=self.lever.unit,
            now=self.lever.now,
            value=self.value,
            tried=ends,
            resolution=RESOLUTION,
            step_time_s=step_time_s,
            verified=self.verified,
        )
