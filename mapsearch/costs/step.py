"""From quantities to a step: times and memory per stage, and how the two grids add up.

Contents: Part, Transfer, StageSum, Side, lean_sum, sums, share, Timing, hosted, timing, stage_time_s, stage_ramp_s,
weighed, weighed_timing, tail_s, step_time_s.

Each grid's option contributes sums per kind of stage. The composition of the two grids uses only + - * and
`maximum`, so the same lines evaluate numbers, arrays of pairs, intervals (bounds) and solver expressions.
Formulation: docs/explanation/formulation.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mapsearch.arrays import PLAIN
from mapsearch.axes import Hidden
from mapsearch.costs import pipeline
from mapsearch.costs.views import CellView, Facts
from mapsearch.quantity import Floats, Num, added, less, maximum, positive_part, scaled

COMMUNICATION = ("tp", "cp", "ep", "dp", "pp")
"""Classes of communication that can be exposed."""
ALL_CLASSES = frozenset(COMMUNICATION)


# Parts and sums are made by the thousand, and frozen ones take three times as long to make; nothing changes them.
@dataclass
class Part:
    """Seconds of one activity, one microbatch, on each kind of stage."""

    name: str
    forward: list[Num]
    input_grad: list[Num]
    weight_grad: list[Num]
    steady: Num = 1.0
    """Share of it that is exposed in the steady phase (ramps always pay in full)."""

    @cached_property
    def steady_s(self) -> list[Num]:
        """Exposed seconds of one microbatch in the steady phase on each kind of stage, forward and backward."""
        times = zip(self.forward, self.input_grad, self.weight_grad, strict=True)
        return [self.steady * lean_sum(list(three)) for three in times]

    @property
    def communicates(self) -> bool:
        """True for a class of communication, False for compute."""
        return self.name in ALL_CLASSES


@dataclass(slots=True)
class Transfer:
    """Communication of one layer and microbatch before anything hides it, on each kind of stage."""

    name: str
    counts: list[Num]
    """Layers that communicate so."""
    forward: Num
    backward: Num
    repeat: Num
    """How often the backward pass repeats the forward."""

    def total_s(self, kind: int) -> Num:
        """Seconds of one microbatch on one kind of stage."""
        count = self.counts[kind]
        return count * self.forward + count * (self.backward + self.forward * self.repeat)


@dataclass(slots=True)
class StageSum:
    """One side's sums on one kind of stage, in seconds; the composition adds the sides."""

    steady: Num = 0.0
    """One microbatch, forward and backward, in the steady phase."""
    ramp_forward: Num = 0.0
    """One microbatch's forward as the ramps see it, nothing hidden."""
    ramp_input_grad: Num = 0.0
    ramp_weight_grad: Num = 0.0
    load: Num = 0.0
    """Communication that another microbatch's compute hides: exposed where it exceeds it, and in the ramps."""
    stream: Num = 0.0
    """Parameters and gradients that move under the same microbatch's compute: exposed where they exceed it."""
    shared_load: Num = 0.0
    """Communication that runs under the shared expert only."""
    shared_window: Num = 0.0
    window: Num = 0.0
    """Compute of one microbatch that can hide `load`."""
    reduce: Num = 0.0
    """Gradient reduction, once per step."""
    reduce_window: Num = 0.0
    gather: Num = 0.0
    """Parameter gathering, once per step."""
    gather_window: Num = 0.0
    optimizer: Num = 0.0
    launch: Num = 0.0
    """Host time to launch the kernels of one microbatch, forward and backward: a stage is never faster."""
    launch_ramp_forward: Num = 0.0
    launch_ramp_backward: Num = 0.0

    def __add__(self, other: StageSum) -> StageSum:
        return StageSum(
            added(self.steady, other.steady),
            added(self.ramp_forward, other.ramp_forward),
            added(self.ramp_input_grad, other.ramp_input_grad),
            added(self.ramp_weight_grad, other.ramp_weight_grad),
            added(self.load, other.load),
            added(self.stream, other.stream),
            added(self.shared_load, other.shared_load),
            added(self.shared_window, other.shared_window),
            added(self.window, other.window),
            added(self.reduce, other.reduce),
            added(self.reduce_window, other.reduce_window),
            added(self.gather, other.gather),
            added(self.gather_window, other.gather_window),
            added(self.optimizer, other.optimizer),
            added(self.launch, other.launch),
            added(self.launch_ramp_forward, other.launch_ramp_forward),
            added(self.launch_ramp_backward, other.launch_ramp_backward),
        )

    def each(self, change: Callable[[Num], Num]) -> StageSum:
        """The same sums, every one of them changed; a plain 0, which most of them are, stays one, as in `added`."""
        values = [getattr(self, name) for name in FIELDS]
        return StageSum(*[v if type(v) is float and v == 0.0 else change(v) for v in values])


