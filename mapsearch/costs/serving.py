"""One replica that serves a model: memory, and seconds of a forward pass (FORMULAS 1.4, 1.5, 1.7).

Contents: ServingFacts, touched_experts, scale_bytes, weight_bytes, cache_bytes_per_sequence, buffer_bytes,
hbm_limit_bytes, most_sequences, forward_parts_s, PARTS.

A replica is TP x DP devices: attention is split over TP and copied DP times, each copy with its own requests; the
experts of a layer are spread over all of them, EP ways by expert and TP x DP / EP ways by width. Devices are
consecutive, TP innermost; of the experts' axes the width is innermost.
Ignores: attention's second pass of a split softmax, sampling, speculative decoding, prefix caches, skew of experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mapsearch.costs import flops, parameters
from mapsearch.costs.collectives import all_reduce_s, all_to_all_s
from mapsearch.costs.publishing import FORMATS, publish_bytes
from mapsearch.costs.routing import distinct_units, routed
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.rollout import Serving
from mapsearch.quantity import Floats, Num
from mapsearch.topologies.fabric import Fabric

HALF_BYTES = 2.0
"""Activations, embeddings, norms and router stay in BF16."""
LOGIT_BYTES = 4.0
"""Logits are sampled in FP32."""
PARTS = ("linear", "attention", "experts", "all-to-all", "all-reduce", "head", "launch")


@dataclass(frozen=True)
class ServingFacts:
    """What a replica is costed with."""

    model: Model
    serving: Serving
    fabric: Fabric
    profile: Profile


def touched_experts(tokens: Num, *, model: Model) -> Floats:
    """Experts of one layer whose weights a pass over `tokens` tokens reads: E [1 - (1 - K/E)^n], uniform routing.

    Unit: experts. Source: F1.4 (n tokens draw K of E each).
    """
    moe = routed(model)
    return np.asarray(moe.experts * (1.0 - (1.0 - moe.top_k / moe.experts) ** np.asarray(tokens, dtype=np.float64)))


def _quantised(tp: int, dp: int, ep: int, model: Model) -> float:
    """Parameters on the fullest device of a replica that are served in the format of the weights."""
    linear = model.layers * float(parameters.attention_parameters(tp, model=model))
    linear += model.dense_layers * float(parameters.dense_ffn_parameters(tp, model=model))
    linear += model.moe_layers * float(parameters.shared_expert_parameters(tp, model=model))
    return linear + model.moe_layers * float(parameters.expert_parameters(tp * dp // ep, ep, model=model))


def scale_bytes(tp: int, dp: int, ep: int, *, model: Model, serving: Serving) -> float:
    """Scales among the weights on the fullest device of a replica. Axes: tp, dp, ep. Unit: bytes. Source: F1.7."""
    linear, weights = _quantised(tp, dp, ep, model), FORMATS[serving.weights]
    return float(publish_bytes(linear, weights)) - linear * weights.weight_bytes


def weight_bytes(tp: int, dp: int, ep: int, *, model: Model, serving: Serving) -> float:
    """Weights and scales on the fullest device of a replica; embeddings, head, norms and router in BF16.

    Axes: tp, dp, ep. Unit: bytes. Source: F1.7, F3.1. Ignores: scales of edge blocks; MTP modules, which are
    not served.
    """
    linear = _quantised(tp, dp, ep, model)
    plain = model.layers * float(parameters.norm_parameters(model=model))
    plain += model.moe_layers * float(parameters.router_parameters(model=model))
    plain += float(parameters.embedding_parameters(tp, model=model) + parameters.output_parameters(tp, model=model))
    plain -= float(parameters.tied_copy_parameters(tp, 1, model=model))
    return float(publish_bytes(linear, FORMATS[serving.weights])) + HALF_BYTES * plain


def cache_bytes_per_sequence(tp: int, held: Num, *, model: Model, serving: Serving) -> Floats:
    """KV cache of one sequence of `held` tokens on one device: GQA heads are split over TP, MLA's latent is copied.

    Axes: tp. Unit: bytes. Source: F1.5.
    """
    whole = np.asarray(flops.kv_cache_bytes(model=model, length=held, element_bytes=serving.kv_bytes))
    return whole if model.mla is not None else whole / min(tp, model.kv_heads)


def buffer_bytes(tp: int, dp: int, ep: int, *, model: Model, serving: Serving) -> float:
    """Largest set of tensors that a pass over one chunk of prompts holds beside weights and cache.

    Hidden state and residual of the chunk, and the wider of attention's projections and the experts' rows with what
    was sent and received for them; logits of as many sequences as a chunk has are never held. Unit: bytes.
    Source: F3.3, forward only.
    """
    chunk = float(serving.prefill_chunk)
    heads = (model.heads * model.qk_dim + 2.0 * model.kv_heads * model.v_dim) / tp
    widest = heads
    if model.moe is not None:
        rows = model.moe.top_k / tp  # every copy's chunk is sent once, and spread evenly over the same devices
        split = tp * dp / ep
        widest = max(widest, rows * (2.0 * model.hidden + model.ffn_matrices * model.moe.expert_ffn / split))
    if model.ffn:
        widest = max(widest, model.ffn_matrices * model.ffn / tp)
    return HALF_BYTES * chunk * (2.0 * model.hidden + widest)


def hbm_limit_bytes(facts: ServingFacts) -> float:
    """What one device has for weights, cache and buffers: HBM less context, then the reserve. Unit: bytes. F1.1."""
    device, profile = facts.fabric.device, facts.profile
    usable = device.hbm_bytes - profile.runtime_bytes - 3.0 * profile.communicator_bytes
    return (1.0 - facts.serving.reserve) * usable


def most_sequences(
    tp: int, dp: int, ep: int, held: float, longest: float, *, facts: ServingFacts, versions: int = 1
) -> int:
    """Sequences under way in a replica whose caches fit, `held` tokens each on average; 0 when even one does not.

    The one longest sequence must fit beside the weights too; `versions` of the weights are held.
    Axes: tp, dp, ep. Unit: sequences. Source: F1.5, F1.7.
    """
    shape: Any = {"model": facts.model, "serving": facts.serving}
    held_bytes = versions * weight_bytes(tp, dp, ep, **shape) + buffer_bytes(tp, dp, ep, **shape)
    free = hbm_limit_bytes(facts) - held_bytes
    each = float(cache_bytes_per_sequence(tp, held, **shape))
    longest_bytes = float(cache_bytes_per_sequence(tp, longest, **shape))
    return dp * int(free // each) if free >= max(each, longest_bytes) else 0


def _roofline_s(facts: ServingFacts, read_bytes: Num, work: Num, efficiency: float, number_format: str) -> Floats:
    """The longer of reading from memory and computing. Unit: s."""
    device, profile = facts.fabric.device, facts.profile
    share = profile.fp8_share if number_format == "fp8" else profile.fp4_share if number_format == "fp4" else 1.0
    reading = np.asarray(read_bytes, dtype=np.float64) / (device.hbm_bytes_per_s * profile.memory_bandwidth)
    return np.maximum(reading, np.asarray(work) / (device.peak(number_format) * share * efficiency))


def forward_parts_s(
    tp: int, dp: int, ep: int, tokens: Num, sequences: Num, keys: Num, held: Num, rows: dict[str, Floats], *,
    facts: ServingFacts, outputs: Num,
) -> dict[str, Floats]:  # fmt: skip
    """Seconds of one forward pass of a whole replica, in parts: decode of a batch, or one chunk of prompts.

    Axes: tp, dp, ep; `tokens` new ones and `sequences` whose cache is read, over the replica; `keys` that a token sees
    and tokens `held` in each cache; `outputs` tokens that get logits; `rows`: a TP group (tp) and the whole replica
    (all) over the levels.
    Each part is the longer of memory and compute; expert weights are read as far as touched; the all-to-all sends a
    token once to each distinct rank (F1.4) and takes it back in BF16; TP adds two all-reduces per layer.
    Unit: s. Source: F1.4, F1.5, F3.2, F4.1.
    """
    model, serving, profile = facts.model, facts.serving, facts.profile
    weights = FORMATS[serving.weights]
    scaled: Any = {"fabric": facts.fabric, "profile": profile}
    linear = model.layers * float(parameters.attention_parameters(tp, model=model))
    linear += model.dense_layers * float(parameters.dense_ffn_parameters(tp, model=model))
    linear += model.moe_layers * float(parameters.shared_expert_parameters(tp, model=model))
    local = np.asarray(tokens, dtype=np.float64) / dp
    read = float(publish_bytes(linear, weights))
    parts = {"linear": _roofline_s(facts, read, 2.0 * local * linear, profile.gemm.peak, serving.gemm_format)}
    per_key = 2.0 * model.heads * (model.qk_dim + model.v_dim) / tp
    core = local * per_key * np.asarray(flops.mean_attended_keys(2.0 * np.asarray(keys), model=model)) * model.layers
    cache = np.asarray(sequences) / dp * cache_bytes_per_sequence(tp, held, model=model, serving=serving)
    parts["attention"] = _roofline_s(facts, cache, core, profile.attention_forward.peak, "bf16")
    parts |= _expert_parts_s(tp, dp, ep, tokens, rows, facts)
    payload = HALF_BYTES * local * model.hidden
    parts["all-reduce"] = 2.0 * model.layers * all_reduce_s(payload, rows["tp"], **scaled)
    head = float(parameters.output_parameters(tp, model=model))
    logits = np.asarray(outputs, dtype=np.float64) / dp
    parts["head"] = _roofline_s(facts, HALF_BYTES * head, 2.0 * logits * head, profile.gemm.peak, "bf16")
    parts["launch"] = np.asarray(model.layers * profile.kernels_per_layer * profile.kernel_launch)
    return parts


def _expert_parts_s(
    tp: int, dp: int, ep: int, tokens: Num, rows: dict[str, Floats], facts: ServingFacts
) -> dict[str, Floats]:
    """Routed experts and their all-to-all of all layers."""
    model, serving, profile = facts.model, facts.serving, facts.profile
    if model.moe is None:
        return {"experts": np.asarray(0.0), "all-to-all": np.asarray(0.0)}
    devices, count = tp * dp, np.asarray(tokens, dtype=np.float64)
    one = float(parameters.expert_parameters(devices // ep, model.moe.experts, model=model))
    touched = touched_experts(count, model=model) / ep
    work = 2.0 * count * model.moe.top_k / ep * one
    read = touched * float(publish_bytes(one, FORMATS[serving.weights]))
    compute = _roofline_s(facts, read, work, profile.grouped_gemm.peak, serving.gemm_format)
    copies = float(distinct_units(ep, model=model)) * (devices // ep)
    moved = [
        all_to_all_s(count / devices * copies * model.hidden * each, rows["all"], fabric=facts.fabric, profile=profile)
        for each in (serving.dispatch_bytes, HALF_BYTES)
    ]
    return {"experts": model.moe_layers * compute, "all-to-all": model.moe_layers * (moved[0] + moved[1])}
