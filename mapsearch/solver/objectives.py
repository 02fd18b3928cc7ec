"""What a front trades off: objectives by name, their units, and the facts that some of them need.

Contents: UNITS, Objectives, objectives_of.

All are minimised. Energy and cost are device-seconds times a fact of the device: power while it trains, price per hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mapsearch.errors import MissingFact, UsageError, listed, near_miss
from mapsearch.quantity import Floats, Num
from mapsearch.topologies.fabric import Device

UNITS = {
    "step_time": "s",
    "peak_memory": "bytes",
    "devices": "devices",
    "exposed_fraction": "share",
    "energy": "J",
    "cost": "price",
}
"""Objective: its unit; a cost is in the currency that the price is in."""
HOUR_S = 3600.0


@dataclass(frozen=True)
class Objectives:
    """Objectives in the order asked for, with what one device takes per second."""

    names: tuple[str, ...]
    per_device_s: dict[str, float]
    """energy: watts of a device; cost: price of a device per second."""
    floors: dict[str, float] = field(default_factory=dict)
    """peak_memory or exposed_fraction: values below this one are as good as it (what a limit never goes below)."""

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @property
    def device_seconds(self) -> bool:
        """Whether some objective is a multiple of device-seconds."""
        return bool(self.per_device_s)

    def told(self, name: str, values: Num) -> Num:
        """Values of an objective, those below its floor raised to it."""
        return np.maximum(values, self.floors[name]) if name in self.floors else values

    def values(self, step_time_s: Num, peak_bytes: Num, exposed: Num, devices: Num) -> Floats:
        """Vectors of the objectives, the objective last."""
        known = {"step_time": step_time_s, "peak_memory": peak_bytes, "devices": devices, "exposed_fraction": exposed}
        for name, each in self.per_device_s.items():
            known[name] = step_time_s * devices * each
        columns = np.broadcast_arrays(*(np.asarray(self.told(name, known[name]), dtype=float) for name in self.names))
        return np.stack(columns, axis=-1)


def objectives_of(names: Sequence[str], device: Device) -> Objectives:
    """The objectives by name. Raises UsageError, and MissingFact for a fact that the topology does not give."""
    for name in names:
        if name not in UNITS:
            known = listed(UNITS)
            raise UsageError(f"{name!r} is no objective{near_miss(name, UNITS)}; accepted: {known}", field="objectives")
    if len(set(names)) < len(names):
        raise UsageError(f"{', '.join(names)} names an objective twice", field="objectives")
    if "step_time" not in names or len(names) < 2:
        raise UsageError(
            f"{', '.join(names) or 'nothing'} is no trade-off; name step_time and at least one more of "
            f"{listed(name for name in UNITS if name != 'step_time')}",
            field="objectives",
        )
    facts = {
        "energy": ("power", "power: 700 W", device.power_w, 1.0),
        "cost": ("price_per_hour", "price_per_hour: 2.5", device.price_per_hour, HOUR_S),
    }
    per_device_s = {}
    for name in names:
        if name in facts:
            key, example, value, unit = facts[name]
            if value is None:
                raise MissingFact(
                    f"is needed for the objective {name} and not given; write it into the topology, such as {example}",
                    file=device.name,
                    field=f"device.{key}",
                )
            per_device_s[name] = value / unit
    return Objectives(tuple(names), per_device_s)
