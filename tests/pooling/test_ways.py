"""The way of the weights: layouts of both sides, links between the pools, changes alone, unlike units."""

from __future__ import annotations

import json

import numpy as np
import pytest
from two_pools import drawn, plain_best, tiny_cluster, tiny_pools, tiny_rollout

from mapsearch.costs import transfer
from mapsearch.errors import InputError, MissingFact
from mapsearch.inventories.base import validate
from mapsearch.pooling.answers import pair_of
from mapsearch.pooling.api import answer_of
from mapsearch.pooling.conflicts import JointProbe
from mapsearch.pooling.layouts import between_ranks, by_level, bytes_of, spot_bytes
from mapsearch.pooling.levers import limit_levers
from mapsearch.pooling.problem import route_of
from mapsearch.pooling.published import published
from mapsearch.pooling.split import best_pair
from mapsearch.topologies.graph import node_link
from mapsearch.topologies.spec import Topology


def pairs(seeds):
    for seed in seeds:
        pools = drawn(seed)
        best = best_pair(pools).best
        if best is not None:
            yield pools, best


def test_rows_and_columns_of_the_matrix_are_what_is_owned_and_held():
    seen = set()
    for pools, pair in pairs(range(0, 160, 2)):
        table, mapping, shape = bytes_of(pools, pair), pair.mapping, pair.offer.shape
        rows = table.rows(0, table.senders)
        np.testing.assert_allclose(rows.sum(axis=1), table.sent)
        np.testing.assert_allclose(rows.sum(axis=0), table.received)
        dense, experts = (part.sum() for part in transfer.stage_parts(pools.model, (pools.model.layers,)))
        volume, etp = pools.volume_bytes, shape.devices // shape.ep
        # Every rollout rank gets its TP piece of the dense weights and its EP x ETP piece of the experts.
        np.testing.assert_allclose(table.received, volume * (dense / shape.tp + experts / (shape.ep * etp)))
        # All training ranks together send each expert once, and dense weights to each copy of attention.
        assert table.sent.sum() == pytest.approx(volume * (shape.dp * dense + experts))
        assert table.sent.sum() == pytest.approx(route_of(pools, pair.part, pair.offer, mapping).replica_bytes)
        # The busiest of them is the one that the search counts, and what it sends is what it owns.
        path = route_of(pools, pair.part, pair.offer, mapping)
        if path.path == "all":
            assert table.sent.max() * path.replicas == pytest.approx(path.crossing_bytes / path.sources)
        seen.add((mapping.tp, mapping.ep, shape.tp, shape.dp, shape.ep))
    assert len(seen) > 5


def test_levels_add_up_to_the_matrix():
    for pools, pair in pairs(range(1, 60, 4)):
        table = bytes_of(pools, pair)
        total = table.sent.sum() * pair.offer.replicas
        for one in by_level(pair, table):
            assert one.mean_bytes * one.units == pytest.approx(total)
            assert one.most_bytes >= one.mean_bytes * (1 - 1e-9)
        peers, largest = between_ranks(table)
        assert 1 <= peers <= pair.offer.shape.devices
        assert largest <= table.sent.max() * (1 + 1e-9)
        each = (1, 1)
        spots = spot_bytes(pools, pair, table, each)
        copies = 1 if pools.rollout.publishing.path == "tree" else pair.offer.replicas
        assert spots.sum() == pytest.approx(table.sent.sum() * copies)
        assert (spots.sum(axis=0) > 0).sum() == copies * pair.offer.shape.devices


def test_routed_rank_by_rank_is_what_the_search_counts_around_a_switch():
    seen = 0
    for pools, pair in pairs(range(2, 120, 3)):
        plan = published(pools, pair)
        assert plan.stages_s["transfer"] >= plan.bound_s * (1 - 1e-9)
        assert plan.time_s == pair.pace.publish_s
        if plan.routed_s is None or pools.outer.kind != "switch":
            continue
        seen += 1
        if plan.path == "all":
            # Ranks that send unevenly may share an uplink: no more than the busiest of them would fill.
            assert plan.routed_s <= plan.stages_s["transfer"] * (1 + 1e-9)
        assert plan.routed_s >= plan.bound_s * (1 - 1e-9)
    assert seen > 5


def published_on(kind, **changes):
    pools = tiny_pools(topology=tiny_cluster((2, 8), hbm_mb=256.0, outer=kind), **changes)
    best = best_pair(pools).best
    part = next(one for one in pools.parts() if one.units == best.part.units)
    return pools, best, part


