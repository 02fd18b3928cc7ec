"""A case made whole: its degrees and its run, with a value taken for each fact that it does not give.

Contents: Missing, Trial, trial_of.

A value taken for a missing fact is the launcher's documented default, or the one that needs least memory, so that a
run is only called out of memory when no common choice would save it. Each is listed with the values it may have.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

from mapsearch.axes import CpKind, Dispatcher, Offload, Recompute
from mapsearch.calibration.conditions import MODULES
from mapsearch.inventories.case import Case
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.recipes import RECIPES
from mapsearch.inventories.run import Overlap, Run, StateRecipe
from mapsearch.judging.devices import Hardware, hardware_of
from mapsearch.judging.launchers import Launcher, launcher_of
from mapsearch.judging.models import Shape, shape_of
from mapsearch.judging.words import said

HALVES_STATE = StateRecipe(
    gradient_bytes=2.0, master_bytes=0.0, moment_bytes=4.0, gradient_reduce_bytes=2.0, fp8_weight_copies=0.0
)
"""A model built in BF16 with torch.optim.Adam, whose moments are in the format of the weights: 8 bytes."""
LENGTHS = (("multi-turn", 32768), ("rl", 8192), ("grpo", 8192), ("ppo", 8192), ("dpo", 8192), ("sft", 8192))
"""Tokens of a sequence by words of the task where nothing is said (assumed); 4,096 for pretraining and the rest."""
PRETRAINING_LENGTH = 4096
LORA_STATE = StateRecipe(
    gradient_bytes=0.02, master_bytes=0.02, moment_bytes=0.04, gradient_reduce_bytes=0.02, fp8_weight_copies=0.0
)
"""Weights frozen in 16 bits; 0.5 % of the parameters are trained (assumed)."""
QUANTISED_BYTES = 0.55
"""Frozen weights in 4 bits with their scales (QLoRA, arXiv 2305.14314)."""
SHARDED_STATE = StateRecipe(weight_bytes=2.0, master_bytes=2.0, fp8_weight_copies=0.0)
"""FSDP's FP32 shards, gathered in 16 bits: 16 bytes per parameter."""
POLICY_LOSS_BYTES = 12.0
"""Bytes per logit where log-probabilities of tokens are needed: PyTorch's own loss on an FP32 copy (F3.4)."""
PREFERENCE = ("rl", "grpo", "ppo", "dapo", "dpo", "rlhf")
LEARNERS = ("slime", "verl", "nemo/rl", "nemo-rl", "openrlhf", "miles", "areal")
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "fp8": "fp8-tensor"}
AXES = ("tp", "cp", "pp", "ep", "etp", "vpp")
DEEP = ("deep", "hybridep", "flex")


@dataclass(frozen=True)
class Missing:
    """A fact that the case does not give."""

    fact: str
    taken: str
    """The value that the judgement took; empty when it could take none."""
    may_be: str = ""


@dataclass(frozen=True)
class Trial:
    """One case, complete as far as it can be made so."""

    case: Case
    shape: Shape
    hardware: Hardware
    launcher: Launcher
    task: str
    """training, lora, inference, conversion."""
    words: str
    """The task in the case's words."""
    degrees: dict[str, int]
    given: frozenset[str]
    """Degrees that the case gives."""
    gpus: int | None
    run: Run | None = None
    mapping: Mapping | None = None
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()
    named_release: bool = False
    closes: bool = False
    """Whether both grids cover the devices that the case gives; else the mapping is one on as many as they need."""

    @property
    def has_mapping(self) -> bool:
        """Whether the case says how the model is split: one device, inference's TP, or some degree or shard."""
        sharded = any(getattr(self.case.mapping, key) is not None for key in ("dp_shard", "fsdp", "zero", "dp"))
        if "mapping.pp" in self.missing_names():
            return False
        return self.gpus == 1 or bool(self.given & {"tp", "pp", "ep", "cp"}) or sharded

    def missing_names(self) -> list[str]:
        """The facts that nothing could be taken for, most telling first."""
        return [one.fact for one in self.missing if not one.taken]


