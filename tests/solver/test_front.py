"""Fronts against plain loops that cost every mapping alone, and against enumeration on random small problems."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter

import bruteforce
import numpy as np
import pytest
from hypothesis import given, seed, settings
from instances import problems
from test_backends import MOST_PAIRS, SETTINGS
from test_bruteforce import INSTANCES
from tiny_cases import tiny_facts

from mapsearch.costs.estimate import layout_trouble, number, point_of
from mapsearch.errors import InputError, MissingFact, UsageError
from mapsearch.solver.backends.base import every_cell
from mapsearch.solver.front import front, space_of
from mapsearch.solver.front_proof import by_exhaustion, certify, gaps
from mapsearch.solver.objectives import objectives_of
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import margins, pair_view
from mapsearch.solver.vectors import Shield, dominates, minimal, told_apart

NAMES = ("step_time", "peak_memory", "devices", "exposed_fraction", "energy", "cost")
SETS = (
    ("step_time", "peak_memory"),
    ("step_time", "peak_memory", "devices"),
    ("step_time", "exposed_fraction"),
    ("step_time", "devices", "energy"),
    NAMES,
)
SMALL = {"micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"]}


def priced(facts):
    """The same facts with a power and a price."""
    device = dataclasses.replace(facts.fabric.device, power_w=700.0, price_per_hour=2.5)
    return dataclasses.replace(facts, fabric=dataclasses.replace(facts.fabric, device=device))


def parts_of(size):
    return {1 << power for power in range(size.bit_length())}


def used_by_loops(facts):
    """Whole levels or their largest power of two; or a power of two of one level's units, all below, one above."""
    sizes = facts.fabric.fan_outs
    found = set(itertools.product(*(sorted(bruteforce.used_units(size)) for size in sizes)))
    for level, size in enumerate(sizes):
        found |= {(*sizes[:level], units, *[1] * (len(sizes) - level - 1)) for units in parts_of(size)}
    return found


def vectors_by_loops(facts, names):
    """Vector of every feasible mapping, written out: (vector, key)."""
    relations = problem_of(facts).relations
    pair = [relation for relation in relations if relation.side == "pair"]
    used = used_by_loops(facts) if "devices" in names else None
    device, found = facts.fabric.device, []
    for mapping in bruteforce.mappings(facts, used):
        point = point_of(mapping, facts)
        alone = margins(point, relations, sides=("cell", "attention", "expert"))
        if layout_trouble(point) or any(margin.margin < 0 for margin in alone):
            continue
        view = pair_view(point)
        if any(number(relation.demand(view)) > number(relation.limit(view)) for relation in pair):
            continue
        seconds, devices = view.step_time_s, math.prod(point.cell.used)
        known = {
            "step_time": seconds,
            "peak_memory": max(point.kind_memory_bytes),
            "devices": devices,
            "exposed_fraction": (seconds - view.step_time_with(frozenset())) / seconds,
            "energy": seconds * devices * (device.power_w or 0.0),
            "cost": seconds * devices * (device.price_per_hour or 0.0) / 3600.0,
        }
        found.append([float(known[name]) for name in names])
    return np.array(found).reshape(-1, len(names))


def covered(mine, others, slack=1e-9):
    """Whether every vector of `mine` is reached by one of `others`, but for rounding."""
    return all((others <= vector + slack * np.abs(vector)).all(axis=1).any() for vector in mine)


def judge(facts, names, every):
    objectives = objectives_of(names, facts.fabric.device)
    for prune in (True, False):
        found = front(problem_of(facts), objectives, prune=prune)
        mine = np.array([point.values for point in found.points]).reshape(-1, len(names))
        truth = every[minimal(every)]

        assert found.complete and not len(found.open_bounds)
        assert covered(truth, mine) and covered(mine, truth)
        assert len(minimal(mine)) == len(mine) == len(np.unique(mine, axis=0))
        assert len({point.candidate.key for point in found.points}) <= len(mine)
    return mine