def test_a_ring_between_the_pools_is_slower_than_a_switch():
    """Eight units in a ring: two links join the arcs, so that half of them leave a quarter of the uplinks' rate."""
    rollout = tiny_rollout(publishing={"switch": "0 s", "path": "all"})
    seconds = {}
    for kind in ("switch", "ring", "full_mesh"):
        pools = tiny_pools(topology=tiny_cluster((2, 8), hbm_mb=256.0, outer=kind), rollout=rollout)
        part = pools.part(4)
        offer = next(one for one in pools.server.offers(part.serving) if one.shape.dp == one.shape.tp == 1)
        way = pools.ways.way(part, offer)
        path = route_of(pools, part, offer, None)
        seconds[kind] = transfer.transfer_s(path)
        uplink = 2 * pools.outer.bytes_per_s * part.training.profile.point_to_point.peak
        wanted = {"switch": 4.0, "ring": 1.0, "full_mesh": 16 / 7}[kind] * uplink
        assert way.narrowest_bytes_per_s == pytest.approx(wanted)
        assert way.cut_s_per_byte == pytest.approx(1.0 / wanted)
    assert seconds["switch"] < seconds["full_mesh"] < seconds["ring"]


def own_cluster(tmp_path, **changes):
    file = tmp_path / "own.json"
    file.write_text(tiny_cluster((2, 4), hbm_mb=256.0).model_dump_json(exclude_defaults=True))
    return tiny_rollout(pool={"topology": str(file), **changes}, publishing={"switch": "0 s"})


def test_gateways_bound_the_rate_and_the_answer_says_which_cut_binds(tmp_path):
    narrow = {"training": "rack", "rollout": "rack", "bandwidth": "10 MB/s", "count": 2, "latency": "1 ms"}
    pools = tiny_pools(rollout=own_cluster(tmp_path, link={"gateways": [narrow]}))
    best = best_pair(pools).best
    plan = answer_of(pools, best_pair(pools)).publishing
    crossing = next(cut for cut in plan.cuts if cut.name == "link")
    assert plan.binding_cut == crossing.where == "training rack - rollout rack"
    assert crossing.bytes_per_s == pytest.approx(20e6)
    assert plan.stages_s["transfer"] == pytest.approx(crossing.bytes / 20e6 + 1e-3)
    assert plan.bound_s == pytest.approx(plan.volume_bytes / 20e6)
    assert plan.bound_cut == plan.binding_cut
    assert plan.routed_s == pytest.approx(plan.stages_s["transfer"])
    assert best.step_s == pytest.approx(plain_best(pools))


def test_a_gateway_in_a_corner_is_bound_by_the_way_to_it(tmp_path):
    corner = {"training": "board1", "rollout": "rack", "bandwidth": "1 TB/s"}
    pools = tiny_pools(rollout=own_cluster(tmp_path, link={"gateways": [corner]}))
    plan = answer_of(pools, best_pair(pools)).publishing
    link = next(cut for cut in plan.cuts if cut.name == "link")
    assert link.where == "training rack.switch - training board1"
    share = pools.inputs.facts.profile.point_to_point.peak
    # Three of four boards send over the uplink of the one with the gateway.
    assert link.bytes_per_s == pytest.approx(2 * pools.outer.bytes_per_s * share / 0.75)


def test_the_same_cluster_as_a_graph_publishes_alike():
    levels = tiny_cluster((2, 4), hbm_mb=256.0)
    graph = a_graph(levels)
    plans = [answer_of(pools, best_pair(pools)) for pools in (tiny_pools(topology=levels), tiny_pools(topology=graph))]
    assert plans[0].steady.step_s == pytest.approx(plans[1].steady.step_s)
    assert plans[0].publishing.stages_s == pytest.approx(plans[1].publishing.stages_s)
    assert plans[0].publishing.routed_s == pytest.approx(plans[1].publishing.routed_s)


def test_gateways_without_a_second_cluster_are_refused():
    gateway = {"training": "rack", "rollout": "rack", "bandwidth": "1 GB/s"}
    with pytest.raises(InputError, match=r"pool\.topology"):
        tiny_pools(rollout=tiny_rollout(pool={"link": {"gateways": [gateway]}}))


def test_a_bandwidth_and_gateways_are_not_both_the_link():
    gateway = {"training": "rack", "rollout": "rack", "bandwidth": "1 GB/s"}
    with pytest.raises(InputError, match="not both"):
        tiny_rollout(pool={"link": {"bandwidth": "1 GB/s", "gateways": [gateway]}})


# --- changes alone -----------------------------------------------------------------------------------------------

SHARE = {"value": 0.02, "source": "measured: bit-identical weights of a pilot run"}


def with_host(cluster):
    host = {"host_memory": 1e12, "host_bandwidth": 25e9}
    return cluster.model_copy(update={"device": cluster.device.model_copy(update=host)})


