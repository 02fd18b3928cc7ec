"""Foreign model files: small configurations written for these tests, in the styles that published files use."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mapsearch.costs.parameters import ledger
from mapsearch.errors import InputError, MissingFact
from mapsearch.inventories.importers import huggingface, olmo
from mapsearch.inventories.model import Model
from mapsearch.inventories.models import load_model, model_names

DENSE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "vocab_size": 512,
}
MIXTRAL = {**DENSE, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN = {
    **DENSE,
    "model_type": "qwen3_moe",
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "sliding_window": None,
    "max_window_layers": 4,
    "use_sliding_window": False,
}
DEEPSEEK = {
    **DENSE,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 16,
    "n_shared_experts": 2,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 4,
    "topk_group": 2,
    "num_nextn_predict_layers": 1,
}
GPT_OSS = {
    **MIXTRAL,
    "model_type": "gpt_oss",
    "attention_bias": True,
    "experts_per_token": 2,
    "head_dim": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 16,
}
LLAMA4 = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "model_type": "llama4",
    "vision_config": {"hidden_size": 9},
    "text_config": {
        **{key: value for key, value in MIXTRAL.items() if key != "tie_word_embeddings"},
        "model_type": "llama4_text",
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 320,
        "attention_chunk_size": 32,
        "use_qk_norm": True,
    },
}
OLMO = {
    "run_name": "${oc.env:JOB}",
    "model": {
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 3,
        "mlp_ratio": 1,
        "weight_tying": False,
        "rope": True,
        "attention_layer_norm": True,
        "include_bias": False,
        "block_type": "moe",
        "layer_norm_type": "rms",
        "activation_type": "swiglu",
        "vocab_size": 500,
        "embedding_size": 512,
        "moe_top_k": 2,
        "moe_num_experts": 8,
    },
}


def read(document: dict[str, Any], **changes: Any) -> Model:
    return huggingface.read({**document, **changes}, file="tiny/config.json")


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


def test_dense() -> None:
    model = read(DENSE)
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim) == (4, 64, 8, 2, 8)
    assert model.ffn == 160 and model.moe is None and model.vocab == 512 and not model.notes
    assert model.name == "tiny" and "LlamaForCausalLM" in model.source


def test_expert_width_is_the_ffn_width_in_mixtral_style() -> None:
    model = read(MIXTRAL)
    assert model.moe is not None and (model.moe.experts, model.moe.top_k, model.moe.expert_ffn) == (8, 2, 160)
    assert model.moe_layers == 4 and model.ffn == 0


def test_qwen3_style_has_head_norms_and_its_own_head_width() -> None:
    model = read(QWEN)
    assert model.moe is not None and model.moe.expert_ffn == 32
    assert model.head_dim == 16 and model.qk_norm and model.qk_norm_width == "head" and not model.qkv_bias


def test_deepseek_style() -> None:
    """Latent attention, shared experts of n times the routed width, leading dense layers, groups, MTP."""
    model = read(DEEPSEEK)
    assert model.mla is not None and model.moe is not None
    assert (model.mla.q_rank, model.mla.kv_rank, model.qk_dim, model.v_dim) == (24, 16, 12, 8)
    assert (model.moe.shared_ffn, model.moe.groups, model.moe.top_groups) == (64, 4, 2)
    assert model.layer_kinds == ("dense", "moe", "moe", "moe") and model.ffn == 160 and model.mtp_layers == 1
    assert read(DEEPSEEK, q_lora_rank=None).mla.q_rank == 0  # type: ignore[union-attr]


def test_gpt_oss_style() -> None:
    """Biases of attention, router and experts, sinks, and half of the layers windowed."""
    model = read(GPT_OSS)
    assert model.sliding_window is not None and (model.sliding_window.size, model.sliding_window.layers) == (16, 2)
    assert model.qkv_bias and model.output_bias and model.attention_sinks
    assert model.moe is not None and model.moe.router_bias and model.moe.expert_bias
    alternate = huggingface.read(without(GPT_OSS, "layer_types"), file="config.json")
    assert alternate.sliding_window == model.sliding_window
    assert any("layer_types" in note for note in alternate.notes)


def test_llama4_style() -> None:
    """Nested text part, MoE every second layer, an unmentioned shared expert, chunks in three layers of four."""
    model = huggingface.read(LLAMA4, file="config.json")
    assert model.layer_kinds == ("dense", "moe", "dense", "moe") and model.ffn == 320
    assert model.moe is not None and model.moe.expert_ffn == model.moe.shared_ffn == 160
    assert model.sliding_window is not None and model.sliding_window.chunked
    assert (model.sliding_window.size, model.sliding_window.layers) == (32, 3)
    assert not model.qk_norm  # its query and key norms have no weights
    assert any("vision_config" in note for note in model.notes)
    assert any("tie_word_embeddings" in note for note in model.notes)


def test_outer_tying_holds_for_the_nested_part() -> None:
    assert huggingface.read({**LLAMA4, "tie_word_embeddings": True}, file="config.json").tied_embeddings


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"decoder_sparse_step": 2}, "dmdm"),
        ({"mlp_only_layers": [0, 1]}, "ddmm"),
        ({"first_k_dense_replace": 3}, "dddm"),
        ({"moe_layer_freq": [0, 1, 1, 1]}, "dmmm"),
        ({"moe_layer_freq": [0, 0, 0, 0]}, "dddd"),
        ({"moe_layers": [1, 3]}, "dmdm"),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, "dmdm"),
    ],
)
def test_patterns_of_moe_layers(changes: dict[str, Any], kinds: str) -> None:
    model = huggingface.read({**without(QWEN, "decoder_sparse_step"), **changes}, file="config.json")
    assert "".join(kind[0] for kind in model.layer_kinds) == kinds


def test_windows_from_a_layer_on() -> None:
    model = read(QWEN, use_sliding_window=True, sliding_window=16, max_window_layers=3)
    assert model.sliding_window is not None and model.sliding_window.layers == 1
    assert read(QWEN, sliding_window=16).sliding_window is None  # switched off
    everywhere = read(DENSE, model_type="mistral", sliding_window=16).sliding_window
    assert everywhere is not None and everywhere.layers == 4


def test_minimax_style() -> None:
    """Norms over all heads together, and MTP modules under their own names."""
    model = read(
        MIXTRAL,
        model_type="minimax_m2", use_qk_norm=True, qk_norm_type="per_layer", use_mtp=True, num_mtp_modules=3,
        mtp_transformer_layers=1, shared_intermediate_size=0, rotary_dim=4, use_routing_bias=True,
    )  # fmt: skip
    assert model.qk_norm and model.qk_norm_width == "all" and model.mtp_layers == 3
    assert read(MIXTRAL, model_type="minimax_m2", use_mtp=False, num_mtp_modules=3).mtp_layers == 0


@pytest.mark.parametrize(
    ("base", "changes", "field", "words"),
    [
        (QWEN, {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, "layer_types", "3 layers of 'linear_a"),
        (QWEN, {"full_attention_interval": 4}, "full_attention_interval", "linear-attention"),
        (MIXTRAL, {"model_type": "jamba", "attn_layer_period": 8}, "attn_layer_period", "state-space"),
        (DEEPSEEK, {"index_topk": 2048}, "index_topk", "indexer"),
        (DEEPSEEK, {"compress_ratios": [128, 4]}, "compress_ratios", "compressed"),
        (DEEPSEEK, {"attention_bias": True}, "attention_bias", "latent attention"),
        (DEEPSEEK, {"num_key_value_heads": 2}, "num_key_value_heads", "differs"),
        (DENSE, {"swa_num_key_value_heads": 4}, "swa_num_key_value_heads", "is 4, but num_key_value_heads is 2"),
        (DENSE, {"v_head_dim": 4}, "v_head_dim", "only latent attention"),
        (DENSE, {"mlp_bias": True}, "mlp_bias", "not represented"),
        (DENSE, {"sliding_window": 16}, "sliding_window", "which layers"),
        (QWEN, {"attention_chunk_size": 32}, "attention_chunk_size", "which layers"),
        (QWEN, {"layer_types": ["full_attention"] * 3}, "layer_types", "must name 4 layers, not 3"),
        (QWEN, {"moe_layer_freq": [0, 1]}, "moe_layer_freq", "must hold 4"),
        (QWEN, {"moe_layers": [0, 3]}, "moe_layers", "other patterns"),
        (QWEN, {"mlp_only_layers": [9]}, "mlp_only_layers", "from 0 to 3"),
        (QWEN, {"first_k_dense_replace": 5}, "first_k_dense_replace", "is 5 of 4"),
        (GPT_OSS, {"experts_per_token": 3}, "experts_per_token", "is 3, but num_experts_per_tok says 2"),
        (DENSE, {"hidden_size": "large"}, "hidden_size", "not a whole number"),
        (DENSE, {"hidden_size": -64}, "hidden_size", "least accepted is 1"),
        (DENSE, {"num_hidden_layers": 10**12}, "num_hidden_layers", "most accepted is 10,000"),
        (DENSE, {"tie_word_embeddings": 1}, "tie_word_embeddings", "neither true nor false"),
        (DENSE, {"mystery_width": 7}, "mystery_width", "not understood"),
        (DENSE, {"mystery_switch": True}, "mystery_switch", "not understood"),
    ],
)
def test_refusals_name_file_field_and_reason(
    base: dict[str, Any], changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(base, **changes)
    message = str(caught.value)
    assert message.startswith(f"tiny/config.json: {field}: ") and words in message and "\n" not in message


@pytest.mark.parametrize(
    ("base", "keys", "named"),
    [
        (DENSE, ("hidden_size",), "hidden_size"),
        (DENSE, ("num_hidden_layers", "num_attention_heads"), "num_hidden_layers and num_attention_heads"),
        (MIXTRAL, ("num_experts_per_tok",), "num_experts_per_tok"),
        (QWEN, ("moe_intermediate_size",), "moe_intermediate_size"),
        (DEEPSEEK, ("v_head_dim",), "v_head_dim"),
        (DEEPSEEK, ("topk_group",), "topk_group"),
        ({**DENSE, "hidden_size": 60}, (), "head_dim"),
        ({**DENSE, "model_type": "novel"}, ("tie_word_embeddings", "hidden_act"), "tie_word_embeddings and hidden_act"),
    ],
)
def test_missing_fields_are_named_together(base: dict[str, Any], keys: tuple[str, ...], named: str) -> None:
    with pytest.raises(MissingFact) as caught:
        read(without(base, *keys))
    assert str(caught.value).startswith(f"tiny/config.json: {named}: ")


def test_defaults_of_a_known_class_are_noted() -> None:
    model = huggingface.read(without(MIXTRAL, "tie_word_embeddings"), file="config.json")
    assert not model.tied_embeddings and any("tie_word_embeddings" in note for note in model.notes)


def test_odd_names_are_read_and_completed() -> None:
    """grok-1's own names: its FFN width is computed in code, so the file alone does not suffice."""
    grok = {
        "emb_size": 64, "num_q_heads": 8, "num_kv_heads": 2, "key_size": 8, "num_layers": 4, "vocab_size": 512,
        "num_experts": 8, "num_selected_experts": 2, "widening_factor": 8, "sequence_len": 128,
    }  # fmt: skip
    with pytest.raises(MissingFact, match="tie_word_embeddings, hidden_act and intermediate_size"):
        huggingface.read(grok, file="grok.json")
    given = {"tie_word_embeddings": True, "hidden_act": "geglu", "intermediate_size": 344}
    model = huggingface.read(grok, file="grok.json", completed=given)
    assert model.moe is not None and model.moe.expert_ffn == 344 and model.max_sequence_length == 128
    assert any("not one whose code is known" in note for note in model.notes)


