"""Parametric answers against plain solving again, value by value, on random small problems and a larger one."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, seed, settings
from instances import problems
from test_backends import SETTINGS
from tiny_cases import tiny_facts

from mapsearch.errors import UsageError
from mapsearch.sensitivities import sampled
from mapsearch.sensitivities.api import sensitivity
from mapsearch.sensitivities.inputs import at_value, read_over
from mapsearch.solver.explain.relax import with_hbm
from mapsearch.solver.front import front
from mapsearch.solver.objectives import Objectives
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search

RANGES = {"hbm": "hbm=2MB..400MB", "exposed_limit": "exposed_limit=0.01..1"}


def asked(facts, over, **options):
    return sensitivity(facts.model, facts.run, facts.fabric, profile=facts.profile, over=over, **options)


def facts_at(facts, name, value):
    if name == "hbm":
        return with_hbm(facts, value)
    return dataclasses.replace(facts, run=facts.run.replaced(exposed_limit=value))


def solved_s(facts, name, value):
    """Step time of the optimum at one value by a search of its own; None when nothing fits."""
    found = search(problem_of(facts_at(facts, name, value)), 1)
    return found.top[0].step_time_s if found.top else None


def step_s(result, value):
    piece = result.at(value)
    assert piece is not None, value
    return piece.step_time_low_s


def agrees(facts, result, value):
    mine, alone = step_s(result, value), solved_s(facts, result.over, value)
    assert mine == (None if alone is None else pytest.approx(alone, rel=1e-9)), (result.over, value)


def judge(facts, over, grid):
    """The step function is that of solving again on a grid, at each breakpoint, and just below it."""
    result = asked(facts, over)
    pieces = result.pieces
    assert result.breakpoints == "exact" and all(piece.settled for piece in pieces)
    assert (pieces[0].low, pieces[-1].high) == (result.low, result.high)
    assert all(one.high == two.low and one.low < one.high for one, two in itertools.pairwise(pieces))
    times = [math.inf if piece.mapping is None else piece.step_time_low_s for piece in pieces]
    assert all(one > two for one, two in itertools.pairwise(times))
    for number in range(grid):
        agrees(facts, result, result.low * (result.high / result.low) ** ((number + 0.37) / grid))
    for piece in pieces[1:]:
        # Tables and single views add up in another order: a unit in the last place around a breakpoint is no claim.
        agrees(facts, result, piece.low * (1.0 + 1e-12))
        agrees(facts, result, piece.low * (1.0 - 1e-9))
    for piece in pieces:
        assert piece.mapping is None or all(margin.margin >= 0.0 for margin in piece.mapping.margins)
    return result


def test_random_step_functions_are_those_of_solving_again():
    seen = Counter()

    @settings(max_examples=24, **SETTINGS)
    @seed(20271)
    @given(problems())
    def run(problem):
        over = list(RANGES)[sum(seen.values()) % 2]
        result = judge(problem.facts, RANGES[over], 2)
        seen["steps" if len(result.pieces) > 1 else "single"] += 1

    run()
    assert seen["steps"] >= 8


@pytest.mark.slow
@pytest.mark.parametrize("over", RANGES)
def test_many_random_step_functions_are_those_of_solving_again(over):
    seen = Counter()

    @settings(max_examples=150, **SETTINGS)
    @seed(20272)
    @given(problems())
    def run(problem):
        result = judge(problem.facts, RANGES[over], 8)
        seen["steps" if len(result.pieces) > 1 else "single"] += 1

    run()
    assert seen["steps"] >= 30


def test_a_larger_step_function_is_that_of_solving_again():
    facts = tiny_facts((4, 4, 2), zero=[0, 1, 2, 3])
    result = judge(facts, "hbm=1MB..200MB", 6)
    assert len(result.pieces) > 6 and result.pieces[0].mapping is None
    assert result.pieces[1].change == "the first that fits"
    assert all(piece.change for piece in result.pieces[1:])


@pytest.mark.parametrize("over", RANGES)
def test_every_piece_can_be_certified(over):
    facts = tiny_facts((4, 2), recompute=["none", "full"])
    result = asked(facts, RANGES[over], certify=True, backend="cpsat")
    assert result.status == "proven" and {proof.backend for proof in result.proofs} == {"exhaustive", "cpsat"}
    assert all(proof.status == "proven" for proof in result.proofs)


def test_what_fits_at_the_lower_end_is_one_point():
    """A floor merges what lies below it, and leaves the rest of the front as it is."""
    facts = tiny_facts((2, 2))
    problem = problem_of(facts)
    whole = front(problem, Objectives(("step_time", "peak_memory"), {})).points
    floor = whole[len(whole) // 2].peak_bytes
    some = front(problem, Objectives(("step_time", "peak_memory"), {}, {"peak_memory": floor})).points
    assert len(whole) > 4
    assert [p.values for p in some] == [p.values for p in whole if p.peak_bytes >= floor]


def test_a_stopped_search_says_which_pieces_are_open():
    facts = tiny_facts((2, 2))
    result = asked(facts, RANGES["hbm"], time_limit=1e-9)
    assert result.status in ("open", "unknown") and not all(piece.settled for piece in result.pieces)
    assert any("the time limit" in note for note in result.notes)
    result = asked(facts, "bandwidth.rack=1GB/s..100GB/s", time_limit=1e-9)
    assert result.status in ("open", "unknown") and any("not solved to the end" in note for note in result.notes)


def bandwidths(facts, **options):
    return asked(facts, f"bandwidth.{facts.fabric.level_names[-1]}=10MB/s..1TB/s", **options)


def test_brackets_hold_the_change_and_both_sides_are_optima():
    facts = tiny_facts((4, 2), zero=[0, 1, 3])
    result = bandwidths(facts, tolerance=0.01)
    varied = read_over(f"{result.over}=10MB/s..1TB/s")
    assert result.breakpoints == "bracketed" and len(result.pieces) > 1
    for one, two in itertools.pairwise(result.pieces):
        low, high = two.changes_between
        assert one.high == low and low <= high <= low / 0.99 * (1 + 1e-12)
    for piece in result.pieces:
        for value, mine in ((piece.low, piece.step_time_low_s), (piece.high, piece.step_time_high_s)):
            at = at_value(varied, value, _Inputs(facts), lambda count: None)
            assert mine == pytest.approx(search(problem_of(at), 1).top[0].step_time_s, rel=2e-9)


@dataclasses.dataclass
class _Inputs:
    facts: object


@pytest.mark.parametrize(("over", "sign"), [("bandwidth", -1), ("capacity_factor", 1)])
def test_what_is_said_of_unseen_gains_holds(over, sign):
    """More bandwidth lengthens no mapping's step, a larger capacity factor shortens none: so the optimum behaves."""

    @settings(max_examples=12, **SETTINGS)
    @seed(20273)
    @given(problems())
    def run(problem):
        facts = problem.facts
        facts = dataclasses.replace(facts, run=facts.run.replaced(exposed_limit=1.0, exposed_limit_by_class={}))
        name = f"bandwidth.{facts.fabric.level_names[-1]}" if over == "bandwidth" else over
        values = (1e8, 7e8, 5e9, 2e10, 3e11) if over == "bandwidth" else (1.0, 1.1, 1.3, 1.7, 2.0)
        varied = read_over(f"{name}=1GB/s..2GB/s" if over == "bandwidth" else f"{name}=1..2")
        problems_at = [problem_of(at_value(varied, value, _Inputs(facts), lambda count: None)) for value in values]
        tops = [search(one, 5).top for one in problems_at]
        best = [top[0].step_time_s if top else math.inf for top in tops]
        assert all(sign * two >= sign * one * (1 - sign * 1e-9) for one, two in itertools.pairwise(best))
        for top in tops:
            for candidate in top:
                times = mapping_times(candidate, problems_at)
                assert all(sign * (b - a) >= -1e-9 * a for a, b in itertools.pairwise(times))

    run()


