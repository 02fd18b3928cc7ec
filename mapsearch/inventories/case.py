"""The case inventory: what somebody ran, on what and how, as far as it was said, and what came of it.

Contents: CaseModel, CaseHardware, CaseMapping, CaseRun, Case.

Unlike other inventories a case is a report: every fact may be missing, and numbers may be bounds (`> 5000`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field

from mapsearch.inventories.base import Inventory
from mapsearch.inventories.reported import Reported

Number = int | float | str | None
"""A number, or one as people write it: `> 5000`, `4 x nodes`, `large`."""
Word = str | int | float | None


class CaseModel(Reported):
    """The model as far as it is said; what its name is known for is filled in."""

    name: Word = None
    layers: Number = None
    dense_layers: Number = None
    """Leading dense layers."""
    hidden: Number = None
    heads: Number = None
    kv_heads: Number = None
    ffn: Number = None
    experts: Number = None
    topk: Number = None
    expert_ffn: Number = None
    vocab: Number = None
    params_b: Number = None
    """Billions of parameters."""


class CaseHardware(Reported):
    """The devices as far as they are said."""

    gpu: Word = None
    """The kind of device: H100, A100 40GB, B300, GB200, Ascend 910B, ..."""
    mem_gb: Number = None
    """Nominal memory of a device."""
    gpus: Number = None
    gpus_per_node: Number = None
    nodes: Number = None
    nvlink_domain: Number = None
    """Devices of one high-bandwidth domain; those of a node when not said."""
    host_gb: Number = None
    """Memory of a node."""


class CaseMapping(Reported):
    """The parallel sizes and choices as far as they are said."""

    tp: Number = None
    cp: Number = None
    dp: Number = None
    pp: Number = None
    ep: Number = None
    etp: Number = None
    edp: Number = None
    vpp: Number = None
    dp_shard: Number = None
    """Ranks over which FSDP shards (torchtitan's data_parallel_shard_degree)."""
    dp_replicate: Number = None
    fsdp: Number = None
    """The same, as FSDP recipes write it; with EP, over the ranks that EP leaves."""
    ulysses_sp: Number = None
    zero: Number = None
    sequence_parallel: bool | None = None
    schedule: Word = None
    dispatcher: Word = None
    first_stage_layers: Number = None
    last_stage_layers: Number = None
    layout: Any = None
    """A pipeline layout, in whatever notation; that one was given is what counts."""
    distopt_instances: Number = None
    recommended: dict[str, Any] | None = None
    """Sizes that somebody advised; they are not those that ran."""


class CaseRun(Reported):
    """How it was run as far as it is said."""

    task: Word = None
    """pretraining when not said; SFT, LoRA, DPO, RL, GRPO colocate, inference, checkpoint conversion, ..."""
    framework: Word = None
    """A framework whose rules are known, with its release: megatron@0.15. When not said, that of the source."""
    seq: Number = None
    longest_sequence: Number = None
    micro_batch: Number = None
    local_batch: Number = None
    per_device_batch: Number = None
    batch: Number = None
    global_batch: Number = None
    microbatches: Number = None
    grad_accum: Number = None
    precision: Word = None
    optimizer: Word = None
    distributed_optimizer: bool | None = None
    optimizer_cpu_offload: bool | None = None
    optimizer_offload: Number = None
    """Share of the optimizer states that is kept in host memory."""
    offload: Any = None
    """What is kept in host memory: param, grad, optimizer."""
    recompute: Word = None
    activation_checkpoint: Word = None
    gradient_checkpointing: bool | None = None
    dispatcher: Word = None
    cuda_graph: Any = None
    packing: bool | None = None
    padding: bool | None = None
    """Packed sub-sequences, rows of experts or the vocabulary are padded."""
    tokens: Number = None
    """Tokens of a batch on one rank, where the report gives them."""
    message: Any = None
    """Size of the messages of a measured collective."""
    compile: Any = None
    phase: Word = None


class Case(Inventory):
    """One report. `model`, `hardware`, `mapping` and `run` are judged; `source` says whose software it ran on."""

    kind: ClassVar[str] = "case"
    source: str = ""
    model: CaseModel = CaseModel()
    hardware: CaseHardware = CaseHardware()
    mapping: CaseMapping = CaseMapping()
    run: CaseRun = CaseRun()
    what_happened: Any = None
    verdict: Any = None
    """What the reporters concluded; never read by the judgement."""
    because: Any = None
    """Why, in their words; never read by the judgement."""
    relation: str | list[str] | None = None
    """The relation that `because` names, in the words of `benchmarks/verdicts.py`; never read by the judgement."""
    known_numbers: dict[str, Any] = Field(default_factory=dict)
    """What was measured; never read by the judgement."""
    not_stated: Any = None
    confidence: Any = None
    numbers_are_example: bool | None = None
    notes: Any = None

    @property
    def facts(self) -> Self:
        """The case without what came of it: all that a judgement may read."""
        empty = dict.fromkeys(("what_happened", "verdict", "because", "relation", "not_stated"))
        return self.model_copy(update={**empty, "known_numbers": {}})


CASE_KEYS = ("hardware", "mapping", "run")


def is_case(document: Any) -> bool:
    """Whether a document is a case: it has a record of its mapping, beside one of the hardware or the model."""
    if not isinstance(document, dict) or "tp" in document:
        return False
    records = [key for key in ("model", *CASE_KEYS) if isinstance(document.get(key), dict)]
    return ("mapping" in document and len(records) >= 2) or len(records) >= 3
