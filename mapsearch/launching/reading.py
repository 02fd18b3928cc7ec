"""Arguments of Megatron core, by the name of the flag, as what they say of mapping, run, model and devices.

Contents: Values, launch_of.

Defaults are those of megatron/training/arguments.py: a flag that is not there says something too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mapsearch.axes import Dispatcher, Hidden, Offload, Recompute, Schedule
from mapsearch.errors import InputError, listed
from mapsearch.inventories.layouts import read_layout
from mapsearch.launching import settings
from mapsearch.launching.launch import MOST, Launch

LONGEST = 20
"""Digits of a number that is looked at."""


@dataclass
class Values:
    """Settings by flag name; remembers which were asked for."""

    given: dict[str, list[str]]
    where: Callable[[str], str] = lambda name: f"--{name}"
    """How a message calls a setting."""
    asked: set[str] = field(default_factory=set)

    def words(self, name: str) -> list[str]:
        """All words of a setting; empty without it."""
        self.asked.add(name)
        return self.given.get(name, [])

    def word(self, name: str, accepted: dict[str, Any] | None = None) -> str | None:
        """The first word. Raises InputError when it is none of those accepted."""
        words = self.words(name)
        if not words:
            return None
        if accepted is not None and words[0] not in accepted:
            raise InputError(f"takes {listed(accepted)}, not {words[0]!r}", field=self.where(name))
        return words[0]

    def has(self, name: str) -> bool:
        """Whether a switch is on."""
        self.asked.add(name)
        return name in self.given and self.given[name][:1] not in (["false"], ["False"])

    def whole(self, name: str) -> int | None:
        """A whole number. Raises InputError."""
        word = self.word(name)
        if word is None or word in ("None", "null"):
            return None
        if "$" in word:
            raise InputError(f"is {word}, which the file does not set; give --set NAME=VALUE", field=self.where(name))
        if not word.replace("_", "").isdigit():
            raise InputError(f"takes a whole number, not {word!r}", field=self.where(name))
        if len(word) > LONGEST or int(word) > MOST:
            raise InputError(f"takes a whole number up to {MOST:,}, not {word}", field=self.where(name))
        return int(word)

    def size(self, name: str, default: int = 1) -> int:
        """A size of at least 1. Raises InputError."""
        found = self.whole(name)
        if found == 0:
            raise InputError("is 0; it must be at least 1", field=self.where(name))
        return default if found is None else found

    def number(self, name: str) -> float | None:
        """A number. Raises InputError."""
        word = self.word(name)
        try:
            return None if word is None else float(word)
        except ValueError:
            raise InputError(f"takes a number, not {word!r}", field=self.where(name)) from None


SHAPE = {
    "num-layers": "layers",
    "hidden-size": "hidden",
    "num-attention-heads": "heads",
    "num-query-groups": "kv_heads",
    "ffn-hidden-size": "ffn",
    "num-experts": "experts",
    "moe-router-topk": "topk",
    "moe-ffn-hidden-size": "expert_ffn",
    "vocab-size": "vocab",
}


def launch_of(values: Values, *, format_: str, framework: str, fsdp: str = "use-megatron-fsdp") -> Launch:
    """What settings of Megatron core say. Raises InputError naming the flag."""
    shape = {fact: found for name, fact in SHAPE.items() if (found := values.whole(name)) is not None}
    mapping, told, notes = _mapping(values, shape, fsdp)
    run = _run(values, mapping)
    if values.has("multi-latent-attention"):
        notes.append("a case has no ranks of latent attention: name the model, unless its shape is a built-in one's")
    if values.has("use-tp-pp-dp-mapping"):
        notes.append("ranks are counted tp-cp-ep-pp-dp (--use-tp-pp-dp-mapping); a mapping does not say so")
    return Launch(format_, framework, mapping, run, model=shape, told=told, notes=tuple(notes))


def _mapping(
    values: Values, shape: dict[str, int], fsdp: str
) -> tuple[dict[str, Any], dict[str, dict[str, Any]], list[str]]:
    tp, notes = values.size("tensor-model-parallel-size"), list[str]()
    dense = "experts" not in shape and not values.words("expert-model-parallel-size")
    etp = values.size("expert-tensor-parallel-size", 1 if dense else tp)
    mapping: dict[str, Any] = {
        "tp": tp,
        "cp": values.size("context-parallel-size"),
        "pp": values.size("pipeline-model-parallel-size"),
        "ep": values.size("expert-model-parallel-size"),
        "etp": etp,
        "zero": _zero(values, fsdp),
        "offload": _offload(values),
        "recompute": _recompute(values),
        "overlap": _hidden(values),
        "dispatcher": _dispatcher(values),
        "cp_kind": _cp_kind(values),
    }
    micro_batch = values.whole("micro-batch-size")
    if micro_batch:
        mapping["micro_batch"] = micro_batch
    told: dict[str, dict[str, Any]] = {"mapping": {}, "run": {}}
    _pipeline(values, mapping, shape.get("layers"), told)
    return mapping, told, notes


def _zero(values: Values, fsdp: str) -> int:
    sharded = values.has("use-distributed-optimizer")
    stages = {word: stage for stage, word in settings.SHARDING.items()} | {"no_shard": 0}
    strategy = values.word("data-parallel-sharding-strategy", stages)
    if values.has(fsdp) or values.has("use-torch-fsdp2"):
        return 3 if values.has("use-torch-fsdp2") and strategy is None else stages[strategy or "no_shard"]
    return int(sharded)


def _offload(values: Values) -> int:
    share = values.number("optimizer-offload-fraction")
    code = int(Offload.OPTIMIZER) if values.has("optimizer-cpu-offload") and share != 0 else 0
    moved = values.whole("cpu-offloading-num-layers")
    return code | (int(Offload.ACTIVATIONS) if moved else 0)


def _recompute(values: Values) -> int:
    granularity = values.word("recompute-granularity", {"full": 0, "selective": 0})
    if granularity == "full":
        return int(Recompute.FULL)
    if granularity is None and not values.has("recompute-activations"):
        return int(Recompute.NONE)
    by_name = {name: bit for bit, name in settings.MODULES.items()}
    code = 0
    for word in values.words("recompute-modules"):
        code |= by_name.get(word, 0)
    return code or int(Recompute.CORE_ATTENTION)


def _hidden(values: Values) -> int:
    gather = values.has("overlap-param-gather")
    experts = values.has("overlap-moe-expert-parallel-comm")
    return int(Hidden.PARAM_GATHER) * gather | int(Hidden.EXPERT_ALL_TO_ALL) * experts


def _dispatcher(values: Values) -> int:
    kinds = {
        "alltoall": Dispatcher.ALL_TO_ALL,
        "alltoall_seq": Dispatcher.ALL_TO_ALL,
        "allgather": Dispatcher.ALL_GATHER,
        "flex": Dispatcher.DEDUPLICATED,
    }
    kind = kinds[values.word("moe-token-dispatcher-type", kinds) or "allgather"]
    padded = values.has("moe-pad-expert-input-to-capacity")
    return int(Dispatcher.FIXED_ALL_TO_ALL if padded and kind == Dispatcher.ALL_TO_ALL else kind)


def _cp_kind(values: Values) -> int:
    kinds = {word: kind for kind, word in settings.CP_COMM.items()}
    return kinds[values.word("cp-comm-type", kinds) or "p2p"]


def _pipeline(values: Values, mapping: dict[str, Any], layers: int | None, told: dict[str, dict[str, Any]]) -> None:
    """Virtual stages, schedule and layout, by whichever flag says them."""
    pp, cuts = mapping["pp"], list[int]()
    vpp = values.size("num-virtual-stages-per-pipeline-rank")
    per_chunk = values.whole("num-layers-per-virtual-pipeline-stage")
    if per_chunk and layers:
        vpp = max(1, layers // (pp * per_chunk))
    text = values.word("pipeline-model-parallel-layout")
    if text:
        chunks = read_layout_of(text, values.where("pipeline-model-parallel-layout"))
        if len(chunks) % pp:
            field_ = values.where("pipeline-model-parallel-layout")
            raise InputError(f"has {len(chunks)} chunks, which are no multiple of PP {pp}", field=field_)
        vpp = len(chunks) // pp
        cuts = [sum(chunks[stage::pp]) for stage in range(pp)]
    ends = [values.whole(f"decoder-{end}-pipeline-num-layers") for end in ("first", "last")]
    counted = [values.has(f"account-for-{what}-in-pipeline-split") for what in ("embedding", "loss")]
    if any(end is not None for end in ends):
        told["mapping"] |= {
            f"{name}_stage_layers": end for name, end in zip(("first", "last"), ends, strict=True) if end is not None
        }
    if layers and not cuts and pp > 1 and (any(end is not None for end in ends) or any(counted)):
        cuts = _ends(layers, pp, ends, counted)
    mapping |= {"vpp": vpp, "schedule": int(Schedule.INTERLEAVED if vpp > 1 else Schedule.ONE_F_ONE_B)}
    if cuts:
        mapping["layout"] = cuts


def _ends(layers: int, pp: int, ends: list[int | None], counted: list[bool]) -> list[int]:
    """Layers per stage with an own number on the first or last stage, or embedding and loss counted as layers.

    Raises InputError when the stages between do not divide evenly.
    """
    if any(counted):
        each, left = divmod(layers + sum(counted), pp)
        stages = [each - counted[0], *[each] * (pp - 2), each - counted[1]]
    else:
        middle = pp - sum(end is not None for end in ends)
        rest = layers - sum(end or 0 for end in ends)
        each, left = divmod(rest, middle) if middle else (0, rest)
        first, last = (each if end is None else end for end in ends)
        stages = [first, *[each] * (pp - 2), last]
    if left:
        raise InputError(
            f"{layers} layers do not divide over PP {pp} with these ends: {left} left over", field="layout"
        )
    return stages


def read_layout_of(text: str, where: str) -> list[int]:
    """Layers per chunk of a layout string. Raises InputError."""
    try:
        found = read_layout(text)
    except ValueError as problem:
        raise InputError(str(problem), field=where) from None
    if not isinstance(found, list):
        raise InputError(f"{text!r} is no layout", field=where)
    return [int(count) for count in found]


def _run(values: Values, mapping: dict[str, Any]) -> dict[str, Any]:
    run: dict[str, Any] = {"precision": _precision(values)}
    for name, fact in (("seq-length", "sequence_length"), ("global-batch-size", "global_batch")):
        found = values.whole(name)
        if found is not None:
            run[fact] = found
    run["sequence_parallel"] = mapping["tp"] == 1 or values.has("sequence-parallel")
    instances = values.whole("num-distributed-optimizer-instances")
    if instances and instances > 1:
        run["shard_replicas"] = instances
    capacity = values.number("moe-expert-capacity-factor")
    if capacity is not None and capacity >= 1:
        run["routing"] = {"capacity_factor": capacity}
    halves = [values.whole(f"num-layers-at-{end}-in-bf16") for end in ("start", "end")]
    if values.has("first-last-layers-bf16"):
        run["half_precision_layers"] = sum(1 if count is None else count for count in halves)
    run["state"] = _state(values)
    run["overlap"] = _overlap(values)
    if values.has("cross-entropy-loss-fusion"):
        run["fused_cross_entropy"] = True
    scopes = {"attn": "attention", "moe_router": "router", "full_iteration": "all"}
    graphs = [scopes[word] for word in values.words("cuda-graph-scope") if word in scopes]
    if graphs:
        run["graphs"] = list(dict.fromkeys(graphs))
    return run


def _precision(values: Values) -> str:
    recipes = {recipe: name for name, (_, recipe) in settings.FP8.items()} | {"delayed": "fp8-tensor"}
    if values.word("fp4-format") is not None:
        return "nvfp4"
    if values.word("fp8-format") is not None:
        return recipes[values.word("fp8-recipe", recipes) or "delayed"]
    return "fp16" if values.has("fp16") else "bf16"


def _state(values: Values) -> dict[str, Any]:
    """Bytes per parameter that differ from 16-bit weights with FP32 gradients, moments and master weights."""
    state: dict[str, Any] = {}
    if values.has("fp16"):
        state |= {"gradient_bytes": 2.0, "gradient_reduce_bytes": 2.0}
    if values.has("grad-reduce-in-bf16"):
        state |= {"gradient_bytes": 2.0, "gradient_reduce_bytes": 2.0}
    width = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
    moments = [values.word(name, width) for name in ("exp-avg-dtype", "exp-avg-sq-dtype")]
    if values.has("use-precision-aware-optimizer") and any(moments):
        state["moment_bytes"] = sum(width[word or "fp32"] for word in moments)
    master = values.word("main-params-dtype", width)
    if values.has("use-precision-aware-optimizer") and master:
        state["master_bytes"] = width[master]
    if values.has("fp8-param-gather"):
        state |= {"fp8_primary_weights": True}
    return state


def _overlap(values: Values) -> dict[str, Any]:
    return {
        "grad_reduce": values.has("overlap-grad-reduce"),
        "param_gather": values.has("overlap-param-gather"),
        "tp": values.has("tp-comm-overlap"),
        "pp": not values.has("no-overlap-p2p-communication"),
        "expert_all_to_all": values.has("overlap-moe-expert-parallel-comm"),
        "shared_expert": values.has("moe-shared-expert-overlap"),
    }
