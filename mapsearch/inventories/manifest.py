"""The manifest of a published version: what a replica must know before it serves it (FORMULAS 1.7).

Contents: RECIPES, ShardingLayout, Shard, Manifest, checksum_of.

A manifest under which one request could see two versions is refused: activation in part, no parent to go back to, a
checksum or a layout that does not match.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
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
    shards: list[Shard] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_version(self) -> Manifest:
        for refusal in (self._parent(), self._recipe(), self._complete(), self._at_once(), self._unchanged()):
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


def _told(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def checksum_of(shards: Iterable[Shard]) -> str:
    """SHA-256 over the shards' checksums in the order of replica and rank."""
    ordered = sorted(shards, key=lambda shard: (shard.replica, shard.rank))
    return hashlib.sha256("".join(shard.checksum for shard in ordered).encode()).hexdigest()
