"""Ways to serve the model on a pool: every cut of a replica, with every batch, and what it makes.

Contents: Demand, Shape, Offer, demand_of, filled, shapes_of, batches, chunk_parts_s, Server, published_bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mapsearch.costs import pacing, serving
from mapsearch.costs.lengths import Distribution, distribution, held_tokens
from mapsearch.costs.serving import ServingFacts
from mapsearch.inventories.model import Model
from mapsearch.inventories.rollout import Rollout
from mapsearch.quantity import Floats
from mapsearch.topologies.core import block_count
from mapsearch.topologies.fabric import Fabric


@dataclass(frozen=True)
class Demand:
    """What training asks of rollout, in numbers."""

    batch_tokens: float
    prompt_tokens: float
    prompt_keys: float
    """Keys that a prompt's token sees, on average."""
    longest_prompt: float
    response_tokens: float
    responses: Distribution
    longest_response: float
    """Expected longest response of a batch."""
    most_tokens: float
    """Longest prompt and longest response together: what must fit once."""
    held_tokens: float
    samples: float
    """Samples generated for one batch, those that the filter drops included."""


def demand_of(rollout: Rollout, batch_tokens: float) -> Demand:
    """The rollout's lengths against a training batch. Source: F1.8, renewal theory and order statistics."""
    prompts = distribution(rollout.prompt_tokens)
    responses = distribution(rollout.response_tokens)
    prompt, response = prompts.mean, responses.mean
    samples = batch_tokens / (rollout.filter_yield * (prompt + response))
    return Demand(
        batch_tokens=batch_tokens,
        prompt_tokens=prompt,
        prompt_keys=prompts.mean_rest,
        longest_prompt=prompts.longest,
        response_tokens=response,
        responses=responses,
        longest_response=responses.last_of(max(samples, 1.0)),
        most_tokens=prompts.longest + responses.longest,
        held_tokens=held_tokens(prompts, responses),
        samples=samples,
    )


