"""Searches whose mappings are exported, and random plans over every axis."""

from __future__ import annotations

import random
from functools import cache

from mapsearch.api import solve
from mapsearch.axes import Schedule
from mapsearch.costs.stages import TWO_CHUNK_SCHEDULES
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.models import load_model
from mapsearch.inventories.run import Run

INTERLEAVED = {"constraints": {"fix": {"schedule": "interleaved"}}}
DSV3 = {
    "name": "dsv3",
    "sequence_length": 4096,
    "global_batch": 2048,
    "layout": ["auto", "flop", "ends"],
    "recompute": ["none", "norm+activation+mla-up", "full"],
    "vpp": [1, 2, 3, 4],
    "dispatcher": ["all-to-all", "deduplicated"],
    "framework": "megatron",
    "constraints": {"fix": {"schedule": "interleaved"}},
}
EVERYTHING = {
    "name": "everything",
    "framework": "none",
    "sequence_length": 16384,
    "global_batch": 256,
    "layout": ["auto", "flop", "family"],
    "schedule": ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"],
    "recompute": ["none", "norm+activation", "full"],
    "zero": [0, 1, 2, 3],
    "cp_kind": ["ring", "all-gather", "ulysses", "hybrid"],
    "offload": ["none", "optimizer", "activations"],
    "dispatcher": ["all-to-all", "fixed-all-to-all", "deduplicated"],
    "overlap": {"expert_all_to_all": [True, False]},
    "constraints": {"at_least": {"pp": 2, "cp": 2}},
}


def _searches():
    long_context = load_inventory(Run, "long-context-128k").replaced(framework="megatron")
    return {
        "moe-5t sharded": {"model": "moe-5t", "run": long_context, "topology": "asic"},
        "moe-5t interleaved": {
            "model": "moe-5t",
            "run": long_context.replaced(global_batch=1024, **INTERLEAVED),
            "topology": "asic",
            "devices": 16384,
        },
        "deepseek-v3 layouts": {
            "model": "deepseek-v3",
            "run": Run.model_validate(DSV3),
            "topology": "hgx-h100",
            "devices": 512,
        },
        "mixtral everything": {
            "model": "mixtral-8x7b",
            "run": Run.model_validate(EVERYTHING),
            "topology": "hgx-h100",
            "devices": 64,
        },
    }


NAMES = ("moe-5t sharded", "moe-5t interleaved", "deepseek-v3 layouts", "mixtral everything")


@cache
def solved(name):
    """The inputs of a search, and its 20 fastest mappings."""
    inputs = _searches()[name]
    return inputs, solve(**inputs, top=20).mappings


def mapping_of(ranked) -> Mapping:
    stages = {"layout": ranked.layout, "recompute_stages": ranked.recompute_stages}
    return Mapping.model_validate({**ranked.sizes, **ranked.choices, "placement": ranked.placement, **stages})


MODELS = ("moe-5t", "deepseek-v3", "llama-3.1-8b", "mixtral-8x7b", "kimi-k2", "gpt3-175b")


@cache
def _model(name):
    return load_model(name)


def random_plan(seed: int):
    """A mapping, model and run that no framework need accept: every axis takes every value."""
    pick = random.Random(seed)
    model = _model(pick.choice(MODELS))
    sizes = {axis: pick.choice((1, 2, 4, 8)) for axis in ("tp", "cp", "dp")}
    stage = sizes["tp"] * sizes["cp"] * sizes["dp"]
    etp = pick.choice((1, sizes["tp"]))
    ep = pick.choice([ways for ways in range(1, stage + 1) if (stage // etp) % ways == 0 and stage % etp == 0])
    pp = pick.choice((1, 1, 2, 4, 8))
    schedule = pick.choice(list(Schedule)) if pp > 1 else Schedule.ONE_F_ONE_B
    base = {**sizes, "pp": pp, "etp": etp, "ep": ep, "edp": stage // (etp * ep), "micro_batch": pick.choice((1, 2))}
    mapping = Mapping.model_validate(base).model_copy(
        update={
            "vpp": pick.choice((2, 3)) if schedule == Schedule.INTERLEAVED else 1,
            "schedule": int(schedule),
            "layout": _layout(pick, model, pp, schedule),
            "recompute": pick.choice((0, 64, 1, 3, 7, 32, 35, pick.randrange(64))),
            "recompute_stages": pick.choice((0, 0, min(pp, 2))),
            "zero": pick.randrange(4),
            "offload": pick.choice((0, 0, 1, 2, 3, 5, 6, 7)),
            "cp_kind": pick.randrange(4),
            "dispatcher": pick.randrange(4),
            "overlap": pick.choice((None, 0, 1, 2, 3)),
            "placement": _placement(pick, sizes["cp"]),
        }
    )
    return mapping, model, _run(pick, mapping)


def _layout(pick, model, pp, schedule):
    chunks = 2 * pp if schedule in TWO_CHUNK_SCHEDULES else pp
    if pp == 1 or pick.random() < 0.5:
        return []
    cuts = sorted(pick.sample(range(1, model.layers), chunks - 1))
    return [after - before for before, after in zip([0, *cuts], [*cuts, model.layers], strict=True)]


def _placement(pick, cp):
    if cp == 1:
        return {}
    return {"cp": {"board": 2, "pod": cp // 2} if cp > 2 and pick.random() < 0.7 else {"board": cp}}


def _run(pick, mapping):
    flags = {name: pick.random() < 0.5 for name in ("grad_reduce", "param_gather", "tp", "pp", "shared_expert")}
    return Run.model_validate(
        {
            "sequence_length": 8192,
            "global_batch": mapping.dp * mapping.micro_batch * pick.choice((4, 8)),
            "precision": pick.choice(("bf16", "fp16", "fp8-tensor", "fp8-block", "mxfp8", "nvfp4")),
            "overlap": {**flags, "expert_all_to_all": pick.random() < 0.3},
            "shard_replicas": pick.choice((1, 1, 2)),
            "sequence_parallel": pick.random() < 0.8,
            "vocabulary": pick.choice(("last", "last", "redistributed", "split-1")),
            "state": {
                "gradient_bytes": pick.choice((2.0, 4.0)),
                "moment_bytes": pick.choice((8.0, 4.0, 2.0, 6.0)),
                "master_bytes": pick.choice((4.0, 2.0, 0.0)),
            },
            "half_precision_layers": pick.choice((0, 0, 3)),
        }
    )
