"""The Python API of audits: `audit` routes all collectives of a mapping on the graph of its cluster.

Contents: audit.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from collections.abc import Mapping as Dictionary

import numpy as np

from mapsearch.answer import RankedMapping
from mapsearch.api import Watch, mapping_given
from mapsearch.audited import Audit, Round
from mapsearch.auditing.feedback import ROUNDS, Rounds, fed_back
from mapsearch.auditing.measure import TOLERANCE, ground_of, measure, with_shares
from mapsearch.auditing.report import audited_step_s, axis_audits, beside, busiest_links, named_shares, overlaps
from mapsearch.comparing import mapping_text
from mapsearch.costs.estimate import layout_trouble, point_of
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError, UsageError
from mapsearch.inputs import read_for, read_inputs
from mapsearch.interrupts import Interrupts
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile, Rings
from mapsearch.inventories.run import Run
from mapsearch.placement import Placement
from mapsearch.placing.placed import AXES, Placed
from mapsearch.solver.problem import problem_of
from mapsearch.solver.provenance import provenance_of
from mapsearch.solver.ranking import ranked_mapping
from mapsearch.topologies import load_topology
from mapsearch.topologies.scale import scaled
from mapsearch.topologies.spec import Topology


def audit(
    mapping: str | Mapping | RankedMapping,
    *,
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology = "asic",
    profile: str | Profile | None = None,
    devices: int | None = None,
    relay: bool = True,
    rings: Rings | None = None,
    placement: Placement | None = None,
    answer_notes: Collection[str] | None = None,
    tolerance: float = TOLERANCE,
    contended: bool = False,
    measured: Dictionary[str, float] | None = None,
    feed_back: bool = False,
    rounds: int = ROUNDS,
    progress: Watch | None = None,
) -> Audit:
    """All groups' collectives of a step routed at once, and the bandwidths that the axes get against the level model's.

    `relay`: devices pass on what a neighbour sends to another rail (NCCL's PXN). `rings`: other ones than the
    profile's, which the cost model charges: level by level, or flat through the whole group, as NCCL has them.
    Beyond `tolerance` a difference counts; with `feed_back` it is given to the search, which is repeated until nothing
    changes, at most `rounds` times.
    `contended`: background traffic takes its half of every link that it shares with what stands in line, as without
    priorities, in the audited step and in what is fed back.
    `measured`: bus bandwidth of axes as a benchmark gave it, bytes/s by axis, to stand beside what the links give.
    `placement`: ranks on devices, instead of as the mapping's placement says; then nothing is fed back.
    `answer_notes`: the notes of the mapping's answer, which tell how its cluster was read where it can be read in
    several ways; without them it is the first way in which the mapping fits.
    Raises MapsearchError for what the user can mend: a mapping that does not fit, a graph that is too large or torn.
    """
    if not 0.0 < tolerance < 1.0:
        raise UsageError(f"tolerance is {tolerance:g}; give a share between 0 and 1, such as 0.05", field="tolerance")
    if rings not in (None, "levels", "flat"):
        raise UsageError(f"rings is {rings!r}; accepted: levels or flat", field="rings")
    if rounds < 1:
        raise UsageError(f"rounds is {rounds}; ask for at least 1", field="rounds")
    if feed_back and placement is not None:
        raise UsageError("places one mapping, and feedback searches for others; drop one of them", field="placement")
    with Interrupts():
        wanted = mapping_given(mapping)
        inputs = read_for(read_inputs(model, run, topology, profile, devices), wanted, answer_notes)
        facts = inputs.facts
        trouble = layout_trouble(point_of(wanted, facts))
        if trouble:
            raise InputError(f"the mapping cannot be costed, so there is nothing to audit: {trouble}", field="mapping")
        ground = ground_of(_topology(topology, devices), relay=relay, rings=rings)
        routed = measure(wanted, facts, ground, None if placement is None else _placed(placement, wanted))
        axes = beside(axis_audits(routed, tolerance), measured or {})
        found = Audit(
            mapping=mapping_text(_ranked(wanted, facts)),
            devices=routed.point.cell.devices,
            links=ground.router.wires.count,
            tolerance=tolerance,
            step_time_s=routed.point.step_time_s(),
            audited_step_time_s=audited_step_s(routed, tolerance, contended=contended),
            contended_step_time_s=audited_step_s(routed, tolerance, contended=True),
            axes=axes,
            level_busy_s=routed.level_busy_s,
            overlaps=overlaps(routed, tolerance),
            busiest=busiest_links(routed),
            provenance=provenance_of(inputs.named, inputs.devices),
            notes=[*inputs.notes, *routed.point.notes],
        )
        if not feed_back:
            return found
        told = fed_back(
            wanted,
            facts,
            ground,
            rounds=rounds,
            tolerance=tolerance,
            contended=contended,
            tell=progress or (lambda _: None),
        )
        return found.model_copy(update=_rounds(told, facts))


def _topology(given: str | Topology, devices: int | None) -> Topology:
    spec = load_topology(given) if isinstance(given, str) else given
    return spec if devices is None else scaled(spec, devices)


def _placed(placement: Placement, mapping: Mapping) -> Placed:
    """Ranks on devices as a file of placements has them. Raises InputError when it is of another mapping."""
    sizes = {axis: int(getattr(mapping, axis)) for axis in AXES}
    if placement.sizes != sizes:
        differ = [axis for axis in AXES if placement.sizes.get(axis) != sizes[axis]]
        said = ", ".join(f"{axis} {placement.sizes.get(axis)} and not {sizes[axis]}" for axis in differ)
        raise InputError(f"is of another mapping: {said}", field="placement")
    groups = {axis: np.array(placement.groups[axis], dtype=np.int64) for axis in AXES}
    return Placed(devices=tuple(placement.devices), groups=groups)


def _ranked(mapping: Mapping, facts: Facts) -> RankedMapping:
    return ranked_mapping(1, point_of(mapping, facts), problem_of(facts).relations)


def _rounds(told: Rounds, facts: Facts) -> dict[str, object]:
    best = told.best
    return {
        "rounds": [
            Round(
                mapping=mapping_text(_ranked(turn.mapping, facts)),
                step_time_s=turn.step_time_s if math.isfinite(turn.step_time_s) else None,
                audited_step_time_s=turn.audited_s if math.isfinite(turn.audited_s) else None,
                shares=named_shares(facts.fabric, turn.told),
                changed=turn.changed,
            )
            for turn in told.turns
        ],
        "outcome": told.outcome,
        "best": _ranked(best.mapping, with_shares(facts, best.shares)) if math.isfinite(best.audited_s) else None,
    }
