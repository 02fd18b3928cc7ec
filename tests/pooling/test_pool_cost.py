"""Cost as the objective of two pools: the least of plain loops over divisions that may leave devices unused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from two_pools import drawn, plain_best, tiny_cluster, tiny_pools, tiny_rollout

from mapsearch.errors import MissingFact, UsageError
from mapsearch.pooling.api import answer_of
from mapsearch.pooling.objective import DEVICE_HOURS, HOUR_S, Objective, objective_of
from mapsearch.pooling.split import best_pair
from mapsearch.topologies import fabric_of
from mapsearch.topologies.scale import scaled

SEEDS = 224
BLOCK = 16
PRICES = [(1.0, 1.0), (4.0, 1.0), (1.0, 4.0), (0.1, 3.0)]


def priced(seed):
    return Objective("cost", *PRICES[seed % len(PRICES)])


@cache
def best_of(seed):
    return best_pair(drawn(seed), objective=priced(seed))


@pytest.mark.parametrize("start", range(0, SEEDS, BLOCK))
def test_the_cheapest_pair_is_that_of_plain_loops(start):
    for seed in range(start, start + BLOCK):
        asked, found = priced(seed), best_of(seed)
        wanted = plain_best(drawn(seed), asked.training_per_hour, asked.rollout_per_hour)
        assert found.complete
        assert (found.best is None) == (wanted is None), seed
        if wanted is not None:
            assert found.best.value * HOUR_S == pytest.approx(wanted, rel=1e-9), seed
            assert found.bound == found.best.value


def test_fewer_devices_are_cheaper_in_some_and_in_some_not():
    told = [(best_of(seed).best, drawn(seed)) for seed in range(SEEDS)]
    pairs = [(best, pools) for best, pools in told if best is not None]
    assert len(pairs) >= 100
    used = [best.part.training.fabric.devices + best.part.serving.fabric.devices < pools.devices
            for best, pools in pairs]  # fmt: skip
    assert 20 <= sum(used) <= len(used) - 20
    slower = [best.step_s > best_pair(pools).best.step_s * (1.0 + 1e-6) for best, pools in pairs[:40]]
    assert any(slower)


def own_cluster(tmp_path, **changes):
    file = tmp_path / "own.json"
    file.write_text(tiny_cluster((2, 3), hbm_mb=256.0).model_dump_json(exclude_defaults=True))
    rollout = tiny_rollout(pool={"topology": str(file), "link": {"bandwidth": "100 MB/s"}, **changes})
    return tiny_pools(topology=tiny_cluster((2, 4), hbm_mb=256.0), rollout=rollout)


@pytest.mark.parametrize("prices", PRICES)
def test_both_sides_of_a_cluster_of_its_own_may_stay_unused(tmp_path, prices):
    pools = own_cluster(tmp_path)
    asked = Objective("cost", *prices)
    best = best_pair(pools, objective=asked).best
    whole = pools.part(0)
    values = []
    for trains in range(1, 5):
        facts = replace(whole.training, fabric=fabric_of(scaled(pools.topology, 2 * trains)))
        for serves in range(1, 4):
            serving = replace(whole.serving, fabric=fabric_of(scaled(pools.own, 2 * serves)))
            part = replace(whole, training=facts, serving=serving)
            values.append(plain_best(Fixed(pools, part), *prices))
    assert best.value * HOUR_S == pytest.approx(min(value for value in values if value is not None), rel=1e-9)
    assert best.value <= best_pair(pools).best.step_s * asked.weight(8, 6) * (1.0 + 1e-12)


class Fixed:
    """Pools on one division."""

    def __init__(self, pools, part):
        self._pools, self._part = pools, part

    def part(self, units):
        return self._part

    def parts(self):
        return [self._part]

    def __getattr__(self, name):
        return getattr(self._pools, name)


def test_the_answer_says_what_is_paid_and_what_stays_unused():
    pools = tiny_pools(topology=tiny_cluster((2, 8), hbm_mb=256.0))
    told = answer_of(pools, best_pair(pools, objective=DEVICE_HOURS))
    used = told.training_devices + told.rollout_devices
    assert told.idle_devices == 16 - used > 0
    hours = told.steady.step_s * used / HOUR_S / told.steady.batch_tokens * 1e6
    assert told.cost.device_hours_per_million == pytest.approx(hours)
    assert told.bound_per_million == pytest.approx(hours)
    assert told.bound_s is None
    assert told.gap == 0.0
    assert told.cost.per_million is None
    assert min(one.per_million for one in told.divisions if one.per_million) == pytest.approx(hours)
    price = answer_of(pools, best_pair(pools, objective=Objective("cost", 2.0, 3.0))).cost
    assert price.per_million == pytest.approx(price.device_hours_per_million * 2.0, rel=0.5)
    assert (price.training_per_hour, price.rollout_per_hour) == (2.0, 3.0)


def test_a_missing_price_names_its_key(tmp_path):
    pools = tiny_pools()
    with pytest.raises(MissingFact, match=r"price_per_hour.*--training-price.*device-hours"):
        objective_of(pools, "cost")
    assert objective_of(pools, "cost", 2.0, 1.0) == Objective("cost", 2.0, 1.0)
    with pytest.raises(MissingFact, match=r"pool\.price_per_hour.*--rollout-price"):
        objective_of(pools, "cost", 2.0)
    own = own_cluster(tmp_path, price_per_hour=0.5)
    assert objective_of(own, "cost", 2.0) == Objective("cost", 2.0, 0.5)
    assert objective_of(own, "cost", 2.0, 7.0) == Objective("cost", 2.0, 7.0)
    device = pools.topology.device.model_copy(update={"price_per_hour": 1.5})
    told = replace(pools, topology=pools.topology.model_copy(update={"device": device}))
    assert objective_of(told, "cost") == Objective("cost", 1.5, 1.5)
    with pytest.raises(UsageError, match="accepted: tokens, cost"):
        objective_of(pools, "price")
    with pytest.raises(UsageError, match="takes none"):
        objective_of(pools, "tokens", 2.0)
