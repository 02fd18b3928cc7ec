"""Megatron-Bridge (NeMo): overrides of a recipe as a YAML file, dotted names in nested form.

Contents: FORMAT, PATHS, SOURCE.

A recipe brings the model; what is here lies over it: `--config-file overrides.yaml`, or each line as
`model.tensor_model_parallel_size=8` on the command line.
Source: NVIDIA-NeMo/Megatron-Bridge, training/config.py (ConfigContainer), training/mixed_precision.py and perf_recipes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from mapsearch import documents
from mapsearch.errors import InputError
from mapsearch.launching.launch import Draft, Format, Launch, Plan
from mapsearch.launching.reading import Values, launch_of
from mapsearch.launching.settings import draft_of

_MODEL = (
    "tensor-model-parallel-size",
    "context-parallel-size",
    "pipeline-model-parallel-size",
    "expert-model-parallel-size",
    "expert-tensor-parallel-size",
    "sequence-parallel",
    "pipeline-model-parallel-layout",
    "cp-comm-type",
    "hierarchical-context-parallel-sizes",
    "moe-token-dispatcher-type",
    "moe-flex-dispatcher-backend",
    "moe-expert-capacity-factor",
    "moe-pad-expert-input-to-capacity",
    "moe-grouped-gemm",
    "moe-router-num-groups",
    "moe-router-group-topk",
    "moe-shared-expert-overlap",
    "recompute-granularity",
    "recompute-method",
    "recompute-num-layers",
    "recompute-modules",
    "cpu-offloading-num-layers",
    "cross-entropy-loss-fusion",
    "cross-entropy-fusion-impl",
    "cuda-graph-impl",
    "cuda-graph-scope",
    "seq-length",
)
_DDP = (
    "use-distributed-optimizer",
    "use-megatron-fsdp",
    "data-parallel-sharding-strategy",
    "num-distributed-optimizer-instances",
    "overlap-grad-reduce",
    "overlap-param-gather",
)
_OPTIMIZER = (
    "optimizer-cpu-offload",
    "optimizer-offload-fraction",
    "use-precision-aware-optimizer",
    "overlap-cpu-optimizer-d2h-h2d",
    "main-grads-dtype",
    "main-params-dtype",
    "exp-avg-dtype",
    "exp-avg-sq-dtype",
)
SOURCE = "https://github.com/NVIDIA-NeMo/Megatron-Bridge"
"""Whose recipes' defaults hold."""


def _under(group: str, names: tuple[str, ...]) -> dict[str, str]:
    return {name: f"{group}.{name.replace('-', '_')}" for name in names}


PATHS: dict[str, str] = {
    **_under("model", _MODEL),
    "num-virtual-stages-per-pipeline-rank": "model.virtual_pipeline_model_parallel_size",
    **_under("train", ("micro-batch-size", "global-batch-size")),
    **_under("ddp", _DDP),
    **_under("optimizer", _OPTIMIZER),
    **_under("comm_overlap", ("tp-comm-overlap", "overlap-moe-expert-parallel-comm")),
    **_under("checkpoint", ("ckpt-format",)),
}
"""Flag of Megatron-LM: the same setting of a recipe."""
PRECISIONS = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8-tensor": "bf16_with_fp8_current_scaling_mixed",
    "fp8-block": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Names of training/mixed_precision.py."""
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "uint8"}
"""Formats of the optimizer's states as names of torch."""
_PRECISE = frozenset(
    ("bf16", "fp16", "fp8-format", "fp8-recipe", "fp4-format", "fp4-recipe", "accumulate-allreduce-grads-in-fp32")
)
_INSIDE = ("fp8-param-gather", "first-last-layers-bf16", "num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16")
_TURNED = {
    "no-gradient-accumulation-fusion": "model.gradient_accumulation_fusion",
    "no-overlap-p2p-communication": "comm_overlap.overlap_p2p_comm",
    "grad-reduce-in-bf16": "ddp.grad_reduce_in_fp32",
}
"""Flags that stand for `false`."""
_ALWAYS = (
    "sequence-parallel",
    "use-distributed-optimizer",
    "overlap-grad-reduce",
    "overlap-param-gather",
    "optimizer-cpu-offload",
    "tp-comm-overlap",
    "overlap-moe-expert-parallel-comm",
)
"""Switches that are written when off as well, since a recipe may have them on."""
_CLEARED = (
    "recompute-granularity",
    "pipeline-model-parallel-layout",
    "num-virtual-stages-per-pipeline-rank",
)
"""What is taken back (null) when the plan has none."""


