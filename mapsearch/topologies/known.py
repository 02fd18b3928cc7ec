"""Warnings about numbers that look like a slip for a known part: bits for bytes, both ways added, sparse peaks.

Contents: Part, PARTS, suspicions, level_suspicions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mapsearch.units import FLOPS, RATE, render

if TYPE_CHECKING:
    from mapsearch.topologies.fabric import Level
    from mapsearch.topologies.spec import LevelSpec, Topology

TOLERANCE = 0.06
"""How near to a factor a ratio counts as that factor."""


@dataclass(frozen=True)
class Part:
    """Datasheet figures of one device: bandwidths in GB/s one way per device, dense peaks in TFLOP/s."""

    pattern: str
    hbm: float
    scale_up: float
    scale_out: float
    bf16: float
    fp8: float = 0.0
    fp4: float = 0.0


PARTS = (
    Part(r"A100", hbm=2039, scale_up=300, scale_out=25, bf16=312),  # NVIDIA A100, DGX A100
    Part(r"A800", hbm=2039, scale_up=200, scale_out=25, bf16=312),
    Part(r"H800", hbm=3350, scale_up=200, scale_out=50, bf16=989.4, fp8=1978.9),
    Part(r"H20\b", hbm=4000, scale_up=450, scale_out=50, bf16=148, fp8=296),
    Part(r"GH200|H100", hbm=3350, scale_up=450, scale_out=50, bf16=989.4, fp8=1978.9),  # NVIDIA H100, DGX H100
    Part(r"H200", hbm=4800, scale_up=450, scale_out=50, bf16=989.4, fp8=1978.9),
    Part(r"GB300|B300", hbm=8000, scale_up=900, scale_out=100, bf16=2500, fp8=5000, fp4=15000),
    Part(r"GB200", hbm=8000, scale_up=900, scale_out=50, bf16=2450, fp8=4900, fp4=9800),
    Part(r"B200", hbm=8000, scale_up=900, scale_out=50, bf16=2250, fp8=4500, fp4=9000),
    Part(r"MI300X", hbm=5300, scale_up=448, scale_out=50, bf16=1307.4, fp8=2614.9),
    Part(r"TPU.?v5p", hbm=2765, scale_up=600, scale_out=6.25, bf16=459, fp8=459),
)
"""First match counts. Figures as in the vendors' datasheets; the catalogue names the source of each of its own."""


def suspicions(topology: Topology) -> list[str]:
    """One sentence for each number of the device and of the levels form that looks wrong."""
    return [*_device(topology), *level_suspicions(topology.device.name, topology.levels)]


def level_suspicions(device: str, levels: Sequence[LevelSpec | Level]) -> list[str]:
    """One sentence for each bandwidth of the levels, innermost first, that looks wrong."""
    part = _part(device)
    return [*(_rates(part, device, levels) if part else ()), *_order(levels)]


def _part(device: str) -> Part | None:
    return next((part for part in PARTS if re.search(part.pattern, device, re.IGNORECASE)), None)


def _device(topology: Topology) -> Iterator[str]:
    device = topology.device
    part = _part(device.name)
    if part is None:
        return
    yield from _judge("device.hbm_bandwidth", device.hbm_bandwidth, part.hbm * 1e9, device.name)
    peaks = (("bf16", part.bf16), ("fp16", part.bf16), ("fp8", part.fp8), ("fp4", part.fp4))
    for number_format, nominal in peaks:
        if nominal and number_format in device.peak:
            yield from _sparse(number_format, device.peak[number_format], nominal * 1e12, device.name)


def _rates(part: Part, device: str, levels: Sequence[LevelSpec | Level]) -> Iterator[str]:
    """The domain against the part's links, the first tier outside it against its network port."""
    inside = True
    for position, level in enumerate(levels):
        if inside and (position == 0 or level.high_bandwidth):
            yield from _judge(f"level {level.name}", level.bytes_per_s, part.scale_up * 1e9, device)
        elif inside:
            inside = False
            yield from _judge(f"level {level.name}", level.bytes_per_s, part.scale_out * 1e9, device)


def _judge(what: str, value: float, nominal: float, device: str) -> Iterator[str]:
    said = f"{what}: {render(value, RATE)} is"
    usual = f"the {render(nominal, RATE)} of {device} (per device, one way)"
    ratio = value / nominal
    if _near(ratio, 8.0) or _near(ratio, 1 / 8.0):
        times = "eight times" if ratio > 1.0 else "an eighth of"
        yield f"{said} {times} {usual}; bits taken for bytes (Gb/s, GB/s)?"
    elif _near(ratio, 2.0):
        yield f"{said} twice {usual}; both directions added? (then write direction: both)"
    elif _near(ratio, 0.5):
        yield f"{said} half of {usual}; halved although it was already one way?"


def _sparse(number_format: str, value: float, nominal: float, device: str) -> Iterator[str]:
    if _near(value / nominal, 2.0):
        yield (
            f"device.peak.{number_format}: {render(value, FLOPS)} is twice the dense {render(nominal, FLOPS)} of "
            f"{device}; is it the rate with sparsity?"
        )


def _near(ratio: float, factor: float) -> bool:
    return abs(ratio / factor - 1.0) <= TOLERANCE


def _order(levels: Sequence[LevelSpec | Level]) -> Iterator[str]:
    for inner, outer in itertools.pairwise(levels):
        if outer.bytes_per_s > inner.bytes_per_s:
            yield (
                f"level {outer.name}: {render(outer.bytes_per_s, RATE)} per device is more than the "
                f"{render(inner.bytes_per_s, RATE)} of level {inner.name} inside it; is it for the whole unit?"
            )
        if outer.high_bandwidth and not inner.high_bandwidth:
            yield (
                f"level {outer.name} is marked high_bandwidth but level {inner.name} inside it is not, so it does not "
                "count as part of the domain"
            )
