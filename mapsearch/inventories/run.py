"""The run inventory: batch, lengths, precision, limits, and the candidate values of each choice.

Contents: Precision, RankSkew, Routing, StateRecipe, Overlap, Constraints, Run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from mapsearch import axes
from mapsearch.errors import listed, near_miss
from mapsearch.frameworks import RELEASES, named
from mapsearch.inventories.base import Inventory
from mapsearch.inventories.layouts import read_layouts, read_splits


def _coded(words: axes.Words) -> Any:
    every_bit = sum(set(words.by_word.values()))

    def read(value: object) -> int:
        # Code that builds a run passes sets as they are; a number with a bit of no word is no set.
        if words.bits and isinstance(value, int) and not isinstance(value, bool) and not value & ~every_bit:
            return words.checked(int(value))
        return words.read(value)

    def write(code: int) -> str:
        return words.write(code)

    schema = {"type": "string", "examples": list(words.examples)}
    return BeforeValidator(read), PlainSerializer(write, return_type=str), WithJsonSchema(schema)


ScheduleWord = Annotated[int, *_coded(axes.SCHEDULE)]
RecomputeWords = Annotated[int, *_coded(axes.RECOMPUTE)]
CpKindWord = Annotated[int, *_coded(axes.CP_KIND)]
DispatcherWord = Annotated[int, *_coded(axes.DISPATCHER)]
OffloadWords = Annotated[int, *_coded(axes.OFFLOAD)]
OverlapWords = Annotated[int, *_coded(axes.OVERLAP)]


def _decided(value: Any) -> Any:
    """A list of one value as that value; `[true, false]` stays a list."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, bool) for one in values):
        raise ValueError(f"takes true, false, or [true, false] to let the search decide, not {value}")
    if len(set(values)) != len(values):
        raise ValueError(f"lists a value twice: {value}")
    return values if len(values) > 1 else values[0]


Either = Annotated[bool | list[bool], BeforeValidator(_decided)]
"""A flag, or both values of it: then the search decides."""


def _framework(text: str) -> str:
    named(text)
    return text


_RELEASED: Any = {"type": "string", "examples": list(RELEASES)}
FrameworkName = Annotated[str, AfterValidator(_framework), WithJsonSchema(_RELEASED)]

LayoutWord = Literal["auto", "ends", "flop", "family"]
LayoutChoice = LayoutWord | list[Annotated[int, Field(ge=0)]]
SplitChoice = Literal["all", "half"] | Annotated[int, Field(gt=0, le=2**20)]
Vocabulary = Literal["last", "redistributed", "split-1", "split-2"]
ComputePrecision = Literal["bf16", "fp16", "fp8-tensor", "fp8-block", "mxfp8", "nvfp4"]


class StateRecipe(Inventory):
    """Bytes of model state per parameter (FORMULAS 3.6)."""

    kind: ClassVar[str] = "state recipe"
    weight_bytes: float = Field(default=2.0, gt=0)
    gradient_bytes: float = Field(default=4.0, gt=0)
    """Persistent gradient buffer."""
    master_bytes: float = Field(default=4.0, ge=0)
    moment_bytes: float = Field(default=8.0, ge=0)
    """Both Adam moments together."""
    fp8_primary_weights: bool = False
    """Weights are kept in FP8 only; otherwise FP8 compute adds its copies to the BF16 weights."""
    fp8_weight_copies: float = Field(default=2.0, ge=0)
    """Bytes per parameter of cached FP8 row and column copies, charged only with FP8 compute."""
    unsharded_bytes: float = Field(default=0.0, ge=0)
    """Bytes per parameter that stay whole on every rank under ZeRO-3: weights that are gathered once per step, and
    gradients that are reduced once per step."""
    fp4_weight_copies: float = Field(default=1.125, ge=0)
    """The same in NVFP4: row and column copy of 4 bits, each with an E4M3 scale per 16 weights."""
    gradient_reduce_bytes: float = Field(default=4.0, gt=0)
    """Bytes per parameter that the gradient reduction sends."""


class RankSkew(Inventory):
    """How uneven the load is on one number of expert ranks."""

    kind: ClassVar[str] = "skew record"
    rank_skew: float = Field(ge=1.0, le=1e6)
    """Largest over mean load of the ranks."""
    pair_skew: float = Field(ge=1.0, le=1e6)
    """Largest over mean traffic of a pair of ranks."""


