"""Transcribed launch files: one YAML per script, with its flags' values in the words of the framework.

Contents: is_script, FORMAT_NAME, FRAMEWORKS, read_script.

    framework: megatron-lm
    model: DeepSeek-V3
    gpu: H100
    gpus_per_node: 8
    nodes: 128
    mapping: {tp: 1, pp: 8, vpp: 4, ep: 64, etp: 1}
    run: {seq: 4096, global_batch: 8192, precision: fp8, layout: "Et*2|(tt|)*22t|(tt|)*7mL", recompute: full}
"""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import Any

from mapsearch.axes import Dispatcher, Hidden, Offload, Recompute, Schedule
from mapsearch.calibration.conditions import MODULES
from mapsearch.errors import InputError, listed, near_miss
from mapsearch.launching.bridge import SOURCE
from mapsearch.launching.launch import MOST, Launch
from mapsearch.launching.mindspeed import without_noops
from mapsearch.launching.reading import read_layout_of

FORMAT_NAME = "launch"
FRAMEWORKS = {
    "megatron-bridge": "megatron",
    "megatron-deepspeed": "deepspeed",
    "megatron-fsdp": "megatron",
    "megatron-lm": "megatron",
    "mindspeed": "mindspeed",
    "nemo": "megatron",
    "primus": "megatron",
    "slime": "megatron",
    "verl": "megatron",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "megatron": "megatron",
}
"""The word that a framework begins with: whose rules hold."""
HARDWARE = {
    "gpu": "gpu",
    "npu": "gpu",
    "gpus": "gpus",
    "gpus_per_node": "gpus_per_node",
    "npus_per_node": "gpus_per_node",
    "nodes": "nodes",
    "gpu_mem_gb": "mem_gb",
    "nvlink_domain": "nvlink_domain",
}
_SIZES = {"tp": "tp", "mp": "tp", "cp": "cp", "pp": "pp", "ep": "ep", "EP_PARALLEL_SIZE": "ep", "etp": "etp"}
_RUN = {"seq": "sequence_length", "context": "sequence_length", "global_batch": "global_batch"}
_PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8-tensor", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
_TOP = frozenset((*HARDWARE, "framework", "model", "mapping", "run", "shape", "source", "licence", "note"))
_IN_USE = frozenset(
    (*_SIZES, "vpp", "EP_SIZE", "num_layers_per_virtual_stage", "sequence_parallel", "data_parallel", "dp_shard")
) | {"first_stage_layers", "last_stage_layers"}
_RUN_IN_USE = frozenset(
    (*_RUN, "micro_batch", "precision", "recompute", "activation_checkpoint", "dispatcher", "cuda_graph", "layout")
) | {"num_layers_flag", "noop_layers", "a2a_overlap", "optimizer_offload", "offload", "tokens_per_microbatch"}


def is_script(document: Any) -> bool:
    """Whether a document is a transcribed launch file."""
    if not isinstance(document, dict):
        return False
    return isinstance(document.get("framework"), str) and isinstance(document.get("mapping"), dict)


def read_script(document: dict[str, Any], *, file: str) -> Launch:
    """What a transcribed launch file says. Raises InputError."""
    word = str(document["framework"])
    named = next((rules for name, rules in FRAMEWORKS.items() if word.lower().startswith(name)), None)
    if named is None:
        known = listed(FRAMEWORKS)
        raise InputError(f"{word!r} is none of {known}{near_miss(word, FRAMEWORKS)}", file=file, field="framework")
    for field, kind in (("run", dict), ("shape", dict)):
        if not isinstance(document.get(field, {}), kind):
            raise InputError("takes a record of fields", file=file, field=field)
    given, run = document["mapping"], document.get("run", {})
    sizes = {name: _whole(given[key], f"mapping.{key}", file) for key, name in _SIZES.items() if key in given}
    mapping: dict[str, Any] = {**{"etp": 1}, **{k: v for k, v in sizes.items() if v is not None}}
    told: dict[str, dict[str, Any]] = {"mapping": {}, "run": {}}
    model = {"name": str(document.get("model", "")), **document.get("shape", {})}
    if "EP_SIZE" in given:
        model["experts"] = given["EP_SIZE"]  # Megatron-DeepSpeed's word for the number of experts
    _stages(given, run, mapping, told["mapping"], model, file)
    _choices(given, run, mapping, told)
    hardware = _hardware(document, file)
    facts = _facts(run, mapping, file)
    if isinstance(given.get("sequence_parallel"), bool):
        facts["sequence_parallel"] = given["sequence_parallel"]
    notes = [f"{word}: {document['note']}"] if document.get("note") else []
    left = _left(document, given, run)
    notes += [f"not read: {', '.join(left)}"] if left else []
    return Launch(
        FORMAT_NAME,
        named,
        mapping,
        facts,
        model=model,
        hardware=hardware,
        told=told,
        source=SOURCE if word.lower().startswith("megatron-bridge") else "",
        notes=tuple(notes),
    )


