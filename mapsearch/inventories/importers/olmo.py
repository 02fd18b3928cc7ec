"""Reader of OLMo training files (YAML): the `model` section, whose names are OLMo's own.

Contents: LOOKED_FOR, detect, read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mapsearch.inventories.base import validate
from mapsearch.inventories.importers.fields import Fields, overlaid
from mapsearch.inventories.model import Model

LOOKED_FOR = ("model.d_model", "model.n_layers")
_GATED = "swiglu"
_HARMLESS = frozenset(
    """flash_attention layer_norm_with_affine attention_layer_norm_with_affine init_device init_fn init_std
    init_cutoff_factor moe_dropless moe_mlp_impl moe_zloss_weight moe_loss_weight rope alibi attention_dropout
    residual_dropout embedding_dropout layer_norm_eps rope_full_precision rope_theta scale_logits precision""".split()  # noqa: SIM905 - words
)


def detect(document: Any) -> bool:
    """Whether the document is an OLMo training file."""
    return isinstance(document, dict) and isinstance(document.get("model"), dict) and "d_model" in document["model"]


def read(document: Mapping[str, Any], *, file: str, completed: Mapping[str, Any] | None = None) -> Model:
    """The model of a training file; run settings beside it are left out. Raises InputError or MissingFact."""
    fields = Fields(overlaid(document["model"], completed or {}), file=file, path="model.")
    hidden, heads = fields.whole("d_model"), fields.whole("n_heads")
    if hidden % heads:
        raise fields.problem("n_heads", f"is {heads}, which does not divide d_model ({hidden})")
    if fields.flag("include_bias", default=False) or fields.flag("bias_for_layer_norm", default=False):
        raise fields.problem("include_bias", "biases of this format are not represented")
    norm = fields.need("layer_norm_type")
    if norm not in ("rms", None):
        raise fields.problem("layer_norm_type", f"is {norm!r}; accepted: rms")
    if not fields.flag("rope", default=False):
        raise fields.problem("rope", "only rotary positions are represented")
    kv_heads = 1 if fields.flag("multi_query_attention", default=False) else heads
    shape = {
        "name": Path(file).stem,
        "source": f"{Path(file).name} (OLMo training file)",
        "layers": fields.whole("n_layers", most=10_000),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": fields.whole("n_kv_heads", default=kv_heads),
        "head_dim": hidden // heads,
        "qk_norm": fields.flag("attention_layer_norm", default=False),
        "qk_norm_width": "all",
        # The table has `embedding_size` rows: the vocabulary and its padding, all of them trained.
        "vocab": fields.whole("embedding_size") if fields.get("embedding_size") else fields.whole("vocab_size"),
        "tied_embeddings": fields.flag("weight_tying"),
        "max_sequence_length": fields.whole("max_sequence_length", default=0, least=0),
        "dropout": bool(fields.get("attention_dropout", default=0) or fields.get("residual_dropout", default=0)),
        **_ffn(fields, hidden),
    }
    fields.get("vocab_size")
    fields.finish(_HARMLESS, re.compile(r"_token_id$"))
    notes = ["only the section 'model' is read; the run settings of the file are left out", *fields.notes]
    return validate(Model, {**shape, "notes": notes}, file=file)


def _ffn(fields: Fields, hidden: int) -> dict[str, Any]:
    activation = fields.need("activation_type")
    if activation not in (_GATED, None):
        raise fields.problem("activation_type", f"is {activation!r}; accepted: {_GATED}")
    direct = fields.get("mlp_hidden_size")
    both_halves = fields.whole("mlp_hidden_size") if direct is not None else hidden * fields.whole("mlp_ratio")
    # OLMo counts both halves of a gated FFN in its width.
    width = both_halves // 2
    fields.get("mlp_ratio")
    block = fields.need("block_type")
    if block == "moe":
        experts, top_k = fields.whole("moe_num_experts"), fields.whole("moe_top_k")
        return {"moe": {"experts": experts, "top_k": top_k, "expert_ffn": width}}
    if block not in ("sequential", None):
        raise fields.problem("block_type", f"is {block!r}; accepted: moe or sequential")
    return {"ffn": width}
