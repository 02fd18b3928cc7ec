"""DeepSpeed: the JSON that `deepspeed.initialize` takes.

Contents: FORMAT.

DeepSpeed takes batch sizes, ZeRO, offload, AutoTP and AutoEP from the JSON; Ulysses' degree, a pipeline's modules and
what a layer recomputes are code. What the code must know stands under the key `mapsearch`, which DeepSpeed does not
read. Source: deepspeed.ai, docs/config-json, tutorials/autotp-training, AutoEP (expert_parallel);
deepspeed/runtime/config.py (pipeline).
"""

from __future__ import annotations

import json
from typing import Any

from mapsearch import documents
from mapsearch.axes import CpKind, Dispatcher, Hidden, Offload, Recompute, Schedule
from mapsearch.errors import InputError
from mapsearch.launching.launch import MOST, Draft, Format, Launch, Plan

KEY = "mapsearch"


def _write(plan: Plan) -> tuple[str, Draft]:
    draft, mapping, run = Draft(), plan.mapping, plan.run
    tree: dict[str, Any] = {
        "train_batch_size": run.global_batch,
        "train_micro_batch_size_per_gpu": mapping.micro_batch,
        "gradient_accumulation_steps": run.global_batch // (mapping.micro_batch * mapping.dp),
        "zero_optimization": _zero(plan, draft),
    }
    _precision(plan, draft, tree)
    if mapping.tp > 1:
        tree["tensor_parallel"] = {"autotp_size": mapping.tp}
    if plan.model.moe is not None:
        tree["expert_parallel"] = {"enabled": True, "autoep_size": mapping.ep}
    _grids(plan, draft)
    _pipeline(plan, draft, tree)
    _checkpointing(plan, draft, tree)
    tree[KEY] = {"devices": mapping.devices, "sequence_length": run.sequence_length}
    if mapping.cp > 1:
        tree[KEY]["sequence_parallel_size"] = mapping.cp
        draft.notes.append(f"Ulysses' degree {mapping.cp} is an argument of the training code (sequence_parallel_size)")
    return json.dumps(tree, indent=2) + "\n", draft