def test_null_takes_a_key_away() -> None:
    model = huggingface.read({**DENSE, "mystery": 3}, file="config.json", completed={"mystery": None})
    assert model.layers == 4


def test_olmo_file() -> None:
    """Its width counts both halves of the gate; its table has `embedding_size` rows; norms span all heads."""
    model = olmo.read(OLMO, file="tiny.yml")
    assert model.moe is not None and model.moe.expert_ffn == 32 and model.vocab == 512
    assert model.qk_norm and model.qk_norm_width == "all" and model.kv_heads == 4
    totals = ledger(model=model)
    layer = 4 * 64 * 64 + 2 * 64 + 8 * 3 * 64 * 32 + 64 * 8 + 2 * 64
    assert totals.total == 3 * layer + 2 * 512 * 64 + 64


@pytest.mark.parametrize(
    ("key", "value"), [("activation_type", "gelu"), ("block_type", "llama"), ("rope", False), ("layer_norm_type", "x")]
)
def test_olmo_refusals(key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"model.{key}"):
        olmo.read({"model": {**OLMO["model"], key: value}}, file="tiny.yml")


def test_format_is_found_by_content(tmp_path: Path) -> None:
    hf, native, own = tmp_path / "a.json", tmp_path / "b.yml", tmp_path / "c.yaml"
    hf.write_text(json.dumps(DENSE))
    native.write_text(yaml.safe_dump(OLMO))
    own.write_text(yaml.safe_dump(load_model("llama-3.1-8b").model_dump(mode="json", exclude_defaults=True)))
    assert load_model(str(hf)).hidden == 64
    assert load_model(str(native)).name == "b"
    assert load_model(str(own)) == load_model("llama-3.1-8b")


def test_a_file_that_is_no_model_says_what_was_looked_for(tmp_path: Path) -> None:
    other = tmp_path / "cluster.yaml"
    other.write_text("levels: []\ndevice: {}\n")
    with pytest.raises(InputError) as caught:
        load_model(str(other))
    for word in ("cluster.yaml", "levels or device", "layers", "model_type", "model.d_model"):
        assert word in str(caught.value)
    listed = tmp_path / "list.yaml"
    listed.write_text("- 1\n")
    with pytest.raises(InputError, match="holds a list"):
        load_model(str(listed))


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'mixtral-8x7b'"):
        load_model("mixtral-8x7")


def test_catalogue_is_complete_and_sourced() -> None:
    names = model_names()
    assert {"moe-5t", "deepseek-v3", "kimi-k2", "gpt3-175b"} <= set(names)
    for name in names:
        model = load_model(name)
        assert model.name == name and len(model.source) > 20 and model.max_sequence_length > 0
