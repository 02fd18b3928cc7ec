"""FLOP and KV-cache bytes against the worked numbers of FORMULAS 1.5, 3.2 and 8."""

import numpy as np
import pytest

from mapsearch.costs import flops
from mapsearch.costs.parameters import ledger
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.model import Model, SlidingWindow
from mapsearch.inventories.run import Run


def model(name: str) -> Model:
    return load_inventory(Model, name)


def test_e1_flop_per_token() -> None:
    """FORMULAS 8: 1425.39 G at 4K, 2174.33 G at 128K, router 2.26 G; 6 P_act is 34.9 % low at 128K."""
    ours = model("moe-5t")
    short, long = (flops.training_flops_per_token(model=ours, length=s, router=False) for s in (4096, 131072))
    assert short / 1e9 == pytest.approx(1425.39, abs=5e-3)
    assert long / 1e9 == pytest.approx(2174.33, abs=5e-3)
    assert 3 * flops.router_flops(model=ours) / 1e9 == pytest.approx(2.26, abs=5e-3)
    active = 6 * ledger(model=ours).active
    assert active / 1e9 == pytest.approx(1415.6, abs=5e-2)
    assert 1 - active / long == pytest.approx(0.349, abs=5e-4)


@pytest.mark.parametrize(("length", "causal", "full"), [(4096, 260.0, 291.2), (131072, 1227, 2226)])
def test_deepseek_v3_two_conventions(length: int, causal: float, full: float) -> None:
    """FORMULAS 3.2: Megatron's causal count and torchtitan's full one; the printed pair leaves out the router."""
    ours, digits = model("deepseek-v3"), 5e-2 if length == 4096 else 5e-1
    ours_causal = flops.training_flops_per_token(model=ours, length=length, router=False)
    ours_full = flops.torchtitan_flops_per_token(model=ours, length=length, router=False)
    assert ours_causal / 1e9 == pytest.approx(causal, abs=digits)
    assert ours_full / 1e9 == pytest.approx(full, abs=digits)


def test_deepseek_v3_router_and_attention_share() -> None:
    """FORMULAS 3.2: 259.99 + 0.65 = 260.64 with the router; core attention is 499.3/728.1 = 68.6 % at 64K."""
    ours = model("deepseek-v3")
    plain = flops.training_flops_per_token(model=ours, length=4096, router=False)
    routed = flops.training_flops_per_token(model=ours, length=4096)
    assert plain / 1e9 == pytest.approx(259.99, abs=5e-3)
    assert (routed - plain) / 1e9 == pytest.approx(0.65, abs=5e-3)
    assert routed / 1e9 == pytest.approx(260.64, abs=5e-3)
    core = 3 * flops.attention_core_flops(model=ours, length=65536)
    total = flops.training_flops_per_token(model=ours, length=65536, router=False)
    assert core / 1e9 == pytest.approx(499.3, abs=5e-2)
    assert total / 1e9 == pytest.approx(728.1, abs=5e-2)
    assert core / total == pytest.approx(0.686, abs=5e-4)


@pytest.mark.parametrize(("length", "printed", "digits"), [(4096, 148.03, 5e-3), (131072, 734.7, 5e-2)])
def test_qwen3_235b(length: int, printed: float, digits: float) -> None:
    """FORMULAS 3.2: Megatron's count, without the router."""
    ours = flops.training_flops_per_token(model=model("qwen3-235b"), length=length, router=False)
    assert ours / 1e9 == pytest.approx(printed, abs=digits)


@pytest.mark.parametrize(("size", "chunked"), [(1, False), (5, False), (100, False), (5, True), (64, True)])
def test_window_means_match_a_count_of_pairs(size: int, chunked: bool) -> None:
    """Count the (query, key) pairs one by one; the formula takes half of the diagonal, as the causal half does."""
    length = 60
    pairs = 0.0
    for query in range(length):
        first = query // size * size if chunked else max(0, query - size + 1)
        pairs += query - first + 1
    window = SlidingWindow(size=size, layers=1, chunked=chunked)
    assert float(flops.attended_keys(length, window)) * length == pytest.approx(pairs, abs=0.5 * length)


def test_window_as_long_as_the_sequence_changes_nothing() -> None:
    window = SlidingWindow(size=4096, layers=1)
    lengths = np.array([1024, 4096])
    assert flops.attended_keys(lengths, window).tolist() == flops.attended_keys(lengths).tolist()
    assert float(flops.attended_keys(8192, window)) == 4096 - 4096**2 / (2 * 8192)


def test_half_of_the_layers_windowed() -> None:
    """gpt-oss: 18 of 36 layers see 128 tokens, so attention at 128K is a little over half of the full count."""
    ours = model("gpt-oss-120b")
    whole = ours.model_copy(update={"sliding_window": None})
    share = flops.attention_core_flops(model=ours, length=131072) / flops.attention_core_flops(
        model=whole, length=131072
    )
    assert share == pytest.approx(0.5 + 0.5 * (128 - 128**2 / 2 / 131072) / 65536)


def test_kv_cache_of_one_layer() -> None:
    """FORMULAS 1.5: 8 KV heads of 128, BF16, 131,072 tokens: 512 MiB; MLA's 576 elements: 144 MiB."""
    assert 131072 * flops.kv_cache_bytes_per_token(model=model("moe-5t")) == 536_870_912 == 512 * 2**20
    assert 131072 * flops.kv_cache_bytes_per_token(model=model("deepseek-v3")) == 144 * 2**20


def test_kv_cache_of_all_layers() -> None:
    assert flops.kv_cache_bytes(model=model("moe-5t"), length=131072) == 80 * 512 * 2**20
    per_token = flops.kv_cache_bytes_per_token(model=model("gpt-oss-120b"))
    assert flops.kv_cache_bytes(model=model("gpt-oss-120b"), length=1000) == per_token * 18 * (1000 + 128)


def test_step_flop_uses_the_length_that_attention_sees() -> None:
    """FORMULAS 1.5: packing n equal pieces into a sequence divides the quadratic part by n."""
    ours = model("moe-5t")
    whole = Run(sequence_length=131072, global_batch=2)
    packed = Run(sequence_length=131072, global_batch=2, mean_square_length=16384)
    linear = 3 * (flops.linear_flops(model=ours) + flops.router_flops(model=ours)) * 2 * 131072
    quadratic = flops.training_flops(model=ours, run=whole) - linear
    assert (flops.training_flops(model=ours, run=packed) - linear) * 8 == pytest.approx(quadratic)
