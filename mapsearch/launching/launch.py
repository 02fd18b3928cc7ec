"""What is launched, what a launch file says, and when the two are the same.

Contents: Plan, Draft, Launch, Format, canonical, differing, mapping_of.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Mapped
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mapsearch.axes import SIZES, CpKind, Dispatcher, Hidden, Recompute, Schedule, written
from mapsearch.costs.stages import TWO_CHUNK_SCHEDULES, usual_cut
from mapsearch.errors import InputError
from mapsearch.exported import Unexpressed
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import Run

MOST = 2**40
"""Largest whole number of a launch file that is read."""
COMPARED = (
    *SIZES,
    "vpp",
    "micro_batch",
    "schedule",
    "layout",
    "recompute",
    "recompute_stages",
    "zero",
    "offload",
    "cp_kind",
    "dispatcher",
    "overlap",
)
"""Fields of a mapping that a launch file is to say; where ranks stand is not among them."""


def canonical(mapping: Mapping, model: Model, run: Run) -> Mapping:
    """The mapping with its layout and overlap spelled out, without choices that mean nothing at its sizes.

    One stage has no schedule, one context rank exchanges nothing, hybrid CP inside one level is Ulysses, a dense model
    dispatches nothing, and without sharding there is no gather to hide.
    Raises ValueError where the layers do not fill the pipeline.
    """
    code = run.overlap.codes[0] if mapping.overlap is None else mapping.overlap
    if model.moe is None or mapping.ep == 1:
        code &= ~int(Hidden.EXPERT_ALL_TO_ALL)
    if mapping.zero == 0:
        code &= ~int(Hidden.PARAM_GATHER)
    again = _recomputed(mapping.recompute, model)
    single = mapping.pp == 1
    changes: dict[str, Any] = {
        "schedule": int(Schedule.ONE_F_ONE_B) if single and mapping.vpp == 1 else mapping.schedule,
        "layout": [] if single else list(_cut(mapping, model, run)),
        "recompute": again,
        "recompute_stages": mapping.recomputing if again else 0,
        "cp_kind": _cp_kind(mapping),
        "dispatcher": mapping.dispatcher if model.moe else int(Dispatcher.ALL_TO_ALL),
        "overlap": code,
        "placement": {},
    }
    return mapping.model_copy(update=changes)


def _cp_kind(mapping: Mapping) -> int:
    """Hybrid CP that is cut on one level only has no ring: it is Ulysses, where the placement says so."""
    if mapping.cp == 1:
        return int(CpKind.RING)
    levels = [ways for ways in mapping.placement.get("cp", {}).values() if ways > 1]
    return int(CpKind.ULYSSES) if mapping.cp_kind == CpKind.HYBRID and len(levels) == 1 else mapping.cp_kind


def _recomputed(code: int, model: Model) -> int:
    if code & Recompute.FULL:
        return int(Recompute.FULL)
    if model.mla is None:
        code &= ~int(Recompute.MLA_UP)
    return code if model.moe is not None else code & ~int(Recompute.MOE)


def _cut(mapping: Mapping, model: Model, run: Run) -> tuple[int, ...]:
    if mapping.cut:
        return mapping.cut
    return usual_cut(
        mapping.pp, int(mapping.schedule), model=model, length=run.attended_length, vocabulary=run.vocabulary
    )


def differing(one: Mapping, other: Mapping) -> list[str]:
    """Fields in which two canonical mappings differ."""
    return [name for name in COMPARED if getattr(one, name) != getattr(other, name)]


@dataclass(frozen=True)
class Plan:
    """A mapping with its model and run: all that a launch file is made of."""

    mapping: Mapping
    """Canonical."""
    model: Model
    run: Run
    inner_cp: int = 0
    """Ulysses' degree of a hybrid context parallel: the ways of CP on the innermost level it uses; 0: not known."""

    @classmethod
    def of(cls, mapping: Mapping, model: Model, run: Run) -> Plan:
        """The plan of any mapping. Raises InputError where its layers do not fill the pipeline."""
        try:
            spelled = canonical(mapping, model, run)
        except ValueError as problem:
            raise InputError(str(problem), field="layout") from None
        ways = [cut for cut in mapping.placement.get("cp", {}).values() if cut > 1]
        return cls(spelled, model, run, ways[0] if ways else 0)

    @cached_property
    def chunks(self) -> tuple[int, ...]:
        """Layers of every model chunk in the order of the layers: each stage's share, spread over its virtual stages.

        V-shaped schedules have two chunks per stage, as the layout itself.
        """
        cut, vpp = self.mapping.layout or [self.model.layers], self.mapping.vpp
        return tuple(layers // vpp + (turn < layers % vpp) for turn in range(vpp) for layers in cut)

    @property
    def even(self) -> bool:
        """Whether all chunks have as many layers."""
        return len(set(self.chunks)) == 1

    @property
    def folded(self) -> bool:
        """Whether the schedule is V-shaped."""
        return self.mapping.schedule in TWO_CHUNK_SCHEDULES


@dataclass
class Draft:
    """A launch file under way: its settings, and what it cannot say."""

    settings: dict[str, Any] = field(default_factory=dict)
    unexpressed: list[Unexpressed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lose(self, plan: Plan, axis: str, why: str) -> None:
        """One axis of the mapping that the file cannot say."""
        value = getattr(plan.mapping, axis)
        shown = "-".join(map(str, value)) if isinstance(value, list) else str(written(axis, value))
        self.leave(axis, shown, why)

    def leave(self, what: str, value: str, why: str) -> None:
        """One fact of the run that the file cannot say; a second reason for the same one joins the first."""
        before = next((one for one in self.unexpressed if one.what == what), None)
        if before is not None:
            self.regain(what)
            why = before.why if why in before.why else f"{before.why}; {why}"
        self.unexpressed.append(Unexpressed(what=what, value=value, why=why))

    def regain(self, what: str) -> None:
        """Take back that something cannot be said."""
        self.unexpressed = [one for one in self.unexpressed if one.what != what]


@dataclass(frozen=True)
class Launch:
    """What a launch file says, in the names of the inventories; what it does not say is left out."""

    format: str
    framework: str
    mapping: Mapped[str, Any]
    """Fields of `Mapping`, coded; DP and expert DP where the file gives them."""
    run: Mapped[str, Any]
    """Fields of `Run`."""
    model: Mapped[str, Any] = field(default_factory=dict)
    """Fields of `CaseModel`."""
    hardware: Mapped[str, Any] = field(default_factory=dict)
    """Fields of `CaseHardware`."""
    told: Mapped[str, Mapped[str, Any]] = field(default_factory=dict)
    """Words for a case that no inventory has: record, field, value."""
    source: str = ""
    """The repository whose defaults hold where the file is silent; empty: the framework alone says them."""
    notes: tuple[str, ...] = ()


def mapping_of(launch: Launch, *, devices: int | None = None, file: str | None = None) -> Mapping:
    """The complete mapping of a launch on so many devices, or on those that it names.

    Raises InputError: the number of devices is not known, or is no multiple of the sizes.
    """
    values = dict(launch.mapping)
    count = devices or launch.hardware.get("gpus") or (_devices_by_dp(values) if "dp" in values else None)
    if count is None:
        raise InputError("does not say on how many devices it runs; give --devices", file=file)
    cells = {grid: _product(values, grid) for grid in (("tp", "cp", "pp"), ("etp", "ep", "pp"))}
    for grid, product in cells.items():
        if count % product:
            spelled = " x ".join(f"{axis.upper()} {values.get(axis, 1)}" for axis in grid)
            raise InputError(f"{count:,} devices are no multiple of {spelled} = {product:,}", file=file)
    attention, expert = cells.values()
    sizes = {axis: values.pop(axis, 1) for axis in ("tp", "cp", "pp", "etp", "ep")}
    values.pop("dp", None)
    base = Mapping.model_validate({**sizes, "dp": count // attention, "edp": count // expert})
    return base.model_copy(update=values)


def _product(values: dict[str, Any], grid: tuple[str, ...]) -> int:
    product = 1
    for axis in grid:
        product *= int(values.get(axis, 1))
    return product


def _devices_by_dp(values: dict[str, Any]) -> int:
    return int(values["dp"]) * _product(values, ("tp", "cp", "pp"))


@dataclass(frozen=True)
class Format:
    """One kind of launch file."""

    name: str
    framework: str
    """Whose rules it is held against."""
    suffix: str
    mark: str
    """What begins a line of remarks; empty where the file has none."""
    write: Callable[[Plan], tuple[str, Draft]]
    """The body, and what it cannot say."""
    read: Callable[[str, dict[str, str]], Launch]
    """What a text says, with variables given from outside. Raises InputError."""
    detect: Callable[[str], bool]
