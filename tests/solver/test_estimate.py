"""The estimate of one mapping: golden vector E1 (FORMULAS 8), sums, utilisation, and the tables of the search."""

from __future__ import annotations

import random
from dataclasses import replace

import bruteforce
import numpy as np
import pytest
from tiny_cases import E1_MAPPING, e1_facts, tiny_facts

from mapsearch.axes import written
from mapsearch.costs.estimate import estimate, layout_trouble, point_of
from mapsearch.costs.placement import rows_of
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.models import load_model
from mapsearch.solver.cells import block_of, cell_problem, evaluate_block, pair_view
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import key_of
from mapsearch.solver.space import rows_of as rows_to_search
from mapsearch.solver.tables import tabulate
from mapsearch.solver.top import Candidate

GIB = 2.0**30
RICH = {
    "zero": [0, 1, 2, 3],
    "offload": ["none", "optimizer"],
    "recompute": ["none", "norm+activation", "moe", "full"],
    "schedule": ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe", "dualpipe-v", "zb-2p"],
    "cp_kind": ["ring", "all-gather", "ulysses", "hybrid"],
    "dispatcher": ["all-to-all", "fixed-all-to-all", "all-gather", "deduplicated"],
}


@pytest.fixture(scope="module")
def e1():
    facts = e1_facts()
    return estimate(Mapping.model_validate(E1_MAPPING), facts)


def test_e1_stages_and_microbatches(e1):
    assert e1.devices == 4096
    assert e1.microbatches == 64
    assert e1.layers_per_stage == [5] * 16


def test_e1_model_states_of_the_first_stage(e1):
    states = sum(e1.memory_bytes[name] for name in ("weights", "gradients", "optimizer"))

    assert e1.worst_stage == 0
    assert states / GIB == pytest.approx(45.735, abs=0.001)


def test_e1_activations_of_the_first_stage(e1):
    # 16 microbatches in flight x 5 layers x 944.125 MiB.
    assert e1.memory_bytes["activations"] / GIB == pytest.approx(73.760, abs=0.001)


def test_e1_middle_stages_hold_one_microbatch_less_each(e1):
    steps = -np.diff(e1.memory_by_stage_bytes[1:15])

    assert steps == pytest.approx(5 * 944.125 * 2**20, rel=1e-6)


def test_e1_middle_stage_states(e1):
    other = sum(v for k, v in e1.memory_bytes.items() if k not in ("weights", "gradients", "optimizer", "activations"))
    middle = e1.memory_by_stage_bytes[8] - other - 8 * 5 * 944.125 * 2**20

    assert middle / GIB == pytest.approx(42.835, abs=0.002)


def _e1_under(**changes):
    facts = e1_facts()
    return estimate(Mapping.model_validate(E1_MAPPING), replace(facts, run=facts.run.model_copy(update=changes)))


def test_finer_calls_pay_more_latency_and_as_many_bytes():
    stage, layer, tensor = (_e1_under(data_parallel_unit=u).communication_s["dp"] for u in ("stage", "layer", "tensor"))

    # Five layers a stage: four more calls each for gradients and weights, dense and routed ones; then 6 and 72 tensors.
    assert tensor > layer > stage
    assert (tensor - stage) / (layer - stage) > 5


def test_copies_of_the_states_keep_more_bytes():
    whole, halved = _e1_under(), _e1_under(shard_replicas=2)

    assert halved.memory_bytes["weights"] == whole.memory_bytes["weights"]
    assert halved.memory_bytes["optimizer"] == pytest.approx(2 * whole.memory_bytes["optimizer"], rel=1e-9)


def test_e1_full_recompute_keeps_the_layer_inputs_and_one_live_layer():
    told = estimate(Mapping.model_validate({**E1_MAPPING, "recompute": "full"}), e1_facts())

    # 80 x tau h 2 bytes = 1.875 GiB (and the routing map), one layer of 944.125 MiB live = 0.922 GiB.
    assert told.memory_bytes["activations"] / GIB == pytest.approx(1.875, rel=0.05)
    kept = told.memory_bytes["activations"] / 80
    assert told.memory_bytes["recomputed_layer"] + kept == pytest.approx(944.125 * 2**20, rel=1e-6)


def test_e1_bubble_is_about_fifteen_of_sixty_four(e1):
    bubble = e1.breakdown_s["bubble"]
    after = sum(e1.breakdown_s.get(name, 0.0) for name in ("gradient_reduce", "optimizer", "parameter_gather"))

    # 23.44 % of ideal for equal stages; here the ends are longer than the middle, and hops are paid in the ramp.
    assert bubble / (e1.step_time_s - bubble - after) == pytest.approx(0.2344, rel=0.08)


