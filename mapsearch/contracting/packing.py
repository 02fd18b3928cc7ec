"""One sequence slot filled with pieces: how much attention it holds, and how evenly context parallel divides it.

Contents: mean_square_length, zigzag_imbalance, contiguous_imbalance, filled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mapsearch.quantity import Floats


def mean_square_length(pieces: Sequence[int]) -> float:
    """sum(L_i^2) / sum(L_i): the length that attention sees. Unit: tokens. Source: FORMULAS 1.5, 3.2."""
    lengths = np.asarray(pieces, dtype=np.float64)
    return float((lengths**2).sum() / lengths.sum())


def filled(slot: int, *pieces: int) -> list[int]:
    """A slot of tokens filled with the given pieces and then with the last one over and over; the rest is one more."""
    found = list(pieces)
    while sum(found) + pieces[-1] <= slot:
        found.append(pieces[-1])
    left = slot - sum(found)
    return [*found, left] if left > 0 else found


def _keys(pieces: Sequence[int], chunks: int) -> Floats:
    """Keys that the queries of each of so many equal chunks see, causal inside each piece, counted at their middle."""
    slot = sum(pieces)
    starts = np.concatenate([[0], np.cumsum(np.asarray(pieces, dtype=np.int64))])
    edges = np.linspace(0.0, slot, chunks + 1)
    inside = np.clip(edges[:, None] - starts[None, :-1], 0.0, np.asarray(pieces, dtype=np.float64)[None, :])
    seen = (inside**2).sum(axis=1) / 2.0
    return np.diff(seen)


def zigzag_imbalance(pieces: Sequence[int], cp: int) -> float:
    """Attention work of the busiest context-parallel rank over the mean, each rank with chunks i and 2 CP - 1 - i.

    Exactly 1 for one whole sequence. Unit: none. Source: FORMULAS 1.5 (load-balanced causal split in 2 CP chunks).
    """
    work = _keys(pieces, 2 * cp)
    ranks = work[:cp] + work[cp:][::-1]
    return float(ranks.max() / ranks.mean())


def contiguous_imbalance(pieces: Sequence[int], cp: int) -> float:
    """The same where each rank has one contiguous part: (2 CP - 1) / CP for one whole sequence. Unit: none."""
    work = _keys(pieces, cp)
    return float(work.max() / work.mean())
