"""The devices of a case: memory, rates and levels by the name of the device, as far as they are said.

Contents: Hardware, hardware_of, KINDS.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mapsearch.errors import listed, near_miss
from mapsearch.inventories.case import CaseHardware
from mapsearch.judging.words import gigabytes_in, said
from mapsearch.topologies.fabric import Device, Fabric, Level
from mapsearch.topologies.known import PARTS

DRIVER_SHARE = 0.995
"""Memory that an NVIDIA driver shows over the nominal GB taken as GiB: 81,559 of 81,920 MiB, 143,771 of 144,384."""
LATENCY_S = (3.4e-6, 14e-6)
"""One step inside the high-bandwidth domain and outside it, as in the built-in clusters."""
HOST_BYTES_PER_GPU = 256e9
"""2 TB per node of 8, as in the built-in clusters (assumed)."""
HOST_BYTES_PER_S = 64e9


@dataclass(frozen=True)
class Kind:
    """One kind of device: nominal memory in GB, size of its node and of its high-bandwidth domain, and a profile."""

    pattern: str
    part: str
    """Name under which `topologies.known.PARTS` has its rates."""
    memory_gb: float
    profile: str
    node: int = 8
    domain: int = 8
    binary: bool = True
    """Nominal GB are GiB, less what the driver keeps."""


KINDS = (
    Kind(r"GB300", "GB300", 277, "gb300", 4, 72),
    Kind(r"GB200", "GB200", 186, "gb200", 4, 72),
    Kind(r"B300", "B300", 270, "gb300"),
    Kind(r"B200", "B200", 180, "b200"),
    Kind(r"GH200", "GH200", 96, "h100", 1, 1),
    Kind(r"H200", "H200", 141, "h200"),
    Kind(r"H800", "H800", 80, "h100"),
    Kind(r"H100", "H100", 80, "h100"),
    Kind(r"H20", "H20", 96, "h100"),
    Kind(r"A800", "A800", 80, "a100"),
    Kind(r"A100", "A100", 80, "a100"),
    Kind(r"910|ascend", "Ascend", 64, "ascend-910b", binary=False),
    Kind(r"MI300X", "MI300X", 192, "mi300x"),
)
"""Known devices; first match counts. A100 and GH200 come in sizes: the case's own memory wins."""
RATES = {"Ascend": (1600, 196, 25, 353.9)}
"""HBM, inside, outside in GB/s and BF16 TFLOP/s of what PARTS does not have (topologies/catalogue/ascend.yaml)."""


@dataclass(frozen=True)
class Hardware:
    """What is known of the devices."""

    kind: Kind | None
    memory_bytes: float | None
    gpus: int | None
    node: int
    """Devices of a node."""
    domain: int
    """Devices of one high-bandwidth domain."""
    host_bytes: float | None
    """Memory of a node, where the case says it."""
    notes: tuple[str, ...] = ()

    def fabric(self, gpus: int) -> Fabric:
        """A cluster of so many of these devices: full domains, or one level when they do not fill domains."""
        kind = self.kind or KINDS[7]
        hbm, inside, outside, peak = _rates(kind)
        device = Device(
            kind.part,
            self.memory_bytes or kind.memory_gb * 1e9,
            hbm * 1e9,
            {"bf16": peak * 1e12, "fp16": peak * 1e12, "fp8": 2e12 * peak, "fp4": 4e12 * peak},
            host_memory_bytes=(self.host_bytes / self.node) if self.host_bytes else HOST_BYTES_PER_GPU,
            host_bytes_per_s=HOST_BYTES_PER_S,
        )
        near = gpus if gpus <= self.domain else self.domain
        if gpus % near:
            near = math.gcd(gpus, 1 << (self.domain.bit_length() - 1))
        levels = [Level("domain", "switch", near, inside * 1e9, LATENCY_S[0], True, in_network_reduction=True)]
        if gpus > near:
            levels.append(Level("cluster", "switch", gpus // near, outside * 1e9, LATENCY_S[1], own_ports=True))
        return Fabric(f"{kind.part} x {gpus}", device, tuple(levels))

    @property
    def slowdown(self) -> float:
        """How many times slower a device's link is outside the domain than inside it."""
        _, inside, outside, _ = _rates(self.kind or KINDS[7])
        return inside / outside


def _rates(kind: Kind) -> tuple[float, float, float, float]:
    if kind.part in RATES:
        return RATES[kind.part]
    part = next(one for one in PARTS if re.search(one.pattern, kind.part))
    return part.hbm, part.scale_up, part.scale_out, part.bf16


def hardware_of(case: CaseHardware) -> Hardware:
    """The devices as far as the case says them or their name is known."""
    name = str(case.gpu or "")
    plain = re.sub(r"[-_ ]", "", name)
    kind = next((one for one in KINDS if re.search(one.pattern, plain, re.IGNORECASE)), None)
    notes = []
    if name and kind is None:
        parts = [one.part for one in KINDS]
        notes.append(
            f"hardware.gpu {name!r} is not a known device{near_miss(name, parts)}: time is not judged, and memory only "
            f"by mem_gb; known: {listed(parts)}"
        )
    told = said(case.mem_gb)
    gigabytes = (told.value if told else None) or gigabytes_in(name) or (kind.memory_gb if kind else None)
    if told is None and gigabytes is not None:
        notes.append(f"memory of a {kind.part if kind else name} is taken as {gigabytes:g} GB")
    memory = None
    if gigabytes is not None:
        memory = gigabytes * (2**30 * DRIVER_SHARE if kind is None or kind.binary else 1e9)
    nodes, per_node, gpus = said(case.nodes), said(case.gpus_per_node), said(case.gpus)
    node = per_node.value if per_node else (kind.node if kind else 8)
    count = gpus.value if gpus else (nodes.value * node if nodes and (per_node or kind) else None)
    domain = said(case.nvlink_domain)
    size = domain.value if domain else max(node, kind.domain if kind else 1) if kind and kind.domain > node else node
    host = said(case.host_gb)
    return Hardware(kind, memory, count, node, size, host.value * 1e9 if host else None, tuple(notes))