@pytest.mark.parametrize("names", SETS, ids=",".join)
@pytest.mark.parametrize(
    "name", ["plain", "three units, of which two or three are used", "kinds of exchange", "exposure is limited"]
)
def test_a_front_is_that_of_plain_loops(name, names):
    facts = priced(INSTANCES[name]())
    assert len(judge(facts, names, vectors_by_loops(facts, names)))


@pytest.mark.parametrize("launch", ["10 us", "50 us"])
def test_exposure_survives_pruning_where_stages_wait_for_the_host(launch):
    """A slower row shortens what waits for the host, and with it the step without communication."""
    waits = {"host_launch": launch, "kernels_per_layer": 10, "moe_kernels": 10}
    facts = tiny_facts((2, 2), profile=waits, **SMALL)
    names = ("step_time", "peak_memory", "exposed_fraction")
    assert len(judge(facts, names, vectors_by_loops(facts, names))) > 3


@pytest.mark.slow
@pytest.mark.parametrize("names", SETS, ids=",".join)
@pytest.mark.parametrize("name", INSTANCES)
def test_every_front_is_that_of_plain_loops(name, names):
    facts = priced(INSTANCES[name]())
    judge(facts, names, vectors_by_loops(facts, names))


def against_enumeration(problem, names, seen):
    """The front of the search is that of all pairs, pruned or not."""
    problem = dataclasses.replace(problem, facts=priced(problem.facts))
    objectives = objectives_of(names, problem.facts.fabric.device)
    pairs = sum(len(c.attention) * len(c.expert) for c in every_cell(space_of(problem, objectives)))
    if pairs > 20 * MOST_PAIRS:
        seen["too large"] += 1
        return
    for prune in (True, False):
        found = front(problem, objectives, prune=prune)
        proof = by_exhaustion(problem, objectives, found)
        assert proof is not None and proof.status == "proven", (names, prune, proof)
    seen["empty" if not found.points else "single" if len(found.points) == 1 else "front"] += 1


def test_random_fronts_are_those_of_all_pairs():
    seen = Counter()

    @settings(max_examples=40, **SETTINGS)
    @seed(20261)
    @given(problems())
    def run(problem):
        against_enumeration(problem, SETS[sum(seen.values()) % len(SETS)], seen)

    run()
    assert seen["front"] >= 10


@pytest.mark.slow
@pytest.mark.parametrize("names", SETS, ids=",".join)
def test_many_random_fronts_are_those_of_all_pairs(names):
    seen = Counter()

    @settings(max_examples=200, **SETTINGS)
    @seed(20262)
    @given(problems())
    def run(problem):
        against_enumeration(problem, names, seen)

    run()
    assert seen["front"] >= 50


def test_the_enumeration_shows_a_point_that_is_missing_or_wrong():
    facts = tiny_facts((2, 2), recompute=["none"])
    objectives = objectives_of(SETS[0], facts.fabric.device)
    found = front(problem_of(facts), objectives)
    missing = dataclasses.replace(found, points=found.points[1:])
    wrong = dataclasses.replace(found, points=[dataclasses.replace(found.points[0], values=(0.0, 0.0))])

    assert by_exhaustion(problem_of(facts), objectives, found).status == "proven"
    assert by_exhaustion(problem_of(facts), objectives, missing).status == "disagrees"
    assert by_exhaustion(problem_of(facts), objectives, wrong).status == "disagrees"


@pytest.mark.parametrize("backend", ["cpsat", "exhaustive"])
@pytest.mark.parametrize("names", SETS[:2], ids=",".join)
def test_gaps_of_a_front_are_refuted_and_a_missing_point_is_found(backend, names):
    facts = tiny_facts((2, 2), **SMALL)
    problem, objectives = problem_of(facts), objectives_of(names, facts.fabric.device)
    found = front(problem, objectives)
    assert certify(problem, objectives, found, backend).status == "proven"
    assert len(found.points) > 2
    for place in range(len(found.points)):
        points = [point for number, point in enumerate(found.points) if number != place]
        proof = certify(problem, objectives, dataclasses.replace(found, points=points), backend)
        assert proof.status == "disagrees", found.points[place].values


