"""Both sides of a search of two pools: sizes that either may have, kept training searches, and ways to serve.

Contents: Sides, Shares, Limits, sends_less, narrower, Trained, Answered, Trainer, within, shares_of, Served, served,
Choice, Choices.

They hold what does not depend on versions, queue or objective, so that the points of a front share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mapsearch.costs import transfer
from mapsearch.costs.estimate import layers_of
from mapsearch.costs.pacing import Pace
from mapsearch.costs.serving import ServingFacts
from mapsearch.costs.stages import Cut
from mapsearch.costs.views import CellView, Facts
from mapsearch.inventories.mapping import Mapping
from mapsearch.pooling.objective import Objective
from mapsearch.pooling.problem import Part, Pools, pace_of, paced, working
from mapsearch.pooling.replicas import Offer
from mapsearch.quantity import Floats, Num
from mapsearch.relation import Relation
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import SLACK, search
from mapsearch.topologies import fabric_of
from mapsearch.topologies.scale import levels_form, scaled
from mapsearch.topologies.spec import Topology


@dataclass(frozen=True)
class Sides:
    """Sizes of both pools, in whole outer units.

    Of one cluster they share the units, and some may stay unused. Clusters of their own are used as a whole, or in
    parts where unused devices are worth something (`parted`). Where units are unlike, or a cluster can be read in
    several ways, each division is a pair of sides that belong together (`fixed`).
    """

    pools: Pools
    parted: bool = False

    @cached_property
    def whole(self) -> list[Part]:
        """Every division, all devices used."""
        return self.pools.parts()

    @property
    def fixed(self) -> bool:
        """Whether a training side goes with one rollout side alone."""
        return bool(self.pools.unlike) or (self.pools.own is not None and len(self.whole) > 1)

    @cached_property
    def training(self) -> list[Part]:
        """Every size of the training pool, beside the largest rollout pool that it leaves room for."""
        pools = self.pools
        if pools.own is None or not self.parted or self.fixed:
            return self.whole
        return [*self._smaller(pools.topology, self.whole[0]), *self.whole]

    def _smaller(self, topology: Topology, whole: Part) -> Iterator[Part]:
        form, unit = _units_of(topology)
        for units in range(1, form.levels[-1].size if unit else 0):
            part = scaled(form, units * unit)
            yield replace(whole, units=units, topology=part, training=replace(whole.training, fabric=fabric_of(part)))

    @cached_property
    def serving(self) -> list[tuple[int, ServingFacts]]:
        """Every size of the rollout pool: units (0: its own whole cluster) and facts; where sides are fixed, the place
        of the training side among `training` in the place of units."""
        pools = self.pools
        if self.fixed:
            return [(place, part.serving) for place, part in enumerate(self.whole)]
        if pools.own is None:
            return [(pools.units - part.units, part.serving) for part in self.whole]
        whole = pools.part(0).serving
        form, unit = _units_of(pools.own)
        sizes = range(1, form.levels[-1].size if unit and self.parted else 0)
        return [*((units, replace(whole, fabric=fabric_of(scaled(form, units * unit)))) for units in sizes), (0, whole)]

    def beside(self, part: Part, units: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the sizes of `serving`, by their first entry, a training pool leaves room for."""
        if self.fixed:
            return np.asarray(units == self._places[part.key])
        return np.asarray(units <= (self.pools.units - part.units if self.pools.own is None else math.inf))

    @cached_property
    def _places(self) -> dict[object, int]:
        return {part.key: place for place, part in enumerate(self.whole)}

    def problem(self, part: Part) -> Problem:
        """The training problem of a size; mappings that are also those of a smaller pool are left to it."""
        problem, level = problem_of(part.training), part.training.fabric.levels[-1]
        others = (self.pools.own is None or part.units > 0) and not self.fixed
        # Behind a switch a mapping on fewer units is the same one as on a pool of just those units.
        same = level.kind == "switch" and len(part.training.fabric.levels) == len(self.pools.topology.levels)
        return replace(problem, outer_units=True) if others and same and not part.training.fabric.cores else problem


def _units_of(topology: Topology) -> tuple[Topology, int]:
    """A cluster as levels, and the devices of one outer unit; 0 where it is only used as a whole."""
    if topology.down or topology.other_devices:
        return topology, 0
    form = levels_form(topology)
    return form, math.prod(level.size for level in form.levels[:-1])


