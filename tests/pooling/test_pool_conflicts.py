"""Minimal conflicts over both pools held to plain loops over all mappings and all cuts of a replica."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from explain_oracle import judged
from tiny_cases import tiny_model, tiny_run
from two_pools import TINY_ROLLOUT, tiny_cluster, tiny_pools, tiny_rollout

from mapsearch.costs import serving
from mapsearch.pooling.conflicts import JointProbe, joint_conflicts
from mapsearch.pooling.infeasible import explain_infeasible, fits
from mapsearch.pooling.replicas import shapes_of
from mapsearch.pooling.split import best_pair

SEEDS = 40


def drawn_tight(seed: int):
    """A random question in which little fits."""
    pick = random.Random(seed).choice
    rollout = tiny_rollout(
        concurrency=pick([1, 2, 64]),
        versions=pick([1, 2, 4]),
        queue={"held_batches": pick([0.5, 1.5]), "most_batches": pick([2.0, 3.0])},
        serving={**TINY_ROLLOUT["serving"], "tp": pick([[1], [1, 2]]), "dp": pick([[1], [2], [1, 2]]), "ep": [1, 2]},
    )
    run = tiny_run(sequence_length=256, global_batch=4, micro_batch=[1], vpp=[1], schedule=["1f1b"])
    sizes, hbm = pick([(2, 2), (1, 3), (1, 4)]), pick([3.0, 6.0, 12.0, 24.0, 40.0])
    return tiny_pools(
        model=tiny_model(layers=2), run=run, topology=tiny_cluster(sizes, hbm_mb=hbm), rollout=rollout
    )  # fmt: skip


def satisfied_sets(probe: JointProbe) -> set[frozenset[str]]:
    """What every triple of division, training mapping and cut of a replica keeps, one by one."""
    pools = probe.pools
    queue = pools.rollout.queue
    loop = {"queue"} if queue.held_batches + 1.0 <= queue.most_batches else set()
    loop |= {"versions"} if pools.rollout.versions > queue.held_batches + pools.rollout.publishing.every - 1 else set()
    trained, served = [], []
    for part in probe.wholes:
        oracle = judged(part.training)
        rows = {tuple(row) for row in oracle.holds.tolist()}
        kept = [{f"training.{n}" for n, holds in zip(oracle.names, row, strict=True) if holds} for row in rows]
        trained.append(kept)
        served.append(list(_served(pools, part)))
    found = set()
    for place in range(len(probe.parts)):
        pairs = itertools.product(trained[place], served[place])
        found |= {frozenset(one | other | loop | {"devices"}) for one, other in pairs}
    apart = itertools.product(itertools.chain(*trained), itertools.chain(*served))
    found |= {frozenset(one | other | loop) for one, other in apart}
    return {one for one in found if not any(one < other for other in found)}


def _served(pools, part):
    """Serving constraints that each cut keeps, one request for each copy of attention."""
    offered, demand = pools.rollout.serving, pools.server.demand
    ways = [1, 2, 4, 8]
    wide = pools.rollout.model_copy(
        update={"serving": offered.model_copy(update=dict.fromkeys(("tp", "dp", "ep"), ways))}
    )
    for shape in shapes_of(pools.model, wide, part.serving.fabric):
        cut = (shape.tp, shape.dp, shape.ep)
        most = serving.most_sequences(*cut, demand.held_tokens, demand.most_tokens, facts=part.serving)
        kept = {"rollout.hbm"} if most >= shape.dp else set()
        if shape.dp * shape.replicas(part.serving.fabric) <= pools.rollout.concurrency:
            kept.add("rollout.concurrency")
        if shape.tp in offered.tp and shape.dp in offered.dp and shape.ep in offered.ep:
            kept.add("rollout.sizes")
        yield kept


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_conflicts_are_irreducible_and_none_is_missing(first):
    infeasible = 0
    for seed in range(first, first + 10):
        probe = JointProbe(drawn_tight(seed))
        sets = satisfied_sets(probe)

        def satisfiable(names, sets=sets):
            return any(set(names) <= one for one in sets)

        found = joint_conflicts(probe, 10)
        if satisfiable(probe.names):
            assert found.cores == [] and found.complete
            assert fits(probe.pools)
            continue
        infeasible += 1
        assert not fits(probe.pools)
        assert found.cores
        for core in found.cores:
            assert not satisfiable(core), (seed, core)
            for name in core:
                assert satisfiable([other for other in core if other != name]), (seed, core, name)
        if found.complete:
            for lost in itertools.product(*found.cores):
                assert satisfiable([name for name in probe.names if name not in lost]), (seed, lost)
    assert infeasible >= 3


def test_the_instances_conflict_in_every_way():
    found = [joint_conflicts(JointProbe(drawn_tight(seed)), 6).cores for seed in range(SEEDS)]
    seen = {name.split(".")[0] for cores in found for core in cores for name in core}
    assert {"training", "rollout", "queue", "versions", "devices"} <= seen


def test_pools_that_compete_for_devices_say_so():
    """Training alone fits on four devices and a replica on two of them, but not both at once."""
    found = [(seed, core) for seed in range(SEEDS) for core in joint_conflicts(JointProbe(drawn_tight(seed)), 6).cores
             if "devices" in core]  # fmt: skip
    assert found
    seed, core = found[0]
    told = explain_infeasible(drawn_tight(seed), conflicts=6)
    one = next(conflict for conflict in told.conflicts if conflict.relations == core)
    assert len(one.sentences) == len(one.fields) == len(core)
    assert any("a device is in one pool" in sentence for sentence in one.sentences)


@pytest.mark.parametrize("seed", [0, 3, 7, 11, 19])
def test_least_relaxations_fit_and_what_was_tried_short_of_them_does_not(seed):
    from mapsearch.pooling.levers import limit_levers

    pools = drawn_tight(seed)
    if fits(pools):
        pools = replace(pools, rollout=pools.rollout.model_copy(update={"versions": 0}))
    levers = {(one.name, one.choice): one for one in limit_levers(pools)}
    for one in explain_infeasible(pools, conflicts=10).relaxations:
        lever = levers[(one.name, one.choice)]
        best = best_pair(lever.at(one.to_value)).best
        assert best is not None
        assert one.step_time_s == pytest.approx(best.step_s)
        if one.fails_at is not None:
            assert not fits(lever.at(one.fails_at))