FIELDS = tuple(StageSum.__dataclass_fields__)


@dataclass(frozen=True)
class Side:
    """What one grid's options (or the cell) add to a step."""

    parts: list[Part]
    once: dict[str, list[Num]] = field(default_factory=dict)
    """reduce, gather, optimizer: seconds once per step and kind of stage."""
    under_compute: dict[str, list[Num]] = field(default_factory=dict)
    """Communication by class that runs under compute, seconds per microbatch and kind of stage."""
    under_shared: list[Num] | None = None
    transfers: list[Transfer] = field(default_factory=list)
    """The communication of `parts` and of what hides, as it would be in line; none of what is done once or streams."""
    launches: tuple[list[Num], list[Num]] | None = None
    """Host seconds to launch one microbatch's kernels on each kind of stage, forward and backward."""
    memory: dict[str, list[Num]] = field(default_factory=dict)
    """HBM bytes by part and kind of stage."""
    host: list[Num] = field(default_factory=list)
    """Host memory bytes per kind of stage; none when nothing may be offloaded to it."""
    nvme: list[Num] = field(default_factory=list)
    """NVMe bytes per kind of stage; none when nothing may be offloaded to it."""

    @cached_property
    def windows(self) -> list[tuple[Num, Num]]:
        """Compute of one microbatch on each kind of stage: forward, backward."""
        compute = [part for part in self.parts if not part.communicates]
        return [
            (
                lean_sum([part.forward[kind] for part in compute]),
                lean_sum([v for part in compute for v in (part.input_grad[kind], part.weight_grad[kind])]),
            )
            for kind in range(len(self.parts[0].forward))
        ]

    @cached_property
    def classes(self) -> frozenset[str]:
        """Classes of communication that this side has seconds of, as far as single numbers tell."""
        found: list[tuple[str, list[Num]]]
        found = [(part.name, [*part.forward, *part.input_grad]) for part in self.parts if part.communicates]
        found += [("dp", values) for name, values in self.once.items() if name != "optimizer"]
        found += [*self.under_compute.items(), *([("ep", self.under_shared)] if self.under_shared else [])]
        return frozenset(name for name, values in found if any(type(v) not in PLAIN or v for v in values))

    def memory_bytes(self, kind: int) -> Num:
        """All bytes of this side on one kind of stage."""
        return lean_sum([values[kind] for values in self.memory.values()])


def lean_sum(values: list[Num]) -> Num:
    """The sum of broadcasting arrays, added in the order that keeps intermediate results small."""
    total = 0.0
    for value in values:
        if type(value) not in PLAIN:
            break
        total = total + value
    else:
        return total
    by_shape: dict[tuple[int, ...], Floats] = {}
    for value in values:
        array = np.asarray(value, dtype=float)
        by_shape[array.shape] = by_shape[array.shape] + array if array.shape in by_shape else array
    left = list(by_shape.values())
    while len(left) > 1:
        pairs = [(i, j) for j in range(len(left)) for i in range(j)]
        i, j = min(pairs, key=lambda p: _joint_size(left[p[0]], left[p[1]]))
        left = [value for k, value in enumerate(left) if k not in (i, j)] + [left[i] + left[j]]
    return left[0] if left else 0.0


def _joint_size(first: Floats, second: Floats) -> int:
    return math.prod(np.broadcast_shapes(first.shape, second.shape))


def spread(counts: Iterable[Num], value: Num) -> list[Num]:
    """A per-layer value on each kind of stage: times its layers."""
    return [count * value for count in counts]