def test_gaps_cover_what_no_point_reaches():
    facts = tiny_facts((2, 2), **SMALL)
    objectives = objectives_of(SETS[0], facts.fabric.device)
    points = front(problem_of(facts), objectives).points
    boxes = gaps(points, objectives, 4, 1e9)
    assert len(boxes) == len(points) + 1
    for vector in vectors_by_loops(facts, SETS[0]):
        inside = any(vector[0] < box.cutoff_s and vector[1] <= box.limit_bytes for box in boxes)
        assert not inside


def test_a_search_that_ran_out_of_time_says_what_is_open():
    facts = tiny_facts((2, 2), recompute=["none"])
    objectives = objectives_of(SETS[1], facts.fabric.device)
    found = front(problem_of(facts), objectives, deadline=0.0)
    every = vectors_by_loops(facts, SETS[1])

    assert not found.complete and len(found.open_bounds)
    assert covered(every, np.concatenate([found.open_bounds, *[np.array([p.values]) for p in found.points]]))
    assert certify(problem_of(facts), objectives, found).status == "not proven"


def test_objectives_are_checked_and_a_missing_fact_is_named():
    device = tiny_facts((2, 2)).fabric.device
    with pytest.raises(UsageError, match="did you mean 'peak_memory'"):
        objectives_of(("step_time", "peak_memroy"), device)
    with pytest.raises(UsageError, match="twice"):
        objectives_of(("step_time", "step_time"), device)
    for names in ((), ("step_time",), ("devices", "peak_memory")):
        with pytest.raises(UsageError, match="step_time and at least one more"):
            objectives_of(names, device)
    for name, key in (("energy", "power"), ("cost", "price_per_hour")):
        with pytest.raises(MissingFact, match=f"device.{key}"):
            objectives_of(("step_time", name), device)
    assert issubclass(MissingFact, InputError)


def test_energy_and_cost_are_device_seconds_times_their_facts():
    objectives = objectives_of(("step_time", "energy", "cost"), priced(tiny_facts((2, 2))).fabric.device)
    assert objectives.values(10.0, 0.0, 0.0, 4).tolist() == [10.0, 10 * 4 * 700.0, pytest.approx(10 * 4 * 2.5 / 3600)]


@pytest.mark.parametrize("axes", [2, 3])
def test_minimal_vectors_are_those_that_no_other_dominates(axes):
    values = np.random.default_rng(7).integers(0, 6, (60, axes)).astype(float)
    plain = [i for i, v in enumerate(values) if not any(dominates(w, v) for w in values)]
    assert minimal(values).tolist() == plain


@pytest.mark.parametrize("exposed", [False, True])
def test_a_shield_hides_what_a_faster_point_is_not_above(exposed):
    generator = np.random.default_rng(8)
    points, bounds = (generator.integers(0, 5, (count, 3)).astype(float) for count in (5, 200))
    share = points[:, 2] if exposed else None
    hidden = Shield(points[:, 0], points[:, 1], share).hides(bounds[:, 0], bounds[:, 1], bounds[:, 2])
    for bound, here in zip(bounds, hidden, strict=True):
        reach = [p[0] < bound[0] and p[1] <= bound[1] and (not exposed or p[2] <= bound[2]) for p in points]
        assert here == any(reach)


def test_a_unit_in_the_last_place_makes_no_point():
    one = np.nextafter(1.0, 2.0)
    # The second is slower by rounding only and needs less; the last two differ by rounding only.
    values = np.array([[1.0, 5.0], [one, 4.0], [2.0, 3.0], [2.0 * one, 3.0]])
    assert minimal(values[:3]).tolist() == [0, 1, 2]
    assert told_apart(values).tolist() == [1, 2]
    # What is better by more than rounding stays.
    assert told_apart(np.array([[1.0, 5.0], [1.0 + 1e-9, 4.0]])).tolist() == [0, 1]
    assert told_apart(np.zeros((0, 2))).tolist() == []
