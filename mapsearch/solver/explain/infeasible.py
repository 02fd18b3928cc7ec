"""Why nothing fits, all of it: conflicts, what each relation rejects, and relaxations that were solved again.

Contents: Infeasibility, explain_infeasible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mapsearch.answer import Conflict, JointRelaxation, Relaxation
from mapsearch.solver.explain.conflict import Enumeration, minimal_conflicts
from mapsearch.solver.explain.joint import cheapest, check_weights
from mapsearch.solver.explain.levers import relaxations
from mapsearch.solver.explain.probe import OutOfTime, Probe
from mapsearch.solver.explain.sentences import conflict_of
from mapsearch.solver.explain.tally import Tally, tally_of
from mapsearch.solver.problem import Problem

FEW = 3
"""Conflicts that are looked for where the answer should come at once; one where exposure is limited, whose every
question is a search."""


@dataclass
class Infeasibility:
    """What is known of why nothing fits; the fields of an answer."""

    conflicts: list[Conflict] = field(default_factory=list)
    conflicts_complete: bool = False
    relaxations: list[Relaxation] = field(default_factory=list)
    joint: JointRelaxation | None = None
    tally: Tally = field(default_factory=Tally)
    notes: list[str] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """The fields of an answer, notes left out."""
        return {
            "conflicts": self.conflicts,
            "conflicts_complete": self.conflicts_complete,
            "relaxations": self.relaxations,
            "joint": self.joint,
            **asdict(self.tally),
        }


def explain_infeasible(
    problem: Problem,
    *,
    deadline: float | None = None,
    conflicts: int = 10,
    weights: Mapping[str, float] | None = None,
    thorough: bool = False,
) -> Infeasibility:
    """Minimal conflicts, relaxations that were solved again, and the rejection tally of a problem that nothing fits.

    `thorough` looks for up to so many conflicts and at all levers, and for the cheapest joint relaxation: with the
    given weights, else with weight 1 for each lever that can matter. Without it only what is quick is looked at. When
    the time ends, or the user stops it, what was found until then is returned with a note. Raises UsageError for
    weights of no lever.
    """
    check_weights(weights, problem.facts)
    probe = Probe(problem, deadline)
    told = Infeasibility()
    found = Enumeration()
    try:
        minimal_conflicts(probe, conflicts if thorough else _few(problem, conflicts), found)
        told.conflicts_complete = found.complete
        told.conflicts = _told(probe, found)
        told.tally = tally_of(probe, found.conflicts, thorough=thorough)
        for answer in relaxations(probe, found.conflicts, thorough=thorough):
            told.relaxations += [answer] if isinstance(answer, Relaxation) else []
            told.notes += [answer] if isinstance(answer, str) else []
        if thorough or weights:
            joint = cheapest(probe, found.conflicts, weights, told.relaxations)
            told.joint = joint if isinstance(joint, JointRelaxation) else None
            told.notes += [joint] if isinstance(joint, str) else []
    except OutOfTime:
        told.notes.append("the time limit ended the explanation early: more changes may help")
    except KeyboardInterrupt:
        told.notes.append("interrupted: the explanation is not complete, and more changes may help")
    return told


def _few(problem: Problem, most: int) -> int:
    limited = any(relation.name.startswith("exposed") for relation in problem.relations)
    return min(most, 1 if limited else FEW)


def _told(probe: Probe, found: Enumeration) -> list[Conflict]:
    return [conflict_of(probe, core, restates) for core, restates in zip(found.conflicts, found.restates, strict=True)]
