"""Rows of our own in the schema of benchmarks/published/SCHEMA.md, small enough to check by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest

HARDWARE: dict[str, dict[str, Any]] = {
    "H100": {
        "hbm_bytes": 85520809984,
        "hbm_GBps": 3350,
        "peak_bf16_dense_tflops": 989.5,
        "peak_fp8_dense_tflops": 1979,
        "scale_up_domain": 8,
        "scale_up_uni_GBps_per_device": 450,
        "scale_out_uni_GBps_per_device": 50,
    },
    "TPU-v5p": {"hbm_bytes": 102005473280, "hbm_GBps": 2765, "peak_bf16_dense_tflops": 459, "scale_up_domain": 8960},
}

ROW: dict[str, Any] = {
    "id": "own_rows/llama3-8b-16",
    "workload": "pretrain",
    "quality": "A",
    "framework": "Megatron-Core",
    "model": {
        "name": "llama3-8b",
        "family": "llama",
        "arch": "dense",
        "layers": 32,
        "hidden": 4096,
        "ffn": 14336,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "vocab": 128256,
        "gated_mlp": True,
        "tied_embeddings": False,
        "seq_len": 8192,
    },
    "hardware": {"device": "H100", "devices": 16, "scale_up_GBps_per_device": 450, "scale_out_GBps_per_device": 50},
    "mapping": {"tp": 2, "sp": True, "pp": 2, "cp": 1, "ep": 1, "etp": 1, "dp": 4, "vpp": 4, "zero_stage": 1},
    "batch": {"global_batch_seqs": 64, "micro_batch_seqs": 1},
    "precision": "bf16",
    "recompute": "none",
    "features": {},
    "moe_routing": None,
    "measured": {"iteration_s": 4.0},
    "normalized": {},
}


@pytest.fixture
def hardware() -> dict[str, dict[str, Any]]:
    return HARDWARE


@pytest.fixture
def row() -> dict[str, Any]:
    return copy.deepcopy(ROW)
