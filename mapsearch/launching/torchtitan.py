"""torchtitan: a TOML file of the releases up to 0.2 (newer ones take the same fields in Python).

Contents: FORMAT, SCHEDULES.

Source: pytorch/torchtitan, torchtitan/config/job_config.py; pytorch, torch/distributed/pipelining/schedules.py.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from mapsearch.axes import CpKind, Dispatcher, Hidden, Offload, Recompute, Schedule
from mapsearch.errors import InputError, listed
from mapsearch.launching.launch import MOST, Draft, Format, Launch, Plan

SCHEDULES = {
    int(Schedule.GPIPE): "GPipe",
    int(Schedule.ONE_F_ONE_B): "1F1B",
    int(Schedule.INTERLEAVED): "Interleaved1F1B",
    int(Schedule.ZB_V): "ZBVZeroBubble",
    int(Schedule.DUALPIPE_V): "DualPipeV",
}
ROTATE = {int(CpKind.ALL_GATHER): "allgather", int(CpKind.RING): "alltoall"}
BACKENDS = {int(Dispatcher.ALL_TO_ALL): "standard", int(Dispatcher.DEDUPLICATED): "deepep"}
OPERATIONS = int(Recompute.NORM | Recompute.ACTIVATION)
"""What selective checkpointing by operation recomputes: all but products of matrices and attention."""
_HEAVY = int(Recompute.CORE_ATTENTION | Recompute.MLP | Recompute.MOE)
_DENSE = ("norm", "output")


def _write(plan: Plan) -> tuple[str, Draft]:
    draft = Draft()
    mapping, run, dp = plan.mapping, plan.run, plan.mapping.dp
    tree: dict[str, dict[str, Any]] = {"model": {}, "training": {}, "parallelism": {}, "activation_checkpoint": {}}
    rounds = run.global_batch // (dp * mapping.micro_batch)
    local = mapping.micro_batch * (rounds if mapping.pp > 1 else 1)
    tree["training"] |= {
        "local_batch_size": local,
        "global_batch_size": run.global_batch,
        "seq_len": run.sequence_length,
        "enable_cpu_offload": bool(mapping.offload & Offload.OPTIMIZER),
    }
    _sharding(plan, draft, tree["parallelism"])
    _grids(plan, draft, tree["parallelism"])
    _pipeline(plan, draft, tree["parallelism"])
    _checkpointing(plan, draft, tree["activation_checkpoint"])
    _offload(plan, draft)
    _precision(plan, draft, tree)
    if not tree["model"]:
        tree.pop("model")
    body = [f"# torchrun on {mapping.devices:,} devices; the model {plan.model.name} is named in [model]", ""]
    for table, values in tree.items():
        body += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()), ""]
    return "\n".join(body), draft


def _sharding(plan: Plan, draft: Draft, put: dict[str, Any]) -> None:
    mapping, copies = plan.mapping, plan.run.shard_replicas
    if mapping.zero == 0:
        copies = mapping.dp
    if mapping.dp % copies:
        draft.leave("shard_replicas", str(copies), f"torchtitan's replicas divide DP {mapping.dp}; written as 1")
        copies = 1
    put["data_parallel_replicate_degree"] = copies
    put["data_parallel_shard_degree"] = mapping.dp // copies
    put["fsdp_reshard_after_forward"] = "always" if mapping.zero == 3 else "never"
    sharded = mapping.dp // copies * mapping.cp > 1
    stage = (3 if mapping.zero == 3 else 2) if sharded else 0
    if mapping.zero != stage:
        why = "FSDP2 shards gradients beside optimizer states: ZeRO 2, or 3 with reshard after forward"
        draft.lose(plan, "zero", why if sharded else "one rank of DP x CP has nothing to shard")
    if mapping.overlap != (int(Hidden.PARAM_GATHER) if stage else 0):
        draft.lose(plan, "overlap", "FSDP2 prefetches parameters and hides no expert all-to-all behind a microbatch")


def _grids(plan: Plan, draft: Draft, put: dict[str, Any]) -> None:
    mapping = plan.mapping
    put["tensor_parallel_degree"] = mapping.tp
    put["context_parallel_degree"] = mapping.cp
    if mapping.cp > 1:
        if mapping.cp_kind not in ROTATE:
            draft.lose(plan, "cp_kind", "torchtitan exchanges keys by all-gather or in turns; written as allgather")
        put["context_parallel_rotate_method"] = ROTATE.get(mapping.cp_kind, "allgather")
    put["expert_parallel_degree"] = mapping.ep
    put["expert_tensor_parallel_degree"] = mapping.etp
    if plan.model.moe is not None and mapping.dispatcher not in BACKENDS:
        draft.lose(plan, "dispatcher", "torchtitan dispatches by variable all-to-all or DeepEP; written as standard")
    if plan.model.moe is not None and mapping.ep > 1:
        put["expert_parallel_comm_backend"] = BACKENDS.get(mapping.dispatcher, "standard")
    elif mapping.dispatcher in BACKENDS and mapping.dispatcher != Dispatcher.ALL_TO_ALL:
        draft.lose(plan, "dispatcher", "torchtitan's DeepEP needs EP of at least 2")


def _pipeline(plan: Plan, draft: Draft, put: dict[str, Any]) -> None:
    mapping = plan.mapping
    put["pipeline_parallel_degree"] = mapping.pp
    if mapping.pp == 1:
        return
    if mapping.schedule not in SCHEDULES:
        draft.lose(plan, "schedule", f"PyTorch runs {listed(SCHEDULES.values())}; written as 1F1B")
    put["pipeline_parallel_schedule"] = SCHEDULES.get(int(mapping.schedule), "1F1B")
    put["pipeline_parallel_microbatch_size"] = mapping.micro_batch
    ends = (["tok_embeddings"], list(_DENSE))
    parts: list[list[str]] = []
    at = 0
    for layers in plan.chunks:
        parts.append([f"layers.{layer}" for layer in range(at, at + layers)])
        at += layers
    parts[0] = ends[0] + parts[0]
    parts[-1] = parts[-1] + ends[1]
    put["module_fqns_per_model_part"] = parts


def _checkpointing(plan: Plan, draft: Draft, put: dict[str, Any]) -> None:
    code = plan.mapping.recompute
    mode = "none" if not code else "full" if code & (Recompute.FULL | _HEAVY) else "selective"
    put["mode"] = mode
    if mode == "selective":
        put["selective_ac_option"] = "op"
    if code not in (0, int(Recompute.FULL), OPERATIONS):
        draft.lose(plan, "recompute", f"torchtitan recomputes whole blocks, or by operation; written as {mode}")
    if plan.mapping.recompute_stages:
        draft.lose(plan, "recompute_stages", "torchtitan recomputes the same on every stage")


def _offload(plan: Plan, draft: Draft) -> None:
    code = plan.mapping.offload
    if code & Offload.OPTIMIZER:
        draft.notes.append("enable_cpu_offload keeps weights and gradients in host memory too")
    if code & (Offload.ACTIVATIONS | Offload.NVME):
        draft.lose(plan, "offload", "torchtitan offloads states to host memory; no activations, nothing to NVMe")


def _precision(plan: Plan, draft: Draft, tree: dict[str, dict[str, Any]]) -> None:
    run = plan.run
    tree["training"]["mixed_precision_param"] = "float16" if run.precision == "fp16" else "bfloat16"
    if run.precision == "fp16":
        tree["training"].pop("mixed_precision_param")
        draft.leave("precision", "fp16", "torchtitan computes in BF16 or FP32 without a loss scale")
    elif run.precision == "fp8-tensor":
        tree["model"]["converters"] = ["quantize.linear.float8"]
        tree["quantize.linear.float8"] = {"recipe_name": "tensorwise", "enable_fsdp_float8_all_gather": True}
    elif run.precision == "mxfp8":
        tree["model"]["converters"] = ["quantize.linear.mx"]
        tree["quantize.linear.mx"] = {"recipe_name": "mxfp8_cublas"}
    elif run.precision != "bf16":
        draft.leave("precision", run.precision, "torchtitan has FP8 per tensor and MXFP8; written as BF16")
    if run.precision in ("fp8-tensor", "mxfp8") and run.half_precision_layers:
        draft.leave("half_precision_layers", str(run.half_precision_layers), "list their modules in filter_fqns")
    if plan.model.mtp_layers:
        draft.leave("mtp_layers", str(plan.model.mtp_layers), "torchtitan trains no MTP modules")
    if run.splits_vocabulary:
        draft.leave("vocabulary", run.vocabulary, "torchtitan keeps embedding and head on the end stages")


def _read(text: str, _preset: dict[str, str]) -> Launch:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InputError(f"is not valid TOML: {problem}") from None
    table = _tables(tree)
    tp, pp = table.size("parallelism.tensor_parallel_degree"), table.size("parallelism.pipeline_parallel_degree")
    mapping: dict[str, Any] = {
        "tp": tp,
        "cp": table.size("parallelism.context_parallel_degree"),
        "pp": pp,
        "ep": table.size("parallelism.expert_parallel_degree"),
        "etp": table.size("parallelism.expert_tensor_parallel_degree"),
        "micro_batch": table.size("parallelism.pipeline_parallel_microbatch_size")
        if pp > 1
        else table.size("training.local_batch_size", 8),
        "offload": int(Offload.OPTIMIZER) * bool(table.get("training.enable_cpu_offload")),
        "recompute": _modes(table),
        "cp_kind": _code(table, "parallelism.context_parallel_rotate_method", ROTATE, "allgather"),
        "dispatcher": _backend(table),
        "overlap": int(Hidden.PARAM_GATHER),
    }
    run = _batch(table)
    told: dict[str, dict[str, Any]] = {"mapping": {}, "run": {}}
    _read_shards(table, mapping, run, told["mapping"])
    _read_pipeline(table, mapping)
    model = {"name": name} if (name := _name(table)) else {}
    return Launch("torchtitan", "torchtitan", mapping, run, model=model, told=told, notes=table.notes())


class _Tables:
    """Values of a TOML file by dotted name; remembers what was asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values, self.asked = values, set[str]()

    def get(self, name: str) -> Any:
        self.asked.add(name)
        return self.values.get(name)

    def size(self, name: str, default: int = 1) -> int:
        found = self.get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= MOST:
            raise InputError(f"takes a whole number from 1 to {MOST:,}, not {found!r}", field=name)
        return found

    def notes(self) -> tuple[str, ...]:
        left = sorted(name for name in set(self.values) - self.asked if name.split(".")[0] == "parallelism")
        return (f"not read: {', '.join(left)}",) if left else ()


