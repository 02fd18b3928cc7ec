"""One mapping, costed by the functions that the search tabulates: time, memory and utilisation in parts.

Contents: EveryStage, Point, point_of, layout_trouble, Estimate, estimate, estimate_point, peak_flops,
layers_per_stage, breakdown_s, communication_s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from mapsearch.arrays import PLAIN, remembered
from mapsearch.axes import SIZES, Schedule
from mapsearch.costs.flops import step_flops
from mapsearch.costs.footprint import (
    attention_host,
    attention_memory,
    attention_nvme,
    expert_host,
    expert_memory,
    expert_nvme,
)
from mapsearch.costs.placement import rows_of
from mapsearch.costs.sides import attention_times, cell_side, expert_times
from mapsearch.costs.stages import Cut, StageKinds, recomputing, recomputing_shares, stages_of
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
from mapsearch.quantity import Floats, Num


class EveryStage(CellView):
    """A cell view whose one kind of stage stands for all stages in order: its values are arrays over them."""

    @cached_property
    def kinds(self) -> list[StageKinds]:
        """One record; plain numbers when there is one stage."""
        return [_stages(self.facts, self.pp, one(self.schedule), self.layout, self.recompute_stages)]


@remembered()
def _stages(facts: Facts, pp: int, schedule: int, cut: Cut, first: int) -> StageKinds:
    plan = stages_of(pp, schedule, cut, model=facts.model, run=facts.run)
    ends = plan.embedding, plan.output
    columns = (plan.dense, plan.moe, *ends, (1,) * pp, tuple(range(pp)), recomputing(pp, first))
    if pp == 1:
        return StageKinds(*(float(column[0]) for column in columns))
    return StageKinds(*(np.array(column, dtype=np.float64) for column in columns))


def one(value: Num) -> int:
    """The single whole number of a one-mapping view."""
    return round(number(value))


def number(value: Num) -> float:
    """The single number of a one-mapping view."""
    return float(value) if type(value) in PLAIN else float(np.asarray(value).reshape(-1)[0])


@dataclass(frozen=True)
class Point:
    """One mapping as views of plain numbers, and the sides that it adds up to."""

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
        """Attention grid, expert grid, and the cell itself: seconds, and what is offloaded."""
        attention, expert = attention_times(self.attention), expert_times(self.expert)
        if one(self.cell.offload):
            attention = replace(attention, host=attention_host(self.attention), nvme=attention_nvme(self.attention))
            expert = replace(expert, host=expert_host(self.expert), nvme=expert_nvme(self.expert))
        return attention, expert, cell_side(self.cell)

    @cached_property
    def timing(self) -> Timing:
        """The pipeline constants."""
        return timing(self.cell, any(side.under_compute for side in self.sides))

    @cached_property
    def _found(self) -> dict[Any, Any]:
        """Sums and step times by classes of communication, computed once."""
        return {}

    def _once(self, key: Any, compute: Callable[[], Any]) -> Any:
        if key not in self._found:
            self._found[key] = compute()
        return self._found[key]

    def stages(self, classes: frozenset[str] = ALL_CLASSES) -> list[StageSum]:
        """The summed sides on each kind of stage, with only the named classes of communication."""
        here = [classes & side.classes for side in self.sides]

        def summed() -> list[StageSum]:
            attention, expert, own = (self._summed(place, classes) for place, classes in enumerate(here))
            return [a + e + c for a, e, c in zip(attention, expert, own, strict=True)]

        return self._once(("stages", *here), summed)  # type: ignore[no-any-return]

    def _summed(self, place: int, classes: frozenset[str]) -> list[StageSum]:
        side = self.sides[place]
        return self._once((place, classes), lambda: sums(side, self.cell, classes))  # type: ignore[no-any-return]

    def step_time_s(self, classes: frozenset[str] = ALL_CLASSES) -> float:
        """Step time with only the named classes of communication. Unit: s."""
        here = classes & self.classes
        return self._once(here, lambda: number(step_time_s(self.stages(here), self.timing)))  # type: ignore[no-any-return]

    @cached_property
    def slowest(self) -> int:
        """The kind of stage that sets the pace."""
        return int(np.argmax([number(stage_time_s(stage, self.timing)) for stage in self.stages()]))

    @cached_property
    def last(self) -> int:
        """The kind of stage that ends last after the pipeline has drained."""
        return int(np.argmax([number(tail_s([stage])) for stage in self.stages()]))

    @cached_property
    def classes(self) -> frozenset[str]:
        """Classes of communication that take time."""
        return frozenset().union(*(side.classes for side in self.sides))

    @cached_property
    def memory(self) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """HBM bytes of either grid by part, each an array over the stages of the pipeline in order.

        Stages of one kind still hold different numbers of microbatches.
        """
        cell = EveryStage(**{name: getattr(self.cell, name) for name in CellView.__dataclass_fields__})
        sides = attention_memory(replace(self.attention, cell=cell)), expert_memory(replace(self.expert, cell=cell))
        attention, expert = ({name: _spread(parts[0], cell.pp) for name, parts in side.items()} for side in sides)
        return attention, expert

    @cached_property
    def memory_by_stage_bytes(self) -> list[dict[str, float]]:
        """HBM bytes by part, on every stage."""
        attention, expert = self.memory
        joined = {name: values + expert[name] if name in expert else values for name, values in attention.items()}
        joined |= {name: values for name, values in expert.items() if name not in attention}
        columns = [values.tolist() for values in joined.values()]
        return [dict(zip(joined, row, strict=True)) for row in zip(*columns, strict=True)]

    @cached_property
    def kind_memory_bytes(self) -> list[float]:
        """Peak bytes on each kind of stage: those of its first one, which holds most microbatches."""
        attention, expert = (reduce(add, side.values()) for side in self.memory)
        return [number((attention + expert)[one(kind.stage)]) for kind in self.cell.kinds]

    @property
    def host_bytes(self) -> float:
        """Host memory bytes of the stage that keeps most there."""
        return _most([side.host for side in self.sides if side.host])

    @property
    def nvme_bytes(self) -> float:
        """NVMe bytes of the stage that keeps most there."""
        return _most([side.nvme for side in self.sides if side.nvme])


def _spread(value: Num, stages: int) -> Floats:
    """A value on each of the stages, whether it differs between them or not."""
    if type(value) in PLAIN:
        return np.full(stages, value, dtype=np.float64)
    return value if value.shape == (stages,) else np.broadcast_to(value, (stages,))


def _most(sides: list[list[Num]]) -> float:
    """The largest sum over the sides of any kind of stage; 0 without a side."""
    return max((sum(map(number, values)) for values in zip(*sides, strict=True)), default=0.0)


def point_of(mapping: Mapping, facts: Facts) -> Point:
    """A mapping as views of plain numbers. Raises InputError when it does not fit the fabric (see `rows_of`)."""
    rows = rows_of(mapping, facts.fabric)
    row = {axis: np.array(rows.by_axis[axis]) for axis in SIZES}
    cell = CellView(
        facts=facts,
        used=rows.used,
        pp_row=rows.by_axis["pp"],
        dp=mapping.dp,
        micro_batch=mapping.micro_batch,
        schedule=int(mapping.schedule),
        vpp=mapping.vpp,
        recompute=int(mapping.recompute),
        zero=mapping.zero,
        offload=int(mapping.offload),
        overlap=facts.run.overlap.codes[0] if mapping.overlap is None else int(mapping.overlap),
        layout=mapping.cut,
        recompute_stages=mapping.recomputing,
    )
    tp, cp, etp, ep, edp = mapping.tp, mapping.cp, mapping.etp, mapping.ep, mapping.edp
    kind, dispatcher = int(mapping.cp_kind), int(mapping.dispatcher)
    notes = ("the mapping gives no full placement: axes fill the levels in the usual order",) if rows.chosen else ()
    return Point(
        mapping=mapping,
        rows=rows.by_axis,
        attention=AttentionView(cell, tp, cp, row["tp"], row["cp"], row["dp"], kind),
        expert=ExpertView(cell, etp, ep, edp, row["etp"], row["ep"], row["edp"], dispatcher),
        notes=notes,
    )


def layout_trouble(point: Point) -> str:
    """Why the mapping has no layout of layers on stages and so no estimate; empty when it has one."""
    try:
        layers_per_stage(point.mapping, point.facts)
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
    memory = point.memory_by_stage_bytes
    peaks = [sum(parts.values()) for parts in memory]
    worst = int(np.argmax(peaks))
    device_s = total * cell.devices * peak_flops(facts)
    cut = cell.pp, one(cell.schedule), cell.layout
    shares = recomputing_shares(*cut, cell.recompute_stages, model=model, run=run)
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
        mfu=step_flops(model, run, None) / device_s,
        hfu=step_flops(model, run, int(mapping.recompute), shares) / device_s,
        notes=point.notes,
    )


def peak_flops(facts: Facts) -> float:
    """Dense peak FLOP/s of one device in the run's precision: what MFU and HFU divide by."""
    return facts.fabric.device.peak(facts.run.linear_format)


