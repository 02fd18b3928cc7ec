"""What a row measured, in seconds and bytes, by the row's own definition of FLOP.

Contents: Measured, measured, flops_per_step, definition_of, DEFINITIONS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mapsearch.axes import Recompute
from mapsearch.costs.flops import executed_flops, linear_flops, torchtitan_flops_per_token, training_flops_per_token
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import Run

MemoryKind = Literal["allocated", "reserved", "device"]
"""Bytes of live tensors; bytes the allocator holds; bytes in use on the device, context included."""
MemoryPlace = Literal["worst", "first", "last"]
"""The stage that was looked at."""


@dataclass(frozen=True)
class Measured:
    """One row's measurements in SI units; None where it has none."""

    step_time_s: float | None
    step_time_basis: str
    """The key of the row that the step time comes from."""
    memory_bytes: float | None
    memory_kind: MemoryKind = "allocated"
    memory_place: MemoryPlace = "worst"
    reserved_bytes: float | None = None
    """Bytes the allocator held, where the row prints them beside the live ones."""
    oom: bool = False


# --- definitions of FLOP: all of one step, all devices together ------------------------------------------------------


def causal(model: Model, run: Run, recompute: int) -> float:
    """Megatron-Core, NeMo, Megatron-Bridge: 6N and half of the attention square, no router, no recompute (F3.2)."""
    del recompute
    return run.tokens_per_step * float(training_flops_per_token(model=model, length=run.attended_length, router=False))


def whole_square(model: Model, run: Run, recompute: int) -> float:
    """llm-foundry, MaxText before its PR 1988, torchtitan, Megatron before 2025: the whole attention square, no
    recompute (F3.2, torchtitan)."""
    del recompute
    return run.tokens_per_step * float(torchtitan_flops_per_token(model=model, length=run.sequence_length))


def sc21(model: Model, run: Run, recompute: int) -> float:
    """Narayanan et al. (arXiv 2104.04473) eq. 3: 96 B s l h^2 (1 + s/6h + V/16lh) with full recompute, i.e. a fourth
    forward of the layers, and without it 72 (1 + s/6h + V/12lh); the whole attention square."""
    head = 2.0 * model.hidden * model.vocab
    forward = float(torchtitan_flops_per_token(model=model, length=run.sequence_length, router=False)) / 3.0
    repeats = 4.0 if recompute & Recompute.FULL else 3.0
    return run.tokens_per_step * (repeats * (forward - head) + 3.0 * head)


def sc21_hardware(model: Model, run: Run, recompute: int) -> float:
    """The same where the source says that recompute is counted: always four forwards."""
    del recompute
    return sc21(model, run, int(Recompute.FULL))


def causal_hardware(model: Model, run: Run, recompute: int) -> float:
    """What a causal kernel executes, recompute included (F3.2)."""
    return float(executed_flops(recompute, model=model, run=run))


def parameters_only(model: Model, run: Run, recompute: int) -> float:
    """6N: linear layers only."""
    del recompute
    return run.tokens_per_step * 3.0 * float(linear_flops(model=model))


Definition = Callable[[Model, Run, int], float]
DEFINITIONS: dict[str, Definition] = {
    "causal": causal,
    "whole square": whole_square,
    "sc21": sc21,
    "sc21 with recompute": sc21_hardware,
    "causal with recompute": causal_hardware,
    "6N": parameters_only,
}

BY_TEXT: dict[str, str] = {
    "model FLOPs (no recompute)": "causal",
    "model FLOPs": "causal",
    "NeMo model FLOPs": "causal",
    "Megatron --log-throughput model FLOPs, median": "causal",
    "MaxText model FLOPs, causal attention halved; per chip": "causal",
    "6N + attention (no causal halving), no recompute": "whole square",
    "MaxText model FLOPs, full (non-causal) attention": "whole square",
    "MaxText model FLOPs, full (non-causal) attention before PR 1988": "whole square",
    "MaxText model FLOPs": "whole square",
    "Megatron SC21 formula": "sc21",
    "hardware FLOPs incl. recompute": "sc21 with recompute",
    "hardware FLOPs incl. recompute (96BSlh^2 formula)": "sc21 with recompute",
    "hardware FLOPs incl. full recompute (4x fwd)": "sc21 with recompute",
    "hardware FLOPs incl. full recompute (4x fwd), pre-fix calculator ~3% low": "sc21 with recompute",
    "hardware FLOPs": "causal with recompute",
}
"""Definition by the text in a row's `flops_definition`."""
BY_SOURCE: dict[str, str] = {
    # Rows that print MFU or TFLOP/s and no definition: what the framework counted at the time (F3.2, SCHEMA.md).
    "korthikanti_2205.05198": "sc21",
    "vocabulary_parallelism": "sc21",
    "zero_bubble_2401.10241": "sc21",
    "megascale_2402.15627": "whole square",
    "megatron_lm_readme_h100": "whole square",
    "ascend_mindspeed": "whole square",
    "torchtitan": "whole square",
    "torchtitan_dsv3_b200": "whole square",
    "llm_foundry": "whole square",
    "maxtext_tpu_v5": "whole square",
}


