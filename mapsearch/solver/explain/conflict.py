"""Why nothing fits: a minimal conflict among relations, what each relation rejects, and relaxations that work.

Contents: explain_infeasible, minimal_conflict, conflict_of.

A conflict is a set of relations that no mapping satisfies together while every proper subset of it can be satisfied
(FORMULAS 7.2). It is grown from the front of a list, so that what nobody can change is blamed before what a user asked
for. Relations that need a layout of layers (memory, exposure) count as broken by a mapping that has none.
"""

from __future__ import annotations

from collections.abc import Callable

from mapsearch.answer import Conflict, Relaxation
from mapsearch.constraints.capacity import bytes_text, usable_hbm_bytes
from mapsearch.relation import Relation
from mapsearch.solver.explain.probe import OutOfTime, Probe
from mapsearch.solver.explain.relax import relaxations
from mapsearch.solver.explain.states import states_sentence
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import mapping_of

BLAME = ("physics", "topology", "placement")
"""Origins in the order of blame; frameworks follow, and the user's own constraints come last."""
WHOSE = {
    "physics": "",
    "topology": "the cluster: ",
    "placement": "the run's placement: ",
    "user": "your constraint: ",
}


def minimal_conflict(problem: Problem, probe: Probe | None = None) -> list[Relation]:
    """Relations that no mapping satisfies together and every proper subset of which some mapping does.

    Empty when the problem can be satisfied after all.
    """
    asked = probe or Probe(problem)
    alone = [relation for relation in problem.relations if relation.side != "pair"]
    pool = alone if not asked.satisfiable(alone) else [*problem.side("pair"), *sorted(alone, key=_blame)]
    core = _shrunk(sorted(pool, key=_blame) if pool is alone else pool, asked.satisfiable)
    order = [relation.name for relation in problem.relations]
    return sorted(core, key=lambda relation: order.index(relation.name))


def _blame(relation: Relation) -> int:
    if relation.origin in BLAME:
        return BLAME.index(relation.origin)
    return len(BLAME) + (relation.origin == "user")


def _shrunk(pool: list[Relation], satisfiable: Callable[[list[Relation]], bool]) -> list[Relation]:
    """A minimal conflict within a pool: the last relation of its shortest conflicting start is in it, and so on."""
    core: list[Relation] = []
    while satisfiable(core):
        low, high, step = 0, 1, 1
        while high <= len(pool) and satisfiable([*core, *pool[:high]]):
            low, step = high, 2 * step
            high = min(low + step, len(pool)) if low < len(pool) else len(pool) + 1
        if high > len(pool):
            return []
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if satisfiable([*core, *pool[:middle]]) else (low, middle)
        core, pool = [*core, pool[high - 1]], pool[: high - 1]
    return core


def explain_infeasible(
    problem: Problem, deadline: float | None = None
) -> tuple[list[Conflict], list[Relaxation], dict[str, int], list[str]]:
    """A minimal conflict, relaxations that were solved again, the rejection tally, and notes.

    When the time ends, or the user stops it, what was found until then is returned with a note.
    """
    probe = Probe(problem, deadline)
    conflicts: list[Conflict] = []
    found: list[Relaxation] = []
    tally: dict[str, int] = {}
    notes: list[str] = []
    try:
        tally = probe.masks.rejections()
        core = minimal_conflict(problem, probe)
        conflicts.append(conflict_of(probe, core))
        tally |= _too_large(probe, core)
        notes += _remarks(problem, core)
        for answer in relaxations(probe, core):
            found += [answer] if isinstance(answer, Relaxation) else []
            notes += [answer] if isinstance(answer, str) else []
    except OutOfTime:
        notes.append("the time limit ended the explanation early: more changes may help")
    except KeyboardInterrupt:
        notes.append("interrupted: the explanation is not complete, and more changes may help")
    return conflicts, found, tally, notes


def conflict_of(probe: Probe, core: list[Relation]) -> Conflict:
    """A conflict in words."""
    return Conflict(
        relations=[relation.name for relation in core],
        sentences=[_sentence(probe, relation, core) for relation in core],
    )


def _too_large(probe: Probe, core: list[Relation]) -> dict[str, int]:
    """Cells that the rules allow and of which no pair of options fits into HBM, where that is the conflict."""
    best = probe.leanest(probe.problem.relations) if [r.name for r in core] == ["hbm"] else None
    return {"hbm": int((best.floors > usable_hbm_bytes(probe.problem.facts)).sum())} if best else {}


def _remarks(problem: Problem, core: list[Relation]) -> list[str]:
    """Says so when nothing but the user's own constraints conflict."""
    if not core or any(relation.origin != "user" for relation in core):
        return []
    fabric = problem.facts.fabric
    levels = " x ".join(str(size) for size in fabric.fan_outs)
    return [f"only your own constraints conflict; {fabric.name} has {fabric.devices:,} devices ({levels}) to cut"]


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
