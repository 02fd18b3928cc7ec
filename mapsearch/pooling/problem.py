"""The question of two pools, read: clusters, splits, and the pace of a pair of mappings.

Contents: Asked, Part, Pools, read_pools, on_topology, sources_of, route_of, stages_of, published_s, pace_of, paced,
working.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from mapsearch.calibration.shipped import default_profile, profile_named
from mapsearch.costs import transfer
from mapsearch.costs.estimate import layers_per_stage
from mapsearch.costs.pacing import Pace
from mapsearch.costs.parameters import ledger
from mapsearch.costs.serving import ServingFacts
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError
from mapsearch.inputs import Inputs, read_inputs
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.rollout import Rollout
from mapsearch.inventories.run import Run
from mapsearch.pooling.changes import Sent, sent_of, snapshot_s
from mapsearch.pooling.replicas import Offer, Server, demand_of, published_bytes
from mapsearch.pooling.uneven import irregular, which_of, words
from mapsearch.pooling.ways import Ways, check_gateways, route
from mapsearch.solver.bounds import compute_floor_s
from mapsearch.topologies import fabric_of, load_topology
from mapsearch.topologies.division import OuterUnit, divisions, outer_units, side_of
from mapsearch.topologies.fabric import Fabric, Level
from mapsearch.topologies.hierarchy import regular_members
from mapsearch.topologies.scale import levels_form, scaled
from mapsearch.topologies.spec import Topology
from mapsearch.topologies.types import readings_of


class Asked(NamedTuple):
    """Inputs by name, path or object, as they were given."""

    model: str | Model
    run: str | Run
    topology: str | Topology
    profile: str | Profile | None
    devices: int | None


@dataclass(frozen=True)
class Part:
    """One way to divide the devices: facts of both sides."""

    units: int
    """Outer units that train; 0 where rollout has a cluster of its own."""
    training: Facts
    topology: Topology
    serving: ServingFacts
    trains: tuple[int, ...] = ()
    """Of a cluster with holes or several types: which outer units train, by number."""
    serves: tuple[int, ...] = ()
    which: str = ""
    """How the sides are read, where there is a choice; of such a cluster also whose the holes are."""

    @property
    def trained(self) -> tuple[object, ...]:
        """What tells training sides of one question apart: units, and how they are read."""
        return self.units, self.trains, self.training.fabric.reading

    @property
    def key(self) -> tuple[object, ...]:
        """What tells divisions of one question apart."""
        return *self.trained, self.serves, self.serving.fabric.reading

    @property
    def rollout_devices(self) -> int:
        """Devices of the rollout side that work."""
        return working(self.serving.fabric)

    @cached_property
    def floor_s(self) -> float:
        """No mapping of the training side is faster."""
        return compute_floor_s(self.training)


def working(fabric: Fabric) -> int:
    """Devices of a rollout pool that work; replicas need no regular part of them."""
    return fabric.site.tree.working(()) if fabric.site else fabric.devices


@dataclass(frozen=True)
class Pools:
    """Everything that is asked."""

    inputs: Inputs
    rollout: Rollout
    rollout_name: str
    topology: Topology
    """The training cluster, or the one that is split, as levels."""
    own: Topology | None
    """The rollout pool's own cluster."""
    asked: Asked
    """The training side as it was named."""
    given: Topology | None = None
    """The cluster as it was described, where that is not `topology`: as a graph, or with holes."""

    @property
    def model(self) -> Model:
        """The model."""
        return self.inputs.facts.model

    @property
    def run(self) -> Run:
        """The training run."""
        return self.inputs.facts.run

    @property
    def built(self) -> Topology:
        """The cluster as it was described."""
        return self.given or self.topology

    @cached_property
    def server(self) -> Server:
        """Ways to serve."""
        return Server(self.model, self.rollout, demand_of(self.rollout, float(self.run.tokens_per_step)))

    @cached_property
    def ways(self) -> Ways:
        """Ways between the pools."""
        return Ways(self)

    @cached_property
    def volume_bytes(self) -> float:
        """One copy of a whole version."""
        return published_bytes(self.model, self.rollout)

    @cached_property
    def sent(self) -> Sent:
        """What is sent of one version, and at most."""
        return sent_of(self.model, self.rollout, self.volume_bytes)

    @cached_property
    def parameters(self) -> float:
        """Parameters of the model."""
        return ledger(model=self.model).total

    @cached_property
    def dense_share(self) -> float:
        """Share of the weights that every copy of attention in a replica holds."""
        return float(transfer.stage_parts(self.model, (self.model.layers,))[0].sum())

    @cached_property
    def outer(self) -> Level:
        """The outermost level of the cluster that is split, or of the training cluster."""
        return fabric_of(self.topology).levels[-1]

    @cached_property
    def unlike(self) -> list[OuterUnit]:
        """Outer units of a cluster that is split and has holes or several types of device; else empty."""
        return outer_units(self.built) if self.own is None and irregular(self.built) else []

    @cached_property
    def members(self) -> list[list[str]]:
        """Devices of each outer unit of a cluster that is given as a graph."""
        if self.unlike:
            return [list(unit.down) for unit in self.unlike]
        names = regular_members(self.built)
        each = len(names) // self.units
        return [names[at * each : (at + 1) * each] for at in range(self.units)]

    @cached_property
    def unit_devices(self) -> int:
        """Devices of one outer unit; of the fullest, where they are unlike."""
        if self.unlike:
            return max(unit.working for unit in self.unlike)
        return math.prod(level.size for level in self.topology.levels[:-1])

    @cached_property
    def units(self) -> int:
        """Outer units of the cluster that is split."""
        return len(self.unlike) or self.topology.levels[-1].size

    @property
    def devices(self) -> int:
        """All devices, those of the rollout pool's own cluster included."""
        if self.unlike:
            return sum(unit.working for unit in self.unlike)
        return self.inputs.facts.fabric.devices + (working(fabric_of(self.own)) if self.own is not None else 0)

    def parts(self) -> list[Part]:
        """Every way to divide the devices: whole outer units to either side, at least one each."""
        if self.own is not None:
            return list(self._apart(self.own))
        if self.unlike:
            return list(self._uneven()) or self._refused()
        return [self.part(units) for units in range(1, self.units)]

    def part(self, units: int) -> Part:
        """The division of a regular cluster with so many outer units for training (0: rollout has its own cluster)."""
        if self.own is not None:
            return next(self._apart(self.own))
        facts = self.inputs.facts
        trains = scaled(self.topology, units * self.unit_devices)
        serves = fabric_of(scaled(self.topology, (self.units - units) * self.unit_devices))
        serving = ServingFacts(self.model, self.rollout.serving, serves, facts.profile)
        return Part(units, replace(facts, fabric=fabric_of(trains)), trains, serving)

    def _apart(self, own: Topology) -> Iterator[Part]:
        """Both clusters in every way that each can be read."""
        fabric = fabric_of(own)
        for inputs in (self.inputs, *self.inputs.readings):
            for read in (fabric, *fabric.alternatives):
                serving = ServingFacts(self.model, self.rollout.serving, read, self._profile_of(read))
                which = words(inputs.facts.fabric, read)
                yield Part(0, inputs.facts, self.topology, serving, which=which)

    def _uneven(self) -> Iterator[Part]:
        """Divisions of a cluster with holes or several types, both sides in every way that they can be read.

        A side of which nothing regular is left is no division.
        """
        facts, asked = self.inputs.facts, self.asked.profile
        for trains, serves in divisions(self.built, self.unlike):
            kept, others = ([self.unlike[at] for at in side] for side in (trains, serves))
            topology = side_of(self.built, kept, others)
            try:
                fabric = fabric_of(side_of(self.built, others, kept))
                inputs = read_inputs(facts.model, facts.run, topology, asked, None)
            except InputError:
                continue
            for one in (inputs, *inputs.readings):
                for read in (fabric, *fabric.alternatives):
                    profile = one.facts.profile if asked else default_profile(read)
                    serving = ServingFacts(self.model, self.rollout.serving, read, profile)
                    which = which_of(one.facts.fabric, read, kept, others)
                    yield Part(len(trains), one.facts, topology, serving, trains, serves, which)

    def _refused(self) -> list[Part]:
        """Of a cluster that cannot be divided. Raises InputError."""
        raise InputError(
            f"has {len(self.unlike)} outer units, and no way to divide them leaves something regular on both sides (a "
            f"ring or torus is used whole or not at all, and the {self.outer.name} is a {self.outer.kind}); describe "
            "what is left as a regular cluster, or give rollout a cluster of its own (pool.topology)",
            file=self.built.name,
        )

    def _profile_of(self, fabric: Fabric) -> Profile:
        """Efficiencies of the rollout pool's own cluster."""
        facts = self.inputs.facts
        if self.rollout.pool.profile is not None:
            return profile_named(self.rollout.pool.profile)
        return facts.profile if fabric.device.name == facts.fabric.device.name else default_profile(fabric)


