"""Published rows as cases: what was run, on what, how, and what was measured.

Contents: Groups, Case, Refused, read_rows, case_of, cases_of, load_cases, scale_of.

A row becomes a `Case`, or it is `Refused` with a reason; none is dropped. What a row does not say (micro-batch,
virtual stages, recompute) is enumerated over its legal values: a case has several mappings then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mapsearch import documents
from mapsearch.axes import CpKind, Dispatcher, Schedule
from mapsearch.calibration.conditions import built_whole, dispatcher_of, recompute_of, run_of, with_defaults
from mapsearch.calibration.frameworks import Family, family_of, source_of
from mapsearch.calibration.measured import Measured, measured
from mapsearch.calibration.shapes import Unfit, fabric_of, hardware_facts, model_of
from mapsearch.costs.placement import rows_of
from mapsearch.costs.stages import stages_of
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import Run
from mapsearch.topologies.fabric import Fabric

MICRO_BATCHES = (1, 2, 4, 8)
"""Candidates where a row does not say."""
MAX_CHUNKS = 8
"""Largest number of virtual stages that is a candidate where a row does not say."""
SCHEDULES = {
    "1f1b": Schedule.ONE_F_ONE_B,
    "1f1b-i": Schedule.INTERLEAVED,
    "interleaved": Schedule.INTERLEAVED,
    "zb-1p": Schedule.ZB_H1,
    "zb-2p": Schedule.ZB_2P,
    "dualpipe": Schedule.DUALPIPE,
    "dualpipev": Schedule.DUALPIPE_V,
}
TUNED_SOURCES = ("moe_parallel_folding_2504.14960", "llama3_herd_2407.21783", "megatron_lm_readme_h100")
"""Tables of the best mapping per model and strategy that leave micro-batch and virtual stages out."""
NVIDIA = ("A100", "A800", "H100", "H200", "H800", "H20", "B200", "B300", "GB200", "GB300", "L40")


@dataclass(frozen=True)
class Groups:
    """What a row is counted under."""

    source: str
    model: str
    device: str
    """As the row names it."""
    arch: Literal["dense", "moe"]
    precision: str
    scale: str
    family: Family
    framework: str
    """With its release."""
    quality: str
    workload: str
    study: str
    """Rows that differ in mapping, batch or options only."""

    @property
    def nvidia(self) -> bool:
        """True for NVIDIA devices."""
        return self.device.startswith(NVIDIA)

    @property
    def megatron_nvidia(self) -> bool:
        """Pretraining with a framework of the Megatron family on NVIDIA devices."""
        megatron = self.family in ("megatron", "megatron-deepspeed")
        return megatron and self.nvidia and self.workload == "pretrain"


@dataclass(frozen=True)
class Case:
    """One row, ready to be predicted."""

    id: str
    model: Model
    run: Run
    fabric: Fabric
    mappings: tuple[Mapping, ...]
    """All mappings that agree with what the row says; one where it says all."""
    measured: Measured
    groups: Groups
    notes: tuple[str, ...] = ()
    """What was assumed, and what the cost model leaves out."""
    tuned: bool = False
    """The source prints its best mapping only: what it leaves out was chosen to be fast."""
    built_whole: bool = False
    """A rank's stage is built on the device before ZeRO-3 shards it."""

    @property
    def devices(self) -> int:
        """Devices of the run."""
        return self.fabric.devices


@dataclass(frozen=True)
class Refused:
    """One row that is not counted, and why."""

    id: str
    kind: str
    """`not represented`, `incomplete` or `not measured`."""
    reason: str
    quality: str


def scale_of(devices: int) -> str:
    """The class of a cluster by its devices."""
    for most, name in ((8, "up to 8"), (64, "9 to 64"), (512, "65 to 512"), (2048, "513 to 2048")):
        if devices <= most:
            return name
    return "over 2048"


