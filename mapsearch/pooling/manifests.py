"""Manifests of published versions, written from the files of a version and read again.

Contents: written_manifest, read_manifest.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

from mapsearch import documents
from mapsearch.errors import InputError, MissingFact
from mapsearch.inventories.base import validate
from mapsearch.inventories.manifest import RECIPES, Manifest, Shard, checksum_of
from mapsearch.pooled import TWO_POOLS_SCHEMA

CHUNK = 1 << 24
"""Bytes of a file that are hashed at a time."""


def written_manifest(
    answer: str, shards: Path, *, train_version: int, rollout_version: int, activate_at: str, parent: str | None
) -> Manifest:
    """The manifest of a version whose files lie in DIR/replica-R/rank-N*, in the layout of an answer.

    Raises InputError for a file that is missing, and for everything that a manifest is refused for.
    """
    data = documents.load(answer)
    if not isinstance(data, dict) or data.get("schema") != TWO_POOLS_SCHEMA or not data.get("serving"):
        raise InputError(
            f"is not an answer of `rollout --format json` ({TWO_POOLS_SCHEMA}) with a mapping", file=answer
        )
    plan = data["serving"]
    when = _moment(activate_at)
    found = [
        _shard(shards, replica, rank, rollout_version, when)
        for replica in range(plan["replicas"])
        for rank in range(plan["devices_per_replica"])
    ]
    fields: dict[str, Any] = {
        "train_version": train_version,
        "rollout_version": rollout_version,
        "fp8_format": plan["weights"],
        "scaling_recipe": RECIPES[plan["weights"]],
        "sharding_layout": {name: plan[name] for name in ("replicas", "tp", "dp", "ep")},
        "checksum": checksum_of(found),
        "activation_time": when,
        "rollback_parent": read_manifest(parent, None).rollout_version if parent else None,
        "shards": [shard.model_dump() for shard in found],
    }
    return validate(Manifest, fields, file=str(shards))


def _moment(written: str) -> datetime:
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        raise InputError(f"{written!r} is no moment; write 2026-05-04T10:00:00Z", field="--activate-at") from None


def _shard(folder: Path, replica: int, rank: int, version: int, when: datetime) -> Shard:
    """One rank's file, hashed."""
    named = sorted((folder / f"replica-{replica}").glob(f"rank-{rank}*"))
    fitting = [path for path in named if path.name.removeprefix(f"rank-{rank}")[:1] in ("", ".")]
    if len(fitting) != 1:
        wanted = folder / f"replica-{replica}" / f"rank-{rank}"
        raise MissingFact(f"{len(fitting)} files are named so, or so with a suffix; one is needed", file=str(wanted))
    digest, size = hashlib.sha256(), 0
    try:
        with fitting[0].open("rb") as opened:
            while part := opened.read(CHUNK):
                digest.update(part)
                size += len(part)
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror}", file=str(fitting[0])) from None
    if not size:
        raise InputError("is empty", file=str(fitting[0]))
    return Shard(
        replica=replica,
        rank=rank,
        rollout_version=version,
        bytes=size,
        checksum=digest.hexdigest(),
        activation_time=when,
    )


def read_manifest(file: str, parent: str | None) -> Manifest:
    """A manifest by path, refused for what a manifest is refused for; `parent` must be the one it goes back to."""
    found = validate(Manifest, documents.load(file), file=file)
    if parent is None:
        return found
    before = validate(Manifest, documents.load(parent), file=parent)
    if before.rollout_version != found.rollback_parent:
        raise InputError(
            f"goes back to version {found.rollback_parent}, but {parent} is version {before.rollout_version}",
            file=file,
            field="rollback_parent",
        )
    if before.activation_time >= found.activation_time:
        raise InputError("activates before the version that it goes back to", file=file, field="activation_time")
    return found
