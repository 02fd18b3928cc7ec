"""Megatron-LM: a shell file that sets DEVICES and an array FLAGS, and any script that holds its flags.

Contents: FORMAT, shape_flags, flag_lines, hardware_of.

Ranks are counted tp-cp-ep-dp-pp, Megatron-LM's own order, which has no flag.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any

from mapsearch.inventories.model import Model
from mapsearch.launching.launch import Draft, Format, Launch, Plan
from mapsearch.launching.reading import Values, launch_of
from mapsearch.launching.settings import draft_of
from mapsearch.launching.shell import Flags, flags_of


def _write(plan: Plan) -> tuple[str, Draft]:
    draft = draft_of(plan)
    return script(plan, draft), draft


def script(plan: Plan, draft: Draft) -> str:
    """The shell file of a draft: sourced, then `pretrain_gpt.py "${FLAGS[@]}"`."""
    return "\n".join(
        [
            f"DEVICES={plan.mapping.devices}  # torchrun: --nnodes x --nproc-per-node",
            "# ranks count tp-cp-ep-dp-pp, the order without --use-tp-pp-dp-mapping",
            "FLAGS=(",
            "  # mapping",
            *flag_lines(draft.settings),
            "  # model",
            *flag_lines(shape_flags(plan.model, plan.run.sequence_length)),
            ")",
            "",
        ]
    )


def flag_lines(settings: dict[str, Any]) -> list[str]:
    """A line per setting, quoted for a shell."""
    lines = []
    for name, value in settings.items():
        words = [] if value is True else value if isinstance(value, list) else [value]
        lines.append("  " + " ".join([f"--{name}", *(shlex.quote(str(word)) for word in words)]))
    return lines


def shape_flags(model: Model, length: int) -> dict[str, Any]:
    """The shape of the model as flags."""
    put: dict[str, Any] = {"num-layers": model.layers, "hidden-size": model.hidden, "num-attention-heads": model.heads}
    if model.mla is not None:
        mla = model.mla
        put |= {"multi-latent-attention": True, "kv-lora-rank": mla.kv_rank, "qk-head-dim": mla.nope_dim}
        put |= {"qk-pos-emb-head-dim": mla.rope_dim, "v-head-dim": mla.value_dim}
        if mla.q_rank:
            put["q-lora-rank"] = mla.q_rank
    else:
        put["kv-channels"] = model.head_dim
        if model.kv_heads != model.heads:
            put |= {"group-query-attention": True, "num-query-groups": model.kv_heads}
    if model.ffn:
        put["ffn-hidden-size"] = model.ffn
    if model.moe is not None:
        moe = model.moe
        put |= {"num-experts": moe.experts, "moe-router-topk": moe.top_k, "moe-ffn-hidden-size": moe.expert_ffn}
        if moe.shared_ffn:
            put["moe-shared-expert-intermediate-size"] = moe.shared_ffn
        if model.dense_layers:
            put["moe-layer-freq"] = "[" + ",".join(str(int(kind == "moe")) for kind in model.layer_kinds) + "]"
    if model.mtp_layers:
        put["mtp-num-layers"] = model.mtp_layers
    put |= {"vocab-size": model.vocab, "max-position-embeddings": max(length, model.max_sequence_length)}
    switches = {
        "swiglu": model.gated_ffn,
        "untie-embeddings-and-output-weights": not model.tied_embeddings,
        "disable-bias-linear": not model.linear_bias,
        "add-qkv-bias": model.qkv_bias,
        "qk-layernorm": model.qk_norm,
    }
    put |= {name: True for name, on in switches.items() if on}
    put["normalization"] = "LayerNorm" if model.norm_bias else "RMSNorm"
    put["position-embedding-type"] = "learned_absolute" if model.learned_positions else "rope"
    return put


def _read(text: str, preset: dict[str, str]) -> Launch:
    flags = flags_of(text, preset)
    return with_flags(flags, launch_of(Values(flags.given, flags.where), format_="megatron", framework="megatron"))


def with_flags(flags: Flags, launch: Launch) -> Launch:
    """A launch with the devices of its script, and what the script left open."""
    return replace(launch, hardware={**hardware_of(flags), **launch.hardware}, notes=(*flags.notes, *launch.notes))


def hardware_of(flags: Flags) -> dict[str, Any]:
    """Devices, nodes and devices per node by torchrun's flags, Slurm's lines or the variables that scripts use."""
    names = {
        "gpus": ("DEVICES", "WORLD_SIZE", "NUM_GPUS"),
        "nodes": ("NNODES", "NUM_NODES", "SBATCH_NODES", "SLURM_NNODES"),
        "gpus_per_node": ("GPUS_PER_NODE", "NPUS_PER_NODE", "NPROC_PER_NODE", "SBATCH_GPUS_PER_NODE"),
    }
    told = {"nodes": ("nnodes",), "gpus_per_node": ("nproc-per-node",)}
    found: dict[str, Any] = {}
    for fact, variables in names.items():
        words = [flags.given[flag][0] for flag in told.get(fact, ()) if flags.given.get(flag)]
        words += [flags.variables[name] for name in variables if name in flags.variables]
        whole = [int(word) for word in words if re.fullmatch(r"\d{1,9}", word) and int(word)]
        if whole:
            found[fact] = whole[0]
    if "gpus" not in found and {"nodes", "gpus_per_node"} <= set(found):
        found["gpus"] = found["nodes"] * found["gpus_per_node"]
    return found


def _detect(text: str) -> bool:
    return bool(re.search(r"--(tensor|pipeline|expert|context)-model-parallel-size|--context-parallel-size", text))


FORMAT = Format("megatron", "megatron", ".sh", "#", _write, _read, _detect)
