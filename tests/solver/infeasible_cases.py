"""Small facts that contradict somewhere: by a known cause, and at random."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from instances import models, profiles
from tiny_cases import tiny_fabric, tiny_facts

from mapsearch.costs.views import Facts
from mapsearch.inventories.base import validate
from mapsearch.inventories.run import Run

SMALL = {"micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"]}
FEW = 12
"""Random problems per test; the slow tests take more."""


def random_problems(count):
    """Settings of a test over random small problems."""
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=checks)


@st.composite
def facts(draw, hbm_mb=(1.0, 12.0, 25.0, 40.0, 64.0, 200.0)):
    """Small facts with any mixture of limits, most of which contradict somewhere."""
    shape = draw(st.sampled_from([(2, 2), (4,), (3, 2), (2, 3)]))
    fabric = tiny_fabric(shape, hbm_mb=draw(st.sampled_from(hbm_mb)))
    host = draw(st.sampled_from([1e9, 2e7, 5e6]))
    fabric = replace(
        fabric,
        device=replace(fabric.device, host_memory_bytes=host),
        variable_all_to_all=draw(st.booleans()),
    )
    run = {
        "name": "tiny",
        "sequence_length": draw(st.sampled_from([96, 256, 1000])),
        "global_batch": draw(st.sampled_from([7, 8, 12])),
        "framework": draw(st.sampled_from(["none", "megatron", "torchtitan", "deepspeed"])),
        "reserve": draw(st.sampled_from([0.0, 0.1])),
        "micro_batch": [draw(st.sampled_from([1, 1, 2, 3]))],
        "vpp": [1, 2],
        "schedule": [draw(st.sampled_from(["1f1b", "interleaved", "zb-h1", "dualpipe"]))],
        "recompute": [draw(st.sampled_from(["none", "full", "moe"]))],
        "zero": [draw(st.sampled_from([1, 3]))],
        "offload": [draw(st.sampled_from(["none", "none", "optimizer"]))],
        "cp_kind": [draw(st.sampled_from(["ring", "ulysses", "hybrid"]))],
        "dispatcher": [draw(st.sampled_from(["all-to-all", "all-gather"]))],
        "sequence_parallel": draw(st.booleans()),
        "overlap": {"expert_all_to_all": draw(st.booleans())},
    }
    if draw(st.booleans()):
        run["placement"] = {draw(st.sampled_from(["tp", "ep", "cp", "pp"])): "inside"}
    if draw(st.integers(0, 2)) == 0:
        run["exposed_limit"] = draw(st.sampled_from([0.3, 0.01, 0.0001]))
    constraints = {"fix": {}, "at_least": {}, "at_most": {}, "inside": {}}
    for axis in draw(st.lists(st.sampled_from(["tp", "pp", "ep", "dp", "cp"]), max_size=3, unique=True)):
        kind = draw(st.sampled_from(["fix", "at_least", "at_most", "inside"]))
        if kind == "inside":
            constraints["inside"].setdefault("board", []).append(axis)
        else:
            constraints[kind][axis] = draw(st.sampled_from([1, 2, 3, 4] if kind == "fix" else [1, 2, 3]))
    run["constraints"] = {kind: wish for kind, wish in constraints.items() if wish}
    return Facts(draw(models()), validate(Run, run, file="tiny"), fabric, draw(profiles()))


CAUSES = {
    "HBM": (lambda: tiny_facts(hbm_mb=20, **SMALL), {"hbm"}),
    "three ways on eight heads": (
        lambda: tiny_facts((3, 2), constraints={"fix": {"tp": 3}}, **SMALL),
        {"heads_divide", "user_fix_tp"},
    ),
    "more ways than devices": (lambda: tiny_facts(constraints={"fix": {"tp": 16}}, **SMALL), {"user_fix_tp"}),
    "two wishes": (
        lambda: tiny_facts(constraints={"fix": {"tp": 4}, "at_most": {"tp": 2}}, **SMALL),
        {"user_fix_tp", "user_at_most_tp"},
    ),
    "inside one board": (
        lambda: tiny_facts(constraints={"fix": {"ep": 4}, "inside": {"board": ["ep"]}}, **SMALL),
        {"user_fix_ep", "ep_inside_board"},
    ),
    "the run's placement": (
        lambda: tiny_facts(constraints={"fix": {"tp": 4}}, placement={"tp": "inside"}, **SMALL),
        {"user_fix_tp", "tp_inside_board"},
    ),
    "more stages than layers": (
        lambda: tiny_facts((4, 2), constraints={"fix": {"pp": 8}}, **SMALL),
        {"layers_fill_stages", "user_fix_pp"},
    ),
    "a batch that does not divide": (
        lambda: tiny_facts(global_batch=7, **{**SMALL, "micro_batch": [2]}),
        {"batch_divides"},
    ),
    "a batch too odd for DP": (
        lambda: tiny_facts(global_batch=7, constraints={"at_least": {"dp": 2}}, **SMALL),
        {"batch_divides", "user_at_least_dp"},
    ),
    "framework": (
        lambda: tiny_facts(framework="megatron", constraints={"fix": {"pp": 2}}, **{**SMALL, "schedule": ["zb-h1"]}),
        {"megatron_schedule", "user_fix_pp"},
    ),
    "exposure": (
        lambda: tiny_facts(hbm_mb=1e4, exposed_limit=1e-6, constraints={"fix": {"ep": 4}}, **SMALL),
        {"exposed", "user_fix_ep"},
    ),
    "host memory": (
        lambda: _small_host(tiny_facts(hbm_mb=30, offload=["optimizer"], **SMALL)),
        {"host_memory"},
    ),
    "NVMe": (lambda: tiny_facts(hbm_mb=30, nvme_mb=1, offload=["optimizer+nvme"], **SMALL), {"nvme_capacity"}),
}


def _small_host(given: Facts) -> Facts:
    device = replace(given.fabric.device, host_memory_bytes=1e6)
    return replace(given, fabric=replace(given.fabric, device=device))
