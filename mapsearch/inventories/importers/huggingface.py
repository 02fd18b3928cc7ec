"""Reader of Hugging Face `config.json` files.

Contents: LOOKED_FOR, detect, read.

Every key is read, known to have no effect, or refused by name; a default is taken only where the architecture's
own configuration class has it, and then it is noted in the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mapsearch.inventories.base import validate
from mapsearch.inventories.importers import families
from mapsearch.inventories.importers.families import Family
from mapsearch.inventories.importers.fields import Fields, overlaid
from mapsearch.inventories.importers.patterns import moe_pattern, sliding_window
from mapsearch.inventories.model import Model

LOOKED_FOR = ("architectures", "model_type", "hidden_size", "num_hidden_layers")
_ODD = ("n_embd", "emb_size", "text_config", "language_config", "llm_config")
_NESTED = ("text_config", "language_config", "llm_config")
_GATED = ("silu", "swiglu", "swigluoai", "geglu", "swish")

_LAYERS = ("num_hidden_layers", "num_layers", "n_layer")
_HIDDEN = ("hidden_size", "emb_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "num_q_heads", "n_head")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
_HEAD_DIM = ("head_dim", "key_size")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k", "num_selected_experts")
_LENGTH = ("max_position_embeddings", "sequence_len", "n_positions")


def detect(document: Any) -> bool:
    """Whether the document looks like a Hugging Face configuration."""
    return isinstance(document, dict) and any(key in document for key in (*LOOKED_FOR, *_ODD))


def read(document: Mapping[str, Any], *, file: str, completed: Mapping[str, Any] | None = None) -> Model:
    """The model that a configuration describes. `completed` lies over the file's own keys; null takes one away.

    Raises MissingFact naming the absent fields, or InputError naming one that cannot be represented.
    """
    given = dict(completed or {})
    nested = next((key for key in _NESTED if isinstance(document.get(key), dict)), None)
    notes: list[str] = []
    inner = overlaid(document[nested] if nested else document, given)
    if nested:
        inner.setdefault("tie_word_embeddings", given.get("tie_word_embeddings", document.get("tie_word_embeddings")))
        left_out = [key for key in document if key.endswith("_config") and key not in (nested, "quantization_config")]
        others = f" ({', '.join(left_out)})" if left_out else ""
        notes.append(f"only the language model ({nested}) is read; the vision or audio parts{others} are left out")
    fields = Fields(inner, file=file, path=f"{nested}." if nested else "")
    fields.notes.extend(notes)
    _refuse_unrepresented(fields, inner)
    family = _family(fields, inner)
    fields = _with_defaults(fields, inner, family)
    shape = _shape(fields, family)
    fields.finish(families.HARMLESS, families.HARMLESS_PATTERN)
    named = Path(file).name.removesuffix(".json").removesuffix(".config")
    name = named if named not in ("config", "") else Path(file).resolve().parent.name
    architecture = document.get("architectures") or [document.get("model_type") or "no architecture named"]
    source = f"{Path(file).name} ({architecture[0] if isinstance(architecture, list) else architecture})"
    return validate(Model, {"name": name, "source": source, "notes": fields.notes, **shape}, file=file)


def _refuse_unrepresented(fields: Fields, data: Mapping[str, Any]) -> None:
    for pattern, meaning in families.REFUSED:
        for key, value in data.items():
            if value not in (None, False, [], 0) and pattern.search(str(key)):
                raise fields.problem(str(key), f"the model {meaning}, whose cost is not represented")


def _family(fields: Fields, data: Mapping[str, Any]) -> Family:
    kind = data.get("model_type")
    names = data.get("architectures")
    if kind == "bailing_moe" and isinstance(names, list) and "BailingMoeV2ForCausalLM" in names:
        kind = "bailing_moe_v2"
    family = families.FAMILIES.get(str(kind))
    if family is None:
        family = families.GENERIC
        fields.notes.append(
            f"model_type {kind!r} is not one whose code is known: norms and biases that its keys do not mention are "
            "not counted, and its FFN is taken as gated"
        )
    return family


def _with_defaults(fields: Fields, data: Mapping[str, Any], family: Family) -> Fields:
    """The same fields with the architecture's own defaults under them, each noted when it is used."""
    absent = {key: value for key, value in family.defaults.items() if data.get(key) is None}
    for key, value in absent.items():
        fields.by_class(key, value, family.owner)
    return fields.over(absent)


