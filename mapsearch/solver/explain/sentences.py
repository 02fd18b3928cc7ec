"""A conflict in words: one sentence per relation with the numbers of the facts, where they stand, and whose rules.

Contents: conflict_of, described.
"""

from __future__ import annotations

from mapsearch.answer import Conflict
from mapsearch.axes import USUAL_OVERLAP
from mapsearch.constraints.capacity import bytes_text
from mapsearch.constraints.user import LAYOUT
from mapsearch.costs.views import Facts
from mapsearch.errors import listed
from mapsearch.inventories.mapping import Mapping
from mapsearch.relation import Relation
from mapsearch.solver.explain.conflict import kind_of
from mapsearch.solver.explain.probe import Probe
from mapsearch.solver.explain.states import states_sentence
from mapsearch.solver.ranking import mapping_of

WHOSE = {
    "physics": "",
    "topology": "the cluster: ",
    "placement": "the run's placement: ",
    "user": "your constraint: ",
}
FIELDS: dict[str, tuple[str, ...]] = {
    LAYOUT: ("run layout",),
    "hbm": ("topology device.hbm", "run reserve", "profile runtime_bytes"),
    "host_memory": ("topology device.host_memory",),
    "nvme_capacity": ("topology device.nvme",),
    "batch_divides": ("run global_batch", "run micro_batch"),
    "layers_fill_stages": ("model layers", "run vpp"),
    "schedule_takes_vpp": ("run schedule", "run vpp"),
    "bidirectional_batch": ("run global_batch", "run schedule"),
    "zero_bubble_batch": ("run global_batch", "run schedule"),
    "heads_divide": ("model heads",),
    "kv_heads_divide": ("model kv_heads",),
    "ffn_divides": ("model ffn",),
    "shared_ffn_divides": ("model moe.shared_ffn",),
    "sequence_divides": ("run sequence_length", "run cp_kind"),
    "ulysses_heads_divide": ("model heads", "run cp_kind"),
    "experts_divide": ("model moe.experts",),
    "expert_ffn_divides": ("model moe.expert_ffn",),
    "fixed_all_to_all_only": ("topology variable_all_to_all", "run dispatcher"),
    "exposed": ("run exposed_limit",),
}
"""Kind of document and field that a relation's limit comes from."""


def described(mapping: Mapping) -> str:
    """A mapping in a line: sizes, then choices that are not the plain ones."""
    m = mapping.model_dump()
    grids = f"TP{m['tp']} CP{m['cp']} DP{m['dp']} PP{m['pp']} | ETP{m['etp']} EP{m['ep']} EDP{m['edp']}"
    choices = f"{m['schedule']}, recompute {m['recompute']}, ZeRO-{m['zero']}"
    choices += f", offload {m['offload']}" if m["offload"] != "none" else ""
    return f"{grids}, {choices}" + (f", overlap {m['overlap']}" if m["overlap"] not in (None, USUAL_OVERLAP) else "")


def conflict_of(probe: Probe, core: list[Relation], restates: int = 0) -> Conflict:
    """A minimal conflict as the answer shows it."""
    kind = kind_of(core)
    return Conflict(
        relations=[relation.name for relation in core],
        sentences=[_sentence(probe, relation, core) for relation in core],
        fields=[_fields(relation, probe.problem.facts) for relation in core],
        kind=kind,
        statement=_STATEMENTS[kind](probe.problem.facts, core),
        restates=restates,
    )


def _physics(_facts: Facts, _core: list[Relation]) -> str:
    return "physics: no framework and no wish of yours is in it; the numbers of model, run or cluster have to change"


def _framework(_facts: Facts, core: list[Relation]) -> str:
    names = listed(dict.fromkeys(r.origin for r in core if r.origin not in WHOSE))
    return f"{names}'s rules: the hardware could do it, the framework refuses"


def _user(facts: Facts, _core: list[Relation]) -> str:
    fabric = facts.fabric
    levels = " x ".join(str(size) for size in fabric.regular.fan_outs)
    return f"only your own constraints conflict; {fabric.name} has {fabric.devices:,} devices ({levels}) to cut"


def _mixed(_facts: Facts, core: list[Relation]) -> str:
    frameworks = dict.fromkeys(r.origin for r in core if r.origin not in WHOSE)
    others = [*(["physics"] if any(r.origin in ("physics", "topology") for r in core) else []), *frameworks]
    against = " and ".join(others)
    return f"what you ask for meets {against}: give up a rule of your own that is named here, or change the numbers"


_STATEMENTS = {"physics": _physics, "framework": _framework, "user": _user, "mixed": _mixed}


def _fields(relation: Relation, facts: Facts) -> list[str]:
    """The fields that a relation's limit comes from, each behind the name of its document."""
    names = {"model": facts.model.name, "run": facts.run.name, "topology": facts.fabric.name}
    names["profile"] = facts.profile.name
    found = []
    for entry in FIELDS.get(relation.name, ()) or _own_field(relation):
        kind, field = entry.split(" ", 1)
        found.append(f"{names[kind]}: {field}")
    return found


def _own_field(relation: Relation) -> tuple[str, ...]:
    """The field of the run that holds a rule of the user's or of a framework."""
    name = relation.name
    if name.startswith("exposed_"):
        return (f"run exposed_limit_by_class.{name.removeprefix('exposed_')}",)
    if relation.origin == "placement":
        return (f"run placement.{name.split('_inside_')[0]}",)
    if relation.origin == "user" and "_inside_" in name:
        return (f"run constraints.inside.{name.split('_inside_')[1]}",)
    if name.startswith("user_ask_for_"):
        return ()  # a question's own words, which stand in no document
    if relation.origin == "user":
        kinds = [kind for kind in ("fix", "allow", "at_most", "at_least") if name.startswith(f"user_{kind}_")]
        return tuple(f"run constraints.{kind}.{name.removeprefix(f'user_{kind}_')}" for kind in kinds)
    return () if relation.origin in WHOSE else ("run framework",)


def _sentence(probe: Probe, relation: Relation, core: list[Relation]) -> str:
    """One relation of a conflict in words, with the numbers that the facts give it."""
    facts = probe.problem.facts
    if relation.name != "hbm":
        said = relation.told(facts)
        return said if said.startswith("you ") else WHOSE.get(relation.origin, f"{relation.origin}'s rule: ") + said
    text = f"{states_sentence(facts)}; {relation.told(facts).split('; ', 1)[1]}"
    best = probe.leanest(probe.problem.relations if len(core) == 1 else core)
    if best is None:
        return text
    under = "" if len(core) == 1 else " under the other rules named here"
    offload = mapping_of(best.candidate).model_dump()["offload"]
    away = "" if offload == "none" else f" with offload {offload}"
    return f"{text}; the leanest mapping{under} peaks at {bytes_text(best.peak_bytes)}{away}"