def read_rows(folder: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """All rows of a folder of YAML files, and the facts of its hardware.yaml. Raises InputError."""
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise InputError("has no *.yaml files", file=str(folder))
    rows: list[dict[str, Any]] = []
    hardware: dict[str, dict[str, Any]] = {}
    for path in files:
        document = documents.load(path)
        if path.stem == "hardware":
            hardware = hardware_facts(document)
        elif isinstance(document, list):
            rows.extend(document)
        else:
            raise InputError("holds no list of rows", file=str(path))
    return rows, hardware


def load_cases(folder: Path) -> tuple[list[Case], list[Refused]]:
    """Every row of a folder as a case or a refusal. Raises InputError."""
    rows, hardware = read_rows(folder)
    if not hardware:
        # A folder of somebody's own rows uses the facts of the published devices.
        raise InputError("has no hardware.yaml with the facts of the devices", file=str(folder))
    return cases_of(rows, hardware)


def cases_of(rows: list[dict[str, Any]], hardware: dict[str, dict[str, Any]]) -> tuple[list[Case], list[Refused]]:
    """Rows as cases and refusals."""
    cases: list[Case] = []
    refused: list[Refused] = []
    for row in rows:
        found = case_of(row, hardware)
        if isinstance(found, Case):
            cases.append(found)
        else:
            refused.append(found)
    return cases, refused


def case_of(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> Case | Refused:
    """One row as a case, or why it is none."""
    try:
        return _case(row, hardware)
    except Unfit as problem:
        return Refused(str(row["id"]), problem.kind, str(problem), str(row["quality"]))


def _case(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> Case:
    try:
        model = with_defaults(row, model_of(row["model"]))
        run = run_of(row, model)
    except ValueError as problem:
        raise Unfit("not represented", f"the shapes contradict each other: {problem}") from None
    candidates, notes = _mappings(row, model, run)
    fabric, fitting = _fitting(row, hardware, candidates, model, run)
    # MFU and TFLOP/s with recompute counted depend on it; with several candidates the last one says most.
    peak = fabric.device.peak_flops.get(run.linear_format, 0.0)
    found = measured(row, model, run, int(fitting[-1].recompute), peak)
    if found.step_time_basis == "mfu" and not row["measured"].get("mfu_peak_tflops"):
        notes.append("MFU without a printed peak; taken as a share of the datasheet's")
    if found.step_time_s is None and found.memory_bytes is None and not found.oom:
        raise Unfit("not measured", "the row measured neither time nor memory in a form that can be converted")
    # The baselines with FSDP were not: their times are those of one or two sequences per gather.
    return Case(
        id=str(row["id"]),
        model=model,
        run=run,
        fabric=fabric,
        mappings=tuple(fitting),
        measured=found,
        groups=_groups(row),
        notes=tuple(notes),
        tuned=source_of(row) in TUNED_SOURCES and row["mapping"].get("zero_stage") != 3,
        built_whole=built_whole(row),
    )


def _groups(row: dict[str, Any]) -> Groups:
    hardware, model = row["hardware"], row["model"]
    parts = (
        source_of(row),
        model["name"],
        hardware["device"],
        hardware["devices"],
        model["seq_len"],
        row["precision"],
        row["framework"],
    )
    return Groups(
        source=source_of(row),
        model=str(model["name"]),
        device=str(hardware["device"]),
        arch="moe" if model.get("experts") else "dense",
        precision=str(row["precision"]),
        scale=scale_of(int(hardware["devices"])),
        family=family_of(row),
        framework=str(row["framework"]),
        quality=str(row["quality"]),
        workload=str(row["workload"]),
        study=" ".join(str(part) for part in parts),
    )


def _fitting(
    row: dict[str, Any], hardware: dict[str, dict[str, Any]], candidates: list[Mapping], model: Model, run: Run
) -> tuple[Fabric, list[Mapping]]:
    """The fabric, and the mappings that it and the layers have room for. Raises Unfit."""
    problem = "no mapping agrees with it"
    for fabric in fabric_of(row, hardware):
        fitting = []
        for mapping in candidates:
            try:
                stages_of(mapping.pp, int(mapping.schedule), mapping.cut, model=model, run=run)
                fitting.append(_placed(mapping, fabric))
            except (InputError, ValueError) as found:
                problem = str(found)
        if fitting:
            return fabric, fitting
    raise Unfit("not represented", f"the mapping has no place: {problem}")


def _placed(mapping: Mapping, fabric: Fabric) -> Mapping:
    """The mapping in the usual order, or with data parallelism across domains. Raises InputError."""
    try:
        rows_of(mapping, fabric)
    except InputError as problem:
        far = fabric.levels[-1].name
        near, inside = fabric.levels[0].name, mapping.edp // math.gcd(mapping.edp, mapping.dp)
        outside = {"dp": {far: mapping.dp}, "edp": {far: mapping.edp // inside, near: inside}}
        moved = mapping.model_copy(update={"placement": outside})
        try:
            rows_of(moved, fabric)
        except InputError:
            raise problem from None
        return moved
    return mapping


def _sizes(row: dict[str, Any], model: Model) -> dict[str, int]:
    """Sizes of both grids. Raises Unfit."""
    told, devices = row["mapping"], int(row["hardware"]["devices"])
    if told.get("tp") is None and told.get("dp") is None and told.get("ep") is None:
        raise Unfit("incomplete", "the row gives no mapping")
    tp, cp, pp = (int(told.get(axis) or 1) for axis in ("tp", "cp", "pp"))
    cp *= int(told.get("attention_sp_ulysses") or 1)
    if devices % (tp * cp * pp):
        raise Unfit("incomplete", f"TP {tp} x CP {cp} x PP {pp} does not divide {devices} devices")
    dp = devices // (tp * cp * pp)
    if told.get("dp") and int(told["dp"]) != dp and not told.get("jax_devices"):
        raise Unfit("incomplete", f"TP {tp} x CP {cp} x PP {pp} x DP {told['dp']} is not {devices} devices")
    ep, etp = (int(told.get("ep") or 1), int(told.get("etp") or 1)) if model.moe else (1, 1)
    if model.moe and ep == 1 and dispatcher_of(row) == Dispatcher.DEDUPLICATED:
        ep = math.gcd(model.moe.experts, tp * cp * dp // etp)
    if (tp * cp * dp) % (ep * etp):
        raise Unfit("incomplete", f"ETP {etp} x EP {ep} does not divide the {tp * cp * dp} ranks of a stage")
    return {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "etp": etp, "ep": ep, "edp": tp * cp * dp // (ep * etp)}


def _mappings(row: dict[str, Any], model: Model, run: Run) -> tuple[list[Mapping], list[str]]:
    """All mappings that agree with the row, and what had to be assumed. Raises Unfit."""
    told, sizes, notes = row["mapping"], _sizes(row, model), _notes(row)
    written = told.get("pp_schedule")
    if written not in (None, *SCHEDULES):
        raise Unfit("not represented", f"pipeline schedule {written}")
    zero = told.get("zero_stage")
    shared = {
        **sizes,
        "zero": int(zero) if zero is not None else 1,
        "dispatcher": dispatcher_of(row) if model.moe else 0,
        "cp_kind": _cp_kind(row),
    }
    micro_batches = _micro_batches(row, sizes, run, notes)
    chunks = _chunks(row, sizes["pp"], model, notes)
    recomputes = recompute_of(row, model)
    if len(recomputes) > 1:
        notes.append("recompute is a range")
    result = []
    for micro_batch in micro_batches:
        for vpp in chunks:
            schedule = SCHEDULES[written] if written else Schedule.INTERLEAVED if vpp > 1 else Schedule.ONE_F_ONE_B
            for recompute in recomputes:
                coded = {**shared, "schedule": int(schedule), "recompute": recompute}
                result.append(_mapping(coded, micro_batch, vpp))
    return result, notes


def _mapping(coded: dict[str, int], micro_batch: int, vpp: int) -> Mapping:
    # The fields hold codes; validation would read words.
    return Mapping().model_copy(update={**coded, "micro_batch": micro_batch, "vpp": vpp})


def _cp_kind(row: dict[str, Any]) -> int:
    told = row["mapping"]
    if told.get("attention_sp_ulysses") or told.get("cp_comm") == "a2a":
        return int(CpKind.ULYSSES)
    if source_of(row) in ("llama3_herd_2407.21783", "torchtitan") or family_of(row) == "maxtext":
        return int(CpKind.ALL_GATHER)
    return int(CpKind.RING)


def _micro_batches(row: dict[str, Any], sizes: dict[str, int], run: Run, notes: list[str]) -> list[int]:
    dp, pp = sizes["dp"], sizes["pp"]
    given = row["batch"].get("micro_batch_seqs")
    if row["mapping"].get("jax_devices"):
        # Several JAX devices per chip, each with a batch of its own: a chip works on all of them at once.
        return [max(run.global_batch // (dp * int(row["batch"].get("grad_accum") or 1)), 1)]
    if given:
        # TPU rows with several sequences per device write what one replica of them works on.
        return [min(int(given), max(run.global_batch // dp, 1))] if given >= 1 else [1]
    pp, local = int(row["mapping"].get("pp") or 1), run.global_batch // dp
    if source_of(row) == "torchtitan" and pp > 1 and local % pp == 0:
        # What torchtitan does unless it is told otherwise (its option pipeline_parallel_microbatches).
        notes.append("as many microbatches as pipeline ranks, the framework's default")
        return [local // pp]
    notes.append("micro-batch is a range")
    legal = [size for size in MICRO_BATCHES if run.global_batch % (size * dp) == 0]
    return legal or [1]


def _chunks(row: dict[str, Any], pp: int, model: Model, notes: list[str]) -> list[int]:
    told = row["mapping"]
    if pp == 1:
        return [1]
    if told.get("vpp"):
        return [int(told["vpp"])]
    if told.get("vpp_published", True) and "VP printed NA" not in str(row.get("notes")):
        return [1]
    notes.append("virtual stages are a range")
    # Embedding and loss may take the place of a layer each: 126 layers on 16 stages in chunks of one (Llama 3, 3.3.2).
    slots = next((n for n in range(model.layers, model.layers + 3) if n % pp == 0), model.layers)
    return [v for v in range(1, MAX_CHUNKS + 1) if slots % (pp * v) == 0] or [1]


def _notes(row: dict[str, Any]) -> list[str]:
    """What the cost model leaves out of a row."""
    told, shape, notes = row["mapping"], row["model"], []
    if shape.get("experts") and int(told.get("ep") or 1) == 1 and dispatcher_of(row) == Dispatcher.DEDUPLICATED:
        notes.append(
            "EP is not printed, and its dispatcher has none without it; taken over all ranks that experts allow"
        )
    if "parallel transformer block" in str(shape.get("note_shape")):
        notes.append("parallel block and a sliding window of unknown width; taken as a plain layer")
    features = row["features"] if isinstance(row["features"], dict) else {}
    offloads = ("cpu_offloading_num_layers", "fine_grained_activation_offloading", "activation_offload")
    if any(features.get(flag) for flag in offloads):
        notes.append("offload of some activations is left out")
    if "natural" in str(row["moe_routing"]):
        notes.append("natural routing of unknown skew; taken as even")
    return notes
