"""What a pair of mappings says of its serving side and of the four constraints between the pools.

Contents: serving_explained, constraints_of.
"""

from __future__ import annotations

from typing import Any, Literal

from mapsearch.constraints.capacity import bytes_text
from mapsearch.costs import pacing, serving
from mapsearch.pooled import Steady
from mapsearch.pooling.problem import Pools, pace_of
from mapsearch.pooling.replicas import Offer, chunk_parts_s
from mapsearch.pooling.split import Pair
from mapsearch.pools_explained import PoolConstraint, ServingExplained


def serving_explained(pools: Pools, pair: Pair) -> ServingExplained:
    """The ledger of a replica's fullest device, its passes in parts, and what limits its requests under way."""
    offer, facts, demand = pair.offer, pair.part.serving, pools.server.demand
    cut = (offer.shape.tp, offer.shape.dp, offer.shape.ep)
    copies = 2 if pools.rollout.publishing.in_flight == "side-by-side" else 1
    scales = copies * serving.scale_bytes(*cut, model=facts.model, serving=facts.serving)
    memory = {
        "weights": offer.weight_bytes - scales,
        "scales": scales,
        "cache": offer.cache_bytes,
        "buffers": offer.buffer_bytes,
    }
    most = serving.most_sequences(*cut, demand.held_tokens, demand.most_tokens, facts=facts, versions=copies)
    limited, reason = _limited(pools, pair, most)
    chunk, prompt = chunk_parts_s(facts, offer.shape, demand)
    return ServingExplained(
        memory_bytes=memory,
        limit_bytes=offer.limit_bytes,
        free_bytes=offer.limit_bytes - sum(memory.values()),
        sequences=offer.sequences,
        most_sequences=most,
        limited_by=limited,
        reason=reason,
        decode_parts_s=dict(offer.decode_parts_s),
        prefill_parts_s={name: float(value) * demand.prompt_tokens / chunk for name, value in prompt.items()},
    )


def _limited(pools: Pools, pair: Pair, most: int) -> tuple[Literal["memory", "concurrency", "step"], str]:
    """What the next larger batch of the same replicas would break, with its numbers."""
    offer, concurrency = pair.offer, pools.rollout.concurrency
    decoding = offer.replicas - offer.prefill_replicas
    if offer.sequences >= most:
        free = offer.limit_bytes - offer.weight_bytes - offer.buffer_bytes
        each = offer.cache_bytes / (offer.sequences / offer.shape.dp)
        return "memory", (
            f"one device has {bytes_text(free)} for cache, and a request takes {bytes_text(each)} of it on average: "
            f"{most:,} in a replica"
        )
    larger = [one for one in pools.server.offers(pair.part.serving)
              if _kind(one) == _kind(offer) and one.sequences > offer.sequences]  # fmt: skip
    nearest = min(larger, key=lambda one: one.sequences, default=None)
    if nearest is None:
        return "concurrency", (
            f"{offer.sequences * decoding:,} of {concurrency:,} requests are under way over {decoding} replicas, and "
            "the next larger batch would be over it"
        )
    step_s = pace_of(pools, pair.part, nearest, pair.train_s, pair.mapping).step_s
    more = nearest.tokens_per_s / offer.tokens_per_s - 1.0
    return "step", (
        f"{nearest.sequences:,} requests in a replica would fit and make {more:+.1%} tokens/s, but the longest request "
        f"takes {nearest.generate_s:.4g} s instead of {offer.generate_s:.4g} s and a switch costs "
        f"{nearest.lost_s:.4g} s instead of {offer.lost_s:.4g} s: a step of {step_s:.4g} s"
    )


def _kind(offer: Offer) -> tuple[object, int]:
    return offer.shape, offer.prefill_replicas


def constraints_of(pair: Pair, steady: Steady) -> list[PoolConstraint]:
    """Supply, publishing, queue and one version per request, with margins, and the step without each (F1.8)."""
    pace, step_s = pair.pace, steady.step_s
    without = {name: other.step_s for name, other in pacing.relieved(pace).items()}
    budget_s = pacing.publish_budget_s(pace)

    def row(name: Any, demand: float, limit: float, unit: str, reason: str) -> PoolConstraint:
        return PoolConstraint(
            name=name, demand=demand, limit=limit, margin=limit - demand, unit=unit, without_s=without[name],
            reason=reason,
        )  # fmt: skip

    return [
        row("supply", steady.supply_s, step_s, "s", "rollout makes a batch, switches included, within a step"),
        row("publish", pace.publish_s, budget_s, "s", "the longest publishing with which the step stays as it is"),
        row("queue", steady.held_batches + 1.0, steady.most_batches, "batches",
            "what is held, and the batch that comes together beside it"),
        row("version", steady.version_lag, float(steady.versions), "versions",
            "age of the oldest sample, whose whole request kept one version"),
    ]  # fmt: skip
