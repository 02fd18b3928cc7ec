"""Model states, buffers, communicators and offload: FORMULAS 1.2, 1.4, 2.3, 3.6, 3.7a and 8."""

from types import SimpleNamespace

import numpy as np
import pytest

from mapsearch.axes import Dispatcher, Hidden, Offload
from mapsearch.costs import memory, parameters
from mapsearch.errors import MissingFact
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.model import Model
from mapsearch.inventories.recipes import RECIPES
from mapsearch.inventories.run import Routing, Run, StateRecipe
from mapsearch.topologies.fabric import Device, Fabric

GIB = 2.0**30
MOE = load_inventory(Model, "moe-5t")
DSV3 = load_inventory(Model, "deepseek-v3")


def run(**changes: object) -> Run:
    return Run(**{"sequence_length": 4096, "global_batch": 4096, **changes})


def fabric(host_bytes_per_s: float, nvme_bytes_per_s: float = 0.0, nvme_bytes: float = 4e12) -> Fabric:
    host = {"host_memory_bytes": 1e12, "host_bytes_per_s": host_bytes_per_s}
    nvme = {"nvme_bytes": nvme_bytes, "nvme_bytes_per_s": nvme_bytes_per_s}
    return Fabric("cluster", Device("device", 96e9, 2.4e12, {"bf16": 4e14}, **host, **nvme), ())


def states(local: float, shards: float, zero: int, facts: Run) -> float:
    return float(
        memory.weight_bytes(local, shards, zero, run=facts)
        + memory.gradient_bytes(local, shards, zero, run=facts)
        + memory.optimizer_bytes(local, shards, zero, run=facts)
    )


def test_e1_states() -> None:
    """FORMULAS 8: 45.735 GiB on stage 0, 42.835 in the middle; DP as the experts' divisor would say 30.23."""
    dense = 5 * parameters.moe_layer_parameters(4, model=MOE)
    experts = 5 * parameters.expert_parameters(1, 64, model=MOE)
    first = dense + parameters.embedding_parameters(4, model=MOE)
    assert (states(first, 64, 1, run()) + states(experts, 4, 1, run())) / GIB == pytest.approx(45.735, abs=5e-4)
    assert (states(dense, 64, 1, run()) + states(experts, 4, 1, run())) / GIB == pytest.approx(42.835, abs=5e-4)
    wrong = (states(dense, 64, 1, run()) + states(experts, 64, 1, run())) / GIB
    assert wrong == pytest.approx(30.23, abs=5e-3)


@pytest.mark.parametrize(("zero", "gib"), [(0, 81.54), (1, 40.46), (2, 19.92), (3, 9.66)])
def test_published_zero_stages(zero: int, gib: float) -> None:
    """FORMULAS 3.6 [ZL]: DeepSeek-V3, PP16 TP2 EP8 DP32, four MoE layers, BF16 moments.

    That paper adds up rounded parts, counts router and shared expert whole among the experts, and keeps the query's
    rope projection on both TP ranks; the divisors are 32 and 8.
    """
    expert = 3 * 7168 * 2048
    moe = 4 * (parameters.expert_parameters(1, 8, model=DSV3) + expert + 256 * 7168)
    rope_copy = 1536 * 128 * 64 / 2
    rest = 4 * (parameters.attention_parameters(2, model=DSV3) + rope_copy + 2 * 7168)
    assert (moe + rest) / 1e9 == pytest.approx(6.2504, abs=5e-5)
    facts = run(state=RECIPES["BF16 moments, FP32 gradients"])
    assert (states(moe, 8, zero, facts) + states(rest, 32, zero, facts)) / GIB == pytest.approx(gib, rel=6e-4)