Shares = tuple[float, ...]
"""Of the weights, what the busiest rank of a mapping sends, counted in every way that publishing may count them."""
Limits = tuple[Shares, ...]
"""Shares of mappings; what sends no less than one of them in every way of counting is not asked for."""


def sends_less(shares: Shares, limits: Limits) -> bool:
    """Whether some share is below that of each limit."""
    return all(any(mine < other * (1.0 - SLACK) for mine, other in zip(shares, limit, strict=True)) for limit in limits)


def narrower(inner: Limits, outer: Limits) -> bool:
    """Whether all that the inner limits leave is left by the outer ones."""
    return all(any(all(x <= y for x, y in zip(mine, other, strict=True)) for mine in inner) for other in outer)


class Trained(NamedTuple):
    """A training mapping."""

    train_s: float
    mapping: Mapping
    shares: Shares
    """Beside its step all that another pool sees of it."""


class Answered(NamedTuple):
    """What a training search says."""

    trained: Trained | None
    complete: bool
    bound_s: float
    """No mapping of those that were asked for is faster."""


@dataclass
class _Known:
    """What earlier searches of one size tell: mappings, and what there is none of."""

    seen: list[Trained]
    fastest: list[tuple[Limits, float, Trained | None]]
    """Limits of the shares, cutoff, and the fastest mapping within both."""
    nothing: list[Limits]
    """Within these no mapping fits, however slow."""


class Trainer:
    """Training searches by size; a question that an earlier one answers is not searched again."""

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        self.mappings = 0
        """In the spaces that were searched."""
        self.searches = 0
        self._known: dict[object, _Known] = {}
        self._copies = (1, *sorted({*sides.pools.rollout.serving.dp} - {1}))

    def seen(self, part: Part) -> list[Trained]:
        """Mappings that searches of this training side have found."""
        return self._known[part.trained].seen if part.trained in self._known else []

    def least_s(self, part: Part) -> float:
        """No mapping of this training side is faster."""
        told = self._known[part.trained].fastest if part.trained in self._known else []
        return max([part.floor_s, *(found.train_s if found else cutoff_s for limits, cutoff_s, found in told
                                    if not limits)])  # fmt: skip

    def some(self, part: Part, limits: Limits, deadline: float | None) -> Answered:
        """Some mapping within the limits, soon; complete when there is none at all."""
        if self._nothing(part, limits):
            return Answered(None, True, math.inf)
        answered = self._searched(part, limits, math.inf, deadline, first=True)
        if answered.trained is None and answered.complete:
            self._known[part.trained].nothing.append(limits)
        return answered

    def fastest(self, part: Part, limits: Limits, cutoff_s: float, deadline: float | None) -> Answered:
        """The fastest mapping within the limits, if it is within the cutoff."""
        if self._nothing(part, limits):
            return Answered(None, True, math.inf)
        known = self._known.get(part.trained)
        for told, within_s, found in known.fastest if known else ():
            if not narrower(limits, told):
                continue
            if found is None and cutoff_s <= within_s:
                return Answered(None, True, within_s)
            if found is not None and sends_less(found.shares, limits):
                return Answered(found if found.train_s <= cutoff_s else None, True, found.train_s)
        answered = self._searched(part, limits, cutoff_s, deadline, first=False)
        if answered.complete:
            self._known[part.trained].fastest.append((limits, cutoff_s, answered.trained))
        return answered

    def _nothing(self, part: Part, limits: Limits) -> bool:
        known = self._known.get(part.trained)
        return known is not None and any(narrower(limits, told) for told in known.nothing)

    def _searched(
        self, part: Part, limits: Limits, cutoff_s: float, deadline: float | None, *, first: bool
    ) -> Answered:
        problem = self.sides.problem(part)
        if limits:
            problem = replace(problem, relations=(*problem.relations, within(limits, self._copies)))
        self.searches += 1
        found = search(problem, 1, deadline=deadline, known_s=cutoff_s, first=first)
        if part.trained not in self._known:
            self._known[part.trained] = _Known([], [], [])
            self.mappings += found.mappings
        trained = None
        for candidate in found.top:
            mapping = mapping_of(candidate)
            used = mapping.tp * mapping.cp * mapping.dp * mapping.pp
            shares = shares_of(part.training, mapping.pp, int(mapping.schedule), mapping.cut, used, self._copies)
            trained = Trained(candidate.step_time_s, mapping, shares)
            self._known[part.trained].seen.append(trained)
        return Answered(trained, found.complete, found.bound_s)


