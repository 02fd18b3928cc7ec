"""What a search of two pools minimises: the step, or what a step costs.

Contents: NAMES, TOKENS, DEVICE_HOURS, Objective, objective_of.

A batch has the same tokens under every mapping, so the least step is the most tokens per second, and the least cost of
a step the least cost of a token. Devices that neither pool uses cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mapsearch.errors import MissingFact, UsageError, listed, near_miss
from mapsearch.pooling.problem import Pools
from mapsearch.quantity import Num
from mapsearch.topologies.spec import Topology

Name = Literal["tokens", "cost", "device-hours"]
NAMES: tuple[Name, ...] = ("tokens", "cost", "device-hours")
HOUR_S = 3600.0
MILLION = 1e6


@dataclass(frozen=True)
class Objective:
    """What is minimised, and what a device of either pool takes per hour of it."""

    name: Name = "tokens"
    training_per_hour: float = 0.0
    """Price of a training device, or 1 device-hour."""
    rollout_per_hour: float = 0.0

    @property
    def pays(self) -> bool:
        """Whether a device that is not used makes the value less."""
        return self.name != "tokens"

    def weight(self, training_devices: Num, rollout_devices: Num) -> Num:
        """Value per second of step: 1 for tokens, else what both pools take in a second."""
        if not self.pays:
            return 0.0 * rollout_devices + 1.0
        return (self.training_per_hour * training_devices + self.rollout_per_hour * rollout_devices) / HOUR_S

    def per_million(self, value: float, batch_tokens: float) -> float | None:
        """A value as price or device-hours per million tokens; None for tokens."""
        return value / batch_tokens * MILLION if self.pays else None


TOKENS = Objective()
DEVICE_HOURS = Objective("device-hours", 1.0, 1.0)


def objective_of(
    pools: Pools, name: str, training_price: float | None = None, rollout_price: float | None = None
) -> Objective:
    """The objective by name. Raises UsageError, and MissingFact for a price that nothing gives."""
    known = next((one for one in NAMES if one == name), None)
    if known is None:
        raise UsageError(f"{name!r} is no objective{near_miss(name, NAMES)}; accepted: {listed(NAMES)}",
                         field="objective")  # fmt: skip
    if known != "cost":
        given = [f"--{side}-price" for side, price in (("training", training_price), ("rollout", rollout_price))
                 if price is not None]  # fmt: skip
        if given:
            raise UsageError(f"is a price, and {known} takes none; ask for --objective cost", field=given[0])
        return DEVICE_HOURS if known == "device-hours" else TOKENS
    serves = pools.own or pools.topology
    trains = training_price if training_price is not None else pools.topology.device.price_per_hour
    rolls = next((price for price in (rollout_price, pools.rollout.pool.price_per_hour, serves.device.price_per_hour)
                  if price is not None), None)  # fmt: skip
    if trains is None:
        raise _missing(pools.topology, "training")
    if rolls is None:
        raise _missing(serves, "rollout")
    return Objective("cost", trains, rolls)


def _missing(topology: Topology, side: str) -> MissingFact:
    also = ", or as pool.price_per_hour into the rollout" if side == "rollout" else ""
    return MissingFact(
        "is needed for the objective cost and not given; write it into the topology, such as price_per_hour: 2.5"
        f"{also}, or give --{side}-price; without prices there is --objective device-hours",
        file=topology.name,
        field="device.price_per_hour",
    )