def mapping_times(candidate, problems_at):
    from mapsearch.costs.estimate import point_of
    from mapsearch.solver.ranking import mapping_of

    return [float(point_of(mapping_of(candidate), problem.facts).step_time_s()) for problem in problems_at]


def test_lengths_are_solved_one_by_one():
    facts = tiny_facts((2, 2))
    result = asked(facts, "sequence_length=256..1100")
    assert [piece.low for piece in result.pieces] == [256, 512, 1024, 1100]
    assert result.breakpoints == "listed" and all(piece.low == piece.high for piece in result.pieces)
    for piece in result.pieces:
        run = facts.run.replaced(sequence_length=int(piece.low))
        found = search(problem_of(dataclasses.replace(facts, run=run)), 1).top
        assert piece.step_time_low_s == pytest.approx(found[0].step_time_s if found else None, rel=1e-9)
    listed = asked(facts, "sequence_length=1024,256")
    assert [piece.low for piece in listed.pieces] == [256, 1024]
    assert [p.low for p in asked(facts, "sequence_length=256..1024", points=2).pieces] == [256, 1024]


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("hmb=64GB..256GB", "did you mean 'hbm'"),
        ("colour=1..2", "accepted: hbm, exposed_limit, bandwidth.LEVEL, capacity_factor, devices or sequence_length"),
        ("hbm", "write it as hbm=64GB..256GB"),
        ("hbm=256GB..64GB", "write 64GB..256GB"),
        ("hbm=64..256", "has no unit"),
        ("hbm=64GB..64GB", "single value"),
        ("hbm=64GB,128GB", "give a range"),
        ("hbm=0GB..64GB", "more than 0"),
        ("hbm=1GB..2GB..3GB", "neither a range nor a list"),
        ("bandwidth=1GB/s..2GB/s", "bandwidth is that of one level"),
        ("bandwidth.l=1GB/s..2GB/s", "has no level 'l'"),
        ("hbm.rack=1GB..2GB", "'hbm' has no part 'rack'"),
        ("exposed_limit=0.5..2", "at most 1"),
        ("capacity_factor=0.5..2", "at least 1"),
        ("devices=1.5..4", "a whole number"),
        ("devices=nan..4", "a whole number"),
        ("capacity_factor=nan..4", "is not accepted"),
    ],
)
def test_bad_ranges_are_one_sentence(over, said):
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        asked(tiny_facts((2, 2)), over)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"over": "sequence_length=256..512", "points": 0}, "give 1 to 64"),
        ({"over": "hbm=1GB..2GB", "points": 3}, "every breakpoint of hbm is found"),
        ({"over": "capacity_factor=1..2", "points": 1}, "at least 2"),
        ({"over": "sequence_length=256,512", "points": 2}, "a list says itself"),
        ({"over": "capacity_factor=1..2", "tolerance": 0.0}, "is not a share"),
        ({"over": "devices=2..4", "devices": 4}, "is given and varied"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, said):
    with pytest.raises(UsageError, match=said):
        asked(tiny_facts((2, 2)), **options)


