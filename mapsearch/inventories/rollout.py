"""The rollout inventory: what is generated, how it is served, and how weights get there.

Contents: WeightFormatName, GatewayLink, Link, Pool, Queue, Delta, Publishing, Serving, Rollout.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from mapsearch.inventories.base import Inventory
from mapsearch.inventories.lengths import Lengths
from mapsearch.records import Record
from mapsearch.units import BytesPerSecond, Seconds

WeightFormatName = Literal[
    "bf16", "fp8-tensor", "fp8-block", "fp8-block-fp16-scale", "fp8-row", "fp8-row-fp16-scale", "mxfp8", "nvfp4"
]
"""Keys of `costs.publishing.FORMATS`: format and scaling recipe in one word (FORMULAS 1.7)."""
Size = Annotated[int, Field(gt=0, le=2**20)]


class GatewayLink(Record):
    """A link, or several alike, from the training cluster to the rollout pool's own cluster."""

    training: str = Field(min_length=1)
    """Where it begins: a level of the training cluster (each of its units has such a link), one unit such as `rack3`,
    or a node of an explicit graph."""
    rollout: str = Field(min_length=1)
    """Where it ends: a level, unit or node of the rollout pool's cluster."""
    bandwidth: BytesPerSecond = Field(gt=0)
    """Of one link, one way, as large messages reach it."""
    direction: Literal["one_way", "both"] = "one_way"
    """`both` when the bandwidth counts both ways; it is then halved."""
    count: int = Field(default=1, ge=1, le=1024)
    """Parallel links alike."""
    latency: Seconds = 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of all parallel links together, one way."""
        return self.count * (self.bandwidth / 2.0 if self.direction == "both" else self.bandwidth)


class Link(Record):
    """What joins the pools: a bandwidth per device, or the links there are. Left out: the pools' outermost levels."""

    bandwidth: BytesPerSecond | None = Field(default=None, gt=0)
    """Per device of either pool, one way, as large messages reach it."""
    gateways: list[GatewayLink] = Field(default_factory=list)
    """The links themselves, where the rollout pool has a cluster of its own; each side's way to them is routed."""
    latency: Seconds = 0.0
    """From device to device; of gateways the slowest one's is added."""

    @model_validator(mode="after")
    def _one_way(self) -> Link:
        if self.bandwidth is not None and self.gateways:
            raise ValueError("takes a bandwidth per device or gateways, not both")
        return self

    @property
    def latency_s(self) -> float:
        """From device to device, gateways included."""
        return self.latency + max((gateway.latency for gateway in self.gateways), default=0.0)


class Pool(Record):
    """Where rollout runs."""

    topology: str | None = None
    """Its own cluster, by name or file; left out: whole outer units of the training cluster, split by the search."""
    profile: str | None = None
    """Efficiencies of its own cluster. Left out: those of training on the same device, else the built-in ones."""
    price_per_hour: float | None = Field(default=None, gt=0)
    """Of one device, for the objective cost. Left out: `price_per_hour` of its cluster's device."""
    link: Link = Link()


class Queue(Record):
    """Finished samples between rollout and training, in training batches."""

    least_batches: float = Field(default=0.0, ge=0)
    """Q_min: training starts a step when so much is left beside its batch."""
    held_batches: float = Field(default=0.0, ge=0)
    """What admission holds in the queue beside the batch under way; its age counts (Little)."""
    most_batches: float = Field(default=2.0, gt=0)
    """Q_max: beyond it nothing is admitted."""

    @model_validator(mode="after")
    def _ordered(self) -> Queue:
        if not self.least_batches <= self.held_batches:
            raise ValueError(f"holds {self.held_batches:g} batches, below its least of {self.least_batches:g}")
        return self


