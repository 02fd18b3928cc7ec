"""What the code of each published architecture fixes and its configuration file does not say.

Contents: Family, FAMILIES, GENERIC, HARMLESS, HARMLESS_PATTERN, REFUSED.

Each row restates the architecture's modelling code in the transformers library or its model repository.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    """Facts of one architecture that hold whatever its configuration says."""

    owner: str
    """Its name in notes and messages."""
    known: bool = True
    expert_width: Literal["moe_intermediate_size", "intermediate_size"] = "moe_intermediate_size"
    """The key that holds the FFN width of one routed expert."""
    attention_bias: Literal["qkv", "qkvo", "unknown"] = "qkvo"
    """Which projections `attention_bias: true` means."""
    qk_norm: Literal["flag", "always", "never"] = "flag"
    qk_norm_width: Literal["head", "all"] = "head"
    qkv_bias_always: bool = False
    window: Literal["all", "after", "alternate", "unknown"] = "unknown"
    """Layers that `sliding_window` means when no list says so: all, those from max_window_layers on, every other."""
    gated: bool | None = True
    """Whether the FFN is gated; None when only the activation's name can tell."""
    sinks: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    shared_always: bool = False
    """One shared expert as wide as a routed one, which the file does not mention (Llama 4)."""
    shared_gate: bool = False
    norm_bias: bool = False
    defaults: dict[str, Any] = field(default_factory=dict)
    """The configuration class's own defaults for keys that files leave out; using one is noted."""


_UNTIED: dict[str, Any] = {"tie_word_embeddings": False, "hidden_act": "silu"}


def _qwen3(owner: str) -> Family:
    return Family(owner, qk_norm="always", window="after", defaults=_UNTIED)


def _deepseek(owner: str) -> Family:
    return Family(owner, attention_bias="unknown", qk_norm="never", defaults=_UNTIED)


FAMILIES: dict[str, Family] = {
    "llama": Family("Llama", qk_norm="never", defaults=_UNTIED),
    "mistral": Family("Mistral", qk_norm="never", window="all", defaults=_UNTIED),
    "mixtral": Family("Mixtral", expert_width="intermediate_size", qk_norm="never", window="all", defaults=_UNTIED),
    "qwen2": Family("Qwen2", qk_norm="never", qkv_bias_always=True, window="after", defaults=_UNTIED),
    "qwen2_moe": Family(
        "Qwen2-MoE", qk_norm="never", qkv_bias_always=True, window="after", shared_gate=True, defaults=_UNTIED
    ),
    "qwen3": _qwen3("Qwen3"),
    "qwen3_moe": _qwen3("Qwen3-MoE"),
    "qwen3_vl_text": _qwen3("Qwen3-VL"),
    "qwen3_vl_moe_text": _qwen3("Qwen3-VL-MoE"),
    "deepseek_v2": _deepseek("DeepSeek-V2"),
    "deepseek_v3": _deepseek("DeepSeek-V3"),
    "deepseek_v32": _deepseek("DeepSeek-V3.2"),
    "kimi_k2": _deepseek("Kimi K2"),
    "gpt_oss": Family(
        "gpt-oss",
        expert_width="intermediate_size",
        qk_norm="never",
        window="alternate",
        sinks=True,
        router_bias=True,
        expert_bias=True,
        defaults={"tie_word_embeddings": False, "hidden_act": "silu", "attention_bias": True},
    ),
    # Llama 4 normalises queries and keys without weights, so `use_qk_norm` adds no parameter.
    "llama4_text": Family(
        "Llama 4", expert_width="intermediate_size", qk_norm="never", shared_always=True, defaults=_UNTIED
    ),
    "phimoe": Family(
        "Phi-3.5-MoE",
        expert_width="intermediate_size",
        qk_norm="never",
        window="all",
        norm_bias=True,
        defaults={**_UNTIED, "attention_bias": False, "lm_head_bias": False},
    ),
    "minimax_m2": Family("MiniMax-M2", expert_width="intermediate_size", qk_norm_width="all", defaults=_UNTIED),
    "bailing_moe": Family("Ling", attention_bias="unknown", defaults=_UNTIED),
    "bailing_moe_v2": Family("Ling 2", attention_bias="unknown", defaults=_UNTIED),
    "glm4_moe": Family("GLM-4.5", attention_bias="qkv", defaults=_UNTIED),
    "olmoe": Family("OLMoE", expert_width="intermediate_size", qk_norm="always", qk_norm_width="all", defaults=_UNTIED),
}
"""By `model_type`."""

GENERIC = Family("this architecture", known=False, attention_bias="unknown", gated=None)
"""A `model_type` that is not known: only what the file says, and every default must be in it."""

REFUSED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^(mamba|ssm|rwkv|conv)_|^attn_layer_(period|offset)$"), "has state-space (Mamba-like) layers"),
    (re.compile(r"^(linear_|full_attention_interval$|lin_attn|attn_type_list$|gdn_)"), "has linear-attention layers"),
    (re.compile(r"^index_(topk|n_heads|head_dim)$"), "has sparse attention that picks its keys with an indexer"),
    (re.compile(r"^(compress_ratios|sparse_attention|nsa_|moba_|sparse_block)"), "has compressed or sparse attention"),
    (re.compile(r"^hc_mult$|^hyper_connection"), "widens its residual stream (hyper-connections)"),
    (re.compile(r"^attn_output_gate$"), "gates its attention output with a further projection"),
    (re.compile(r"^(encoder_layers|decoder_layers|num_decoder_layers)$"), "has an encoder and a decoder"),
)
"""Keys of layers whose cost is not represented, and what they say about the model."""

HARMLESS = frozenset(
    """architectures auto_map transformers_version torch_dtype dtype model_type use_cache initializer_range
    rope_theta rope_scaling rope_parameters rotary_dim rotary_pct partial_rotary_factor rope_interleave
    rms_norm_eps layer_norm_eps layernorm_epsilon norm_topk_prob scoring_func seq_aux routed_scaling_factor
    aux_loss_alpha router_aux_loss_coef output_router_logits pretraining_tp quantization_config ep_size
    initial_context_length original_max_position_embeddings swiglu_limit input_jitter_noise norm_head norm_softmax
    topk_method use_routing_bias use_moe_router_bias moe_router_scaling_factor moe_router_enable_expert_bias
    id2label label2id pruned_heads return_dict top_k top_p temperature max_length min_length num_beams
    num_beam_groups num_return_sequences diversity_penalty length_penalty repetition_penalty early_stopping
    is_decoder no_repeat_ngram_size num_labels problem_type task_specific_params typical_p use_bfloat16
    for_llm_compressor floor_scale attn_scale attn_temperature_tuning expert_dtype unsloth_fixed use_return_dict
    router_bias_update_rate n_ctx clip_qkv rope swa_rope_theta attention_value_scale""".split()  # noqa: SIM905 - a table of words
)
"""Keys without effect on parameters, memory or time of training. The bias that balances sigmoid routers is set
outside the optimizer and holds E numbers; it is not counted."""

HARMLESS_PATTERN = re.compile(
    r"^_|_token_ids?$|_token_index$|_idx$|_loss_|_init_|_eps$|_dropout(_prob)?$|_pdrop$|_std$"
)