def test_published_deepseek_v3_states() -> None:
    """FORMULAS 3.7a: PP4 EP64 on 256 devices, 16 MoE layers, EDP 1: 36.4 and 32.1 GiB (the estimator has no router)."""
    dense = 16 * (parameters.moe_layer_parameters(1, model=DSV3) - 256 * 7168)
    experts = 16 * parameters.expert_parameters(1, 64, model=DSV3)
    kept = sum(
        f(dense, 64, 1, run=run()) + f(experts, 1, 1, run=run()) for f in (memory.weight_bytes, memory.gradient_bytes)
    )
    optimizer = memory.optimizer_bytes(dense, 64, 1, run=run()) + memory.optimizer_bytes(experts, 1, 1, run=run())
    assert kept / GIB == pytest.approx(36.4, abs=5e-2)
    assert optimizer / GIB == pytest.approx(32.1, abs=5e-2)


@pytest.mark.parametrize(
    ("recipe", "columns"),
    [
        ("BF16 weights, FP32 gradients", (18, 6 + 12 / 8, 2 + 16 / 8, 18 / 8)),
        ("BF16 weights and gradients", (16, 4 + 12 / 8, 2 + 14 / 8, 16 / 8)),
        ("BF16 moments, FP32 gradients", (14, 6 + 8 / 8, 2 + 12 / 8, 14 / 8)),
        ("FP16 weights and gradients", (20, 4 + 16 / 8, 2 + 18 / 8, 20 / 8)),
        ("FP32 weights and gradients", (16, 8 + 8 / 8, 4 + 12 / 8, 16 / 8)),
    ],
)
def test_recipes_by_zero_stage(recipe: str, columns: tuple[float, ...]) -> None:
    """FORMULAS 3.6, d = 8; the ZeRO-2 and 3 columns of the last two follow from the same rule."""
    facts = run(state=RECIPES[recipe])
    assert [states(1.0, 8, zero, facts) for zero in range(4)] == pytest.approx(columns)


