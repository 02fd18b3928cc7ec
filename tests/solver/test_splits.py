"""Recompute on the first stages only: one mapping stage by stage, the search against plain loops, and known cases."""

from collections import Counter
from dataclasses import replace

import bruteforce
import numpy as np
import pytest
from explain_oracle import with_run
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from instances import TINY_SHAPES, problems
from pydantic import ValidationError
from test_backends import SETTINGS
from test_four_ways import compare, never_slower
from test_layouts import STRAIGHT, all_cuts
from tiny_cases import tiny_facts

from mapsearch import check, pareto, sensitivity, solve
from mapsearch.axes import Recompute, Schedule
from mapsearch.costs.estimate import estimate_point, number, point_of
from mapsearch.costs.layouts import splits_of
from mapsearch.costs.stages import stages_of
from mapsearch.costs.step import step_time_s
from mapsearch.errors import InputError
from mapsearch.inventories.base import validate
from mapsearch.inventories.layouts import read_splits
from mapsearch.inventories.mapping import Mapping
from mapsearch.reports.verdicts import check_lines
from mapsearch.solver.layouts import best_cut
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.search import search


def kinds_of_stages(point) -> list[int]:
    """The kind of each stage of a mapping that recomputes everywhere or nowhere."""
    cell = point.cell
    plan = stages_of(cell.pp, cell.schedule, cell.layout, model=cell.facts.model, run=cell.facts.run)
    rows = list(zip(plan.dense, plan.moe, plan.embedding, plan.output, strict=True))
    distinct = list(dict.fromkeys(rows))
    return [distinct.index(row) for row in rows]


