"""Fast prediction of cases: step time of one profile or of many at once, and peak memory.

Contents: profile_of, point_for, with_profile, point_step_s, predict_step_s, Memory, predict_memory,
limit_bytes, candidates_that_fit, Prediction, predict.

A profile may hold arrays of shape (sets, 1) where it holds numbers (`parameters.applied`): every quantity broadcasts,
so one pass through the cost functions gives the step times of all sets. Points are kept per case and mapping; only
what depends on the profile is computed again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mapsearch.calibration.measured import Measured, MemoryKind
from mapsearch.calibration.rows import Case
from mapsearch.costs.estimate import Point, point_of
from mapsearch.costs.footprint import dense_parameters, routed_parameters
from mapsearch.costs.sides import attention_times, cell_side, expert_times
from mapsearch.costs.step import step_time_s, sums, timing
from mapsearch.costs.views import Facts
from mapsearch.errors import MissingFact
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.profiles import profile_for
from mapsearch.quantity import Floats

_BY_DEVICE: dict[str, Profile | None] = {}


def profile_of(case: Case) -> Profile | None:
    """The built-in profile of the case's device; None when there is none."""
    name = case.fabric.device.name
    if name not in _BY_DEVICE:
        try:
            _BY_DEVICE[name] = profile_for(case.fabric)
        except MissingFact:
            _BY_DEVICE[name] = None
    return _BY_DEVICE[name]


def point_for(case: Case, mapping: Mapping, profile: Profile) -> Point:
    """A case's mapping laid out as views."""
    return point_of(mapping, Facts(case.model, case.run, case.fabric, profile))


def with_profile(point: Point, profile: Profile) -> Point:
    """The same point under another profile; the stages, which depend on none, are kept."""
    kinds = point.cell.kinds
    cell = replace(point.cell, facts=replace(point.facts, profile=profile))
    cell.__dict__["kinds"] = kinds
    return replace(point, attention=replace(point.attention, cell=cell), expert=replace(point.expert, cell=cell))


def point_step_s(point: Point) -> Floats:
    """Step time of a point: shape (1,), or (sets, 1) under a profile of several sets. Unit: s."""
    sides = (attention_times(point.attention), expert_times(point.expert), cell_side(point.cell))
    constants = timing(point.cell, any(side.under_compute for side in sides))
    attention, expert, own = (sums(side, point.cell) for side in sides)
    stages = [a + e + c for a, e, c in zip(attention, expert, own, strict=True)]
    return np.atleast_1d(np.asarray(step_time_s(stages, constants), dtype=np.float64))


def predict_step_s(case: Case, mapping: Mapping, profile: Profile) -> Floats:
    """Step time of one mapping of a case: one number, or one per set of its profile. Unit: s."""
    return point_step_s(point_for(case, mapping, profile)).reshape(-1)


# --- memory --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Predicted peak of one mapping."""

    by_stage: list[dict[str, float]]
    """Bytes by part, on every stage."""
    runtime_bytes: float
    fragmentation: float
    """Share by which the allocator reserves more than the tensors take."""
    built_bytes: float = 0.0
    """Weights of the largest stage while it is built, where that is before it is sharded."""

    def tensors(self, stage: int) -> float:
        """Bytes that the framework's allocator sees."""
        return sum(value for name, value in self.by_stage[stage].items() if name != "communicators")

    def outside(self, stage: int) -> float:
        """Bytes on the device that the allocator does not see: communicators and context."""
        return self.by_stage[stage].get("communicators", 0.0) + self.runtime_bytes

    def of_kind(self, stage: int, kind: MemoryKind) -> float:
        """Bytes of one stage as one kind of measurement counts them."""
        reserved = 1.0 + self.fragmentation if kind != "allocated" else 1.0
        return self.tensors(stage) * reserved + (self.outside(stage) if kind == "device" else 0.0)

    def looked_at(self, measured: Measured) -> int:
        """The fullest stage of those that were looked at."""
        stages = range(len(self.by_stage))
        chosen = {"worst": stages, "first": stages[:1], "last": stages[-1:]}[measured.memory_place]
        return max(chosen, key=lambda stage: self.of_kind(stage, measured.memory_kind))

    def like(self, measured: Measured) -> float:
        """Bytes of the kind and at the place that was measured."""
        return self.of_kind(self.looked_at(measured), measured.memory_kind)

    def reserved_over_tensors(self, measured: Measured) -> float:
        """What was measured, less what the allocator does not see, over the predicted tensors."""
        stage = self.looked_at(measured)
        outside = self.outside(stage) if measured.memory_kind == "device" else 0.0
        return ((measured.memory_bytes or 0.0) - outside) / self.tensors(stage)

    @property
    def needed(self) -> float:
        """Bytes of the worst stage, without the context: what a memory limit compares."""
        return max(self.built_bytes, *(sum(parts.values()) for parts in self.by_stage))


def predict_memory(case: Case, mapping: Mapping, profile: Profile) -> Memory:
    """Peak memory of one mapping of a case, by part and stage."""
    point = point_for(case, mapping, profile)
    built = 0.0
    if case.built_whole:
        local = zip(dense_parameters(point.attention), routed_parameters(point.expert), strict=True)
        built = max(float(dense + routed) for dense, routed in local) * case.run.state.weight_bytes
    return Memory(point.memory_by_stage_bytes, float(profile.runtime_bytes), float(profile.fragmentation), built)


def limit_bytes(case: Case, profile: Profile) -> float:
    """What a stage may need: (1 - reserve) (HBM - context). Unit: bytes. Source: F1.1."""
    return (1.0 - case.run.reserve) * (case.fabric.device.hbm_bytes - float(profile.runtime_bytes))


def candidates_that_fit(case: Case, profile: Profile) -> tuple[Mapping, ...]:
    """The mappings of a case that fit into HBM, all of them when none does: a row that ran had room."""
    if len(case.mappings) == 1:
        return case.mappings
    most = case.fabric.device.hbm_bytes - float(profile.runtime_bytes)
    fitting = tuple(m for m in case.mappings if predict_memory(case, m, profile).needed <= most)
    return fitting or case.mappings


# --- a whole case --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """Step time of a case, in seconds: one number, and the range over what the row does not say."""

    step_time_s: float
    least_s: float
    most_s: float
    mapping: Mapping
    """The mapping whose time is nearest to `step_time_s`."""
    candidates: int


def predict(case: Case, profile: Profile) -> Prediction:
    """The case's step time: the median over its mappings that fit, or the fastest where the source prints its best."""
    mappings = candidates_that_fit(case, profile)
    times = [float(predict_step_s(case, mapping, profile)[0]) for mapping in mappings]
    point = min(times) if case.tuned else float(np.median(times))
    nearest = int(np.argmin([abs(time - point) for time in times]))
    return Prediction(point, min(times), max(times), mappings[nearest], len(times))
