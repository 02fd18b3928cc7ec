"""Exports and imports: every format by its name, written and read again, held against the framework's rules.

Contents: FORMATS, KINDS, export, read_launch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mapsearch import __version__, documents
from mapsearch.answer import RankedMapping
from mapsearch.api import mapping_given
from mapsearch.constraints import divisibility
from mapsearch.constraints.framework import refused, relations
from mapsearch.constraints.rules import first
from mapsearch.costs.estimate import point_of
from mapsearch.costs.placement import placement_of, rows_of
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError, MapsearchError, listed
from mapsearch.exported import Exported, Refusal, Unexpressed
from mapsearch.frameworks import WHOSE, named
from mapsearch.inputs import read_for, read_inputs
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.launching import bridge, deepspeed, megatron, mindspeed, torchtitan
from mapsearch.launching.launch import COMPARED, Draft, Format, Launch, Plan, canonical, differing, mapping_of
from mapsearch.launching.scripts import FORMAT_NAME, is_script, read_script
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology

FORMATS: tuple[Format, ...] = (mindspeed.FORMAT, torchtitan.FORMAT, deepspeed.FORMAT, megatron.FORMAT, bridge.FORMAT)
"""Every format, in the order in which a file is tried against them: MindSpeed's flags hold Megatron-LM's."""
KINDS: dict[str, Format] = {one.name: one for one in FORMATS}
RELEASES = {"torchtitan": "torchtitan@0.2"}
"""Releases that a format is for, where that is not the newest one."""
FACTS = ("sequence_length", "global_batch", "precision")
"""Fields of the run that are held against what the file says, where it says them."""


@dataclass(frozen=True)
class Written:
    """A file with what it says when it is read again."""

    text: str
    draft: Draft
    mapping: Mapping
    same: bool


def export(
    mapping: str | Mapping | RankedMapping,
    to: str,
    *,
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology | Fabric = "asic",
    profile: str | Profile | None = None,
    devices: int | None = None,
) -> Exported:
    """The file of a mapping for a framework, read again and held against its rules.

    Raises InputError: an unknown format, inputs that cannot be read, a mapping that the cluster has no place for.
    """
    if to not in KINDS:
        raise InputError(f"{to!r} is no format; accepted: {listed(KINDS)}", field="to")
    wanted, kind = mapping_given(mapping), KINDS[to]
    facts = read_for(read_inputs(model, run, topology, profile, devices), wanted).facts
    held = facts.run.replaced(framework=_release(kind, facts.run))
    facts = Facts(facts.model, held, facts.fabric, facts.profile)
    where, following = _placement(wanted, facts.fabric)
    plan = Plan.of(wanted.model_copy(update={"placement": where}), facts.model, held)
    broken = list(_refusals(wanted.model_copy(update={"cp_kind": plan.mapping.cp_kind}), facts))
    found = written(kind, plan)
    if plan.mapping.cp_kind != wanted.cp_kind and wanted.cp > 1:
        found.draft.notes.append("hybrid CP inside one level has no ring: it is written as Ulysses")
    lost = [*found.draft.unexpressed, *([] if following else [_unplaced(where)])]
    whose = _whose(held)
    title = f"mapsearch {__version__}, for {whose}: {facts.model.name}, {held.name}, {wanted.devices:,} devices"
    remarks = _remarks(title, lost, broken, found.draft.notes, whose)
    return Exported(
        to=to,
        framework=held.framework,
        text=_with_remarks(kind, found.text, remarks),
        mapping=found.mapping.model_dump(mode="json", exclude={"sources"}),
        same=found.same,
        unexpressed=lost,
        refused=broken,
        notes=found.draft.notes,
    )


def written(kind: Format, plan: Plan) -> Written:
    """The file of a plan, read again: what differs is what the file was said not to express.

    Raises RuntimeError (a bug) for any other difference.
    """
    text, draft = kind.write(plan)
    launch = kind.read(text, {})
    known = "gpus" in launch.hardware or "dp" in launch.mapping
    again = mapping_of(launch, devices=None if known else plan.mapping.devices)
    try:
        again = canonical(again, plan.model, plan.run)
        other = differing(plan.mapping, again)
    except ValueError:
        other = ["layout", *(name for name in differing(plan.mapping, again) if name != "layout")]
    other += [name for name in FACTS if name in launch.run and launch.run[name] != getattr(plan.run, name)]
    unsaid = set(other) - {one.what for one in draft.unexpressed}
    if unsaid:
        raise RuntimeError(f"the {kind.name} file reads back with another {listed(sorted(unsaid))}: {text}")
    draft.unexpressed = [one for one in draft.unexpressed if one.what not in COMPARED or one.what in other]
    return Written(text, draft, again, not other)


def _release(kind: Format, run: Run) -> str:
    """The framework of the format, in the release that the run names if it is the same framework."""
    if named(run.framework)[0] == kind.framework and "@" in run.framework:
        return run.framework
    return RELEASES.get(kind.framework, kind.framework)


def _whose(run: Run) -> str:
    name, release = named(run.framework)
    return f"{WHOSE[name]} {release}"


def _refusals(mapping: Mapping, facts: Facts) -> Iterator[Refusal]:
    """Rules of arithmetic and of the framework that the mapping breaks. Raises InputError where it has no place."""
    point = point_of(mapping, facts)
    views = {"cell": point.cell, "attention": point.attention, "expert": point.expert}
    for relation in (*divisibility.RELATIONS, *relations(facts.run)):
        view = views[relation.side]
        demand, limit = first(relation.demand(view)), first(relation.limit(view))
        if demand > limit:
            yield Refusal(relation=relation.name, sentence=relation.sentence(view, demand, limit))
    for joint, sentence in refused(facts.run, mapping, facts.model):
        yield Refusal(relation=joint.name, sentence=sentence)


def _placement(mapping: Mapping, fabric: Fabric) -> tuple[dict[str, dict[str, int]], bool]:
    """Where every axis lives, innermost level first, and whether ranks counted in the usual order stand there."""
    here = placement_of(rows_of(mapping, fabric).by_axis, fabric)
    try:
        usual = placement_of(rows_of(mapping.model_copy(update={"placement": {}}), fabric).by_axis, fabric)
    except MapsearchError:
        return here, False
    return here, here == usual


def _unplaced(where: dict[str, dict[str, int]]) -> Unexpressed:
    shown = ", ".join(
        f"{axis} {'x'.join(f'{ways}@{level}' for level, ways in cuts.items())}" for axis, cuts in where.items()
    )
    why = "ranks counted tp-cp-ep-dp-pp over the hosts stand elsewhere; `mapsearch placement --export` places them"
    return Unexpressed(what="placement", value=shown, why=why)


def _remarks(title: str, lost: list[Unexpressed], broken: list[Refusal], notes: list[str], whose: str) -> list[str]:
    lines = [title]
    lines += [f"not expressed: {one.what} {one.value}: {one.why}" for one in lost]
    lines += [f"refused by {whose}: {one.sentence} ({one.relation})" for one in broken]
    return lines + [f"note: {one}" for one in notes]


def _with_remarks(kind: Format, text: str, remarks: list[str]) -> str:
    """The remarks above the body; in JSON, which has none, under a key that the framework does not read."""
    if kind.mark:
        return "".join(f"{kind.mark} {line}\n" for line in remarks) + text
    tree: dict[str, Any] = json.loads(text)
    tree[deepspeed.KEY]["remarks"] = remarks
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def read_launch(path: str, *, kind: str | None = None, preset: dict[str, str] | None = None) -> Launch:
    """What a launch file says; its format by its content unless it is named. Raises InputError."""
    text = documents.read_text(path)
    if kind == FORMAT_NAME or (kind is None and path.lower().endswith((".yaml", ".yml"))):
        document = _document(text, path, strict=kind == FORMAT_NAME)
        if is_script(document):
            return read_script(document, file=path)
        if kind == FORMAT_NAME:
            raise InputError("is no transcribed launch file: it has no framework with a mapping", file=path)
    found = KINDS[kind] if kind else next((one for one in FORMATS if one.detect(text)), None)
    if found is None:
        raise InputError(f"is no launch file that is known; --from takes {listed((FORMAT_NAME, *KINDS))}", file=path)
    try:
        return found.read(text, preset or {})
    except InputError as problem:
        raise InputError(problem.problem, file=path, field=problem.field) from None


def _document(text: str, path: str, *, strict: bool) -> Any:
    try:
        return documents.parse(text, file=path)
    except InputError:
        if strict:
            raise
        return None
