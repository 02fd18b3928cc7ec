"""The fabric as the cost model sees it: devices of one kind under levels of units.

Contents: Device, Level, Fabric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from mapsearch.errors import MissingFact, listed

LevelKind = Literal["switch", "full_mesh", "ring", "torus"]


@dataclass(frozen=True)
class Device:
    """One device: memory, bandwidth and peak compute rates."""

    name: str
    hbm_bytes: float
    hbm_bytes_per_s: float
    peak_flops: dict[str, float]
    """Dense peak FLOP/s by format: bf16, fp16, fp8, ..."""
    host_memory_bytes: float = 0.0
    """Host memory per device that offload may use; 0 when there is none."""
    host_bytes_per_s: float = 0.0
    """Bandwidth between device and host, one direction."""
    nvme_bytes: float = 0.0
    """NVMe per device that offload may use; 0 when there is none."""
    nvme_bytes_per_s: float = 0.0
    """A device's share of the bandwidth between NVMe and host, one direction."""
    power_w: float | None = None
    """What one device draws while it trains, host and cooling included where the user counts them; unknown: None."""
    price_per_hour: float | None = None
    """Price of one device for an hour, in any currency; unknown: None."""
    sources: dict[str, str] = field(default_factory=dict)

    def peak(self, number_format: str) -> float:
        """Dense peak FLOP/s of a format. Raises MissingFact when the topology does not say."""
        if number_format not in self.peak_flops:
            raise MissingFact(
                f"has no peak for {number_format}; the topology gives {listed(sorted(self.peak_flops))}",
                file=self.name,
                field=f"device.peak.{number_format}",
            )
        return self.peak_flops[number_format]


@dataclass(frozen=True)
class Level:
    """One tier of the fabric: how many units of the tier below it joins, and how."""

    name: str
    kind: LevelKind
    size: int
    """Fan-out: units of the level below (devices at the innermost level) in one unit of this level."""
    bytes_per_s: float
    """Bandwidth per device and direction for traffic that crosses this level."""
    latency_s: float
    high_bandwidth: bool = False
    dims: tuple[int, ...] = ()
    """Torus dimensions, whose product is the size."""
    in_network_reduction: bool = False


@dataclass(frozen=True)
class Fabric:
    """A regular cluster: levels from the innermost to the outermost, and what they can do."""

    name: str
    device: Device
    levels: tuple[Level, ...]
    variable_all_to_all: bool = True
    """False when the communication library offers only whole-group, fixed-size all-to-all."""
    sources: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def devices(self) -> int:
        """Devices in the regular cluster."""
        return math.prod(level.size for level in self.levels)

    @cached_property
    def fan_outs(self) -> tuple[int, ...]:
        """Fan-out of each level, innermost first."""
        return tuple(level.size for level in self.levels)

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        """Names of the levels, innermost first."""
        return tuple(level.name for level in self.levels)

    @cached_property
    def domain_levels(self) -> int:
        """How many levels, from the innermost, form the high-bandwidth domain."""
        count = 0
        for level in self.levels:
            if not level.high_bandwidth:
                break
            count += 1
        return count
