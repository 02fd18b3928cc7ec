"""MindSpeed on Ascend: Megatron-LM's flags with its own in place of some.

Contents: FORMAT.

Source: Ascend/MindSpeed, features_manager (core 0.12): context_parallel, pipeline_parallel/dualpipev_feature.py,
moe/fb_overlap.py, optimizer/swap_optimizer_feature.py, memory/swap_attention.py, recompute, custom_fsdp.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mapsearch.axes import CpKind, Dispatcher, Hidden, Offload, Recompute, Schedule
from mapsearch.launching.launch import Draft, Format, Launch, Plan
from mapsearch.launching.megatron import script, with_flags
from mapsearch.launching.reading import Values, launch_of
from mapsearch.launching.settings import draft_of
from mapsearch.launching.shell import flags_of

ALGORITHMS = {
    int(CpKind.RING): "megatron_cp_algo",
    int(CpKind.ULYSSES): "ulysses_cp_algo",
    int(CpKind.HYBRID): "hybrid_cp_algo",
}
_FSDP = "use-custom-fsdp"


def _write(plan: Plan) -> tuple[str, Draft]:
    draft = draft_of(plan)
    for part in (_context, _schedule, _dispatcher, _recompute, _offload, _sharding, _overlap):
        part(plan, draft)
    return script(plan, draft), draft


def _context(plan: Plan, draft: Draft) -> None:
    put, kind = draft.settings, plan.mapping.cp_kind
    if put.pop("cp-comm-type", None) is None:
        return
    put.pop("hierarchical-context-parallel-sizes", None)
    inner = plan.inner_cp or plan.mapping.cp
    if kind == CpKind.HYBRID and inner == plan.mapping.cp:
        draft.lose(plan, "cp_kind", "MindSpeed's hybrid has a ring of at least 2; inside one level it is Ulysses alone")
        kind = int(CpKind.ULYSSES)
    if kind not in ALGORITHMS:
        draft.lose(plan, "cp_kind", "MindSpeed exchanges by ring, Ulysses or both; written as ring")
        kind = int(CpKind.RING)
    put["context-parallel-algo"] = ALGORITHMS[kind]
    if kind == CpKind.HYBRID:
        put["ulysses-degree-in-cp"] = inner
    if kind != CpKind.ULYSSES and plan.run.overlap.cp:
        put["use-cp-send-recv-overlap"] = True


def _schedule(plan: Plan, draft: Draft) -> None:
    if plan.mapping.schedule != Schedule.DUALPIPE_V or plan.mapping.pp == 1:
        return
    draft.regain("schedule")
    draft.settings["schedules-method"] = "dualpipev"


def _dispatcher(plan: Plan, draft: Draft) -> None:
    if plan.mapping.dispatcher == Dispatcher.DEDUPLICATED and plan.model.moe is not None:
        draft.settings["moe-token-dispatcher-type"] = "alltoall"
        draft.settings.pop("moe-flex-dispatcher-backend")
        draft.notes = [note for note in draft.notes if "DeepEP" not in note]
        draft.lose(plan, "dispatcher", "DeepEP and HybridEP run on NVIDIA devices; written as alltoall")


def _recompute(plan: Plan, draft: Draft) -> None:
    """Norms and activations have flags of their own; the activation of dense layers too."""
    put, code = draft.settings, plan.mapping.recompute
    if code & Recompute.FULL or not code:
        return
    modules = [name for name in put.pop("recompute-modules", []) if name not in ("layernorm", "moe_act")]
    if modules:
        put["recompute-modules"] = modules
    else:
        put.pop("recompute-granularity", None)
    if code & Recompute.NORM:
        put["recompute-norm"] = True
    if code & Recompute.ACTIVATION:
        put["recompute-activation-function"] = True
        draft.regain("recompute")
        draft.notes = [note for note in draft.notes if not note.startswith("moe_act")]


def _offload(plan: Plan, draft: Draft) -> None:
    put = draft.settings
    if plan.mapping.offload & Offload.OPTIMIZER:
        for name in ("optimizer-cpu-offload", "optimizer-offload-fraction", "overlap-cpu-optimizer-d2h-h2d"):
            put.pop(name, None)
        if "exp-avg-dtype" not in put:
            put.pop("use-precision-aware-optimizer", None)
        put["swap-optimizer"] = True
    if put.pop("cpu-offloading-num-layers", None) is not None:
        put["swap-attention"] = True
        draft.notes = [note for note in draft.notes if "all layers but the last" not in note]
        draft.notes.append("--swap-attention swaps what norms and attention save, not what the FFN saves")


def _sharding(_plan: Plan, draft: Draft) -> None:
    if draft.settings.pop("use-megatron-fsdp", None):
        draft.settings[_FSDP] = True
        draft.settings.pop("ckpt-format")
        draft.notes = [note for note in draft.notes if "Megatron-FSDP" not in note]


def _overlap(plan: Plan, draft: Draft) -> None:
    """Its overlap of forward and backward, and DualPipeV, exclude the overlapped gradient reduction."""
    put = draft.settings
    hidden = put.pop("overlap-moe-expert-parallel-comm", None) is not None
    if hidden:
        put["moe-fb-overlap"] = True
    if not (hidden or "schedules-method" in put) or "overlap-grad-reduce" not in put:
        return
    put.pop("overlap-grad-reduce")
    why = "MindSpeed overlaps no gradient reduction beside --moe-fb-overlap or DualPipeV"
    draft.leave("overlap.grad_reduce", "true", why)
    if put.pop("overlap-param-gather", None) is not None:
        draft.lose(plan, "overlap", f"{why}, and no gather without it")


def _read(text: str, preset: dict[str, str]) -> Launch:
    flags = flags_of(text, preset)
    values = Values(flags.given, flags.where)
    launch = launch_of(values, format_="mindspeed", framework="mindspeed", fsdp=_FSDP)
    mapping: dict[str, Any] = dict(launch.mapping)
    algorithms = {name: kind for kind, name in ALGORITHMS.items()} | {"hybrid_adaptive_cp_algo": int(CpKind.HYBRID)}
    mapping["cp_kind"] = algorithms[values.word("context-parallel-algo", algorithms) or "megatron_cp_algo"]
    if values.word("schedules-method", {"dualpipev": 0}):
        mapping["schedule"] = int(Schedule.DUALPIPE_V)
    if values.has("swap-optimizer"):
        mapping["offload"] |= int(Offload.OPTIMIZER)
    if values.has("swap-attention"):
        mapping["offload"] |= int(Offload.ACTIVATIONS)
    if values.has("recompute-norm"):
        mapping["recompute"] |= int(Recompute.NORM)
    if values.has("recompute-activation-function"):
        mapping["recompute"] |= int(Recompute.ACTIVATION)
    if values.has("moe-fb-overlap"):
        mapping["overlap"] |= int(Hidden.EXPERT_ALL_TO_ALL)
    padded = values.words("noop-layers")
    if padded and "layers" in launch.model:
        mapping |= without_noops(launch.model["layers"], padded[0], mapping)
        launch = replace(launch, model={**launch.model, "layers": sum(mapping["layout"])})
    return with_flags(flags, replace(launch, mapping=mapping))


def without_noops(layers: int, padded: str, mapping: dict[str, Any]) -> dict[str, Any]:
    """The layout of a model padded with layers that do nothing (--noop-layers 61,62,63)."""
    idle = {int(word) for word in padded.replace(" ", "").split(",") if word.isdigit()}
    pp, vpp = mapping["pp"], mapping["vpp"]
    each = max(1, layers // (pp * vpp))
    chunks = [sum(layer not in idle for layer in range(at, at + each)) for at in range(0, each * pp * vpp, each)]
    return {"layout": [sum(chunks[stage::pp]) for stage in range(pp)]}


def _detect(text: str) -> bool:
    own = ("--context-parallel-algo", "--swap-optimizer", "--moe-fb-overlap", "--schedules-method", "--noop-layers")
    return "mindspeed" in text.lower() or any(flag in text for flag in own)


FORMAT = Format("mindspeed", "mindspeed", ".sh", "#", _write, _read, _detect)