def definition_of(row: dict[str, Any]) -> str:
    """The name of the row's own definition of FLOP: by its text, else by its source, else Megatron's."""
    text = row["measured"].get("flops_definition")
    if text in BY_TEXT:
        return BY_TEXT[text]
    return BY_SOURCE.get(str(row["id"]).split("/", maxsplit=1)[0], "causal")


def flops_per_step(row: dict[str, Any], model: Model, run: Run, recompute: int) -> float:
    """FLOP of one optimizer step as the row counts them, all devices together. Unit: FLOP."""
    return DEFINITIONS[definition_of(row)](model, run, recompute)


def measured(row: dict[str, Any], model: Model, run: Run, recompute: int, peak_flops: float) -> Measured:
    """The row's measurements. Its time comes from the key that says it most directly.

    `peak_flops` is what an MFU without a printed peak is taken to be a share of.
    """
    seconds, basis = _step_time_s(row, model, run, recompute, peak_flops)
    values, kind = row["measured"], str(row["measured"].get("memory_kind") or "")
    memory = _memory_bytes(row)
    lower = kind.lower()
    place: MemoryPlace = "last" if "last" in lower else "first" if "rank 0" in lower or "rank-0" in lower else "worst"
    held: MemoryKind = "allocated"
    if "smi" in lower:
        held = "device"
    elif "reserved" in lower:
        held = "reserved"
    also = values.get("peak_reserved_gib")
    reserved = float(also) * 2.0**30 if also is not None and held == "allocated" else None
    return Measured(seconds, basis, memory, held, place, reserved, bool(values.get("oom")))


DECIMAL_SOURCES = ("megatron_bridge_skills", "vocabulary_parallelism", "zero_bubble_2401.10241")
"""Rows whose GB are 1e9 bytes; all others divide by 2^30 and print "GB".

Megatron-Bridge divides by 1e9 (report_memory in its training loop). For the two papers it is inferred: every parameter
that a larger vocabulary adds takes 16.1 bytes in decimal GB, which is Megatron's FP16, and 17.3 in GiB, which is none.
"""


def _memory_bytes(row: dict[str, Any]) -> float | None:
    values, source = row["measured"], str(row["id"]).split("/", maxsplit=1)[0]
    gigabyte = 1e9 if source in DECIMAL_SOURCES else 2.0**30
    for key, unit in (("peak_memory_gib", 2.0**30), ("peak_memory_gb", gigabyte), ("peak_memory_mib", 2.0**20)):
        if values.get(key) is not None:
            return float(values[key]) * unit
    return None


def _step_time_s(
    row: dict[str, Any], model: Model, run: Run, recompute: int, peak_flops: float
) -> tuple[float | None, str]:
    values, devices = row["measured"], row["hardware"]["devices"]
    tokens, sequences = float(run.tokens_per_step), float(run.global_batch)
    amount = {
        "tokens_per_s_per_gpu": tokens / devices,
        "tokens_per_s_total": tokens,
        "samples_per_s": sequences,
        "samples_per_s_per_gpu": sequences / devices,
    }
    seconds = {"iteration_s": float(values["iteration_s"])} if values.get("iteration_s") else {}
    seconds |= {key: work / float(values[key]) for key, work in amount.items() if values.get(key)}
    rate = _flops_per_s(row, peak_flops)
    if rate:
        seconds[rate[1]] = flops_per_step(row, model, run, recompute) / (rate[0] * devices)
    basis = next(iter(seconds), "")
    return seconds.get(basis), basis


def _flops_per_s(row: dict[str, Any], peak_flops: float) -> tuple[float, str] | None:
    """FLOP/s per device as the row counts them, and the key that says so."""
    values = row["measured"]
    if values.get("tflops_per_gpu"):
        return float(values["tflops_per_gpu"]) * 1e12, "tflops_per_gpu"
    if not values.get("mfu"):
        return None
    if row["normalized"].get("tflops_per_gpu"):
        return float(row["normalized"]["tflops_per_gpu"]) * 1e12, "mfu"
    peak = float(values.get("mfu_peak_tflops") or peak_flops / 1e12)
    return float(values["mfu"]) * peak * 1e12, "mfu"
