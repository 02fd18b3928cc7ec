"""The ledger of one model: parameters, states, FLOP and KV cache, as data and as a screenful.

Contents: ModelLedger, model_ledger, ledger_lines, list_lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.text import Text

from mapsearch.costs import flops, memory
from mapsearch.costs.parameters import Ledger, ledger
from mapsearch.inventories.model import Model
from mapsearch.inventories.recipes import FP8_RECIPES, RECIPES
from mapsearch.inventories.run import Run, StateRecipe
from mapsearch.reports import human
from mapsearch.reports.layout import Column, flowed, grid, section

SCHEMA = "mapsearch.model-ledger/1"
DEFAULT_LENGTHS = (4096, 131072)


@dataclass(frozen=True)
class StateRow:
    """Bytes per local parameter of one recipe: `whole + divided / d` for each ZeRO stage."""

    recipe: str
    bytes_per_parameter: float
    total_bytes: float
    zero: tuple[tuple[float, float], ...]
    """Per ZeRO stage 0 to 3: what every rank keeps, and what is divided over d shards."""


@dataclass(frozen=True)
class LengthRow:
    """Model FLOP per token of training, and KV cache, at one sequence length."""

    sequence_length: int
    linear_flops: float
    router_flops: float
    attention_flops: float
    total_flops: float
    torchtitan_flops: float
    kv_cache_bytes: float


@dataclass(frozen=True)
class ModelLedger:
    """Everything that `mapsearch model show` prints."""

    model: Model
    parameters: Ledger
    states: tuple[StateRow, ...]
    lengths: tuple[LengthRow, ...]
    kv_bytes_per_token_and_layer: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON and YAML."""
        return {
            "schema": SCHEMA,
            "model": self.model.model_dump(mode="json", exclude_defaults=True),
            "parameters": {**asdict(self.parameters), "shared_ratio": self.parameters.shared_ratio},
            "states": [{**asdict(row), "zero": [list(pair) for pair in row.zero]} for row in self.states],
            "lengths": [asdict(row) for row in self.lengths],
            "kv_bytes_per_token_and_layer": self.kv_bytes_per_token_and_layer,
        }


def model_ledger(model: Model, lengths: Sequence[int] = DEFAULT_LENGTHS) -> ModelLedger:
    """The ledger of a model; FLOP and KV cache at each of the lengths."""
    counted = ledger(model=model)
    rows = [(name, state, "bf16") for name, state in RECIPES.items()]
    rows += [(name, state, "fp8-block") for name, state in FP8_RECIPES.items()]
    return ModelLedger(
        model=model,
        parameters=counted,
        states=tuple(
            _state_row(name, state, precision, counted.total + counted.mtp) for name, state, precision in rows
        ),
        lengths=tuple(_length_row(model, length) for length in lengths),
        kv_bytes_per_token_and_layer=float(flops.kv_cache_bytes_per_token(model=model)),
    )


def _state_row(name: str, state: StateRecipe, precision: str, parameters: float) -> StateRow:
    run = Run.model_validate({"sequence_length": 1, "global_batch": 1, "state": state, "precision": precision})
    shards, zero = np.array([[1.0], [np.inf]]), np.arange(4)
    each = sum(
        part(1.0, shards, zero, run=run)
        for part in (memory.weight_bytes, memory.gradient_bytes, memory.optimizer_bytes)
    )
    whole, kept = np.asarray(each)
    pairs = tuple((float(stays), float(all_ - stays)) for stays, all_ in zip(kept, whole, strict=True))
    return StateRow(name, float(whole[0]), float(whole[0]) * parameters, pairs)


def _length_row(model: Model, length: int) -> LengthRow:
    thrice = flops.BACKWARD_AND_FORWARD
    return LengthRow(
        sequence_length=length,
        linear_flops=float(thrice * flops.linear_flops(model=model)),
        router_flops=float(thrice * flops.router_flops(model=model)),
        attention_flops=float(thrice * flops.attention_core_flops(model=model, length=length)),
        total_flops=float(flops.training_flops_per_token(model=model, length=length)),
        torchtitan_flops=float(flops.torchtitan_flops_per_token(model=model, length=length)),
        kv_cache_bytes=float(flops.kv_cache_bytes(model=model, length=length)),
    )


