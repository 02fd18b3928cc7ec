"""A small run as inputs: model, run and part of the cluster, so that each rank works as in the full one.

Contents: Plan, plans, facts_of.

Axes shrink together with what they divide: fewer tensor-parallel ranks with fewer heads, fewer expert ranks with fewer
experts, fewer stages with fewer layers. What one rank holds of a layer stays as it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mapsearch.axes import CHOICES, SIZES, written
from mapsearch.costs.estimate import Point, number
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError
from mapsearch.inventories.model import Model, Moe
from mapsearch.inventories.run import UserConstraints
from mapsearch.solver.options import divisors
from mapsearch.topologies.fabric import Fabric


@dataclass(frozen=True)
class Plan:
    """Sizes of a small run."""

    units: tuple[int, ...]
    """Units of each level that take part, innermost first."""
    sizes: tuple[int, ...]
    """tp, cp, dp, pp, etp, ep, edp."""
    sequence_length: int

    @property
    def by_axis(self) -> dict[str, int]:
        """Axis: size."""
        return dict(zip(SIZES, self.sizes, strict=True))


def plans(full: Point, devices: int) -> Iterator[Plan]:
    """Every small run on so many devices whose axes divide the full ones, with the full length or the local one."""
    mapping, fabric, length = full.mapping, full.facts.fabric, full.facts.run.sequence_length
    for units in _parts(fabric, devices):
        for tp, cp, pp in itertools.product(divisors(mapping.tp), divisors(mapping.cp), divisors(mapping.pp)):
            for etp, ep in itertools.product(divisors(mapping.etp), divisors(mapping.ep)):
                dense, expert = tp * cp * pp, etp * ep * pp
                if devices % dense or devices % expert:
                    continue
                sizes = (tp, cp, devices // dense, pp, etp, ep, devices // expert)
                local = length * cp // mapping.cp
                yield from (Plan(units, sizes, one) for one in dict.fromkeys((length, local)))


def _parts(fabric: Fabric, devices: int) -> list[tuple[int, ...]]:
    """Units of each level whose product is the devices; meshes, rings and tori take part whole or by one unit."""
    lists = [
        [
            size
            for size in divisors(devices)
            if size <= level.size and (level.kind == "switch" or size in (1, level.size))
        ]
        for level in fabric.levels
    ]
    return [units for units in itertools.product(*lists) if math.prod(units) == devices]


def facts_of(full: Point, plan: Plan, layers: int) -> Facts | None:
    """The inputs of a small run with so many layers per stage; None where the model does not divide so."""
    facts, sizes = full.facts, plan.by_axis
    model = _model(full, plan, layers)
    if model is None:
        return None
    levels = tuple(replace(level, size=size) for level, size in zip(facts.fabric.levels, plan.units, strict=True))
    levels = tuple(replace(one, dims=()) if one.size == 1 else one for one in levels)
    fabric = replace(facts.fabric, name=f"{facts.fabric.name}, {math.prod(plan.units)} devices", levels=levels)
    mapping, batches = full.mapping, round(number(full.cell.microbatches))
    chosen: dict[str, Any] = {
        axis: [written(axis, int(getattr(mapping, axis)))] for axis in CHOICES if axis != "overlap"
    }
    fixed = UserConstraints(fix={**sizes, "overlap": written("overlap", int(full.cell.overlap))})
    run = facts.run.replaced(
        name=f"{facts.run.name}, {math.prod(plan.units)} devices",
        sequence_length=plan.sequence_length,
        mean_square_length=_mean_square(facts, plan.sequence_length),
        global_batch=mapping.micro_batch * sizes["dp"] * batches,
        layout=["auto"],
        recompute_stages=["all"],
        constraints=fixed.model_dump(),
        **chosen,
    )
    return Facts(model, run, fabric, facts.profile)


def _mean_square(facts: Facts, length: int) -> float | None:
    given = facts.run.mean_square_length
    return None if given is None else min(given, float(length))


def _model(full: Point, plan: Plan, layers: int) -> Model | None:
    """The model whose ranks work as those of the full one; None where something does not divide."""
    model, mapping, sizes = full.facts.model, full.mapping, plan.by_axis
    tensor = sizes["tp"], mapping.tp
    heads, ffn = (_share(value, *tensor) for value in (model.heads, model.ffn))
    if heads is None or ffn is None:
        return None
    kv_heads = max(1, model.kv_heads * sizes["tp"] // mapping.tp)
    if heads % kv_heads:
        return None
    count = layers * sizes["pp"]
    changes: dict[str, Any] = {
        "name": f"{model.name}, {math.prod(plan.units)} devices",
        "layers": count,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": ffn,
        "vocab": math.ceil(model.vocab * sizes["tp"] / mapping.tp),
        "dense_first": min(model.dense_first, max(0, count - 1)),
        "nominal_parameters": 0.0,
        "mtp_layers": min(model.mtp_layers, 1),
        "notes": [],
        "moe": None,
    }
    if model.sliding_window is not None:
        windowed = round(count * model.sliding_window.layers / model.layers)
        window = {**model.sliding_window.model_dump(), "layers": windowed}
        changes["sliding_window"] = window if windowed else None
    if model.moe is not None:
        moe = _experts(model.moe, (sizes["ep"], mapping.ep), (sizes["etp"], mapping.etp), tensor)
        if moe is None:
            return None
        changes["moe"] = moe
    try:
        return model.replaced(**changes)
    except InputError:
        return None


def _experts(
    moe: Moe, expert: tuple[int, int], width: tuple[int, int], tensor: tuple[int, int]
) -> dict[str, Any] | None:
    """Experts in the same number per rank, as wide on a rank as before."""
    experts, ffn, shared = _share(moe.experts, *expert), _share(moe.expert_ffn, *width), _share(moe.shared_ffn, *tensor)
    if experts is None or ffn is None or shared is None:
        return None
    groups = max(1, moe.groups * expert[0] // expert[1])
    groups = groups if experts % groups == 0 else 1
    return {
        **moe.model_dump(),
        "experts": experts,
        "expert_ffn": ffn,
        "shared_ffn": shared,
        "top_k": min(moe.top_k, experts),
        "groups": groups,
        "top_groups": min(moe.top_groups, groups),
    }


def _share(value: int, small: int, full: int) -> int | None:
    """value * small / full, where that is whole."""
    return value * small // full if value * small % full == 0 else None