def read_pools(
    model: str | Model,
    run: str | Run,
    topology: str | Topology,
    rollout: str | Rollout,
    profile: str | Profile | None,
    devices: int | None,
) -> Pools:
    """Inputs by name, path or object. Raises InputError for a cluster that cannot be split."""
    the_rollout = load_inventory(Rollout, rollout) if isinstance(rollout, str) else rollout
    given = load_topology(topology) if isinstance(topology, str) else topology
    given = scaled(given, devices) if devices is not None else given
    if given.only_type:
        given = readings_of(given)[0][1]
    own = load_topology(the_rollout.pool.topology) if the_rollout.pool.topology else None
    spec, inputs = _cluster(model, run, given, profile, split=own is None)
    asked = Asked(model, run, topology, profile, devices)
    told = topology if isinstance(topology, str) else spec.name
    named = [replace(one, name=told) if one.kind == "topology" else one for one in inputs.named]
    pools = Pools(replace(inputs, named=named), the_rollout, _shown(rollout), spec, own, asked, given)
    check_gateways(pools)
    return pools


def on_topology(pools: Pools, topology: Topology) -> Pools:
    """The same question on another training cluster, or another one that is split. Raises InputError."""
    facts = pools.inputs.facts
    spec, inputs = _cluster(facts.model, facts.run, topology, facts.profile, split=pools.own is None)
    return replace(pools, inputs=inputs, topology=spec, given=topology)