def ledger_lines(shown: ModelLedger, *, width: int) -> list[Text]:
    """The ledger as styled lines."""
    model, counted = shown.model, shown.parameters
    active = f", {_parameters(counted.active)} active per token" if model.moe else ""
    head = flowed(f"{model.name}: {_parameters(counted.total)} parameters{active}", width=width)
    head[0].stylize("bold", 0, len(model.name))
    lines = [*head, *flowed(_shape_text(model), width=width, style="dim")]
    if model.source:
        lines += flowed(f"source: {model.source}", width=width, style="dim")
    for note in model.notes:
        lines += flowed(f"note: {note}", width=width, style="yellow")
    lines += section("Parameters", _parameter_grid(shown), width=width)
    lines += section("Three scales", _scale_lines(shown, width), width=width)
    title = "Model states, bytes per local parameter (d: ranks that share the state)"
    lines += section(title, _state_grid(shown), width=width)
    lines += section("Training FLOP per token, forward and backward, no recompute", _flop_grid(shown), width=width)
    return lines + section("KV cache, 2 bytes per element", _cache_lines(shown, width), width=width)


def _shape_text(model: Model) -> str:
    attention = f"{model.heads} heads, {model.kv_heads} KV heads of {model.head_dim}"
    if model.mla:
        attention = f"{model.heads} latent-attention heads of {model.qk_dim}/{model.v_dim}, KV rank {model.mla.kv_rank}"
    parts = [f"{model.layers} layers", f"hidden {model.hidden:,}", attention]
    if model.sliding_window:
        window = model.sliding_window
        kind = "chunks" if window.chunked else "a window"
        parts.append(f"{window.layers} layers see {kind} of {window.size:,} tokens")
    if model.dense_layers:
        parts.append(f"{model.dense_layers} dense FFNs of {model.ffn:,}")
    if model.moe:
        parts.append(f"{model.moe_layers} MoE FFNs of {model.moe.experts} experts, {model.moe.expert_ffn:,} wide")
        if model.moe.shared_ffn:
            parts.append(f"shared expert {model.moe.shared_ffn:,}")
    if model.mtp_layers:
        parts.append(f"{model.mtp_layers} MTP modules")
    parts.append(f"vocabulary {model.vocab:,}{' (tied)' if model.tied_embeddings else ''}")
    return " · ".join(parts)


def _parameter_grid(shown: ModelLedger) -> list[Text]:
    counted, model = shown.parameters, shown.model
    share = model.moe.top_k / model.moe.experts if model.moe else 1.0
    parts = [(name, value) for name, value in counted.parts.items() if value]
    active = [value * (share if name == "routed experts" else 1.0) for name, value in parts]
    rows = [
        *(
            (n, _parameters(v), _share(v / counted.total), _parameters(a))
            for (n, v), a in zip(parts, active, strict=True)
        ),
        ("total", _parameters(counted.total), "100.00 %", _parameters(counted.active)),
    ]
    if counted.mtp:
        rows.append(("MTP modules, beside these", _parameters(counted.mtp), "", ""))
    names, totals, shares, actives = zip(*rows, strict=True)
    columns = [Column("part", names, left=True), Column("parameters", totals), Column("share", shares)]
    if model.moe:
        columns.append(Column("active per token", actives))
    return grid(columns, indent=2)


def _scale_lines(shown: ModelLedger, width: int) -> list[Text]:
    counted, model = shown.parameters, shown.model
    sentences = [
        f"total {_parameters(counted.total)}, of which {_parameters(counted.shared)} "
        f"({_share(counted.shared_ratio)}) are in every token's path",
        f"active {_parameters(counted.active)}; {_parameters(counted.active_without_input_embedding)} without the "
        f"input embedding, {_parameters(counted.active_without_embeddings)} without both embeddings",
    ]
    if model.moe:
        total = counted.assignments_per_token * model.moe_layers
        sentences.append(
            f"assignments {counted.assignments_per_token} per token in each of {model.moe_layers} MoE layers, "
            f"{human.count(total)} in all: a token is not one assignment"
        )
    return [line for text in sentences for line in flowed(text, indent=2, width=width)]


