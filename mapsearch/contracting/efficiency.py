"""Domain 6, compute efficiency: the step in parts, compute loss told apart from waiting (FORMULAS 3.2, 3.5, 4.3).

Contents: rows, WAITING.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mapsearch.axes import written
from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase, Text
from mapsearch.costs import pipeline, routing
from mapsearch.costs.estimate import number, peak_flops
from mapsearch.costs.flops import step_flops
from mapsearch.costs.step import COMMUNICATION

WAITING = (*COMMUNICATION, "host", "bubble", "stragglers", "step_overhead", "gradient_reduce", "parameter_gather")
"""Parts of a step in which the matrix units have nothing to do; the others are compute."""
PART_RECIPES = {
    "bubble": ("F3.5", "seconds in which a rank of the slowest stage waits for its neighbours' microbatches"),
    "host": ("F2.2", "seconds in which the device waits for kernels to be launched"),
    "stragglers": ("F4.3", "seconds by which the slowest replica ends its step after the median one"),
    "step_overhead": ("F4.3", "seconds between the optimizer's end and the next forward"),
    "gradient_reduce": ("F4.2, F4.3", "seconds of gradient reduction after the last backward"),
    "parameter_gather": ("F4.2, F4.3", "seconds of parameter gathering that no compute hides"),
    "optimizer": ("F3.6", "seconds of the optimizer's kernels and of states on their way"),
    "attention_core": ("F3.2", "seconds of the attention kernels"),
    "experts": ("F3.2, F1.4", "seconds of the grouped GEMMs"),
    "elementwise": ("F3.3", "seconds of norms, residuals and rotary kernels"),
    "routed_elementwise": ("F3.3", "seconds of permutations and activations around the experts"),
}
THROUGHPUT = {
    "time_s": Text("step time", "s", "their median", "time"),
    "tokens_per_s": Text("tokens per second of all devices", "tokens/s", "tokens per step over the median", "time"),
    "mfu": Text(
        "MFU against the dense peak of the run's format",
        "share",
        "step.flops over seconds, devices and peak; say which peak",
        "time",
    ),
    "hfu": Text(
        "HFU against the dense peak of the run's format",
        "share",
        "step.executed_flops over seconds, devices and peak",
        "time",
    ),
    "exposed_share": Text(
        "share of the step that all communication costs: 1 - T(without) / T",
        "share",
        "1 - median seconds with every collective replaced by nothing / median seconds",
        "time",
    ),
}
WORK = {
    "flops": Text(
        "model FLOP of one step, no recompute: the numerator of MFU",
        "FLOP",
        "causal attention once, router included",
    ),
    "executed_flops": Text(
        "FLOP that devices execute in one step, recompute included: the numerator of HFU",
        "FLOP",
        "causal attention once, its fifth product backward, router, and what is computed again",
    ),
}
TRACE = "a trace of one step on one rank of the slowest stage, third step or later, kernels and collectives by name"


def rows(case: ContractCase) -> list[Row]:
    """Throughput, utilisation, the step in parts, the bubble, and the shapes of the grouped GEMMs."""
    return [*_throughput(case), *_parts(case), *_apart(case), *_bubble(case), *_shapes(case)]


def _throughput(case: ContractCase) -> list[Row]:
    estimate, run = case.estimate, case.run
    inputs = ["run.global_batch", "run.sequence_length", "topology.device.peak", "profile.gemm"]
    limit = run.exposed_limit if run.exposed_limit < 1.0 else None
    links = "topology.levels.*.bandwidth"
    values = {
        "time_s": estimate.step_time_s,
        "tokens_per_s": estimate.tokens_per_s,
        "mfu": estimate.mfu,
        "hfu": estimate.hfu,
        "exposed_share": estimate.exposed_fraction,
    }
    each: dict[str, dict[str, Any]] = {
        "time_s": {"origins": [*inputs, links], "parts": [f"step.{part}_s" for part in estimate.breakdown_s]},
        "mfu": {"factors": {"step.flops": 1, "step.time_s": -1}},
        "hfu": {
            "factors": {"step.executed_flops": 1, "step.time_s": -1},
            "origins": [*inputs, "mapping.recompute"],
        },
        "exposed_share": {
            "origins": ["run.exposed_limit", links],
            "limit": limit,
            "why": "run.exposed_limit" if limit is not None else "the run sets no limit",
        },
    }
    record = "seconds between optimizer steps, at least 20 after warm-up"
    shared: dict[str, Any] = {"formula": "F3.2, F3.5, F4.3, F1.5", "origins": inputs, "record": record}
    return [*case.tabled("step", 6, THROUGHPUT, values, each, **shared), *_work(case)]


def _work(case: ContractCase) -> list[Row]:
    """FLOP of one step: of the model, and executed."""
    estimate = case.estimate
    values = {
        "flops": step_flops(case.model, case.run, None),
        "executed_flops": estimate.hfu * estimate.step_time_s * estimate.devices * peak_flops(case.facts),
    }
    return case.tabled(
        "step",
        6,
        WORK,
        values,
        formula="F3.2",
        origins=["model.layers", "run.global_batch", "run.sequence_length"],
        record="the framework's own count of FLOP per step, with what it counts of attention",
    )


def _parts(case: ContractCase) -> list[Row]:
    """Parts that add up to the step."""
    told = []
    for part, value in case.estimate.breakdown_s.items():
        default = ("F4.2, F4.3", f"seconds of {part.upper()} collectives that no compute hides")
        if part not in COMMUNICATION:
            default = ("F3.2", f"seconds of the kernels of {part.replace('_', ' ')}")
        formula, compute = PART_RECIPES.get(part, default)
        told.append(
            case.row(
                f"step.{part}_s",
                6,
                f"{part.replace('_', ' ')}: its part of the step on the slowest stage"
                + (" (waiting)" if part in WAITING else " (compute)"),
                value,
                "s",
                kind="time",
                formula=formula,
                origins=["mapping.pp", "mapping.micro_batch"],
                record=TRACE,
                compute=f"{compute}, forward, backward and recompute, all microbatches",
            )
        )
    return told


def _apart(case: ContractCase) -> list[Row]:
    """Compute and waiting, each as a sum of parts."""
    found = case.estimate.breakdown_s
    row = partial(case.row, domain=6, unit="s", kind="time", formula="F3.5, F4.3", record=TRACE, origins=["mapping.pp"])
    told = []
    for name, waits in (("compute", False), ("waiting", True)):
        parts = {part: value for part, value in found.items() if (part in WAITING) == waits}
        told.append(
            row(
                f"step.{name}_s",
                meaning=f"{name} of one step on the slowest stage",
                predicted=sum(parts.values()),
                compute="seconds in which a kernel other than a collective runs"
                if not waits
                else "step time less those seconds: collectives that nothing hides, bubble, stragglers, host",
                parts=[f"step.{part}_s" for part in parts],
            )
        )
    told.append(
        row(
            "step.compute_efficiency",
            meaning="executed FLOP over compute seconds and peak: compute loss without waiting",
            predicted=case.estimate.hfu * case.estimate.step_time_s / float(told[0].predicted or 1.0),
            compute="step.executed_flops over step.compute_s, devices and peak",
            factors={"step.executed_flops": 1, "step.compute_s": -1},
        ).model_copy(update={"unit": "share"})
    )
    return told


def _bubble(case: ContractCase) -> list[Row]:
    """What filling and draining would take with equal stages: no part of the estimate, which knows each stage."""
    mapping, point = case.mapping, case.point
    schedule, rounds = int(mapping.schedule), number(point.cell.microbatches)
    weights = pipeline.ramp_weights(schedule)
    third = [1.0 / 3.0] * mapping.pp
    whole = number(
        pipeline.pipeline_s(
            third,
            third,
            third,
            microbatches=rounds,
            correction=pipeline.steady_correction(schedule, mapping.vpp),
            scale=pipeline.ramp_scale(schedule, mapping.pp, mapping.vpp),
            weights=weights,
        )
    )
    row = partial(
        case.row,
        domain=6,
        unit="share",
        formula="F3.5",
        kind="model",
        origins=["mapping.pp", "mapping.vpp", "mapping.schedule", "run.global_batch"],
        record="a trace of all stages of one pipeline over one step",
    )
    name = written("schedule", schedule)
    return [
        row(
            "step.microbatches",
            meaning="microbatches of one replica in one step",
            predicted=rounds,
            compute="count them",
        ).model_copy(update={"unit": "microbatches"}),
        row(
            "step.bubble_of_ideal",
            meaning=f"bubble over ideal time of equal stages, {name}: (p-1)/(v m) for 1F1B and interleaved",
            predicted=(whole - rounds) / rounds,
            compute="idle over busy seconds of the first stage",
        ),
        row(
            "step.bubble_of_total",
            meaning=f"bubble over all time of equal stages, {name}",
            predicted=(whole - rounds) / whole,
            compute="idle seconds over all seconds of the first stage",
        ),
    ]


def _shapes(case: ContractCase) -> list[Row]:
    """M, N and K of the grouped GEMMs of one rank."""
    if case.model.moe is None:
        return []
    mapping, model = case.mapping, case.model
    moe = routing.routed(model)
    experts = moe.experts / mapping.ep
    grid = (case.tokens, mapping.etp, mapping.ep, int(mapping.dispatcher))
    taken = number(routing.routed_rows(*grid, model=model, run=case.run)) / experts
    width = moe.expert_ffn / mapping.etp
    row = partial(
        case.row,
        domain=6,
        formula="F3.2, F1.4",
        origins=["mapping.ep", "mapping.etp", "model.moe.expert_ffn", "model.hidden"],
        record="arguments of the grouped GEMM kernels of one layer on one rank",
    )
    shapes = {
        "experts": (experts, "experts", "local experts: groups of the grouped GEMM"),
        "rows": (taken, "rows", "M: rows of one expert on the busiest rank, mean over its experts"),
        "first_columns": ((model.ffn_matrices - 1) * width, "columns", "N of the first product"),
        "first_depth": (float(model.hidden), "columns", "K of the first product"),
        "second_columns": (float(model.hidden), "columns", "N of the second product"),
        "second_depth": (width, "columns", "K of the second product"),
    }
    return [
        row(f"step.grouped_gemm.{name}", meaning=meaning, predicted=value, unit=unit, compute="read them")
        for name, (value, unit, meaning) in shapes.items()
    ]
