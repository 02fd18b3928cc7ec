"""The problem, free of any solver: facts, relations by side, and the candidate values of every choice.

Contents: Problem, problem_of, VARIANT_AXES.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from mapsearch.axes import CHOICES, Hidden, Schedule
from mapsearch.constraints import relations_of
from mapsearch.costs.placement import core_fan_outs
from mapsearch.costs.views import Facts
from mapsearch.inventories.run import Run, read_axis
from mapsearch.relation import Relation, Side
from mapsearch.solver.options import divisors, partial_fan_outs, used_fan_outs

Pipeline = tuple[int, int, int]
"""A schedule, its VPP and what overlaps, as codes."""
VARIANT_AXES = ("micro_batch", "pipeline", "recompute", "zero", "offload")
"""Dimensions of a cell's variants; `pipeline` is a schedule with its VPP and with what overlaps."""


@dataclass(frozen=True)
class Problem:
    """Everything a search needs; relations may be left out to ask what if."""

    facts: Facts
    relations: tuple[Relation, ...]
    all_devices: bool = False
    """Only mappings that use every device."""
    fewer_devices: bool = False
    """Also mappings on a part of the cluster."""
    outer_units: bool = False
    """Only mappings that use every unit of the outermost level: smaller clusters are problems of their own."""
    exposure: bool = False
    """Tables also hold what a step takes without communication."""
    offered: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Candidate values of choices in the place of the run's."""
    first_look: bool = False
    """A small part of a large space: placements that fill the levels from inside, with the least micro-batch."""
    sizes: tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]] | None = None
    """(TP, CP) and (ETP, EP) that a first look takes with all their placements instead."""

    def side(self, side: Side) -> tuple[Relation, ...]:
        """The relations of one side."""
        return tuple(relation for relation in self.relations if relation.side == side)

    def without(self, *names: str) -> Problem:
        """The same problem with some relations dropped."""
        return replace(self, relations=tuple(r for r in self.relations if r.name not in names))

    def with_facts(self, facts: Facts) -> Problem:
        """The same question about other facts; relations are made anew for them."""
        return problem_of(facts)

    @cached_property
    def used(self) -> list[tuple[int, ...]]:
        """Fan-outs to consider, all devices first."""
        fabric = self.facts.fabric
        if fabric.cores:
            return self._of_cores()
        if self.all_devices:
            return [fabric.fan_outs]
        found = partial_fan_outs(fabric.fan_outs) if self.fewer_devices else used_fan_outs(fabric.fan_outs)
        return [used for used in found if used[-1] == fabric.fan_outs[-1]] if self.outer_units else found

    def _of_cores(self) -> list[tuple[int, ...]]:
        """Fan-outs to consider in an irregular cluster."""
        fabric = self.facts.fabric
        if self.all_devices:
            return [core for core in fabric.cores if math.prod(core) == fabric.devices]
        found = core_fan_outs(fabric)
        if self.fewer_devices:
            parts = {used for core in fabric.cores for used in partial_fan_outs(core)}
            found = sorted({*found, *parts}, key=lambda used: (-math.prod(used), used))
        return found

    @cached_property
    def exposure_limited(self) -> bool:
        """Whether exposed communication is limited: then mappings that fit may be rare, or there may be none."""
        return any(relation.name.startswith("exposed") for relation in self.relations)

    @cached_property
    def whole_batches(self) -> bool:
        """Whether a relation asks for whole microbatches; explanations also ask what if none did."""
        return any(relation.name == "batch_divides" for relation in self.relations)

    @cached_property
    def data_parallel(self) -> tuple[int, ...]:
        """DP sizes that the global batch can feed; any that the devices allow where nothing asks for whole batches."""
        if self.whole_batches:
            return divisors(self.facts.run.global_batch)
        return tuple(sorted({dp for used in self.used for dp in divisors(math.prod(used))}))

    @cached_property
    def candidates(self) -> dict[str, tuple[int, ...]]:
        """Candidate values per choice: the run's lists, with values that the user fixed or allowed added."""
        run = self.facts.run
        found = {name: self.offered.get(name) or _with_wishes(run, name) for name in CHOICES}
        return {**found, "micro_batch": (min(found["micro_batch"]),)} if self.first_look else found

    @cached_property
    def overlaps(self) -> tuple[int, ...]:
        """Candidate values of what overlaps; a dense model has no expert all-to-all, so there they are one."""
        found, user = self.candidates["overlap"], self.facts.run.constraints
        if self.facts.model.moe or "overlap" in user.fix or "overlap" in user.allow:
            return found
        alike = {code & ~Hidden.EXPERT_ALL_TO_ALL: code for code in reversed(found)}
        return tuple(code for code in found if code in alike.values())

    def pipelines(self, pp: int, *, filled: bool = True) -> tuple[Pipeline, ...]:
        """Schedules with VPP and overlap that make sense on `pp` stages; one stage has nothing to schedule.

        `filled` leaves out those with more chunks than layers, for which there is no layout.
        """
        plain = [s for s in self.candidates["schedule"] if s != Schedule.INTERLEAVED]
        if pp == 1:
            return tuple((int((plain or [Schedule.ONE_F_ONE_B])[0]), 1, overlap) for overlap in self.overlaps)
        pairs = [(int(s), 1) for s in plain]
        if Schedule.INTERLEAVED in self.candidates["schedule"]:
            pairs += [(int(Schedule.INTERLEAVED), v) for v in self.candidates["vpp"] if v > 1]
        pairs = [pair for pair in pairs if not filled or self._fills(pp, *pair)]
        return tuple((*pair, overlap) for pair in pairs for overlap in self.overlaps)

    def _fills(self, pp: int, schedule: int, vpp: int) -> bool:
        """Whether every pipeline chunk gets a layer; the layout is not defined otherwise."""
        folded = schedule in (Schedule.ZB_V, Schedule.DUALPIPE_V)
        return pp * (2 if folded else vpp) <= self.facts.model.layers


def _with_wishes(run: Run, name: str) -> tuple[int, ...]:
    wishes = [run.constraints.fix[name]] if name in run.constraints.fix else list(run.constraints.allow.get(name, []))
    values = [*run.offered(name), *(read_axis(name, wish) for wish in wishes)]
    return tuple(dict.fromkeys(int(value) for value in values))


def problem_of(facts: Facts) -> Problem:
    """The problem of finding the fastest mapping under all relations. Raises InputError for unknown levels."""
    return Problem(facts, relations_of(facts))
