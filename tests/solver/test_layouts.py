"""Layouts: the exact block against all cuts, the search against plain loops, and cases that are known."""

import itertools
from collections import Counter

import bruteforce
import numpy as np
import pytest
from explain_oracle import with_run
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from instances import TINY_SHAPES, problems
from test_backends import SETTINGS
from test_four_ways import compare, never_slower
from tiny_cases import tiny_facts

from mapsearch import check, solve
from mapsearch.axes import Schedule
from mapsearch.costs.estimate import layout_trouble, point_of
from mapsearch.costs.layouts import cuts_of, family
from mapsearch.costs.stages import layout, usual_cut
from mapsearch.inventories.base import load_inventory, validate
from mapsearch.inventories.layouts import read_layout
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.reports.verdicts import check_lines
from mapsearch.solver.layouts import Stages, best_cut, least_step
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.search import search

STRAIGHT = (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.GPIPE, Schedule.ZB_H1, Schedule.ZB_2P)


def all_cuts(layers: int, stages: int):
    for ends in itertools.combinations(range(1, layers), stages - 1):
        yield tuple(np.diff([0, *ends, layers]).tolist())


def fits(point, hbm: float) -> bool:
    return max(sum(parts.values()) for parts in point.memory_by_stage_bytes) <= hbm


@seed(41)
@settings(max_examples=60, **SETTINGS)
@given(problems(shapes=((4,), (2, 2), (8,))), st.data())
def test_block_is_the_best_of_all_cuts_of_a_mapping(problem, data):
    facts = problem.facts
    layers = facts.model.layers
    every = [m for m in bruteforce.mappings(facts) if 1 < m.pp <= layers and m.schedule in STRAIGHT]
    if not every:
        return
    mapping = every[data.draw(st.integers(0, len(every) - 1))]
    found = {}
    peaks = []
    for cut in all_cuts(layers, mapping.pp):
        point = point_of(mapping.model_copy(update={"layout": list(cut)}), facts)
        found[cut] = point.step_time_s(), max(sum(parts.values()) for parts in point.memory_by_stage_bytes)
        peaks.append(found[cut][1])
    # Around what the cuts need, so that the limit decides between them; also such that none fits. Sums in another order
    # differ in their last bit, so none is exactly at the limit.
    limit = float(np.quantile(peaks, data.draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])))) * data.draw(
        st.sampled_from([1.0 + 1e-12, 1.0 + 1e-12, 0.999])
    )
    best = best_cut(point_of(mapping, facts), hbm_bytes=limit)
    within = [seconds for seconds, peak in found.values() if peak <= limit]
    if not within:
        assert best is None
        return
    assert best is not None
    assert best.step_time_s == pytest.approx(min(within), rel=1e-9)
    assert found[best.cut][0] == pytest.approx(best.step_time_s, rel=1e-9)
    assert found[best.cut][1] <= limit


@seed(42)
@settings(max_examples=200, **SETTINGS)
@given(st.integers(0, 10**6))
def test_least_step_of_any_numbers_is_that_of_all_cuts(number):
    """Nothing is assumed of how times grow with layers: random seconds, random stages that do not fit."""
    rng = np.random.default_rng(number)
    stages, layers = int(rng.integers(2, 5)), int(rng.integers(4, 9))
    shape = (stages, layers + 1, layers + 1)
    values = rng.integers(1, 6, (3, *shape)).astype(float)
    values[1] -= 3.0
    runs = np.triu(np.ones(shape[1:], bool), 1)
    usable = (rng.random(shape) < 0.8) & runs
    where = Stages(values[0], values[1], values[2], usable)
    rounds, scale = float(rng.integers(0, 9)), float(rng.random())
    expected = []
    for cut in all_cuts(layers, stages):
        ends = np.cumsum([0, *cut])
        places = (np.arange(stages), ends[:-1], ends[1:])
        if usable[places].all():
            time, ramp, tail = (value[places] for value in values)
            expected.append(rounds * time.max() + scale * ramp.sum() + tail.max())
    found = least_step(where, rounds, scale)
    assert (found is None) == (not expected)
    if found:
        assert found[1] == pytest.approx(min(expected), rel=1e-12)


def with_layouts(problem: Problem, layouts) -> Problem:
    return problem_of(with_run(problem.facts, layout=layouts))


