"""Whose software a case ran on, and what that does where the case is silent.

Contents: Launcher, LAUNCHERS, launcher_of.

The `source` of a case is the repository whose tracker it was reported to; that says the software. What a launcher does
when nothing is said is its documented default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mapsearch.frameworks import named
from mapsearch.inventories.case import Case


@dataclass(frozen=True)
class Launcher:
    """Defaults of one way to launch a run."""

    framework: str
    """Whose legality rules it has (`constraints/frameworks`)."""
    zero: int = 1
    """Sharding of states where nothing is said."""
    etp_is_tp: bool = False
    """ETP is TP unless it is given (Megatron's argument); others pass 1."""
    pads_vocabulary: bool = False
    """The vocabulary is padded to a multiple of TP."""
    pads_rows: bool = False
    """Rows of each expert are padded to what FP8 products need."""
    pads_packed: bool = False
    """Packed sub-sequences are padded to 2 CP each."""
    uneven_stages: bool = False
    """Layers that do not divide over the stages are spread unevenly without being told how."""
    half_gradients: bool = False
    """Gradients are kept and reduced in 16 bits."""
    halves: bool = False
    """Weights, gradients and moments are all kept in 16 bits."""
    reduces_experts: bool = False
    """EP keeps all tokens on every rank and all-reduces the experts' output."""
    engine: bool = False
    """An inference engine: weights and caches only."""
    local_batch: int = 1
    """Sequences of a microbatch where nothing is said."""
    whole_ep: bool = False
    """EP spans all ranks where nothing is said (tests of an exchange library)."""


MEGATRON = Launcher("megatron", etp_is_tp=True, zero=0, pads_vocabulary=True, pads_rows=True, pads_packed=True)
RECIPE = replace(MEGATRON, etp_is_tp=False, zero=1)
SHARDED = Launcher("fsdp2", zero=3, pads_vocabulary=True, pads_packed=True, uneven_stages=True)
PLAIN = Launcher("none", zero=0, uneven_stages=True)
ENGINE = Launcher("none", zero=0, engine=True)

LAUNCHERS: tuple[tuple[str, Launcher], ...] = (
    (r"megatron-bridge", replace(RECIPE, etp_is_tp=True, uneven_stages=True, half_gradients=True)),
    (r"nvidia/megatron-lm|rocm/megatron-lm|llama-megatron", MEGATRON),
    (r"automodel", replace(SHARDED, halves=True)),
    (r"nemo|ms-swift|slime|pai-megatron|primus|miles|skypilot", RECIPE),
    (r"mindspeed", replace(RECIPE, framework="mindspeed")),
    (r"torchtitan", replace(SHARDED, framework="torchtitan", pads_rows=True, local_batch=4)),
    (r"pytorch/pytorch", SHARDED),
    (r"transformers", replace(SHARDED, reduces_experts=True)),
    (r"deepep", replace(PLAIN, whole_ep=True, zero=1)),
    (r"deepspeed|fambench", replace(PLAIN, framework="deepspeed")),
    (r"vllm-project|lmdeploy|sglang|tensorrt", ENGINE),
    (r"llamafactory", replace(RECIPE, pads_packed=False)),
    (r"huggingface|simplescaling|fsdp", SHARDED),
    (r"transformerengine|nccl", PLAIN),
)
"""Words of a source: whose defaults hold. First match counts."""
FSDP_KEYS = ("dp_shard", "fsdp", "dp_replicate", "ulysses_sp")
MEGATRON_KEYS = ("etp", "vpp", "first_stage_layers", "last_stage_layers", "distopt_instances")


def launcher_of(case: Case) -> tuple[Launcher, str, bool]:
    """The launcher of a case, why it is taken, and whether the case itself names a release of the framework.

    Raises ValueError for a framework that is not known.
    """
    given = case.run.framework
    if given is not None:
        name, _ = named(str(given))
        base = {"megatron": RECIPE, "torchtitan": SHARDED, "fsdp2": SHARDED, "mindspeed": RECIPE}.get(name, PLAIN)
        return replace(base, framework=str(given)), f"the run names {given}", "@" in str(given)
    source = case.source.lower()
    mapping = case.mapping
    sharded = [key for key in FSDP_KEYS if getattr(mapping, key) is not None]
    gridded = [key for key in MEGATRON_KEYS if getattr(mapping, key) is not None]
    if "verl" in source:
        # It trains with FSDP or with Megatron; pipelines and expert grids are Megatron's.
        several = mapping.pp is not None or mapping.etp is not None
        return (RECIPE if several else SHARDED), "reported to verl", False
    reported = next((launcher for pattern, launcher in LAUNCHERS if re.search(pattern, source)), None)
    if reported is not None:
        return reported, f"reported to {_repository(case.source)}", False
    if sharded or gridded:
        # Whose it is remains a guess, so a layout that is not said may be there.
        guessed = SHARDED if sharded else replace(RECIPE, uneven_stages=True)
        return guessed, f"the mapping gives {(sharded or gridded)[0]}", False
    return PLAIN, "no framework is named", False


def _repository(source: str) -> str:
    found = re.search(r"github\.com/([^/]+/[^/]+)", source)
    return found[1] if found else source
