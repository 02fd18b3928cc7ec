"""What was measured of a mapping: values by the ids of its contract.

Contents: Figure, Measurement.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from mapsearch.inventories.base import Inventory
from mapsearch.records import Record


class Figure(Record):
    """One measured quantity."""

    value: bool | float | str | Annotated[list[float], Field(min_length=1)] | None = None
    """A number in the row's unit, several of them (their median counts), a word, or yes or no; nothing: not measured
    yet."""
    unit: str
    """The row's unit, as `mapsearch contract --template` writes it."""
    source: str = Field(default="", max_length=1000)
    """How and where it was measured: the tool, the rank, the step; needed beside a value."""

    @property
    def word(self) -> str | None:
        """The value where it is a word; yes and no are."""
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        return self.value if isinstance(self.value, str) else None

    @property
    def numbers(self) -> list[float]:
        """The values where they are numbers."""
        if self.value is None or self.word is not None:
            return []
        return self.value if isinstance(self.value, list) else [float(self.value)]


class Measurement(Inventory):
    """Measured quantities of one mapping, by the ids of its contract."""

    kind: ClassVar[str] = "measurement"
    name: str = Field(default="measured", min_length=1)
    mapping: str = ""
    """The mapping that it was measured on, in a line; for readers."""
    quantities: dict[str, Figure] = Field(default_factory=dict)
    """Id of a row of the contract: what was measured."""