def _cluster(
    model: str | Model, run: str | Run, given: Topology, profile: str | Profile | None, *, split: bool
) -> tuple[Topology, Inputs]:
    """A cluster as it is searched, and the inputs on it."""
    if not split:
        return given, read_inputs(model, run, given, profile, None)
    spec = _without_ones(levels_form(given))
    if spec.levels[-1].size < 2:
        raise InputError("has one outer unit, which cannot be split; give at least 2", file=spec.name)
    return spec, read_inputs(model, run, given if irregular(given) else spec, profile, None)


def _without_ones(topology: Topology) -> Topology:
    """Outer levels that hold one unit each divide nothing."""
    levels = list(topology.levels)
    while len(levels) > 1 and levels[-1].size == 1 and not topology.down and not topology.types:
        levels.pop()
    return topology.model_copy(update={"levels": levels})


def _shown(given: str | Rollout) -> str:
    return given if isinstance(given, str) else given.name


def sources_of(pools: Pools, part: Part, mapping: Mapping | None, copies: int = 1) -> float:
    """Devices that send at once, counted by the busiest one's share; the most there can be without a mapping.

    `copies`: how often the dense weights are sent beside the experts; 1: counted by what a device has of the weights.
    """
    publishing, devices = pools.rollout.publishing, part.training.fabric.devices
    if publishing.path != "all":
        return float(min(publishing.source_devices, devices))
    if mapping is None:
        return float(devices)
    shares = transfer.sent_shares(*transfer.stage_parts(pools.model, layers_per_stage(mapping, part.training)), copies)
    used = mapping.tp * mapping.cp * mapping.dp * mapping.pp
    return 1.0 / transfer.sent_share(shares, used)


