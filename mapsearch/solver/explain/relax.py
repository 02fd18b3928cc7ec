"""The nearest relaxations: least HBM, least devices, a dropped rule; each is solved again before it is shown.

Contents: relaxations, described.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mapsearch.answer import Relaxation
from mapsearch.axes import Offload, Recompute
from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.views import Facts
from mapsearch.inventories.mapping import Mapping
from mapsearch.relation import Relation
from mapsearch.solver.explain.leanest import Leanest, leanest
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import search

GROWTH = 12
"""Doublings of the outermost level that are tried: up to 4,096 times as many devices."""


def described(mapping: Mapping) -> str:
    """A mapping in a line: sizes, then choices that are not the plain ones."""
    m = mapping.model_dump()
    grids = f"TP{m['tp']} CP{m['cp']} DP{m['dp']} PP{m['pp']} | ETP{m['etp']} EP{m['ep']} EDP{m['edp']}"
    choices = f"{m['schedule']}, recompute {m['recompute']}, ZeRO-{m['zero']}"
    return f"{grids}, {choices}" + (f", offload {m['offload']}" if m["offload"] != "none" else "")


def fits(problem: Problem) -> Leanest | None:
    """The leanest mapping of a problem when it satisfies every relation, else None."""
    best = leanest(problem)
    if best is None or best.peak_bytes > usable_hbm_bytes(problem.facts):
        return None
    joined = [r for r in problem.side("pair") if r.name not in ("hbm", "host_memory")]
    return best if not joined or search(problem, 1).top else None


def _shown(lever: str, relation: str, before: float, after: float, unit: str, best: Leanest) -> Relaxation:
    return Relaxation(
        lever=lever,
        relation=relation,
        from_value=before,
        to_value=after,
        unit=unit,
        mapping=described(mapping_of(best.candidate)),
        step_time_s=best.candidate.step_time_s,
    )


def relaxations(problem: Problem, core: list[Relation]) -> tuple[list[Relaxation], list[str]]:
    """Relaxations of one lever each, smallest change first, and notes on levers that do not help."""
    names = {relation.name for relation in core}
    found: list[Relaxation] = []
    notes: list[str] = []
    if names & {"hbm", "host_memory"}:
        found += [r for r in (more_hbm(problem), *other_choices(problem)) if r]
        grown = more_devices(problem)
        found += [grown] if grown else []
        if not grown:
            notes.append(f"no number of devices up to {problem.facts.fabric.devices << GROWTH:,} makes it fit")
    found += [r for r in (dropped(problem, relation) for relation in core if relation.name != "hbm") if r]
    return found, notes


def more_hbm(problem: Problem) -> Relaxation | None:
    """The least HBM per device with which something fits."""
    best = leanest(problem.without("hbm"))
    if best is None:
        return None
    facts = problem.facts
    before = facts.fabric.device.hbm_bytes
    after = best.peak_bytes / (1.0 - facts.run.reserve) + facts.profile.runtime_bytes
    solved = fits(problem_of(with_hbm(facts, after * (1.0 + 1e-12))))
    if solved is None:
        return None
    return _shown(f"HBM per device {before / 1e9:,.0f} -> {after / 1e9:,.1f} GB", "hbm", before, after, "bytes", solved)


def with_hbm(facts: Facts, hbm_bytes: float) -> Facts:
    """The same facts with another amount of HBM per device."""
    device = replace(facts.fabric.device, hbm_bytes=hbm_bytes)
    return replace(facts, fabric=replace(facts.fabric, device=device))


def with_outer_units(facts: Facts, units: int) -> Facts:
    """The same facts with another number of units at the outermost level."""
    *inner, outer = facts.fabric.levels
    return replace(facts, fabric=replace(facts.fabric, levels=(*inner, replace(outer, size=units, dims=()))))


def more_devices(problem: Problem) -> Relaxation | None:
    """The least number of devices, as whole units of the outermost level, with which something fits."""
    facts = problem.facts
    outer = facts.fabric.levels[-1].size
    inner = facts.fabric.devices // outer
    low, solved, high = outer, None, outer
    for _ in range(GROWTH):
        high *= 2
        solved = fits(problem_of(with_outer_units(facts, high)))
        if solved:
            break
        low = high
    if solved is None:
        return None
    for units in _between(low, high):
        nearer = fits(problem_of(with_outer_units(facts, units)))
        if nearer:
            high, solved = units, nearer
            break
    before, after = facts.fabric.devices, inner * high
    return _shown(f"devices {before:,} -> {after:,}", "hbm", before, after, "devices", solved)


def _between(low: int, high: int) -> Iterator[int]:
    """A few round numbers of units strictly between two powers: quarters of the interval, ascending."""
    step = max(1, (high - low) // 4)
    return iter(range(low + step, high, step))


def other_choices(problem: Problem) -> list[Relaxation]:
    """Choices that the run does not offer and that alone make something fit: full recompute, ZeRO-3, offload."""
    run = problem.facts.run
    wishes = {
        "recompute": ("full", Recompute.FULL, "full recompute"),
        "zero": (3, 3, "ZeRO-3"),
        "offload": ("optimizer", Offload.OPTIMIZER, "optimizer offload"),
    }
    found = []
    for axis, (word, code, label) in wishes.items():
        offered = getattr(run, axis)
        if int(code) in [int(value) for value in offered]:
            continue
        wider = run.replaced(**{axis: [*run.model_dump()[axis], word]})
        solved = fits(problem_of(replace(problem.facts, run=wider)))
        if solved:
            found.append(_shown(f"allow {label}", "hbm", 0.0, 1.0, "choices", solved))
    return found


def dropped(problem: Problem, relation: Relation) -> Relaxation | None:
    """What fits when one relation is dropped."""
    solved = fits(problem.without(relation.name))
    return _shown(f"without: {relation.words}", relation.name, 0.0, 1.0, relation.unit, solved) if solved else None
