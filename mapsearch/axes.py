"""The axes of a mapping: official names, coded values, and how people write them.

Contents: GRIDS, SIZES, ROWS, Schedule, Recompute, CpKind, Dispatcher, Offload, Hidden, SCHEDULES, SCOPE, words, read,
first_stages.

Categorical axes are integer codes (or bit sets), so that quantities stay plain numpy functions: a code is an
index into a table of facts, a bit set is masked. Rows are integer arrays whose last dimension is the level,
innermost first.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mapsearch.errors import listed, near_miss

ATTENTION_GRID = ("tp", "cp", "dp", "pp")
EXPERT_GRID = ("etp", "ep", "edp", "pp")
SIZES = ("tp", "cp", "dp", "pp", "etp", "ep", "edp")
ROWS = tuple(f"{size}_row" for size in SIZES)
CHOICES = ("micro_batch", "vpp", "schedule", "recompute", "zero", "offload", "cp_kind", "dispatcher", "overlap")

DERIVED = ("tokens", "microbatches", "stage", "layers", "devices", "parameters", "shards", "payload_bytes", "inner_row")
"""Values that follow from the axes and that many quantities share.

tokens: tokens of one microbatch per rank at a layer's entrance, micro_batch * sequence / (tp * cp);
parameters: local parameters; shards: ranks a state is divided over; layers: layers of one kind on a stage;
inner_row: ways per level of the axes that stand inside an axis' groups: how far apart members are on a ring or torus.
"""

SCOPE = frozenset((*SIZES, *ROWS, *CHOICES, *DERIVED))
"""Every name a quantity may take as a positional parameter: its scope is read from its signature."""


class Schedule(enum.IntEnum):
    """Pipeline schedules (FORMULAS 3.5)."""

    GPIPE = 0
    ONE_F_ONE_B = 1
    INTERLEAVED = 2
    ZB_H1 = 3
    ZB_V = 4
    DUALPIPE = 5
    DUALPIPE_V = 6
    ZB_2P = 7


class Recompute(enum.IntEnum):
    """What the backward pass computes again: a set of modules, or everything."""

    NONE = 0
    NORM = 1
    ACTIVATION = 2
    """The FFN activation function, dense and MoE (Megatron `moe_act`)."""
    MLA_UP = 4
    CORE_ATTENTION = 8
    MLP = 16
    """The whole dense FFN."""
    MOE = 32
    """The whole MoE layer, dispatch and combine included."""
    FULL = 64


class CpKind(enum.IntEnum):
    """How context parallel exchanges keys and values (FORMULAS 4.2)."""

    RING = 0
    ALL_GATHER = 1
    ULYSSES = 2
    HYBRID = 3
    """Ulysses inside the innermost level that the row uses, ring across the others."""


class Dispatcher(enum.IntEnum):
    """How tokens reach their experts."""

    ALL_TO_ALL = 0
    """Variable-size all-to-all: only the tokens that are routed."""
    FIXED_ALL_TO_ALL = 1
    """Whole-group all-to-all with equal buffers for every pair of ranks, padded to the capacity (FORMULAS 1.4)."""
    ALL_GATHER = 2
    DEDUPLICATED = 3
    """One copy per destination node, forwarded inside it (DeepEP, HybridEP)."""


class Offload(enum.IntEnum):
    """What leaves HBM, and where to; the way back and forth is on the critical path."""

    NONE = 0
    OPTIMIZER = 1
    ACTIVATIONS = 2
    NVME = 4
    """What is offloaded goes on to NVMe instead of staying in host memory; says nothing by itself."""


class Hidden(enum.IntEnum):
    """Communication that runs under compute and takes memory for it; what overlaps at no cost is no choice."""

    NONE = 0
    EXPERT_ALL_TO_ALL = 1
    """Dispatch and combine of one microbatch under another's compute, of which more are held (FORMULAS 3.5)."""
    PARAM_GATHER = 2
    """Gathers of parameters ahead of their use: ZeRO-3 holds the next unit beside the current one (FORMULAS 3.6)."""