@dataclass(frozen=True)
class Shape:
    """One cut of a replica and where it lies: its devices are consecutive, TP innermost."""

    tp: int
    dp: int
    ep: int
    rows: tuple[tuple[int, ...], tuple[int, ...]]
    """Over the levels: a TP group, and the whole replica."""

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return self.tp * self.dp

    def replicas(self, fabric: Fabric) -> int:
        """How many of them a pool holds: whole ones, side by side in each unit, around what is down."""
        if fabric.site is not None:
            site = fabric.site
            return block_count(site.tree, site.fan_outs(fabric.fan_outs), site.fan_outs(self.rows[1]))
        outside = zip(fabric.fan_outs, self.rows[1], strict=True)
        return math.prod(size // ways for size, ways in outside)


@dataclass(frozen=True)
class Offer:
    """One way to serve on one pool."""

    shape: Shape
    replicas: int
    prefill_replicas: int
    """Replicas for prompts alone; 0 where every replica does both."""
    sequences: int
    """Requests under way in a replica (that decodes)."""
    decode_s: float
    prefill_s: float
    """Of one prompt of mean length, the whole replica working on it."""
    token_s: float
    """Seconds per generated token as a request sees it."""
    tokens_per_s: float
    """Effective tokens of the whole pool: prompt and response, after the filter, switches apart."""
    generate_s: float
    """The longest request of a batch."""
    mean_s: float
    """A request of mean length."""
    lost_s: float
    apart_s: float
    drained_s: float
    weight_bytes: float
    cache_bytes: float
    buffer_bytes: float
    limit_bytes: float
    decode_parts_s: tuple[tuple[str, float], ...]


def filled(devices: int, fan_outs: tuple[int, ...]) -> tuple[int, ...] | None:
    """So many consecutive devices over the levels, innermost first; None where they fill no whole units."""
    row, left = [], devices
    for size in fan_outs:
        if left >= size and left % size:
            return None
        row.append(min(left, size))
        left //= row[-1]
    return tuple(row) if left == 1 else None


def shapes_of(model: Model, rollout: Rollout, fabric: Fabric) -> list[Shape]:
    """All cuts of a replica that the model and the pool allow, in order of devices."""
    found, offered = [], rollout.serving
    for tp in sorted(set(offered.tp)):
        for dp in sorted(set(offered.dp)):
            rows = filled(tp, fabric.fan_outs), filled(tp * dp, fabric.fan_outs)
            if model.heads % tp or rows[0] is None or rows[1] is None:
                continue
            found += [Shape(tp, dp, ep, (rows[0], rows[1])) for ep in _expert_ways(model, tp * dp, offered.ep)]
    return sorted(found, key=lambda shape: (shape.devices, shape.tp, shape.ep))


def _expert_ways(model: Model, devices: int, offered: list[int]) -> list[int]:
    if model.moe is None:
        return [1] if 1 in offered else []
    experts, width = model.moe.experts, model.moe.expert_ffn
    return [ep for ep in sorted(set(offered)) if devices % ep == 0 == experts % ep and width % (devices // ep) == 0]


@dataclass(frozen=True)
class _Curve:
    """A replica's rates over its batches; it does not depend on how many replicas there are."""

    sequences: Floats
    decode_s: Floats
    parts: dict[str, Floats]
    prefill_s: float
    weight_bytes: float
    buffer_bytes: float
    cache_bytes: float
    """Of one sequence of mean length, on one device."""
    limit_bytes: float
    handover_s: float
    """Sending the cache of one prompt, copies of attention side by side."""


def batches(most: int, dp: int) -> list[int]:
    """Requests per replica that are tried: 2^k and 3 x 2^k per copy of attention, and the most that fit."""
    each = most // dp
    steps = {step for power in range(each.bit_length()) for step in (1 << power, 3 << power) if step <= each}
    return [dp * step for step in sorted({*steps, each} - {0})]


def chunk_parts_s(facts: ServingFacts, shape: Shape, demand: Demand) -> tuple[float, dict[str, Floats]]:
    """Tokens of one chunk of prompts on every copy of attention, and its seconds in parts. Unit: tokens, s."""
    rows = {"tp": np.array(shape.rows[0]), "all": np.array(shape.rows[1])}
    chunk = float(shape.dp * facts.serving.prefill_chunk)
    return chunk, serving.forward_parts_s(
        shape.tp, shape.dp, shape.ep, chunk, shape.dp, demand.prompt_keys, demand.prompt_tokens / 2.0, rows,
        facts=facts, outputs=shape.dp,
    )  # fmt: skip


def _curve(facts: ServingFacts, shape: Shape, demand: Demand, versions: int) -> _Curve | None:
    cut = (shape.tp, shape.dp, shape.ep)
    most = serving.most_sequences(*cut, demand.held_tokens, demand.most_tokens, facts=facts, versions=versions)
    if most < shape.dp:
        return None
    sized: Any = {"model": facts.model, "serving": facts.serving}
    rows = {"tp": np.array(shape.rows[0]), "all": np.array(shape.rows[1])}
    tried = np.array(batches(most, shape.dp), dtype=np.float64)
    parts = serving.forward_parts_s(
        *cut, tried, tried, demand.held_tokens, demand.held_tokens, rows, facts=facts, outputs=tried
    )
    chunk, prompt = chunk_parts_s(facts, shape, demand)
    each = float(serving.cache_bytes_per_sequence(shape.tp, demand.held_tokens, **sized))
    outer = min(level.bytes_per_s for level in facts.fabric.levels) * facts.profile.point_to_point.peak
    handed = float(serving.cache_bytes_per_sequence(shape.tp, demand.prompt_tokens, **sized))
    return _Curve(
        sequences=tried,
        decode_s=np.asarray(sum(parts.values())),
        parts={name: np.broadcast_to(value, tried.shape) for name, value in parts.items()},
        prefill_s=float(sum(prompt.values())) * demand.prompt_tokens / chunk,
        weight_bytes=serving.weight_bytes(*cut, **sized),
        buffer_bytes=serving.buffer_bytes(*cut, **sized),
        cache_bytes=each,
        limit_bytes=serving.hbm_limit_bytes(facts),
        handover_s=handed / outer / shape.dp,
    )


class Server:
    """All ways to serve, for pools of one kind with any number of outer units; curves of replicas are kept."""

    def __init__(self, model: Model, rollout: Rollout, demand: Demand) -> None:
        self.model, self.rollout, self.demand = model, rollout, demand
        self._kept: dict[Any, _Curve | None] = {}
        self._rests: dict[float, tuple[float, float]] = {}
        self._rest_tokens = demand.responses.rest()

    def offers(self, facts: ServingFacts) -> list[Offer]:
        """Every way to serve on this pool that its memory and the concurrency allow."""
        found: list[Offer] = []
        for shape in shapes_of(self.model, self.rollout, facts.fabric):
            curve = self._curve(facts, shape)
            count = shape.replicas(facts.fabric)
            if curve is not None and count:
                found += self._offers(shape, curve, count)
        return found

    def _curve(self, facts: ServingFacts, shape: Shape) -> _Curve | None:
        # An outermost switch is the same to a replica whatever its size; other kinds change with it.
        outer = facts.fabric.levels[-1]
        device = facts.fabric.device
        key = (shape.tp, shape.dp, shape.ep, shape.rows, facts.fabric.levels[:-1], outer.kind, outer.bytes_per_s,
               device.name, device.hbm_bytes, device.hbm_bytes_per_s, *sorted(device.peak_flops.items()),
               facts.profile.name, outer.latency_s, outer.own_ports,
               outer.size if outer.kind != "switch" else 0)  # fmt: skip
        if key not in self._kept:
            versions = 2 if self.rollout.publishing.in_flight == "side-by-side" else 1
            self._kept[key] = _curve(facts, shape, self.demand, versions)
        return self._kept[key]

    def _offers(self, shape: Shape, curve: _Curve, count: int) -> list[Offer]:
        found = []
        for place, sequences in enumerate(curve.sequences):
            ways = _prefill_counts(curve, place, count, self.demand) if self.rollout.serving.prefill_decode_split else (
                [0]
            )  # fmt: skip
            for prompts in ways:
                if sequences * (count - prompts) <= self.rollout.concurrency:
                    found.append(self._offer(shape, curve, place, count, prompts))
        return found

    def _offer(self, shape: Shape, curve: _Curve, place: int, count: int, prompts: int) -> Offer:
        demand, sequences, decode_s = self.demand, float(curve.sequences[place]), float(curve.decode_s[place])
        prefill_s = 0.0 if prompts else curve.prefill_s
        rate, token_s = pacing.sample_rates(sequences, decode_s, prefill_s, demand.response_tokens)
        samples = rate * (count - prompts)
        if prompts:
            samples = min(samples, prompts / max(curve.prefill_s, curve.handover_s))
        first_s = shape.dp * (curve.prefill_s + (curve.handover_s if prompts else 0.0))
        rest, mean = self._rest(sequences)
        made = samples * (demand.prompt_tokens + demand.response_tokens) * self.rollout.filter_yield
        publishing = self.rollout.publishing
        kind, switch_s, rest_s = publishing.in_flight, publishing.switch, rest * token_s
        longest_s = first_s * demand.longest_prompt / demand.prompt_tokens + demand.longest_response * token_s
        return Offer(
            shape=shape,
            replicas=count,
            prefill_replicas=prompts,
            sequences=int(sequences),
            decode_s=decode_s,
            prefill_s=curve.prefill_s,
            token_s=token_s,
            tokens_per_s=made,
            generate_s=longest_s,
            mean_s=demand.response_tokens * token_s,
            lost_s=pacing.lost_s(kind, switch_s, longest_rest_s=rest_s, mean_rest_s=mean * token_s),
            apart_s=pacing.apart_s(
                kind,
                switch_s,
                longest_rest_s=rest_s,
                longest_s=longest_s,
                most_s=first_s * demand.longest_prompt / demand.prompt_tokens + demand.responses.longest * token_s,
            ),
            drained_s=rest_s if kind == "drain" else 0.0,
            weight_bytes=curve.weight_bytes * (2 if kind == "side-by-side" else 1),
            cache_bytes=curve.cache_bytes * sequences / shape.dp,
            buffer_bytes=curve.buffer_bytes,
            limit_bytes=curve.limit_bytes,
            decode_parts_s=tuple((name, float(value[place])) for name, value in curve.parts.items()),
        )

    def _rest(self, sequences: float) -> tuple[float, float]:
        """Longest and mean rest of so many requests met at a random moment, in tokens."""
        if sequences not in self._rests:
            self._rests[sequences] = self._rest_tokens.last_of(sequences), self.demand.responses.mean_rest
        return self._rests[sequences]


def _prefill_counts(curve: _Curve, place: int, count: int, demand: Demand) -> list[int]:
    """Replicas for prompts: the two whole numbers around the balance of both kinds; fewer or more make less."""
    prompt_s = max(curve.prefill_s, curve.handover_s)
    decode_s = demand.response_tokens * float(curve.decode_s[place] / curve.sequences[place])
    balance = count * prompt_s / (prompt_s + decode_s)
    return sorted({number for number in (math.floor(balance), math.ceil(balance)) if 0 < number < count})


def published_bytes(model: Model, rollout: Rollout) -> float:
    """One copy of all published weights and scales. Unit: bytes. Source: F1.7."""
    return serving.weight_bytes(1, 1, 1, model=model, serving=rollout.serving)
