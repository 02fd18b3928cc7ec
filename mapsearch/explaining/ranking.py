"""The ranking that an explanation starts from: of a search, or of a stored answer that says the same.

Contents: Listed, listed_of, stored_ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

import mapsearch
from mapsearch.answer import Answer, Provenance
from mapsearch.api import mapping_given
from mapsearch.errors import listed
from mapsearch.explaining.levers import SAME
from mapsearch.inventories.mapping import Mapping
from mapsearch.solver.problem import Problem
from mapsearch.solver.ranking import key_of_mapping, mapping_of, time_of
from mapsearch.solver.top import Candidate, Key


@dataclass(frozen=True)
class Listed:
    """A mapping of a ranking, or one that was found besides."""

    mapping: Mapping
    key: Key
    step_time_s: float


def listed_of(candidate: Candidate) -> Listed:
    """What a search found."""
    return Listed(mapping_of(candidate), candidate.key, candidate.step_time_s)


def stored_ranking(answer: Answer, problem: Problem, now: Provenance) -> tuple[list[Listed], str]:
    """The ranking of an answer as far as it holds for a problem, else none and the reason.

    It counts when it was proven, by this version, for inputs of the same content, and when every listed mapping, costed
    again, keeps all relations and takes the time that is written there. That nothing is faster is the answer's proof.
    """
    if answer.status != "optimal":
        return [], f"it is not proven (status {answer.status})"
    if answer.provenance.version != mapsearch.__version__:
        return [], f"it was written by version {answer.provenance.version}"
    before = answer.provenance.input_sha256
    other = [kind for kind, digest in now.input_sha256.items() if before.get(kind) != digest]
    if other:
        return [], f"it was solved for another {listed(other)}"
    found = []
    for one in answer.mappings:
        mapping = mapping_given(one)
        seconds = time_of(mapping, problem)
        if not abs(seconds - one.step_time_s) <= SAME * one.step_time_s:
            return [], f"its mapping {one.rank} takes {seconds:,.6g} s now and {one.step_time_s:,.6g} s there"
        found.append(Listed(mapping, key_of_mapping(mapping, problem.facts), one.step_time_s))
    return found, ""
