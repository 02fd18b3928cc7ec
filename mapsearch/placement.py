"""The typed, versioned result of `mapsearch placement`: ranks on devices, and where every group lives.

Contents: PLACEMENT_SCHEMA, Pattern, AxisGroups, Seating, Placement.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

PLACEMENT_SCHEMA = "mapsearch.placement/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Pattern(_Record):
    """Groups of one axis that spread alike over the levels."""

    groups: int
    """How many groups there are of this kind."""
    ways: dict[str, float]
    """Level: how many of its units a group uses inside each unit of the next level, on average; levels innermost first,
    those that no group of this kind crosses left out."""
    inside: str
    """The innermost level of which one unit holds the whole group; `device` for groups of one."""
    first: int
    """Number of the first such group."""
    devices: str
    """Its devices in short: `rack0/board0..3/device0..3`."""


class AxisGroups(_Record):
    """Where the groups of one axis live."""

    axis: str
    size: int
    """Members of one group."""
    groups: int
    """Number of groups."""
    patterns: list[Pattern]
    """The most common kind first."""


class Seating(_Record):
    """What putting ranks on the actual links gained, where that was asked for."""

    worst_s: float
    """Seconds per step that the busiest link is in use, all groups' traffic together."""
    byte_hops: float
    """Bytes times links on their way."""
    busiest: list[str]
    """The busiest link, from and to."""
    given_worst_s: float | None
    """The same for the placement as the search gave it; None when it does not fit the cluster as it is."""
    fixed_worst_s: float
    """The same for ranks tp-cp-ep-dp-pp on the devices in the order of the topology."""
    proven: str
    """`all`: no bijection is better. `units`: no exchange of whole units of one tier is. Empty: not proven."""
    start: str
    """What the seats were found from: `given`, `axes` (those of a torus in another order), `placement`, `packed` or
    `fixed`."""


class Placement(_Record):
    """Ranks on devices, and where every group lives."""

    schema_: str = Field(default=PLACEMENT_SCHEMA, alias="schema")
    topology: str
    """Name of the cluster."""
    topology_sha256: str
    """Of the topology as it was placed on, as an answer's provenance gives it."""
    mapping: str
    """File and rank of the mapping that is placed."""
    order: str
    """How ranks count, the first axis fastest; the expert grid counts ETP for TP and EDP for DP."""
    sizes: dict[str, int]
    """Size of every axis."""
    level_names: list[str]
    """Levels of the cluster, innermost first."""
    axes: list[AxisGroups]
    """TP, CP, DP, PP, ETP, EP, EDP."""
    seating: Seating | None = None
    devices: list[str]
    """Device of each global rank."""
    groups: dict[str, list[list[int]]]
    """Ranks of every group by axis, in the order of the axis."""
    notes: list[str] = []
    _listed: dict[str, list[int]] = PrivateAttr(default_factory=dict)

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)

    @property
    def listed(self) -> dict[str, list[int]]:
        """Numbers of the groups, by axis, that a table lists one by one."""
        return self._listed

    def listing(self, listed: dict[str, list[int]]) -> Placement:
        """The same placement, to be shown with these groups."""
        copy = self.model_copy()
        copy._listed = listed
        return copy

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same placement; a line per group."""
        data = self.model_dump(mode="json", by_alias=True)
        groups, devices = data.pop("groups"), data.pop("devices")
        head = json.dumps(data, indent=2, ensure_ascii=False).removesuffix("\n}")
        names = ",\n".join(f"    {json.dumps(name, ensure_ascii=False)}" for name in devices)
        tables = ",\n".join(
            f'    "{axis}": [\n' + ",\n".join(f"      {json.dumps(group)}" for group in table) + "\n    ]"
            for axis, table in groups.items()
        )
        return f'{head},\n  "devices": [\n{names}\n  ],\n  "groups": {{\n{tables}\n  }}\n}}\n'
