"""The topology document: a device, and either levels or an explicit graph of nodes and links.

Contents: DeviceSpec, LevelSpec, NodeSpec, LinkSpec, LinkName, LibrarySpec, Topology.

Bandwidths are written with their unit and are *per device, one way* unless `direction: both` stands beside them;
then the number is the sum of both ways and is halved (docs/reference/topology.md).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from mapsearch.errors import listed, near_miss
from mapsearch.records import Inventory, Record
from mapsearch.topologies.fabric import Device, LevelKind
from mapsearch.units import Bytes, BytesPerSecond, FlopsPerSecond, Seconds, Watts

MAX_DEVICES = 2**30
Direction = Literal["one_way", "both"]
NodeType = Literal["device", "switch", "nic", "host"]


class DeviceSpec(Record):
    """What one device is; all devices of a topology are alike."""

    name: str = Field(min_length=1)
    """A known part in it (`H100`, `GB200`, `TPU-v5p`) turns on the checks against its datasheet."""
    hbm: Bytes = Field(gt=0)
    """Memory of one device."""
    hbm_bandwidth: BytesPerSecond = Field(gt=0)
    """Of one device's memory."""
    peak: dict[str, Annotated[FlopsPerSecond, Field(gt=0)]] = Field(min_length=1)
    """Dense peak rate by number format, such as `bf16` and `fp8`; not the rate with sparsity."""
    host_memory: Bytes = 0.0
    """Host memory per device that offload may use."""
    host_bandwidth: BytesPerSecond = 0.0
    """Between one device and its host, one way."""
    nvme: Bytes = 0.0
    """NVMe per device that offload may use."""
    nvme_bandwidth: BytesPerSecond = 0.0
    """A device's share of what its host reads from or writes to NVMe, one way; the slower of the two if they differ."""
    power: Watts | None = Field(default=None, gt=0)
    """Of one device while it trains, with what you count to it of host and cooling; only the objective energy asks."""
    price_per_hour: float | None = Field(default=None, gt=0)
    """Of one device, in any currency; only the objective cost asks."""

    def device(self) -> Device:
        """The device in SI units."""
        return Device(
            name=self.name,
            hbm_bytes=self.hbm,
            hbm_bytes_per_s=self.hbm_bandwidth,
            peak_flops=dict(self.peak),
            host_memory_bytes=self.host_memory,
            host_bytes_per_s=self.host_bandwidth,
            nvme_bytes=self.nvme,
            nvme_bytes_per_s=self.nvme_bandwidth,
            power_w=self.power,
            price_per_hour=self.price_per_hour,
            sources=dict(self.sources),
        )


class LevelSpec(Record):
    """One tier of the levels form."""

    name: str = Field(min_length=1, pattern=r"^[^/\s]+$")
    """What one unit of this tier is called: `board`, `rack`; no blanks or slashes."""
    kind: LevelKind = "switch"
    """How the units inside are joined."""
    size: int = Field(gt=0, le=2**24)
    """Units of the tier inside (devices, for the innermost) in one unit of this tier."""
    bandwidth: BytesPerSecond = Field(gt=0)
    """Per device, for traffic that crosses this tier; over all links of the device in a mesh, ring or torus."""
    direction: Direction = "one_way"
    """`both` when the bandwidth counts both ways; it is then halved."""
    latency: Seconds
    """From device to device across this tier; to the next neighbour in a ring or torus."""
    high_bandwidth: bool = False
    """This tier belongs to the high-bandwidth domain."""
    dims: list[Annotated[int, Field(gt=0)]] = Field(default_factory=list)
    """Sizes of the axes of a torus."""
    in_network_reduction: bool = False
    """The switches add up all-reduces themselves (NVLink SHARP)."""
    ports: Literal["", "own", "shared"] = Field(default="", exclude_if=lambda ports: not ports)
    """How devices reach this tier: by ports of their `own` (NICs), which leaves the switches inside free of what
    crosses it, or `shared`, through those switches. Left out: own at the edge of the high-bandwidth domain, and where
    the way through the switches inside would be slower than this tier.
    """

    @model_validator(mode="after")
    def _dims_fit(self) -> LevelSpec:
        if self.kind == "torus" and not self.dims:
            raise ValueError(f"level {self.name!r} is a torus and needs dims, such as dims: [4, 4, 4]")
        if self.kind != "torus" and self.dims:
            raise ValueError(f"level {self.name!r} is a {self.kind} and takes no dims; only a torus does")
        if self.dims and math.prod(self.dims) != self.size:
            shape = f"{' x '.join(map(str, self.dims))} = {math.prod(self.dims):,}"
            raise ValueError(f"level {self.name!r} has dims {shape} but size {self.size:,}; make them equal")
        return self

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth per device, one way."""
        return self.bandwidth / 2.0 if self.direction == "both" else self.bandwidth


class NodeSpec(Record):
    """A node of the explicit form."""

    id: str = Field(min_length=1)
    """Its name, by which links call it."""
    type: NodeType = "device"
    """Hosts carry no traffic between devices; switches and NICs do."""
    unit: str = ""
    """Where a device sits, outermost first (`rack0/board3`), when the links alone do not tell the tiers.

    A first part that all devices share (`pod/rack0/board3`) says that the outermost tier is one, too.
    """
    device: str = Field(default="", exclude_if=lambda name: not name)
    """Name of another type of device, one of `other_devices`; empty: the topology's `device`."""
    in_network_reduction: bool = False
    """This switch adds up all-reduces itself."""


