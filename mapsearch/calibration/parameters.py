"""The few numbers of a profile that are fitted: names, the fields they scale, bounds and priors.

Contents: Parameter, PARAMETERS, NAMES, applied.

A parameter is the logarithm of a factor on one or more fields of a profile, so that 0 leaves the profile as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mapsearch.inventories.profile import Profile
from mapsearch.quantity import Floats


@dataclass(frozen=True)
class Parameter:
    """One fitted factor."""

    name: str
    fields: tuple[str, ...]
    """Dotted fields of the profile that it multiplies."""
    most: float = 1.0
    """Upper bound of the fields."""
    start: float = 0.0
    """Value that a field of 0 is given before it is scaled; 0 when fields have a value of their own."""
    spread: float = 0.3
    """Prior standard deviation of the shared logarithm."""
    own_spread: float = 0.08
    """Prior standard deviation of what a device or a software generation adds to it."""
    meaning: str = ""


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        "compute",
        ("gemm.peak", "grouped_gemm.peak", "attention_forward.peak", "attention_backward.peak"),
        own_spread=0.15,
        meaning="share of the peak that all products reach",
    ),
    Parameter("grouped", ("grouped_gemm.peak",), meaning="grouped products against plain ones"),
    Parameter(
        "attention",
        ("attention_forward.peak", "attention_backward.peak"),
        own_spread=0.12,
        meaning="attention cores against plain products",
    ),
    Parameter("fp8", ("fp8_share",), spread=0.2, meaning="FP8 products against their own peak"),
    Parameter("fp4", ("fp4_share",), spread=0.3, own_spread=0.15, meaning="FP4 products against their own peak"),
    Parameter("rows", ("gemm.half_rows",), most=1e5, spread=0.7, meaning="tokens at half rate"),
    Parameter("columns", ("gemm.half_columns",), most=1e5, spread=0.7, meaning="width at half rate"),
    Parameter(
        "grouped_rows", ("grouped_gemm.half_rows",), most=1e5, spread=0.7, meaning="rows of an expert at half rate"
    ),
    Parameter(
        "grouped_columns", ("grouped_gemm.half_columns",), most=1e5, spread=0.7, meaning="expert width at half rate"
    ),
    Parameter("routed", ("routed_passes",), most=20.0, spread=0.5, own_spread=0.15, meaning="passes of permutations"),
    Parameter("memory", ("memory_bandwidth",), spread=0.2, own_spread=0.1, meaning="elementwise kernels"),
    Parameter("launch", ("kernel_launch",), most=1e-3, spread=1.0, own_spread=0.5, meaning="gap between kernels"),
    Parameter("host", ("host_launch",), most=1e-3, spread=0.7, own_spread=0.3, meaning="host time per kernel"),
    Parameter("moe_kernels", ("moe_kernels",), most=1e4, spread=0.7, own_spread=0.2, meaning="kernels of a MoE half"),
    Parameter(
        "head",
        ("attention_forward.half_columns", "attention_backward.half_columns"),
        most=1e4,
        start=16.0,
        spread=0.7,
        own_spread=0.2,
        meaning="head width at half rate",
    ),
    Parameter(
        "inside",
        (
            "all_reduce.high_bandwidth_peak",
            "all_gather.high_bandwidth_peak",
            "all_to_all.high_bandwidth_peak",
            "point_to_point.high_bandwidth_peak",
        ),
        meaning="collectives inside the high-bandwidth domain",
    ),
    Parameter(
        "across",
        ("all_reduce.peak", "all_gather.peak", "point_to_point.peak"),
        own_spread=0.15,
        meaning="collectives across domains",
    ),
    Parameter("exchange", ("all_to_all.peak",), own_spread=0.15, meaning="all-to-all across domains"),
    Parameter("tp_overlap", ("tp_overlap",), spread=0.3, own_spread=0.2, meaning="share of TP traffic hidden"),
    Parameter("overlap", ("overlap_slowdown",), spread=0.2, meaning="rate of traffic under compute"),
    Parameter("straggle", ("straggle",), start=0.005, spread=0.8, own_spread=0.4, meaning="growth per doubling"),
    Parameter(
        "overhead", ("step_overhead",), most=60.0, start=0.02, spread=1.0, own_spread=0.7, meaning="time between steps"
    ),
)
NAMES = tuple(parameter.name for parameter in PARAMETERS)


def applied(profile: Profile, logs: Floats) -> Profile:
    """A profile with its fields scaled by exp(logs), shape (parameters,); fields are held within their bounds.

    With logs of shape (sets, parameters) the fields are arrays of shape (sets, 1): as many profiles in one, for the
    quantities only. It is not validated; every quantity broadcasts it like numbers.
    """
    changes: dict[str, Any] = {}
    factors = np.exp(logs)
    for place, parameter in enumerate(PARAMETERS):
        factor = float(factors[place]) if logs.ndim == 1 else factors[:, place, None]
        for field in parameter.fields:
            value = changes.get(field, _get(profile, field))
            if value is None:
                continue
            base = value if np.any(value) else parameter.start
            scaled = base * factor
            changes[field] = min(scaled, parameter.most) if logs.ndim == 1 else np.minimum(scaled, parameter.most)
    return with_fields(profile, changes)


def _get(record: Any, field: str) -> Any:
    for part in field.split("."):
        record = getattr(record, part)
    return record


def with_fields(profile: Profile, changes: dict[str, Any]) -> Profile:
    """A copy of a profile with some dotted fields replaced (not validated again: bounds are the caller's)."""
    tree: dict[str, dict[str, Any]] = {}
    flat: dict[str, Any] = {}
    for field, value in changes.items():
        head, _, rest = field.partition(".")
        if rest:
            tree.setdefault(head, {})[rest] = value
        else:
            flat[head] = value
    for head, parts in tree.items():
        flat[head] = getattr(profile, head).model_copy(update=parts)
    return profile.model_copy(update=flat)


def steps(count: int, size: float) -> Sequence[Floats]:
    """The unperturbed point and one step along each parameter: what a finite-difference Jacobian evaluates."""
    return [np.zeros(count), *(size * row for row in np.eye(count))]
