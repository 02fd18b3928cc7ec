"""What a framework enforces beyond physics (FORMULAS 5.2): the rules of the run's framework and release.

Contents: RULES, JOINT, BY_NAME, relations, refused, older_refusals.

The rules themselves are data in `constraints/frameworks`, one file per framework.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mapsearch.constraints.frameworks import deepspeed, fsdp2, megatron, mindspeed, torchtitan
from mapsearch.constraints.frameworks.rules import FrameworkRule, JointRule
from mapsearch.constraints.rules import first
from mapsearch.frameworks import WHOSE, named, newest
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import Run
from mapsearch.relation import Relation

RULES: dict[str, tuple[FrameworkRule, ...]] = {
    "megatron": megatron.RULES,
    "torchtitan": torchtitan.RULES,
    "deepspeed": deepspeed.RULES,
    "fsdp2": fsdp2.RULES,
    "mindspeed": mindspeed.RULES,
    "none": (),
}
"""Every rule of every release."""
JOINT: dict[str, tuple[JointRule, ...]] = {
    "megatron": megatron.JOINT,
    "mindspeed": mindspeed.JOINT,
    "torchtitan": torchtitan.JOINT,
}
"""Rules that read both grids at once: known to `check` and to cases, not to the search."""
BY_NAME: dict[str, tuple[Relation, ...]] = {name: tuple(one.relation for one in rules) for name, rules in RULES.items()}


def relations(run: Run) -> tuple[Relation, ...]:
    """The rules of the run's framework in the release it names, or in the newest known one."""
    name, release = named(run.framework)
    return tuple(one.relation for one in RULES[name] if one.holds_in(release))


def refused(run: Run, mapping: Mapping, model: Model) -> list[tuple[JointRule, str]]:
    """Rules over both grids that the mapping breaks in the run's release, with their sentences."""
    name, release = named(run.framework)
    told = [(one, one.broken(mapping, model)) for one in JOINT.get(name, ()) if one.holds_in(release)]
    return [(one, said) for one, said in told if said]


def older_refusals(run: Run, mapping: Mapping, model: Model, view: Callable[[str], Any]) -> list[str]:
    """What other releases refuse, for a run that names none: `legal here; Megatron core before 0.16 refuses it`.

    `view` gives the view of a side: cell, attention or expert.
    """
    if "@" in run.framework:
        return []
    name, release = named(run.framework)
    said = []
    for one in RULES[name]:
        if one.holds_in(release):
            continue
        here = view(one.relation.side)
        demand, limit = first(one.relation.demand(here)), first(one.relation.limit(here))
        if demand > limit:
            said.append((one.releases(name), one.relation.sentence(here, demand, limit)))
    for joint in JOINT.get(name, ()):
        reason = "" if joint.holds_in(release) else joint.broken(mapping, model)
        if reason:
            said.append((joint.releases(name), reason))
    return [f"legal on hardware and in {WHOSE[name]} {newest(name)}; {who} refuses it: {why}" for who, why in said]
