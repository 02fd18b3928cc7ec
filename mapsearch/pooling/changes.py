"""Versions that are sent as changes: how much travels, and what the sender compares with.

Contents: Sent, sent_of, snapshot_s.
"""

from __future__ import annotations

from typing import NamedTuple

from mapsearch.costs.parameters import ledger
from mapsearch.costs.publishing import FORMATS, delta_bytes
from mapsearch.errors import MissingFact
from mapsearch.inventories.model import Model
from mapsearch.inventories.rollout import Rollout
from mapsearch.topologies.fabric import Device


class Sent(NamedTuple):
    """One copy of what is published, version by version."""

    usual_bytes: float
    """Of a version that comes as changes, with its part of whole ones that are spread; of every one without deltas."""
    delta_bytes: float | None
    """The changes alone."""
    wholes: bool
    """True where some versions are sent whole in their turn."""
    mean_bytes: float
    """Over all versions."""


def sent_of(model: Model, rollout: Rollout, volume_bytes: float) -> Sent:
    """Bytes of one copy of a version, in the steady state. Source: F1.7."""
    delta = rollout.publishing.delta
    if delta is None:
        return Sent(volume_bytes, None, False, volume_bytes)
    changed = float(
        delta_bytes(
            volume_bytes,
            ledger(model=model).total,
            FORMATS[rollout.serving.weights],
            form=delta.format,
            share=delta.share,
            index_bytes=delta.index_bytes or 0.0,
        )
    )
    every = delta.full_every
    if every and delta.full == "spread":
        return Sent(changed + volume_bytes / every, changed, False, changed + volume_bytes / every)
    mean = changed + (volume_bytes - changed) / every if every else changed
    return Sent(changed, changed, bool(every), mean)


def snapshot_s(own_bytes: float, device: Device) -> float:
    """Seconds to read the version before from host memory and to put the new one in its place.

    Public trainers compare with a copy in pinned host memory. Unit: s. Source: 2 x bytes / host bandwidth.
    Raises MissingFact where the device has no host bandwidth.
    """
    if device.host_bytes_per_s <= 0.0:
        raise MissingFact(
            "is needed for publishing.delta: the version before, which changes are found against, lies in host memory",
            file=device.name,
            field="device.host_bandwidth",
        )
    return 2.0 * own_bytes / device.host_bytes_per_s