def _shape(fields: Fields, family: Family) -> dict[str, Any]:
    layers = fields.whole(*_LAYERS, most=10_000)
    hidden, _ = fields.whole(*_HIDDEN), fields.whole(*_HEADS)
    if fields.get(*_EXPERTS):
        fields.whole(*_TOP_K)
    fields.require()
    shape: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "vocab": fields.whole("vocab_size"),
        "tied_embeddings": fields.flag("tie_word_embeddings"),
        "head_bias": fields.flag("lm_head_bias", default=False),
        "max_sequence_length": fields.whole(*_LENGTH, default=0, least=0),
        "norm_bias": family.norm_bias,
        "mtp_layers": _mtp_layers(fields),
        "gated_ffn": _gated(fields, family),
        "sliding_window": sliding_window(fields, family, layers),
    }
    shape |= _attention(fields, family, hidden)
    shape |= _ffn(fields, family, layers)
    rates = [fields.get(key, default=0) for key in ("attention_dropout", "hidden_dropout", "resid_pdrop")]
    shape["dropout"] = any(rates)
    return shape


def _gated(fields: Fields, family: Family) -> bool:
    if family.gated is not None:
        fields.get("hidden_act")
        return family.gated
    activation = fields.need("hidden_act")
    if activation is not None and str(activation) not in _GATED:
        raise fields.problem(
            "hidden_act",
            f"is {activation!r}, which does not say whether the FFN is gated; accepted: {', '.join(_GATED)}",
        )
    return True


def _mtp_layers(fields: Fields) -> int:
    if not fields.flag("use_mtp", default=True):
        fields.get("num_mtp_modules", "mtp_transformer_layers")
        return 0
    if fields.whole("mtp_transformer_layers", default=1) != 1:
        raise fields.problem("mtp_transformer_layers", "modules of more than one layer are not represented")
    return fields.whole("num_nextn_predict_layers", "num_mtp_modules", default=0, least=0)