@pytest.mark.parametrize(
    "over", ["bandwidth.rack=0.1GB/s..50GB/s", "capacity_factor=1..4", "sequence_length=128,256,512"]
)
def test_what_is_known_from_other_values_changes_no_answer(over, monkeypatch):
    facts = tiny_facts((2, 2), hbm_mb=300.0, dispatcher=["all-to-all", "fixed-all-to-all"])
    plain = {"over": over, "profile": facts.profile}
    seen = []

    def told(problem, k, *, known_s=math.inf, **rest):
        seen.append(known_s)
        return search(problem, k, known_s=known_s, **rest)

    def untold(problem, k, *, known_s=math.inf, **rest):
        return search(problem, k, **rest)

    monkeypatch.setattr(sampled, "search", told)
    first = sensitivity(facts.model, facts.run, facts.fabric, **plain)
    monkeypatch.setattr(sampled, "search", untold)
    second = sensitivity(facts.model, facts.run, facts.fabric, **plain)

    assert [piece.model_dump() for piece in first.pieces] == [piece.model_dump() for piece in second.pieces]
    assert first.solves == second.solves >= 3
    assert any(math.isfinite(known_s) for known_s in seen)


def test_a_known_mapping_that_only_just_fits_does_not_hide_the_optimum(monkeypatch):
    facts = tiny_facts((2, 2), hbm_mb=300.0)
    best = search(problem_of(facts), 1).top[0].step_time_s
    monkeypatch.setattr(sampled, "_time_s", lambda mapping, problem: 0.5 * best)
    sampler = sampled.Sampler(lambda value: facts, None, lambda _progress: None, None)

    assert [sampler.solve(value).step_time_s for value in (1.0, 2.0)] == [best, best]