@seed(71)
@settings(max_examples=80, **SETTINGS)
@given(problems(shapes=((4,), (2, 2), (8,), (6,))), st.data())
def test_a_split_is_the_recomputing_mapping_on_its_first_stages_and_the_plain_one_on_the_rest(problem, data):
    facts = problem.facts
    every = [m for m in bruteforce.mappings(facts) if 1 < m.pp <= facts.model.layers // (1 + (m.schedule == 4))]
    if not every:
        return
    mapping = every[data.draw(st.integers(0, len(every) - 1))]
    first = data.draw(st.integers(1, mapping.pp - 1))
    code = data.draw(st.sampled_from([Recompute.FULL, Recompute.NORM | Recompute.ACTIVATION, Recompute.MOE]))
    full = mapping.model_copy(update={"recompute": code, "recompute_stages": 0})
    there = point_of(full, facts)
    nowhere = point_of(full.model_copy(update={"recompute": 0}), facts)
    split = point_of(full.model_copy(update={"recompute_stages": first}), facts)

    expected = [*there.memory_by_stage_bytes[:first], *nowhere.memory_by_stage_bytes[first:]]
    for found, parts in zip(split.memory_by_stage_bytes, expected, strict=True):
        assert sum(found.values()) == pytest.approx(sum(parts.values()), rel=1e-12)

    kinds = kinds_of_stages(there)
    stages = [(there if r < first else nowhere).stages()[kind] for r, kind in enumerate(kinds)]
    constants = replace(there.timing, counts=[1.0] * mapping.pp)
    assert split.step_time_s() == pytest.approx(number(step_time_s(stages, constants)), rel=1e-12)

    low, high, between = (estimate_point(point) for point in (nowhere, there, split))
    executed = [told.hfu * told.step_time_s for told in (low, between, high)]
    assert executed[0] <= executed[1] * (1 + 1e-12) <= executed[2] * (1 + 2e-12)
    assert sum(between.breakdown_s.values()) == pytest.approx(between.step_time_s, rel=1e-9)
    for name, seconds in between.communication_s.items():
        ends = sorted((low.communication_s[name], high.communication_s[name]))
        assert ends[0] * (1 - 1e-9) <= seconds <= ends[1] * (1 + 1e-9) or len(set(kinds)) > 1
    whole = point_of(full.model_copy(update={"recompute_stages": mapping.pp}), facts)
    assert whole.step_time_s() == there.step_time_s()
    assert whole.memory_by_stage_bytes == there.memory_by_stage_bytes


@seed(72)
@settings(max_examples=25, **SETTINGS)
@given(problems(shapes=((4,), (2, 2))), st.data())
def test_block_is_the_best_of_all_cuts_of_a_split_mapping(problem, data):
    facts = problem.facts
    layers = facts.model.layers
    every = [m for m in bruteforce.mappings(facts) if 1 < m.pp <= layers and m.schedule in STRAIGHT]
    if not every:
        return
    mapping = every[data.draw(st.integers(0, len(every) - 1))]
    first = data.draw(st.integers(1, mapping.pp - 1))
    mapping = mapping.model_copy(update={"recompute": Recompute.FULL, "recompute_stages": first})
    points = [point_of(mapping.model_copy(update={"layout": list(cut)}), facts) for cut in all_cuts(layers, mapping.pp)]
    peaks = [max(sum(parts.values()) for parts in point.memory_by_stage_bytes) for point in points]
    limit = float(np.quantile(peaks, data.draw(st.sampled_from([0.0, 0.5, 1.0]))))
    within = [point.step_time_s() for point, peak in zip(points, peaks, strict=True) if peak <= limit]
    best = best_cut(point_of(mapping, facts), hbm_bytes=limit)
    assert best is not None
    assert best.step_time_s == pytest.approx(min(within), rel=1e-9)


def with_splits(problem: Problem, splits, recompute) -> Problem:
    return problem_of(with_run(problem.facts, recompute_stages=splits, recompute=recompute))


OFFERED = (["all", "half"], ["all", 1, 2], ["half", "all"], [1], [2, "half"], ["all", 3, 1])
CANDIDATES = (["none", "full"], ["full"], ["full", "core-attention", "none"], ["none", "norm+activation"])


def run_many(count: int, number: int) -> Counter:
    seen: Counter = Counter()

    @seed(number)
    @settings(max_examples=count, **SETTINGS)
    @given(problems(shapes=TINY_SHAPES), st.sampled_from(OFFERED), st.sampled_from(CANDIDATES), st.booleans())
    def check(problem, splits, recompute, layouts):
        told = with_splits(problem, splits, recompute)
        if layouts:
            told = problem_of(with_run(told.facts, layout=["auto", "flop"]))
        compare(told, seen)
        if "all" in splits and not layouts:
            never_slower(told, with_splits(problem, ["all"], recompute), seen, "a split")

    check()
    return seen


def test_four_ways_agree_with_splits():
    seen = run_many(8, 81)
    assert seen["compared"] >= 3


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_four_ways_agree_on_hundreds_of_problems_with_splits(part, capsys):
    seen = run_many(80, 90 + part)
    with capsys.disabled():
        print(f"\nseed {90 + part}: {dict(sorted(seen.items()))}")
    assert seen["compared"] >= 30
    assert seen["infeasible"] and seen["feasible"]


TIGHT = {
    "model": {"layers": 8, "vocab": 64, "moe": None},
    "sequence_length": 4096,
    "micro_batch": [1],
    "vpp": [1],
    "schedule": ["1f1b"],
    "recompute": ["none", "full"],
    "constraints": {"fix": {"pp": 4, "tp": 1, "cp": 1}},
}


def tight_facts(**changes):
    """Four stages with memory for the first one's activations neither in full nor, without recompute, for the second's;
    the third's and fourth's fit."""
    told = {**TIGHT, **changes}
    facts = tiny_facts((4,), hbm_mb=1e4, **told)
    kept = point_of(Mapping.model_validate({"pp": 4}), facts).memory_by_stage_bytes
    second, third = (sum(kept[stage].values()) for stage in (1, 2))
    assert second > third
    between = (0.5 * (second + third) / (1.0 - facts.run.reserve) + facts.profile.runtime_bytes) / 1e6
    return tiny_facts((4,), hbm_mb=between, **told)


def test_recompute_on_the_first_two_of_four_stages_beats_recompute_on_all():
    everywhere = search(problem_of(tight_facts()), 1).top[0]
    problem = problem_of(tight_facts(recompute_stages=["all", "half", 1, 3]))
    best = search(problem, 1).top[0]
    assert best.tables.group.recompute_stages == 2
    assert best.step_time_s < everywhere.step_time_s
    seen: Counter = Counter()
    compare(problem, seen)
    assert seen["compared"] == seen["feasible"] == 1


def test_a_split_is_listed_proven_and_checked():
    facts = tight_facts(recompute_stages=["all", "half"])
    told = {"model": facts.model, "run": facts.run, "topology": facts.fabric, "profile": facts.profile}
    answer = solve(**told, top=2, certify=True)
    assert answer.status == "optimal"
    assert all(proof.status in ("proven", "exact") for proof in answer.proofs)
    best = answer.mappings[0]
    assert best.recompute_stages == 2
    report = check(best, **told)
    assert report.feasible
    assert report.mapping.step_time_s == best.step_time_s
    assert report.mapping.recompute_stages == 2
    assert "recompute on the first 2 stages" in "\n".join(line.plain for line in check_lines(report, width=120))
    one = Mapping.model_validate({"pp": 4, "recompute": "full", "recompute_stages": 1})
    assert [margin.relation for margin in check(one, **told).broken] == ["hbm"]


def test_fronts_and_memory_steps_go_from_split_to_split():
    """The less memory, the more stages recompute."""
    facts = tight_facts(recompute_stages=["all", "half", 1, 3])
    told = {"model": facts.model, "run": facts.run, "topology": facts.fabric, "profile": facts.profile}
    front = pareto(**told, certify=True)
    assert front.status == "proven"
    assert [point.mapping.recompute_stages for point in front.points] == [2, 3, 0]
    steps = sensitivity(**told, over="hbm=0.05GB..0.2GB")
    found = [piece.mapping.recompute_stages for piece in steps.pieces if piece.mapping]
    assert found[:3] == [0, 3, 2]


@pytest.mark.parametrize(
    ("pp", "schedule", "choices", "expected"),
    [
        (4, Schedule.ONE_F_ONE_B, ["all"], [0]),
        (4, Schedule.ONE_F_ONE_B, ["all", "half", 1, 2, 4, 9], [0, 2, 1]),
        (5, Schedule.INTERLEAVED, ["half", 2], [3, 2]),
        (2, Schedule.GPIPE, [2], [0]),
        (1, Schedule.ONE_F_ONE_B, ["half", 1], [0]),
        (4, Schedule.ZB_V, ["half", 1], [0]),
        (4, Schedule.DUALPIPE, ["half", 1], [0]),
    ],
)
def test_splits_that_are_offered(pp, schedule, choices, expected):
    assert splits_of(pp, schedule, choices, [0, 64]) == expected
    assert splits_of(pp, schedule, choices, [0]) == [0]


def test_splits_are_read_as_people_write_them():
    assert read_splits("all, half,2") == ["all", "half", 2]
    assert read_splits(2) == [2]
    assert tiny_facts(recompute_stages="half,all").run.recompute_stages == ["half", "all"]
    with pytest.raises(InputError, match="recompute_stages"):
        tiny_facts(recompute_stages=[0])
    mapping = validate(Mapping, {"pp": 4, "recompute": "full", "recompute_stages": 2}, file="m")
    assert mapping.recomputing == 2
    assert validate(Mapping, {"pp": 4, "recompute_stages": 2}, file="m").recomputing == 0
    with pytest.raises(ValidationError, match=r"recompute_stages is 5, but PP is 4"):
        Mapping.model_validate({"pp": 4, "recompute_stages": 5})