def route_of(pools: Pools, part: Part, offer: Offer, mapping: Mapping | None, *, whole: bool = False) -> transfer.Route:
    """The way of the weights from a training mapping to an offer. Without a mapping: no mapping's is faster.

    `whole`: of a version that is sent as it is, where others are sent as changes.
    """
    held = offer.weight_bytes / (2.0 if pools.rollout.publishing.in_flight == "side-by-side" else 1.0)
    volume = pools.volume_bytes if whole else pools.sent.usual_bytes
    return route(
        pools.ways.way(part, offer),
        path=pools.rollout.publishing.path,
        volume_bytes=volume,
        received_bytes=held * volume / pools.volume_bytes,
        replicas=offer.replicas,
        sources=sources_of(pools, part, mapping, offer.shape.dp),
        replica_bytes=volume * (1.0 + (offer.shape.dp - 1) * pools.dense_share),
        latency_s=pools.rollout.pool.link.latency_s,
    )


def stages_of(
    pools: Pools, part: Part, offer: Offer, mapping: Mapping | None, *, whole: bool = False
) -> dict[str, float]:
    """Seconds of the five stages of publishing; `whole`: as in `route_of`."""
    path = route_of(pools, part, offer, mapping, whole=whole)
    sides = (part.training.fabric.device, part.training.profile), (part.serving.fabric.device, part.serving.profile)
    sending, receiving = (device.hbm_bytes_per_s * profile.memory_bandwidth for device, profile in sides)
    delta = pools.rollout.publishing.delta is not None
    sources = sources_of(pools, part, mapping)
    own_bytes = pools.volume_bytes / sources
    return transfer.stages_s(
        path,
        parameters_sent=pools.parameters / sources,
        sending_bytes_per_s=sending,
        receiving_bytes_per_s=receiving,
        switch_s=pools.rollout.publishing.switch,
        written_bytes=own_bytes,
        snapshot_s=snapshot_s(own_bytes, part.training.fabric.device) if delta else 0.0,
        held_bytes=path.received_bytes * pools.volume_bytes / path.volume_bytes,
    )


def published_s(pools: Pools, part: Part, offer: Offer, mapping: Mapping | None) -> float:
    """T_pub of the slowest version: one that is sent whole in its turn, where there are such. Unit: s."""
    publishing = pools.rollout.publishing
    told = [stages_of(pools, part, offer, mapping)]
    if pools.sent.wholes:
        told.append(stages_of(pools, part, offer, mapping, whole=True))
    return max(transfer.publish_s(stages, pipelined=publishing.pipelined, chunks=publishing.chunks) for stages in told)


def pace_of(pools: Pools, part: Part, offer: Offer, train_s: float, mapping: Mapping | None) -> Pace:
    """The steady state of one training step time beside one offer."""
    return paced(pools, offer, train_s, published_s(pools, part, offer, mapping))


def paced(pools: Pools, offer: Offer, train_s: float, publish_s: float) -> Pace:
    """The steady state beside one offer when publishing takes so long; with 0 s for both no division's is shorter."""
    rollout = pools.rollout
    return Pace(
        train_s=train_s,
        batch_tokens=float(pools.run.tokens_per_step),
        rollout_tokens_per_s=offer.tokens_per_s,
        generate_s=offer.generate_s,
        publish_s=publish_s,
        lost_s=offer.lost_s,
        held_batches=rollout.queue.held_batches,
        most_batches=rollout.queue.most_batches,
        versions=rollout.versions,
        every=rollout.publishing.every,
        apart_s=offer.apart_s,
        mean_s=offer.mean_s,
        drained_s=offer.drained_s,
    )