def _zero(plan: Plan, draft: Draft) -> dict[str, Any]:
    mapping, run, code = plan.mapping, plan.run, plan.mapping.offload
    put: dict[str, Any] = {"stage": mapping.zero, "overlap_comm": run.overlap.grad_reduce}
    if code & Offload.OPTIMIZER:
        nvme = bool(code & Offload.NVME)
        put["offload_optimizer"] = {"device": "nvme" if nvme else "cpu", "pin_memory": True}
        if nvme:
            put["offload_optimizer"]["nvme_path"] = "/local_nvme"
            draft.notes.append("nvme_path is an example; name the host's NVMe folder")
    if run.shard_replicas > 1 and mapping.zero == 3:
        put["zero_hpz_partition_size"] = max(1, mapping.dp // run.shard_replicas)
        draft.notes.append("zero_hpz_partition_size keeps copies of the weights; optimizer states stay sharded")
    elif run.shard_replicas > 1:
        draft.leave("shard_replicas", str(run.shard_replicas), "DeepSpeed keeps copies with ZeRO 3 only")
    hidden = int(mapping.overlap or 0)
    if hidden & Hidden.EXPERT_ALL_TO_ALL:
        draft.lose(plan, "overlap", "DeepSpeed hides no expert all-to-all behind a microbatch")
    elif mapping.zero and bool(hidden & Hidden.PARAM_GATHER) != run.overlap.grad_reduce:
        draft.lose(plan, "overlap", "overlap_comm switches gathers and reductions together")
    return put


def _precision(plan: Plan, draft: Draft, tree: dict[str, Any]) -> None:
    run = plan.run
    tree["fp16" if run.precision == "fp16" else "bf16"] = {"enabled": True}
    if run.fp8 or run.fp4:
        draft.leave("precision", run.precision, "FP8 and FP4 are modules of the training code; written as BF16")
    if plan.mapping.zero and run.half_format == "bf16":
        tree["data_types"] = {"grad_accum_dtype": "bf16" if run.state.gradient_bytes == 2.0 else "fp32"}
    if run.splits_vocabulary:
        draft.leave("vocabulary", run.vocabulary, "DeepSpeed keeps embedding and head on the end stages")


def _grids(plan: Plan, draft: Draft) -> None:
    mapping = plan.mapping
    if mapping.cp > 1 and mapping.cp_kind != CpKind.ULYSSES:
        draft.lose(plan, "cp_kind", "DeepSpeed's context parallel is Ulysses")
    if mapping.etp > 1:
        draft.lose(plan, "etp", "AutoEP takes ETP 1")
        draft.lose(plan, "edp", "with ETP 1 expert DP takes its ranks")
    if plan.model.moe is None and mapping.ep > 1:
        draft.lose(plan, "ep", "a dense model has no experts to spread")
        draft.lose(plan, "edp", "with EP 1 expert DP takes its ranks")
    if plan.model.moe is not None and mapping.dispatcher != Dispatcher.ALL_TO_ALL:
        why = "AutoEP dispatches by variable all-to-all"
        if mapping.dispatcher == Dispatcher.FIXED_ALL_TO_ALL:
            capacity = plan.run.routing.capacity_factor
            why += f"; deepspeed.moe.layer.MoE(capacity_factor={capacity:g}) pads to a capacity, in code"
        draft.lose(plan, "dispatcher", why)
    if mapping.tp > 1 and not plan.run.sequence_parallel:
        return
    if mapping.tp > 1:
        draft.leave("sequence_parallel", "true", "AutoTP keeps norms and their inputs whole on every rank of TP")


def _pipeline(plan: Plan, draft: Draft, tree: dict[str, Any]) -> None:
    mapping = plan.mapping
    if mapping.pp == 1 and mapping.vpp == 1:
        return
    tree["pipeline"] = {"stages": mapping.pp, "partition": "uniform"}
    if mapping.schedule != Schedule.ONE_F_ONE_B:
        draft.lose(plan, "schedule", "DeepSpeed's PipelineEngine runs 1F1B")
    if mapping.vpp > 1:
        draft.lose(plan, "vpp", "DeepSpeed has no virtual stages")
    stages = mapping.layout
    if plan.folded or len(set(stages)) > 1:
        draft.lose(plan, "layout", "a PipelineModule cuts evenly, or by its own count (partition); give parts in code")
    if mapping.zero >= 2:
        draft.notes.append("DeepSpeed's pipeline takes ZeRO 0 or 1")
    if plan.model.moe is not None:
        draft.notes.append("DeepSpeed's MoE layers do not run in a PipelineModule")


def _checkpointing(plan: Plan, draft: Draft, tree: dict[str, Any]) -> None:
    mapping = plan.mapping
    code, full = mapping.recompute, bool(mapping.recompute & Recompute.FULL)
    moved = bool(mapping.offload & Offload.ACTIVATIONS)
    if full:
        tree["activation_checkpointing"] = {
            "partition_activations": mapping.tp > 1,
            "cpu_checkpointing": moved,
            "number_checkpoints": plan.model.layers,
        }
        if "pipeline" in tree:
            tree["pipeline"]["activation_checkpoint_interval"] = 1
    elif code:
        draft.lose(plan, "recompute", "DeepSpeed checkpoints whole layers, in the training code")
    if mapping.offload & Offload.NVME and not mapping.offload & Offload.OPTIMIZER:
        draft.lose(plan, "offload", "DeepSpeed keeps checkpoints in host memory, not on NVMe")
    if moved and not full:
        draft.lose(plan, "offload", "DeepSpeed offloads activations that are checkpoints only (cpu_checkpointing)")
    if mapping.recompute_stages:
        draft.lose(plan, "recompute_stages", "DeepSpeed recomputes the same on every stage")


def _read(text: str, _preset: dict[str, str]) -> Launch:
    tree = documents.parse(text, file="DeepSpeed JSON", json_text=True)
    if not isinstance(tree, dict):
        raise InputError("holds no DeepSpeed configuration; write an object with train_micro_batch_size_per_gpu")
    own, zero = _table(tree, KEY), _table(tree, "zero_optimization")
    stage = _size(zero, "stage", "zero_optimization.stage", default=0, least=0)
    pipeline, experts = _table(tree, "pipeline"), _table(tree, "expert_parallel")
    checkpoints = _table(tree, "activation_checkpointing")
    mapping: dict[str, Any] = {
        "tp": _size(_table(tree, "tensor_parallel"), "autotp_size", "tensor_parallel.autotp_size"),
        "pp": 1 if pipeline.get("stages") == "auto" else _size(pipeline, "stages", "pipeline.stages"),
        "cp": _size(own, "sequence_parallel_size", f"{KEY}.sequence_parallel_size"),
        "ep": _size(experts, "autoep_size", "expert_parallel.autoep_size") if experts.get("enabled") else 1,
        "etp": 1,
        "zero": stage,
        "recompute": int(Recompute.FULL) if checkpoints.get("number_checkpoints") else int(Recompute.NONE),
        "cp_kind": int(CpKind.ULYSSES),
        "dispatcher": int(Dispatcher.ALL_TO_ALL),
        "offload": _read_offload(zero, checkpoints),
        "overlap": int(Hidden.PARAM_GATHER) if zero.get("overlap_comm", stage == 3) else 0,
    }
    run: dict[str, Any] = {
        "precision": "fp16" if _table(tree, "fp16").get("enabled") else "bf16",
        "overlap": {"grad_reduce": bool(zero.get("overlap_comm", stage == 3))},
    }
    _read_batch(tree, mapping, run)
    if "sequence_length" in own:
        run["sequence_length"] = _size(own, "sequence_length", f"{KEY}.sequence_length")
    hardware = {"gpus": own["devices"]} if isinstance(own.get("devices"), int) else {}
    return Launch("deepspeed", "deepspeed", mapping, run, hardware=hardware, told={"mapping": {}, "run": {}})


def _read_batch(tree: dict[str, Any], mapping: dict[str, Any], run: dict[str, Any]) -> None:
    """Micro-batch, batch and DP: any two of three sizes give the third. Raises InputError."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    batch, micro, steps = (None if tree.get(name) in (None, "auto") else _size(tree, name, name) for name in names)
    if micro:
        mapping["micro_batch"] = micro
    if batch:
        run["global_batch"] = batch
    if batch and micro and steps:
        if batch % (micro * steps):
            raise InputError(f"{batch} is no multiple of {names[1]} {micro} x {names[2]} {steps}", field=names[0])
        mapping["dp"] = batch // (micro * steps)


def _read_offload(zero: dict[str, Any], checkpoints: dict[str, Any]) -> int:
    device = _table(zero, "offload_optimizer").get("device")
    code = int(Offload.OPTIMIZER) if device in ("cpu", "nvme") else 0
    code |= int(Offload.NVME) if device == "nvme" else 0
    return code | (int(Offload.ACTIVATIONS) if checkpoints.get("cpu_checkpointing") else 0)


def _table(tree: dict[str, Any], name: str) -> dict[str, Any]:
    found = tree.get(name) or {}
    if not isinstance(found, dict):
        raise InputError(f"takes an object, not {found!r}", field=name)
    return found


def _size(tree: dict[str, Any], name: str, field: str, *, default: int = 1, least: int = 1) -> int:
    found = tree.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= MOST:
        raise InputError(f"takes a whole number from {least} to {MOST:,}, not {found!r}", field=field)
    return found


def _detect(text: str) -> bool:
    return '"zero_optimization"' in text or '"train_micro_batch_size_per_gpu"' in text or '"train_batch_size"' in text


FORMAT = Format("deepspeed", "deepspeed", ".json", "", _write, _read, _detect)
