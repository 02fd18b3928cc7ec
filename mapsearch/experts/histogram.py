"""Histograms of router load: what every expert of every layer received in every step.

Contents: Histogram, histogram_of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mapsearch.errors import InputError

Floats = NDArray[np.float64]
MAX_CELLS = 2**26
"""Steps times layers times sources times experts: half a GiB of numbers."""


@dataclass(frozen=True)
class Histogram:
    """Assignments by step, layer, source and expert."""

    tokens: Floats
    """(steps, layers, sources, experts); one source when they are not told apart."""
    layers: tuple[str, ...]
    """Names of the layers."""
    name: str
    """The file, or how it was made."""
    origin: Literal["measured", "assumed"]
    notes: tuple[str, ...] = ()

    @property
    def loads(self) -> Floats:
        """(steps, layers, experts): all sources together."""
        return np.asarray(self.tokens.sum(axis=2))

    @property
    def sources(self) -> int:
        """Sources that are told apart; 0: none."""
        return self.tokens.shape[2] if self.tokens.shape[2] > 1 else 0

    @property
    def experts(self) -> int:
        """Experts of a layer."""
        return int(self.tokens.shape[3])


def histogram_of(tokens: Floats, name: str, layers: tuple[str, ...] = ()) -> Histogram:
    """An array as a histogram: (experts), (layers, experts), (steps, layers, experts) or with sources before experts.

    Raises InputError: other dimensions, no experts, a negative or not finite number, a layer without tokens.
    """
    if not 1 <= tokens.ndim <= 4:
        raise InputError(
            f"has {tokens.ndim} dimensions; write experts, layers x experts, steps x layers x experts, or "
            "steps x layers x sources x experts",
            file=name,
            field="tokens",
        )
    if tokens.ndim < 4:
        tokens = tokens.reshape((1,) * (3 - tokens.ndim) + tokens.shape)[:, :, None, :]
    if 0 in tokens.shape or tokens.shape[3] < 2:
        shape = " x ".join(str(size) for size in tokens.shape)
        raise InputError(f"is {shape} (steps, layers, sources, experts); there is nothing to balance", file=name)
    if tokens.size > MAX_CELLS:
        raise InputError(f"holds {tokens.size:,} numbers; at most {MAX_CELLS:,} are read, leave out steps", file=name)
    names = layers or tuple(str(layer) for layer in range(tokens.shape[1]))
    bad = np.argwhere(~(np.isfinite(tokens) & (tokens >= 0.0)))
    if len(bad):
        step, layer, _, expert = (int(place) for place in bad[0])
        value = tokens[tuple(bad[0])]
        raise InputError(
            f"step {step}, layer {names[layer]}, expert {expert} has {value:g} tokens; give numbers from 0 on",
            file=name,
        )
    empty = np.argwhere(tokens.sum(axis=(2, 3)) <= 0.0)
    if len(empty):
        step, layer = (int(place) for place in empty[0])
        raise InputError(f"step {step} of layer {names[layer]} has no tokens; leave it out", file=name)
    return Histogram(np.ascontiguousarray(tokens, dtype=np.float64), names, name, "measured")