class Routing(Inventory):
    """How evenly tokens spread over experts, and what is done about it."""

    kind: ClassVar[str] = "routing record"
    capacity_factor: float = Field(default=1.25, ge=1.0, le=1000)
    """Slots per expert over the mean load, for padded dispatchers."""
    rank_skew: float = Field(default=1.0, ge=1.0, le=1000)
    """Largest over mean load of the expert ranks, for dropless dispatchers."""
    pair_skew: float = Field(default=1.0, ge=1.0, le=1000)
    """Largest over mean traffic of a pair of ranks."""
    loads: str = Field(default="", exclude_if=lambda name: not name)
    """File of a router's measured loads (CSV, JSON, npz), from the working directory: replaced on reading by what it
    gives for every number of expert ranks, `by_ranks`, so that the search weighs EP with the skew it has."""
    experts: Literal["consecutive", "placed"] = Field(
        default="consecutive", exclude_if=lambda way: way == "consecutive"
    )
    """How `loads` are counted: experts as frameworks place them, or placed by `mapsearch experts` on each number of
    ranks."""
    by_ranks: dict[Annotated[int, Field(ge=1, le=2**30)], RankSkew] = Field(
        default_factory=dict, exclude_if=lambda table: not table
    )
    """`rank_skew` and `pair_skew` by number of expert ranks, in place of the two numbers; a number that is not listed
    takes those of the next larger one, which are at least its own."""
    consecutive: bool = False
    """The experts of a token follow each other (a fake balanced gate), so that few devices hold them."""
    min_capacity: int = Field(default=0, ge=0)
    """Least slots per expert and source (DeepSpeed: 8)."""
    dispatch_bytes: float = Field(default=0.0, ge=0)
    """Bytes per element of the dispatch all-to-all. 0: by precision, 2, or 1 and its scales in FP8."""
    combine_bytes: float = Field(default=2.0, gt=0)
    """Bytes per element of the combine all-to-all."""

    @model_validator(mode="after")
    def _one_source(self) -> Routing:
        if (self.loads or self.by_ranks) and (self.rank_skew, self.pair_skew) != (1.0, 1.0):
            raise ValueError("takes rank_skew and pair_skew, or loads, or by_ranks; not both a number and a table")
        if self.loads and self.by_ranks:
            raise ValueError("takes loads or by_ranks, not both")
        return self


class Overlap(Inventory):
    """Which communications the framework hides (FORMULAS 4.3).

    What takes memory may be left to the search: `[true, false]`.
    """

    kind: ClassVar[str] = "overlap record"
    grad_reduce: bool = True
    param_gather: Either = True
    """Gathers of parameters, and the streams of ZeRO-2 and ZeRO-3, which holds one more unit for it."""
    tp: bool = True
    """Tensor-parallel communication pipelined with its GEMM."""
    cp: bool = True
    pp: bool = True
    """Point-to-point hidden behind another chunk (interleaved schedules)."""
    expert_all_to_all: Either = False
    """Dispatch and combine of one microbatch behind another's compute (merged 1F1B), which holds more in flight."""
    shared_expert: bool = False
    """Dispatch and combine behind the shared expert, where they do not hide behind another microbatch."""

    @property
    def codes(self) -> tuple[int, ...]:
        """Candidate values of the axis `overlap`, the one that a mapping has when it names none first."""
        expert, gather = self.expert_all_to_all, self.param_gather
        if isinstance(expert, bool) and isinstance(gather, bool):
            return (expert * axes.Hidden.EXPERT_ALL_TO_ALL + gather * axes.Hidden.PARAM_GATHER,)
        return tuple(
            e * axes.Hidden.EXPERT_ALL_TO_ALL + g * axes.Hidden.PARAM_GATHER
            for e in ([expert] if isinstance(expert, bool) else expert)
            for g in ([gather] if isinstance(gather, bool) else gather)
        )