def trial_of(case: Case) -> Trial:
    """Everything that a case says, with what is taken for the rest. Raises ValueError for an unknown framework."""
    launcher, why, release = launcher_of(case)
    shape, hardware = shape_of(case.model), hardware_of(case.hardware)
    words = str(case.run.task or "").lower()
    trial = Trial(
        case,
        shape,
        hardware,
        launcher,
        _task(words, launcher),
        words,
        {},
        frozenset(),
        hardware.gpus,
        notes=(f"rules and defaults of {launcher.framework}: {why}", *shape.notes, *hardware.notes),
        named_release=release,
    )
    trial = _with_degrees(trial)
    return _with_run(trial)


def _task(words: str, launcher: Launcher) -> str:
    if "conversion" in words or "convert" in words:
        return "conversion"
    if "inference" in words or "serving" in words or (launcher.engine and not words):
        return "inference"
    return "lora" if "lora" in words else "training"


def _with_degrees(trial: Trial) -> Trial:
    mapping = trial.case.mapping
    found = {axis: value for axis in AXES if (value := said(getattr(mapping, axis))) is not None}
    spread = said(mapping.ulysses_sp)
    if spread is not None:
        found["cp"] = spread
    degrees = {axis: found[axis].value if axis in found else 1 for axis in AXES}
    missing = []
    if "etp" not in found and trial.launcher.etp_is_tp and degrees["tp"] > 1:
        degrees["etp"] = degrees["tp"]
        if trial.shape.has_experts is not False:
            missing.append(Missing("mapping.etp", f"{degrees['tp']} (TP, Megatron's default)", "1"))
    gpus = trial.gpus
    told_dp = _data_parallel(trial)
    if gpus is None and told_dp is not None:
        gpus = degrees["tp"] * degrees["cp"] * degrees["pp"] * told_dp
    if gpus is not None and trial.launcher.whole_ep and "ep" not in found:
        degrees["ep"] = gpus
        missing.append(Missing("mapping.ep", f"{gpus} (all ranks)", "8 and more"))
    if trial.launcher.framework.startswith("torchtitan") and degrees["ep"] == 1 and "etp" not in found:
        degrees["etp"] = degrees["tp"]  # without EP its TP splits the experts, until 9/2026
    if "ep" in found and gpus is not None and trial.launcher.engine:
        degrees["etp"] = max(1, degrees["tp"] // degrees["ep"])
    return replace(trial, degrees=degrees, given=frozenset(found), gpus=gpus, missing=tuple(missing))


def _data_parallel(trial: Trial) -> int | None:
    """DP as the case gives it; FSDP's shards times replicas count as DP."""
    mapping = trial.case.mapping
    told, shard, copies = said(mapping.dp), said(mapping.dp_shard), said(mapping.dp_replicate)
    if told is not None:
        return told.value
    return shard.value * (copies.value if copies else 1) if shard is not None else None


def _with_run(trial: Trial) -> Trial:
    """Run and mapping, when the grids close."""
    degrees, missing = trial.degrees, list(trial.missing)
    if trial.shape.model is None:
        missing.insert(0, Missing("model", "", "layers, hidden, experts, params_b, or a known name"))
    if trial.hardware.memory_bytes is None:
        missing.append(Missing("hardware.mem_gb", "", "40, 80, 96, 141, 192, ..."))
    if trial.gpus is None:
        missing.append(Missing("hardware.gpus", "", "multiples of TP x CP x PP"))
    ends = trial.case.mapping.first_stage_layers is not None or trial.case.mapping.last_stage_layers is not None
    if ends and "pp" not in trial.given:
        missing.append(Missing("mapping.pp", "", "what divides the layers between first and last stage"))
    elif not trial.has_mapping:
        missing.append(Missing("mapping", "", "TP, PP, EP, CP"))
    attention = degrees["tp"] * degrees["cp"] * degrees["pp"]
    experts = degrees["etp"] * degrees["ep"] * degrees["pp"]
    gpus = trial.gpus or math.lcm(attention, experts)
    run, more = _run(trial, max(1, gpus // attention))
    closes = gpus % attention == 0 and gpus % experts == 0
    trial = replace(trial, run=run, missing=(*missing, *more), closes=closes and trial.gpus is not None)
    return replace(trial, mapping=_mapping(trial, run, gpus if closes else math.lcm(attention, experts)))


def _mapping(trial: Trial, run: Run, gpus: int) -> Mapping:
    degrees = trial.degrees
    stage = gpus // degrees["pp"]
    kind = CpKind.ULYSSES if trial.case.mapping.ulysses_sp is not None else CpKind.RING
    words = f"{trial.case.mapping.dispatcher or ''} {trial.case.run.dispatcher or ''}".lower()
    deep = any(word in words for word in DEEP)
    values: dict[str, Any] = {
        **{axis: degrees[axis] for axis in ("tp", "cp", "pp", "ep", "etp")},
        "dp": stage // (degrees["tp"] * degrees["cp"]),
        "edp": stage // (degrees["etp"] * degrees["ep"]),
        "vpp": degrees["vpp"],
        "micro_batch": run.micro_batch[0],
        "zero": run.zero[0],
    }
    mapping = Mapping.model_validate(values)
    return mapping.model_copy(
        update={
            "schedule": run.schedule[0],
            "recompute": run.recompute[0],
            "offload": run.offload[0],
            "cp_kind": int(kind),
            "dispatcher": int(Dispatcher.DEDUPLICATED if deep else Dispatcher.ALL_TO_ALL),
        }
    )


def _run(trial: Trial, dp: int) -> tuple[Run, list[Missing]]:
    case, missing = trial.case, []
    length = said(case.run.seq) or said(case.run.longest_sequence)
    if length is None:
        taken = next((tokens for word, tokens in LENGTHS if word in trial.words), PRETRAINING_LENGTH)
        missing.append(Missing("run.seq", f"{taken:,}", "2,048 to 131,072"))
    tokens = length.value if length else taken
    nodes = said(case.hardware.nodes)
    batches = (case.run.micro_batch, case.run.local_batch, case.run.per_device_batch)
    micro = next((found for given in batches if (found := said(given)) is not None), None)
    small = micro.value if micro else 8 if case.run.micro_batch == "large" else trial.launcher.local_batch
    if micro is None:
        missing.append(Missing("run.micro_batch", f"{small}", "1 to 8"))
    recompute = _recompute(trial)
    graph = "full" in str(case.run.cuda_graph or "").lower()
    if recompute is None and graph:
        missing.append(Missing("run.recompute", "none (as recipes that capture whole iterations)", "none, full"))
        recompute = int(Recompute.NONE)
    if recompute is None:
        missing.append(Missing("run.recompute", "full (needs least memory)", "none, norm+activation, full"))
        recompute = int(Recompute.FULL)
    rounds, batch = _rounds(trial, dp * small, nodes.value if nodes else None)
    zero = _zero(trial)
    precision = PRECISIONS.get(str(case.run.precision or "bf16").lower().split("-")[0], "bf16")
    interleaved = trial.degrees["vpp"] > 1 or "interleav" in str(case.mapping.schedule or "").lower()
    copies = said(case.mapping.distopt_instances) or said(case.mapping.dp_replicate)
    run = Run(
        name="case",
        sequence_length=_whole_tokens(trial, tokens),
        global_batch=batch if batch else dp * small * rounds,
        precision=precision,
        state=_state(trial, precision),
        overlap=Overlap(tp=False, pp=interleaved),
        loss_bytes=POLICY_LOSS_BYTES if learns(trial) else None,
        framework=trial.launcher.framework,
        sequence_parallel=case.mapping.sequence_parallel is not False,
        gathered_inputs_kept=trial.launcher.zero == 3,
        data_parallel_unit="layer" if zero == 3 else "stage",
        shard_replicas=copies.value if copies else 1,
        reserve=0.0,
        micro_batch=[small],
        zero=[zero],
        schedule=["interleaved" if interleaved else "1f1b"],
        recompute=[recompute],
        offload=[int(Offload.OPTIMIZER) if offloads(trial) else int(Offload.NONE)],
    )
    return run, missing


def _whole_tokens(trial: Trial, tokens: int) -> int:
    """The length rounded up to whole pieces of CP and TP when the case gives a bound or a longest length only."""
    told = said(trial.case.run.seq)
    if told is not None and told.exact:
        return tokens
    pieces = 2 * trial.degrees["cp"] * trial.degrees["tp"]
    return pieces * math.ceil(tokens / pieces)


def _rounds(trial: Trial, per_round: int, nodes: int | None) -> tuple[int, int | None]:
    """Microbatches per step, and the global batch where the case gives it."""
    run = trial.case.run
    told = said(run.microbatches) or said(run.grad_accum)
    if told is not None:
        return told.value, None
    batch = said(run.global_batch, nodes)
    if batch is not None:
        return max(1, batch.value // per_round), batch.value
    many = 64 if run.grad_accum == "large" else 1
    return max(many, 2 * trial.degrees["pp"]), None


def _recompute(trial: Trial) -> int | None:
    run = trial.case.run
    if run.gradient_checkpointing is not None:
        return int(Recompute.FULL) if run.gradient_checkpointing else int(Recompute.NONE)
    words = str(run.recompute or run.activation_checkpoint or "").lower()
    if not words:
        return None
    if "full" in words:
        return int(Recompute.FULL)
    modules = [int(code) for name, code in MODULES.items() if re.search(rf"\b{name}\b", words)]
    if "selective" in words and not modules and trial.launcher.framework != "megatron":
        return int(Recompute.NORM | Recompute.ACTIVATION)  # FSDP's keeps products of matrices
    default = int(Recompute.CORE_ATTENTION) if "selective" in words and not modules else int(Recompute.NONE)
    return reduce(or_, modules, default)


def _zero(trial: Trial) -> int:
    given = said(trial.case.mapping.zero)
    if given is not None:
        return min(3, given.value)
    return 1 if trial.case.run.distributed_optimizer and trial.launcher.zero == 0 else trial.launcher.zero


def offloads(trial: Trial) -> bool:
    """Whether optimizer states live in host memory."""
    run = trial.case.run
    share = run.optimizer_offload
    part = share if isinstance(share, int | float) else 0
    return (
        bool(run.optimizer_cpu_offload)
        or part > 0
        or any(word in str(run.offload or "").lower() for word in ("optim", "cpu"))
    )


def learns(trial: Trial) -> bool:
    """Whether it is reinforcement learning or preference training, with a reference model beside the actor."""
    asked = set(trial.words.replace(",", " ").split())
    return bool(asked & set(PREFERENCE)) or (not asked and any(name in trial.case.source.lower() for name in LEARNERS))


def _state(trial: Trial, precision: str) -> StateRecipe:
    if trial.task == "lora":
        return LORA_STATE.replaced(weight_bytes=QUANTISED_BYTES) if "qlora" in trial.words else LORA_STATE
    if trial.launcher.zero == 3:
        return HALVES_STATE if trial.launcher.halves else SHARDED_STATE
    if precision == "fp16":
        return RECIPES["FP16 weights and gradients"].replaced(master_bytes=4.0)
    return RECIPES["BF16 weights and gradients" if trial.launcher.half_gradients else "BF16 weights, FP32 gradients"]
