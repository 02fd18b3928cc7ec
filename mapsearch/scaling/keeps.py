"""What a small run can have in common with a full one, quantity by quantity.

Contents: Keep, KEEPS, crossing, crosses, keeps_of.

Values are compared between the two runs; what a kernel or a collective sees is what counts, not what the model is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mapsearch.axes import SIZES
from mapsearch.constraints.placement import side_of
from mapsearch.costs.estimate import Point, number
from mapsearch.costs.volumes import dispatch_element_bytes, ep_payload_bytes, kv_block_bytes
from mapsearch.relation import Relation

Value = tuple[float | str, ...]
ROUNDING = 1e-12
"""What is left where parts of a sum should cancel: a bubble of 1e-15 s is none."""


@dataclass(frozen=True)
class Keep:
    """One quantity: how it is computed, and what keeping it is good for."""

    name: str
    domain: int
    value: Callable[[Point], Value]
    unit: str
    confirms: str
    matters: Callable[[Point], bool] = lambda _full: True
    """Whether the full run has it at all."""
    axis: str = ""
    """Whose levels it compares; empty for what no placement changes."""

    def shown(self, point: Point) -> str:
        """The value in words."""
        parts = [one if isinstance(one, str) else f"{one:,.6g}" for one in self.value(point)]
        return f"{' x '.join(parts)} {self.unit}".strip() if parts else "none"


def same(first: Value, second: Value) -> bool:
    """Whether two values are equal, but for rounding."""
    if len(first) != len(second):
        return False
    return all(
        a == b if isinstance(a, str) or isinstance(b, str) else abs(a - b) <= max(1e-9 * max(abs(a), abs(b)), ROUNDING)
        for a, b in zip(first, second, strict=True)
    )


def _rows(p: Point) -> float:
    """Tokens of one rank's column-parallel GEMM: those of the whole tensor-parallel group."""
    return p.mapping.micro_batch * p.facts.run.sequence_length / p.mapping.cp


def _expert_rows(p: Point) -> float:
    """Rows of one expert's GEMM in one microbatch when routing is even: tau R K / E (FORMULAS 1.4)."""
    moe = p.facts.model.moe
    assert moe is not None
    tokens = p.mapping.micro_batch * p.facts.run.sequence_length / (p.mapping.cp * p.mapping.tp)
    return tokens * p.mapping.ep * p.mapping.etp * moe.top_k / moe.experts


def _payload_bytes(p: Point) -> float:
    """What one rank sends in one dispatch."""
    tokens = p.mapping.micro_batch * p.facts.run.sequence_length / (p.mapping.cp * p.mapping.tp)
    facts = p.facts
    width = dispatch_element_bytes(run=facts.run)
    sent = ep_payload_bytes(
        tokens, p.mapping.ep, int(p.mapping.dispatcher), model=facts.model, run=facts.run, element_bytes=width
    )
    return number(sent)


def _grouped(p: Point) -> Value:
    moe = p.facts.model.moe
    assert moe is not None
    return _expert_rows(p), moe.expert_ffn / p.mapping.etp, p.facts.model.hidden, moe.experts / p.mapping.ep


def _attention(p: Point) -> Value:
    model = p.facts.model
    return _rows(p), model.heads * model.qk_dim / p.mapping.tp, model.hidden


def _moe(p: Point) -> bool:
    return p.facts.model.moe is not None


def _spread_experts(p: Point) -> bool:
    return _moe(p) and p.mapping.ep > 1


def _block(p: Point) -> Value:
    return (number(kv_block_bytes(p.mapping.tp, p.mapping.cp, p.mapping.micro_batch, model=p.facts.model,
                                  run=p.facts.run)),)  # fmt: skip


def _used(p: Point) -> Value:
    return tuple(axis.upper() for axis in SIZES if getattr(p.mapping, axis) > 1)


def crossing(rows: Any) -> tuple[bool, ...]:
    """Which levels an axis crosses, innermost first."""
    return tuple(bool(ways > 1) for ways in np.asarray(rows).reshape(-1).tolist())


def _crossed(axis: str) -> Callable[[Point], Value]:
    def names(p: Point) -> Value:
        levels = p.facts.fabric.level_names
        return tuple(name for name, crossed in zip(levels, crossing(p.rows[axis]), strict=True) if crossed)

    return names


