"""One mapping, costed by the functions that the search tabulates: time, memory and utilisation in parts.

Contents: EveryStage, Point, point_of, layout_trouble, Estimate, estimate, estimate_point, peak_flops,
layers_per_stage, breakdown_s, communication_s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mapsearch.axes import SIZES, Schedule
from mapsearch.costs.flops import executed_flops, training_flops
from mapsearch.costs.footprint import attention_memory, expert_memory
from mapsearch.costs.placement import rows_of
from mapsearch.costs.sides import attention_side, cell_side, expert_side
from mapsearch.costs.stages import StageKinds, stages_of
from mapsearch.costs.step import (
    ALL_CLASSES,
    COMMUNICATION,
    Side,
    StageSum,
    Timing,
    stage_time_s,
    step_time_s,
    sums,
    tail_s,
    timing,
)
from mapsearch.costs.views import AttentionView, CellView, ExpertView, Facts
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.run import Overlap
from mapsearch.quantity import Num

IN_LINE = Overlap(**{name: False for name in Overlap.model_fields if name != "sources"})
"""Nothing hides: what communication takes by itself."""


class EveryStage(CellView):
    """A cell view that lists all stages of the pipeline in order instead of the distinct kinds."""

    @cached_property
    def kinds(self) -> list[StageKinds]:
        """One record per stage."""
        plan = stages_of(self.pp, one(self.schedule), model=self.facts.model, run=self.facts.run)
        rows = zip(plan.dense, plan.moe, plan.embedding, plan.output, strict=True)
        return [
            StageKinds(*(np.array([float(value)]) for value in (*row, 1.0, stage))) for stage, row in enumerate(rows)
        ]


def one(value: Num) -> int:
    """The single whole number of a one-mapping view."""
    return round(number(value))


def number(value: Num) -> float:
    """The single number of a one-mapping view."""
    return float(np.asarray(value).reshape(-1)[0])


@dataclass(frozen=True)
class Point:
    """One mapping as views with one entry, and the sides that it adds up to."""

    mapping: Mapping
    rows: dict[str, tuple[int, ...]]
    attention: AttentionView
    expert: ExpertView
    notes: tuple[str, ...] = ()

    @property
    def cell(self) -> CellView:
        """The axes that both grids share."""
        return self.attention.cell

    @property
    def facts(self) -> Facts:
        """The given inventories."""
        return self.cell.facts

    @cached_property
    def sides(self) -> tuple[Side, Side, Side]:
        """Attention grid, expert grid, and the cell itself."""
        return attention_side(self.attention), expert_side(self.expert), cell_side(self.cell)

    @cached_property
    def timing(self) -> Timing:
        """The pipeline constants."""
        return timing(self.cell, any(side.under_compute for side in self.sides))

    def stages(self, classes: frozenset[str] = ALL_CLASSES) -> list[StageSum]:
        """The summed sides on each kind of stage, with only the named classes of communication."""
        attention, expert, own = (sums(side, self.cell, classes) for side in self.sides)
        return [a + e + c for a, e, c in zip(attention, expert, own, strict=True)]

    def step_time_s(self, classes: frozenset[str] = ALL_CLASSES) -> float:
        """Step time with only the named classes of communication. Unit: s."""
        return number(step_time_s(self.stages(classes), self.timing))

    @cached_property
    def kind_memory_bytes(self) -> list[float]:
        """Peak bytes on each kind of stage."""
        return [number(sum(side.memory_bytes(kind) for side in self.sides)) for kind in range(len(self.cell.kinds))]

    @property
    def host_bytes(self) -> float:
        """Host memory bytes of the stage that keeps most there."""
        return _most([side.host for side in self.sides if side.host])

    @property
    def nvme_bytes(self) -> float:
        """NVMe bytes of the stage that keeps most there."""
        return _most([side.nvme for side in self.sides if side.nvme])


def _most(sides: list[list[Num]]) -> float:
    """The largest sum over the sides of any kind of stage; 0 without a side."""
    return max((sum(map(number, values)) for values in zip(*sides, strict=True)), default=0.0)


def point_of(mapping: Mapping, facts: Facts) -> Point:
    """A mapping as one-entry views. Raises InputError when it does not fit the fabric (see `rows_of`)."""
    rows = rows_of(mapping, facts.fabric)
    size = {axis: np.array([getattr(mapping, axis)]) for axis in SIZES}
    row = {axis: np.array([rows.by_axis[axis]]) for axis in SIZES}
    cell = CellView(
        facts=facts,
        used=rows.used,
        pp_row=rows.by_axis["pp"],
        dp=size["dp"],
        micro_batch=np.array([mapping.micro_batch]),
        schedule=np.array([int(mapping.schedule)]),
        vpp=np.array([mapping.vpp]),
        recompute=np.array([int(mapping.recompute)]),
        zero=np.array([mapping.zero]),
        offload=np.array([int(mapping.offload)]),
    )
    kind, dispatcher = np.array([int(mapping.cp_kind)]), np.array([int(mapping.dispatcher)])
    notes = ("the mapping gives no full placement: axes fill the levels in the usual order",) if rows.chosen else ()
    return Point(
        mapping=mapping,
        rows=rows.by_axis,
        attention=AttentionView(cell, size["tp"], size["cp"], row["tp"], row["cp"], row["dp"], kind),
        expert=ExpertView(cell, size["etp"], size["ep"], size["edp"], row["etp"], row["ep"], row["edp"], dispatcher),
        notes=notes,
    )


def layout_trouble(point: Point) -> str:
    """Why the mapping has no layout of layers on stages and so no estimate; empty when it has one."""
    try:
        stages_of(point.cell.pp, one(point.cell.schedule), model=point.facts.model, run=point.facts.run)
    except ValueError as problem:
        return str(problem)
    return ""


@dataclass(frozen=True)
class Estimate:
    """Everything that is estimated about one mapping (SI units)."""

    step_time_s: float
    breakdown_s: dict[str, float]
    """Parts of the step that add up to it: m rounds of the slowest stage by activity, bubble, and what follows."""
    communication_s: dict[str, float]
    """Per class and step on the slowest stage, hidden or not."""
    exposed_s: dict[str, float]
    """Per class: step time minus step time without it, so its share of the bubble is included."""
    exposed_fraction: float
    memory_by_stage_bytes: list[float]
    memory_bytes: dict[str, float]
    """Parts of the worst stage's peak."""
    worst_stage: int
    host_bytes: float
    nvme_bytes: float
    layers_per_stage: list[int]
    devices: int
    microbatches: int
    tokens_per_s: float
    mfu: float
    hfu: float
    notes: tuple[str, ...]

    @property
    def peak_memory_bytes(self) -> float:
        """Bytes of the worst stage."""
        return self.memory_by_stage_bytes[self.worst_stage]