def _state_grid(shown: ModelLedger) -> list[Text]:
    rows = shown.states
    columns = [Column("recipe", [row.recipe for row in rows], left=True)]
    for stage in range(4):
        columns.append(Column(f"ZeRO-{stage}" if stage else "none", [_per_parameter(*row.zero[stage]) for row in rows]))
    columns.append(Column("whole model", [human.amount(row.total_bytes) for row in rows]))
    return grid(columns, indent=2)


def _per_parameter(kept: float, divided: float) -> str:
    """`6 + 12/d` as FORMULAS 3.6 writes it."""
    parts = ([f"{kept:g}"] if kept else []) + ([f"{divided:g}/d"] if divided else [])
    return " + ".join(parts)


def _flop_grid(shown: ModelLedger) -> list[Text]:
    rows = shown.lengths
    columns = [
        Column("tokens", [f"{row.sequence_length:,}" for row in rows]),
        Column("linear", [_giga(row.linear_flops) for row in rows]),
        Column("router", [_giga(row.router_flops) for row in rows]),
        Column("attention", [_giga(row.attention_flops) for row in rows]),
        Column("total", [_giga(row.total_flops) for row in rows], style="bold"),
        Column("share", [_share(row.attention_flops / row.total_flops) for row in rows]),
        Column("torchtitan", [_giga(row.torchtitan_flops) for row in rows]),
    ]
    return grid(columns, indent=2)


def _parameters(value: float) -> str:
    """Four significant digits or so, in the units of published counts: `4.959 T`, `30.58 B`, `377.5 M`."""
    for factor, unit, digits in ((1e12, "T", 3), (1e9, "B", 2), (1e6, "M", 1), (1e3, "k", 1)):
        if value >= factor:
            return f"{value / factor:,.{digits}f} {unit}"
    return f"{value:,.0f}"


def _share(fraction: float) -> str:
    return f"{100 * fraction:.2f} %" if fraction >= 5e-5 or fraction == 0 else "<0.01 %"


def _giga(value: float) -> str:
    return f"{value / 1e9:,.1f} G"


def _cache_lines(shown: ModelLedger, width: int) -> list[Text]:
    layer = shown.kv_bytes_per_token_and_layer
    parts = [f"{_binary(layer)} per token and layer", f"{_binary(layer * shown.model.layers)} per token"]
    parts += [f"{_binary(row.kv_cache_bytes)} per sequence of {row.sequence_length:,}" for row in shown.lengths]
    return flowed(" · ".join(parts), indent=2, width=width, hang=0)


def _binary(value_bytes: float) -> str:
    """KiB, MiB, GiB: caches are sized in powers of two (FORMULAS 1.5)."""
    for factor, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value_bytes >= factor:
            return f"{value_bytes / factor:,.4g} {unit}"
    return f"{value_bytes:,.0f} B"


def list_lines(models: Sequence[Model]) -> list[Text]:
    """The catalogue as a table."""
    counts = [ledger(model=model) for model in models]
    columns = [
        Column("model", [model.name for model in models], left=True),
        Column("total", [_parameters(count.total) for count in counts]),
        Column("active", [_parameters(count.active) for count in counts]),
        Column("layers", [str(model.layers) for model in models]),
        Column("hidden", [f"{model.hidden:,}" for model in models]),
        Column("attention", [_attention_word(model) for model in models], left=True),
        Column("experts", [f"{model.moe.top_k} of {model.moe.experts}" if model.moe else "dense" for model in models]),
        Column("up to tokens", [f"{model.max_sequence_length:,}" for model in models]),
    ]
    return grid(columns)


def _attention_word(model: Model) -> str:
    kind = "MLA" if model.mla else "MHA" if model.heads == model.kv_heads else f"GQA {model.heads}/{model.kv_heads}"
    return f"{kind} + window" if model.sliding_window else kind
