"""Facts small enough that a plain loop can go through all mappings, and the golden vector E1 (FORMULAS 8)."""

from __future__ import annotations

from typing import Any

from mapsearch.costs.views import Facts
from mapsearch.inventories.base import validate
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.topologies.fabric import Device, Fabric, Level

TINY_MOE = {"experts": 8, "top_k": 2, "expert_ffn": 256}
TINY_MODEL = {
    "name": "tiny",
    "layers": 4,
    "hidden": 256,
    "heads": 8,
    "kv_heads": 4,
    "head_dim": 32,
    "ffn": 512,
    "vocab": 1024,
    "moe": TINY_MOE,
}
TINY_RUN = {
    "name": "tiny",
    "sequence_length": 512,
    "global_batch": 8,
    "framework": "none",
    "reserve": 0.1,
    "micro_batch": [1, 2],
    "vpp": [1, 2],
    "schedule": ["1f1b", "interleaved"],
    "recompute": ["none", "full"],
    "zero": [1],
    "offload": ["none"],
    "cp_kind": ["ring"],
    "dispatcher": ["all-to-all"],
}


def tiny_model(**changes: Any) -> Model:
    return validate(Model, {**TINY_MODEL, **changes}, file="tiny model")


def tiny_run(**changes: Any) -> Run:
    return validate(Run, {**TINY_RUN, **changes}, file="tiny run")


def tiny_profile(**changes: Any) -> Profile:
    """Every kind of efficiency below 1 and some start-up cost, so that no term vanishes."""
    curve = {"peak": 0.7, "half_rows": 64, "half_columns": 32}
    collective = {"peak": 0.8, "half_bytes": "4 KB", "launch": "2 us"}
    data = dict.fromkeys(("gemm", "grouped_gemm", "attention_forward", "attention_backward"), curve)
    data |= dict.fromkeys(("all_reduce", "all_gather", "all_to_all", "point_to_point"), collective)
    data |= {"name": "tiny", "memory_bandwidth": 0.8, "kernel_launch": "1 us", "kernels_per_layer": 10}
    data |= {"overlap_slowdown": 0.9, "tp_overlap": 0.5, "runtime_bytes": "1 MB", "communicator_bytes": "100 KB"}
    return validate(Profile, {**data, **changes}, file="tiny profile")


def tiny_fabric(
    sizes: tuple[int, ...] = (2, 2), *, hbm_mb: float = 64.0, speed: float = 1.0, nvme_mb: float = 4e3
) -> Fabric:
    """Levels from 100 GB/s inward to 100/4^j GB/s outward; devices of 10 TFLOP/s, so that communication counts."""
    names = ("board", "rack", "pod", "hall")
    levels = tuple(
        Level(names[j], "switch", size, speed * 100e9 / 4**j, (1 + j) * 1e-6, high_bandwidth=j == 0)
        for j, size in enumerate(sizes)
    )
    device = Device("tiny device", hbm_mb * 1e6, 1e12, {"bf16": 1e13, "fp8": 2e13}, 1e9, 1e10, nvme_mb * 1e6, 2e9)
    return Fabric("tiny", device, levels)


def tiny_facts(
    sizes: tuple[int, ...] = (2, 2),
    *,
    hbm_mb: float = 64.0,
    speed: float = 1.0,
    nvme_mb: float = 4e3,
    model: dict[str, Any] | None = None,
    profile: dict[str, Any] | None = None,
    **run: Any,
) -> Facts:
    """A four-layer MoE on a few devices; keyword arguments change the run."""
    return Facts(
        tiny_model(**(model or {})),
        tiny_run(**run),
        tiny_fabric(sizes, hbm_mb=hbm_mb, speed=speed, nvme_mb=nvme_mb),
        tiny_profile(**(profile or {})),
    )


E1_MAPPING = {"tp": 4, "dp": 64, "pp": 16, "ep": 64, "edp": 4, "recompute": "none", "schedule": "1f1b", "zero": 1}


def e1_facts(**run: Any) -> Facts:
    """The model, run and cluster of vector E1: 4,096 devices in nodes of 8."""
    model = {"name": "E1", "layers": 80, "hidden": 12288, "heads": 96, "kv_heads": 8, "head_dim": 128}
    model |= {"vocab": 163840, "moe": {"experts": 384, "top_k": 16, "expert_ffn": 4352}}
    levels = (
        Level("node", "switch", 8, 450e9, 0.0, high_bandwidth=True),
        Level("net", "switch", 512, 50e9, 0.0),
    )
    device = Device("E1", 192e9, 8e12, {"bf16": 989.4e12, "fp8": 2 * 989.4e12})
    quiet = {"runtime_bytes": "0 B", "communicator_bytes": "0 B", "kernel_launch": "0 us"}
    told = {"name": "E1", "sequence_length": 4096, "global_batch": 4096, "framework": "none", **run}
    return Facts(
        validate(Model, model, file="E1"),
        validate(Run, told, file="E1"),
        Fabric("E1", device, levels),
        tiny_profile(**quiet),
    )