def plan_with(delta, **changes):
    publishing = {"switch": "0 s", "delta": delta} if delta else {"switch": "0 s"}
    link = {"link": {"bandwidth": "1 MB/s"}}
    pools = tiny_pools(
        topology=with_host(tiny_cluster(hbm_mb=256.0)), rollout=tiny_rollout(publishing=publishing, pool=link)
    )
    return pools, answer_of(pools, best_pair(pools))


def test_changes_alone_shorten_the_transfer_and_not_the_check():
    _, whole = plan_with(None)
    pools, changes = plan_with({"format": "indices", "share": SHARE, "index_bytes": 4})
    plan = changes.publishing
    # 2 % of the weights in one byte with four of position each, and every scale.
    wanted = pools.parameters * (0.02 * 5.0 + 4.0 / 128**2)
    assert plan.delta_bytes == plan.version_bytes == plan.mean_bytes == pytest.approx(wanted)
    assert plan.whole_s is None
    assert plan.stages_s["transfer"] < 0.2 * whole.publishing.stages_s["transfer"]
    assert plan.stages_s["verify"] == pytest.approx(whole.publishing.stages_s["verify"])
    assert plan.stages_s["quantise"] > whole.publishing.stages_s["quantise"]
    assert changes.steady.step_s <= whole.steady.step_s


def test_whole_versions_at_once_age_samples_and_spread_ones_do_not():
    delta = {"format": "tensors", "share": SHARE}
    pools, never = plan_with(delta)
    _, once = plan_with({**delta, "full_every": 4})
    _, spread = plan_with({**delta, "full_every": 4, "full": "spread"})
    _, whole = plan_with(None)
    assert never.publishing.time_s < spread.publishing.time_s < once.publishing.time_s
    assert once.publishing.whole_s == once.publishing.time_s
    assert once.publishing.time_s == pytest.approx(whole.publishing.time_s, rel=0.01)
    volume, changed = pools.volume_bytes, 0.02 * pools.volume_bytes
    assert once.publishing.mean_bytes == pytest.approx((volume + 3 * changed) / 4)
    assert spread.publishing.version_bytes == pytest.approx(changed + volume / 4)


def test_a_share_without_its_source_is_refused():
    with pytest.raises(InputError, match="needs its source"):
        tiny_rollout(publishing={"switch": "0 s", "delta": {"format": "tensors", "share": 0.02}})
    with pytest.raises(InputError, match="index_bytes"):
        tiny_rollout(publishing={"switch": "0 s", "delta": {"format": "indices", "share": SHARE}})


def test_changes_need_a_host_that_keeps_the_version_before():
    rollout = tiny_rollout(publishing={"switch": "0 s", "delta": {"format": "bitmap", "share": SHARE}})
    with pytest.raises(MissingFact, match=r"device\.host_bandwidth"):
        best_pair(tiny_pools(rollout=rollout))


# --- clusters with holes and several types of device ---------------------------------------------------------------


def uneven(**changes):
    return tiny_cluster((2, 5), hbm_mb=256.0).model_copy(update=changes)


@pytest.mark.parametrize(
    "down", [["board1/device0"], ["board1/device0", "board3"], ["board0/device1", "board2/device1"]]
)
def test_a_cluster_with_holes_is_divided_as_well_as_loops_do(down):
    pools = tiny_pools(topology=uneven(down=down))
    found = best_pair(pools)
    assert found.complete
    assert found.best.step_s == pytest.approx(plain_best(pools))
    told = answer_of(pools, found)
    assert told.training_units
    assert any("two choices are searched" in note for note in told.notes)
    # The answer leads back to the very division.
    again = pair_of(pools, told)
    assert (again.part.key, again.step_s) == (found.best.part.key, pytest.approx(found.best.step_s))
    assert set(told.training_units) < {f"board{at}" for at in range(5)}
    assert told.steady.step_s >= best_pair(tiny_pools(topology=uneven())).best.step_s * (1 - 1e-9)


def test_a_hole_costs_one_replica_and_not_one_of_every_board():
    """Replicas of one device: nine of ten work, whatever board the tenth is on."""
    pools = tiny_pools(topology=uneven(down=["board4/device0"]))
    part = next(one for one in pools.parts() if one.serves == (1, 2, 3, 4))
    counts = {one.replicas for one in pools.server.offers(part.serving) if one.shape.devices == 1}
    assert counts == {7}
    assert {one.replicas for one in pools.server.offers(part.serving) if one.shape.devices == 2} == {3}


