"""Inputs by name, path or object, read into facts; and the choice between several readings of one cluster.

Contents: Inputs, read_inputs, read_for, decided.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from mapsearch.calibration.shipped import default_profile, profile_named
from mapsearch.costs.views import Facts
from mapsearch.errors import UsageError
from mapsearch.experts.table import with_loads
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.models import load_model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.placing.placed import reading_for
from mapsearch.solver.problem import problem_of
from mapsearch.solver.provenance import Named
from mapsearch.solver.search import search
from mapsearch.topologies import fabric_of, load_topology
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.scale import scaled
from mapsearch.topologies.spec import Topology


@dataclass(frozen=True)
class Inputs:
    """What was asked about, read."""

    facts: Facts
    named: list[Named]
    notes: list[str]
    devices: int | None
    """The number that the topology was scaled to."""
    readings: tuple[Inputs, ...] = ()
    """The same with the cluster read in another way (several types of device, units of unequal bandwidth)."""


def read_inputs(
    model: str | Model,
    run: str | Run,
    topology: str | Topology | Fabric,
    profile: str | Profile | None,
    devices: int | None,
) -> Inputs:
    """Inputs by name, path or object as facts."""
    the_model = load_model(model) if isinstance(model, str) else model
    the_run = load_inventory(Run, run) if isinstance(run, str) else run
    the_run = with_loads(the_run, the_model)
    spec = load_topology(topology) if isinstance(topology, str) else topology
    notes = []
    if devices is not None:
        if isinstance(spec, Fabric):
            raise UsageError("a fabric has the devices it has; give a topology to scale", field="devices")
        scaled_spec = scaled(spec, devices)
        if scaled_spec is not spec:
            notes.append(f"{spec.name} is scaled to {devices:,} devices")
        spec = scaled_spec
    fabric = spec if isinstance(spec, Fabric) else fabric_of(spec)

    def read(fabric: Fabric) -> Inputs:
        the_profile = profile_named(profile) if isinstance(profile, str) else profile or default_profile(fabric)
        named = [
            Named("topology", _shown(topology), spec),
            Named("run", _shown(run), the_run),
            Named("profile", _shown(profile or the_profile), the_profile),
            Named("model", _shown(model), the_model),
        ]
        return Inputs(Facts(the_model, the_run, fabric, the_profile), named, [*notes, *fabric.notes], devices)

    found = read(fabric)
    return replace(found, readings=tuple(map(read, fabric.alternatives))) if fabric.alternatives else found


def read_for(inputs: Inputs, mapping: Mapping, notes: Collection[str] | None = None) -> Inputs:
    """The inputs with the cluster read in the way in which a mapping was searched: as `reading_for` tells it.

    `notes`: those of the mapping's answer; without them the first reading on which the mapping fits.
    """
    fabric = reading_for(mapping, inputs.facts.fabric, notes)
    found = next(one for one in (inputs, *inputs.readings) if one.facts.fabric is fabric)
    return replace(found, readings=())


def decided(inputs: Inputs, deadline: float | None = None) -> Inputs:
    """The inputs with the cluster read in the way that has the fastest mapping, and a note on the others.

    Each reading is searched for its fastest mapping, with the fastest so far as cutoff; after the deadline the best
    so far stands, and the note says so.
    """
    if not inputs.readings:
        return inputs
    best, best_s, told = inputs, math.inf, []
    for reading in (inputs, *inputs.readings):
        found = search(problem_of(reading.facts), 1, deadline=deadline, known_s=best_s)
        name = reading.facts.fabric.reading
        if found.top and found.top[0].step_time_s < best_s:
            best, best_s = reading, found.top[0].step_time_s
            told.append(f"{name}: {best_s:,.4g} s")
        elif not found.complete:
            told.append(f"{name}: not searched to the end")
        else:
            told.append(f"{name}: {'nothing fits' if math.isinf(best_s) else 'nothing faster'}")
    note = f"the cluster is read in {len(told)} ways, and the fastest counts ({'; '.join(told)})"
    types = {one.facts.fabric.device.name for one in (inputs, *inputs.readings)}
    if len(types) > 1:
        note += "; not searched: stages or replicas on devices of different types, each with the work that suits it"
    return replace(best, notes=[note, *best.notes], readings=())


def _shown(given: Any) -> str:
    return given if isinstance(given, str) else str(given.name)
