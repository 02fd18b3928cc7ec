"""A first look at a large space, and what is known before a search: when a mapping is there, never which."""

from __future__ import annotations

import math
import time

import instances
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from tiny_cases import tiny_facts

from mapsearch.solver import search as searching
from mapsearch.solver.options import attention_options, nested, of_sizes
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search

SOME = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


def listed(found):
    return [(c.key, c.step_time_s) for c in found.top]


@SOME
@given(instances.problems())
def test_a_first_look_changes_no_ranking(problem):
    plain = search(problem, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "SKETCHED", 0)
        looked = search(problem, 4)

    assert listed(looked) == listed(plain)
    assert looked.complete
    assert [s for _, s in looked.trace] == sorted((s for _, s in looked.trace), reverse=True)
    if plain.top:
        assert looked.trace[-1][1] == pytest.approx(plain.top[0].step_time_s, rel=1e-9)


@SOME
@given(instances.problems())
def test_a_known_step_time_leaves_the_faster_mappings(problem):
    plain = search(problem, 3)
    assume(len(plain.top) == 3)

    assert listed(search(problem, 3, known_s=plain.top[-1].step_time_s)) == listed(plain)
    assert listed(search(problem, 3, known_s=2.0 * plain.top[-1].step_time_s)) == listed(plain)
    faster = search(problem, 3, known_s=0.999 * plain.top[0].step_time_s)
    assert faster.top == [] and faster.complete


def test_a_search_that_is_cut_short_returns_what_the_first_look_found(monkeypatch):
    problem = problem_of(tiny_facts((2, 2), hbm_mb=1e6))
    monkeypatch.setattr(searching, "SKETCHED", 0)
    real = searching._tabulated

    def late(machine, prune):
        # The first looks run to their end, the search itself not at all.
        machine.state.deadline = None if machine.state.problem.first_look else time.monotonic() - 1.0
        return real(machine, prune)

    monkeypatch.setattr(searching, "_tabulated", late)
    found = search(problem, 3)

    assert not found.complete
    assert len(found.top) == 3
    assert found.bound_s < found.top[0].step_time_s == found.trace[-1][1]


def test_nested_placements_fill_the_levels_from_inside():
    options = attention_options((4, 2, 8), (0,))
    kept = nested(options)
    rows = [tuple(map(tuple, rows)) for rows in zip(*(row.tolist() for row in kept.rows), strict=True)]

    assert ((4, 1, 1), (1, 2, 2), (1, 1, 4)) in rows
    assert ((2, 1, 1), (2, 2, 2), (1, 1, 4)) in rows
    assert ((2, 1, 1), (1, 1, 8), (2, 2, 1)) in rows  # the other order of CP and DP
    assert ((1, 2, 1), (4, 1, 1), (1, 1, 8)) not in rows  # TP starts outside of CP
    assert {math.prod(map(math.prod, row)) for row in rows} == {64}
    assert len(kept) < len(options)


def test_options_of_some_sizes_have_all_their_placements():
    options = attention_options((4, 2, 8), (0, 1))
    kept = of_sizes(options, frozenset({(2, 4), (1, 8)}))
    wanted = sum((int(a), int(b)) in {(2, 4), (1, 8)} for a, b in zip(*options.sizes[:2], strict=True))

    assert len(kept) == wanted > 2
    assert np.isin(kept.sizes[0], (1, 2)).all()
