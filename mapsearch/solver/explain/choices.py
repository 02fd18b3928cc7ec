"""Relaxations that are no numbers: choices that the run does not offer, other precision, rules that are dropped.

Contents: choice_axes, other_choices, less_overlap, more_overlap, other_precision, dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mapsearch.answer import Relaxation
from mapsearch.axes import WORDS
from mapsearch.inventories.recipes import FP8_RECIPES
from mapsearch.relation import Relation
from mapsearch.solver.explain.hitting import Hitting, TooMany, members
from mapsearch.solver.explain.probe import MEMORY, Probe
from mapsearch.solver.explain.relax import shown, with_run
from mapsearch.solver.problem import problem_of

OFFERS: dict[str, tuple[Any, ...]] = {
    "recompute": ("norm+activation", "core-attention", "moe", "norm+activation+moe", "full"),
    "zero": (0, 1, 2, 3),
    "offload": ("optimizer", "activations", "optimizer+activations", "optimizer+nvme"),
    "micro_batch": tuple(range(1, 9)),
    "schedule": ("1f1b", "interleaved", "zb-h1", "zb-v", "zb-2p", "dualpipe", "dualpipe-v", "gpipe"),
    "vpp": (1, 2, 3, 4, 5, 6, 8),
    "cp_kind": ("ring", "all-gather", "ulysses", "hybrid"),
    "dispatcher": ("all-to-all", "fixed-all-to-all", "all-gather", "deduplicated"),
}
"""Values of each choice that are tried one by one, those that cost least first; the first that helps is told."""
STRONGEST = {"recompute": ("full",), "zero": (3,), "offload": ("optimizer",)}
"""What is tried where the answer should come at once and memory conflicts."""
FOR_MEMORY = frozenset(("recompute", "zero", "offload", "micro_batch", "schedule"))
FOR_EXPOSURE = frozenset(("dispatcher", "schedule", "cp_kind"))
LABELS = {"recompute": "{} recompute", "zero": "ZeRO-{}", "offload": "{} offload"}
MOST_DROPPED = 3
"""Rules that are dropped together at most."""
MOST_SETS = 5
"""Sets of rules that are dropped at most, the smallest first."""


def other_choices(probe: Probe, cores: list[list[Relation]], *, thorough: bool) -> Iterator[Relaxation]:
    """Choices that the run does not offer and that alone make something fit."""
    axes = choice_axes(cores)
    rules_only = all(relation.side != "pair" for core in cores for relation in core)
    for axis in axes:
        tried = OFFERS[axis] if thorough or rules_only else STRONGEST.get(axis, ())
        found = _first_that_helps(probe, axis, tried)
        if found is not None:
            yield found
    if all(any(r.name in MEMORY or r.name == "megatron_expert_overlap" for r in core) for core in cores):
        yield from less_overlap(probe)
    if thorough and all(any(r.name.startswith("exposed") for r in core) for core in cores):
        yield from more_overlap(probe)


def choice_axes(cores: list[list[Relation]]) -> list[str]:
    """Choices that may ease a relation of every conflict."""
    shared = frozenset.intersection(*map(_axes, cores))
    return [axis for axis in OFFERS if axis in shared]


def _axes(core: list[Relation]) -> frozenset[str]:
    """Choices that may ease a relation of a conflict."""
    axes = {lever for relation in core for lever in relation.levers if lever in OFFERS}
    if any(relation.name in MEMORY for relation in core):
        axes |= FOR_MEMORY
    if any(relation.name.startswith("exposed") for relation in core):
        axes |= FOR_EXPOSURE
    return frozenset(axes)


def _first_that_helps(probe: Probe, axis: str, words: tuple[Any, ...]) -> Relaxation | None:
    facts = probe.problem.facts
    offered = probe.problem.candidates[axis]
    for word in words:
        code = WORDS[axis].read(word) if axis in WORDS else word
        if code in offered:
            continue
        wider = with_run(facts, **{axis: [*facts.run.model_dump()[axis], word]})
        found = _changed(probe, wider, axis, str(word), f"allow {LABELS.get(axis, f'{axis} {{}}').format(word)}")
        if found is not None:
            return found
    return None


def _changed(probe: Probe, facts: Any, name: str, choice: str, lever: str) -> Relaxation | None:
    problem = problem_of(facts)
    if probe.fits(problem) is None:
        return None
    return shown(
        problem,
        probe.fastest(problem),
        name=name,
        relation="",
        lever=lever,
        choice=choice,
        from_value=0.0,
        to_value=1.0,
        unit="choices",
    )


def less_overlap(probe: Probe) -> Iterator[Relaxation]:
    """Communication that takes memory to hide, where the search may then leave it exposed."""
    facts = probe.problem.facts
    flags = {"expert_all_to_all": "expert all-to-alls", "param_gather": "parameter gathers"}
    useful = {"expert_all_to_all": facts.model.moe is not None, "param_gather": 3 in facts.run.zero}
    for flag, label in flags.items():
        if useful[flag] and getattr(facts.run.overlap, flag) is True:
            told = {**facts.run.overlap.model_dump(), flag: [True, False]}
            changed = with_run(facts, overlap=told)
            found = _changed(probe, changed, f"overlap.{flag}", "either", f"allow {label} without overlap")
            if found is not None:
                yield found


def more_overlap(probe: Probe) -> Iterator[Relaxation]:
    """Communication that the framework does not hide and that would be exposed less if it did."""
    facts = probe.problem.facts
    hidden = facts.run.overlap.model_dump(exclude={"sources"})
    for name in sorted(name for name, value in hidden.items() if value is False):
        changed = with_run(facts, overlap={**hidden, name: True})
        found = _changed(probe, changed, f"overlap.{name}", "true", f"overlap {name.replace('_', ' ')}")
        if found is not None:
            yield found


def other_precision(probe: Probe) -> Iterator[Relaxation]:
    """Smaller model states: gradients and moments in 16 bits, weights in FP8; both of the first where neither helps."""
    facts = probe.problem.facts
    state = facts.run.state
    smaller = {"gradient_bytes": 2.0, "moment_bytes": 4.0}
    labels = {"gradient_bytes": "gradients in 16 bits", "moment_bytes": "moments in 16 bits"}
    changes: list[tuple[str, dict[str, Any]]] = [
        (labels[name], {"state": {name: value}}) for name, value in smaller.items() if getattr(state, name) > value
    ]
    if len(changes) == len(smaller):
        changes.append(("gradients and moments in 16 bits", {"state": smaller}))
    if "fp8" in facts.fabric.device.peak_flops and not state.fp8_primary_weights and not facts.run.fp4:
        recipe = FP8_RECIPES["FP8 weights only"]
        kept = {name: getattr(recipe, name) for name in ("fp8_primary_weights", "fp8_weight_copies")}
        precision = facts.run.precision if facts.run.fp8 else "fp8-block"
        changes.append(("FP8 compute with weights kept in FP8 only", {"state": kept, "precision": precision}))
    helped = False
    for label, change in changes:
        if helped and label.startswith("gradients and moments"):
            continue
        run = {**change, "state": {**state.model_dump(), **change["state"]}}
        written = ", ".join(f"{name} {value}" for name, value in change["state"].items())
        found = _changed(probe, with_run(facts, **run), "state", written, label)
        helped = helped or found is not None
        if found is not None:
            yield found


def dropped(probe: Probe, cores: list[list[Relation]]) -> Iterator[Relaxation]:
    """Rules of the user, the placement or the framework that something fits without: as few as break every conflict."""
    rules = list(dict.fromkeys(r for core in cores for r in core if _may_be_dropped(r)))
    bits = {relation.name: 1 << place for place, relation in enumerate(rules)}
    parts = [sum(bits.get(relation.name, 0) for relation in core) for core in cores]
    if not all(parts):
        return
    try:
        found = Hitting.of(parts).sets
    except TooMany:
        return
    few = sorted((one.bit_count(), one) for one in found if one.bit_count() <= MOST_DROPPED)
    for _, one in few[:MOST_SETS]:
        chosen = [rules[place] for place in members(one)]
        relaxation = without(probe, chosen)
        if relaxation is not None:
            yield relaxation


def _may_be_dropped(relation: Relation) -> bool:
    return relation.origin not in ("physics", "topology") or relation.name.startswith("exposed")


def without(probe: Probe, rules: list[Relation]) -> Relaxation | None:
    """What fits when some rules are dropped."""
    names = [relation.name for relation in rules]
    rest = probe.problem.without(*names)
    if probe.fits(rest) is None:
        return None
    return shown(
        rest,
        probe.fastest(rest),
        name="rules",
        relation=names[0],
        lever=f"without: {'; '.join(relation.words for relation in rules)}",
        dropped=names,
        from_value=0.0,
        to_value=float(len(names)),
        unit="rules",
    )
