"""How the weights of a pair are published, in numbers: cuts on their way, stages, what ranks send to ranks.

Contents: published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mapsearch.costs import pacing, transfer
from mapsearch.costs.transfer import Route
from mapsearch.pooled import CutTold, LevelTold, PublishPlan
from mapsearch.pooling.layouts import between_ranks, by_level, bytes_of
from mapsearch.pooling.problem import Pools, route_of, stages_of
from mapsearch.pooling.split import Pair
from mapsearch.pooling.ways import NAMED, Way

WHERE = {"send": "a training device's own way out", "receive": "a rollout device's own way in"}


def published(pools: Pools, pair: Pair) -> PublishPlan:
    """The publishing of a pair as the typed answer."""
    given = pools, pair.part, pair.offer, pair.mapping
    path, way, publishing = route_of(*given), pools.ways.way(pair.part, pair.offer), pools.rollout.publishing
    table = bytes_of(pools, pair)
    peers, largest = between_ranks(table)
    cuts = _cuts(path, way)
    bounds = transfer.bound_parts_s(path, pair.part.training.fabric.devices)
    bound = max(bounds, key=lambda name: bounds[name])
    whole_s = None
    if pools.sent.wholes:
        stages = stages_of(*given, whole=True)
        whole_s = transfer.publish_s(stages, pipelined=publishing.pipelined, chunks=publishing.chunks)
    return PublishPlan(
        path=path.path,
        volume_bytes=pools.volume_bytes,
        version_bytes=pools.sent.usual_bytes,
        delta_bytes=pools.sent.delta_bytes,
        mean_bytes=pools.sent.mean_bytes,
        received_bytes=path.received_bytes,
        peers=peers,
        pair_bytes=largest,
        sent_bytes=path.crossing_bytes / path.sources,
        bytes_per_s=path.bytes_per_s,
        cuts=cuts,
        binding_cut=max(cuts, key=lambda cut: cut.seconds).where,
        routed_s=pools.ways.routed_s(pair, path, table),
        levels=[LevelTold.model_validate(one._asdict()) for one in by_level(pair, table)],
        stages_s=stages_of(*given),
        whole_s=whole_s,
        time_s=pair.pace.publish_s,
        bound_s=bounds[bound],
        bound_cut=WHERE.get(bound) or _links(way.narrowest),
        budget_s=pacing.publish_budget_s(pair.pace),
        lost_s=pair.pace.lost_s,
    )


def _cuts(path: Route, way: Way) -> list[CutTold]:
    """Every cut that the weights pass, the longest as long as the transfer (filling apart)."""
    seconds = transfer.transfer_parts_s(path)
    amounts = {
        "send": path.crossing_bytes / path.sources,
        "link": path.crossing_bytes,
        "receive": path.received_bytes,
        "relay": path.received_bytes,
    }
    busy = {**WHERE, "link": way.link or _links(way.cut), "relay": "from replica to replica"}
    return [
        CutTold(name=name, where=busy[name], bytes=amount, bytes_per_s=amount / seconds[name], seconds=seconds[name])
        for name, amount in amounts.items()
        if seconds[name] > 0.0 and math.isfinite(seconds[name])
    ]


def _links(links: Sequence[str]) -> str:
    more = f" and {len(links) - NAMED:,} more" if len(links) > NAMED else ""
    return ", ".join(links[:NAMED]) + more