def run_many(count: int, number: int) -> Counter:
    seen: Counter = Counter()

    @seed(number)
    @settings(max_examples=count, **SETTINGS)
    @given(problems(shapes=TINY_SHAPES), st.sampled_from([["auto", "family"], ["flop", "ends"], ["family", "flop"]]))
    def check(problem, layouts):
        told = with_layouts(problem, layouts)
        compare(told, seen)
        if "auto" in layouts or "family" in layouts:
            never_slower(told, with_layouts(problem, ["auto"]), seen, "an uneven layout")

    check()
    return seen


def test_four_ways_agree_with_layouts():
    seen = run_many(6, 51)
    assert seen["compared"] >= 3


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_four_ways_agree_on_hundreds_of_problems_with_layouts(part, capsys):
    seen = run_many(80, 60 + part)
    with capsys.disabled():
        print(f"\nseed {60 + part}: {dict(sorted(seen.items()))}")
    assert seen["compared"] >= 30
    assert seen["infeasible"] and seen["feasible"]


def test_a_layout_with_fewer_layers_first_is_the_only_one_that_fits():
    """The first of four stages holds most microbatches: with memory for less, only fewer layers on it fit."""
    told = {"model": {"layers": 12, "vocab": 64, "moe": None}, "sequence_length": 4096, "micro_batch": [1]}
    told |= {"recompute": ["none"], "vpp": [1], "schedule": ["1f1b"]}
    told["constraints"] = {"fix": {"pp": 4, "tp": 1, "cp": 1, "ep": 1}}
    facts = tiny_facts((4,), hbm_mb=1e4, **told)
    mapping = Mapping.model_validate({"pp": 4})
    peaks = {cut: max(point_of(mapping.model_copy(update={"layout": list(cut)}), facts).kind_memory_bytes)
             for cut in all_cuts(12, 4)}  # fmt: skip
    even, least = peaks[3, 3, 3, 3], min(peaks.values())
    assert least < even
    between = (0.5 * (even + least) / (1.0 - facts.run.reserve) + facts.profile.runtime_bytes) / 1e6
    tight = {"hbm_mb": between, **told}
    assert not search(problem_of(tiny_facts((4,), **tight)), 1).top
    found = search(problem_of(tiny_facts((4,), layout=["auto", "family"], **tight)), 1).top
    assert found
    cut = found[0].tables.group.layout
    assert cut[0] < 3
    assert sum(cut) == 12
    seen: Counter = Counter()
    compare(problem_of(tiny_facts((4,), layout=["auto", "family"], **tight)), seen)
    assert seen["compared"] == seen["feasible"] == 1


def test_check_names_the_layout_that_makes_a_mapping_fit():
    facts = tiny_facts((4,), hbm_mb=1e4, model={"layers": 12, "vocab": 64, "moe": None}, sequence_length=4096)
    mapping = Mapping.model_validate({"pp": 4})
    peaks = [max(point_of(mapping.model_copy(update={"layout": list(cut)}), facts).kind_memory_bytes)
             for cut in all_cuts(12, 4)]  # fmt: skip
    even = max(point_of(mapping, facts).kind_memory_bytes)
    between = (0.5 * (even + min(peaks)) / (1.0 - facts.run.reserve) + facts.profile.runtime_bytes) / 1e6
    tight = tiny_facts((4,), hbm_mb=between, model={"layers": 12, "vocab": 64, "moe": None}, sequence_length=4096)
    told = {"model": tight.model, "run": tight.run, "topology": tight.fabric, "profile": tight.profile}
    report = check(mapping, **told)
    assert [margin.relation for margin in report.broken] == ["hbm"]
    better = report.mapping.better_layout
    assert better.fits
    again = check(mapping.model_copy(update={"layout": better.layout}), **told)
    assert again.feasible
    assert again.mapping.step_time_s == better.step_time_s
    assert again.mapping.better_layout is None
    text = "\n".join(line.plain for line in check_lines(report, width=120))
    assert f"layout {'-'.join(map(str, better.layout))} would fit" in text


def test_pipelines_without_a_listed_layout_are_in_conflict_with_the_list():
    facts = tiny_facts((4,), layout=[[2, 2]], constraints={"fix": {"pp": 4}})
    answer = solve(facts.model, facts.run, facts.fabric, profile=facts.profile)
    assert answer.status == "infeasible"
    said = " ".join(sentence for conflict in answer.conflicts for sentence in conflict.sentences)
    assert "you list layouts for pipelines of 2 stages" in said
    assert any("you list layouts" in relaxation.lever for relaxation in answer.relaxations)