def _whole(value: Any, field: str, file: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise InputError(f"takes a whole number from 1 to {MOST:,}, not {value!r}", file=file, field=field)
    return value


def _hardware(document: dict[str, Any], file: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, name in HARDWARE.items():
        value = document.get(key)
        if value is not None:
            found[name] = value if name == "gpu" else _whole(value, key, file)
    if "gpus" not in found and {"nodes", "gpus_per_node"} <= set(found):
        found["gpus"] = found["nodes"] * found["gpus_per_node"]
    return found


def _stages(
    given: dict[str, Any],
    run: dict[str, Any],
    mapping: dict[str, Any],
    told: dict[str, Any],
    model: dict[str, Any],
    file: str,
) -> None:
    """Virtual stages, and the layout by its string, by ends, or by layers that do nothing."""
    pp, padded = mapping.get("pp", 1), _whole(run.get("num_layers_flag"), "run.num_layers_flag", file)
    vpp = _whole(given.get("vpp"), "mapping.vpp", file)
    per_chunk = _whole(given.get("num_layers_per_virtual_stage"), "mapping.num_layers_per_virtual_stage", file)
    if per_chunk and padded:
        vpp = max(1, padded // (pp * per_chunk))
    if vpp:
        mapping |= {"vpp": vpp, "schedule": int(Schedule.INTERLEAVED if vpp > 1 else Schedule.ONE_F_ONE_B)}
    if run.get("layout"):
        chunks = read_layout_of(str(run["layout"]), "run.layout")
        if len(chunks) % pp == 0:
            mapping["layout"] = [sum(chunks[stage::pp]) for stage in range(pp)]
            mapping["vpp"] = len(chunks) // pp
            mapping["schedule"] = int(Schedule.INTERLEAVED if mapping["vpp"] > 1 else Schedule.ONE_F_ONE_B)
        told["layout"] = run["layout"]
    elif padded and run.get("noop_layers"):
        idle = ",".join(str(layer) for layer in run["noop_layers"])
        mapping |= without_noops(padded, idle, {"pp": pp, "vpp": mapping.get("vpp", 1)})
        told["layout"] = "-".join(map(str, mapping["layout"]))
    elif padded:
        model["layers"] = padded
    elif pp > 1 and not {"first_stage_layers", "last_stage_layers"} & set(given):
        told["layout"] = "not transcribed"  # one that is not said may be there: taken as the usual cut
    for end in ("first", "last"):
        layers = _whole(given.get(f"{end}_stage_layers"), f"mapping.{end}_stage_layers", file)
        if layers is not None:
            told[f"{end}_stage_layers"] = layers


def _choices(
    given: dict[str, Any], run: dict[str, Any], mapping: dict[str, Any], told: dict[str, dict[str, Any]]
) -> None:
    """ZeRO, offload, recompute, dispatcher and overlap, coded; words that a case takes as they are."""
    if given.get("data_parallel") == "fsdp" or "dp_shard" in given:
        mapping["zero"] = 3
    if "dp_shard" in given:
        told["mapping"]["dp_shard"] = given["dp_shard"]
    moved = "optim" in str(run.get("offload", "")).lower() or bool(run.get("optimizer_offload"))
    mapping["offload"] = int(Offload.OPTIMIZER) if moved else int(Offload.NONE)
    words = run.get("recompute") or run.get("activation_checkpoint")
    if words is not None:
        mapping["recompute"] = _recomputed(str(words).lower())
        told["run"]["recompute" if "recompute" in run else "activation_checkpoint"] = words
    dispatcher = str(run.get("dispatcher", "")).lower()
    if dispatcher:
        deep = any(word in dispatcher for word in ("flex", "deepep", "hybridep"))
        mapping["dispatcher"] = int(Dispatcher.DEDUPLICATED if deep else Dispatcher.ALL_TO_ALL)
        told["run"]["dispatcher"] = run["dispatcher"]
    if run.get("a2a_overlap"):
        mapping["overlap"] = int(Hidden.EXPERT_ALL_TO_ALL)
    if run.get("cuda_graph"):
        told["run"]["cuda_graph"] = run["cuda_graph"]


def _recomputed(words: str) -> int:
    if "full" in words:
        return int(Recompute.FULL)
    found = [int(code) for name, code in MODULES.items() if re.search(rf"\b{name}\b", words)]
    return reduce(or_, found, 0) if found else int(Recompute.NORM | Recompute.ACTIVATION)


def _facts(run: dict[str, Any], mapping: dict[str, Any], file: str) -> dict[str, Any]:
    facts = {name: _whole(run[key], f"run.{key}", file) for key, name in _RUN.items() if run.get(key) is not None}
    micro = _whole(run.get("micro_batch"), "run.micro_batch", file)
    tokens = _whole(run.get("tokens_per_microbatch"), "run.tokens_per_microbatch", file)
    length = facts.get("sequence_length")
    if micro is None and tokens and length:
        micro = max(1, tokens // length)
    if micro is not None:
        mapping["micro_batch"] = micro
    precision = str(run.get("precision", "")).lower()
    if precision and precision not in _PRECISIONS:
        raise InputError(f"takes {listed(_PRECISIONS)}, not {precision!r}", file=file, field="run.precision")
    return {**facts, **({"precision": _PRECISIONS[precision]} if precision else {})}


def _left(document: dict[str, Any], given: dict[str, Any], run: dict[str, Any]) -> list[str]:
    """Keys that say nothing that a case knows."""
    left = [str(key) for key in document if key not in _TOP]
    left += [f"mapping.{key}" for key in given if key not in _IN_USE]
    return left + [f"run.{key}" for key in run if key not in _RUN_IN_USE]
