"""The profile inventory: measured or assumed efficiencies of a device and its software.

Contents: Saturation, CollectiveEfficiency, Profile.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mapsearch.inventories.base import Inventory
from mapsearch.units import Bytes, Seconds

Evidence = Literal["measured", "datasheet", "assumed", "fitted"]
Rings = Literal["levels", "flat"]
"""How gathers and reductions go round: level by level, or in rings through the whole group."""


class Saturation(Inventory):
    """Share of the peak that a kernel reaches: `peak * x / (x + half)` in each of its dimensions."""

    kind: ClassVar[str] = "saturation curve"
    peak: float = Field(gt=0.0, le=1.0)
    """Share of the datasheet peak at the best shape."""
    half_rows: float = Field(default=0.0, ge=0.0)
    """Rows (tokens) at which half of `peak` is reached."""
    half_columns: float = Field(default=0.0, ge=0.0)
    """Output or reduction width at which half of `peak` is reached."""


class CollectiveEfficiency(Inventory):
    """Share of the link bandwidth that one kind of collective reaches, and its start-up cost."""

    kind: ClassVar[str] = "collective efficiency"
    peak: float = Field(gt=0.0, le=1.0)
    half_bytes: Bytes = 0.0
    """Bytes of one rank's message (of one peer's, in an all-to-all) at which half of `peak` is reached.

    It comes on top of the latency terms.
    """
    high_bandwidth_peak: float | None = Field(default=None, gt=0.0, le=1.0)
    """Share that is reached on levels of the high-bandwidth domain; `peak` when left out."""
    launch: Seconds = 0.0
    """Fixed cost of one call."""


class Profile(Inventory):
    """Efficiencies of one device and software generation; shared by all mappings."""

    kind: ClassVar[str] = "profile"
    name: str = Field(min_length=1)
    evidence: Evidence = "assumed"
    """What the numbers rest on as a whole; `sources` may say more for single fields."""
    devices: list[str] = Field(default_factory=list)
    """Device names that a topology may use for what this profile describes."""
    gemm: Saturation
    grouped_gemm: Saturation
    attention_forward: Saturation
    attention_backward: Saturation
    fp8_share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of `gemm` and `grouped_gemm` efficiency that FP8 products keep, each against its own peak."""
    fp4_share: float = Field(default=1.0, gt=0.0, le=1.0)
    """The same for FP4 products."""
    memory_bandwidth: float = Field(gt=0.0, le=1.0)
    """Share of HBM bandwidth that elementwise kernels reach."""
    routed_passes: float = Field(default=1.0, gt=0.0)
    """Traffic of the router's permutations and activations over the counted passes: unfused kernels pass more often."""
    kernel_launch: Seconds = 0.0
    """Host time per kernel that is not hidden."""
    kernels_per_layer: float = Field(default=0.0, ge=0.0)
    host_launch: Seconds = 0.0
    """Host time to launch one kernel; a stage is never faster than the host can feed it. 0: compiled ahead."""
    moe_kernels: float = Field(default=0.0, ge=0.0)
    """Kernels of the MoE half of a layer, forward, dispatch and combine included."""
    fp8_quantise_passes: float = Field(default=0.0, ge=0.0)
    """HBM passes over a GEMM's inputs to quantise them."""
    fp4_quantise_passes: float = Field(default=0.0, ge=0.0)
    """The same for NVFP4, largest values and Hadamard transform included."""
    all_reduce: CollectiveEfficiency
    all_gather: CollectiveEfficiency
    """Also reduce-scatter."""
    all_to_all: CollectiveEfficiency
    point_to_point: CollectiveEfficiency
    rings: Rings = "levels"
    """Rings of all-gather, reduce-scatter and all-reduce: `levels` sends across a level only what its units lack;
    `flat` passes nearly the whole tensor through every unit, as NCCL and RCCL do on switches."""
    overlap_slowdown: float = Field(default=1.0, gt=0.0, le=1.0)
    """gamma: rate of a communication that runs under compute, as a share of its rate alone."""
    tp_overlap: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of tensor-parallel communication that its GEMM hides when overlap is on."""
    step_overhead: Seconds = 0.0
    """Time per optimizer step that no quantity accounts for: data, logging, host work between steps."""
    straggle: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share by which a step grows with each doubling of the devices beyond one high-bandwidth domain."""
    runtime_bytes: Bytes
    """HBM taken by the context and libraries before any tensor."""
    communicator_bytes: Bytes
    """HBM of one communicator of a group with more than one rank."""
    workspace_bytes: Bytes = 0.0
    """Work space of matrix products, which the framework's allocator counts like tensors."""
    fragmentation: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share by which the memory that the framework's allocator reserves exceeds that of live tensors.

    For comparisons with measured reserved or device memory; the capacity check keeps a run's `reserve` for it.
    """
