"""Limits of exposure as bounds: what they leave out breaks a limit with every partner, and some is left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import instances
import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tiny_cases import tiny_facts

from mapsearch.solver.bounds import has_options, leasts, memory_limit, slice_bounds
from mapsearch.solver.cells import block_of, evaluate_block
from mapsearch.solver.exposure import hopeless_cells, hopeless_options, least_excess, limited_at, limited_size
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search
from mapsearch.solver.space import rows_of
from mapsearch.solver.tables import tabulate

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@st.composite
def limited_problems(draw):
    """Problems that limit exposure, from what few mappings keep to what most do."""
    problem = draw(instances.problems())
    limits = {"exposed_limit": draw(st.sampled_from([1.0, 0.5, 0.2, 0.05, 0.001]))}
    if limits["exposed_limit"] == 1.0 or draw(st.booleans()):
        limits["exposed_limit_by_class"] = {
            draw(st.sampled_from(instances.CLASSES)): draw(st.sampled_from([0.3, 0.01]))
        }
    run = problem.facts.run.model_copy(update=limits)
    return problem_of(replace(problem.facts, run=run))


def whole_slice(problem, tables, position):
    """All cells and options of one DP size: where they are, and every pair of them."""
    shape = slice_bounds(tables, position, memory_limit(problem)).bounds.shape
    cells = [(position, *place) for place in np.ndindex(*shape)]
    own = np.flatnonzero(tables.attention.options.sizes[2] == tables.dp[position])
    block = block_of(tables, cells, own, np.arange(len(tables.expert.options)))
    allowed = np.array([bool(np.broadcast_to(tables.allowed[position, ..., 0], shape)[cell[1:]]) for cell in cells])
    return shape, block, evaluate_block(problem, block).feasible & allowed[:, None, None]


def test_what_a_limit_leaves_out_holds_no_feasible_pair():
    seen = Counter()

    @seed(7)
    @SOME
    @given(limited_problems())
    def check(problem):
        for used, row in rows_of(problem):
            for tables in tabulate(problem, used, row, prune=False):
                for position in (place for place in range(len(tables.dp)) if has_options(tables, place)):
                    sharp = slice_bounds(tables, position, memory_limit(problem))
                    limited = limited_at(problem, tables, leasts(tables, position, memory_limit(problem)), sharp)
                    shape, block, feasible = whole_slice(problem, tables, position)
                    out = np.broadcast_to(hopeless_cells(limited, tables, position), shape).reshape(-1)
                    out_a, out_e = hopeless_options(limited, block)
                    if np.all(hopeless_cells(limited_size(problem, tables, position), tables, position)):
                        seen["sizes"] += 1
                        assert not feasible.any()
                    assert not feasible[out].any()
                    least = np.broadcast_to(least_excess(limited, tables, position), shape).reshape(-1)
                    assert (least[feasible.any(axis=(1, 2))] <= 1e-9).all()
                    assert not (feasible & out_a[:, :, None]).any()
                    assert not (feasible & out_e[:, None, :]).any()
                    seen["cells"] += int((out & np.isfinite(sharp.bounds.reshape(-1))).sum())
                    seen["options"] += int(out_a[~out].sum()) + int(out_e[~out].sum())
                    seen["feasible"] += int(feasible.sum())

    check()
    assert all(seen[kind] >= 200 for kind in ("cells", "options", "feasible")), seen
    assert seen["sizes"] >= 20, seen


def test_without_a_limit_nothing_is_looked_at():
    problem = problem_of(tiny_facts((2, 2)))
    used, row = rows_of(problem)[0]
    tables = next(tabulate(problem, used, row, prune=False))
    sharp = slice_bounds(tables, 0, memory_limit(problem))
    assert limited_at(problem, tables, leasts(tables, 0, memory_limit(problem)), sharp) == ()
    assert limited_size(problem, tables, 0) == ()


def test_a_question_whether_anything_fits_ends_with_the_first_mapping():
    problem = problem_of(tiny_facts((2, 2), exposed_limit=0.9))
    whole, first = search(problem, 1), search(problem, 1, first=True)
    assert len(first.top) == 1
    assert first.pairs <= whole.pairs and first.top[0].step_time_s >= whole.top[0].step_time_s

    nothing = problem_of(tiny_facts((2, 2), exposed_limit=1e-9))
    if not search(nothing, 1).top:
        assert search(nothing, 1, first=True).complete
