"""What is known without a table: the compute floor, the size of the space, the order of pipeline rows; and JSON."""

from __future__ import annotations

import json
import math

import instances
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tiny_cases import tiny_facts

import mapsearch
from mapsearch.answer import Answer
from mapsearch.solver.bounds import compute_floor_s
from mapsearch.solver.options import attention_options, expert_options, option_counts
from mapsearch.solver.search import rows_of, search
from mapsearch.solver.tables import tabulate

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@SOME
@given(instances.problems())
def test_no_mapping_is_faster_than_the_compute_floor(problem):
    found = search(problem, 1)
    floor = compute_floor_s(problem.facts)
    assert floor > 0.0
    assert not found.top or floor <= found.top[0].step_time_s


def test_the_floor_is_half_as_long_on_twice_the_devices():
    small, large = tiny_facts(sizes=(2, 2)), tiny_facts(sizes=(2, 4))
    assert compute_floor_s(large) == pytest.approx(compute_floor_s(small) / 2.0)


@pytest.mark.parametrize("rest", [(1,), (8, 8, 4), (6, 1, 5), (12, 2)])
@pytest.mark.parametrize(
    ("kinds", "dispatchers", "moe"), [((0,), (0,), True), ((0, 1, 3), (0, 2), True), ((0, 1), (0,), False)]
)
def test_options_are_counted_as_they_are_listed(rest, kinds, dispatchers, moe):
    attention, expert = attention_options(rest, kinds), expert_options(rest, dispatchers, moe)
    sizes = {int(size) for size in attention.sizes[2]}
    assert option_counts(rest, len(kinds), len(dispatchers), moe) == (len(attention), len(expert), len(sizes))


@SOME
@given(instances.problems())
def test_rows_go_from_many_devices_to_few_and_each_stands_once(problem):
    rows = rows_of(problem)
    assert len(set(rows)) == len(rows)
    used = [math.prod(used) for used, _ in rows]
    assert used == sorted(used, reverse=True)


@SOME
@given(instances.problems())
def test_the_json_of_any_answer_is_finite_and_reads_back(problem):
    facts = problem.facts
    answer = mapsearch.solve(facts.model, facts.run, facts.fabric, profile=facts.profile, top=3, time_limit=2.0)
    text = answer.to_json()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))
    again = Answer.model_validate_json(text)
    assert again.to_json() == text
    assert "null" not in json.dumps([margin.model_dump() for one in again.mappings for margin in one.margins])


@SOME
@given(instances.problems())
def test_what_a_floor_leaves_out_is_slower_than_the_cutoff(problem):
    wide, cutoff = search(problem, 3, prune=False), np.inf
    if len(wide.top) == 3:
        cutoff = wide.top[-1].step_time_s
    for used, row in rows_of(problem):
        whole = {key for tables in tabulate(problem, used, row, prune=False) for key in sizes_of(tables)}
        kept = tabulate(problem, used, row, prune=False, cutoff_s=cutoff)
        left = {key for tables in kept for key in sizes_of(tables)}
        assert left <= whole
        pp = math.prod(row)
        listed = [c for c in wide.top if c.tables.group.used == used and c.tables.group.pp_row == row]
        for candidate in listed:
            tables = candidate.tables
            a, e = tables.attention.options, tables.expert.options
            assert (pp, "attention", *(int(s[candidate.attention]) for s in a.sizes)) in left
            assert (pp, "expert", *(int(s[candidate.expert]) for s in e.sizes)) in left


def sizes_of(tables):
    """Sizes of the options of both grids of a group."""
    for name in ("attention", "expert"):
        for sizes in zip(*getattr(tables, name).options.sizes, strict=True):
            yield (tables.group.pp, name, *map(int, sizes))
