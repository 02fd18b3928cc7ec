"""The cheapest change of several numbers together that makes something fit.

Contents: JOINT, read_weights, check_weights, cheapest.

A change costs its weight for every doubling or halving of the number. Combinations of the values of a grid are taken in
the order of a lower bound of their cost, so that the first that fits is the cheapest, and all cheaper ones were
refuted. HBM is not on the grid where only memory limits a pair: for each combination of the others the leanest mapping
says how much is needed, and the model states how much at least.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mapsearch.answer import Change, JointRelaxation, Relaxation
from mapsearch.constraints.capacity import hbm_for
from mapsearch.costs.views import Facts
from mapsearch.errors import UsageError, listed, near_miss
from mapsearch.relation import Relation
from mapsearch.solver.explain.leanest import floor_bytes, leanest
from mapsearch.solver.explain.probe import MEMORY, Probe
from mapsearch.solver.explain.relax import (
    rounded_up,
    shown,
    with_bandwidth,
    with_hbm,
    with_outer_units,
    with_run,
)
from mapsearch.solver.explain.tighten import Lever, tight
from mapsearch.solver.problem import problem_of

JOINT = ("hbm", "devices", "sequence_length", "exposed_limit", "bandwidth.LEVEL")
"""Numbers that a joint relaxation may change."""
MOST_DOUBLINGS = 6
"""How far each is taken."""
QUARTERS = 4
"""Steps between a doubling and the next."""
MOST_TRIED, MOST_TIMED = 400, 40
"""Combinations that are searched at most, the second where step times are limited."""


@dataclass(frozen=True)
class _Number:
    """One number of the grid."""

    name: str
    unit: str
    weight: float
    before: float
    values: tuple[float, ...]
    apply: Callable[[Facts, float], Facts]
    words: Callable[[float], str]
    real: bool = True
    """Not only whole steps make sense."""

    def cost(self, value: float) -> float:
        """The weight for each doubling or halving."""
        return self.weight * abs(math.log2(value / self.before))


def read_weights(text: str) -> dict[str, float]:
    """`hbm=1,devices=2` as weights. Raises UsageError."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, given, number = (word.strip() for word in part.partition("="))
        try:
            weights[name] = float(number)
        except ValueError:
            said = f"{part.strip()!r} gives no weight" if not given or not number else f"{number!r} is not a number"
            raise UsageError(f"{said}; write hbm=1,devices=2", field="weights") from None
    return weights


def check_weights(weights: Mapping[str, float] | None, facts: Facts) -> None:
    """Refuse weights of what is no lever, and weights that are not positive. Raises UsageError."""
    levels = facts.fabric.level_names
    accepted = [*JOINT[:-1], *(f"bandwidth.{level}" for level in levels)]
    for name, weight in (weights or {}).items():
        if name not in accepted:
            raise UsageError(
                f"{name!r} is no number that a joint change may take{near_miss(name, accepted)}; "
                f"accepted: {listed(accepted)}",
                field="weights",
            )
        if not (math.isfinite(weight) and weight > 0.0):
            raise UsageError(f"the weight of {name} is {weight:g}; give a number above 0", field="weights")


def cheapest(
    probe: Probe,
    cores: list[list[Relation]],
    weights: Mapping[str, float] | None,
    alone: Sequence[Relaxation] = (),
) -> JointRelaxation | str | None:
    """The cheapest joint relaxation, a note when none of the grid fits, or None where no number can matter.

    Without weights each number that helps alone, or that memory depends on where memory conflicts, has weight 1.
    `alone` are relaxations of one number that are known to help. Raises OutOfTime.
    """
    single = {one.name: one.to_value for one in alone}
    chosen = dict(weights) if weights else _default(cores, single, probe.problem.facts)
    if not chosen or not cores:
        return None
    timed = any(relation.name not in MEMORY for relation in probe.problem.side("pair"))
    exact = "hbm" in chosen and not timed
    numbers = [_number(probe.problem.facts, name, weight) for name, weight in sorted(chosen.items())]
    known = [
        tuple(single[one.name] if one is number else one.before for one in numbers)
        for number in numbers
        if number.name in single
    ]
    found, proven = _searched(probe, numbers, known, exact=exact)
    names = listed(number.name for number in numbers)
    if found is None:
        return f"no combination of {names} that was tried makes it fit" if proven else None
    found = _taken_back(probe, numbers, found)
    problem = problem_of(_applied(probe.problem.facts, numbers, found))
    told = shown(problem, probe.fastest(problem), lever="", relation="", from_value=0.0, to_value=0.0)
    if told is None:
        return None
    changes = _changes(numbers, found)
    return JointRelaxation(
        changes=changes,
        cost=sum(change.cost for change in changes),
        weights={number.name: number.weight for number in numbers},
        grid=_grid_words(numbers, exact=exact),
        proven=proven,
        mapping=told.mapping,
        step_time_s=told.step_time_s,
    )


