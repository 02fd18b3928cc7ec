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
from mapsearch.solver.families import Families
from mapsearch.solver.options import attention_options, expert_options, option_counts
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search
from mapsearch.solver.sized import sized_groups
from mapsearch.solver.space import rows_of
from mapsearch.solver.tables import hbm_bytes

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


def test_only_lists_of_small_grids_are_kept():
    small, large = (8, 8, 4), (8, 8, 16, 8)
    assert attention_options(small, (0, 1)) is attention_options(small, (0, 1))
    assert attention_options(large, (0, 1)) is not attention_options(large, (0, 1))


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
    everything = search(problem, 40, prune=False).top
    if not everything:
        return
    families = Families(problem, rows_of(problem), hbm_bytes(problem))
    cutoff = everything[min(3, len(everything)) - 1].step_time_s
    left = {row: families.take(*row, cutoff) for row in rows_of(problem)}
    for candidate in everything:
        if candidate.step_time_s > cutoff:
            break
        group = candidate.tables.group
        kept = next(sized for sized in left[group.used, group.pp_row] if sized.group == group)
        for name in ("attention", "expert"):
            options, position = getattr(candidate.tables, name).options, getattr(candidate, name)
            assert row_of(options, position) in {
                row_of(getattr(kept, name), i) for i in range(len(getattr(kept, name)))
            }
        dp, batch = candidate.key[2], candidate.key[7]
        assert dp in kept.dp
        assert dp * batch in kept.products
        batches = np.asarray(candidate.tables.cell.micro_batch).reshape(-1).tolist()
        assert kept.allowed[kept.dp.tolist().index(dp), batches.index(batch)].any()


@pytest.mark.parametrize("speed", [0.1, 10.0])
def test_without_communication_a_floor_is_the_step_itself(speed):
    problem = problem_of(tiny_facts((1,), hbm_mb=100_000, speed=speed))
    row, fastest = rows_of(problem)[0], search(problem, 1).top[0].step_time_s
    kept = [Families(problem, [row], np.inf).take(*row, fastest * share) for share in (1.0, 1.0 - 1e-6)]
    assert [len(groups) for groups in kept] == [1, 0]


@SOME
@given(instances.problems())
def test_a_family_lists_what_its_rows_list_by_themselves(problem):
    families = Families(problem, rows_of(problem), np.inf)
    for used, pp_row in rows_of(problem):
        alone = {sized.group: sized for sized in sized_groups(problem, used, pp_row)}
        shared = {sized.group: sized for sized in families.take(used, pp_row, np.finfo(float).max)}
        assert shared.keys() <= alone.keys()
        for group, here in shared.items():
            there = alone[group]
            same_dp = np.isin(there.dp, here.dp)
            assert (there.allowed[same_dp] == here.allowed).all()
            for name, memory in (("attention", "memory_attention"), ("expert", "memory_expert")):
                listed = [row_of(getattr(there, name), i) for i in range(len(getattr(there, name)))]
                where = [listed.index(row_of(getattr(here, name), i)) for i in range(len(getattr(here, name)))]
                assert where == sorted(where)
                products = np.isin(there.products, here.products)
                for mine, theirs in zip(bytes_of(getattr(here, memory)), bytes_of(getattr(there, memory)), strict=True):
                    own = theirs[products] if theirs.shape[0] > 1 else theirs
                    assert np.array_equal(mine, own[..., where])


def row_of(options, position):
    """An option as a tuple."""
    return (*(tuple(map(int, row[position])) for row in options.rows), int(options.choice[position]))


def bytes_of(memory):
    """Bytes of every option on every kind of stage."""
    return [
        np.asarray(v)[..., memory.entry]
        for values in (memory.hbm, memory.host, memory.nvme)
        for v in values
        if np.ndim(v)
    ]
