"""A replica that serves: memory by hand, distinct ranks and touched experts of F1.4, rooflines at both ends."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mapsearch.costs import lengths, serving
from mapsearch.costs.parameters import ledger
from mapsearch.costs.publishing import FORMATS
from mapsearch.costs.routing import distinct_units
from mapsearch.inputs import read_inputs
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.manifest import RECIPES
from mapsearch.inventories.models import load_model
from mapsearch.inventories.rollout import Rollout, Serving
from mapsearch.pooling.replicas import filled

MODEL = load_model("moe-5t")
DEFAULT = load_inventory(Rollout, "default")


def facts(**changes):
    inputs = read_inputs("moe-5t", "long-context-128k", "asic", None, None).facts
    given = Serving.model_validate({**DEFAULT.serving.model_dump(exclude={"sources"}), **changes})
    return serving.ServingFacts(inputs.model, given, inputs.fabric, inputs.profile)


ROWS = {"tp": np.array([4, 1, 1]), "all": np.array([8, 8, 2])}


def parts(at, tokens, held=4096.0, cut=(4, 32, 128)):
    return serving.forward_parts_s(*cut, tokens, tokens, held, held, ROWS, facts=at, outputs=tokens)


def test_every_format_has_its_recipe():
    assert set(RECIPES) == set(FORMATS)
    for name, form in FORMATS.items():
        block = f"{form.block_rows}x{form.block_columns}" if form.block_rows else RECIPES[name].split(",")[0]
        assert RECIPES[name].startswith(block)


def test_experts_touched_by_few_and_by_many_tokens():
    assert serving.touched_experts(1, model=MODEL) == pytest.approx(16.0)
    assert serving.touched_experts(2, model=MODEL) == pytest.approx(32.0 - 16 * 16 / 384)
    assert serving.touched_experts(1000, model=MODEL) == pytest.approx(384.0)


def test_distinct_ranks_are_those_of_f14():
    assert distinct_units(8, model=MODEL) == pytest.approx(7.10, abs=0.005)
    assert distinct_units(64, model=MODEL) == pytest.approx(14.51, abs=0.005)


def test_weights_of_one_device_hold_all_parameters_and_of_many_their_share():
    at = facts(weights="bf16")
    whole = serving.weight_bytes(1, 1, 1, model=MODEL, serving=at.serving)
    assert whole == pytest.approx(2.0 * ledger(model=MODEL).total, rel=1e-3)  # the vocabulary is padded
    experts = ledger(model=MODEL).experts
    each = serving.weight_bytes(4, 32, 128, model=MODEL, serving=at.serving)
    dense = ledger(model=MODEL).shared
    assert each == pytest.approx(2.0 * (experts / 128 + dense / 4), rel=1e-2)


@pytest.mark.parametrize(("tp", "share"), [(1, 1), (4, 4), (8, 8), (16, 8)])
def test_cache_is_split_over_kv_heads_and_no_further(tp, share):
    at = facts(kv_format="bf16")
    layer = 2 * 8 * 128 * 131072 * 2  # F1.5: 512 MiB
    assert layer == 512 * 2**20
    one = serving.cache_bytes_per_sequence(tp, 131072, model=MODEL, serving=at.serving)
    assert one == pytest.approx(80 * layer / share)


def test_mla_keeps_its_latent_on_every_rank():
    deepseek = load_model("deepseek-v3")
    at = facts(kv_format="bf16")
    one = serving.cache_bytes_per_sequence(8, 131072, model=deepseek, serving=at.serving)
    assert one == pytest.approx(deepseek.layers * 144 * 2**20)  # F1.5


def test_sequences_fill_memory_and_not_more():
    at = facts()
    for cut, held in itertools.product([(4, 32, 128), (8, 16, 128)], [2048.0, 65536.0]):
        most = serving.most_sequences(*cut, held, held, facts=at)
        each = float(serving.cache_bytes_per_sequence(cut[0], held, model=MODEL, serving=at.serving))
        taken = serving.weight_bytes(*cut, model=MODEL, serving=at.serving)
        taken += serving.buffer_bytes(*cut, model=MODEL, serving=at.serving)
        limit = serving.hbm_limit_bytes(at)
        assert most > 0
        assert taken + most / cut[1] * each <= limit < taken + (most / cut[1] + 1) * each
    assert serving.most_sequences(1, 8, 8, 2048.0, 2048.0, facts=at) == 0  # 5 TB on 8 devices
    assert serving.most_sequences(4, 32, 128, 2048.0, 1e9, facts=at) == 0  # one longest sequence


def test_concurrency_context_and_length_are_one_product():
    """Twice the tokens in each cache halves the requests that fit, to a rounding."""
    at = facts()
    few = serving.most_sequences(4, 32, 128, 8192.0, 8192.0, facts=at)
    many = serving.most_sequences(4, 32, 128, 4096.0, 4096.0, facts=at)
    assert abs(many - 2 * few) <= 2 * 32


def test_decode_reads_memory_and_prefill_computes():
    at = facts()
    one = parts(at, np.array([32.0, 64.0]))
    assert one["linear"][0] == one["linear"][1]  # weights are read once whatever the batch
    # All experts touched: bytes per device over memory's rate.
    many = parts(at, 1024.0)
    experts = ledger(model=MODEL).experts / 128 * (1 + 4 / 128**2)
    assert many["experts"] == pytest.approx(experts / (2.4e12 * 0.8), rel=1e-6)
    long = parts(at, 32 * 8192.0 * 8)
    flop = 2 * 32 * 8192 * 8 * 16 / 384 * 384 * (3 * 12288 * 4352) * 80 / 128
    assert long["experts"] == pytest.approx(flop / (800e12 * 0.65), rel=1e-6)


def test_the_all_to_all_sends_to_each_distinct_rank_once():
    at = facts(dispatch_bytes=1.0)
    at = replace(at, profile=at.profile.replaced(all_to_all={"peak": 1.0, "half_bytes": "0 B", "launch": "0 s"}))
    levels = tuple(replace(level, latency_s=0.0) for level in at.fabric.levels)
    at = replace(at, fabric=replace(at.fabric, levels=levels))
    tokens = 1280.0
    sent = tokens / 128 * float(distinct_units(128, model=MODEL)) * 12288
    by_level = [sent * (1 - inside / 128) / rate for inside, rate in ((1, 100e9), (8, 25e9), (64, 12.5e9))]
    expected = 80 * max(by_level) * (1 + 2)  # FP8 there, BF16 back
    assert parts(at, tokens)["all-to-all"] == pytest.approx(expected)


def test_twice_the_memory_bandwidth_is_never_slower():
    at = facts()
    device = replace(at.fabric.device, hbm_bytes_per_s=2 * at.fabric.device.hbm_bytes_per_s)
    faster = replace(at, fabric=replace(at.fabric, device=device))
    slow, fast = parts(at, 512.0), parts(faster, 512.0)
    assert all(fast[name] <= slow[name] for name in serving.PARTS)
    assert fast["attention"] < slow["attention"]


def test_a_format_that_the_device_has_not_is_named():
    with pytest.raises(Exception, match=r"device.peak.fp4"):
        parts(facts(gemm_format="fp4"), 64.0)


@pytest.mark.parametrize(
    ("devices", "row"),
    [(1, (1, 1, 1)), (4, (4, 1, 1)), (24, (8, 3, 1)), (128, (8, 8, 2)), (12, None), (4096, (8, 8, 64)), (8192, None)],
)
def test_consecutive_devices_fill_whole_units(devices, row):
    assert filled(devices, (8, 8, 64)) == row


def test_the_default_lengths_are_read():
    responses = lengths.distribution(DEFAULT.response_tokens)
    assert responses.longest <= 16384
    assert 2048 < responses.mean < 8192