def _changes(numbers: list[_Number], values: tuple[float, ...]) -> list[Change]:
    """The numbers that are not left as they are."""
    return [
        Change(
            name=number.name,
            lever=number.words(value),
            from_value=number.before,
            to_value=value,
            unit=number.unit,
            weight=number.weight,
            cost=number.cost(value),
        )
        for number, value in zip(numbers, values, strict=True)
        if value != number.before
    ]


def _default(cores: list[list[Relation]], single: Mapping[str, float], facts: Facts) -> dict[str, float]:
    """Weight 1 for each number that helps alone, and for those of memory where a limit of memory conflicts."""
    names = {relation.name for core in cores for relation in core}
    accepted = (*JOINT[:-1], *(f"bandwidth.{level}" for level in facts.fabric.level_names))
    memory = ("hbm", "devices", "sequence_length") if "hbm" in names else ()
    timed = any(name.startswith("exposed") for name in names)
    return {name: 1.0 for name in accepted if name in single or (name in memory and not timed)}


def _grid_words(numbers: list[_Number], *, exact: bool) -> str:
    on_grid = [number.name for number in numbers if not (exact and number.name == "hbm")]
    text = f"{', '.join(on_grid)}: quarters between doublings, {2**MOST_DOUBLINGS} times at most" if on_grid else ""
    told = "hbm: any value, rounded up to five digits" if exact else ""
    back = any(number.real and number.name in on_grid for number in numbers)
    taken = "then real numbers taken back until 1 % less does not fit" if back else ""
    return "; ".join(part for part in (text, told, taken, "and each number alone") if part)


def _searched(
    probe: Probe, numbers: list[_Number], known: list[tuple[float, ...]], *, exact: bool
) -> tuple[tuple[float, ...] | None, bool]:
    """The cheapest values that fit, and whether all cheaper ones were refuted; `known` are values that fit.

    Combinations are made in the order of their cost, and searched in the order of their bound, HBM included.
    """
    free = next((place for place, number in enumerate(numbers) if exact and number.name == "hbm"), None)
    lists = [(number.before,) if place == free else number.values for place, number in enumerate(numbers)]
    best = min(known, key=lambda values: _cost(numbers, values), default=None)
    best_cost = math.inf if best is None else _cost(numbers, best)
    made = _by_cost(numbers, lists)
    ahead = next(made, None)
    ready: list[tuple[float, tuple[float, ...]]] = []
    tried = 0
    while ahead is not None or ready:
        if ahead is not None and (not ready or ahead[0] < ready[0][0]):
            if ahead[0] < best_cost:
                _keep_if_possible(probe, numbers, ahead, free, ready)
            ahead = next(made, None) if ahead[0] < best_cost else None
            continue
        bound, values = heapq.heappop(ready)
        if bound >= best_cost:
            break
        tried += 1
        if tried > (MOST_TRIED if exact else MOST_TIMED):
            return best, False
        found = _fitting(probe, numbers, values, free)
        if found is not None and _cost(numbers, found) < best_cost:
            best, best_cost = found, _cost(numbers, found)
    return best, True


def _cost(numbers: list[_Number], values: tuple[float, ...]) -> float:
    return sum(number.cost(value) for number, value in zip(numbers, values, strict=True))


def _by_cost(numbers: list[_Number], lists: list[tuple[float, ...]]) -> Iterator[tuple[float, tuple[float, ...]]]:
    """All combinations of the lists, whose values cost more and more, cheapest first."""
    start = (0,) * len(lists)
    heap = [(0.0, start, 0)]
    while heap:
        cost, places, last = heapq.heappop(heap)
        yield cost, tuple(values[place] for values, place in zip(lists, places, strict=True))
        # Only the last number that was raised and those behind it, so that no combination comes twice.
        for number in range(last, len(lists)):
            if places[number] + 1 < len(lists[number]):
                after = (*places[:number], places[number] + 1, *places[number + 1 :])
                values = tuple(of[place] for of, place in zip(lists, after, strict=True))
                heapq.heappush(heap, (_cost(numbers, values), after, number))


def _keep_if_possible(
    probe: Probe,
    numbers: list[_Number],
    made: tuple[float, tuple[float, ...]],
    free: int | None,
    ready: list[tuple[float, tuple[float, ...]]],
) -> None:
    """Queue a combination by its bound, unless the model states alone do not fit with it."""
    cost, values = made
    facts = _applied(probe.problem.facts, numbers, values)
    floor = _least_hbm(probe, facts) if _limited(probe) else 0.0
    if free is not None:
        heapq.heappush(ready, (cost + numbers[free].cost(max(floor, numbers[free].before)), values))
    elif floor <= facts.fabric.device.hbm_bytes:
        heapq.heappush(ready, (cost, values))


def _applied(facts: Facts, numbers: list[_Number], values: tuple[float, ...]) -> Facts:
    for number, value in zip(numbers, values, strict=True):
        if value != number.before:
            facts = number.apply(facts, value)
    return facts


