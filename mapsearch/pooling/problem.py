"""The question of two pools, read: clusters, splits, and the pace of a pair of mappings.

Contents: Asked, Part, Pools, read_pools, sources_of, route_of, stages_of, pace_of.
"""

from __future__ import annotations

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
from mapsearch.pooling.replicas import Offer, Server, demand_of, published_bytes
from mapsearch.solver.bounds import compute_floor_s
from mapsearch.topologies import fabric_of, load_topology
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.scale import levels_form, scaled
from mapsearch.topologies.spec import Topology


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

    @cached_property
    def floor_s(self) -> float:
        """No mapping of the training side is faster."""
        return compute_floor_s(self.training)


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

    @property
    def model(self) -> Model:
        """The model."""
        return self.inputs.facts.model

    @property
    def run(self) -> Run:
        """The training run."""
        return self.inputs.facts.run

    @cached_property
    def server(self) -> Server:
        """Ways to serve."""
        return Server(self.model, self.rollout, demand_of(self.rollout, float(self.run.tokens_per_step)))

    @cached_property
    def volume_bytes(self) -> float:
        """One copy of what is published."""
        return published_bytes(self.model, self.rollout)

    @cached_property
    def parameters(self) -> float:
        """Parameters of the model."""
        return ledger(model=self.model).total

    @cached_property
    def unit_devices(self) -> int:
        """Devices of one outer unit."""
        count = 1
        for level in self.topology.levels[:-1]:
            count *= level.size
        return count

    @cached_property
    def units(self) -> int:
        """Outer units of the cluster that is split."""
        return self.topology.levels[-1].size

    def parts(self) -> list[Part]:
        """Every way to divide the devices: whole outer units to either side, at least one each."""
        if self.own is not None:
            return [self.part(0)]
        return [self.part(units) for units in range(1, self.units)]

    def part(self, units: int) -> Part:
        """The division with so many outer units for training (0: all, rollout has its own cluster)."""
        facts = self.inputs.facts
        if self.own is not None:
            fabric = fabric_of(self.own)
            serving = ServingFacts(self.model, self.rollout.serving, fabric, self._profile_of(fabric))
            return Part(0, facts, self.topology, serving)
        trains = scaled(self.topology, units * self.unit_devices)
        serves = fabric_of(scaled(self.topology, (self.units - units) * self.unit_devices))
        serving = ServingFacts(self.model, self.rollout.serving, serves, facts.profile)
        return Part(units, replace(facts, fabric=fabric_of(trains)), trains, serving)

    def _profile_of(self, fabric: Fabric) -> Profile:
        """Efficiencies of the rollout pool's own cluster."""
        facts = self.inputs.facts
        if self.rollout.pool.profile is not None:
            return profile_named(self.rollout.pool.profile)
        return facts.profile if fabric.device.name == facts.fabric.device.name else default_profile(fabric)

    def link_bytes_per_s(self, part: Part) -> float:
        """What one device of either pool gets of the way between them, one way, as large messages reach it."""
        given = self.rollout.pool.link.bandwidth
        ends: list[tuple[Fabric, Profile]] = [
            (part.training.fabric, part.training.profile),
            (part.serving.fabric, part.serving.profile),
        ]
        if given is not None:
            return given
        if self.own is None:
            outer = fabric_of(self.topology).levels[-1].bytes_per_s
            return outer * part.training.profile.point_to_point.peak
        return min(fabric.levels[-1].bytes_per_s * profile.point_to_point.peak for fabric, profile in ends)


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
    spec = load_topology(topology) if isinstance(topology, str) else topology
    spec = scaled(spec, devices) if devices is not None else spec
    own = load_topology(the_rollout.pool.topology) if the_rollout.pool.topology else None
    if own is None:
        spec = levels_form(spec)
        if spec.down or spec.other_devices:
            raise InputError(
                "has units that are down or of several types, and is not split into pools; give a regular cluster, or "
                "rollout a cluster of its own (pool.topology)",
                file=spec.name,
            )
        if spec.levels[-1].size < 2:
            raise InputError("has one outer unit, which cannot be split; give at least 2", file=spec.name)
    inputs = read_inputs(model, run, spec, profile, None)
    asked = Asked(model, run, topology, profile, devices)
    told = topology if isinstance(topology, str) else spec.name
    named = [replace(one, name=told) if one.kind == "topology" else one for one in inputs.named]
    return Pools(replace(inputs, named=named), the_rollout, _shown(rollout), spec, own, asked)


def _shown(given: str | Rollout) -> str:
    return given if isinstance(given, str) else given.name


def sources_of(pools: Pools, part: Part, mapping: Mapping | None) -> float:
    """Devices that send at once, counted by the busiest one's share; the most there can be without a mapping."""
    publishing, devices = pools.rollout.publishing, part.training.fabric.devices
    if publishing.path != "all":
        return float(min(publishing.source_devices, devices))
    if mapping is None:
        return float(devices)
    share = transfer.stage_shares(pools.model, layers_per_stage(mapping, part.training))
    used = mapping.tp * mapping.cp * mapping.dp * mapping.pp
    return 1.0 / transfer.sent_share(share, used)


def route_of(pools: Pools, part: Part, offer: Offer, mapping: Mapping | None) -> transfer.Route:
    """The way of the weights from a training mapping to an offer. Without a mapping: no mapping's is faster."""
    held = offer.weight_bytes / (2.0 if pools.rollout.publishing.in_flight == "side-by-side" else 1.0)
    return transfer.Route(
        path=pools.rollout.publishing.path,
        volume_bytes=pools.volume_bytes,
        received_bytes=held,
        replicas=offer.replicas,
        sources=sources_of(pools, part, mapping),
        bytes_per_s=pools.link_bytes_per_s(part),
        latency_s=pools.rollout.pool.link.latency,
    )


def stages_of(pools: Pools, part: Part, offer: Offer, mapping: Mapping | None) -> dict[str, float]:
    """Seconds of the five stages of publishing."""
    route = route_of(pools, part, offer, mapping)
    sides = (part.training.fabric.device, part.training.profile), (part.serving.fabric.device, part.serving.profile)
    sending, receiving = (device.hbm_bytes_per_s * profile.memory_bandwidth for device, profile in sides)
    return transfer.stages_s(
        route,
        parameters_sent=pools.parameters / route.sources,
        sending_bytes_per_s=sending,
        receiving_bytes_per_s=receiving,
        switch_s=pools.rollout.publishing.switch,
    )


def pace_of(pools: Pools, part: Part, offer: Offer, train_s: float, mapping: Mapping | None) -> Pace:
    """The steady state of one training step time beside one offer."""
    rollout = pools.rollout
    stages = stages_of(pools, part, offer, mapping)
    taken = transfer.publish_s(stages, pipelined=rollout.publishing.pipelined, chunks=rollout.publishing.chunks)
    return Pace(
        train_s=train_s,
        batch_tokens=float(pools.run.tokens_per_step),
        rollout_tokens_per_s=offer.tokens_per_s,
        generate_s=offer.generate_s,
        publish_s=taken,
        lost_s=offer.lost_s,
        held_batches=rollout.queue.held_batches,
        most_batches=rollout.queue.most_batches,
        versions=rollout.versions,
        every=rollout.publishing.every,
        apart_s=offer.apart_s,
        mean_s=offer.mean_s,
        drained_s=offer.drained_s,
    )