def within(limits: Limits, copies: Sequence[int]) -> Relation:
    """Cells whose busiest rank sends less than each limit, in some way of counting."""

    def demand(cell: CellView) -> Num:
        schedules = np.asarray(cell.schedule)
        codes = np.unique(schedules).tolist()
        sent = [shares_of(cell.facts, cell.pp, code, cell.layout, cell.devices, copies) for code in codes]
        less = [sends_less(shares, limits) for shares in sent]
        return np.select([schedules == code for code in codes], [0.0 if it else 1.0 for it in less])

    return Relation(
        name="sends_less",
        side="cell",
        unit="",
        demand=demand,
        limit=lambda _cell: 0.0,
        sentence=lambda _cell, demand, _limit: f"the busiest rank sends {'no less' if demand else 'less'}",
    )


def shares_of(facts: Facts, pp: int, schedule: int, cut: Cut, devices: int, copies: Sequence[int]) -> Shares:
    """What the busiest rank sends, by how often the dense weights are sent beside the experts."""
    parts = transfer.stage_parts(facts.model, layers_of(pp, schedule, cut, facts))
    return tuple(transfer.sent_share(transfer.sent_shares(*parts, count), devices) for count in copies)


class Served(NamedTuple):
    """The ways to serve on a pool of some size."""

    units: int
    """As in `Sides.serving`."""
    facts: ServingFacts
    offers: list[Offer]


def served(sides: Sides) -> list[Served]:
    """Ways to serve on every size of the rollout pool."""
    return [Served(units, facts, sides.pools.server.offers(facts)) for units, facts in sides.serving]


class Choice(NamedTuple):
    """An offer on a pool of some size beside a training mapping, its pace, and the value of both."""

    value: float
    serving: ServingFacts
    offer: Offer
    pace: Pace


class Choices:
    """All ways to serve, in numbers: what each needs at least, whatever trains and however it publishes."""

    def __init__(self, pools: Pools, sides: Sides, ways: list[Served], objective: Objective) -> None:
        self.pools, self.sides, self.objective = pools, sides, objective
        self.count = sum(len(one.offers) for one in ways)
        self._each = [(one.facts, offer) for one in ways for offer in one.offers]
        sizes = [(one.units, working(one.facts.fabric)) for one in ways for _ in one.offers]
        self._units = np.array([units for units, _ in sizes], dtype=np.int64)
        self._devices = np.array([devices for _, devices in sizes], dtype=np.int64)
        self._free_s = np.array([paced(pools, offer, 0.0, 0.0).step_s for _, offer in self._each])

    def _least(self, part: Part, train_s: float) -> tuple[Floats, Floats]:
        """What each can reach beside a step so long, infinite where there is no room; and its value per second."""
        weight = self.objective.weight(part.training.fabric.devices, self._devices)
        least = np.maximum(self._free_s, train_s) * weight
        return np.where(self.sides.beside(part, self._units), least, np.inf), np.asarray(weight)

    def bound(self, part: Part, train_s: float) -> float:
        """No pair with a training step of at least so long has a smaller value; infinite where nothing serves."""
        least, _ = self._least(part, train_s)
        return float(least.min()) if len(least) else math.inf

    def cutoff_s(self, part: Part, below: float) -> float:
        """Training steps from which on no choice is below a value."""
        least, weight = self._least(part, 0.0)
        alive = least < below
        return float((below / weight[alive]).max()) if alive.any() else 0.0

    def best(self, part: Part, train_s: float, mapping: Mapping | None, below: float = math.inf) -> Choice | None:
        """The best choice beside a training mapping, if it is below a value; without a mapping: the most even sender.

        Of equal ones that which could be the fastest beside a shorter training step.
        """
        least, weight = self._least(part, train_s)
        places: NDArray[np.intp] = np.flatnonzero(least < below)
        found: Choice | None = None
        for place in places[np.lexsort((self._free_s[places], least[places]))].tolist():
            if found is not None and least[place] >= found.value:
                break
            facts, offer = self._each[place]
            pace = pace_of(self.pools, replace(part, serving=facts), offer, train_s, mapping)
            value = float(pace.step_s * weight[place])
            if value < (below if found is None else found.value):
                found = Choice(value, facts, offer, pace)
        return found
