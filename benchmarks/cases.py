"""The problems that benchmarks solve, by name.

Contents: Case, CASES, LARGE, facts_of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mapsearch.calibration.shipped import default_profile
from mapsearch.costs.views import Facts
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.models import load_model
from mapsearch.inventories.run import Run
from mapsearch.topologies import Topology, fabric_of, load_topology, scaled


def asic_of(*sizes: int) -> Topology:
    """The built-in ASIC cluster with other fan-outs, innermost first; a fourth level is like the third."""
    asic = load_topology("asic")
    levels = asic.model_dump()["levels"]
    if len(sizes) > len(levels):
        levels.append({**levels[-1], "name": "site"})
    for level, size in zip(levels, sizes, strict=True):
        level["size"] = size
    return Topology.model_validate({**asic.model_dump(), "name": "asic-" + "x".join(map(str, sizes)), "levels": levels})


@dataclass(frozen=True)
class Case:
    """One problem: a model and a cluster; the run is the built-in one unless lengths are given."""

    title: str
    model: str
    topology: Callable[[], Topology]
    sequence_length: int | None = None
    global_batch: int | None = None


CASES = {
    "moe5t-4096": Case("moe-5t, 128K, 4,096 ASICs (8, 8, 64)", "moe-5t", lambda: load_topology("asic")),
    "moe5t-16384": Case("moe-5t, 128K, 16,384 ASICs (8, 32, 64)", "moe-5t", lambda: asic_of(8, 32, 64)),
    "moe5t-131072": Case("moe-5t, 128K, 131,072 ASICs (8, 8, 16, 128)", "moe-5t", lambda: asic_of(8, 8, 16, 128)),
    "dsv3-1024": Case(
        "DeepSeek-V3, 4K, batch 8,192, 1,024 H100",
        "deepseek-v3",
        lambda: scaled(load_topology("hgx-h100"), 1024),
        sequence_length=4096,
        global_batch=8192,
    ),
    "gpt3-4096": Case(
        "GPT-3 175B, 2K, batch 2,048, 4,096 A100",
        "gpt3-175b",
        lambda: scaled(load_topology("hgx-a100"), 4096),
        sequence_length=2048,
        global_batch=2048,
    ),
}


LARGE = ("moe5t-131072",)
"""Cases that take minutes: run only when they are named."""


def facts_of(case: Case) -> Facts:
    """The inventories of a case."""
    run = load_inventory(Run, "long-context-128k")
    changes = {"sequence_length": case.sequence_length, "global_batch": case.global_batch}
    run = run.replaced(**{key: value for key, value in changes.items() if value is not None})
    fabric = fabric_of(case.topology())
    return Facts(load_model(case.model), run, fabric, default_profile(fabric))
