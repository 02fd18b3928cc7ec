"""A launch as a case: what `mapsearch check` judges, with everything that the file leaves open left open.

Contents: case_document, named_by_shape, case_of, run_document.
"""

from __future__ import annotations

from typing import Any

from mapsearch.axes import CpKind, Dispatcher, Hidden, Offload, Recompute
from mapsearch.inventories.base import validate
from mapsearch.inventories.case import Case
from mapsearch.inventories.models import load_model, model_names
from mapsearch.inventories.run import Run
from mapsearch.launching.launch import Launch
from mapsearch.launching.settings import MODULES

SIZES = ("tp", "cp", "dp", "pp", "ep", "etp", "zero")
DISPATCHERS = {
    int(Dispatcher.ALL_TO_ALL): "alltoall",
    int(Dispatcher.FIXED_ALL_TO_ALL): "alltoall, padded to the capacity",
    int(Dispatcher.ALL_GATHER): "allgather",
    int(Dispatcher.DEDUPLICATED): "flex",
}


def case_document(launch: Launch) -> dict[str, Any]:
    """The records of a case: model, hardware, mapping, run; a model without a name gets it by its shape."""
    model, notes = dict(launch.model), list(launch.notes)
    if "name" not in model:
        known = named_by_shape(model)
        if known:
            model = {"name": known, **model}
            notes.append(f"the model is named by its shape: {known}")
    whose = {} if launch.source else {"framework": launch.framework}
    return {
        **({"source": launch.source} if launch.source else {}),
        "model": model,
        "hardware": dict(launch.hardware),
        "mapping": {**_mapping(launch), **launch.told.get("mapping", {})},
        "run": {**whose, **_run(launch), **launch.told.get("run", {})},
        **({"notes": notes} if notes else {}),
    }


def named_by_shape(shape: dict[str, Any]) -> str | None:
    """The built-in model with these layers, widths, heads and experts; None when there is none, or not one."""
    if not {"layers", "hidden", "heads"} <= set(shape):
        return None
    found = []
    for name in model_names():
        model = load_model(name)
        facts = {"layers": model.layers, "hidden": model.hidden, "heads": model.heads}
        facts |= (
            {"experts": model.moe.experts, "topk": model.moe.top_k} if model.moe else {"experts": 0, "ffn": model.ffn}
        )
        if all(shape.get(key, 0 if key == "experts" else value) == value for key, value in facts.items()):
            found.append(name)
    return found[0] if len(found) == 1 else None


def case_of(launch: Launch, *, file: str) -> Case:
    """The case of a launch. Raises InputError."""
    return validate(Case, case_document(launch), file=file)


def _mapping(launch: Launch) -> dict[str, Any]:
    given = launch.mapping
    put = {name: given[name] for name in SIZES if name in given}
    if put.get("cp", 1) > 1 and given.get("cp_kind") == CpKind.ULYSSES:
        put["ulysses_sp"] = put.pop("cp")
    if given.get("vpp", 1) > 1:
        put["vpp"] = given["vpp"]
    if given.get("layout"):
        put["layout"] = "-".join(map(str, given["layout"]))
    if "sequence_parallel" in launch.run:
        put["sequence_parallel"] = launch.run["sequence_parallel"]
    if launch.run.get("shard_replicas", 1) > 1:
        put["distopt_instances"] = launch.run["shard_replicas"]
    return put


def _run(launch: Launch) -> dict[str, Any]:
    given, run = launch.mapping, launch.run
    put: dict[str, Any] = {}
    for name, fact in (("seq", "sequence_length"), ("global_batch", "global_batch"), ("precision", "precision")):
        if fact in run:
            put[name] = run[fact]
    if "micro_batch" in given:
        put["micro_batch"] = given["micro_batch"]
    if "recompute" in given:
        put["recompute"] = _recompute(given["recompute"])
    if "dispatcher" in given and given.get("ep", 1) > 1:
        put["dispatcher"] = DISPATCHERS[given["dispatcher"]]
    if given.get("offload", 0) & Offload.OPTIMIZER:
        put["optimizer_cpu_offload"] = True
    if given.get("overlap", 0) & Hidden.EXPERT_ALL_TO_ALL:
        put["expert_overlap"] = True
    return put


def _recompute(code: int) -> str:
    if code & Recompute.FULL:
        return "full"
    modules = [name for bit, name in MODULES.items() if code & bit]
    return f"selective: {', '.join(modules)}" if modules else "none"


def run_document(launch: Launch, *, file: str) -> dict[str, Any]:
    """The run of a launch with its choices as the only candidates; what the file leaves open keeps its default.

    Raises InputError where length or batch are missing.
    """
    chosen = {name: [launch.mapping[name]] for name in ("micro_batch", "vpp", "zero") if name in launch.mapping}
    plain = {"name": "imported", **launch.run, "framework": launch.framework, **chosen}
    coded = ("schedule", "recompute", "offload", "cp_kind", "dispatcher")
    run = validate(Run, plain, file=file)
    update = {name: [launch.mapping[name]] for name in coded if name in launch.mapping}
    return run.model_copy(update=update).model_dump(exclude_defaults=True, exclude={"sources"})