def _larger(axis: str) -> Callable[[Point], bool]:
    return lambda p: bool(getattr(p.mapping, axis) > 1)


KEEPS: tuple[Keep, ...] = (
    Keep("sequence length", 2, lambda p: (p.facts.run.sequence_length,), "tokens",
         "a true sequence of the full length, not short ones packed"),
    Keep("tokens per context-parallel rank", 2, lambda p: (p.facts.run.sequence_length / p.mapping.cp,), "tokens",
         "attention kernels at the full run's local length"),
    Keep("context-parallel block", 2, _block, "bytes", "time of one context-parallel transfer", _larger("cp")),
    Keep("layers per stage", 3, lambda p: (p.facts.model.layers / p.mapping.pp,), "layers",
         "activation memory of one microbatch on a stage"),
    Keep("pipeline depth", 3, lambda p: (p.mapping.pp,), "stages", "microbatches in flight, share of the bubble"),
    Keep("shards of dense states", 3, lambda p: (p.mapping.dp * p.mapping.cp,), "ranks",
         "optimizer states per device of attention, router and embedding"),
    Keep("shards of expert states", 3, lambda p: (p.mapping.edp,), "ranks", "optimizer states per device of experts",
         _moe),
    Keep("tokens per expert", 4, lambda p: (_expert_rows(p),), "tokens a microbatch",
         "rows of a grouped GEMM, and how far routing can be uneven", _moe),
    Keep("experts per token", 4, lambda p: (getattr(p.facts.model.moe, "top_k", 0),), "experts",
         "capacity and drop rate of the router", _moe),
    Keep("all-to-all per rank", 5, lambda p: (_payload_bytes(p),), "bytes", "bytes of dispatch and combine",
         _spread_experts),
    Keep("all-to-all per peer", 5, lambda p: (_payload_bytes(p) / p.mapping.ep,), "bytes",
         "message size, and with it the effective bandwidth, of one pair", _spread_experts),
    Keep("expert-parallel group", 5, lambda p: (p.mapping.ep,), "ranks", "peers of an all-to-all", _spread_experts),
    Keep("attention GEMM of a rank", 6, _attention, "(rows x columns x inner)", "its efficiency"),
    Keep("grouped GEMM of a rank", 6, _grouped, "(rows x columns x inner x experts)", "its efficiency", _moe),
    Keep("output GEMM of a rank", 6, lambda p: (_rows(p), p.facts.model.vocab / p.mapping.tp, p.facts.model.hidden),
         "(rows x columns x inner)", "its efficiency, and the memory of the logits"),
    Keep("two stages or more", 6, lambda p: (min(p.mapping.pp, 2),), "stages",
         "the schedule, its order and its transfers", _larger("pp")),
    Keep("chunks per stage", 6, lambda p: (p.mapping.vpp,), "chunks", "the interleaved schedule", _larger("vpp")),
    Keep("microbatches", 6, lambda p: (number(p.cell.microbatches),), "a step", "the steady phase of the pipeline"),
    Keep("precision", 7, lambda p: (p.facts.run.precision,), "", "loss against the BF16 baseline, format by format"),
    Keep("axes in use", 10, _used, "", "that every kind of group forms and communicates"),
    *(Keep(f"levels that {axis.upper()} crosses", 10, _crossed(axis), "", f"the links that {axis.upper()} uses",
           _larger(axis), axis) for axis in SIZES),
)  # fmt: skip
"""In the order of the contract's domains; publishing (8) and rollouts (9) are no part of a training run."""


def keeps_of(full: Point) -> tuple[Keep, ...]:
    """The quantities that a full run has."""
    return tuple(keep for keep in KEEPS if keep.matters(full))


def crosses(axis: str, wanted: tuple[bool, ...]) -> Relation:
    """The rule that an axis crosses the same levels as in the full run."""

    def missed(view: Any) -> Any:
        rows = np.asarray(getattr(view, f"{axis}_row")) > 1
        return (rows != np.array(wanted)).sum(axis=-1) + 0.0

    return Relation(
        name=f"same_levels_{axis}",
        side=side_of(axis),
        unit="levels",
        demand=missed,
        limit=lambda _view: 0.0,
        sentence=lambda _view, demand, _limit: (
            f"{axis.upper()} crosses {demand:g} levels otherwise than in the full run"
        ),
        origin="user",
        statement=f"{axis.upper()} crosses the levels that it crosses in the full run",
    )
