"""The fabric as the cost model sees it: devices of one kind under levels of units.

Contents: Device, Level, Fabric, resized.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from mapsearch.errors import MissingFact, listed

if TYPE_CHECKING:
    from mapsearch.topologies.core import Site

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
    own_ports: bool = False
    """Devices reach this level by ports of their own, NICs or direct links: what crosses it is not at those inside."""


def resized(level: Level, size: int) -> Level:
    """The level with some of its units unused: in a full mesh the links to them are lost bandwidth."""
    if level.kind == "full_mesh" and 1 < size < level.size:
        share = (size - 1) / (level.size - 1)
        return replace(level, size=size, bytes_per_s=level.bytes_per_s * share)
    return replace(level, size=size, dims=level.dims if size == level.size else ())


@dataclass(frozen=True)
class Fabric:
    """A cluster of equal units: levels from the innermost to the outermost, and what they can do."""

    name: str
    device: Device
    levels: tuple[Level, ...]
    """With the most units that some mapping may use of each; all of them at once only where there are no `cores`."""
    variable_all_to_all: bool = True
    """False when the communication library offers only whole-group, fixed-size all-to-all."""
    sources: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    axis_shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What an audit on the graph found: for some axes, the share of each level's bandwidth that their groups get."""
    cores: tuple[tuple[int, ...], ...] = ()
    """In an irregular cluster: the fan-outs of each regular part that a mapping may use, most devices first."""
    site: Site | None = field(default=None, repr=False, compare=False)
    """In an irregular cluster: its units, to say which of them a mapping takes."""
    reading: str = ""
    """What is used of a cluster that can be read in several ways: `the 96 x H100 alone`."""
    alternatives: tuple[Fabric, ...] = ()
    """The other ways to read it, which may be faster: each is a cluster of its own."""

    def seen_by(self, axis: str) -> Fabric:
        """The fabric as the groups of one axis find it: itself, unless an audit found other bandwidths for the axis."""
        return self._seen_by[axis] if axis in self.axis_shares else self

    @cached_property
    def _seen_by(self) -> dict[str, Fabric]:
        found = {}
        for axis, shares in self.axis_shares.items():
            levels = zip(self.levels, shares, strict=True)
            seen = tuple(replace(level, bytes_per_s=share * level.bytes_per_s) for level, share in levels)
            found[axis] = replace(self, levels=seen, axis_shares={})
        return found

    @cached_property
    def devices(self) -> int:
        """Devices that a mapping can use at most."""
        return math.prod(self.cores[0] if self.cores else self.fan_outs)

    @cached_property
    def fan_outs(self) -> tuple[int, ...]:
        """Fan-out of each level, innermost first."""
        return tuple(level.size for level in self.levels)

    def holds(self, used: tuple[int, ...]) -> bool:
        """Whether there are so many units of each level at once."""
        return any(
            all(units <= size for units, size in zip(used, core, strict=True))
            for core in self.cores or (self.fan_outs,)
        )

    @cached_property
    def regular(self) -> Fabric:
        """The regular part with the most devices by itself; the fabric where it has no other."""
        if not self.cores:
            return self
        levels = tuple(resized(level, size) for level, size in zip(self.levels, self.cores[0], strict=True))
        return replace(self, levels=levels, cores=(), site=None)

    @cached_property
    def linked(self) -> bool:
        """Whether some level is a ring or torus, where it counts how far apart the members of a group stand."""
        return any(level.kind in ("ring", "torus") for level in self.levels)

    @cached_property
    def carries(self) -> tuple[int, ...]:
        """For each level the outermost one whose traffic goes through its ports too: up to where others are used."""
        found, last = [], len(self.levels) - 1
        for index in reversed(range(len(self.levels))):
            found.append(last)
            last = index - 1 if self.levels[index].own_ports else last
        return tuple(reversed(found))

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
