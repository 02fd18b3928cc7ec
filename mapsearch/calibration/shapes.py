"""The model and the fabric of a published row.

Contents: Unfit, model_of, fabric_of, device_of, hardware_facts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from mapsearch.inventories.model import Mla, Model, Moe, SlidingWindow
from mapsearch.topologies.fabric import Device, Fabric, Level

LATENCY_S = {"inner": 3.4e-6, "outer": 14e-6, "torus": 1e-6, "slices": 30e-6}
"""Start-up cost of one step, as in the built-in clusters: over NVLink, over the network, over one torus link, between
slices."""
HOST_BYTES_PER_S = {"A100": 32e9, "A800": 32e9, "GB200": 225e9, "GB300": 225e9}
"""As in the built-in clusters; PCIe 5.0 x16 for all others."""
HOST_MEMORY_BYTES = 240e9
NO_IN_NETWORK_REDUCTION = ("A100", "A800", "Ascend", "TPU", "MI", "Gaudi", "Trainium")
"""NVSwitch reduces from the third generation (Hopper) on."""
OWN_NAME = {"A100-80GB": "A100-SXM4-80GB", "A100-40GB": "A100-SXM4-40GB", "H100-96GB-HBM2e": "H100", "A800": "A100"}
"""Devices of rows under the name that a built-in profile has. A800 is an A100, H800 an H100, with a slower NVLink."""
NAMED: dict[str, dict[str, Any]] = {
    "nemotron3-8b": {  # NVIDIA NeMo, nemo/collections/llm/gpt/model/nemotron.py, Nemotron3Config8B and its tokenizer
        "layers": 32,
        "hidden": 4096,
        "ffn": 16384,
        "heads": 32,
        "vocab": 256000,
        "gated_mlp": False,
        "normalization": "LayerNorm",
    },
    "llama-29b": {  # KempnerForge, configs/train/29b_32gpu_tp4_pp2.toml; FFN 1.3 * 8/3 hidden, in steps of 256
        "layers": 56,
        "hidden": 6144,
        "ffn": 21504,
        "heads": 48,
        "kv_heads": 8,
        "vocab": 128256,
        "gated_mlp": True,
    },
}
"""Public shapes of models that rows name without their shape."""
LAYER_NORM = ("gpt", "bloom", "mpt", "mcore-test")


class Unfit(Exception):
    """A row that cannot be represented; the message says why."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def _needed(record: dict[str, Any], key: str, where: str) -> Any:
    if record.get(key) is None:
        raise Unfit("incomplete", f"the row does not give {where}.{key}")
    return record[key]


