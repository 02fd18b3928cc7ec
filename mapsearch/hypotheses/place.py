"""H2, H3: what stays in the high-bandwidth domain, and when to use pipeline stages and their chunks.

Contents: PLACE.
"""

from __future__ import annotations

import math

from mapsearch.axes import Hidden, Schedule
from mapsearch.constraints.placement import stays_inside
from mapsearch.constraints.user import asked_for
from mapsearch.guideline import Guideline
from mapsearch.hypotheses.trial import Rule, Trial, bounded, inapplicable, judged, product_bounded
from mapsearch.relation import Relation
from mapsearch.solver.options import divisors
from mapsearch.solver.ranking import KEY
from mapsearch.solver.top import Candidate

_GUIDE = "Megatron Core MoE guide, step 2 (FORMULAS 2.2)"
NO_DOMAIN = "no level of the cluster is marked high_bandwidth"


def _domain(trial: Trial) -> int:
    """Devices of one high-bandwidth domain."""
    fabric = trial.facts.fabric
    return math.prod(fabric.fan_outs[: fabric.domain_levels])


def _inside(trial: Trial, axes: tuple[str, ...]) -> list[Relation]:
    """Each of some axes inside one domain, and the groups of all of them together."""
    fabric, devices = trial.facts.fabric, _domain(trial)
    own = [stays_inside(axis, fabric.domain_levels, fabric, "placement") for axis in axes]
    return [*own, product_bounded(axes, most=devices)]


def _in_domain(*axes: str) -> Rule:
    word = " x ".join(axis.upper() for axis in axes)

    def ask(trial: Trial, rule: Rule) -> Guideline:
        fabric = trial.facts.fabric
        if not fabric.domain_levels:
            return inapplicable(rule, NO_DOMAIN)
        if "ep" in axes and not trial.facts.model.moe:
            return inapplicable(rule, "the model has no experts")
        rules = _inside(trial, axes)
        unit = fabric.levels[fabric.domain_levels - 1].name
        free = trial.fastest(free=[one.name for one in rules])
        words = f"{word} inside one {unit} of {_domain(trial)} devices", "that free"
        return judged(trial, rule, trial.fastest(*rules), free, words=words)

    return Rule(f"{word} inside", f"keep {word} inside the high-bandwidth domain", f"H2 under folding: {_GUIDE}", ask)


def _merged(trial: Trial, rule: Rule) -> Guideline:
    """The stated exception of H2: where EP leaves the domain, its all-to-all has to hide."""
    if not trial.facts.model.moe:
        return inapplicable(rule, "the model has no experts")
    if not trial.facts.fabric.domain_levels:
        return inapplicable(rule, NO_DOMAIN)
    outside = product_bounded(("etp", "ep"), least=_domain(trial) + 1)
    codes = trial.problem.candidates["overlap"]
    hidden = tuple(dict.fromkeys(code | Hidden.EXPERT_ALL_TO_ALL for code in codes))
    bare = tuple(dict.fromkeys(code & ~Hidden.EXPERT_ALL_TO_ALL for code in codes))
    follows, breaks = (trial.fastest(outside, offered={"overlap": lists}) for lists in (hidden, bare))
    words = "the all-to-all behind another microbatch", "in line"
    return judged(trial, rule, follows, breaks, words=words)


def _stages(trial: Trial, rule: Rule) -> Guideline:
    devices = trial.facts.fabric.devices
    if devices <= _domain(trial):
        return inapplicable(rule, f"all {devices:,} devices are in one high-bandwidth domain")
    follows, breaks = trial.fastest(bounded("pp", least=2)), trial.fastest(bounded("pp", most=1))
    return judged(trial, rule, follows, breaks, words=("PP 2 or more", "PP 1"))


def _chunks(trial: Trial, rule: Rule) -> Guideline:
    several = bounded("pp", least=2)
    offered = {"schedule": (*_others(trial), int(Schedule.INTERLEAVED))}
    follows = trial.fastest(several, bounded("vpp", least=2), offered=offered)
    breaks = trial.fastest(several, bounded("vpp", most=1))
    return judged(trial, rule, follows, breaks, words=("PP 2 or more with VPP", "without VPP"))


def _others(trial: Trial) -> tuple[int, ...]:
    return tuple(code for code in trial.problem.candidates["schedule"] if code != Schedule.INTERLEAVED)


def _middle(trial: Trial, rule: Rule) -> Guideline:
    """Of the VPP values that divide the layers of a stage, those between the ends against the ends."""
    several = trial.fastest(bounded("pp", least=2))
    if several is None:
        return inapplicable(rule, "nothing that fits has PP 2 or more")
    stages, layers = int(several.key[KEY.index("pp")]), trial.facts.model.layers
    values = divisors(layers // stages) if layers % stages == 0 else ()
    if len(values) < 3:
        return inapplicable(rule, f"{layers} layers on PP {stages} leave {len(values)} values of VPP, and no middle")

    def best(some: tuple[int, ...]) -> Candidate | None:
        found = []
        for value in some:
            schedule = _others(trial) if value == 1 else (int(Schedule.INTERLEAVED),)
            offered = {"vpp": (value,), "schedule": schedule or (int(Schedule.ONE_F_ONE_B),)}
            found.append(trial.fastest(asked_for("pp", stages), bounded("vpp", least=value), offered=offered))
        return min((one for one in found if one is not None), key=lambda one: one.order, default=None)

    ends = f"{values[0]} or {values[-1]}"
    words = f"VPP {', '.join(map(str, values[1:-1]))} on PP {stages}", f"VPP {ends}"
    return judged(trial, rule, best(values[1:-1]), best((values[0], values[-1])), words=words)


PLACE = (
    _in_domain("etp", "ep"),
    _in_domain("tp", "cp"),
    Rule("merged 1F1B beyond", "where ETP x EP leaves the domain, hide its all-to-all behind another microbatch",
         f"H2, the exception for DeepSeek-V3: {_GUIDE}", _merged),
    Rule("PP across nodes", "use PP when the devices are more than one domain", f"H3: {_GUIDE}", _stages),
    Rule("VPP with PP", "use VPP when PP is 2 or more", f"H3: {_GUIDE}", _chunks),
    Rule("middle VPP", "of the VPP values that divide a stage's layers, take a middle one", f"H3: {_GUIDE}", _middle),
)  # fmt: skip
