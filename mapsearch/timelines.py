"""The timeline of a mapping's pipeline: read the inputs, simulate, and put the result beside the estimate.

Contents: Drawn, timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mapsearch.answer import Provenance, RankedMapping
from mapsearch.api import mapping_given
from mapsearch.axes import SCHEDULE
from mapsearch.costs.estimate import Point, breakdown_s, layout_trouble, point_of
from mapsearch.errors import InputError
from mapsearch.inputs import read_for, read_inputs
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.simulating.gaps import gap_words
from mapsearch.simulating.mapping import Pipelined, pipelined
from mapsearch.simulating.orders import SOURCES
from mapsearch.simulating.simulator import OpTimes
from mapsearch.simulation import SimulatedOp, SimulatedStage, Simulation
from mapsearch.solver.provenance import provenance_of
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology


@dataclass(frozen=True)
class Drawn:
    """A simulation as a document, and as what is drawn."""

    simulation: Simulation
    pipeline: Pipelined


def timeline(
    mapping: str | Mapping | RankedMapping,
    *,
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology | Fabric = "asic",
    profile: str | Profile | None = None,
    devices: int | None = None,
    stage_times: Sequence[OpTimes] = (),
    hop_s: float = 0.0,
) -> Drawn:
    """The pipeline of a mapping run operation by operation with its own stage times, or with those that are given.

    `stage_times`: seconds of one microbatch on every device, or on all of them alike (one entry).
    Raises MapsearchError when an input cannot be read, the mapping does not fit the cluster's levels or cannot be
    estimated, or its schedule is not defined for so many stages and microbatches.
    """
    wanted = mapping_given(mapping)
    inputs = read_for(read_inputs(model, run, topology, profile, devices), wanted)
    point = point_of(wanted, inputs.facts)
    if trouble := layout_trouble(point):
        raise InputError(f"the mapping cannot be estimated: {trouble}")
    found = pipelined(point, stages=_per_stage(stage_times, point.cell.pp), hop_s=hop_s)
    about = provenance_of(inputs.named, devices)
    return Drawn(_document(point, found, hop_s, about, [*inputs.notes, *point.notes]), found)


def _per_stage(given: Sequence[OpTimes], pp: int) -> tuple[OpTimes, ...]:
    """One entry per stage. Raises InputError."""
    if len(given) not in (0, 1, pp):
        raise InputError(f"gives times of {len(given)} stages, but PP is {pp}; give 1 or {pp}", field="--stage-times")
    return tuple(given) * pp if len(given) == 1 else tuple(given)


def _document(point: Point, found: Pipelined, hop_s: float, about: Provenance, notes: list[str]) -> Simulation:
    mapping, line = point.mapping, found.timeline
    own = found.estimate_s is not None
    sizes = " ".join(f"{axis.upper()}{getattr(mapping, axis)}" for axis in ("tp", "cp", "dp", "pp", "etp", "ep", "edp"))
    return Simulation(
        mapping=sizes,
        schedule=SCHEDULE.write(int(found.schedule)),
        order_source=SOURCES[found.schedule],
        vpp=found.vpp,
        microbatches=found.microbatches,
        hop_s=hop_s,
        makespan_s=line.makespan_s,
        longest_device_s=line.span_s,
        simulated_s=found.simulated_s,
        closed_form_s=found.closed_form_s,
        gap=gap_words(found.schedule, found.stages),
        least_s=found.least_s,
        estimate_s=found.estimate_s,
        estimate_bubble_s=breakdown_s(point).get("bubble", 0.0) if own else None,
        step_time_s=point.step_time_s() if own else None,
        stages=_stages(found),
        ops=_ops(found),
        provenance=about,
        notes=notes,
    )


def _stages(found: Pipelined) -> list[SimulatedStage]:
    line = found.timeline
    rows = zip(found.stages, line.busy_s, line.idle_s, line.peaks, found.closed_in_flight, strict=True)
    return [
        SimulatedStage(
            stage=stage,
            forward_s=times.forward_s,
            input_grad_s=times.input_grad_s,
            weight_grad_s=times.weight_grad_s,
            busy_s=busy,
            idle_s=idle,
            peak_microbatches=peak,
            closed_form_microbatches=held,
        )
        for stage, (times, busy, idle, peak, held) in enumerate(rows)
    ]


def _ops(found: Pipelined) -> list[SimulatedOp]:
    return [
        SimulatedOp(
            stage=op.device,
            chunk=op.chunk,
            microbatch=op.microbatch,
            kind=op.kind.value,
            start_s=op.start_s,
            end_s=op.end_s,
        )
        for op in found.timeline.ops
    ]
