"""Domain 3, training state: every part of memory, the worst stage, and what there is (FORMULAS 1.1, 1.2, 3.3 to 3.7).

Contents: rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mapsearch.constraints.capacity import usable_hbm_bytes
from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase
from mapsearch.costs import activations, memory
from mapsearch.costs.data_parallel import shard_count
from mapsearch.costs.estimate import number, one
from mapsearch.costs.footprint import dense_parameters, in_flight, routed_parameters
from mapsearch.costs.parameters import ledger

PARTS = {
    "weights": ("F3.6", "sum of the bytes of all parameters"),
    "gradients": ("F3.6", "bytes of the gradient buffers that live through the step"),
    "optimizer": ("F3.6", "bytes of master copies and moments on the device"),
    "activations": ("F3.3, F3.5", "live bytes at the end of the last forward in flight, less states"),
    "recomputed_layer": ("F3.3", "rise of live bytes while one layer is computed again"),
    "logits_or_transient": ("F3.4, F3.7", "rise of live bytes during the loss or the backward of one layer"),
    "gradient_scratch": ("F3.7", "bytes of the framework's cached weight gradients"),
    "gathered_weights": ("F3.6", "bytes of weights gathered for use"),
    "workspace": ("F3.7", "bytes that the libraries' work spaces hold"),
    "communicators": ("F1.1", "device memory before and after the communicators are made"),
    "dispatcher_buffers": ("F3.3", "bytes of the dispatcher's fixed buffers"),
}
"""Part of memory: its formula, and how it is told from the others in a snapshot of the allocator."""
STATES = ("weights", "gradients", "optimizer")
SNAPSHOT = "a snapshot of the allocator's history on one rank of the worst stage, third step or later"
CAPACITY = "(1 - reserve) (HBM - context)"
GIB = 2.0**30


def rows(case: ContractCase) -> list[Row]:
    """States of the whole job, peaks by stage, parts of the worst one, and what is offered."""
    return [*_whole(case), *_peaks(case), *_parts(case), *_local(case), *_elsewhere(case)]


def _whole(case: ContractCase) -> list[Row]:
    """States of all devices together, by the model's own count and by its nominal size."""
    sizes = {"": ledger(model=case.model).total}
    if case.model.nominal_parameters:
        sizes["_nominal"] = case.model.nominal_parameters
    return [row for suffix, count in sizes.items() for row in _of_size(case, suffix, count)]


def _of_size(case: ContractCase, suffix: str, count: float) -> list[Row]:
    """Bytes per parameter times parameters, and the least that a device can hold of them."""
    state, devices = case.run.state, case.estimate.devices
    recipe = {
        "weights": ("weight_bytes", state.weight_bytes),
        "gradients": ("gradient_bytes", state.gradient_bytes),
        "master": ("master_bytes", state.master_bytes),
        "moments": ("moment_bytes", state.moment_bytes),
    }
    each = sum(size for _, size in recipe.values())
    where = ["model.nominal_parameters" if suffix else "model.layers"]
    of = "the nominal parameters" if suffix else "all parameters"
    record = "number format of weights, gradients, master copies and moments"
    row = partial(case.row, domain=3, unit="bytes", formula="F1.2", record=record)
    told = [
        row(
            f"state.total_{part}_bytes{suffix}",
            meaning=f"{part} of {of}, all devices together, nothing kept twice",
            predicted=size * count,
            origins=[*where, f"run.state.{name}"],
            compute="bytes per parameter times parameters",
        )
        for part, (name, size) in recipe.items()
    ]
    whole = row(
        f"state.total_bytes{suffix}",
        meaning=f"model states of {of}: {each:g} bytes each",
        predicted=each * count,
        origins=where,
        compute="their sum",
        parts=[one.id for one in told],
    )
    return [*told, whole, _ideal(case, suffix, each * count / devices, where)]


def _ideal(case: ContractCase, suffix: str, share_bytes: float, where: list[str]) -> Row:
    """No mapping holds less of the states on a device, unless it offloads them."""
    return case.row(
        f"state.ideal_device_bytes{suffix}",
        3,
        f"model states per device if all were divided over {case.estimate.devices:,} devices",
        share_bytes,
        "bytes",
        formula="F1.2",
        origins=where,
        limit=usable_hbm_bytes(case.facts),
        advisory=bool(one(case.point.cell.offload)),
        why=CAPACITY,
        record="number format of weights, gradients, master copies and moments",
        compute="their sum over the devices: no mapping holds less on the device without offload",
    )