def estimate(mapping: Mapping, facts: Facts) -> Estimate:
    """Cost one mapping. Raises InputError when it does not fit the fabric, ValueError when a stage has no layer."""
    return estimate_point(point_of(mapping, facts))


def estimate_point(point: Point) -> Estimate:
    """Cost one mapping that is already laid out as views."""
    mapping, facts, cell = point.mapping, point.facts, point.cell
    model, run = facts.model, facts.run
    total = point.step_time_s()
    memory = _memory_by_stage(point)
    peaks = [sum(parts.values()) for parts in memory]
    worst = int(np.argmax(peaks))
    device_s = total * cell.devices * peak_flops(facts)
    return Estimate(
        step_time_s=total,
        breakdown_s=breakdown_s(point),
        communication_s=communication_s(point),
        exposed_s={name: total - point.step_time_s(ALL_CLASSES - {name}) for name in COMMUNICATION},
        exposed_fraction=(total - point.step_time_s(frozenset())) / total,
        memory_by_stage_bytes=peaks,
        memory_bytes={name: value for name, value in memory[worst].items() if value},
        worst_stage=worst,
        host_bytes=point.host_bytes,
        nvme_bytes=point.nvme_bytes,
        layers_per_stage=layers_per_stage(mapping, facts),
        devices=cell.devices,
        microbatches=math.ceil(number(cell.microbatches)),
        tokens_per_s=run.tokens_per_step / total,
        mfu=number(training_flops(model=model, run=run)) / device_s,
        hfu=number(executed_flops(int(mapping.recompute), model=model, run=run)) / device_s,
        notes=point.notes,
    )


def peak_flops(facts: Facts) -> float:
    """Dense peak FLOP/s of one device in the run's precision: what MFU and HFU divide by."""
    return facts.fabric.device.peak(facts.run.linear_format)


def layers_per_stage(mapping: Mapping, facts: Facts) -> list[int]:
    """Layers of each pipeline stage, MTP modules included; for DualPipe, of either direction's pipeline."""
    schedule = Schedule.ONE_F_ONE_B if mapping.schedule == Schedule.DUALPIPE else int(mapping.schedule)
    plan = stages_of(mapping.pp, schedule, model=facts.model, run=facts.run)
    return [int(count) for count in plan.layers]