def _write(plan: Plan) -> tuple[str, Draft]:
    draft = draft_of(plan)
    settings = {
        **{name: False for name in _ALWAYS},
        **{name: None for name in _CLEARED},
        **draft.settings,
    }
    kept = {name: value for name, value in settings.items() if name not in (*_PRECISE, *_INSIDE)}
    _inside(plan, draft)
    tree: dict[str, Any] = {}
    for name, value in kept.items():
        path, written = (_TURNED[name], False) if name in _TURNED else (PATHS[name], value)
        group, _, key = path.partition(".")
        tree.setdefault(group, {})[key] = DTYPES[str(written)] if name.endswith("-dtype") else written
    tree["mixed_precision"] = PRECISIONS[plan.run.precision]
    tree.setdefault("ddp", {}).setdefault("grad_reduce_in_fp32", True)
    draft.notes.append(f"launch on {plan.mapping.devices:,} devices; the recipe brings the model {plan.model.name}")
    return documents.dump(tree), draft


def _inside(plan: Plan, draft: Draft) -> None:
    """What a recipe keeps in its record of mixed precision, whose name alone is written."""
    half = plan.run.half_precision_layers
    if half:
        draft.leave(
            "half_precision_layers", str(half), "set first_last_layers_bf16 in the recipe's MixedPrecisionConfig"
        )
    if "fp8-param-gather" in draft.settings:
        draft.leave("state", "FP8 weights only", "set fp8_param_gather in the recipe's MixedPrecisionConfig")
    if "grad-reduce-in-bf16" in draft.settings:
        draft.notes.append("a MixedPrecisionConfig with grad_reduce_in_fp32 wins over ddp's: turn that off as well")


def _read(text: str, _preset: dict[str, str]) -> Launch:
    tree = documents.parse(_nested(text), file="overrides")
    if not isinstance(tree, dict):
        raise InputError("holds no overrides; write model: {tensor_model_parallel_size: 8} or dotted names with =")
    values = dict(_leaves(tree))
    by_path = {path: name for name, path in PATHS.items()}
    by_dtype = {word: name for name, word in DTYPES.items()}
    given: dict[str, list[str]] = {}
    for path, value in values.items():
        if path in by_path and value is not None and value is not False:
            words = value if isinstance(value, list) else [] if value is True else [value]
            given[by_path[path]] = [str(word) for word in words]
    given |= {name: [] for name, path in _TURNED.items() if values.get(path) is False}
    given |= {name: [by_dtype.get(word, word) for word in words] for name, words in given.items() if "-dtype" in name}
    named = {word: precision for precision, word in PRECISIONS.items()}.get(str(values.pop("mixed_precision", "")))
    given |= {"fp16": []} if named == "fp16" else {}
    launch = launch_of(Values(given, lambda name: PATHS.get(name, name)), format_="bridge", framework="megatron")
    launch = replace(launch, run={**launch.run, **({"precision": named} if named else {})})
    unread = sorted(path for path in values if path not in by_path and path not in _TURNED.values())
    notes = (f"not read: {', '.join(unread[:12])}{' and more' if len(unread) > 12 else ''}",) if unread else ()
    return replace(launch, source=SOURCE, notes=(*launch.notes, *notes))


def _nested(text: str) -> str:
    """Lines of `a.b=c` as YAML; YAML as it is."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    words = [word for line in lines for word in line.split()]
    if not words or not all("=" in word.split(":")[0] for word in words):
        return text
    pairs = (word.lstrip("+").split("=", 1) for word in words)
    return "\n".join(f"{key}: {value}" for key, value in pairs)


def _leaves(tree: dict[str, Any], above: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in tree.items():
        path = f"{above}.{key}" if above else str(key)
        found += _leaves(value, path) if isinstance(value, dict) else [(path, value)]
    return found


def _detect(text: str) -> bool:
    return bool(re.search(r"(tensor|pipeline|expert)_model_parallel_size\s*[:=]", text))


FORMAT = Format("bridge", "megatron", ".yaml", "#", _write, _read, _detect)