class LinkSpec(Record):
    """A full-duplex link of the explicit form."""

    a: str
    """The node at one end."""
    b: str
    """The node at the other end."""
    bandwidth: BytesPerSecond = Field(gt=0)
    """Of one link, one way."""
    direction: Direction = "one_way"
    """`both` when the bandwidth counts both ways; it is then halved."""
    latency: Seconds = 0.0
    """Of this hop; latencies add up along a path."""
    count: int = Field(default=1, ge=1, le=1024)
    """Parallel links alike; a pair that is listed twice adds up as well."""

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of all parallel links together, one way."""
        return self.count * (self.bandwidth / 2.0 if self.direction == "both" else self.bandwidth)


class LinkName(Record):
    """A link named by its ends."""

    a: str
    """The node at one end."""
    b: str
    """The node at the other end."""


class LibrarySpec(Record):
    """What the cluster's communication library has been shown to do; what is left out has yet to be tried.

    The acceptance list of a `mapsearch contract`; the search reads `all_to_all` of the topology only.
    """

    whole_group: bool | None = None
    """An all-to-all of one size for all over a whole expert-parallel group."""
    largest_group: int | None = Field(default=None, gt=0)
    """Ranks of the largest group in which it was seen to work."""
    bytes_per_peer: bool | None = None
    """It counts bytes sent to and received from each peer."""
    timings: bool | None = None
    """It times every collective, so that p50, p95 and p99 can be told."""
    padding_bytes: bool | None = None
    """It, or the dispatcher, counts the bytes of padding apart."""
    variable_size: bool | None = None
    """An all-to-all with its own size for each peer."""
    sparse: bool | None = None
    """A dispatch that sends a token once to each rank or unit, or to those peers only that get something."""


class Topology(Inventory):
    """A cluster as its owner describes it."""

    kind: ClassVar[str] = "topology"
    name: str = Field(min_length=1)
    """Shown in answers."""
    device: DeviceSpec
    """What every device is that nothing else is said of."""
    other_devices: list[DeviceSpec] = Field(default_factory=list, exclude_if=lambda types: not types)
    """Further types of device, where not all are alike; nodes, or units under `types`, name theirs."""
    types: dict[str, str] = Field(default_factory=dict, exclude_if=lambda units: not units)
    """Levels form: units whose devices are of another type, such as `rack3: H200` (counted from 0)."""
    only_type: str = Field(default="", exclude_if=lambda name: not name)
    """Use the devices of this type only, the others left out; empty: every way to read the cluster is searched."""
    all_to_all: Literal["variable", "fixed"] = "variable"
    """`fixed` when the communication library offers only whole-group all-to-all of one size for all."""
    library: LibrarySpec = LibrarySpec()
    """What the communication library has been shown to do."""
    levels: list[LevelSpec] = Field(default_factory=list)
    """Tiers, innermost first."""
    nodes: list[NodeSpec] = Field(default_factory=list)
    """Explicit form: devices, switches, NICs, hosts."""
    links: list[LinkSpec] = Field(default_factory=list)
    """Explicit form: full-duplex links between nodes."""
    level_names: list[str] = Field(default_factory=list)
    """Explicit form: names for the derived tiers, innermost first."""
    high_bandwidth: BytesPerSecond | None = None
    """Explicit form: tiers with at least this per device and way form the high-bandwidth domain."""
    down: list[str | LinkName] = Field(default_factory=list)
    """What is broken: a node or a unit such as `rack3/board2/device5` (counted from 0), or a link `{a: .., b: ..}`."""

    @model_validator(mode="after")
    def _one_form(self) -> Topology:
        if self.library.variable_size and self.all_to_all == "fixed":
            raise ValueError("library.variable_size is true, but all_to_all is fixed; make them agree")
        if bool(self.levels) == bool(self.nodes):
            both = "both levels and nodes" if self.levels else "neither levels nor nodes"
            raise ValueError(f"has {both}; give levels (tiers), or nodes and links (an explicit graph)")
        if self.levels:
            self._check_levels()
        else:
            self._check_graph()
        self._check_types()
        return self

    def _check_types(self) -> None:
        names = [self.device.name, *(device.name for device in self.other_devices)]
        _refuse_twice("device type", names)
        given = {**self.types, **{node.id: node.device for node in self.nodes if node.device}}
        for place, name in given.items():
            if name not in names:
                raise ValueError(f"{place} is of type {name!r}{near_miss(name, names)}; types: {listed(names)}")
        for place in self.types:
            if not self.levels:
                raise ValueError(f"types: {place!r}: in the explicit form each node says its own type as device")
            unit_index(place, self.levels)
        if self.only_type and self.only_type not in names:
            raise ValueError(
                f"only_type is {self.only_type!r}{near_miss(self.only_type, names)}; types: {listed(names)}"
            )

    def _check_levels(self) -> None:
        for field in ("links", "level_names", "high_bandwidth"):
            if getattr(self, field):
                raise ValueError(f"{field} belongs to the explicit form; this topology has levels")
        _refuse_twice("level", [level.name for level in self.levels])
        total = math.prod(level.size for level in self.levels)
        if total > MAX_DEVICES:
            raise ValueError(f"has {total:,} devices; at most {MAX_DEVICES:,} are accepted")
        for item in self.down:
            if isinstance(item, LinkName):
                raise ValueError(f"down link {item.a} - {item.b}: only the explicit form has named links; name a unit")
            unit_index(item, self.levels)

    def _check_graph(self) -> None:
        ids = [node.id for node in self.nodes]
        _refuse_twice("node", ids)
        known = set(ids)
        if not any(node.type == "device" for node in self.nodes):
            raise ValueError("has no devices; give at least one node of type device")
        for link in self.links:
            if link.a == link.b:
                raise ValueError(f"link {link.a} - {link.b} joins a node to itself; remove it")
        ends: list[Any] = [*self.links, *(item for item in self.down if isinstance(item, LinkName))]
        for link in ends:
            for end in (link.a, link.b):
                if end not in known:
                    raise ValueError(f"link {link.a} - {link.b}: no node is called {end!r}{near_miss(end, known)}")
        if self.device_count < 2:
            raise ValueError("has a single device; an explicit graph needs two or more (or give levels of size 1)")
        _refuse_parts(ids, self.links)
        pairs = {frozenset((link.a, link.b)) for link in self.links}
        for item in self.down:
            if isinstance(item, str) and item not in known:
                raise ValueError(f"down: no node is called {item!r}{near_miss(item, known)}")
            if isinstance(item, LinkName) and frozenset((item.a, item.b)) not in pairs:
                raise ValueError(f"down: no link joins {item.a} and {item.b}")

    @property
    def device_count(self) -> int:
        """Devices as built, broken ones included."""
        if self.levels:
            return math.prod(level.size for level in self.levels)
        return sum(node.type == "device" for node in self.nodes)

    def warnings(self) -> list[str]:
        """What looks like a slip (bits for bytes, both directions, sparse peaks), one sentence each."""
        from mapsearch.topologies.known import suspicions

        return suspicions(self)


def _refuse_twice(what: str, names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{what} {repeated[0]!r} stands {Counter(names)[repeated[0]]} times; names must differ")


def _refuse_parts(ids: list[str], links: list[LinkSpec]) -> None:
    """Refuse a graph that does not hang together, naming one node on either side."""
    reached: dict[str, list[str]] = {node: [] for node in ids}
    for link in links:
        reached[link.a].append(link.b)
        reached[link.b].append(link.a)
    seen = {ids[0]}
    todo = [ids[0]]
    while todo:
        for other in reached[todo.pop()]:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    apart = [node for node in ids if node not in seen]
    if apart:
        also = f" (and {len(apart) - 1:,} more)" if len(apart) > 1 else ""
        raise ValueError(f"the graph is disconnected: no path joins {ids[0]!r} and {apart[0]!r}{also}; add the link")


def unit_words(level_names: list[str]) -> list[str]:
    """What the units of each tier are called, outermost first: `rack`, `board`, `device`."""
    return [*reversed(level_names[:-1]), "device"]


def unit_index(path: str, levels: list[LevelSpec]) -> tuple[int, ...]:
    """Indices, outermost first, of a unit such as `rack3/board2/device5`. Raises ValueError."""
    words = unit_words([level.name for level in levels])
    sizes = [level.size for level in reversed(levels)]
    parts = path.split("/")
    example = "/".join(f"{word}0" for word in words)
    if len(parts) > len(words):
        raise ValueError(f"down: {path!r} has {len(parts)} parts; at most {len(words)} are there: {example}")
    indices = []
    for part, word, size in zip(parts, words, sizes, strict=False):
        number = part.removeprefix(word)
        if not part.startswith(word) or not number.isdecimal():
            raise ValueError(f"down: {part!r} in {path!r} is not {word}<number>; write it as {example}")
        if int(number) >= size:
            raise ValueError(f"down: {part!r} in {path!r} does not exist; {word}0 to {word}{size - 1} do")
        indices.append(int(number))
    return tuple(indices)