def sums(side: Side, cell: CellView, classes: frozenset[str] = ALL_CLASSES) -> list[StageSum]:
    """A side's sums per kind of stage, with only the named classes of communication."""
    overlap, gathers = cell.facts.run.overlap, cell.hides(Hidden.PARAM_GATHER)
    rate = 1.0 / cell.facts.profile.overlap_slowdown
    counted = [part for part in side.parts if not part.communicates or part.name in classes]
    dp = 1.0 if "dp" in classes else 0.0
    result = []
    for kind, (forward, backward) in enumerate(side.windows):
        load, stream = (
            side.under_compute[name][kind] if name in side.under_compute and name in classes else 0.0
            for name in ("ep", "dp")
        )
        shared = side.under_shared[kind] if side.under_shared is not None and "ep" in classes else 0.0
        once = {name: values[kind] for name, values in side.once.items()}
        ahead, back = (values[kind] for values in side.launches) if side.launches else (0.0, 0.0)
        result.append(
            StageSum(
                steady=lean_sum([part.steady_s[kind] for part in counted]),
                # What hides in the steady phase is paid in full while the pipeline fills and drains.
                ramp_forward=lean_sum([part.forward[kind] for part in counted]),
                ramp_input_grad=lean_sum([*(part.input_grad[kind] for part in counted), load, shared]),
                ramp_weight_grad=lean_sum([part.weight_grad[kind] for part in counted]),
                load=load * rate,
                stream=stream * rate,
                shared_load=shared * rate,
                shared_window=_shared_window(side, kind) if overlap.shared_expert else 0.0,
                window=forward + backward,
                reduce=dp * once.get("reduce", 0.0),
                reduce_window=backward if overlap.grad_reduce else 0.0,
                gather=dp * once.get("gather", 0.0),
                gather_window=share(forward, gathers),
                optimizer=once.get("optimizer", 0.0),
                launch=ahead + back,
                launch_ramp_forward=ahead,
                launch_ramp_backward=back,
            )
        )
    return result


def share(value: Num, part: Num) -> Num:
    """A value times a part of it that is often just all or nothing."""
    if type(part) in PLAIN and part in (0.0, 1.0):
        return value if part else 0.0
    return value * part


def _shared_window(side: Side, kind: int) -> Num:
    for part in side.parts:
        if part.name == "shared_expert":
            return part.forward[kind] + part.input_grad[kind] + part.weight_grad[kind]
    return 0.0


@dataclass(frozen=True)
class Timing:
    """Cell constants of the pipeline: T = (m - delta) max_r t_r + kappa sum_r y_r + tail."""

    steady_rounds: Num
    ramp_scale: Num
    ramp_weights: tuple[Num, Num, Num]
    """c_F, c_B and c_W: y_r = c_F F + c_B B + c_W W."""
    counts: list[Num]
    stretch: Num
    """Factor on the whole step for stragglers, at least 1."""
    overhead_s: Num
    """Seconds per step that no part accounts for."""
    coupled: bool
    """True when some communication hides behind the other side's compute."""
    shared_coupled: bool
    hosted: bool
    """True when the host launches kernels one by one, so that it can set the pace."""


def hosted(facts: Facts) -> bool:
    """True when the host launches kernels one by one: the profile says how long it takes, and not all are captured."""
    return bool(np.any(np.asarray(facts.profile.host_launch))) and "all" not in facts.run.graphs


def straggler_stretch(cell: CellView) -> Num:
    """How much longer a step takes because all devices wait for the slowest: 1 + straggle log2(devices / domain).

    Unit: share. Source: calibrated (docs/explanation/accuracy.md); every doubling of the devices beyond one
    high-bandwidth domain adds the same share. Ignores: how often and how hard devices differ.
    """
    fabric = cell.facts.fabric
    domain = math.prod(level.size for level in fabric.levels[: fabric.domain_levels])
    doublings = max(0.0, math.log2(cell.devices / domain))
    return 1.0 + cell.facts.profile.straggle * doublings


def timing(cell: CellView, coupled: bool) -> Timing:
    """The pipeline constants of a cell. Source: FORMULAS 3.5."""
    return Timing(
        steady_rounds=cell.microbatches - pipeline.steady_correction(cell.schedule, cell.vpp),
        ramp_scale=pipeline.ramp_scale(cell.schedule, cell.pp, cell.vpp),
        ramp_weights=tuple(pipeline.ramp_weights(cell.schedule)),
        counts=[kind.count for kind in cell.kinds],
        stretch=straggler_stretch(cell),
        overhead_s=cell.facts.profile.step_overhead,
        coupled=coupled,
        shared_coupled=cell.facts.run.overlap.shared_expert,
        hosted=hosted(cell.facts),
    )


