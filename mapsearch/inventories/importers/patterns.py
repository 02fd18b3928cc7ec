"""Which layers are MoE, and which see a window, out of the many ways in which files say so.

Contents: moe_pattern, sliding_window.
"""

from __future__ import annotations

from typing import Any

from mapsearch.inventories.importers.families import Family
from mapsearch.inventories.importers.fields import Fields

_FULL, _SLIDING, _CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def moe_pattern(fields: Fields, layers: int) -> tuple[int, int, int]:
    """Leading dense layers, MoE period, and MoE layers in all. Raises InputError when no such pair says it."""
    kinds = [True] * layers
    reason = "first_k_dense_replace"
    frequency = fields.get("moe_layer_freq")
    if isinstance(frequency, list):
        kinds, reason = _flags(fields, "moe_layer_freq", frequency, layers), "moe_layer_freq"
    elif frequency is not None:
        step = fields.whole("moe_layer_freq")
        kinds = [i % step == 0 for i in range(layers)]
        reason = "moe_layer_freq"
    for key in ("decoder_sparse_step", "interleave_moe_layer_step"):
        if fields.get(key) is not None:
            step, reason = fields.whole(key), key
            kinds = [kind and (i + 1) % step == 0 for i, kind in enumerate(kinds)]
    if fields.get("expert_layer_period") is not None:
        step, offset, reason = (
            fields.whole("expert_layer_period"),
            fields.whole("expert_layer_offset", least=0),
            "expert_layer_period",
        )
        kinds = [i % step == offset for i in range(layers)]
    listed = fields.get("moe_layers")
    if listed is not None:
        chosen, reason = _indices(fields, "moe_layers", listed, layers), "moe_layers"
        kinds = [i in chosen for i in range(layers)]
    only_dense = fields.get("mlp_only_layers")
    if only_dense:
        chosen, reason = _indices(fields, "mlp_only_layers", only_dense, layers), "mlp_only_layers"
        kinds = [kind and i not in chosen for i, kind in enumerate(kinds)]
    first = fields.whole("first_k_dense_replace", default=0, least=0)
    if first > layers:
        raise fields.problem("first_k_dense_replace", f"is {first} of {layers} layers")
    kinds = [kind and i >= first for i, kind in enumerate(kinds)]
    return _as_period(fields, kinds, reason)


def _as_period(fields: Fields, kinds: list[bool], reason: str) -> tuple[int, int, int]:
    layers, where = len(kinds), [i for i, kind in enumerate(kinds) if kind]
    if not where:
        return layers, 1, 0
    period = where[1] - where[0] if len(where) > 1 else layers - where[0]
    dense_first = where[0] - period + 1
    if dense_first >= 0 and where == list(range(where[0], layers, period)):
        return dense_first, period, len(where)
    raise fields.problem(
        reason,
        "its MoE layers do not follow as 'some dense layers, then the last of every n', "
        "and other patterns cannot be represented",
    )


def _flags(fields: Fields, key: str, values: Any, layers: int) -> list[bool]:
    if not isinstance(values, list) or len(values) != layers or any(value not in (0, 1) for value in values):
        raise fields.problem(key, f"must hold {layers} zeros and ones, one for each layer")
    return [bool(value) for value in values]


def _indices(fields: Fields, key: str, values: Any, layers: int) -> set[int]:
    good = isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < layers for value in values
    )
    if not good:
        raise fields.problem(key, f"must list layer numbers from 0 to {layers - 1}")
    return set(values)


def sliding_window(fields: Fields, family: Family, layers: int) -> dict[str, Any] | None:
    """The record of windowed layers, or None. Raises InputError for layer kinds that cannot be represented."""
    size = fields.get("sliding_window", "sliding_window_size")
    # Files carry a chunk size beside a sliding window of the same size; it speaks when layers are chunked.
    chunk = fields.get("attention_chunk_size")
    last_full = fields.get("max_window_layers")
    used = fields.flag("use_sliding_window", default=True)
    types = fields.get("layer_types")
    pattern = fields.get("hybrid_layer_pattern")
    if pattern is not None:
        flags = _flags(fields, "hybrid_layer_pattern", pattern, layers)
        types = [_SLIDING if flag else _FULL for flag in flags]
    if types is None and family.owner == "Llama 4" and chunk is not None:
        types = _llama4_types(fields, layers)
    if types is not None:
        return _by_types(fields, types, layers)
    if size is None and chunk is not None:
        raise fields.problem(
            "attention_chunk_size", f"is {chunk!r}, but no key says which layers use it; add layer_types"
        )
    if size is None or not used:
        return None
    width = fields.whole("sliding_window", "sliding_window_size")
    if family.window == "all":
        return {"size": width, "layers": layers}
    if family.window == "alternate":
        fields.notes.append(f"layer_types is not in the file; {family.owner}'s own rule, every other layer, is used")
        return {"size": width, "layers": (layers + 1) // 2}
    if family.window == "after" and last_full is not None:
        count = layers - min(layers, fields.whole("max_window_layers", least=0))
        return {"size": width, "layers": count} if count else None
    raise fields.problem("sliding_window", f"is {width}, but no key says which layers use it; add layer_types")


def _llama4_types(fields: Fields, layers: int) -> list[str]:
    """Llama 4: layers without rotary positions attend to everything, the others within their chunk."""
    no_rope = fields.get("no_rope_layers")
    if no_rope:
        return [_CHUNKED if flag else _FULL for flag in _flags(fields, "no_rope_layers", no_rope, layers)]
    step = fields.whole("no_rope_layer_interval", default=4)
    fields.by_class("no_rope_layer_interval", 4, "Llama 4")
    return [_CHUNKED if (i + 1) % step else _FULL for i in range(layers)]


def _by_types(fields: Fields, types: Any, layers: int) -> dict[str, Any] | None:
    if not isinstance(types, list) or len(types) != layers:
        count = len(types) if isinstance(types, list) else "no list"
        raise fields.problem("layer_types", f"must name {layers} layers, not {count}")
    types = [str(kind) for kind in types]
    kinds = set(types)
    strange = sorted(kinds - {_FULL, _SLIDING, _CHUNKED})
    if strange:
        raise fields.problem(
            "layer_types",
            f"has {types.count(strange[0])} layers of {strange[0]!r}, whose cost is not represented; "
            f"accepted: {_FULL}, {_SLIDING} or {_CHUNKED}",
        )
    if {_SLIDING, _CHUNKED} <= kinds:
        raise fields.problem("layer_types", "mixes sliding and chunked windows, which cannot be represented")
    if kinds == {_FULL}:
        return None
    chunked = _CHUNKED in kinds
    size = fields.whole("attention_chunk_size") if chunked else fields.whole("sliding_window", "sliding_window_size")
    return {"size": size, "layers": types.count(_CHUNKED if chunked else _SLIDING), "chunked": chunked}
