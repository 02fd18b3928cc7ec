"""The typed, versioned result of `mapsearch experts`: how evenly a router loads experts, and where to put them.

Contents: EXPERT_LOAD_SCHEMA, Spread, CapacityRow, LayerLoad, RoutingValues, StepEffect,
CopiesCost, HeldOut, ExpertLoad.
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

EXPERT_LOAD_SCHEMA = "mapsearch.expert-load/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Spread(_Record):
    """How unequal loads are."""

    min: float
    mean: float
    p95: float
    max: float
    variation: float
    """CV: standard deviation over mean."""
    skew: float
    """Largest over mean."""


class CapacityRow(_Record):
    """What one capacity factor does to the loads, one capacity for the whole routing domain (FORMULAS 1.4)."""

    capacity_factor: float
    slots: float
    """Of each expert, mean over layers and steps."""
    use: float
    """Accepted assignments over slots."""
    drop_rate: float
    """Share of the assignments that find no slot."""
    waste: float
    """Share of the slots that stay empty: 1 - use."""
    amplification: float
    """Slots over accepted assignments."""
    worst_drop_rate: float
    """Drop rate of the worst layer and step."""


class LayerLoad(_Record):
    """One layer: the loads as they are, and the best placement of its experts."""

    layer: str
    """Number of the layer, as the histogram names it."""
    experts: Spread
    """Assignments by expert, summed over the steps."""
    hottest: int
    """The expert with the largest load."""
    ranks: Spread
    """Assignments by expert rank as experts stand now: consecutive, equally many on each rank."""
    lpt: float
    """Load of the worst rank when the greedy rule (longest first, onto the lightest rank with room) places experts."""
    worst: float
    """Load of the worst rank in the placement found; never above that of the greedy rule."""
    bound: float
    """No placement has a worst rank below this."""
    bound_from: str
    """What that bound is."""
    gap: float
    """Worst rank over its bound, less one; 0 when proven."""
    proof: Literal["bound", "cpsat", "milp", ""]
    """What proves that no placement has a lower worst rank; empty: it may be lower by `gap`."""
    off_node: float | None
    """Share of the assignments that leave their source's node, as experts stand now; None without sources."""
    placed_off_node: float | None
    """The same in the placement found."""
    off_node_bound: float | None
    """No placement with this worst rank has a smaller share; None without sources."""
    off_node_proven: bool
    """Whether no placement with this worst rank sends less off its node; False without sources."""
    placement: list[list[int]]
    """Experts on every rank; an expert that stands on several ranks has as many copies, with equal shares of its
    load."""


class RoutingValues(_Record):
    """Values for the `routing` record of a run file."""

    capacity_factor: float
    """Least factor that keeps the drop rate within the limit that was asked for; 1 at least."""
    rank_skew: float
    """The larger of `time_skew` and `memory_skew`."""
    time_skew: float
    """Mean over layers and steps of the worst rank over the mean: layers run one after the other, and each waits for
    its own worst rank."""
    memory_skew: float
    """Worst rank over the mean when its layers are added up, in the worst step: a rank holds all of them at once."""
    worst_layer_skew: float
    """Of the worst layer in the worst step."""
    pair_skew: float
    """Largest over mean of the traffic between ranks, mean over layers and steps; with sources unknown, what even
    sources give: at least this."""


class StepEffect(_Record):
    """The mapping estimated again with the skew of one placement."""

    placement: Literal["run file", "consecutive", "greedy", "placed"]
    """As the run file says; experts as they stand now; the greedy rule's; the placement found: these two with the
    memory and the reduction of the copies."""
    rank_skew: float
    pair_skew: float
    step_time_s: float
    peak_memory_bytes: float
    fits: bool
    """Peak memory is within what the device offers."""


class CopiesCost(_Record):
    """What the copies cost the mapping: on the stage whose peak is largest with them."""

    per_rank: int
    """Copies that each rank holds, of each MoE layer."""
    weight_bytes: float
    """Of all copies of a rank, all MoE layers of the stage; alone what they cost where nothing is trained."""
    gradient_bytes: float
    optimizer_bytes: float
    """What stays in HBM of it."""
    total_bytes: float
    gradient_s: float
    """Each step, to add up the gradients of copies: an all-reduce over the EP group, not hidden."""
    peak_bytes: float
    """Of that stage with the copies, at the run file's skew."""
    usable_bytes: float
    """What the device offers."""
    fits: bool


class HeldOut(_Record):
    """A placement made for the first half of the steps, on the second half: what it is worth when loads drift."""

    steps: int
    """Of the second half."""
    now: float
    """Worst rank over the mean there, mean over layers and steps, as experts stand."""
    early: float
    """The same with experts placed for the first half."""
    late: float
    """The same with experts placed for the second half itself: what a router that does not drift would leave."""


class ExpertLoad(_Record):
    """How evenly a router loads experts and ranks, what that means for a run, and the best placement by layer."""

    schema_: str = Field(default=EXPERT_LOAD_SCHEMA, alias="schema")
    source: str
    """The file of the histogram, or how it was made."""
    origin: Literal["measured", "assumed"]
    """Read from a file, or synthetic."""
    steps: int
    layer_count: int
    experts: int
    assignments: float
    """Tokens times experts per token: of one layer in one step, on average."""
    ranks: int
    """Expert-parallel ranks."""
    nodes: int
    """Units that the ranks stand in; 1 when they are not told apart."""
    slots: int
    """Experts that a rank holds, copies included."""
    copies: int
    """Redundant copies in each layer."""
    groups: int
    """Groups of experts of which each stays inside one node; 1: no such limit."""
    sources: int
    """Sources that the histogram tells apart; 0: none."""
    by_expert: Spread
    """Over experts, every layer and step for itself: means of the figures."""
    by_rank: Spread
    """The same over ranks, experts as they stand now."""
    placed_by_rank: Spread
    """The same in the placement found."""
    capacity: list[CapacityRow]
    drop_limit: float
    """Drop rate that `capacity_factor` keeps within."""
    now: RoutingValues
    """Values for the run file, experts as they stand now."""
    greedy: RoutingValues
    """The same in the greedy rule's placement."""
    placed: RoutingValues
    """The same in the placement found."""
    held_out: HeldOut | None = None
    """Of histograms with several steps."""
    copies_cost: CopiesCost | None = None
    """Of a mapping, when one is given and there are copies."""
    effects: list[StepEffect] = []
    """Of a mapping, when one is given."""
    mapping: str = ""
    """File and rank of that mapping."""
    layers: list[LayerLoad]
    notes: list[str] = []

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)

    @property
    def proven(self) -> int:
        """Layers whose worst rank is proven to be the least."""
        return sum(bool(layer.proof) for layer in self.layers)

    @property
    def largest_gap(self) -> float:
        """The largest gap of a layer."""
        return max(layer.gap for layer in self.layers)

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same result; a line per rank of a placement."""
        data = self.model_dump(mode="json", by_alias=True)
        places = [layer.pop("placement") for layer in data["layers"]]
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
        pieces = text.split('"off_node_proven": ')
        out = pieces[0]
        for place, piece in zip(places, pieces[1:], strict=True):
            word, rest = piece.split("\n", 1)
            rows = ",\n".join(f"        {json.dumps(row)}" for row in place)
            out += f'"off_node_proven": {word},\n      "placement": [\n{rows}\n      ]\n{rest}'
        return out + "\n"
