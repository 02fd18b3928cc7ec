"""Records of a report: known keys are read, others are listed, and what looks like a slip of a known key is refused.

Contents: Reported, ALSO.
"""

from __future__ import annotations

import difflib
from typing import Any, ClassVar

from pydantic import ConfigDict, model_validator

from mapsearch.inventories.base import Inventory

SLIP, SHORT = 0.88, 4
"""How alike an unknown key and a known one are before it counts as a slip of it (difflib's ratio), and the length up to
which a key is too short to tell."""
ALSO = {
    "seq_len": "seq",
    "seq_length": "seq",
    "sequence_length": "seq",
    "max_length": "longest_sequence",
    "micro_batch_size": "micro_batch",
    "global_batch_size": "global_batch",
    "num_microbatches": "microbatches",
    "gradient_accumulation": "grad_accum",
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_heads": "heads",
    "num_experts": "experts",
    "top_k": "topk",
    "vocab_size": "vocab",
    "moe_ffn": "expert_ffn",
    "zero_stage": "zero",
    "ulysses": "ulysses_sp",
    "sp_size": "ulysses_sp",
    "gpu_mem_gb": "mem_gb",
    "host_ram_gb": "host_gb",
    "cuda_graphs": "cuda_graph",
}
"""Other words for a key."""


class Reported(Inventory):
    """A part of a report: known keys are read, others are kept as said."""

    kind: ClassVar[str] = "case"
    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _no_slips(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = [name for name in cls.model_fields if name != "sources"]
        read: dict[Any, Any] = {}
        for key, value in data.items():
            name = ALSO.get(str(key), key) if ALSO.get(str(key)) in known else key
            long = len(str(name)) > SHORT and name not in known
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=SLIP) if long else []
            if near:
                raise ValueError(f"{key!r} is not a known key (did you mean {near[0]!r}?)")
            read[name] = value
        return read

    @property
    def unread(self) -> list[str]:
        """Keys that are not known."""
        return sorted(self.model_extra or {})
