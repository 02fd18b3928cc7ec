"""The Python API of small runs: `scale_down` says which keeps most of what a full run has to prove.

Contents: SMALL, scale_down.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mapsearch.answer import RankedMapping
from mapsearch.api import Watch, mapping_given
from mapsearch.contracting.api import contract_of
from mapsearch.costs.estimate import Point, layout_trouble, point_of
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError, UsageError, listed, near_miss
from mapsearch.inputs import read_for, read_inputs
from mapsearch.interrupts import Interrupts
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.progress import Progress
from mapsearch.scaledown import ContractRow, Kept, ScaledDown
from mapsearch.scaling.choose import Chosen, choose, same_quantity
from mapsearch.scaling.keeps import KEEPS, Keep, keeps_of, same
from mapsearch.solver.problem import problem_of
from mapsearch.solver.provenance import provenance_of
from mapsearch.solver.ranking import ranked_mapping
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.scale import levels_form
from mapsearch.topologies.spec import Topology

SMALL = 64
"""Devices of a small run unless told otherwise."""


def scale_down(
    mapping: str | Mapping | RankedMapping,
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology = "asic",
    *,
    profile: str | Profile | None = None,
    devices: int | None = None,
    small: int = SMALL,
    keep: Collection[str] = (),
    progress: Watch | None = None,
) -> ScaledDown:
    """The run on `small` devices that keeps most of what a mapping has to prove, and what it can confirm.

    A reduced model, a part of the cluster and a mapping, chosen together and proven to keep most; `keep` names
    quantities that have to be kept (`mapsearch.scaling.keeps.KEEPS`).
    Raises MapsearchError (InputError, UsageError, MissingFact) for what the user can mend.
    """
    tell: Watch = progress or (lambda _progress: None)
    with Interrupts():
        wanted = mapping_given(mapping)
        inputs = read_for(read_inputs(model, run, topology, profile, devices), wanted)
        full = point_of(wanted, inputs.facts)
        trouble = layout_trouble(full)
        if trouble:
            raise InputError(f"has no layout of layers on its stages: {trouble}", file=full.mapping.kind)
        _check(full, small, keep)
        found = choose(full, small, keep, lambda done, total: tell(Progress("small runs", done, total)))
        about: dict[str, Any] = {
            "devices": small,
            "full": ranked_mapping(0, full, problem_of(inputs.facts).relations),
            "provenance": provenance_of(inputs.named, inputs.devices),
            "notes": inputs.notes,
        }
        if found is None:
            words = f"nothing on {small:,} devices keeps {listed(keep)} and fits" if keep else "nothing fits"
            return ScaledDown(status="infeasible", mapping=None, **{**about, "notes": [*inputs.notes, words]})
        spec = next(one.record for one in inputs.named if one.kind == "topology")
        assert isinstance(spec, Topology)
        return _result(full, found, spec, about)


def _check(full: Point, small: int, keep: Collection[str]) -> None:
    """Whether the question can be asked. Raises UsageError."""
    present = full.facts.fabric.devices
    if not 1 <= small <= present:
        raise UsageError(f"{small} devices are asked for; the cluster has {present:,}", field="small")
    names = [one.name for one in keeps_of(full)]
    for name in keep:
        if name in names:
            continue
        if name in (one.name for one in KEEPS):
            raise UsageError(f"the full run has no {name!r} to keep", field="keep")
        raise UsageError(f"{name!r} is no quantity{near_miss(name, names)}; accepted: {listed(names)}", field="keep")


def _result(full: Point, found: Chosen, spec: Topology, about: dict[str, Any]) -> ScaledDown:
    facts, point = found.point.facts, found.point
    rows = [_row(keep, full, point) for keep in keeps_of(full)]
    return ScaledDown(
        status="optimal",
        mapping=ranked_mapping(1, point, problem_of(facts).relations),
        units=dict(zip(facts.fabric.level_names, found.plan.units, strict=True)),
        kept=rows,
        **_contract_rows(full, point, spec),
        score=sum(row.kept for row in rows),
        examined=found.examined,
        inputs=_documents(point, spec, facts),
        **{**about, "notes": [*about["notes"], *_remarks(full, point)]},
    )


def _contract_rows(full: Point, small: Point, spec: Topology) -> dict[str, Any]:
    """Every row of the full run's contract, held against the small run's own."""
    first, second = _predicted(full, spec), _predicted(small, _part(spec, small.facts.fabric))
    rows = [
        ContractRow(
            id=name, domain=domain, full=value, small=second[name][1], confirmed=same((value,), second[name][1:])
        )
        for name, (domain, value) in first.items()
        if name in second
    ]
    return {"rows": rows, "only_full": [name for name in first if name not in second]}


def _predicted(point: Point, spec: Topology) -> dict[str, tuple[int, float | str]]:
    """Id of each predicted row of a mapping's contract: its domain and its value."""
    facts = point.facts
    contract = contract_of(point.mapping, model=facts.model, run=facts.run, topology=spec, profile=facts.profile)
    return {row.id: (row.domain, row.predicted) for row in contract.rows if row.predicted is not None}


def _row(keep: Keep, full: Point, small: Point) -> Kept:
    kept = same_quantity(keep, full, small)
    why = keep.confirms if kept else f"another value: says nothing of {keep.confirms}"
    return Kept(
        name=keep.name, domain=keep.domain, full=keep.shown(full), small=keep.shown(small), kept=kept, confirms=why
    )


def _remarks(full: Point, small: Point) -> list[str]:
    """What a reader has to know before a small run is believed."""
    notes = ["domains 8 (publishing) and 9 (rollouts) are no part of a training run: it confirms nothing of them"]
    if full.mapping.pp == 1:
        notes.append("the full run has one pipeline stage, so there is no pipeline to validate")
    if small.facts.run.global_batch != full.facts.run.global_batch:
        notes.append(
            f"a step has {small.facts.run.global_batch:,} sequences instead of {full.facts.run.global_batch:,}: losses "
            "and learning rates do not carry over"
        )
    return notes


def _documents(point: Point, spec: Topology, facts: Facts) -> dict[str, Any]:
    """The small run as the documents that `solve` and `check` read."""
    stages = {"layout": list(point.mapping.layout), "recompute_stages": point.mapping.recompute_stages}
    mapping = point.mapping.model_copy(update=stages)
    return {
        "model": facts.model.model_dump(mode="json", exclude_defaults=True),
        "run": facts.run.model_dump(mode="json", exclude_defaults=True),
        "topology": _part(spec, facts.fabric).model_dump(mode="json", exclude_defaults=True),
        "profile": facts.profile.model_dump(mode="json", exclude_defaults=True),
        "mapping": mapping.model_dump(mode="json", exclude_defaults=True),
    }


def _part(spec: Topology, fabric: Fabric) -> Topology:
    """The part of the cluster that takes part, as levels."""
    shape = levels_form(spec)
    by_name = {level.name: level for level in shape.levels}
    levels = [
        by_name[level.name].model_copy(
            update={
                "size": level.size,
                "dims": list(level.dims),
                "kind": level.kind,
                "direction": "one_way",
                "bandwidth": level.bytes_per_s,
            }
        )
        for level in fabric.levels
    ]
    return shape.model_copy(update={"name": f"{shape.name}-{fabric.devices}", "levels": levels, "down": []})
