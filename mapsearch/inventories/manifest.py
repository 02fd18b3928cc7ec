"""The manifest of a published version: what a replica must know before it serves it (FORMULAS 1.7).

Contents: RECIPES, ShardingLayout, Shard, Changes, Manifest, checksum_of.

A manifest under which one request could see two versions is refused: activation in part, no parent to go back to, a
checksum or a layout that does not match, changes that are applied to another version than the active one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from mapsearch.inventories.base import Inventory
from mapsearch.inventories.rollout import WeightFormatName
from mapsearch.records import Record

RECIPES: dict[str, str] = {
    "bf16": "none",
    "fp8-tensor": "per tensor, FP32",
    "fp8-block": "128x128, FP32",
    "fp8-block-fp16-scale": "128x128, FP16",
    "fp8-row": "1x128, FP32",
    "fp8-row-fp16-scale": "1x128, FP16",
    "mxfp8": "1x32, E8M0",
    "nvfp4": "1x16, E4M3",
}
"""Scaling recipe of each format: block that shares a scale, and the scale's own format (F1.7)."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(gt=0, le=2**20)]


class ShardingLayout(Record):
    """How every replica cuts the weights."""

    replicas: Count
    tp: Count
    dp: Count
    """Copies of attention in one replica."""
    ep: Count

    @model_validator(mode="after")
    def _whole(self) -> ShardingLayout:
        if self.tp * self.dp % self.ep:
            raise ValueError(f"a replica of TP{self.tp} x DP{self.dp} devices does not divide into EP{self.ep}")
        return self

    @property
    def ranks(self) -> int:
        """Devices of one replica."""
        return self.tp * self.dp


class Shard(Record):
    """What one rollout rank has loaded."""

    replica: int = Field(ge=0)
    rank: int = Field(ge=0)
    rollout_version: int = Field(ge=0)
    bytes: int = Field(gt=0)
    checksum: Sha256
    """SHA-256 of the rank's weights and scales."""
    activation_time: datetime
    """Moment, with its time zone, from which the rank serves them."""
    delta_bytes: int | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)
    """Of the rank's changes, where the version is sent as changes; `bytes` and `checksum` are those of the result."""
    delta_checksum: Sha256 | None = Field(default=None, exclude_if=lambda value: value is None)
    """SHA-256 of the rank's changes, checked before they are applied."""


class Changes(Record):
    """What a version that is sent as changes is applied to."""

    base_version: int = Field(ge=0)
    """The version that is active, which is also the one to go back to."""
    base_checksum: Sha256
    """That version's `checksum`."""
    chain: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    """Versions from the last whole one to the base: what a rank that starts anew applies in this order."""

    @model_validator(mode="after")
    def _in_order(self) -> Changes:
        if any(first >= second for first, second in pairwise(self.chain)):
            raise ValueError(f"chain is {', '.join(map(str, self.chain))}, whose versions are not in order")
        if self.chain[-1] != self.base_version:
            raise ValueError(f"chain ends with version {self.chain[-1]}, not with its base_version {self.base_version}")
        return self


class Manifest(Inventory):
    """One version, as it is served."""

    kind: ClassVar[str] = "manifest"
    train_version: int = Field(ge=0)
    """Optimizer steps that the weights have seen."""
    rollout_version: int = Field(ge=0)
    fp8_format: WeightFormatName
    scaling_recipe: str
    sharding_layout: ShardingLayout
    checksum: Sha256
    """SHA-256 over the shards' checksums in the order of replica and rank."""
    activation_time: datetime
    """Moment of the switch, with its time zone."""
    rollback_parent: int | None = Field(ge=0)
    """Version to go back to; null for the first version, 0, alone."""
    delta: Changes | None = Field(default=None, exclude_if=lambda value: value is None)
    """Of a version that is sent as changes; left out where it is sent whole."""
    shards: list[Shard] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_version(self) -> Manifest:
        checks = (self._parent(), self._recipe(), self._complete(), self._at_once(), self._unchanged(), self._applied())
        for refusal in checks:
            if refusal:
                raise ValueError(refusal)
        return self

    def _parent(self) -> str:
        parent, own = self.rollback_parent, self.rollout_version
        if parent is None:
            return "" if own == 0 else f"rollback_parent is missing: version {own} has nothing to go back to"
        return "" if parent < own else f"rollback_parent is {parent}, which is not older than version {own}"

    def _recipe(self) -> str:
        wanted = RECIPES[self.fp8_format]
        if self.scaling_recipe == wanted:
            return ""
        return f"scaling_recipe is {self.scaling_recipe!r}, but {self.fp8_format} is scaled by {wanted!r}"

    def _complete(self) -> str:
        layout = self.sharding_layout
        wanted = {(replica, rank) for replica in range(layout.replicas) for rank in range(layout.ranks)}
        given = [(shard.replica, shard.rank) for shard in self.shards]
        if len(given) != len(set(given)):
            double = min(place for place in given if given.count(place) > 1)
            return f"shards lists replica {double[0]} rank {double[1]} twice"
        absent, extra = sorted(wanted - set(given)), sorted(set(given) - wanted)
        if absent:
            return (
                f"shards lacks {len(absent)} of {len(wanted)} ranks of the layout, the first is replica {absent[0][0]} "
                f"rank {absent[0][1]}: it would go on serving another version"
            )
        return f"shards has replica {extra[0][0]} rank {extra[0][1]}, which the layout has not" if extra else ""

    def _at_once(self) -> str:
        for shard in self.shards:
            where = f"replica {shard.replica} rank {shard.rank}"
            if shard.rollout_version != self.rollout_version:
                return f"{where} holds version {shard.rollout_version}, not {self.rollout_version}"
            if shard.activation_time.tzinfo is None or self.activation_time.tzinfo is None:
                return "activation_time needs its time zone, such as 2026-05-04T10:00:00Z"
            if shard.activation_time != self.activation_time:
                return (
                    f"{where} activates at {_told(shard.activation_time)} and the version at "
                    f"{_told(self.activation_time)}: requests in between would see two versions"
                )
        return ""

    def _unchanged(self) -> str:
        found = checksum_of(self.shards)
        if found == self.checksum:
            return ""
        return f"checksum is {self.checksum[:12]}..., but the shards' is {found[:12]}...: something else was loaded"

    def _applied(self) -> str:
        for shard in self.shards:
            given = shard.delta_bytes is not None and shard.delta_checksum is not None
            if given != (self.delta is not None):
                where = f"replica {shard.replica} rank {shard.rank}"
                lacks = "lacks delta_bytes or delta_checksum, and the version is sent as changes"
                return f"{where} {lacks if self.delta else 'has changes, but the version has no delta'}"
        if self.delta is None or self.delta.base_version == self.rollback_parent:
            return ""
        return (
            f"delta.base_version is {self.delta.base_version}, but rollback_parent is {self.rollback_parent}: "
            "changes are applied to the active version"
        )


def _told(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def checksum_of(shards: Iterable[Shard]) -> str:
    """SHA-256 over the shards' checksums in the order of replica and rank."""
    ordered = sorted(shards, key=lambda shard: (shard.replica, shard.rank))
    return hashlib.sha256("".join(shard.checksum for shard in ordered).encode()).hexdigest()
