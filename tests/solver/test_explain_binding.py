"""What binds: the named limit, relaxed by the named amount, unlocks the named step time; by less it does not."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from explain_oracle import judged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_cases import tiny_facts

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.costs.views import Facts
from mapsearch.solver.explain import binding as binding_module
from mapsearch.solver.explain.binding import RELAXABLE, bindings
from mapsearch.solver.explain.relax import with_hbm
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search
from mapsearch.solver.tables import WHAT_IF

K = 4
SMALL = {"micro_batch": [1], "schedule": ["1f1b"]}


def relaxed(given: Facts, relation: str, more: float) -> Facts:
    """The facts with one limit raised by so much, as a user would raise it."""
    device, run = given.fabric.device, given.run
    if relation == "hbm":
        return with_hbm(given, device.hbm_bytes + more)
    if relation == "host_memory":
        device = replace(device, host_memory_bytes=device.host_memory_bytes + more)
        return replace(given, fabric=replace(given.fabric, device=device))
    if relation == "exposed":
        return replace(given, run=run.replaced(exposed_limit=min(1.0, run.exposed_limit + more)))
    name = relation.removeprefix("exposed_")
    limits = {**run.exposed_limit_by_class, name: min(1.0, run.exposed_limit_by_class[name] + more)}
    return replace(given, run=run.replaced(exposed_limit_by_class=limits))


def nearest(oracle, given: Facts, relation: str, faster_than_s: float) -> float:
    """The least excess of a mapping that is faster and breaks this relation alone, by plain loops."""
    column = oracle.names.index(relation)
    others = oracle.satisfying([name for name in oracle.names if name != relation])
    over = oracle.demand[:, column] - oracle.limit[:, column]
    with np.errstate(invalid="ignore"):
        excess = over / oracle.step_time_s if relation.startswith("exposed") else over
    blocked = others & (over > 0) & (oracle.step_time_s < faster_than_s * (1 - 1e-9))
    if relation == "hbm":
        blocked &= oracle.peak_bytes <= WHAT_IF * usable_hbm_bytes(given)
    return float(excess[blocked].min()) if blocked.any() else np.inf


def judge(given: Facts) -> list[str]:
    """Hold all bindings of a problem to plain loops and to another search with the limit raised."""
    problem = problem_of(given)
    found = search(problem, K)
    oracle = judged(given)
    device = given.fabric.device
    scale = {"hbm": usable_hbm_bytes(given), "host_memory": device.host_memory_bytes}
    names = [name for name in oracle.names if name.startswith(RELAXABLE)]
    said = bindings(problem, found)
    assert len(said) == len(found.top)
    for candidate, (binding, note) in zip(found.top, said, strict=True):
        near = {name: nearest(oracle, given, name, candidate.step_time_s) for name in names}
        relative = {name: excess / scale.get(name, 1.0) for name, excess in near.items()}
        if binding is None:
            assert note and min(relative.values()) == np.inf
            continue
        assert relative[binding.relation] == pytest.approx(min(relative.values()), rel=1e-6)
        whole = 1 - given.run.reserve if binding.relation == "hbm" else 1.0
        assert binding.relax_by == pytest.approx(near[binding.relation] / whole, rel=2e-3)
        assert binding.gain == pytest.approx(1 - binding.step_time_s / candidate.step_time_s)
        assert binding.gain > 0 and binding.unlock
        judge_by_search(given, binding, candidate)
    return [binding.relation if binding else "" for binding, _ in said]


def judge_by_search(given: Facts, binding, candidate) -> None:
    """The amount unlocks something as fast as stated; 1 % less of it unlocks nothing faster than the mapping."""
    enough = search(problem_of(relaxed(given, binding.relation, binding.relax_by)), 1).top
    assert enough[0].step_time_s <= binding.step_time_s * (1 + 1e-9)
    before = {c.key for c in search(problem_of(given), 1000).top}
    less = search(problem_of(relaxed(given, binding.relation, 0.99 * binding.relax_by)), 1000).top
    new = [c.step_time_s for c in less if c.key not in before]
    assert not new or min(new) >= candidate.step_time_s * (1 - 1e-9)


INSTANCES = {
    "HBM": lambda: tiny_facts(hbm_mb=50, **SMALL),
    "HBM with a reserve": lambda: tiny_facts(hbm_mb=55, reserve=0.2, **SMALL),
    "exposure": lambda: tiny_facts(hbm_mb=56, exposed_limit=0.1, recompute=["none"], **SMALL),
    "exposure of one class": lambda: tiny_facts(
        hbm_mb=200, exposed_limit_by_class={"ep": 0.02}, recompute=["none"], **SMALL
    ),
    "both": lambda: tiny_facts(hbm_mb=52, exposed_limit_by_class={"pp": 0.01}, recompute=["none"], **SMALL),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_what_binds_is_nearest_and_unlocks_what_it_says(name):
    said = judge(INSTANCES[name]())
    assert any(said), "the instance shows nothing"


def test_less_host_memory_than_optimizer_states_binds():
    facts = tiny_facts(hbm_mb=35, offload=["none", "optimizer"], zero=[1], **SMALL)
    facts = replace(facts, fabric=replace(facts.fabric, device=replace(facts.fabric.device, host_memory_bytes=2.4e7)))
    judge(facts)


@st.composite
def random_facts(draw):
    run = {"recompute": draw(st.sampled_from([["none"], ["none", "full"]])), "reserve": draw(st.sampled_from([0, 0.1]))}
    if draw(st.booleans()):
        run["exposed_limit"] = draw(st.sampled_from([0.5, 0.3, 0.2, 0.1]))
    if draw(st.integers(0, 2)) == 0:
        run["exposed_limit_by_class"] = {draw(st.sampled_from(["ep", "dp", "tp"])): draw(st.sampled_from([0.1, 0.03]))}
    shape = draw(st.sampled_from([(2, 2), (4,)]))
    return tiny_facts(
        shape,
        hbm_mb=draw(st.sampled_from([46, 48, 50, 55, 64, 80, 120])),
        speed=draw(st.sampled_from([1.0, 0.2])),
        zero=[draw(st.sampled_from([1, 3]))],
        **run,
        **SMALL,
    )


CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(random_facts())
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=CHECKS)
def test_random_bindings(given_facts):
    judge(given_facts)


@pytest.mark.slow
@given(random_facts())
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=CHECKS)
def test_many_random_bindings(given_facts):
    judge(given_facts)


def test_a_binding_reads_as_a_sentence():
    problem = problem_of(INSTANCES["HBM"]())
    binding, _ = bindings(problem, search(problem, 1))[0]
    assert binding.lever.startswith("HBM per device +") and binding.lever.endswith(" MB")
    assert binding.unit == "bytes"
    problem = problem_of(INSTANCES["exposure"]())
    binding, _ = bindings(problem, search(problem, 1))[0]
    assert binding.lever.startswith("exposed limit +") and binding.lever.endswith("% of the step")


def test_bindings_that_run_out_of_time_or_are_interrupted_say_so(monkeypatch):
    problem = problem_of(INSTANCES["HBM"]())
    found = search(problem, 2)
    assert {note for _, note in bindings(problem, found, time.monotonic() - 1.0)} == {
        "the time limit left no time to find what binds"
    }

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(binding_module, "blocked_by", stop)
    said = bindings(problem, found)
    assert [binding for binding, _ in said] == [None, None] and "interrupted" in said[0][1]
