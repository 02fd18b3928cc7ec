"""Why not that one: what a mapping breaks and its nearest legal edit, or what it loses and when it would win.

Contents: why_not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mapsearch.answer import Margin, RankedMapping
from mapsearch.axes import written
from mapsearch.comparing import gains_and_losses, terms
from mapsearch.costs.estimate import layout_trouble, point_of
from mapsearch.errors import InputError
from mapsearch.explaining.levers import SAME
from mapsearch.explaining.ranking import Listed, listed_of
from mapsearch.explaining.wins import wins
from mapsearch.explaining.wishes import Wish
from mapsearch.explanation import WhyNot
from mapsearch.inventories.mapping import Mapping
from mapsearch.relation import Side
from mapsearch.solver.alternatives import fastest
from mapsearch.solver.explain.binding import difference
from mapsearch.solver.explain.conflict import minimal_conflict
from mapsearch.solver.explain.edits import smallest_corrections
from mapsearch.solver.explain.probe import Probe
from mapsearch.solver.explain.sentences import conflict_of
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import KEY, key_of_mapping, mapping_of, margins, ranked_mapping

EDITS = 4
"""Smallest edits that are compared: the one with the fastest mapping is shown."""
UNRANKED = 0


@dataclass(frozen=True)
class Asked:
    """The question: the problem, its fastest mappings (the winner first), and the wish."""

    problem: Problem
    top: list[Listed]
    winner: RankedMapping | None
    wish: Wish
    deadline: float | None

    def judged(self, mapping: Mapping) -> RankedMapping:
        """A mapping with everything that is estimated of it; its rank where it is a listed one."""
        key = key_of_mapping(mapping, self.problem.facts)
        rank = next((place for place, one in enumerate(self.top, 1) if one.key == key), UNRANKED)
        return ranked_mapping(rank, point_of(mapping, self.problem.facts), self.problem.relations)


def why_not(asked: Asked) -> WhyNot:
    """Why a wish is not the answer. Raises OutOfTime when that was not found in time."""
    wish = asked.wish
    about: dict[str, Any] = {"wish": wish.text, "complete": wish.mapping is not None}
    placed, broken = _as_placed(asked.problem, wish.mapping)
    if wish.mapping is not None and placed:
        return _slower(asked, wish.mapping, about)
    about["broken"] = broken
    granted = fastest(wish.granted(asked.problem), asked.deadline)
    if granted is not None:
        return _slower(asked, mapping_of(granted), about)
    return _impossible(asked, about)


def _as_placed(problem: Problem, mapping: Mapping | None) -> tuple[bool, list[Margin]]:
    """Whether a whole mapping holds every relation where it is placed, and those that it breaks."""
    if mapping is None:
        return False, []
    try:
        point = point_of(mapping, problem.facts)
    except InputError as trouble:
        said = {"relation": "fabric", "demand": 1.0, "limit": 0.0, "unit": "broken rules", "margin": -1.0}
        return False, [Margin(**said, origin="topology", reason=trouble.problem)]
    sides: tuple[Side, ...] | None = ("cell", "attention", "expert") if layout_trouble(point) else None
    found = [margin for margin in margins(point, problem.relations, sides=sides) if margin.margin < 0.0]
    return not found and sides is None, found


def _slower(asked: Asked, mapping: Mapping, about: dict[str, Any]) -> WhyNot:
    """A mapping that fits, beside the winner."""
    mine, winner = asked.judged(mapping), asked.winner
    sentences = _moved(about["broken"]) if about.get("broken") else []
    if winner is None:
        # Only what the run does not offer fits.
        alone = f"it fits and takes {mine.step_time_s:,.4g} s; nothing that the run offers fits"
        return WhyNot(**about, mapping=mine, sentences=[*sentences, alone])
    slower_by = mine.step_time_s / winner.step_time_s - 1.0
    about |= {
        "mapping": mine,
        "slower_by": slower_by,
        "step_time_s": terms(
            [winner.breakdown_s, mine.breakdown_s], [winner.step_time_s, mine.step_time_s], "step time"
        ),
        "memory_bytes": terms(
            [winner.memory_bytes, mine.memory_bytes], [winner.peak_memory_bytes, mine.peak_memory_bytes], "peak"
        ),
    }
    key = key_of_mapping(mapping, asked.problem.facts)
    best = asked.top[0].key
    if key == best and slower_by <= SAME:
        return WhyNot(**{**about, "slower_by": 0.0}, sentences=[*sentences, "it is the fastest mapping"])
    than = "longer than the fastest mapping" if slower_by >= 0.0 else "shorter than the fastest that the run offers"
    sentences.append(
        f"it fits and takes {mine.step_time_s:,.4g} s, {100.0 * abs(slower_by):.3g} % {than}: {difference(key, best)}"
    )
    sentences.append(_largest(about["step_time_s"]))
    if key == best or slower_by < 0.0:
        return WhyNot(**about, sentences=sentences)
    return WhyNot(**about, wins=wins(asked.problem, asked.top, mapping, asked.deadline), sentences=sentences)


def _moved(broken: list[Margin]) -> list[str]:
    return [*(margin.reason for margin in broken), "with these sizes and choices another placement fits"]


def _largest(parts: list[Any]) -> str:
    """The parts of the step that make most of the difference."""
    spends, saves = gains_and_losses(parts, 3, 2)
    return "it " + " and ".join([f"spends more on {spends}"] * bool(spends) + [f"saves {saves}"] * bool(saves))


def _impossible(asked: Asked, about: dict[str, Any]) -> WhyNot:
    """A wish that no mapping grants: the conflict, and the nearest edit that can be granted."""
    problem = asked.wish.edited(asked.problem)
    probe = Probe(problem, asked.deadline)
    about["conflicts"] = [conflict_of(probe, minimal_conflict(problem, probe))]
    sentences = [margin.reason for margin in about.get("broken", [])]
    sentences += [text for text in about["conflicts"][0].sentences if text not in sentences]
    sentences.append(about["conflicts"][0].statement)
    candidate = _nearest(asked, problem, probe)
    if candidate is None:
        return WhyNot(**about, mapping=None, sentences=[*sentences, "nothing fits, whatever is changed of it"])
    edit = _edit(asked.wish, candidate)
    taken = asked.judged(candidate.mapping)
    sentences.append(f"the nearest that fits: {edit}; it takes {taken.step_time_s:,.4g} s")
    return WhyNot(**about, mapping=None, edit=edit, edited=taken, sentences=sentences)


def _nearest(asked: Asked, problem: Problem, probe: Probe) -> Listed | None:
    """The fastest mapping after one of the smallest edits; None when no edit makes anything fit."""
    names = {relation.name for relation in asked.wish.relations}
    soft = [relation for relation in problem.relations if relation.name in names]
    hard = [relation for relation in problem.relations if relation.name not in names]
    best: Listed | None = None
    for dropped in smallest_corrections(hard, soft, probe.satisfiable, EDITS):
        if len(dropped) == len(soft) and problem.candidates == asked.problem.candidates and asked.top:
            return asked.top[0]  # nothing of the wish is left
        rest = problem.without(*(rule.name for rule in dropped))
        found = fastest(rest, asked.deadline, math.inf if best is None else best.step_time_s)
        if found is not None and (best is None or found.order < (best.step_time_s, best.key)):
            best = listed_of(found)
    return best


def _edit(wish: Wish, candidate: Listed) -> str:
    """The values of the wish that the edited mapping does not have: `EP64 -> EP32`."""
    found = dict(zip(KEY, candidate.key, strict=True))
    kept = {axis: code for axis, code in wish.codes.items() if found[axis] != code}
    if not kept:
        return "another placement"
    return ", ".join(f"{axis} {written(axis, code)} -> {written(axis, found[axis])}" for axis, code in kept.items())
