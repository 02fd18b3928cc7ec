"""Synthetic router loads, the same for the same seed: Zipf, and Dirichlet with a given largest over mean.

Contents: zipf, dirichlet, dealt.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mapsearch.errors import UsageError
from mapsearch.experts.histogram import Histogram
from mapsearch.experts.statistics import skew

Floats = NDArray[np.float64]
_HALVINGS = 60
_TRIAL_LAYERS = 64
"""Draws that the concentration is fitted on, or as many as there are layers when those are more."""


def zipf(exponent: float, *, layers: int, experts: int, tokens: int, top_k: int, seed: int) -> Histogram:
    """Loads proportional to rank ** -exponent, the experts of each layer in an order of its own."""
    if not 0.0 <= exponent <= 20.0:
        raise UsageError(f"takes an exponent from 0 to 20, not {exponent:g}", field="--zipf")
    random = np.random.default_rng(seed)
    shares = np.arange(1, experts + 1, dtype=np.float64) ** -exponent
    rows = np.stack([shares[random.permutation(experts)] for _ in range(layers)])
    name = f"Zipf {exponent:g}, {tokens:,} tokens, top {top_k}, seed {seed}"
    return _histogram(rows, tokens, top_k, name)


def dirichlet(largest: float, *, layers: int, experts: int, tokens: int, top_k: int, seed: int) -> Histogram:
    """Shares from a symmetric Dirichlet distribution, concentrated so that their largest over mean is `largest` on
    average over layers.

    Raises UsageError: no such distribution has it.
    """
    most = experts / top_k
    if not 1.0 < largest < most:
        raise UsageError(
            f"{largest:g} is not between 1 and {most:g}: each token takes {top_k} different of {experts} experts, so "
            "one expert has at most that times the mean",
            field="--dirichlet",
        )
    trial = max(layers, _TRIAL_LAYERS)

    def draw(log_concentration: float, rows: int) -> Floats:
        random = np.random.default_rng(seed)
        drawn = random.standard_gamma(np.exp(log_concentration), size=(rows, experts))
        return np.asarray(dealt(np.maximum(drawn, 1e-300), float(tokens), top_k))

    low, high = np.log(1e-3), np.log(1e7)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        wide = float(skew(draw(middle, trial)).mean()) > largest
        low, high = (middle, high) if wide else (low, middle)
    name = f"Dirichlet, largest over mean {largest:g}, {tokens:,} tokens, top {top_k}, seed {seed}"
    return _histogram(draw(high, layers), tokens, top_k, name)


def dealt(shares: Floats, tokens: float, top_k: int) -> Floats:
    """Loads in proportion to shares that add up to tokens * K, where no expert takes a token twice.

    n_e = min(N, scale * share), the scale by filling up from the largest on. Axes: (.., experts). Unit: assignments.
    Source: F1.4 (a token has K different experts, so n_max is at most N, E/K times the mean).
    """
    order = np.argsort(-shares, axis=-1, kind="stable")
    sorted_shares = np.take_along_axis(shares, order, axis=-1)
    left = np.cumsum(sorted_shares[..., ::-1], axis=-1)[..., ::-1]
    full = np.arange(shares.shape[-1])
    # With the `full` largest experts at N, the others share what is left of N K.
    scale = (top_k - full) / left
    fits = scale * sorted_shares <= 1.0
    first = np.argmax(fits, axis=-1)[..., None]
    chosen = np.take_along_axis(scale, first, axis=-1)
    return np.asarray(np.minimum(1.0, chosen * shares) * tokens)


def _histogram(shares: Floats, tokens: int, top_k: int, name: str) -> Histogram:
    """Whole numbers of assignments that add up exactly, by largest remainders."""
    exact = dealt(shares, float(tokens), top_k)
    whole = np.floor(exact + 1e-9)
    for row, loads in zip(whole, exact, strict=True):
        missing = round(float(tokens) * top_k - row.sum())
        room = np.where(row < tokens, loads - row, -1.0)
        row[np.argsort(-room, kind="stable")[:missing]] += 1.0
    capped = int((exact >= tokens).sum(axis=-1).max())
    notes = (f"up to {capped} experts of a layer receive every token",) if capped else ()
    layers = tuple(str(layer) for layer in range(len(whole)))
    return Histogram(whole[None, :, None, :], layers, name, "assumed", notes)