@dataclass(frozen=True)
class Words:
    """The written form of one coded axis: word per code."""

    axis: str
    by_word: dict[str, int]
    bits: bool = False
    modifiers: int = 0
    """Bits that only say how; each needs another bit beside it."""

    @property
    def examples(self) -> tuple[str, ...]:
        """Values as people may write them: every word, those that need another one beside it."""
        whats = [word for word, code in self.by_word.items() if code & ~self.modifiers]
        hows = [word for word, code in self.by_word.items() if code & self.modifiers]
        alone = [word for word, code in self.by_word.items() if not code & self.modifiers]
        return (*alone, *(f"{what}+{how}" for how in hows for what in whats))

    def read(self, value: object) -> int:
        """The code of a written value; bit sets are written `a+b` or as a list. Raises ValueError."""
        parts = value if isinstance(value, list | tuple) else str(value).split("+")
        if not self.bits and len(parts) != 1:
            raise ValueError(f"{value!r} is not one {self.axis}; accepted: {listed(self.by_word)}")
        code = 0
        for part in parts:
            word = str(part).strip().lower().replace("_", "-")
            if word not in self.by_word:
                raise ValueError(
                    f"{str(part)!r} is not a known {self.axis}{near_miss(word, self.by_word)}; "
                    f"accepted: {listed(self.by_word)}"
                )
            code |= self.by_word[word]
        return self.checked(code)

    def checked(self, code: int) -> int:
        """The code, unless it says how but not what. Raises ValueError."""
        if code and not code & ~self.modifiers:
            whole = [example for example in self.examples if "+" in example]
            raise ValueError(f"{self.axis} {self.write(code)!r} says where to but not what; write {listed(whole)}")
        return code

    def write(self, code: int) -> str:
        """The written form of a code."""
        if not self.bits or code == 0:
            return next(word for word, value in self.by_word.items() if value == code)
        return "+".join(word for word, value in self.by_word.items() if value and code & value)


SCHEDULE = Words(
    "schedule",
    {
        "gpipe": Schedule.GPIPE,
        "1f1b": Schedule.ONE_F_ONE_B,
        "interleaved": Schedule.INTERLEAVED,
        "zb-h1": Schedule.ZB_H1,
        "zb-v": Schedule.ZB_V,
        "dualpipe": Schedule.DUALPIPE,
        "dualpipe-v": Schedule.DUALPIPE_V,
        "zb-2p": Schedule.ZB_2P,
    },
)
RECOMPUTE = Words(
    "recompute",
    {
        "none": Recompute.NONE,
        "norm": Recompute.NORM,
        "activation": Recompute.ACTIVATION,
        "mla-up": Recompute.MLA_UP,
        "core-attention": Recompute.CORE_ATTENTION,
        "mlp": Recompute.MLP,
        "moe": Recompute.MOE,
        "full": Recompute.FULL,
    },
    bits=True,
)
CP_KIND = Words(
    "cp_kind",
    {
        "ring": CpKind.RING,
        "all-gather": CpKind.ALL_GATHER,
        "ulysses": CpKind.ULYSSES,
        "hybrid": CpKind.HYBRID,
    },
)
DISPATCHER = Words(
    "dispatcher",
    {
        "all-to-all": Dispatcher.ALL_TO_ALL,
        "fixed-all-to-all": Dispatcher.FIXED_ALL_TO_ALL,
        "all-gather": Dispatcher.ALL_GATHER,
        "deduplicated": Dispatcher.DEDUPLICATED,
    },
)
OFFLOAD = Words(
    "offload",
    {
        "none": Offload.NONE,
        "optimizer": Offload.OPTIMIZER,
        "activations": Offload.ACTIVATIONS,
        "nvme": Offload.NVME,
    },
    bits=True,
    modifiers=Offload.NVME,
)
OVERLAP = Words(
    "overlap",
    {
        "none": Hidden.NONE,
        "expert-all-to-all": Hidden.EXPERT_ALL_TO_ALL,
        "param-gather": Hidden.PARAM_GATHER,
    },
    bits=True,
)
USUAL_OVERLAP = "param-gather"
"""What a run overlaps unless it says otherwise; not worth a word."""
WORDS = {words.axis: words for words in (SCHEDULE, RECOMPUTE, CP_KIND, DISPATCHER, OFFLOAD, OVERLAP)}


def written(axis: str, code: int) -> str | int:
    """The value of any axis as people write it: a word for coded axes, the number otherwise."""
    return WORDS[axis].write(int(code)) if axis in WORDS else int(code)


def first_stages(count: int) -> str:
    """So many stages from the first on, in words."""
    return "first stage" if count == 1 else f"first {count} stages"
