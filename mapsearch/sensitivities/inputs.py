"""The input that varies: its name, its range as written, and the facts at each of its values.

Contents: KINDS, LADDER, Varied, read_over, at_value, ladder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from mapsearch.costs.views import Facts
from mapsearch.errors import InputError, UsageError, listed, near_miss
from mapsearch.inputs import Inputs
from mapsearch.inventories.run import Run
from mapsearch.parametric import Breakpoints
from mapsearch.solver.explain.relax import with_bandwidth, with_hbm
from mapsearch.units import BYTES, RATE, Dimension, parse, render

FIELD = "over"
MOST = 64
"""Values in a list, and samples of a range, at most: each is a search of its own."""


@dataclass(frozen=True)
class Kind:
    """What is known of an input before its range is read."""

    breakpoints: Breakpoints
    unit: str
    example: str
    dimension: Dimension | None = None
    """How it is written; None for a plain number."""
    whole: bool = False
    least: float = 0.0
    most: float = math.inf


KINDS = {
    "hbm": Kind("exact", "bytes", "hbm=64GB..256GB", BYTES),
    "exposed_limit": Kind("exact", "share", "exposed_limit=0.05..0.5", most=1.0),
    "bandwidth": Kind("bracketed", "B/s", "bandwidth.rack=25GB/s..200GB/s", RATE),
    "capacity_factor": Kind("bracketed", "slots over the mean", "capacity_factor=1..2", least=1.0, most=1000.0),
    "devices": Kind("listed", "devices", "devices=512..8192", whole=True, least=1.0, most=2.0**30),
    "sequence_length": Kind("listed", "tokens", "sequence_length=8192..131072", whole=True, least=1.0, most=2.0**40),
}
"""Input: how its breakpoints are found and how it is written."""


@dataclass(frozen=True)
class Varied:
    """One input with the values asked for."""

    name: str
    kind: Kind
    level: str
    """Whose bandwidth it is; empty for other inputs."""
    values: tuple[float, ...]
    """Ascending: the ends of a range, or a list."""
    is_range: bool

    @property
    def full_name(self) -> str:
        """`bandwidth.rack`."""
        return f"{self.name}.{self.level}" if self.level else self.name

    def written(self, value: float) -> str:
        """A value as the user would write it; reads back as the same number."""
        if self.kind.dimension is not None:
            return render(value, self.kind.dimension)
        return f"{value:.0f}" if self.kind.whole else repr(value)


def read_over(text: str) -> Varied:
    """`hbm=64GB..256GB` or `devices=512,1024,4096`. Raises UsageError, one sentence."""
    written, found, rest = (part.strip() for part in text.partition("="))
    name, _, level = written.partition(".")
    if name not in KINDS:
        accepted = listed("bandwidth.LEVEL" if known == "bandwidth" else known for known in KINDS)
        raise UsageError(f"{name!r} is no input that varies{near_miss(name, KINDS)}; accepted: {accepted}", field=FIELD)
    kind = KINDS[name]
    if not found or not rest:
        raise UsageError(f"{text!r} gives no range; write it as {kind.example}", field=FIELD)
    if bool(level) != (name == "bandwidth"):
        said = f"{name!r} has no part {level!r}" if level else "a bandwidth is that of one level"
        raise UsageError(f"{said}; write it as {kind.example}", field=FIELD)
    is_range = ".." in rest
    if is_range and (rest.count("..") > 1 or "," in rest):
        raise UsageError(f"{rest!r} is neither a range nor a list; write it as {kind.example}", field=FIELD)
    values = [_number(part.strip(), kind) for part in (rest.split("..") if is_range else rest.split(","))]
    if is_range:
        _check_range(values, rest, kind)
    elif kind.breakpoints == "exact":
        raise UsageError(f"every breakpoint of {name} is found; give a range, such as {kind.example}", field=FIELD)
    elif len(values) > MOST:
        raise UsageError(f"lists {len(values)} values; at most {MOST} are accepted", field=FIELD)
    return Varied(name, kind, level, tuple(sorted(set(values))), is_range)


def _check_range(values: list[float], rest: str, kind: Kind) -> None:
    if values[0] > values[1]:
        low, high = (part.strip() for part in rest.split(".."))
        raise UsageError(f"the range runs backwards; write {high}..{low}", field=FIELD)
    if values[0] == values[1]:
        raise UsageError(f"{rest!r} is a single value; write a range, such as {kind.example}", field=FIELD)


def _number(text: str, kind: Kind) -> float:
    if kind.dimension is not None:
        try:
            value = parse(text, kind.dimension)
        except ValueError as problem:
            raise UsageError(str(problem), field=FIELD) from None
    else:
        try:
            value = float(int(text)) if kind.whole else float(text)
        except ValueError:
            what = "a whole number" if kind.whole else "a number without a unit"
            raise UsageError(f"takes {what}, not {text!r}; write it as {kind.example}", field=FIELD) from None
    if not (math.isfinite(value) and kind.least <= value <= kind.most and value > 0.0):
        least = f"at least {kind.least:g}" if kind.least else "more than 0"
        most = f" and at most {kind.most:g}" if math.isfinite(kind.most) else ""
        raise UsageError(f"{text} is not accepted; give {least}{most}", field=FIELD)
    return value


def check_level(varied: Varied, facts: Facts) -> None:
    """Refuse a level that the cluster does not have. Raises UsageError."""
    names = facts.fabric.level_names
    if varied.level and varied.level not in names:
        hint = near_miss(varied.level, names)
        raise UsageError(
            f"{facts.fabric.name} has no level {varied.level!r}{hint}; levels: {listed(names)}", field=FIELD
        )


def at_value(varied: Varied, value: float, inputs: Inputs, scaled_to: Callable[[int], Inputs]) -> Facts:
    """The facts with the input at one of its values; `scaled_to` reads the cluster with so many devices.

    Raises InputError where the cluster cannot have so many devices.
    """
    facts = inputs.facts
    if varied.name == "hbm":
        return with_hbm(facts, value)
    if varied.name == "devices":
        return scaled_to(int(value)).facts
    if varied.name == "bandwidth":
        return with_bandwidth(facts, varied.level, value)
    return replace(facts, run=_run_at(varied.name, value, facts.run))


def _run_at(name: str, value: float, run: Run) -> Run:
    if name == "exposed_limit":
        return run.replaced(exposed_limit=value)
    if name == "sequence_length":
        return run.replaced(sequence_length=int(value))
    return run.replaced(routing={**run.routing.model_dump(), "capacity_factor": value})


def ladder(varied: Varied, points: int | None, possible: Callable[[int], bool]) -> list[float]:
    """The whole values to solve: a list as it is; of a range, doubled from its lower end on, its upper end the last.

    With `points`, so many values instead, spread evenly in logarithms; values that are not possible are left out.
    Raises InputError when none is possible.
    """
    low, high = varied.values[0], varied.values[-1]
    wanted = list(varied.values)
    if varied.is_range and points:
        wanted = [float(round(value)) for value in spread(low, high, points)]
    elif varied.is_range:
        wanted = [low * 2.0**step for step in range(int(math.log2(high / low)) + 1)] + [high]
    found = sorted({value for value in wanted if possible(int(value))})
    if not found:
        shown = f"{low:,.0f}..{high:,.0f}" if varied.is_range else ", ".join(f"{value:,.0f}" for value in wanted)
        raise InputError(f"none of the values of {shown} can be solved; list some that can", field=FIELD)
    return found


def spread(low: float, high: float, points: int) -> list[float]:
    """So many values from low to high, evenly in logarithms, both ends exact; a single one is the lower end."""
    if points == 1:
        return [low]
    inner = [low * (high / low) ** (number / (points - 1)) for number in range(1, points - 1)]
    return [low, *inner, high]
