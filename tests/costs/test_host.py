"""The host launches kernels: a stage takes the longer of running and launching, both grids together."""

import numpy as np
import pytest

from mapsearch.costs.estimate import estimate
from mapsearch.costs.views import Facts
from mapsearch.inventories.mapping import Mapping
from tests.costs.timing_facts import e1_model, nodes, profile, run


def step(mapping=None, *, facts=None, **changes):
    """Two layers on eight devices, 16 microbatches, 30 kernels per layer and 40 around the experts."""
    counts = {"kernels_per_layer": 30.0, "moe_kernels": 40.0}
    model = e1_model(layers=2, moe={"experts": 64, "top_k": 2, "expert_ffn": 1024})
    chosen = {"global_batch": 128, **(facts or {})}
    made = Facts(model, run(**chosen), nodes(count=1), profile(**counts, **changes))
    return estimate(Mapping(dp=8, ep=8, edp=1, **(mapping or {})), made)


def launched_s(kernels, each=1e-3):
    """16 microbatches of two layers; backward launches twice as many."""
    return 16 * 2 * 3 * kernels * each


def test_an_idle_host_costs_nothing():
    alone, hosted = step(), step(host_launch="1 ns")
    assert hosted.step_time_s == pytest.approx(alone.step_time_s)
    assert "host" not in hosted.breakdown_s


def test_a_slow_host_sets_the_pace_of_the_whole_stage():
    # 15 of attention, 40 around the experts, two for each of eight local experts: running them adds nothing.
    slow = step(host_launch="1 ms")
    tail = slow.breakdown_s.get("optimizer", 0) + slow.breakdown_s.get("gradient_reduce", 0)
    tail += slow.breakdown_s.get("parameter_gather", 0)
    assert slow.step_time_s == pytest.approx(launched_s(15 + 40 + 2 * 8) + tail)
    assert sum(slow.breakdown_s.values()) == pytest.approx(slow.step_time_s)
    assert slow.breakdown_s["host"] > 0


@pytest.mark.parametrize(
    ("chosen", "kernels"),
    [
        ({"precision": "mxfp8"}, 15 + 40 + 6 * 8),
        ({"graphs": ["attention"]}, 40 + 2 * 8),
        ({"graphs": ["router"]}, 15 + 20 + 2 * 8),
    ],
)
def test_what_is_launched(chosen, kernels):
    slower, slow = (step(host_launch=each, facts=chosen).step_time_s for each in ("2 ms", "1 ms"))
    assert slower - slow == pytest.approx(launched_s(kernels))


def test_a_captured_iteration_waits_for_no_host():
    assert step(host_launch="1 s", facts={"graphs": ["all"]}).step_time_s == pytest.approx(step().step_time_s)


def test_recompute_launches_forward_again():
    slower, slow = (step({"recompute": "full"}, host_launch=each).step_time_s for each in ("2 ms", "1 ms"))
    assert slower - slow == pytest.approx(launched_s(15 + 40 + 16) * 4 / 3)


def test_fused_experts_save_passes_and_never_cost():
    plain, fused = (step(facts={"precision": "mxfp8", "fused_experts": one}, fp8_quantise_passes=2.0) for one in (0, 1))
    assert fused.step_time_s < plain.step_time_s
    assert np.isclose(fused.breakdown_s["ep"], plain.breakdown_s["ep"])