def test_solve_and_check_agree_on_a_layout():
    told = {"model": {"layers": 7}, "layout": ["family"], "constraints": {"fix": {"pp": 2}}}
    facts = tiny_facts((2, 2), hbm_mb=1e4, **told)
    answer = solve(facts.model, facts.run, facts.fabric, profile=facts.profile, top=3, certify=True)
    assert answer.status == "optimal"
    assert all(proof.status in ("proven", "exact") for proof in answer.proofs)
    for listed in answer.mappings:
        report = check(listed, model=facts.model, run=facts.run, topology=facts.fabric, profile=facts.profile)
        assert report.feasible
        assert report.mapping.step_time_s == listed.step_time_s
        assert report.mapping.layers_per_stage == listed.layers_per_stage


@pytest.mark.parametrize(
    ("written", "layers"),
    [
        ("Et*4|(tttt|)*14tmL", [4, *[4] * 14, 1]),  # DeepSeek-V3, Megatron Bridge recipes
        ("Et*7|(t*8|)*14t*7L", [7, *[8] * 14, 7]),
        ("8-7-7-8", [8, 7, 7, 8]),
        ([8, 7, 7, 8], [8, 7, 7, 8]),
    ],
)
def test_layouts_are_read_as_people_write_them(written, layers):
    assert read_layout(written) == layers
    assert validate(Mapping, {"pp": len(layers), "layout": written}, file="m").layout == layers


@pytest.mark.parametrize("written", ["Et*4|m|L", "xyz", "", "Etttt|tE"])
def test_layouts_that_are_not_represented_are_refused(written):
    with pytest.raises(ValueError, match=r"layout|not represented"):
        read_layout(written)


def test_llama_3_has_a_layer_less_on_both_ends():
    """126 layers on 16 stages: the first and the last take 7, the others 8 (arXiv 2407.21783, section 3.3.2)."""
    model = load_inventory(Model, "llama-3.1-405b")
    run = tiny_facts().run.replaced(layout=["ends"], sequence_length=8192)
    assert cuts_of(16, Schedule.ONE_F_ONE_B, ["ends"], model=model, run=run) == [()]
    assert usual_cut(16, Schedule.ONE_F_ONE_B, model=model, length=8192.0) == (7, *(8,) * 14, 7)


def test_deepseek_v3_has_one_layer_beside_the_mtp_module_and_the_loss():
    """61 layers on 16 stages as NVIDIA's recipes cut them: 4 each, and 1 beside MTP module and loss."""
    from mapsearch.inventories.models import load_model

    model = load_model("deepseek-v3")
    cut = usual_cut(16, Schedule.ONE_F_ONE_B, model=model, length=4096.0)
    assert list(cut) == read_layout("Et*4|(tttt|)*14tmL")
    told = layout(16, Schedule.ONE_F_ONE_B, cut, model=model, length=4096.0)
    assert told.dense == (3, *(0,) * 15)
    assert told.moe[-1] == 1 + model.mtp_layers


def test_thirty_layers_on_four_stages_lose_none():
    """Old Megatron built 7 per stage, 28 layers (Megatron-LM issue 1304); a layout that does so is refused."""
    facts = tiny_facts((4,), hbm_mb=1e5, model={"layers": 30})
    lost = point_of(Mapping.model_validate({"pp": 4, "layout": [7, 7, 7, 7]}), facts)
    assert layout_trouble(lost) == "the layout places 28 layers, but the model has 30"
    kept = point_of(Mapping.model_validate({"pp": 4, "layout": [7, 8, 8, 7]}), facts)
    assert not layout_trouble(kept)
    short = point_of(Mapping.model_validate({"pp": 4, "layout": [15, 15]}), facts)
    assert layout_trouble(short) == "the layout has 2 entries, but PP 4 has 4 stages"


@pytest.mark.parametrize(("layers", "stages"), [(61, 16), (126, 16), (30, 4), (80, 8), (7, 2), (9, 8)])
def test_family_places_every_layer(layers, stages):
    found = family(layers, stages)
    assert len(set(found)) == len(found)
    for cut in found:
        assert len(cut) == stages
        assert sum(cut) == layers
        assert min(cut) >= 1
