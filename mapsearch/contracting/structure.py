"""Domain 1, model structure: what is trained is what was planned (FORMULAS 1.1 to 1.3, 3.1, 3.2).

Contents: rows.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase, Text
from mapsearch.costs import flops
from mapsearch.costs.parameters import (
    dense_layer_parameters,
    embedding_parameters,
    expert_parameters,
    ledger,
    moe_layer_parameters,
)

SHAPE = {
    "layers": ("layers", "layers of the built model"),
    "hidden": ("columns", "width of the hidden states"),
    "heads": ("heads", "query heads"),
    "kv_heads": ("heads", "key and value heads"),
    "head_dim": ("columns", "width of one head"),
    "vocab": ("entries", "entries of the vocabulary, not padded"),
}
MOE_SHAPE = {
    "experts": ("experts", "routed experts of one layer"),
    "top_k": ("experts", "experts that one token is sent to"),
    "expert_ffn": ("columns", "width of one routed expert"),
}
NUMEL = "numel() of every parameter of every rank, by module name, weights that ranks share counted once"
COUNTED = {
    "parameters": Text(
        "P: parameters of the model, vocabulary not padded, MTP modules apart",
        "parameters",
        "sum; take off what pads the vocabulary",
    ),
    "shared_parameters": Text("P_sh: parameters outside the routed experts", "parameters", "P less the routed experts"),
    "shared_ratio": Text("sigma: share of P outside the routed experts", "share", "1 - routed experts / P"),
    "active_parameters": Text(
        "P_act = [sigma + (1 - sigma) K/E] P: what one token passes through, both embeddings counted",
        "parameters",
        "P - routed experts (1 - K/E)",
    ),
    "expert_parameters": Text("parameters of one routed expert", "parameters", "of any one expert of any layer"),
}
GROUP = "model"


def rows(case: ContractCase) -> list[Row]:
    """Shape, parameters by part, and FLOP per token."""
    return [*_shape(case), *_parameters(case), *_flops(case)]


def _shape(case: ContractCase) -> list[Row]:
    row = partial(case.row, domain=1, formula="F1.1", record="the configuration that the framework prints at start")
    told = []
    for name, (unit, meaning) in SHAPE.items():
        value = getattr(case.model, name)
        told.append(
            row(
                f"{GROUP}.{name}",
                meaning=meaning,
                predicted=value,
                unit=unit,
                origins=[f"model.{name}"],
                compute="read it from the built model, not from the command line",
            )
        )
    if case.model.moe is None:
        return told
    for name, (unit, meaning) in MOE_SHAPE.items():
        told.append(
            row(
                f"{GROUP}.{name}",
                meaning=meaning,
                predicted=getattr(case.model.moe, name),
                unit=unit,
                origins=[f"model.moe.{name}"],
                compute="read it from the built model, not from the command line",
            )
        )
    shape = float(case.model.hidden) * case.model.moe.expert_ffn * case.model.moe_layers
    told.append(
        row(
            f"{GROUP}.shape_product",
            meaning="h f L of the MoE layers; (1 - sigma) P = 3 E h f L with gated experts",
            predicted=shape,
            unit="1",
            origins=["model.hidden", "model.moe.expert_ffn", "model.layers"],
            compute="hidden times expert FFN width times MoE layers",
        )
    )
    return told


def _parameters(case: ContractCase) -> list[Row]:
    model, counted = case.model, ledger(model=case.model)
    shape = ["model.layers", "model.hidden", "model.heads", "model.kv_heads", "model.vocab"]
    shape += ["model.moe.experts", "model.moe.expert_ffn"] if model.moe else ["model.ffn"]
    shared: dict[str, Any] = {"formula": "F1.3, F3.1", "origins": shape, "record": NUMEL}
    parts = {f"parameters.{_id(part)}": count for part, count in counted.parts.items() if count}
    texts = {
        f"parameters.{_id(part)}": Text(f"parameters of {part}", "parameters", "sum over the modules of that name")
        for part in counted.parts
    }
    values = {
        "parameters": counted.total,
        "shared_parameters": counted.shared,
        "shared_ratio": counted.shared_ratio,
        "active_parameters": counted.active,
    }
    if model.moe:
        values["expert_parameters"] = float(expert_parameters(1, 1, model=model)) / model.moe.experts
    whole = {"parameters": {"parts": [f"{GROUP}.{part}" for part in parts]}}
    told = case.tabled(GROUP, 1, COUNTED, values, whole, **shared)
    return [*told, *case.tabled(GROUP, 1, texts, parts, **shared), *_local(case)]


def _local(case: ContractCase) -> list[Row]:
    """Parameters that one rank of a middle stage holds."""
    model, mapping, estimate = case.model, case.mapping, case.estimate
    layers = max(estimate.layers_per_stage)
    layer = moe_layer_parameters if model.moe else dense_layer_parameters
    each = layer(mapping.tp, model=model)
    mixed = model.moe is not None and model.dense_layers > 0
    row = partial(
        case.row,
        domain=1,
        unit="parameters",
        formula="F3.1",
        record="numel() of the parameters of one rank, routed experts apart",
        compute="sum over a stage with most layers, without embedding and head",
    )
    where = ["mapping.tp", "mapping.pp", "model.layers"]
    told = [
        row(
            f"{GROUP}.local_embedding",
            meaning="parameters of the embedding of one rank, on the stage that has it, padded",
            predicted=float(embedding_parameters(mapping.tp, model=model)),
            origins=["mapping.tp", "model.vocab", "model.hidden"],
        )
    ]
    if not mixed:
        told.append(
            row(
                f"{GROUP}.local_dense",
                meaning="parameters outside the routed experts of one rank, the ends of the model apart",
                predicted=layers * float(each),
                origins=where,
            )
        )
    if model.moe and not mixed:
        experts = layers * float(expert_parameters(mapping.etp, mapping.ep, model=model))
        told.append(
            row(
                f"{GROUP}.local_experts",
                meaning="parameters of the routed experts of one rank",
                predicted=experts,
                origins=[*where, "mapping.etp", "mapping.ep", "model.moe.experts"],
            )
        )
    return told


def _flops(case: ContractCase) -> list[Row]:
    model, run = case.model, case.run
    longest = model.max_sequence_length or run.sequence_length
    row = partial(
        case.row,
        domain=1,
        unit="FLOP per token",
        formula="F3.2",
        record="the framework's own count of FLOP per step",
        compute="FLOP per step over tokens per step; say whether attention is counted causal (half) and router in it",
    )
    told = [
        row(
            f"{GROUP}.flops_per_token",
            meaning="model FLOP per token of forward and backward, causal, no router, at the run's mean length",
            predicted=flops.training_flops_per_token(model=model, length=run.attended_length, router=False),
            origins=["run.sequence_length", "model.layers", "model.hidden"],
        ),
        row(
            f"{GROUP}.flops_per_token_longest",
            meaning=f"the same in one whole sequence of {longest:,} tokens",
            predicted=flops.training_flops_per_token(model=model, length=float(longest), router=False),
            origins=["model.max_sequence_length" if model.max_sequence_length else "run.sequence_length"],
        ),
        row(
            f"{GROUP}.router_flops_per_token",
            meaning="FLOP per token of all routers, forward and backward, which Megatron leaves out",
            predicted=flops.BACKWARD_AND_FORWARD * flops.router_flops(model=model),
            origins=["model.hidden", "model.moe.experts"] if model.moe else ["model.hidden"],
        ),
        row(
            f"{GROUP}.six_active",
            meaning="6 P_act, which leaves out the attention core: never to be used for MFU at long context",
            predicted=6.0 * ledger(model=model).active,
            origins=["model.layers", "model.hidden"],
        ),
    ]
    shortfall = 1.0 - float(told[-1].predicted) / float(told[1].predicted)  # type: ignore[arg-type]
    told.append(
        row(
            f"{GROUP}.six_active_shortfall",
            meaning=f"how far 6 P_act lies under the count at {longest:,} tokens",
            predicted=0.0 if math.isclose(shortfall, 0.0) else shortfall,
            origins=["model.layers"],
        ).model_copy(update={"unit": "share"})
    )
    return told


def _id(part: str) -> str:
    return part.lower().replace(" ", "_")