def _attention(fields: Fields, family: Family, hidden: int) -> dict[str, Any]:
    heads = fields.whole(*_HEADS)
    biased = fields.flag("attention_bias", default=False)
    qkv = fields.flag("use_qkv_bias", "qkv_bias", default=family.qkv_bias_always)
    output = fields.flag("use_bias", default=False)
    if fields.flag("mlp_bias", default=False):
        raise fields.problem("mlp_bias", "biases of gated dense FFNs are not represented")
    if fields.get("kv_lora_rank") is not None:
        if biased or qkv or output:
            raise fields.problem("attention_bias", "biases of latent attention are not represented")
        return _latent_attention(fields, heads)
    if biased and family.attention_bias == "unknown":
        raise fields.problem(
            "attention_bias", f"is true, and which projections have it is not known for {family.owner}"
        )
    kv_heads = fields.whole(*_KV_HEADS, default=heads)
    shape: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads, "head_dim": _head_dim(fields, hidden, heads)}
    _refuse_unlike_layers(fields, shape)
    normed = fields.flag("use_qk_norm", "qk_layernorm", default=False)
    width = "all" if fields.get("qk_norm_type") == "per_layer" else family.qk_norm_width
    return {
        **shape,
        "qkv_bias": qkv or (biased and family.attention_bias in ("qkv", "qkvo")),
        "output_bias": output or (biased and family.attention_bias == "qkvo"),
        "attention_sinks": family.sinks,
        "qk_norm": family.qk_norm == "always" or (family.qk_norm == "flag" and normed),
        "qk_norm_width": width,
    }


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if fields.get(*_HEAD_DIM) is not None:
        return fields.whole(*_HEAD_DIM)
    if hidden % heads:
        fields.missing.append("head_dim")  # hidden / heads is not whole, so it is no width
    return max(1, hidden // heads)


def _latent_attention(fields: Fields, heads: int) -> dict[str, Any]:
    nope, rope = fields.whole("qk_nope_head_dim"), fields.whole("qk_rope_head_dim")
    fields.get("head_dim", "qk_head_dim")  # repeats of the widths above
    if fields.whole(*_KV_HEADS, default=heads) != heads:
        raise fields.problem(_KV_HEADS[0], "differs from num_attention_heads, which latent attention does not allow")
    return {
        "attention": "mla",
        "heads": heads,
        "kv_heads": heads,
        "head_dim": nope + rope,
        "mla": {
            "q_rank": fields.whole("q_lora_rank", default=0, least=0),
            "kv_rank": fields.whole("kv_lora_rank"),
            "nope_dim": nope,
            "rope_dim": rope,
            "value_dim": fields.whole("v_head_dim"),
        },
    }


def _refuse_unlike_layers(fields: Fields, shape: dict[str, Any]) -> None:
    """One attention shape holds for all layers, and values are as wide as keys."""
    value_dim = fields.whole("v_head_dim", default=shape["head_dim"])
    for key, own, name in (
        ("swa_num_attention_heads", "heads", _HEADS[0]),
        ("swa_num_key_value_heads", "kv_heads", _KV_HEADS[0]),
        ("swa_head_dim", "head_dim", _HEAD_DIM[0]),
    ):
        value = fields.whole(key, default=shape[own])
        if value != shape[own]:
            raise fields.problem(
                key, f"is {value}, but {name} is {shape[own]}; layers of unlike attention shapes are not represented"
            )
    swa_value = fields.whole("swa_v_head_dim", default=value_dim)
    if value_dim != shape["head_dim"] or swa_value != value_dim:
        raise fields.problem(
            "v_head_dim", f"is {value_dim}, but head_dim is {shape['head_dim']}; only latent attention may differ there"
        )
    if fields.flag("add_swa_attention_sink_bias", "add_full_attention_sink_bias", default=False):
        raise fields.problem("add_swa_attention_sink_bias", "attention sinks of some layers only are not represented")


def _ffn(fields: Fields, family: Family, layers: int) -> dict[str, Any]:
    experts = fields.get(*_EXPERTS)
    if not experts:
        return {"ffn": fields.whole("intermediate_size")}
    dense_first, period, count = moe_pattern(fields, layers)
    fields.get("widening_factor")  # grok-1's multiplier; its rounding is in code, so the width itself must be given
    if family.expert_width == "intermediate_size":
        width = fields.whole("intermediate_size")
        fields.get("moe_intermediate_size")
        dense_width = fields.whole("intermediate_size_mlp") if count < layers else 0
        fields.get("intermediate_size_mlp")
    else:
        # One width for all FFNs is what an unknown architecture says that has MoE layers only and names one width.
        alone = not family.known and count == layers and fields.get("moe_intermediate_size") is None
        width = fields.whole("intermediate_size" if alone else "moe_intermediate_size")
        dense_width = fields.whole("intermediate_size") if count < layers else 0
        fields.get("intermediate_size")
    groups = fields.whole("n_group", default=1)
    top_groups = fields.whole("topk_group") if groups > 1 else 1
    fields.get("topk_group")
    moe = {
        "experts": fields.whole(*_EXPERTS),
        "top_k": fields.whole(*_TOP_K),
        "expert_ffn": width,
        "shared_ffn": _shared_width(fields, family, width),
        "shared_gate": family.shared_gate,
        "router_bias": family.router_bias,
        "expert_bias": family.expert_bias,
        "groups": groups,
        "top_groups": top_groups,
    }
    return {"moe": moe, "ffn": dense_width, "dense_first": dense_first, "moe_period": period}


def _shared_width(fields: Fields, family: Family, expert_width: int) -> int:
    if family.shared_always:
        return expert_width
    count = fields.whole("n_shared_experts", "num_shared_experts", default=0, least=0)
    keys = ("shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size")
    total = fields.get(*keys, "moe_shared_expert_intermediate_size")
    if total is None:
        return count * expert_width
    width = fields.whole(*keys, "moe_shared_expert_intermediate_size", least=0)
    if count > 1:
        raise fields.problem("n_shared_experts", f"is {count} beside a shared width of {width}: of one or of all?")
    return width