def _peaks(case: ContractCase) -> list[Row]:
    device, limit, estimate = case.fabric.device, usable_hbm_bytes(case.facts), case.estimate
    offered = ["topology.device.hbm", "run.reserve", "profile.runtime_bytes"]
    row = partial(case.row, domain=3, unit="bytes", kind="model")
    usable = row(
        "state.usable_bytes",
        meaning="HBM that tensors and named buffers may fill: (1 - reserve) (HBM - context)",
        predicted=limit,
        formula="F1.1",
        origins=offered,
        record="free device memory right after the context and the libraries are loaded",
        compute=f"(1 - {case.run.reserve:g}) times it; of {device.hbm_bytes / 1e9:,.1f} GB",
    )
    capped = partial(row, limit=limit, why=CAPACITY)
    worst = capped(
        "state.peak_bytes",
        meaning=f"peak of live tensors and named buffers on the worst stage, {estimate.worst_stage}",
        predicted=estimate.peak_memory_bytes,
        formula="F1.1, F3.7",
        origins=[*offered, "run.state.weight_bytes", "mapping.pp", "mapping.zero", "mapping.recompute"],
        record="max_memory_allocated on every rank, third step or later",
        compute="the largest over the ranks",
        parts=[f"state.{part}_bytes" for part in estimate.memory_bytes],
    )
    stages = [
        capped(
            f"state.stage_{stage}.peak_bytes",
            meaning=f"peak on stage {stage}",
            predicted=peak,
            formula="F3.5, F3.7",
            origins=["mapping.pp", "mapping.schedule"],
            record="max_memory_allocated on every rank of the stage, third step or later",
            compute="the largest over the ranks",
        )
        for stage, peak in enumerate(estimate.memory_by_stage_bytes)
    ]
    return [usable, worst, *stages, _reserve(case)]


def _reserve(case: ContractCase) -> Row:
    """What the allocator takes beyond what is alive."""
    return case.row(
        "state.reserve_share",
        3,
        "what the allocator reserves beyond live tensors, as a share of usable HBM",
        case.run.reserve,
        "share",
        kind="model",
        formula="F1.1",
        origins=["run.reserve"],
        record="memory_reserved and memory_allocated at the peak of the worst rank",
        compute="1 - allocated / reserved; above the run's reserve the mapping can run out of memory",
    )


def _parts(case: ContractCase) -> list[Row]:
    """The worst stage in parts, and its states together."""
    found = case.estimate.memory_bytes
    row = partial(case.row, domain=3, unit="bytes", kind="model", record=SNAPSHOT)
    told = []
    for part, value in found.items():
        formula, compute = PARTS.get(part, ("F3.3", "bytes of that name in the snapshot"))
        told.append(
            row(
                f"state.{part}_bytes",
                meaning=f"{part.replace('_', ' ')} of the worst stage",
                predicted=value,
                formula=formula,
                origins=["mapping.pp", "mapping.tp", "mapping.zero", "mapping.recompute"],
                compute=compute,
            )
        )
    return told


def _local(case: ContractCase) -> list[Row]:
    """States by stage, microbatches in flight, and what one layer keeps."""
    point, mapping = case.point, case.mapping
    attention, expert = point.memory
    states = [
        sum(float(side[part][stage]) for side in (attention, expert) for part in STATES if part in side)
        for stage in range(mapping.pp)
    ]
    row = partial(case.row, domain=3, record=SNAPSHOT)
    middle = mapping.pp // 2
    told = [
        row(
            f"state.stage_{stage}.states_bytes",
            meaning=f"weights, gradients and optimizer states on stage {stage}",
            predicted=states[stage],
            unit="bytes",
            formula="F3.6",
            origins=["run.state.weight_bytes", "run.state.gradient_bytes", "mapping.zero", "mapping.dp", "mapping.edp"],
            compute=f"sum of the three; {_wrongly_divided(case) / GIB:,.2f} GiB on stage {middle} would say "
            "that routed experts are divided over DP*CP and not over EDP"
            if stage == middle and case.model.moe
            else "sum of the three",
        )
        for stage in sorted({0, middle, mapping.pp - 1})
    ]
    return [*told, *_pieces(case)]


