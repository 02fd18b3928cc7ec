"""Worked numbers of FORMULAS 1.7 and 1.8."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapsearch.costs import publishing, rollout
from mapsearch.costs.publishing import FORMATS

P = 5e12


def test_published_volumes():
    assert publishing.publish_bytes(P, FORMATS["bf16"]) == 10e12
    assert publishing.publish_bytes(P, FORMATS["fp8-tensor"]) == 5e12


@pytest.mark.parametrize(
    ("name", "gigabytes", "share"),
    [
        ("fp8-block-fp16-scale", 0.610, 0.012),
        ("fp8-block", 1.221, 0.0244),
        ("fp8-row-fp16-scale", 78.1, 1.56),
        ("fp8-row", 156.25, 3.125),
        ("mxfp8", 156.25, 3.125),
    ],
)
def test_scales(name, gigabytes, share):
    scales = publishing.publish_bytes(P, FORMATS[name]) - P
    assert scales / 1e9 == pytest.approx(gigabytes, rel=1e-3)
    assert 100 * scales / P == pytest.approx(share, rel=2e-2)


@pytest.mark.parametrize(("block", "count"), [((128, 128), 305_175_781), ((1, 128), 3.906e10), ((1, 32), 1.5625e11)])
def test_scale_counts(block, count):
    side = np.sqrt(P)
    # One square tensor of 5e12 weights; its edges round up by less than one block each way.
    exact = publishing.scale_count(side, side, block_rows=block[0], block_columns=block[1])
    assert exact == pytest.approx(count, rel=2e-4)
    assert P / (block[0] * block[1]) == pytest.approx(count, rel=2e-4)


def test_edge_blocks_are_whole():
    blocks = publishing.scale_count(7168, 576, block_rows=128, block_columns=128)
    assert blocks == 56 * 5 == 280
    assert blocks / (7168 * 576 / 128**2) - 1 == pytest.approx(0.11, abs=2e-3)


def test_nvfp4_bytes_per_parameter():
    assert publishing.publish_bytes(1.0, FORMATS["nvfp4"]) == 0.5625


@pytest.mark.parametrize(("gigabytes", "seconds"), [(50, 100), (100, 50), (400, 12.5)])
def test_transfer_seconds(gigabytes, seconds):
    assert publishing.transfer_s(5e12, gigabytes * 1e9) == seconds
    assert publishing.transfer_s(10e12, gigabytes * 1e9) == 2 * seconds


def test_replicas_by_source_or_by_tree():
    assert publishing.transfer_s(5e12, 100e9, replicas=8, tree=False) == 400
    assert publishing.transfer_s(5e12, 100e9, replicas=8) == 50


def test_stages_in_a_row_and_in_a_pipeline():
    stages = (4.0, 6.0, 50.0, 5.0, 1.0)
    assert publishing.serial_publish_s(*stages) == 66
    assert publishing.pipelined_publish_s(*stages, chunks=1) == 66
    assert publishing.pipelined_publish_s(*stages, chunks=15) == 52


@given(st.lists(st.floats(0, 100), min_size=5, max_size=5), st.integers(1, 1000))
def test_a_pipeline_lies_between_its_slowest_stage_and_the_sum(stages, chunks):
    took = publishing.pipelined_publish_s(*stages, chunks=chunks)
    assert max(stages) * (1 - 1e-9) <= took <= publishing.serial_publish_s(*stages) * (1 + 1e-9)


def test_waiting_and_duty():
    batch, rate, train = 2**22, 1e5, 30.0
    assert rollout.supply_s(batch, rate) == pytest.approx(41.94, abs=5e-3)
    assert rollout.wait_s(train, batch, rate) == pytest.approx(11.94, abs=5e-3)
    assert rollout.duty(train, batch, rate) == pytest.approx(0.715, abs=5e-4)
    assert rollout.step_s(train, batch, rate) == pytest.approx(train + rollout.wait_s(train, batch, rate))


def test_training_does_not_wait_for_a_pool_that_is_fast_enough():
    assert rollout.wait_s(30.0, 2**22, 2e5) == 0
    assert rollout.duty(30.0, 2**22, 2e5) == 1


def test_staleness_bounds():
    # Q = 2 batches at one batch per 40 s: 80 s and two versions; 25 + 30 + 80 = 135 s are 3.4 steps.
    batch, step = 2**22, 40.0
    rate = batch / step
    assert rollout.queue_delay_s(2 * batch, rate) == pytest.approx(80.0)
    assert rollout.queue_versions(2 * batch, batch) == 2
    assert rollout.version_lag_bound(25.0, 30.0, 2 * batch, rate, step) == 4
    assert rollout.version_lag_bound(10.0, 30.0, 2 * batch, rate, step) == 3  # exactly three steps
    assert rollout.token_lag(3, batch) == 3 * batch


@given(
    versions=st.integers(1, 20),
    generate=st.floats(0, 100),
    queue=st.floats(0, 1e8),
    rate=st.floats(1e4, 1e6),
    step=st.floats(1, 100),
)
def test_budget_keeps_the_lag(versions, generate, queue, rate, step):
    budget = rollout.publish_budget_s(versions, generate, queue, rate, step)
    if budget > 1e-6:
        assert rollout.version_lag_bound(generate, budget * 0.999, queue, rate, step) <= versions
        assert rollout.version_lag_bound(generate, budget + 0.01 * step, queue, rate, step) > versions
