"""The model inventory: the shape of one transformer, dense or mixture-of-experts.

Contents: Mla, SlidingWindow, Moe, Model.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from mapsearch.inventories.base import Inventory


class Mla(Inventory):
    """Multi-head latent attention widths (FORMULAS 3.1)."""

    kind: ClassVar[str] = "mla record"
    q_rank: int = Field(ge=0)
    """Rank of the compressed query; 0 when queries are projected directly."""
    kv_rank: int = Field(gt=0)
    nope_dim: int = Field(ge=0)
    rope_dim: int = Field(ge=0)
    value_dim: int = Field(gt=0)


class SlidingWindow(Inventory):
    """Layers whose attention sees only the last `size` tokens."""

    kind: ClassVar[str] = "sliding window"
    size: int = Field(gt=0)
    layers: int = Field(gt=0)
    """How many of the layers use the window; the others attend to the whole sequence."""
    chunked: bool = False
    """The window is a fixed chunk (Llama 4): a token sees its own chunk's earlier tokens only."""


class Moe(Inventory):
    """The routed and shared experts of a MoE layer."""

    kind: ClassVar[str] = "moe record"
    experts: int = Field(gt=0)
    top_k: int = Field(gt=0)
    expert_ffn: int = Field(gt=0)
    """FFN width of one routed expert."""
    shared_ffn: int = Field(default=0, ge=0)
    """Total FFN width of the shared experts, 0 for none."""
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    """Biases on both linear layers of each routed expert (gpt-oss)."""
    groups: int = Field(default=1, gt=0)
    """Expert groups of group-limited routing."""
    top_groups: int = Field(default=1, gt=0)
    """Groups a token may reach; equal to `groups` when routing is not limited."""

    @model_validator(mode="after")
    def _consistent(self) -> Moe:
        if self.top_k > self.experts:
            raise ValueError(f"top_k is {self.top_k}, but there are only {self.experts} experts")
        if self.experts % self.groups:
            raise ValueError(f"{self.experts} experts do not divide into {self.groups} groups")
        if self.top_groups > self.groups:
            raise ValueError(f"top_groups is {self.top_groups}, but there are only {self.groups} groups")
        return self


class Model(Inventory):
    """The shape of one model."""

    kind: ClassVar[str] = "model"
    name: str = Field(min_length=1)
    source: str = ""
    """Where the shape was published."""
    notes: list[str] = Field(default_factory=list)
    """What a reader of a foreign file left out, or took from that architecture's own defaults."""
    layers: int = Field(gt=0, le=10_000)
    """Transformer layers, MTP modules not counted."""
    hidden: int = Field(gt=0, le=10**6)
    heads: int = Field(gt=0, le=10**5)
    kv_heads: int = Field(gt=0, le=10**5)
    head_dim: int = Field(gt=0, le=10**5)
    attention: Literal["gqa", "mla"] = "gqa"
    """`gqa` covers multi-head (kv_heads = heads) and multi-query (kv_heads = 1) attention."""
    mla: Mla | None = None
    sliding_window: SlidingWindow | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    """Bias on the attention's output projection."""
    attention_sinks: bool = False
    """One learned logit per head that takes part in the softmax (gpt-oss)."""
    linear_bias: bool = False
    """Biases on every linear layer of attention and dense FFN (GPT-3 style)."""
    head_bias: bool = False
    """Bias on the output head."""
    qk_norm: bool = False
    qk_norm_width: Literal["head", "all"] = "head"
    """One norm weight per element of a head, or over all heads together (OLMoE, MiniMax-M2)."""
    norms_per_layer: int = Field(default=2, ge=1, le=8)
    norm_bias: bool = False
    """LayerNorm (weight and bias) instead of RMSNorm."""
    ffn: int = Field(default=0, ge=0, le=10**7)
    """FFN width of dense layers; 0 when there are none."""
    gated_ffn: bool = True
    """SwiGLU or GeGLU: three matrices; otherwise two."""
    moe: Moe | None = None
    dense_first: int = Field(default=0, ge=0)
    """Leading layers with a dense FFN."""
    moe_period: int = Field(default=1, gt=0)
    """After `dense_first`, every `moe_period`-th layer is MoE (the last of each period)."""
    vocab: int = Field(gt=0, le=10**8)
    tied_embeddings: bool = False
    learned_positions: int = Field(default=0, ge=0)
    """Rows of a learned position table, 0 for rotary positions."""
    mtp_layers: int = Field(default=0, ge=0)
    """Multi-token-prediction modules trained with the model; each one is a layer of the last kind."""
    nominal_parameters: float = Field(default=0.0, ge=0.0)
    """Parameters that the model is named after (5e12 for a "5T" model), 0 when not said; never used to compute."""
    max_sequence_length: int = Field(default=0, ge=0)
    """Longest sequence the model was published for, 0 when not said."""
    dropout: bool = False
    """Training with dropout: its masks are kept for backward."""

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if self.attention == "mla" and self.mla is None:
            raise ValueError("attention is 'mla', so the record 'mla' must be given")
        if self.attention == "mla" and (self.qk_norm or self.qkv_bias or self.output_bias or self.linear_bias):
            raise ValueError("qk_norm and biases are counted for 'gqa' only; MLA's own two norms are always counted")
        if self.attention == "gqa" and self.mla is not None:
            raise ValueError("attention is 'gqa', so the record 'mla' has no meaning; write attention: mla")
        if self.attention == "gqa" and self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) is not a multiple of kv_heads ({self.kv_heads})")
        if self.dense_first > self.layers:
            raise ValueError(f"dense_first is {self.dense_first}, but there are only {self.layers} layers")
        if "dense" in self.layer_kinds and self.ffn == 0:
            raise ValueError("ffn is missing: the model has dense layers and their FFN width is not given")
        if self.sliding_window and self.sliding_window.layers > self.layers:
            raise ValueError(f"sliding_window.layers is {self.sliding_window.layers} of {self.layers} layers")
        return self

    @cached_property
    def layer_kinds(self) -> tuple[Literal["dense", "moe"], ...]:
        """Kind of the FFN of each layer, in order."""
        kinds: list[Literal["dense", "moe"]] = ["dense"] * self.layers
        if self.moe is not None:
            first = self.dense_first + self.moe_period - 1
            kinds[first :: self.moe_period] = ["moe"] * len(kinds[first :: self.moe_period])
        return tuple(kinds)

    @cached_property
    def moe_layers(self) -> int:
        """MoE layers, MTP modules not counted."""
        return self.layer_kinds.count("moe")

    @cached_property
    def dense_layers(self) -> int:
        """Dense layers, MTP modules not counted."""
        return self.layer_kinds.count("dense")

    @property
    def qk_dim(self) -> int:
        """Width of one head's query and key."""
        return self.mla.nope_dim + self.mla.rope_dim if self.mla else self.head_dim

    @property
    def v_dim(self) -> int:
        """Width of one head's value."""
        return self.mla.value_dim if self.mla else self.head_dim

    @property
    def ffn_matrices(self) -> int:
        """Weight matrices of one FFN: 3 when gated, else 2."""
        return 3 if self.gated_ffn else 2