def _tables(tree: dict[str, Any], above: str = "") -> _Tables:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{above}{key}"
        flat |= _tables(value, f"{path}.").values if isinstance(value, dict) else {path: value}
    return _Tables(flat)


def _code(table: _Tables, name: str, words: dict[int, str], default: str) -> int:
    word = table.get(name) or default
    by_word = {said: code for code, said in words.items()}
    if word not in by_word:
        raise InputError(f"takes {listed(by_word)}, not {word!r}", field=name)
    return by_word[word]


def _backend(table: _Tables) -> int:
    word = table.get("parallelism.expert_parallel_comm_backend")
    return int(Dispatcher.DEDUPLICATED if word in ("deepep", "hybridep") else Dispatcher.ALL_TO_ALL)


def _modes(table: _Tables) -> int:
    mode = table.get("activation_checkpoint.mode") or "selective"
    codes = {"none": 0, "full": int(Recompute.FULL), "selective": OPERATIONS, "memory_budget": OPERATIONS}
    if mode not in codes:
        raise InputError(f"takes {listed(codes)}, not {mode!r}", field="activation_checkpoint.mode")
    return codes[mode]


def _batch(table: _Tables) -> dict[str, Any]:
    converters = table.get("model.converters") or []
    run: dict[str, Any] = {"precision": "bf16", "data_parallel_unit": "layer", "overlap": {"grad_reduce": True}}
    if any("mx" in str(one) for one in converters):
        run["precision"] = "mxfp8"
    elif any("float8" in str(one) for one in converters):
        run["precision"] = "fp8-tensor"
    for name, fact in (("training.global_batch_size", "global_batch"), ("training.seq_len", "sequence_length")):
        found = table.get(name)
        if isinstance(found, int) and 0 < found <= MOST:
            run[fact] = found
    return run