def stage_time_s(stage: StageSum, constants: Timing) -> Num:
    """One microbatch on one kind of stage in the steady phase, hidden communication taken off.

    Unit: s. Source: FORMULAS 4.3; loads that hide behind compute share one resource, so they add first. The queue lets
    the host run ahead within a stage, so whole stages are compared: the longer of running and launching (F2.2).
    """
    time = stage.steady
    if constants.coupled:
        time = added(time, positive_part(less(added(stage.load, stage.stream), stage.window)))
    if constants.shared_coupled:
        time = added(time, positive_part(less(stage.shared_load, stage.shared_window)))
    if constants.hosted:
        time = maximum(time, stage.launch)
    return time


def stage_ramp_s(stage: StageSum, constants: Timing) -> Num:
    """One microbatch of one kind of stage as the ramps weigh it: c_F F + c_B B + c_W W, and exposed streams.

    Unit: s. Source: FORMULAS 3.5. Streams hide behind their own microbatch, so also while the pipeline fills.
    """
    c_forward, c_input, c_weight = constants.ramp_weights
    ramp = added(scaled(stage.ramp_forward, c_forward), scaled(stage.ramp_input_grad, c_input))
    ramp = added(ramp, scaled(stage.ramp_weight_grad, c_weight))
    if constants.coupled:
        ramp = added(ramp, positive_part(less(stage.stream, stage.window)))
    if constants.hosted:
        launch = added(scaled(stage.launch_ramp_forward, c_forward), scaled(stage.launch_ramp_backward, c_input))
        ramp = maximum(ramp, launch)
    return ramp


def weighed(stage: StageSum, constants: Timing) -> StageSum:
    """One side's sums as short as the composition allows: what always meets is added up, what is 0 is a plain 0.

    The ramp's parts are weighed into one, and each window is taken off what it hides. Such sums are composed with the
    constants of `weighed_timing`.
    """
    alone = replace(constants, coupled=False, hosted=False)
    c_forward, c_input, _ = constants.ramp_weights
    launch = stage.launch_ramp_forward * c_forward + stage.launch_ramp_backward * c_input
    short = StageSum(
        steady=stage.steady,
        ramp_forward=stage_ramp_s(stage, alone),
        load=stage.load,
        stream=less(stage.stream, stage.window),
        shared_load=less(stage.shared_load, stage.shared_window),
        reduce=less(stage.reduce, stage.reduce_window),
        gather=less(stage.gather, stage.gather_window),
        optimizer=stage.optimizer,
        launch=stage.launch,
        launch_ramp_forward=launch,
    )
    return short.each(lambda value: value if np.any(value) else 0.0)


def weighed_timing(constants: Timing) -> Timing:
    """The constants with which weighed sums are composed: their ramps are one number that counts once."""
    return replace(constants, ramp_weights=(1.0, 0.0, 0.0))


def tail_s(stages: list[StageSum]) -> Num:
    """What follows the last microbatch: exposed gradient reduction, optimizer, exposed parameter gathering.

    Unit: s. Source: FORMULAS 4.3. The slowest stage counts. Ignores: the last and first bucket.
    """
    terms = [
        added(
            added(positive_part(less(stage.reduce, stage.reduce_window)), stage.optimizer),
            positive_part(less(stage.gather, stage.gather_window)),
        )
        for stage in stages
    ]
    return maximum(terms[0], *terms[1:])


def step_time_s(stages: list[StageSum], constants: Timing) -> Num:
    """Step time from the summed sides: stretch ((m - delta) max_r t_r + kappa sum_r y_r + tail) + overhead.

    Unit: s. Source: FORMULAS 3.5 (unequal stages).
    """
    times = [stage_time_s(stage, constants) for stage in stages]
    slowest = maximum(times[0], *times[1:])
    ramp = scaled(stage_ramp_s(stages[0], constants), constants.counts[0])
    for stage, count in zip(stages[1:], constants.counts[1:], strict=True):
        ramp = added(ramp, scaled(stage_ramp_s(stage, constants), count))
    busy = added(added(slowest * constants.steady_rounds, ramp * constants.ramp_scale), tail_s(stages))
    return added(scaled(busy, constants.stretch), constants.overhead_s)