class UserConstraints(Inventory):
    """The user's own limits on axes; each is a relation like any other and can be in conflict."""

    kind: ClassVar[str] = "constraints record"
    fix: dict[str, Any] = Field(default_factory=dict)
    """Axis: value."""
    allow: dict[str, list[Any]] = Field(default_factory=dict)
    """Axis: accepted values."""
    at_most: dict[str, float] = Field(default_factory=dict)
    at_least: dict[str, float] = Field(default_factory=dict)
    inside: dict[str, list[str]] = Field(default_factory=dict)
    """Level name: axes whose groups may not leave one unit of that level."""

    @model_validator(mode="after")
    def _known_axes(self) -> UserConstraints:
        choices = (*axes.SIZES, *axes.CHOICES)
        for name in (*self.fix, *self.allow, *self.at_most, *self.at_least):
            if name not in choices:
                raise ValueError(f"{name!r} is not an axis{near_miss(name, choices)}; axes: {listed(choices)}")
        for members in self.inside.values():
            for name in members:
                if name not in axes.SIZES:
                    raise ValueError(f"{name!r} is not a parallel size; accepted: {listed(axes.SIZES)}")
        for name in (*self.fix, *self.allow):
            for value in self.allow.get(name, [self.fix.get(name)]):
                read_axis(name, value)
        return self


def read_axis(axis: str, value: Any) -> int:
    """The code or number of one axis value as written. Raises ValueError."""
    if axis in axes.WORDS:
        return axes.WORDS[axis].read(value)
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).lstrip("-").isdigit():
        raise ValueError(f"{axis} takes a whole number, not {value!r}")
    if int(value) < (0 if axis == "zero" else 1):
        raise ValueError(f"{axis} takes a whole number of at least {0 if axis == 'zero' else 1}, not {value}")
    return int(value)