class Delta(Record):
    """Versions that are sent as what differs from the version before."""

    format: Literal["indices", "bitmap", "tensors"]
    """`indices`: changed values, each with its position; `bitmap`: changed values and a bit for every weight;
    `tensors`: whole tensors or experts, those that changed. Scales of blocks are sent whole, but for `tensors`."""
    share: float = Field(gt=0.0, le=1.0)
    """Share of the weights (for `tensors`: of the bytes) that differ between two published versions, as served; needs
    its source."""
    index_bytes: float | None = Field(default=None, gt=0)
    """Of one position, for `indices`: 4 for flat 32-bit numbers."""
    full_every: int = Field(default=0, ge=0)
    """Every so many versions one is sent whole, so that chains end; 0: the first one alone."""
    full: Literal["at-once", "spread"] = "at-once"
    """`at-once`: in the place of a delta, and then that publish is the longest one, which ages samples; `spread`: in
    equal parts beside the deltas before it."""

    @model_validator(mode="after")
    def _measured(self) -> Delta:
        if "share" not in self.sources:
            raise ValueError("share is a measurement and needs its source: share: {value: 0.03, source: ...}")
        if self.format == "indices" and self.index_bytes is None:
            raise ValueError("index_bytes is missing; format indices needs the bytes of one position, such as 4")
        return self


class Publishing(Record):
    """How weights get from training to rollout."""

    path: Literal["push", "tree", "all"] = "all"
    """`push`: the sources send to every replica themselves; `tree`: to one, and replicas pass it on; `all`: every
    training device sends its share to every replica."""
    source_devices: int = Field(default=1, gt=0)
    """Devices that send, for `push` and `tree`."""
    pipelined: bool = False
    """Quantise, transfer, reshard and verify in chunks, one stage beside the other."""
    chunks: int = Field(default=1, gt=0)
    delta: Delta | None = None
    """Send changes alone; left out: whole versions."""
    switch: Seconds = Field(ge=0.0)
    """From the last check to the first token of the new version; replicas stand still."""
    every: int = Field(default=1, gt=0)
    """Steps between two published versions."""
    in_flight: Literal["drain", "restart", "side-by-side"] = "drain"
    """What happens to requests under way, each of which keeps one version: they end before the replica switches, begin
    again, or end on the old weights beside the new ones (weights twice in memory)."""


class Serving(Record):
    """How one replica may be cut, and what it computes in."""

    tp: list[Size] = Field(default=[1, 2, 4, 8], min_length=1)
    ep: list[Size] = Field(default=[1, 2, 4, 8, 16, 32, 64, 128, 256], min_length=1)
    dp: list[Size] = Field(default=[1, 2, 4, 8, 16, 32, 64, 128], min_length=1)
    """Copies of attention in one replica, each with its own requests; TP x DP devices are one replica."""
    weights: WeightFormatName = "fp8-block"
    gemm_format: Literal["bf16", "fp16", "fp8", "fp4"] = "bf16"
    """Format of the products: a key of the device's peaks."""
    kv_format: Literal["bf16", "fp8"] = "bf16"
    dispatch_bytes: float = Field(default=2.0, gt=0)
    """Bytes per element that is sent to experts; results come back in BF16."""
    prefill_chunk: int = Field(default=8192, gt=0)
    """Tokens of a prompt that one copy of attention takes at a time."""
    prefill_decode_split: bool = False
    """Prompts and responses on replicas of their own; how many of each is decided."""
    reserve: float = Field(default=0.15, ge=0.0, lt=1.0)
    """Share of usable HBM kept for fragmentation; charged once."""

    @property
    def kv_bytes(self) -> float:
        """Bytes per element of the KV cache."""
        return 1.0 if self.kv_format == "fp8" else 2.0


class Rollout(Inventory):
    """Everything about the rollout side of asynchronous RL."""

    kind: ClassVar[str] = "rollout"
    name: str = Field(min_length=1)
    pool: Pool = Pool()
    prompt_tokens: Lengths
    response_tokens: Lengths
    concurrency: int = Field(gt=0)
    """Requests under way at most, over all replicas."""
    filter_yield: float = Field(gt=0.0, le=1.0)
    """Share of the generated tokens that survive reward and filter and enter a training batch."""
    versions: int = Field(gt=0)
    """A sample is trained on by weights at most so many versions newer than those that generated it."""
    queue: Queue = Queue()
    serving: Serving = Serving()
    publishing: Publishing
