"""Known parts: what a device is, and the rates of its links, ports and PCIe slot, each with its source.

Contents: PartSpec, Parts, load_parts, part_of, Rates.

The data is `parts.yaml` beside this file. What is in no table raises MissingFact and names the option that gives it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from mapsearch import documents
from mapsearch.errors import InputError, MissingFact, UnknownName, listed, near_miss
from mapsearch.records import Inventory, Record, validate
from mapsearch.topologies.importers.base import Inside, Link, Said
from mapsearch.topologies.load import load_topology
from mapsearch.topologies.spec import DeviceSpec
from mapsearch.units import BytesPerSecond, Seconds

PACKAGE = "mapsearch.topologies.importers"


class PartSpec(Record):
    """A known device with what leads out of it; bandwidths one way."""

    name: str
    """As `--device` takes it; upper and lower case do not matter."""
    aliases: list[str] = Field(default_factory=list)
    """Shorter names."""
    hints: list[str] = Field(default_factory=list)
    """Words by which files name it."""
    topology: str = ""
    """A built-in cluster that describes the device itself."""
    device: DeviceSpec | None = None
    """The device itself, when no built-in cluster has it."""
    nvlink: BytesPerSecond | None = None
    """Of one NVLink."""
    xgmi: BytesPerSecond | None = None
    """Of one xGMI (Infinity Fabric) link."""
    hccs: BytesPerSecond | None = None
    """Of one HCCS link between two NPUs."""
    hccs_switch: BytesPerSecond | None = None
    """Of an NPU's HCCS links into switches, together."""
    sio: BytesPerSecond | None = None
    """Between the two dies of one package."""
    most_links: int | None = None
    """NVLinks that the device has."""
    board: Literal["none", "switch", "full_mesh"] = "none"
    """How a full board joins its devices."""
    domain: int = 0
    """Devices of one rack that share the fast links, when they reach beyond a node."""
    in_network_reduction: bool = False
    """The switches of the fast links add up all-reduces."""
    pcie: str = ""
    """Generation of its x16 slot: gen3 to gen6."""
    nic: BytesPerSecond | None = None
    """Network port that goes with one device in the vendor's own server."""

    def spec(self) -> DeviceSpec:
        """Memory and peaks."""
        if self.device is not None:
            return self.device
        return load_topology(self.topology).device

    def called(self) -> list[str]:
        """All names, in lower case."""
        return [name.lower() for name in (self.name, *self.aliases)]

    def said(self, field: str) -> Said | None:
        """A rate with its source, when the part has it."""
        value = getattr(self, field)
        return None if value is None else Said(value, self.sources.get(field, "not said"))


class SmpSpec(Record):
    """The link between two CPUs."""

    cpu: str
    """A pattern of vendor, family and model."""
    rate: BytesPerSecond
    """One way."""


class Latencies(Record):
    """From device to device, by the slowest thing on the way."""

    scale_up: Seconds
    """Over the fast links."""
    pcie: Seconds
    """Over PCIe within a node."""
    network: Seconds
    """Over one switch of the network."""
    switch: Seconds
    """Each further switch."""


class Generations(Record):
    """Payload of an x16 slot."""

    gen3: BytesPerSecond
    gen4: BytesPerSecond
    gen5: BytesPerSecond
    gen6: BytesPerSecond


class Parts(Inventory):
    """The whole table."""

    kind: ClassVar[str] = "table of parts"
    pcie: Generations
    latency: Latencies
    smp: list[SmpSpec]
    devices: list[PartSpec]

    def slot(self, generation: str) -> Said:
        """Payload of an x16 slot of a generation."""
        return Said(getattr(self.pcie, generation), self.pcie.sources[generation])

    def smp_rate(self, hint: str) -> Said:
        """Between two CPUs of a kind; the last line of the table takes any."""
        found = next(one for one in self.smp if re.match(one.cpu, hint))
        return Said(found.rate, found.sources.get("rate", "not said"))


@cache
def load_parts() -> Parts:
    """The table of known parts."""
    text = (resources.files(PACKAGE) / "parts.yaml").read_text(encoding="utf-8")
    return validate(Parts, documents.parse(text, file="parts.yaml (built in)"), file="parts.yaml (built in)")


def accepted(parts: Sequence[PartSpec]) -> str:
    """Names that `--device` takes, as a readable list."""
    return listed(one.aliases[0] if one.aliases else one.name.lower() for one in parts)


def part_of(asked: str | None, inside: Inside | None, *, file: str) -> PartSpec:
    """The part that was asked for, or the only one that the file's hints fit. Raises InputError naming `--device`.

    `asked`: a known part, a built-in cluster or a topology file, whose `device` is then meant.
    """
    parts = load_parts().devices
    hints = sorted({word for vertex in inside.of_kind("device") for word in vertex.hint.split()}) if inside else []
    fitting = _fitting(parts, hints)
    if asked is None:
        if len(fitting) == 1:
            return fitting[0]
        why = f"says only {listed(hints)}" if hints else "does not say what its devices are"
        raise MissingFact(f"{why}; name it with --device: {accepted(fitting or parts)}", file=file)
    named = next((one for one in parts if asked.lower() in one.called()), None)
    if named is None:
        return _described(asked, parts)
    if hints and fitting and named not in fitting and len(fitting) < len(parts):
        raise InputError(
            f"says {listed(hints)}, which is no {named.name}; --device {accepted(fitting)} would fit", file=file
        )
    return named


def _fitting(parts: Sequence[PartSpec], hints: Sequence[str]) -> list[PartSpec]:
    """Parts that every known hint fits; the PCI ids decide where they are known at all."""
    known = {hint for part in parts for hint in part.hints}
    told = [hint for hint in hints if hint in known]
    return [part for part in parts if all(hint in part.hints for hint in told)] if told else []


def _described(asked: str, parts: Sequence[PartSpec]) -> PartSpec:
    """A device from a topology: its memory and peaks, and no rates of links."""
    names = [name for part in parts for name in part.called()]
    try:
        topology = load_topology(asked)
    except UnknownName:
        raise InputError(
            f"{asked!r} is no known device{near_miss(asked.lower(), names)}, no built-in cluster and no file; known: "
            f"{accepted(parts)}",
            field="--device",
        ) from None
    name = topology.device.name.lower()
    same = next((one for one in parts if one.name.lower() == name and not Path(asked).exists()), None)
    return same or PartSpec(name=topology.device.name, device=topology.device)


def rate_of(link: Link, part: PartSpec, *, to_switch: bool, file: str) -> Said:
    """The rate of one link of a kind of fast links: what the file says, else the part's. Raises MissingFact."""
    if link.bytes_per_s is not None:
        return link.bytes_per_s
    field = "hccs_switch" if link.kind == "hccs" and to_switch else link.kind
    said = part.said(field) if field in PartSpec.model_fields else None
    if said is None:
        raise MissingFact(
            f"has {link.kind} links, whose bandwidth is not known for {part.name}; give it with --link-rate, such as "
            "25GB/s (one link, one way)",
            file=file,
        )
    return said
