"""The model of a case: by its name where that is known, else from the case's own numbers.

Contents: Shape, shape_of, KNOWN.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from mapsearch import documents
from mapsearch.costs.parameters import ledger
from mapsearch.errors import InputError
from mapsearch.inventories.case import CaseModel
from mapsearch.inventories.model import Model
from mapsearch.inventories.models import load_model, model_names
from mapsearch.judging.words import billions_in, said

ALSO = {
    "qwen3vl235b": "qwen3-235b",
    "qwen3vl30b": "qwen3-30b-a3b",
    "qwen330b": "qwen3-30b-a3b",
    "qwen3next": "qwen3-next-80b-a3b",
    "qwen3coder480b": "qwen3-coder-480b-a35b",
    "qwen3coder30b": "qwen3-30b-a3b",
    "qwen3535b": "qwen3.5-35b-a3b",
    "qwen35122b": "qwen3.5-122b-a10b",
    "qwen35397b": "qwen3.5-397b-a17b",
    "deepseekmoe16b": "deepseek-v2-lite",
    "deepseekv316b": "deepseek-v2-lite",
    "deepseekr1": "deepseek-v3",
    "dsv3": "deepseek-v3",
    "dsv2": "deepseek-v2",
    "moonlight": "moonlight-16b-a3b",
    "glm46": "glm-4.5",
    "hy3": "hy3",
    "kimik2": "kimi-k2",
    "gptoss": "gpt-oss-120b",
    "llama7b": "llama-2-7b",
    "llama13b": "llama-2-13b",
    "llama30b": "llama-33b",
    "llama4scout": "llama-4-scout",
    "llama370b": "llama-3.1-70b",
    "llama38b": "llama-3.1-8b",
    "llama3370b": "llama-3.1-70b",
    "gpt3175b": "gpt3-175b",
    "bloom": "bloom-176b",
}
"""Names that say a model of the catalogue or of shapes.yaml, without punctuation; a family alone is its largest."""
VOCABULARY, HEAD = 128_000, 128
"""Assumed where a case gives only sizes: the vocabulary of recent models, and the width of a head."""


@dataclass(frozen=True)
class Shape:
    """What is known of a model."""

    model: Model | None
    """Complete, where name or numbers allow that."""
    said: dict[str, int]
    """The whole numbers that the case itself gives."""
    billions: float | None
    notes: tuple[str, ...] = ()

    def fact(self, name: str) -> int | None:
        """A number by the case, else by the known model: layers, heads, kv_heads, experts, topk, vocab, ..."""
        if name in self.said:
            return self.said[name]
        if self.model is None:
            return None
        moe = self.model.moe
        routed = {"experts": moe.experts if moe else 0, "topk": moe.top_k if moe else 0}
        value = routed[name] if name in routed else getattr(self.model, name, None)
        return int(value) if value is not None else None

    @property
    def has_experts(self) -> bool | None:
        """Whether it is a mixture of experts; None when nothing says so."""
        if self.model is not None:
            return self.model.moe is not None
        return self.said["experts"] > 0 if "experts" in self.said else None


@lru_cache(1)
def _shapes() -> dict[str, dict[str, Any]]:
    text = (resources.files("mapsearch.judging") / "catalogue" / "shapes.yaml").read_text(encoding="utf-8")
    shapes: dict[str, dict[str, Any]] = documents.parse(text, file="shapes (built in)")
    return shapes


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@lru_cache(1)
def _names() -> dict[str, str]:
    own = {_plain(name): name for name in (*_shapes(), *model_names())}
    return {**own, **ALSO}


@lru_cache(64)
def known_model(name: str) -> Model:
    """A model of shapes.yaml or of the catalogue."""
    if name in _shapes():
        shape = {key: value for key, value in _shapes()[name].items() if key != "billions"}
        return Model.model_validate({"name": name, **shape})
    return load_model(name)


def _found(name: str) -> str | None:
    words = _plain(name)
    hits = [key for key in _names() if key in words]
    return _names()[max(hits, key=len)] if hits else None


def shape_of(case: CaseModel) -> Shape:
    """The model as far as the case says it or its name is known."""
    keys = ("layers", "dense_layers", "hidden", "heads", "kv_heads", "ffn", "experts", "topk", "expert_ffn", "vocab")
    numbers = {key: found.value for key in keys if (found := said(getattr(case, key))) is not None}
    name = str(case.name or "")
    billions = float(case.params_b) if isinstance(case.params_b, int | float) else billions_in(name)
    known = _found(name)
    cut = re.search(r"first (\d+) layers", name)
    if cut:
        numbers["layers"] = int(cut[1])
    notes: list[str] = []
    model = None
    if known is not None:
        model = _overlaid(known_model(known), numbers)
        notes.append(f"{name} is taken as {known}" + ("" if model else ", whose shape the case's numbers contradict"))
    if model is None:
        model = _built(name, numbers, billions)
        if model is not None:
            how = "vocabulary and heads as far as said" if _spelled(numbers) else "FFN by its parameters (assumed)"
            notes.append(f"{name or 'the model'} is completed from its numbers: {how}")
    return Shape(model, numbers, billions, tuple(notes))


def _overlaid(model: Model, numbers: dict[str, int]) -> Model | None:
    """The known model with what the case says in place of its own; None when that is no model."""
    renamed = {"dense_layers": "dense_first"}
    plain = ("layers", "hidden", "heads", "kv_heads", "vocab", "ffn", "dense_layers")
    changes: dict[str, Any] = {renamed.get(key, key): numbers[key] for key in plain if key in numbers}
    if model.mla is not None:
        changes.pop("kv_heads", None)
    if model.moe is not None:
        routed = {"experts": "experts", "topk": "top_k", "expert_ffn": "expert_ffn"}
        inner = {routed[key]: numbers[key] for key in routed if key in numbers}
        if inner.get("experts", model.moe.experts) != model.moe.experts:
            inner |= {"groups": 1, "top_groups": 1}
        changes["moe"] = {**model.moe.model_dump(), **inner}
    changes["dense_first"] = min(changes.get("dense_first", model.dense_first), changes.get("layers", model.layers))
    try:
        return model.replaced(**changes)
    except InputError:
        return None


def _built(name: str, numbers: dict[str, int], billions: float | None) -> Model | None:
    """A model from sizes alone; without any but its parameters, that of the nearest known dense model, scaled."""
    if billions is None and not _spelled(numbers):
        return None
    if not {"layers", "hidden"} <= set(numbers):
        return _nearest(name, numbers, billions) if billions and not numbers.get("experts") else None
    layers, hidden = numbers["layers"], numbers["hidden"]
    heads = numbers.get("heads") or max(1, hidden // HEAD)
    experts = numbers.get("experts", 0)
    shape: dict[str, Any] = {
        "name": name or "model",
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": numbers.get("kv_heads", heads),
        "head_dim": HEAD if hidden // heads < HEAD // 2 else hidden // heads,
        "vocab": numbers.get("vocab", VOCABULARY),
    }
    width = numbers.get("expert_ffn") if experts else numbers.get("ffn")
    for _ in range(2):
        try:
            model = Model.model_validate({**shape, **_ffn(experts, numbers, width or 64)})
        except ValueError:
            return None
        if width or billions is None:
            return model
        left = billions * 1e9 - ledger(model=model).total
        width = max(64, 64 + 64 * round(left / (3 * hidden * max(experts, 1) * layers) / 64))
    return model


def _spelled(numbers: dict[str, int]) -> bool:
    """Whether the sizes alone say how large the model is, but for its vocabulary."""
    return {"layers", "hidden", "expert_ffn" if numbers.get("experts") else "ffn"} <= set(numbers)


def _ffn(experts: int, numbers: dict[str, int], width: int) -> dict[str, Any]:
    if not experts:
        return {"ffn": width}
    top = min(numbers.get("topk", 2), experts)
    return {"moe": {"experts": experts, "top_k": top, "expert_ffn": width}}


DENSE = ("qwen3-8b", "qwen3-14b", "qwen3-32b", "qwen2.5-72b", "llama-3.1-405b")


def _nearest(name: str, numbers: dict[str, int], billions: float) -> Model | None:
    counted = {known: ledger(model=known_model(known)).total / 1e9 for known in DENSE}
    near = min(DENSE, key=lambda known: abs(counted[known] / billions - 1.0))
    model = known_model(near)
    layers = max(1, round(model.layers * billions / counted[near]))
    return _overlaid(model.replaced(name=name or near, layers=layers), {**numbers, **_counted(numbers, layers)})


def _counted(numbers: dict[str, int], layers: int) -> dict[str, int]:
    return {"layers": numbers.get("layers", layers)}
