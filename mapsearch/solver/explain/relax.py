"""The nearest relaxations: least HBM, least devices, another choice, a dropped rule; each is solved again first.

Contents: relaxations, described, rounded_up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mapsearch.answer import Relaxation
from mapsearch.axes import USUAL_OVERLAP, Offload, Recompute
from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.views import Facts
from mapsearch.inventories.mapping import Mapping
from mapsearch.relation import Relation
from mapsearch.solver.explain.leanest import floor_bytes
from mapsearch.solver.explain.probe import MEMORY, Probe, certified
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import Candidate, search

GROWTH = 12
"""Doublings of the outermost level that are tried: up to 4,096 times as many devices."""
COUNTS = 32
"""Counts that are tried between the last doubling that does not fit and the first that does."""


def described(mapping: Mapping) -> str:
    """A mapping in a line: sizes, then choices that are not the plain ones."""
    m = mapping.model_dump()
    grids = f"TP{m['tp']} CP{m['cp']} DP{m['dp']} PP{m['pp']} | ETP{m['etp']} EP{m['ep']} EDP{m['edp']}"
    choices = f"{m['schedule']}, recompute {m['recompute']}, ZeRO-{m['zero']}"
    choices += f", offload {m['offload']}" if m["offload"] != "none" else ""
    return f"{grids}, {choices}" + (f", overlap {m['overlap']}" if m["overlap"] not in (None, USUAL_OVERLAP) else "")


def rounded_up(value: float, digits: int = 5) -> float:
    """The least number of so many significant digits that is not smaller."""
    if value <= 0.0:
        return value
    place = digits - 1 - math.floor(math.log10(value))
    return float(
        math.ceil(value * 10.0**place) / 10.0**place if place >= 0 else math.ceil(value / 10**-place) * 10**-place
    )


def relaxations(probe: Probe, core: list[Relation]) -> Iterator[Relaxation | str]:
    """Relaxations of one lever each as they are found, and notes on levers that do not help."""
    problem = probe.problem
    names = {relation.name for relation in core}
    if names & set(MEMORY):
        yield from _found(more_hbm(probe))
        yield from other_choices(probe)
        if all(name in MEMORY for name in (r.name for r in core if r.side == "pair")):
            most = problem.facts.fabric.devices << GROWTH
            yield more_devices(probe) or f"no number of devices up to {most:,} that was tried makes it fit"
    for relation in core:
        if relation.name != "hbm":
            yield from _found(dropped(probe, relation))


def _found(relaxation: Relaxation | None) -> Iterator[Relaxation]:
    if relaxation is not None:
        yield relaxation


def _shown(
    problem: Problem, candidate: Candidate | None, lever: str, relation: str, before: float, after: float, unit: str
) -> Relaxation | None:
    """A relaxation with what then fits; None when nothing does, or when its estimate does not agree."""
    if candidate is None or not certified(problem, candidate):
        return None
    return Relaxation(
        lever=lever,
        relation=relation,
        from_value=before,
        to_value=after,
        unit=unit,
        mapping=described(mapping_of(candidate)),
        step_time_s=candidate.step_time_s,
    )


def more_hbm(probe: Probe) -> Relaxation | None:
    """The least HBM per device with which something fits, rounded up to five digits."""
    best, facts = probe.leanest(probe.problem.relations), probe.problem.facts
    if best is None or best.peak_bytes <= usable_hbm_bytes(facts):
        return None
    before = facts.fabric.device.hbm_bytes
    after = rounded_up(best.peak_bytes / (1.0 - facts.run.reserve) + facts.profile.runtime_bytes)
    relaxed = problem_of(with_hbm(facts, after))
    joined = any(relation.name not in MEMORY for relation in relaxed.side("pair"))
    solved = probe.fits(relaxed) if joined else best.candidate
    lever = f"HBM per device {before / 1e9:,.5g} -> {after / 1e9:,.5g} GB"
    return _shown(relaxed, solved, lever, "hbm", before, after, "bytes")


def with_hbm(facts: Facts, hbm_bytes: float) -> Facts:
    """The same facts with another amount of HBM per device."""
    device = replace(facts.fabric.device, hbm_bytes=hbm_bytes)
    return replace(facts, fabric=replace(facts.fabric, device=device))


def with_outer_units(facts: Facts, units: int) -> Facts:
    """The same facts with another number of units at the outermost level."""
    *inner, outer = facts.fabric.levels
    return replace(facts, fabric=replace(facts.fabric, levels=(*inner, replace(outer, size=units, dims=()))))


def more_devices(probe: Probe) -> Relaxation | None:
    """The fewest devices, as whole units of the outermost level, with which something fits.

    Counts too few for the model states alone are skipped. The rest is tried by doubling; then, between the last
    doubling that does not fit and the first that does, in ascending order: all counts, or 32 evenly spaced ones.
    """
    facts = probe.problem.facts
    outer = facts.fabric.levels[-1].size
    inner = facts.fabric.devices // outer
    for units in tried_units(probe, outer, inner):
        grown = problem_of(with_outer_units(facts, units))
        if probe.fits(grown):
            before, after = facts.fabric.devices, inner * units
            return _shown(
                grown, probe.fastest(grown), f"devices {before:,} -> {after:,}", "hbm", before, after, "devices"
            )
    return None


def tried_units(probe: Probe, outer: int, inner: int) -> Iterable[int]:
    """Units of the outermost level to try, ascending; empty when no doubling fits."""
    facts, limit = probe.problem.facts, usable_hbm_bytes(probe.problem.facts)
    low = outer
    for doubling in range(1, GROWTH + 1):
        high = outer << doubling
        if floor_bytes(probe.problem, inner * high) <= limit and probe.fits(problem_of(with_outer_units(facts, high))):
            step = -(-(high - low) // COUNTS)
            between = range(low + step, high, step)
            return [*(u for u in between if floor_bytes(probe.problem, inner * u) <= limit), high]
        low = high
    return []


def other_choices(probe: Probe) -> Iterator[Relaxation]:
    """Choices that the run does not offer and that alone make something fit: full recompute, ZeRO-3, offload, and less
    overlap."""
    run = probe.problem.facts.run
    wishes = {
        "recompute": ("full", Recompute.FULL, "full recompute"),
        "zero": (3, 3, "ZeRO-3"),
        "offload": ("optimizer", Offload.OPTIMIZER, "optimizer offload"),
    }
    for axis, (word, code, label) in wishes.items():
        if int(code) in [int(value) for value in getattr(run, axis)]:
            continue
        yield from _allowed(probe, label, **{axis: [*run.model_dump()[axis], word]})
    flags = {"expert_all_to_all": "expert all-to-alls", "param_gather": "parameter gathers"}
    useful = {"expert_all_to_all": probe.problem.facts.model.moe is not None, "param_gather": 3 in run.zero}
    for flag, label in flags.items():
        if useful[flag] and getattr(run.overlap, flag) is True:
            told = run.overlap.model_dump() | {flag: [True, False]}
            yield from _allowed(probe, f"{label} without overlap", overlap=told)


def _allowed(probe: Probe, label: str, **wider: object) -> Iterator[Relaxation]:
    """What fits when the run offers more."""
    facts = probe.problem.facts
    problem = problem_of(replace(facts, run=facts.run.replaced(**wider)))
    yield from _found(_shown(problem, probe.fits(problem), f"allow {label}", "hbm", 0.0, 1.0, "choices"))


def dropped(probe: Probe, relation: Relation) -> Relaxation | None:
    """What fits when one relation is dropped: the fastest mapping where the rule was a wish, else the leanest."""
    rest = probe.problem.without(relation.name)
    candidate = probe.fits(rest)
    if candidate is not None and relation.origin in ("user", "placement"):
        candidate = next(iter(search(rest, 1, deadline=probe.deadline).top), candidate)
    return _shown(rest, candidate, f"without: {relation.words}", relation.name, 0.0, 1.0, "rules")
