"""How long prompts, responses or trajectories are, as a record of inputs.

Contents: Lengths.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, model_validator

from mapsearch.records import Record

_MOST_VALUES = 100_000
Tokens = Annotated[float, Field(gt=0, le=1e18)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Lengths(Record):
    """Tokens of each: one of `values`, `histogram`, `quantiles`, or `mean` with `cv`."""

    values: list[Tokens] = Field(default_factory=list, max_length=_MOST_VALUES)
    """Measured lengths."""
    weights: list[Weight] = Field(default_factory=list, max_length=_MOST_VALUES)
    """How often each of `values` occurs, in any scale; left out: equally often."""
    histogram: dict[int, Weight] = Field(default_factory=dict, max_length=_MOST_VALUES)
    """Length: how often, in any scale."""
    quantiles: dict[Share, Tokens] = Field(default_factory=dict, max_length=1000)
    """Share of all that are at most so long: length; from 0 to 1, straight lines in between."""
    mean: Tokens | None = None
    """Mean of a lognormal distribution."""
    cv: float | None = Field(default=None, ge=0, le=10)
    """Its standard deviation over its mean; 0: all alike."""

    @model_validator(mode="after")
    def _one_way(self) -> Lengths:
        ways = [bool(self.values), bool(self.histogram), bool(self.quantiles), self.mean is not None]
        if sum(ways) != 1:
            raise ValueError("takes exactly one of values, histogram, quantiles, or mean with cv")
        if (self.mean is None) != (self.cv is None):
            raise ValueError("mean and cv are given together; cv 0 says that all are alike")
        if self.weights and (len(self.weights) != len(self.values) or not sum(self.weights) > 0):
            raise ValueError(
                f"has {len(self.weights)} weights for {len(self.values)} values; give one each, not all zero"
            )
        if self.histogram and (min(self.histogram) < 1 or sum(self.histogram.values()) <= 0.0):
            raise ValueError("histogram needs lengths of at least 1 token and some that occur")
        shares = sorted(self.quantiles)
        if shares and (shares[0] != 0.0 or shares[-1] != 1.0):
            raise ValueError(f"quantiles reach from {shares[0]:g} to {shares[-1]:g}; give 0 and 1 as well")
        if any(self.quantiles[low] > self.quantiles[high] for low, high in pairwise(shares)):
            raise ValueError("quantiles fall: a larger share has a smaller length")
        return self