def test_five_trillion_parameters() -> None:
    """FORMULAS 1.2: 80 TB at 16 B per parameter, 90 TB at 18; 1.25 and 1.40625 TB per device on 64."""
    lean = run(state=RECIPES["BF16 weights and gradients"])
    assert states(5e12, 1, 0, lean) == 80e12
    assert states(5e12, 1, 0, run()) == 90e12
    assert states(5e12, 64, 3, lean) == 1.25e12
    assert states(5e12, 64, 3, run()) == 1.40625e12
    assert [-(-80e12 // (0.85 * size)) for size in (80e9, 141e9, 192e9, 288e9)] == [1177, 668, 491, 327]


def test_fp8_weights() -> None:
    """FORMULAS 2.3: without FP8 primary weights FP8 adds 1+1 B copies; with them 1 B, or 2 with both copies."""

    def each(**state: object) -> float:
        return float(memory.weight_bytes(1.0, 1, 1, run=run(precision="fp8-block", state=StateRecipe(**state))))

    assert each() == 4.0
    assert each(fp8_primary_weights=True) == 2.0
    assert each(fp8_primary_weights=True, fp8_weight_copies=1.0) == 1.0
    assert memory.weight_bytes(1.0, 1, 1, run=run(state=StateRecipe(fp8_primary_weights=True))) == 2.0
    # NVFP4: two copies of 4 bits with a byte of scale per 16 weights.
    assert memory.weight_bytes(16.0, 1, 1, run=run(precision="nvfp4")) == 16 * 2 + 2 * (16 / 2 + 1)


def test_zero3_live_units() -> None:
    """FORMULAS 3.6: two gathered units and one FP32 gradient unit, under ZeRO-3 only; one where none is prefetched."""
    ahead, late = Hidden.PARAM_GATHER, Hidden.EXPERT_ALL_TO_ALL
    assert memory.zero3_live_bytes(10.0, np.arange(4), ahead, run=run()).tolist() == [0, 0, 0, 10 * (2 * 2 + 4)]
    assert memory.zero3_live_bytes(10.0, 3, np.array([ahead, late]), run=run()).tolist() == [80, 10 * (2 + 4)]


def test_more_sharding_never_more_bytes() -> None:
    shards, zero = np.array([1, 2, 4, 64])[:, None], np.arange(4)[None, :]
    for quantity in (memory.weight_bytes, memory.gradient_bytes, memory.optimizer_bytes):
        table = quantity(1e9, shards, zero, run=run()) * np.ones((4, 4))
        assert (np.diff(table, axis=0) <= 0).all()
        assert (np.diff(table, axis=1) <= 0).all()
        assert (table[0] == table[0, 0]).all()  # one shard divides nothing


def test_whole_group_buffers() -> None:
    """FORMULAS 1.4: R = 64, N_src = 2,048: M = 642 slots per pair; send and receive buffer R M h e each."""
    buffers = memory.dispatcher_buffer_bytes(2048, 1, 64, Dispatcher.FIXED_ALL_TO_ALL, model=MOE, run=run())
    assert buffers == pytest.approx(2 * 64 * 642 * 12288 * 2)


def test_other_buffers() -> None:
    told = {"model": MOE, "run": run(routing=Routing(rank_skew=1.5))}
    assert memory.dispatcher_buffer_bytes(1024, 1, 64, Dispatcher.ALL_TO_ALL, **told) == 0
    gathered = memory.dispatcher_buffer_bytes(1024, 2, 8, Dispatcher.ALL_GATHER, **told)
    assert gathered == 1024 * 16 * 12288 * 2
    budget = memory.dispatcher_buffer_bytes(1024, 1, 64, Dispatcher.DEDUPLICATED, **told)
    assert budget == pytest.approx(1.5 * 1024 * 16 * 12288 * 2)
    alone = memory.dispatcher_buffer_bytes(1024, 1, 1, np.arange(4), **told)
    assert alone.tolist() == [0, 0, 0, 0]
    fp8 = run(precision="fp8-tensor", routing=Routing(combine_bytes=2.0))
    whole = memory.dispatcher_buffer_bytes(1024, 1, 64, Dispatcher.FIXED_ALL_TO_ALL, model=MOE, run=fp8)
    assert whole == memory.dispatcher_buffer_bytes(1024, 1, 64, Dispatcher.FIXED_ALL_TO_ALL, model=MOE, run=run())


def test_communicators_of_groups_with_more_than_one_rank() -> None:
    profile = SimpleNamespace(communicator_bytes=3.0)
    assert memory.attention_communicator_bytes(1, 1, 1, 1, profile=profile) == 0
    assert memory.attention_communicator_bytes(8, 1, 4, 2, profile=profile) == 9
    assert memory.attention_communicator_bytes(8, 2, 1, 2, profile=profile) == 12
    many = memory.expert_communicator_bytes(np.array([1, 2]), np.array([[1], [8]]), 4, profile=profile)
    assert many.tolist() == [[3, 6], [6, 9]]


def test_offload_is_never_free() -> None:
    optimizer = memory.optimizer_bytes(1e9, 8, 1, run=run())
    codes = np.array([Offload.NONE, Offload.OPTIMIZER, Offload.ACTIVATIONS, Offload.OPTIMIZER | Offload.ACTIVATIONS])
    on_host = memory.offloaded_optimizer_bytes(1e9, 8, 1, codes, run=run())
    assert on_host.tolist() == [0, optimizer, 0, optimizer]
    seconds = memory.optimizer_offload_s(1e9, 8, 1, codes, run=run(), fabric=fabric(25e9))
    assert seconds.tolist() == pytest.approx([0, 2 * optimizer / 25e9, 0, 2 * optimizer / 25e9])
    assert memory.offload_transfer_s(50e9, Offload.OPTIMIZER, fabric=fabric(25e9)) == pytest.approx(2.0)
    assert memory.resident_microbatches(np.array([1.0, 9.75]), Offload.ACTIVATIONS).tolist() == [1, 2]
    assert memory.resident_microbatches(9.75, Offload.OPTIMIZER) == 9.75


def test_offload_without_a_host_bandwidth_is_refused() -> None:
    assert memory.optimizer_offload_s(1e9, 8, 1, Offload.NONE, run=run(), fabric=fabric(0.0)) == 0
    with pytest.raises(MissingFact, match=r"cluster: device\.host_bandwidth: is needed for offload"):
        memory.optimizer_offload_s(1e9, 8, 1, Offload.OPTIMIZER, run=run(), fabric=fabric(0.0))


def test_offload_to_nvme_takes_the_slower_of_both_links() -> None:
    """12 B x 10^9 parameters / 8 shards = 1.5 GB: at 25 GB/s 0.06 s a way, at 4 GB/s 0.375 s, twice per step."""
    codes = np.array([Offload.NONE, Offload.OPTIMIZER, Offload.OPTIMIZER | Offload.NVME])
    seconds = memory.optimizer_offload_s(1e9, 8, 1, codes, run=run(), fabric=fabric(25e9, 4e9))
    assert seconds.tolist() == pytest.approx([0.0, 0.12, 0.75])
    seconds = memory.optimizer_offload_s(1e9, 8, 1, codes, run=run(), fabric=fabric(25e9, 100e9))
    assert seconds.tolist() == pytest.approx([0.0, 0.12, 0.12])  # behind the host link fast NVMe does not help
    away = memory.offloaded_optimizer_bytes(1e9, 8, 1, codes, run=run())
    assert away.tolist() == [0.0, 1.5e9, 1.5e9]
    assert memory.resident_microbatches(9.75, Offload.ACTIVATIONS | Offload.NVME) == 2


@pytest.mark.parametrize(
    ("cluster", "field"),
    [
        (fabric(25e9), "nvme_bandwidth"),
        (fabric(25e9, 4e9, nvme_bytes=0.0), "nvme"),
        (fabric(0.0, 4e9), "host_bandwidth"),
    ],
)
def test_offload_to_nvme_without_its_facts_is_refused(cluster: Fabric, field: str) -> None:
    with pytest.raises(MissingFact, match=rf"cluster: device\.{field}: is needed for offload"):
        memory.offload_transfer_s(1e9, np.array([0, Offload.ACTIVATIONS | Offload.NVME]), fabric=cluster)


def test_stage_peak_takes_the_worst_moment() -> None:
    """The loss; the head's backward beside its weight gradient; a layer's backward beside it and what it needs."""
    parts = dict.fromkeys(("states", "activations", "scratch", "buffers", "recomputed_layer", "head_scratch"), 1.0)
    assert memory.stage_peak_bytes(**parts, transient=2.0, loss=7.0, head=3.0) == 11.0
    assert memory.stage_peak_bytes(**parts, transient=2.0, loss=1.0, head=6.0) == 11.0
    many = memory.stage_peak_bytes(**parts, transient=np.array([2.0, 9.0]), loss=7.0, head=0.0)
    assert many.tolist() == [11.0, 15.0]


def test_what_zero3_keeps_whole() -> None:
    """The ends of the model in 16 bits; FP32 gradients of everything where they are reduced once per step."""
    once = run(state=StateRecipe(unsharded_bytes=4.0))
    assert memory.zero3_root_bytes(10.0, np.array([1, 3]), run=once).tolist() == [0.0, 20.0]
    assert memory.unsharded_bytes(10.0, np.array([1, 2, 3]), run=once).tolist() == [0.0, 0.0, 40.0]
    assert memory.output_gradient_scratch_bytes(10.0, run=once) == 20.0


def test_every_quantity_is_listed() -> None:
    declared = {
        value.name
        for value in vars(memory).values()
        if isinstance(value, memory.Quantity) and value.function.__module__ == memory.__name__
    }
    assert declared == {quantity.name for quantity in memory.QUANTITIES}