def test_e1_dispatch_volume_bounds_the_exchange(e1):
    # Four exchanges of 352.32 MB off-node per layer and microbatch at 50 GB/s take at least this long (80 % reached).
    floor = 4 * 352.32e6 / 50e9 * 5 * 64

    assert floor < e1.communication_s["ep"] < 2.0 * floor


def test_deepseek_v3_with_1f1b():
    # FORMULAS 3.7a: 2236 MiB per MoE layer and microbatch of 4096 tokens at TP1, without memory-efficient
    # permutation; 1F1B holds 16 - r of them.
    facts = replace(e1_facts(memory_efficient_permutation=False), model=load_model("deepseek-v3"))
    told = estimate(Mapping.model_validate({"dp": 64, "pp": 16, "ep": 64, "schedule": "1f1b"}), facts)
    alike = [stage for stage in range(1, 14) if told.layers_per_stage[stage : stage + 2] == [4, 4]]

    assert sum(told.layers_per_stage) == 61 + facts.model.mtp_layers
    # The first stage holds more microbatches but three dense layers: it has fewer expert states than the second.
    assert told.worst_stage == 1
    assert len(alike) > 5
    for stage in alike:
        step = told.memory_by_stage_bytes[stage] - told.memory_by_stage_bytes[stage + 1]
        assert step == pytest.approx(4 * 2236 * 2**20, rel=1e-3)
    assert sum(told.breakdown_s.values()) == pytest.approx(told.step_time_s, rel=1e-9)


def random_mappings(sizes, count, *, seed=1, **run):
    """Mappings drawn by rows and choices, legal or not, that have a layout."""
    facts = tiny_facts(sizes, **{**RICH, **run})
    chosen, found = random.Random(seed), []
    rows = list(bruteforce.placements(facts))
    names = facts.fabric.level_names
    while len(found) < count:
        row = chosen.choice(rows)
        values = chosen.choice(list(bruteforce.variants(facts, row)))
        placement = {axis: dict(zip(names, cuts, strict=True)) for axis, cuts in row.items()}
        named = {axis: written(axis, value) for axis, value in values.items()}
        mapping = Mapping.model_validate({**named, "placement": placement})
        if not layout_trouble(point_of(mapping, facts)):
            found.append(mapping)
    return facts, found


@pytest.mark.parametrize("overlap", [{}, {"expert_all_to_all": True}, {"shared_expert": True}])
def test_parts_add_up_and_utilisation_is_a_share(overlap):
    shared = {"experts": 8, "top_k": 2, "expert_ffn": 256, "shared_ffn": 512}
    facts, mappings = random_mappings((2, 2), 25, overlap=overlap)
    facts = replace(facts, model=tiny_facts(model={"moe": shared, "dense_first": 1, "mtp_layers": 1}).model)
    for mapping in mappings:
        told = estimate(mapping, facts)

        assert sum(told.breakdown_s.values()) == pytest.approx(told.step_time_s, rel=1e-9)
        assert min(told.breakdown_s.values()) >= -1e-12 * told.step_time_s
        assert sum(told.memory_bytes.values()) == pytest.approx(told.peak_memory_bytes, rel=1e-12)
        assert told.peak_memory_bytes == max(told.memory_by_stage_bytes)
        assert len(told.memory_by_stage_bytes) == len(told.layers_per_stage) == mapping.pp
        assert 0.0 < told.mfu < told.hfu
        assert told.mfu <= 1.0
        assert 0.0 <= told.exposed_fraction < 1.0
        assert all(seconds >= 0.0 for seconds in told.communication_s.values())
        assert all(seconds >= -1e-12 * told.step_time_s for seconds in told.exposed_s.values())


def test_a_stage_of_every_kind_has_the_memory_of_its_kind():
    facts, mappings = random_mappings((2, 2, 2), 20, seed=3)
    for mapping in mappings:
        told, point = estimate(mapping, facts), point_of(mapping, facts)

        assert max(point.kind_memory_bytes) == pytest.approx(told.peak_memory_bytes, rel=1e-12)