def layers_per_stage(mapping: Mapping, facts: Facts) -> list[int]:
    """Layers of each pipeline stage, MTP modules included; for DualPipe, of either direction's pipeline."""
    return layers_of(mapping.pp, int(mapping.schedule), mapping.cut, facts)


def layers_of(pp: int, schedule: int, cut: Cut, facts: Facts) -> list[int]:
    """The same by axes of a mapping."""
    straight = Schedule.ONE_F_ONE_B if schedule == Schedule.DUALPIPE else schedule
    return list(map(int, stages_of(pp, straight, cut, model=facts.model, run=facts.run).layers))


def breakdown_s(point: Point) -> dict[str, float]:
    """Parts of the step that add up to it.

    Every activity is m times its steady seconds on the slowest stage, communication that hides only as far as it
    does not; `bubble` is the time of filling and draining beyond that; then what follows the last microbatch.

    Unit: s. Source: FORMULAS 3.5, 4.3.
    """
    stages, constants = point.stages(), point.timing
    kind = point.slowest
    stage, rounds = stages[kind], number(point.cell.microbatches)
    parts: dict[str, float] = {}
    for side in point.sides:
        for part in side.parts:
            parts[part.name] = parts.get(part.name, 0.0) + rounds * number(part.steady_s[kind])
    slowest = number(stage_time_s(stage, constants))
    unhosted = replace(constants, hosted=False)
    running = number(stage_time_s(stage, unhosted))
    beyond_compute = number(stage_time_s(replace(stage, shared_load=0.0), unhosted) - stage.steady)
    loads = _under_compute(point, kind)
    for name, load in loads.items():
        share = beyond_compute * load / sum(loads.values()) if beyond_compute else 0.0
        parts[name] = parts.get(name, 0.0) + rounds * share
    beyond_shared = running - number(stage.steady) - beyond_compute
    parts["ep"] = parts.get("ep", 0.0) + rounds * beyond_shared
    parts["host"] = rounds * (slowest - running)
    last = stages[point.last]
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

    Unit: s. Source: FORMULAS 4.2; the transfers before anything hides them.
    """
    kind, last, rounds = point.slowest, point.last, number(point.cell.microbatches)
    result = dict.fromkeys(COMMUNICATION, 0.0)
    for side in point.sides:
        for transfer in side.transfers:
            result[transfer.name] += rounds * number(transfer.total_s(kind))
        result["dp"] += sum(number(side.once[name][last]) for name in ("reduce", "gather") if name in side.once)
    streams = (side.under_compute["dp"][kind] for side in point.sides if "dp" in side.under_compute)
    for seconds in streams:
        result["dp"] += rounds * number(seconds)
    return result