class Run(Inventory):
    """One training run: what is fixed, what is limited, and what the search may choose from."""

    kind: ClassVar[str] = "run"
    name: str = Field(default="run", min_length=1)
    sequence_length: int = Field(gt=0, le=2**40)
    global_batch: int = Field(gt=0, le=2**40)
    """Sequences per optimizer step."""
    mean_square_length: float | None = Field(default=None, gt=0)
    """sum(L_i^2) / sum(L_i) of packed documents; the sequence length when all are one piece."""
    precision: ComputePrecision = "bf16"
    """Of linear layers; the attention core, routers and the output head stay in 16 bits."""
    half_precision_layers: int = Field(default=0, ge=0)
    """Layers whose linear layers stay in 16 bits as well, under FP8 or NVFP4 (Megatron `first_last_layers_bf16`)."""
    state: StateRecipe = StateRecipe()
    routing: Routing = Routing()
    overlap: Overlap = Overlap()
    framework: FrameworkName = "megatron"
    """Whose legality rules apply beyond physics (FORMULAS 5.2): `megatron`, `torchtitan`, `deepspeed`, `fsdp2`,
    `mindspeed` or `none`, and after an @ the release: `megatron@0.14`. Without it the newest known one's hold."""
    sequence_parallel: bool = True
    gathered_inputs_kept: bool = False
    """Column-parallel layers save the gathered input, as PyTorch's own do; Megatron gathers again."""
    memory_efficient_permutation: bool = True
    """Router probability applied before the second expert GEMM, so its output need not be kept."""
    fused_cross_entropy: bool = False
    """Loss computed in place of the logits: 2 bytes per logit instead of 6."""
    loss_bytes: float | None = Field(default=None, gt=0)
    """Bytes per logit that another loss holds at its peak; PyTorch's own: 12 on an FP32 copy, 8 in 16 bits."""
    shard_replicas: int = Field(default=1, gt=0, le=2**30)
    """Copies of the sharded states (HSDP, Megatron's optimizer instances): ZeRO divides over 1/k of a group."""
    data_parallel_unit: Literal["stage", "layer", "tensor"] = "stage"
    """What one data-parallel call carries, and with it how often its latency is paid. FSDP: a layer."""
    vocabulary: Vocabulary = "last"
    """Where embedding and output head live on a pipeline: on its first and last stage, with or without layers moved
    away from them, or split over all stages (FORMULAS 3.5)."""
    reserve: float = Field(default=0.15, ge=0.0, lt=1.0)
    """Share of usable HBM kept for allocator fragmentation; charged once."""
    exposed_limit: float = Field(default=1.0, gt=0.0, le=1.0)
    """Largest exposed communication as a share of the step."""
    exposed_limit_by_class: dict[Literal["tp", "cp", "ep", "dp", "pp"], float] = Field(default_factory=dict)
    flash_attention: bool = True
    """False: the score matrix is computed in full and passes through memory, as before FlashAttention."""
    fused_experts: bool = False
    """Activation and quantisation of the experts run inside the grouped GEMM kernels."""
    attention_kernel: Literal["best", "flash-2"] = "best"
    """`flash-2`: FlashAttention-2 on a device with a faster kernel (Hopper), as in `torch.nn.functional` until 2.5."""
    graphs: list[Literal["attention", "router", "all"]] = Field(default_factory=list)
    """What is launched as a captured graph, so that the host does not limit it."""
    optimizer_memory_passes: float = Field(default=1.0, gt=0)
    micro_batch: list[Annotated[int, Field(gt=0, le=2**30)]] = Field(default=[1, 2, 4], min_length=1)
    vpp: list[Annotated[int, Field(gt=0, le=1024)]] = Field(default=[1, 2, 4, 5, 8], min_length=1)
    schedule: list[ScheduleWord] = Field(default=[1, 2], min_length=1)
    recompute: list[RecomputeWords] = Field(default=[0, 3, 64], min_length=1)
    zero: list[Annotated[int, Field(ge=0, le=3)]] = Field(default=[1], min_length=1)
    offload: list[OffloadWords] = Field(default=[0], min_length=1)
    cp_kind: list[CpKindWord] = Field(default=[0, 1, 2], min_length=1)
    dispatcher: list[DispatcherWord] = Field(default=[0], min_length=1)
    layout: Annotated[list[LayoutChoice], BeforeValidator(read_layouts)] = Field(default=["auto"], min_length=1)
    """How the layers may be cut over the stages: `auto`: evenly, as frameworks do unless told otherwise; `ends`:
    embedding and loss count as a layer each; `flop`: the largest stage has least FLOP; `family`: those that trade
    time for memory or even out the ends; or the layers per stage as a list, for pipelines with as many stages."""
    recompute_stages: Annotated[list[SplitChoice], BeforeValidator(read_splits)] = Field(default=["all"], min_length=1)
    """On how many stages from the first on to recompute: `all`, `half` (rounded up), or a number; not split where
    schedules are V-shaped or bidirectional."""
    placement: dict[Literal["tp", "cp", "dp", "pp", "etp", "ep", "edp"], Literal["inside", "free", "priced"]] = Field(
        default_factory=dict
    )
    """Axes whose groups must stay inside the high-bandwidth domain (`inside`) or may leave it (`free`).

    `priced`: they may leave it, and the answer says what keeping them inside would cost.
    """
    constraints: UserConstraints = UserConstraints()

    @model_validator(mode="after")
    def _distinct(self) -> Run:
        for name in axes.CHOICES:
            values = self.offered(name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name} lists a value twice: {values}")
        return self

    def offered(self, axis: str) -> Sequence[int]:
        """Candidate values of a choice."""
        return self.overlap.codes if axis == "overlap" else getattr(self, axis)

    @property
    def attended_length(self) -> float:
        """Length that the quadratic part of attention sees: sum(L_i^2) / sum(L_i)."""
        return self.mean_square_length or float(self.sequence_length)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step."""
        return self.global_batch * self.sequence_length

    @property
    def fp8(self) -> bool:
        """True when GEMMs run in an FP8 format."""
        return "fp8" in self.precision

    @property
    def fp4(self) -> bool:
        """True when GEMMs run in NVFP4."""
        return self.precision == "nvfp4"

    @property
    def half_format(self) -> str:
        """The 16-bit format of what is never quantised: attention core, router, output head."""
        return "fp16" if self.precision == "fp16" else "bf16"

    @property
    def linear_format(self) -> str:
        """The format of linear layers: a key of a device's peaks, and what MFU is counted against."""
        return "fp4" if self.fp4 else "fp8" if self.fp8 else self.half_format

    @property
    def splits_vocabulary(self) -> bool:
        """True when every pipeline stage holds a part of the vocabulary."""
        return self.vocabulary.startswith("split")

    def narrow_share(self, layers: int) -> float:
        """Share of `layers` whose linear layers run in FP8 or NVFP4; 0 in 16 bits."""
        return max(0.0, 1.0 - self.half_precision_layers / layers) if self.fp8 or self.fp4 else 0.0
