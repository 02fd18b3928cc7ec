"""What a quantity or relation may look at: facts, the cell both grids share, and each grid's options.

Contents: Facts, CellView, kinds_of, AttentionView, ExpertView, once_per_view.

All arrays broadcast together. The search lays them out as (dp, micro_batch, pipeline, recompute, zero, offload,
option); the point evaluator uses plain numbers (see arrays.py). Rows have one more dimension at the end: the level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TypeVar

import numpy as np

from mapsearch.arrays import remembered
from mapsearch.axes import Hidden
from mapsearch.costs.stages import Cut, StageKinds, stage_kinds
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.quantity import Floats, Num
from mapsearch.topologies.fabric import Fabric


@dataclass(frozen=True)
class Facts:
    """Everything that is given: the inventories and the fabric."""

    model: Model
    run: Run
    fabric: Fabric
    profile: Profile


@dataclass(frozen=True)
class CellView:
    """The axes that both grids share."""

    facts: Facts
    used: tuple[int, ...]
    """Fan-out in use per level, innermost first."""
    pp_row: tuple[int, ...]
    dp: Num
    micro_batch: Num
    schedule: Num
    vpp: Num
    recompute: Num
    zero: Num
    offload: Num
    overlap: Num
    layout: Cut = ()
    """Layers of each chunk of the pipeline; empty: as frameworks cut unless told otherwise."""
    recompute_stages: int = 0
    """Stages from the first on that recompute, the others recompute nothing; 0: all do."""

    @cached_property
    def pp(self) -> int:
        """Pipeline stages."""
        return math.prod(self.pp_row)

    @cached_property
    def devices(self) -> int:
        """Devices in use."""
        return math.prod(self.used)

    @cached_property
    def microbatches(self) -> Num:
        """Microbatches per step and replica, as a real number where the batch does not divide."""
        return self.facts.run.global_batch / (self.micro_batch * self.dp)

    @cached_property
    def tokens(self) -> Num:
        """Tokens of one microbatch per rank at a layer's entrance."""
        per_replica = self.devices / (self.dp * self.pp)
        return self.micro_batch * self.facts.run.sequence_length / per_replica

    def hides(self, what: Hidden) -> Num:
        """1 where so much runs under compute, 0 elsewhere; a plain number where all candidates agree."""
        if type(self.overlap) is int:
            return 1.0 if self.overlap & what else 0.0
        found = (np.asarray(self.overlap) & what) != 0
        return 1.0 * found if found.any() and not found.all() else float(found.any())

    @cached_property
    def kinds(self) -> list[StageKinds]:
        """Distinct stages, a record per kind whose fields broadcast with `schedule`; missing kinds count 0."""
        model, run = self.facts.model, self.facts.run
        if type(self.schedule) is int:
            return kinds_of(model, run, self.pp, self.schedule, self.layout, self.recompute_stages)
        schedules = np.unique(np.asarray(self.schedule))
        told = self.layout, self.recompute_stages
        tables = {int(s): stage_kinds(self.pp, int(s), *told, model=model, run=run) for s in schedules}
        first = next(iter(tables.values()))
        if all(_same(first, table) for table in tables.values()):
            return [_row(first, row) for row in range(len(first.count))]
        rows = max(len(table.count) for table in tables.values())
        return [_kind(tables, np.asarray(self.schedule), row) for row in range(rows)]


@remembered(2)
def kinds_of(model: Model, run: Run, pp: int, schedule: int, cut: Cut = (), first: int = 0) -> list[StageKinds]:
    """The kinds of stage of one layout, as plain numbers."""
    table = stage_kinds(pp, schedule, cut, first, model=model, run=run)
    return [_row(table, row) for row in range(len(table.count))]


def _same(first: StageKinds, second: StageKinds) -> bool:
    return all(np.array_equal(getattr(first, n), getattr(second, n)) for n in StageKinds.__dataclass_fields__)


def _row(table: StageKinds, row: int) -> StageKinds:
    """One kind of a layout that all schedules share, as plain numbers."""
    return StageKinds(**{name: float(getattr(table, name)[row]) for name in StageKinds.__dataclass_fields__})


def _kind(tables: dict[int, StageKinds], schedule: Floats, row: int) -> StageKinds:
    def pick(name: str) -> Floats:
        result = np.zeros(schedule.shape)
        for code, table in tables.items():
            values = getattr(table, name)
            here = row < len(values)
            value = values[row] if here else (0.0 if name == "count" else values[0])
            result = np.where(schedule == code, value, result)
        return result

    return StageKinds(**{name: pick(name) for name in StageKinds.__dataclass_fields__})


@dataclass(frozen=True)
class AttentionView:
    """Options of the attention grid inside a cell."""

    cell: CellView
    tp: Num
    cp: Num
    tp_row: Num
    cp_row: Num
    dp_row: Num
    cp_kind: Num

    @property
    def facts(self) -> Facts:
        """The given inventories."""
        return self.cell.facts


@dataclass(frozen=True)
class ExpertView:
    """Options of the expert grid inside a cell."""

    cell: CellView
    etp: Num
    ep: Num
    edp: Num
    etp_row: Num
    ep_row: Num
    edp_row: Num
    dispatcher: Num

    @property
    def inside_edp(self) -> Num:
        """Ways per level of what stands inside the groups of EDP; None where no level is a ring or torus."""
        return np.asarray(self.etp_row) * np.asarray(self.ep_row) if self.facts.fabric.linked else None

    @property
    def facts(self) -> Facts:
        """The given inventories."""
        return self.cell.facts


V = TypeVar("V", AttentionView, ExpertView)
T = TypeVar("T")


def once_per_view(function: Callable[[V], T]) -> Callable[[V], T]:
    """A pure function of a grid's options, computed once for each view: times and bytes both ask for it."""
    name = f"_{function.__name__}"

    @wraps(function)
    def found(view: V) -> T:
        kept = view.__dict__
        if name not in kept:
            kept[name] = function(view)
        return kept[name]  # type: ignore[no-any-return]

    return found
