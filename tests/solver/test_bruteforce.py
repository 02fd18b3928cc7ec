"""The search against plain loops that cost every mapping alone."""

from __future__ import annotations

from dataclasses import replace

import bruteforce
import pytest
from tiny_cases import tiny_facts

from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search

SHARED = {"experts": 8, "top_k": 2, "expert_ffn": 256, "shared_ffn": 256}
SMALL = {"micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"]}
INSTANCES = {
    "plain": lambda: tiny_facts((2, 2), recompute=["none"]),
    "one level of four": lambda: tiny_facts((4,), recompute=["none"]),
    "memory binds": lambda: tiny_facts((2, 2), hbm_mb=50, micro_batch=[1], schedule=["1f1b"]),
    "three units, of which two or three are used": lambda: tiny_facts((3, 2), **SMALL),
    "dense model": lambda: tiny_facts((2, 2), model={"moe": None}, recompute=["none"]),
    "dense first, shared expert, MTP, tied": lambda: tiny_facts(
        (2, 2), model={"dense_first": 1, "moe": SHARED, "mtp_layers": 1, "tied_embeddings": True}, **SMALL
    ),
    "all schedules": lambda: tiny_facts(
        (2, 2),
        **{**SMALL, "schedule": ["1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe", "dualpipe-v", "zb-2p"]},
    ),
    "ZeRO and offload": lambda: tiny_facts((4,), zero=[0, 1, 2, 3], offload=["none", "optimizer"], **SMALL),
    "NVMe is scarce": lambda: tiny_facts(
        (4,), hbm_mb=60, nvme_mb=30, zero=[0, 1], offload=["none", "optimizer+nvme", "activations"], **SMALL
    ),
    "kinds of exchange": lambda: tiny_facts(
        (4,),
        cp_kind=["ring", "all-gather", "ulysses"],
        dispatcher=["all-to-all", "fixed-all-to-all", "all-gather", "deduplicated"],
        **SMALL,
    ),
    "skew by number of expert ranks": lambda: tiny_facts(
        (4,),
        dispatcher=["all-to-all", "fixed-all-to-all", "deduplicated"],
        routing={"by_ranks": {2: {"rank_skew": 1.1, "pair_skew": 1.4}, 4: {"rank_skew": 1.9, "pair_skew": 2.0}}},
        **{**SMALL, "micro_batch": [1, 2]},
    ),
    "hidden exchange": lambda: tiny_facts(
        (2, 2), overlap={"expert_all_to_all": True}, zero=[1, 3], **{**SMALL, "recompute": ["none", "moe"]}
    ),
    "exchange under the shared expert": lambda: tiny_facts(
        (2, 2), model={"moe": SHARED}, overlap={"shared_expert": True}, **SMALL
    ),
    "overlap left to the search": lambda: tiny_facts(
        (2, 2),
        overlap={"expert_all_to_all": [False, True], "param_gather": [True, False]},
        **{**SMALL, "schedule": ["interleaved", "dualpipe", "zb-h1"], "zero": [1, 3], "recompute": ["none", "moe"]},
    ),
    "exposure is limited": lambda: tiny_facts((2, 2), exposed_limit=0.3, exposed_limit_by_class={"ep": 0.1}, **SMALL),
    "placement and user constraints": lambda: tiny_facts(
        (2, 2), placement={"tp": "inside"}, constraints={"allow": {"ep": [2, 4]}, "at_most": {"pp": 2}}, **SMALL
    ),
    "megatron": lambda: tiny_facts((2, 2), framework="megatron", micro_batch=[1]),
    "nothing fits": lambda: tiny_facts((2, 2), hbm_mb=20, **SMALL),
    "the user forbids everything": lambda: tiny_facts((2, 2), constraints={"fix": {"tp": 3}}, **SMALL),
}
K = 12


def _with_holes(facts, cores):
    return replace(facts, fabric=replace(facts.fabric, cores=cores))


INSTANCES |= {
    "holes: two racks of three, or three of two": lambda: _with_holes(tiny_facts((3, 3), **SMALL), ((3, 2), (2, 3))),
    "holes: six of seven": lambda: _with_holes(tiny_facts((7,), **SMALL), ((6,),)),
    "holes, and memory binds": lambda: _with_holes(tiny_facts((4, 3), hbm_mb=50, **SMALL), ((3, 3), (4, 2))),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_the_search_ranks_as_plain_loops_do(name):
    facts = INSTANCES[name]()
    judge(facts, bruteforce.every(facts))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 2, 2), (4, 2), (6, 2), (2, 3, 2)])
def test_the_search_ranks_larger_clusters_as_plain_loops_do(sizes):
    facts = tiny_facts(sizes, hbm_mb=48, micro_batch=[1], recompute=["none"], global_batch=16)
    judge(facts, bruteforce.every(facts))


def judge(facts, every):
    expected = sorted((seconds, key) for key, seconds in every.items())[:K]
    for prune in (True, False):
        found = search(problem_of(facts), K, prune=prune)

        assert found.complete
        assert [c.step_time_s for c in found.top] == pytest.approx([seconds for seconds, _ in expected], rel=1e-9)
        assert len({c.key for c in found.top}) == len(found.top)
        for candidate in found.top:
            # Ties may be listed in any order of rounding, but each mapping listed takes what the loops say.
            assert every[candidate.key] == pytest.approx(candidate.step_time_s, rel=1e-9)


def test_ties_are_listed_alike_by_both_ways_to_search():
    facts = tiny_facts((4,), profile={"tp_overlap": 0.0}, recompute=["none"])
    pruned, whole = (search(problem_of(facts), 30, prune=prune).top for prune in (True, False))

    assert [c.key for c in pruned] == [c.key for c in whole]


@pytest.mark.parametrize("name", ["nothing fits", "the user forbids everything"])
def test_an_empty_ranking_of_a_complete_search_means_infeasible(name):
    found = search(problem_of(INSTANCES[name]()), K)

    assert found.complete and not found.top


def test_memory_binds_where_the_instance_says_so():
    tight, wide = (search(problem_of(tiny_facts((2, 2), hbm_mb=hbm, **SMALL)), 1000).top for hbm in (50, 1000))

    assert 0 < len(tight) < len(wide) / 2
    assert tight[0].step_time_s > wide[0].step_time_s