def model_of(shape: dict[str, Any]) -> Model:
    """The model of a row. Raises Unfit."""
    shape = NAMED.get(str(shape.get("name")), {}) | {key: value for key, value in shape.items() if value is not None}
    arch = str(shape.get("arch"))
    if arch.startswith("hybrid"):
        raise Unfit("not represented", f"{arch}: layers other than attention and FFN have no cost functions")
    if shape.get("experimental_attention_variant") or shape.get("moe_latent"):
        raise Unfit("not represented", "sparse or latent attention and latent experts have no cost functions")
    layers, hidden = int(_needed(shape, "layers", "model")), int(_needed(shape, "hidden", "model"))
    heads = int(_needed(shape, "heads", "model"))
    length = int(_needed(shape, "seq_len", "model"))
    vocab = _vocab(_needed(shape, "vocab", "model"))
    biased = bool(shape.get("bias", shape["family"] in ("gpt", "bloom")))
    mla = _mla(shape)
    moe = _moe(shape)
    first, period = _moe_layers(shape, layers)
    return Model(
        name=str(shape["name"]),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads if mla else _kv_heads(shape, heads),
        head_dim=int(shape.get("head_dim") or hidden // heads),
        attention="mla" if mla else "gqa",
        mla=mla,
        sliding_window=_window(shape, layers),
        linear_bias=biased and mla is None,
        norm_bias=shape["family"] in LAYER_NORM or shape.get("normalization") == "LayerNorm",
        qk_norm=mla is None and str(shape["name"]).startswith("qwen3"),
        ffn=int(shape.get("ffn") or 0),
        gated_ffn=bool(shape.get("gated_mlp")),
        moe=moe,
        dense_first=first,
        moe_period=period,
        vocab=vocab,
        tied_embeddings=bool(shape.get("tied_embeddings")),
        learned_positions=length if shape["family"] == "gpt" else 0,
        mtp_layers=int(shape.get("mtp_layers") or shape.get("mtp_num_layers") or 0),
        dropout=bool(shape.get("hidden_dropout")),
    )


def _kv_heads(shape: dict[str, Any], heads: int) -> int:
    """Key-value heads. A slice of a model, `405b-4layers`, was cut from the file that its remark quotes where the
    count itself is said to be from memory."""
    quoted = re.search(r"kv_heads \d+ from memory \(.* file says (\d+)\)", str(shape.get("shape_source")))
    if quoted and "truncated" in str(shape.get("note_shape")):
        return int(quoted[1])
    return int(shape.get("kv_heads") or heads)


def _vocab(given: Any) -> int:
    """Entries of the vocabulary; some rows say `padded GPT-2 BPE 50257`. Raises Unfit."""
    number = re.search(r"(\d{3,})\s*$", str(given))
    if number is None:
        raise Unfit("incomplete", f"the vocabulary's size is not given, only {given!r}")
    return int(number[1])


def _mla(shape: dict[str, Any]) -> Mla | None:
    if shape.get("attention") != "mla" and not shape.get("kv_lora_rank"):
        return None
    return Mla(
        q_rank=int(shape.get("q_lora_rank") or 0),
        kv_rank=int(_needed(shape, "kv_lora_rank", "model")),
        nope_dim=int(_needed(shape, "qk_nope_head_dim", "model")),
        rope_dim=int(_needed(shape, "qk_rope_head_dim", "model")),
        value_dim=int(_needed(shape, "v_head_dim", "model")),
    )


def _moe(shape: dict[str, Any]) -> Moe | None:
    if not shape.get("experts"):
        return None
    return Moe(
        experts=int(shape["experts"]),
        top_k=int(_needed(shape, "top_k", "model")),
        expert_ffn=int(_needed(shape, "expert_ffn", "model")),
        shared_ffn=int(shape.get("shared_expert_ffn") or 0),
        expert_bias=shape["family"] == "gpt-oss",
    )


def _moe_layers(shape: dict[str, Any], layers: int) -> tuple[int, int]:
    """Leading dense layers and the period of MoE layers after them."""
    frequency = shape.get("moe_layer_freq")
    if isinstance(frequency, str) and "every 2nd" in frequency:
        return 0, 2
    if isinstance(frequency, str):
        pattern = re.fullmatch(r"\(\[0\]\*(\d+)\+\[1\]\*(\d+)\)", frequency.replace(" ", ""))
        if pattern is None:
            raise Unfit("not represented", f"the pattern {frequency} of MoE layers")
        return int(pattern[1]), 1
    dense = shape.get("dense_layers")
    if dense is None and shape["family"] == "deepseek":
        # All DeepSeek models have leading dense layers; V2 has one (arXiv 2405.04434, section 3.1.2).
        dense = 1
    return min(int(dense or 0), layers), int(frequency or 1)


def _window(shape: dict[str, Any], layers: int) -> SlidingWindow | None:
    if not shape.get("sliding_window"):
        return None
    note = str(shape.get("note_shape"))
    windowed = layers // 2 if "alternating" in note else layers * 5 // 6 if "5 local" in note else layers
    return SlidingWindow(size=int(shape["sliding_window"]), layers=windowed)


# --- fabric --------------------------------------------------------------------------------------------------------


def hardware_facts(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Plain values of hardware.yaml: device -> fact -> value."""
    return {
        device: {key: fact.get("value") if isinstance(fact, dict) else fact for key, fact in facts.items()}
        for device, facts in document.items()
    }


def device_of(name: str, facts: dict[str, Any]) -> Device:
    """The device of a row. Raises Unfit when a fact is missing."""
    for key in ("hbm_bytes", "hbm_GBps", "peak_bf16_dense_tflops"):
        if not facts.get(key):
            raise Unfit("incomplete", f"hardware.yaml gives no {key} of {name}")
    half = float(facts["peak_bf16_dense_tflops"]) * 1e12
    peaks = {"bf16": half, "fp16": half}
    if facts.get("peak_fp8_dense_tflops"):
        peaks["fp8"] = float(facts["peak_fp8_dense_tflops"]) * 1e12
    if facts.get("peak_fp4_dense_tflops"):
        peaks["fp4"] = float(facts["peak_fp4_dense_tflops"]) * 1e12
    host = next((rate for key, rate in HOST_BYTES_PER_S.items() if name.startswith(key)), 64e9)
    return Device(
        OWN_NAME.get(name, name),
        float(facts["hbm_bytes"]),
        float(facts["hbm_GBps"]) * 1e9,
        peaks,
        host_memory_bytes=HOST_MEMORY_BYTES,
        host_bytes_per_s=host,
    )


def fabric_of(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> Iterator[Fabric]:
    """Fabrics with exactly the row's devices: full scale-up domains, else domains of a power of two. Raises Unfit."""
    told = row["hardware"]
    name, devices = str(told["device"]), int(_needed(told, "devices", "hardware"))
    if name not in hardware:
        raise Unfit("incomplete", f"hardware.yaml does not know {name}")
    facts = hardware[name]
    device = device_of(name, facts)
    domain = int(told.get("scale_up_domain") or facts.get("scale_up_domain") or told.get("devices_per_node") or 8)
    inner = told.get("scale_up_GBps_per_device") or facts.get("scale_up_uni_GBps_per_device")
    outer = told.get("scale_out_GBps_per_device") or facts.get("scale_out_uni_GBps_per_device")
    if not inner and devices > 1:
        raise Unfit("incomplete", f"no bandwidth inside the scale-up domain of {name}")
    if name.startswith("TPU"):
        yield _torus(row, device, float(inner or 0.0), float(outer or 0.0))
        return
    reduces = not name.startswith(NO_IN_NETWORK_REDUCTION)
    features = row["features"] if isinstance(row["features"], dict) else {}
    for size in _domains(domain, devices):
        outside = devices // size
        if outside > 1 and not outer:
            raise Unfit("incomplete", f"no bandwidth outside the scale-up domain of {name}")
        near = Level(
            "domain", "switch", size, float(inner or 1.0) * 1e9, LATENCY_S["inner"], True, in_network_reduction=reduces
        )
        far = Level(
            "cluster",
            "switch",
            outside,
            float(outer or 1.0) * 1e9,
            LATENCY_S["outer"],
            in_network_reduction=str(features.get("sharp")) == "True",
            own_ports=True,
        )
        yield Fabric(f"{name} x {devices}", device, (near, far))


def _domains(domain: int, devices: int) -> list[int]:
    if devices <= domain:
        return [devices]
    power = 1 << (domain.bit_length() - 1)
    while devices % power:
        power //= 2
    return [domain, power] if devices % domain == 0 and domain != power else [power]


def _torus(row: dict[str, Any], device: Device, inner: float, outer: float) -> Fabric:
    """A slice is a torus whose axes multiply to its chips; slices are joined by the data-centre network."""
    told = row["hardware"]
    devices, slices = int(told["devices"]), int(told.get("slices") or 1)
    chips = devices // slices
    axes = 2 if device.name.endswith("e") else 3
    written = re.fullmatch(r"\d+(x\d+)+", str(told.get("topology")))
    dims = tuple(int(n) for n in str(told["topology"]).split("x")) if written else _balanced(chips, axes)
    if math.prod(dims) != chips:
        dims = _balanced(chips, axes)
    near = Level("slice", "torus", chips, inner * 1e9, LATENCY_S["torus"], True, dims=dims)
    far = Level("cluster", "switch", slices, max(outer, 1e-3) * 1e9, LATENCY_S["slices"], own_ports=True)
    return Fabric(f"{device.name} x {devices}", device, (near, far))


def _balanced(count: int, axes: int) -> tuple[int, ...]:
    """The factors of `count` over so many axes, as equal as its prime factors allow."""
    dims, left, prime = [1] * axes, count, 2
    factors = []
    while left > 1:
        while left % prime == 0:
            factors.append(prime)
            left //= prime
        prime += 1
    for factor in sorted(factors, reverse=True):
        dims[dims.index(min(dims))] *= factor
    return tuple(sorted(dims))
