"""The mapping inventory: one value for every axis, plus where each axis lives.

Contents: Mapping.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from mapsearch import axes
from mapsearch.inventories.base import Inventory
from mapsearch.inventories.layouts import read_layout
from mapsearch.inventories.run import (
    CpKindWord,
    DispatcherWord,
    OffloadWords,
    OverlapWords,
    RecomputeWords,
    ScheduleWord,
)

AxisName = Literal["tp", "cp", "dp", "pp", "etp", "ep", "edp"]


class Mapping(Inventory):
    """A complete mapping: what `solve` writes and `check` reads."""

    kind: ClassVar[str] = "mapping"
    tp: int = Field(default=1, gt=0)
    cp: int = Field(default=1, gt=0)
    dp: int = Field(default=1, gt=0)
    pp: int = Field(default=1, gt=0)
    etp: int = Field(default=1, gt=0)
    ep: int = Field(default=1, gt=0)
    edp: int = Field(default=1, gt=0)
    vpp: int = Field(default=1, gt=0)
    micro_batch: int = Field(default=1, gt=0)
    schedule: ScheduleWord = axes.Schedule.ONE_F_ONE_B
    recompute: RecomputeWords = axes.Recompute.NONE
    zero: int = Field(default=1, ge=0, le=3)
    offload: OffloadWords = axes.Offload.NONE
    cp_kind: CpKindWord = axes.CpKind.RING
    dispatcher: DispatcherWord = axes.Dispatcher.ALL_TO_ALL
    layout: Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(read_layout)] = Field(default_factory=list)
    """Layers of each pipeline stage in order, of both chunks of each stage in V-shaped schedules, MTP modules not
    counted; also as `8-8-7-7` or as Megatron-LM's `Et*8|t*8|t*7|t*7L`. Empty: as frameworks cut unless told."""
    recompute_stages: int = Field(default=0, ge=0)
    """Pipeline stages from the first on that recompute what `recompute` says, the others recompute nothing; 0: all."""
    overlap: OverlapWords | None = None
    """What runs under compute and takes memory for it; left out: as the run states it, its first value of a list."""
    placement: dict[AxisName, dict[str, int]] = Field(default_factory=dict)
    """Axis: {level name: ways it is cut there}; levels left out are cut 1 way."""

    @model_validator(mode="after")
    def _grids_meet(self) -> Mapping:
        attention, expert = self.tp * self.cp * self.dp, self.etp * self.ep * self.edp
        if attention != expert:
            raise ValueError(
                f"tp*cp*dp = {self.tp}*{self.cp}*{self.dp} = {attention} and etp*ep*edp = "
                f"{self.etp}*{self.ep}*{self.edp} = {expert} must be equal: both grids cover the same devices"
            )
        if self.recompute_stages > self.pp:
            raise ValueError(
                f"recompute_stages is {self.recompute_stages}, but PP is {self.pp}; 0 stands for all stages"
            )
        for axis, cuts in self.placement.items():
            product = 1
            for level, ways in cuts.items():
                if ways < 1:
                    raise ValueError(f"placement.{axis}.{level} is {ways}; it must be at least 1")
                product *= ways
            if product != getattr(self, axis):
                raise ValueError(f"placement.{axis} multiplies to {product}, but {axis} is {getattr(self, axis)}")
        return self

    @property
    def cut(self) -> tuple[int, ...]:
        """The layout as a tuple; empty when it is left to the framework."""
        return tuple(self.layout)

    @property
    def recomputing(self) -> int:
        """Stages from the first on that recompute; 0 where that tells no stages apart."""
        return self.recompute_stages if self.recompute and self.recompute_stages < self.pp else 0

    @property
    def devices(self) -> int:
        """Devices the mapping uses: TP * CP * DP * PP."""
        return self.tp * self.cp * self.dp * self.pp