def _memory_by_stage(point: Point) -> list[dict[str, float]]:
    """Bytes by part, on every stage: stages of one kind still hold different numbers of microbatches."""
    cell = EveryStage(**{name: getattr(point.cell, name) for name in CellView.__dataclass_fields__})
    sides = (
        attention_memory(replace(point.attention, cell=cell)),
        expert_memory(replace(point.expert, cell=cell)),
    )
    names = list(dict.fromkeys(name for side in sides for name in side))
    return [
        {name: sum(number(side[name][stage]) for side in sides if name in side) for name in names}
        for stage in range(cell.pp)
    ]


def _slowest(point: Point) -> int:
    """The kind of stage that sets the pace."""
    return int(np.argmax([number(stage_time_s(stage, point.timing)) for stage in point.stages()]))


def _last(point: Point) -> int:
    """The kind of stage that ends last after the pipeline has drained."""
    return int(np.argmax([number(tail_s([stage])) for stage in point.stages()]))


def breakdown_s(point: Point) -> dict[str, float]:
    """Parts of the step that add up to it.

    Every activity is m times its steady seconds on the slowest stage, communication that hides only as far as it
    does not; `bubble` is the time of filling and draining beyond that; then what follows the last microbatch.

    Unit: s. Source: FORMULAS 3.5, 4.3.
    """
    stages, constants = point.stages(), point.timing
    kind = _slowest(point)
    stage, rounds = stages[kind], number(point.cell.microbatches)
    parts: dict[str, float] = {}
    for side in point.sides:
        for part in side.parts:
            seconds = part.steady * (part.forward[kind] + part.input_grad[kind] + part.weight_grad[kind])
            parts[part.name] = parts.get(part.name, 0.0) + rounds * number(seconds)
    slowest = number(stage_time_s(stage, constants))
    beyond_compute = number(stage_time_s(replace(stage, shared_load=0.0), constants) - stage.steady)
    loads = _under_compute(point, kind)
    for name, load in loads.items():
        share = beyond_compute * load / sum(loads.values()) if beyond_compute else 0.0
        parts[name] = parts.get(name, 0.0) + rounds * share
    beyond_shared = slowest - number(stage.steady) - beyond_compute
    parts["ep"] = parts.get("ep", 0.0) + rounds * beyond_shared
    last = stages[_last(point)]
    # What the last stage does once, one activity at a time.
    reduce = number(tail_s([replace(last, optimizer=0.0, gather=0.0)]))
    gather = number(tail_s([replace(last, optimizer=0.0, reduce=0.0)]))
    tail = number(tail_s([last]))
    overhead, total = number(constants.overhead_s), number(step_time_s(stages, constants))
    busy = (total - overhead) / number(constants.stretch)
    bubble = busy - rounds * slowest - tail
    parts |= {
        "stragglers": total - overhead - busy,
        "step_overhead": overhead,
        "bubble": bubble,
        "gradient_reduce": reduce,
        "optimizer": tail - reduce - gather,
        "parameter_gather": gather,
    }
    return {name: seconds for name, seconds in parts.items() if seconds}


def _under_compute(point: Point, kind: int) -> dict[str, float]:
    """Communication that runs under compute, by class, seconds per microbatch on one kind of stage."""
    loads: dict[str, float] = {}
    for side in point.sides:
        for name, values in side.under_compute.items():
            loads[name] = loads.get(name, 0.0) + number(values[kind])
    return loads


def communication_s(point: Point) -> dict[str, float]:
    """Communication by class and step, hidden or not: m times that of the slowest stage, and what is done once.

    Unit: s. Source: FORMULAS 4.2; the same sides with every overlap off.
    """
    facts = replace(point.facts, run=point.facts.run.model_copy(update={"overlap": IN_LINE}))
    cell = replace(point.cell, facts=facts)
    bare = replace(point, attention=replace(point.attention, cell=cell), expert=replace(point.expert, cell=cell))
    kind, last, rounds = _slowest(point), _last(point), number(point.cell.microbatches)
    result = dict.fromkeys(COMMUNICATION, 0.0)
    for side in bare.sides:
        for part in side.parts:
            if part.communicates:
                seconds = part.forward[kind] + part.input_grad[kind] + part.weight_grad[kind]
                result[part.name] += rounds * number(seconds)
        result["dp"] += sum(number(side.once[name][last]) for name in ("reduce", "gather") if name in side.once)
    for name, seconds in _under_compute(bare, kind).items():
        result[name] += rounds * seconds
    return result