def _taken_back(probe: Probe, numbers: list[_Number], values: tuple[float, ...]) -> tuple[float, ...]:
    """The values with every real number taken back from the grid, one after the other, until 1 % less does not fit."""
    for place, number in enumerate(numbers):
        if not number.real or values[place] == number.before:
            continue

        def at(value: float, place: int = place, values: tuple[float, ...] = values) -> Facts:
            return _applied(probe.problem.facts, numbers, (*values[:place], value, *values[place + 1 :]))

        lever = Lever(number.name, "", number.unit, number.before, values[place], at, number.words, bool)
        nearest = tight(probe, lever)
        if nearest is not None:
            values = (*values[:place], nearest.to_value, *values[place + 1 :])
    return values


def _limited(probe: Probe) -> bool:
    return any(relation.name == "hbm" for relation in probe.problem.relations)


def _least_hbm(probe: Probe, facts: Facts) -> float:
    """HBM per device that the model states alone need; they do not depend on lengths and times."""
    return hbm_for(floor_bytes(probe.problem, facts.fabric.devices), facts)


def _fitting(
    probe: Probe, numbers: list[_Number], values: tuple[float, ...], free: int | None
) -> tuple[float, ...] | None:
    """The values with which something fits, HBM among them as it must be; None when nothing does."""
    probe.hurry()
    facts = _applied(probe.problem.facts, numbers, values)
    problem = problem_of(facts)
    if free is None:
        return values if probe.fits(problem) is not None else None
    best = leanest(problem)
    if best is None:
        return None
    hbm = max(rounded_up(hbm_for(best.peak_bytes, facts) * (1.0 + 1e-12)), numbers[free].before)
    return (*values[:free], hbm, *values[free + 1 :])


@lru_cache(maxsize=8)
def _factors(doublings: int) -> tuple[float, ...]:
    """1, 1.25, 1.5, 1.75, 2, 2.5, ... to so many doublings."""
    between = [2.0**d * (1.0 + q / QUARTERS) for d in range(doublings) for q in range(QUARTERS)]
    return (*between, 2.0**doublings)


def _number(facts: Facts, name: str, weight: float) -> _Number:
    kind, _, level = name.partition(".")
    factors = _factors(MOST_DOUBLINGS)
    if kind == "hbm":
        before = facts.fabric.device.hbm_bytes
        values = tuple(before * factor for factor in factors)
        label = "HBM per device"
        return _Number(name, "bytes", weight, before, values, with_hbm, _gigabytes(label, before, "GB"))
    if kind == "devices":
        return _devices(facts, weight, factors)
    if kind == "sequence_length":
        return _lengths(facts, weight, factors)
    if kind == "exposed_limit":
        share = facts.run.exposed_limit
        shares = tuple(dict.fromkeys(min(1.0, share * factor) for factor in factors))
        return _Number(
            name,
            "share",
            weight,
            share,
            shares,
            lambda given, value: with_run(given, exposed_limit=value),
            lambda value: f"exposed communication {100 * share:.5g} -> {100 * value:.5g} % of the step",
        )
    speed = next(one.bytes_per_s for one in facts.fabric.levels if one.name == level)
    speeds = tuple(speed * factor for factor in factors)
    return _Number(
        name,
        "B/s",
        weight,
        speed,
        speeds,
        lambda given, value: with_bandwidth(given, level, value),
        _gigabytes(f"bandwidth of {level}", speed, "GB/s per device"),
    )


def _gigabytes(label: str, before: float, unit: str) -> Callable[[float], str]:
    return lambda value: f"{label} {before / 1e9:,.5g} -> {value / 1e9:,.5g} {unit}"


def _devices(facts: Facts, weight: float, factors: tuple[float, ...]) -> _Number:
    outer = facts.fabric.regular.levels[-1].size
    before, inner = facts.fabric.devices, facts.fabric.devices // outer
    counts = tuple(inner * units for units in dict.fromkeys(round(outer * factor) for factor in factors))
    return _Number(
        "devices",
        "devices",
        weight,
        before,
        tuple(map(float, counts)),
        lambda given, value: with_outer_units(given, round(value) // inner),
        lambda value: f"devices {before:,} -> {value:,.0f}",
        real=False,
    )


def _lengths(facts: Facts, weight: float, factors: tuple[float, ...]) -> _Number:
    before = facts.run.sequence_length
    eighths = [before * (1.0 - q / (2 * QUARTERS)) / 2.0**d for d in range(MOST_DOUBLINGS) for q in range(QUARTERS)]
    values = tuple(value for value in (*eighths, before / factors[-1]) if value.is_integer() and value >= 1.0)
    return _Number(
        "sequence_length",
        "tokens",
        weight,
        before,
        values,
        lambda given, value: with_run(given, sequence_length=round(value)),
        lambda value: f"sequence length {before:,} -> {value:,.0f} tokens",
        real=False,
    )
