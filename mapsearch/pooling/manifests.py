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
    answer: str,
    shards: Path,
    *,
    train_version: int,
    rollout_version: int,
    activate_at: str,
    parent: str | None,
    delta: str | None = None,
) -> Manifest:
    """The manifest of a version whose files lie in DIR/replica-R/rank-N*, in the layout of an answer.

    `delta`: a folder with the changes of every rank against the version of `parent`, in files of the same names.
    Raises InputError for a file that is missing, and for everything that a manifest is refused for.
    """
    data = documents.load(answer)
    if not isinstance(data, dict) or data.get("schema") != TWO_POOLS_SCHEMA or not data.get("serving"):
        raise InputError(
            f"is not an answer of `rollout --format json` ({TWO_POOLS_SCHEMA}) with a mapping", file=answer
        )
    plan = data["serving"]
    when = _moment(activate_at)
    before = validate(Manifest, documents.load(parent), file=parent) if parent else None
    if delta is not None and before is None:
        raise MissingFact("is needed with --delta: the manifest of the active version", field="--parent")
    found = [
        _shard(shards, Path(delta) if delta else None, replica, rank, rollout_version, when)
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
        "rollback_parent": before.rollout_version if before else None,
        "shards": [shard.model_dump() for shard in found],
    }
    if delta is not None and before is not None:
        fields["delta"] = {
            "base_version": before.rollout_version,
            "base_checksum": before.checksum,
            "chain": [*_chain(before), before.rollout_version],
        }
    written = validate(Manifest, fields, file=str(shards))
    if before is not None:
        _follows(written, before, file=str(shards), parent=str(parent))
    return written


def _chain(manifest: Manifest) -> list[int]:
    return list(manifest.delta.chain) if manifest.delta else []


def _moment(written: str) -> datetime:
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        raise InputError(f"{written!r} is no moment; write 2026-05-04T10:00:00Z", field="--activate-at") from None


def _shard(folder: Path, delta: Path | None, replica: int, rank: int, version: int, when: datetime) -> Shard:
    """One rank's file, and that of its changes, hashed."""
    digest, size = _hashed(folder, replica, rank)
    changes = _hashed(delta, replica, rank) if delta is not None else (None, None)
    return Shard(
        replica=replica,
        rank=rank,
        rollout_version=version,
        bytes=size,
        checksum=digest,
        activation_time=when,
        delta_bytes=changes[1],
        delta_checksum=changes[0],
    )


def _hashed(folder: Path, replica: int, rank: int) -> tuple[str, int]:
    """SHA-256 and bytes of one rank's file."""
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
    return digest.hexdigest(), size


def read_manifest(file: str, parent: str | None) -> Manifest:
    """A manifest by path, refused for what a manifest is refused for.

    `parent`: the manifest of the version that is active, which must be the one it goes back to, and the one that
    changes are against; needed for a version that is sent as changes.
    """
    found = validate(Manifest, documents.load(file), file=file)
    if parent is None:
        if found.delta is not None:
            raise MissingFact(
                f"is needed: version {found.rollout_version} is sent as changes against version "
                f"{found.delta.base_version}, which must be the active one",
                file=file,
                field="--parent",
            )
        return found
    _follows(found, validate(Manifest, documents.load(parent), file=parent), file=file, parent=parent)
    return found


def _follows(found: Manifest, before: Manifest, *, file: str, parent: str) -> None:
    """Refuse a version that does not follow the active one. Raises InputError."""
    if before.rollout_version != found.rollback_parent:
        raise InputError(
            f"goes back to version {found.rollback_parent}, but {parent} is version {before.rollout_version}",
            file=file,
            field="rollback_parent",
        )
    if before.activation_time >= found.activation_time:
        raise InputError("activates before the version that it goes back to", file=file, field="activation_time")
    if found.delta is None:
        return
    if found.delta.base_checksum != before.checksum:
        raise InputError(
            f"are changes against weights {found.delta.base_checksum[:12]}..., but those of {parent}, which is active, "
            f"are {before.checksum[:12]}...",
            file=file,
            field="delta.base_checksum",
        )
    for name in ("fp8_format", "sharding_layout"):
        if getattr(found, name) != getattr(before, name):
            raise InputError(
                f"differs from that of {parent}: changes cannot be applied; send the version whole",
                file=file,
                field=name,
            )
    wanted = [*_chain(before), before.rollout_version]
    if found.delta.chain != wanted:
        raise InputError(
            f"is {', '.join(map(str, found.delta.chain))}, but from the last whole version to {parent} it is "
            f"{', '.join(map(str, wanted))}",
            file=file,
            field="delta.chain",
        )