def _read_shards(table: _Tables, mapping: dict[str, Any], run: dict[str, Any], told: dict[str, Any]) -> None:
    """DP, ZeRO and replicas; a shard degree of -1 is what the other axes leave."""
    copies = table.size("parallelism.data_parallel_replicate_degree")
    shard = table.get("parallelism.data_parallel_shard_degree")
    policy = table.get("parallelism.fsdp_reshard_after_forward") or "default"
    whole = policy == "never" or (policy == "default" and mapping["pp"] > 1)
    mapping["zero"] = 2 if whole else 3
    if isinstance(shard, int) and shard >= 1:
        mapping["dp"] = copies * shard
        if shard == 1 and mapping["cp"] == 1:
            mapping["zero"] = 0
    elif shard not in (None, -1):
        raise InputError(f"takes -1 or a whole number, not {shard!r}", field="parallelism.data_parallel_shard_degree")
    if copies > 1 and mapping["zero"]:
        run["shard_replicas"] = copies
    told["dp_shard"] = shard if isinstance(shard, int) and shard >= 1 else "all"


def _read_pipeline(table: _Tables, mapping: dict[str, Any]) -> None:
    if mapping["pp"] == 1:
        return
    mapping["schedule"] = _code(table, "parallelism.pipeline_parallel_schedule", SCHEDULES, "1F1B")
    parts = table.get("parallelism.module_fqns_per_model_part")
    if not parts:
        return
    if len(parts) % mapping["pp"]:
        field = "parallelism.module_fqns_per_model_part"
        raise InputError(f"has {len(parts)} parts, which are no multiple of PP {mapping['pp']}", field=field)
    counts = [sum(str(name).startswith("layers.") for name in part) for part in parts]
    if mapping["schedule"] == Schedule.INTERLEAVED:
        mapping["vpp"] = len(parts) // mapping["pp"]
        counts = [sum(counts[stage :: mapping["pp"]]) for stage in range(mapping["pp"])]
    mapping["layout"] = counts


def _name(table: _Tables) -> str:
    return " ".join(str(word) for word in (table.get("model.name"), table.get("model.flavor")) if word)


def _detect(text: str) -> bool:
    return bool(re.search(r"^\s*\[(parallelism|activation_checkpoint)\]", text, re.MULTILINE))


FORMAT = Format("torchtitan", "torchtitan", ".toml", "#", _write, _read, _detect)