def table_cells(facts, groups, per_group, seed=5):
    """Random cells of random tables, nothing pruned."""
    problem, chosen = problem_of(facts), random.Random(seed)
    for used, row in chosen.sample(rows_to_search(problem), groups):
        for tables in tabulate(problem, used, row, prune=False):
            allowed = np.argwhere(tables.allowed.reshape(tables.allowed.shape[:6]))
            for _ in range(per_group):
                index = tuple(int(i) for i in chosen.choice(allowed))
                cell = cell_problem(tables, index)
                if len(cell.attention) and len(cell.expert):
                    yield cell, chosen.randrange(len(cell.attention)), chosen.randrange(len(cell.expert))


@pytest.mark.parametrize(
    "model", [{}, {"dense_first": 1, "mtp_layers": 1}, {"moe": None}], ids=["moe", "dense first, MTP", "dense"]
)
@pytest.mark.parametrize("overlap", [{}, {"expert_all_to_all": True}], ids=["", "hidden"])
def test_every_estimate_equals_the_tables_of_the_search(model, overlap):
    choices = {**RICH, "offload": ["none", "optimizer", "activations+nvme"], "overlap": overlap}
    facts = tiny_facts((2, 2), hbm_mb=1e6, model=model, **choices)
    compared = 0
    for cell, a, e in table_cells(facts, groups=3, per_group=5):
        positions = int(cell.attention.positions[a]), int(cell.expert.positions[e])
        key = key_of(cell.tables, cell.index, *positions)
        told = estimate(mapping_of(Candidate(0.0, key, cell.tables, cell.index, *positions)), facts)
        view, shape = pair_view(cell), (len(cell.attention), len(cell.expert))

        assert told.step_time_s == pytest.approx(np.broadcast_to(view.step_time_s, shape)[a, e], rel=1e-9)
        worst = max(np.broadcast_to(each, shape)[a, e] for each in view.memory)
        assert told.peak_memory_bytes == pytest.approx(worst, rel=1e-9)
        assert told.host_bytes == pytest.approx(np.broadcast_to(view.host_bytes, shape)[a, e], rel=1e-9)
        assert told.nvme_bytes == pytest.approx(np.broadcast_to(view.nvme_bytes, shape)[a, e], rel=1e-9)
        compared += 1
    assert compared >= 15


def test_nvme_moves_bytes_out_of_host_memory_and_takes_its_time():
    facts, sizes = tiny_facts((4,)), {"dp": 4, "ep": 4, "dispatcher": "all-to-all"}
    host, nvme = (
        estimate(Mapping.model_validate({**sizes, "offload": word}), facts) for word in ("optimizer", "optimizer+nvme")
    )

    assert host.host_bytes > 0.0 and host.nvme_bytes == 0.0
    assert (nvme.host_bytes, nvme.nvme_bytes) == (0.0, host.host_bytes)
    assert nvme.peak_memory_bytes == host.peak_memory_bytes
    # One stage holds all of it: 10 GB/s to the host, 2 GB/s to NVMe, once there and once back.
    assert nvme.step_time_s - host.step_time_s == pytest.approx(2 * host.host_bytes * (1 / 2e9 - 1 / 1e10), rel=1e-9)


def test_more_bandwidth_is_never_slower():
    slow, mappings = random_mappings((2, 2, 2), 25, seed=7)
    fast = tiny_facts((2, 2, 2), speed=2.0, **RICH)
    gains = [estimate(m, slow).step_time_s - estimate(m, fast).step_time_s for m in mappings]

    assert min(gains) >= 0.0
    assert max(gains) > 0.0


def test_full_recompute_executes_a_third_more_of_the_linear_parts():
    facts = tiny_facts((1,), sequence_length=1, model={"vocab": 8, "moe": None})
    plain, full = (estimate(Mapping.model_validate({"recompute": word}), facts) for word in ("none", "full"))

    # One token: hardly any attention core; the output head, which is never repeated, is small.
    assert plain.hfu / plain.mfu == pytest.approx(1.0, abs=0.01)
    assert full.hfu / full.mfu == pytest.approx(4.0 / 3.0, abs=0.01)


def test_a_mapping_without_placement_fills_levels_in_the_usual_order():
    # FORMULAS 5.1, W = 16: TP [0,1]; CP [0,2]; DP [0,4]; EP [0..7]; PP [0,8].
    facts = tiny_facts((2, 2, 2, 2))
    rows = rows_of(Mapping(tp=2, cp=2, dp=2, pp=2, ep=8), facts.fabric)

    assert rows.chosen
    assert {axis: rows.by_axis[axis] for axis in ("tp", "cp", "dp", "pp", "ep")} == {
        "tp": (2, 1, 1, 1),
        "cp": (1, 2, 1, 1),
        "dp": (1, 1, 2, 1),
        "pp": (1, 1, 1, 2),
        "ep": (2, 2, 2, 1),
    }


