"""Why nothing fits: a minimal conflict among relations, what each relation rejects, and relaxations that work.

Contents: explain_infeasible, satisfiable, minimal_conflict.

Conflicts are found by deletion over the arrays (FORMULAS 7.2): a relation whose removal lets something fit stays.
What is left cannot be satisfied together, and every proper subset of it can. Relations of pure arithmetic
(divisibility) stay in force as background, unless they alone exclude everything.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mapsearch.answer import Conflict, Relaxation
from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.relation import Relation
from mapsearch.solver.explain.leanest import leanest
from mapsearch.solver.explain.relax import relaxations
from mapsearch.solver.explain.states import states_sentence
from mapsearch.solver.problem import Problem
from mapsearch.solver.search import rows_of, search
from mapsearch.solver.tables import (
    _axis,
    attention_view,
    cell_view,
    expert_view,
    grids,
    groups_at,
    holds,
)

MEMORY = ("hbm", "host_memory")
"""Pair relations that the leanest mapping answers without looking at times."""


def satisfiable(problem: Problem) -> bool:
    """Whether some mapping satisfies all relations of a problem."""
    names = {relation.name for relation in problem.side("pair")}
    if not names <= set(MEMORY):
        return bool(search(problem, 1).top)
    best = leanest(problem)
    if best is None:
        return False
    return "hbm" not in names or best.peak_bytes <= usable_hbm_bytes(problem.facts)


def minimal_conflict(problem: Problem) -> list[Relation]:
    """Relations that no mapping satisfies together and every proper subset of which some mapping does."""
    background = [r for r in problem.relations if r.origin == "physics" and r.side != "pair"]
    soft = [r for r in problem.relations if r not in background]
    if satisfiable(replace(problem, relations=tuple(background))):
        kept, base = soft, background
    else:
        kept, base = background, []
    for relation in list(kept):
        rest = [r for r in kept if r is not relation]
        if not satisfiable(replace(problem, relations=(*base, *rest))):
            kept = rest
    return kept


def rejections(problem: Problem) -> dict[str, int]:
    """How many cells or grid options each relation alone rejects; relations that reject none are left out."""
    counts: dict[str, int] = {}
    for used, row in rows_of(problem):
        for group in groups_at(problem, used, row)[:1]:
            attention, expert = grids(problem, group)
            dp = np.unique(attention.sizes[2])
            views = {
                "cell": cell_view(problem, group, _axis(dp, 0)),
                "attention": attention_view(cell_view(problem, group, _axis(attention.sizes[2], -1)), attention),
                "expert": expert_view(cell_view(problem, group, _axis([1], 0)), expert),
            }
            for relation in problem.relations:
                if relation.side in views:
                    broken = ~np.asarray(holds(relation, views[relation.side]))
                    counts[relation.name] = counts.get(relation.name, 0) + int(broken.sum())
    return {name: count for name, count in counts.items() if count}


def explain_infeasible(
    problem: Problem,
) -> tuple[list[Conflict], list[Relaxation], dict[str, int], list[str]]:
    """A minimal conflict, relaxations that were solved again, the rejection tally, and notes."""
    core = minimal_conflict(problem)
    conflict = Conflict(
        relations=[relation.name for relation in core], sentences=[_sentence(problem, relation) for relation in core]
    )
    found, notes = relaxations(problem, core)
    return [conflict], found, rejections(problem), notes


def _sentence(problem: Problem, relation: Relation) -> str:
    """One relation of a conflict in words, with its numbers where the leanest mapping has them."""
    if relation.name != "hbm":
        return f"{relation.words} ({relation.origin})"
    limit = usable_hbm_bytes(problem.facts)
    fabric, run = problem.facts.fabric, problem.facts.run
    offer = (
        f"{fabric.name} offers {limit / 1e9:,.1f} GB of {fabric.device.hbm_bytes / 1e9:,.0f} GB per device after "
        f"context and {run.reserve:.0%} reserve"
    )
    best = leanest(problem.without("hbm"))
    least = f"; the leanest mapping peaks at {best.peak_bytes / 1e9:,.1f} GB" if best else ""
    return f"{states_sentence(problem.facts)}; {offer}{least}"