def test_which_units_train_is_decided():
    """With one device of a board dead, either side may have it."""
    pools = tiny_pools(topology=uneven(down=["board2/device0"]))
    sides = {(one.units, 2 in one.trains) for one in pools.parts()}
    assert {(1, True), (1, False), (4, True), (4, False)} <= sides


def test_types_of_device_are_divided_between_the_pools():
    fast = tiny_cluster().device.model_copy(update={"name": "fast", "peak": {"bf16": 40e12, "fp8": 80e12}})
    cluster = tiny_cluster((2, 4), hbm_mb=256.0).model_copy(
        update={
            "other_devices": [fast.model_copy(update={"hbm": 256e6})],
            "types": {"board0": "fast", "board1": "fast"},
        }
    )
    pools = tiny_pools(topology=cluster)
    found = best_pair(pools)
    assert found.best.step_s == pytest.approx(plain_best(pools))
    pure = [one for one in pools.parts() if one.trains in ((0, 1), (2, 3))]
    assert {(one.training.fabric.device.name, one.serving.fabric.device.name) for one in pure} == {
        ("fast", "tiny device"), ("tiny device", "fast"),
    }  # fmt: skip
    slow = best_pair(tiny_pools(topology=tiny_cluster((2, 4), hbm_mb=256.0))).best
    assert found.best.step_s <= slow.step_s * (1 + 1e-9)
    assert "fast" in found.best.part.which
    assert pair_of(pools, answer_of(pools, found)).part.key == found.best.part.key


def test_conflicts_tell_divisions_of_equal_size_and_other_types_apart():
    """Two boards of either type: only those with memory can train, whichever side is asked about first."""
    large = tiny_cluster().device.model_copy(update={"name": "large", "hbm": 256e6})
    cluster = tiny_cluster((2, 4), hbm_mb=3.0).model_copy(
        update={"other_devices": [large], "types": {"board0": "large", "board1": "large"}}
    )
    pools = tiny_pools(topology=cluster)
    probe = JointProbe(pools)
    asked = frozenset({"training.hbm"})
    kept = {part.key: probe._trains(part, frozenset({"hbm"})) is not None for part in pools.parts()}
    alone = {part.key: JointProbe(pools)._trains(part, frozenset({"hbm"})) is not None for part in pools.parts()}
    assert kept == alone
    assert len(set(kept.values())) == 2
    assert probe.witness(asked) is not None


def a_graph(levels, **changes):
    """A cluster as its cables."""
    drawing = node_link(levels)
    nodes = [
        {"id": node["id"].replace(".", "_"), "type": node["type"], "unit": node["unit"]} for node in drawing["nodes"]
    ]
    links = [
        {
            "a": edge["source"].replace(".", "_"),
            "b": edge["target"].replace(".", "_"),
            "bandwidth": f"{edge['bytes_per_s']!r} B/s",
            "latency": f"{edge['latency_s']!r} s",
        }
        for edge in drawing["edges"]
    ]
    data = json.loads(levels.model_dump_json(exclude_defaults=True))
    del data["levels"]
    whole = {**data, "nodes": nodes, "links": links, "level_names": ["board", "rack"], **changes}
    return validate(Topology, whole, file="graph")


def test_more_memory_is_asked_about_on_the_cluster_as_it_is():
    """With its hole and its cables; another number of units of it is not defined, and not said to be of no use."""
    names = [node["id"] for node in node_link(tiny_cluster((2, 5)))["nodes"] if node["type"] == "device"]
    graph = a_graph(tiny_cluster((2, 5), hbm_mb=256.0), down=[names[3].replace(".", "_")])
    pools = tiny_pools(topology=graph)
    levers = {lever.name: lever for lever in limit_levers(pools)}
    larger = levers["hbm"].at(512e6)
    assert [unit.down for unit in larger.unlike] == [unit.down for unit in pools.unlike]
    assert larger.built.device.hbm == 512e6
    assert larger.inputs.facts.fabric.device.hbm_bytes == 512e6
    assert "devices" not in levers


def test_a_rollout_pool_with_holes_of_its_own_serves_around_them(tmp_path):
    file = tmp_path / "own.json"
    own = tiny_cluster((2, 4), hbm_mb=256.0).model_copy(update={"down": ["board1/device1"]})
    file.write_text(own.model_dump_json(exclude_defaults=True))
    rollout = tiny_rollout(pool={"topology": str(file), "link": {"bandwidth": "1 GB/s"}})
    pools = tiny_pools(rollout=rollout)
    counts = {one.replicas for one in pools.server.offers(pools.part(0).serving) if one.shape.devices == 1}
    assert counts == {7}
    assert best_pair(pools).best.step_s == pytest.approx(plain_best(pools))