def test_the_usual_order_takes_a_power_of_two_where_the_whole_level_does_not_factor():
    rows = rows_of(Mapping(tp=8, dp=8, ep=64), tiny_facts((72, 4)).fabric)

    assert rows.used == (64, 1)


def test_a_given_placement_is_kept_and_the_rest_filled():
    rows = rows_of(Mapping(tp=2, dp=2, ep=4, placement={"tp": {"rack": 2}}), tiny_facts((2, 2)).fabric)

    assert rows.by_axis["tp"] == (1, 2)
    assert rows.by_axis["dp"] == (2, 1)


@pytest.mark.parametrize(
    ("mapping", "sizes", "words"),
    [
        (Mapping(tp=3, edp=3), (2, 2), "TP 3 does not fit the usual order: 3 ways are left for board, which has 2"),
        (Mapping(dp=16, edp=16), (2, 2), "uses 16 devices (TP x CP x DP x PP); tiny has 4"),
        (Mapping(tp=2, edp=2, placement={"tp": {"boards": 2}}), (2, 2), "no level 'boards' (did you mean 'board'?)"),
        (
            Mapping(tp=2, ep=2, placement={"tp": {"board": 2}, "ep": {"rack": 2}}),
            (2, 2),
            "TP, CP, DP and PP cut board 2 ways, ETP, EP, EDP and PP 1 ways",
        ),
        (
            Mapping(tp=4, ep=4, placement={"tp": {"board": 4}, "ep": {"board": 4}}),
            (2, 2),
            "the axes cut board 4 ways; it has 2 units",
        ),
    ],
)
def test_a_placement_that_does_not_fit_is_refused_by_axis_and_level(mapping, sizes, words):
    with pytest.raises(InputError) as refused:
        rows_of(mapping, tiny_facts(sizes).fabric)

    assert words in str(refused.value)


def random_blocks(facts, seed, cells=6):
    """A block of random cells of one DP size from each of a few random tables, with some of the options."""
    problem, chosen = problem_of(facts), random.Random(seed)
    for used, row in chosen.sample(rows_to_search(problem), 4):
        for tables in tabulate(problem, used, row, prune=False):
            allowed = np.argwhere(tables.allowed.reshape(tables.allowed.shape[:6]))
            position = int(chosen.choice(allowed)[0])
            own = np.flatnonzero(tables.attention.options.sizes[2] == tables.dp[position])
            there = [tuple(map(int, place)) for place in allowed if place[0] == position]
            if len(own):
                own, every = own[chosen.randrange(len(own)) :], np.arange(len(tables.expert.options))
                picked = chosen.sample(there, min(cells, len(there)))
                yield problem, block_of(tables, picked, own, every), own, every


@pytest.mark.parametrize("model", [{}, {"moe": None}], ids=["moe", "dense"])
@pytest.mark.parametrize("overlap", [{}, {"expert_all_to_all": True, "shared_expert": True}], ids=["", "hidden"])
def test_a_block_of_cells_has_the_numbers_of_single_mappings(model, overlap):
    choices = {**RICH, "offload": ["none", "optimizer", "activations+nvme"], "overlap": overlap}
    facts = tiny_facts((2, 2), hbm_mb=1e6, model=model, **choices)
    chosen, compared = random.Random(1), 0
    for problem, block, own, every in random_blocks(facts, seed=8):
        result = evaluate_block(problem, block)
        assert result.feasible.shape == (len(block.cells), len(own), len(every))
        pairs = np.argwhere(result.feasible)
        for place in chosen.sample(range(len(pairs)), min(8, len(pairs))):
            number, a, e = map(int, pairs[place])
            positions = int(own[a]), int(every[e])
            key = key_of(block.tables, block.cells[number], *positions)
            told = estimate(mapping_of(Candidate(0.0, key, block.tables, block.cells[number], *positions)), facts)
            mine = [np.broadcast_to(each, result.feasible.shape)[number, a, e] for each in result.view.memory]

            assert told.step_time_s == pytest.approx(result.step_time_s[number, a, e], rel=1e-9)
            assert told.peak_memory_bytes == pytest.approx(max(mine), rel=1e-9)
            compared += 1
    assert compared >= 20