def _pieces(case: ContractCase) -> list[Row]:
    """Microbatches in flight, one layer's activations, and the logits."""
    point, run, mapping = case.point, case.run, case.mapping
    row = partial(case.row, domain=3, record=SNAPSHOT)
    held = [number(in_flight(point.cell, kind)) for kind in range(len(point.cell.kinds))]
    kept = number(activations.logits_bytes(mapping.tp, mapping.cp, mapping.micro_batch, model=case.model, run=run))
    return [
        row(
            "state.in_flight",
            meaning="microbatches whose activations the first stage holds at once",
            predicted=max(held),
            unit="microbatches",
            formula="F3.5",
            origins=["mapping.pp", "mapping.vpp", "mapping.schedule"],
            compute="forwards less backwards that stage 0 has begun, at its largest",
        ),
        row(
            "state.layer_activation_bytes",
            meaning="activations that one layer keeps of one microbatch",
            predicted=_layer_bytes(case),
            unit="bytes",
            formula="F3.3",
            origins=["model.hidden", "mapping.tp", "mapping.cp", "mapping.recompute"],
            compute="live bytes after the forward of a layer less those before it",
        ),
        row(
            "state.logits_bytes",
            meaning="logits and loss of one microbatch on the last stage",
            predicted=kept,
            unit="bytes",
            formula="F3.4",
            origins=["model.vocab", "mapping.tp", "mapping.cp", "run.fused_cross_entropy"],
            compute="rise of live bytes while the loss is computed",
        ),
    ]


def _layer_bytes(case: ContractCase) -> float:
    """Activations of one layer of the kind that has most, one microbatch."""
    mapping, model = case.mapping, case.model
    told: dict[str, Any] = {"model": model, "run": case.run}
    recompute = int(mapping.recompute)
    half = activations.attention_activation_bytes(mapping.tp, recompute, **told)
    spread = activations.ulysses_activation_bytes(mapping.tp, mapping.cp, int(mapping.cp_kind), recompute, **told)
    half = half + spread
    if model.moe is None:
        return case.tokens * number(half + activations.dense_ffn_activation_bytes(mapping.tp, recompute, **told))
    moe = activations.moe_base_activation_bytes(mapping.tp, recompute, **told)
    grid = (case.tokens, mapping.etp, mapping.ep, recompute, int(mapping.dispatcher))
    return case.tokens * number(half + moe) + number(activations.routed_activation_bytes(*grid, **told))


def _wrongly_divided(case: ContractCase) -> float:
    """States of a middle stage if routed experts were divided over DP*CP as dense weights are (F8)."""
    point, run, mapping = case.point, case.run, case.mapping
    kind = max(range(len(point.cell.kinds)), key=lambda place: number(point.cell.kinds[place].count))
    shards = shard_count(mapping.dp * mapping.cp, run=run)
    local = number(dense_parameters(point.attention)[kind]) + number(routed_parameters(point.expert)[kind])
    parts = (memory.weight_bytes, memory.gradient_bytes, memory.optimizer_bytes)
    return sum(number(part(local, shards, mapping.zero, run=run)) for part in parts)


def _elsewhere(case: ContractCase) -> list[Row]:
    """What offload keeps in host memory and on NVMe."""
    device = case.fabric.device
    row = partial(case.row, domain=3, unit="bytes", kind="model", formula="F1.1", compute="largest over the ranks")
    told = []
    if case.estimate.host_bytes:
        told.append(
            row(
                "state.host_bytes",
                meaning="what offload keeps in host memory, per device",
                predicted=case.estimate.host_bytes,
                origins=["topology.device.host_memory", "mapping.offload"],
                limit=device.host_memory_bytes,
                why="host memory of a device",
                record="pinned host memory of every rank's process",
            )
        )
    if case.estimate.nvme_bytes:
        told.append(
            row(
                "state.nvme_bytes",
                meaning="what offload keeps on NVMe, per device",
                predicted=case.estimate.nvme_bytes,
                origins=["topology.device.nvme", "mapping.offload"],
                limit=device.nvme_bytes,
                why="NVMe of a device",
                record="bytes of the offload files of every rank",
            )
        )
    return told
