"""Both sides' layouts of a pair: what one training rank sends to one rollout rank.

Contents: layouts_of, between_ranks.
"""

from __future__ import annotations

import numpy as np

from mapsearch.costs import transfer
from mapsearch.costs.estimate import layers_per_stage
from mapsearch.costs.parameters import ledger
from mapsearch.costs.transfer import Layout
from mapsearch.pooling.problem import Pools
from mapsearch.pooling.split import Pair


def layouts_of(pools: Pools, pair: Pair) -> tuple[Layout, Layout]:
    """How training and one rollout replica cut the weights."""
    mapping, shape = pair.mapping, pair.offer.shape
    stages = tuple(layers_per_stage(mapping, pair.part.training))
    copies = mapping.cp * mapping.dp
    sends = Layout(mapping.tp, copies, mapping.etp, mapping.ep, mapping.edp, stages)
    return sends, Layout(shape.tp, 1, shape.devices // shape.ep, shape.ep, 1)


def between_ranks(pools: Pools, pair: Pair) -> tuple[int, float]:
    """Ranks of one replica that a training rank sends to, and the most bytes of such a pair, over all stages.

    Dense weights and experts are laid out by themselves; a pair's bytes are at most the sum of both. Each copy of
    attention receives the dense weights, and every holder of a piece sends an equal part of it. Unit: ranks, bytes.
    """
    sends, receives = layouts_of(pools, pair)
    book = ledger(model=pools.model)
    share = transfer.stage_shares(pools.model, sends.stages).max()
    dense, experts = transfer.layout_bytes(
        sends,
        receives,
        share * pools.volume_bytes * book.shared / book.total,
        share * pools.volume_bytes * book.experts / book.total,
    )
    dense_peers = int((dense > 0.0).sum(axis=1).max()) * pair.offer.shape.dp
    expert_peers = int((experts > 0.0).sum(axis=(2, 3)).max()) if book.experts else 0
    return max(dense_peers, expert_peers), float(np.max(dense) + (np.max(experts) if book.experts else 0.0))
