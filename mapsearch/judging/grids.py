"""Arithmetic of a launch that the search takes for granted: devices, stages, rows, packed sequences, vocabulary.

Contents: RULES.

Each rule takes a trial and gives a finding, or None when it holds or the case does not say enough to judge it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mapsearch.judging.finding import Finding
from mapsearch.judging.trial import Trial
from mapsearch.judging.words import said

ENDS = 2
"""Embedding and loss may take the place of a layer each (Megatron: account_for_embedding_in_pipeline_split)."""
FP8_WIDTH, MX_BLOCK = 16, 32
"""What FP8 products (TransformerEngine) need of their inner size, and the block of MXFP8's scales (OCP MX)."""


def _divisors(number: int, most: int = 4096) -> str:
    return ", ".join(str(n) for n in range(1, min(number, most) + 1) if number % n == 0)


def attention_grid(trial: Trial) -> Finding | None:
    """W is a multiple of TP x CP x PP, and of DP too where it is given (M1)."""
    if trial.gpus is None:
        return None
    sizes = {axis: trial.degrees[axis] for axis in ("tp", "cp", "pp")}
    told = said(trial.case.mapping.dp)
    if told is not None:
        sizes["dp"] = told.value
    product = math.prod(sizes.values())
    # Some count only the ranks that hold the same expert as DP.
    fits = trial.gpus in (product, product * trial.degrees["ep"]) if told else trial.gpus % product == 0
    if fits:
        return None
    spelled = " x ".join(f"{axis.upper()} {size}" for axis, size in sizes.items() if size > 1)
    what = "are not" if told is not None else "are no multiple of"
    return Finding("infeasible", "attention_grid", f"{trial.gpus} devices {what} {spelled} = {product}")


def expert_grid(trial: Trial) -> Finding | None:
    """W is a multiple of ETP x EP x PP (M2)."""
    if trial.gpus is None:
        return None
    sizes = {axis: trial.degrees[axis] for axis in ("etp", "ep", "pp")}
    product = math.prod(sizes.values())
    if trial.gpus % product == 0:
        return None
    spelled = " x ".join(f"{axis.upper()} {size}" for axis, size in sizes.items())
    per_stage = trial.gpus // sizes["pp"] if trial.gpus % sizes["pp"] == 0 else 0
    mend = f"; EP {_divisors(per_stage)} would do with ETP 1" if per_stage else ""
    said_so = f"{trial.gpus} devices are no multiple of {spelled} = {product}{mend}"
    return Finding("infeasible", "expert_grid", said_so)


def expert_region(trial: Trial) -> Finding | None:
    """EP divides what FSDP, CP and TP give it (torchtitan, F5.2)."""
    shard = said(trial.case.mapping.dp_shard)
    if shard is None:
        return None
    region = shard.value * trial.degrees["cp"] * trial.degrees["tp"]
    if region % trial.degrees["ep"] == 0:
        return None
    return Finding(
        "infeasible",
        "expert_grid",
        f"EP {trial.degrees['ep']} does not divide dp_shard x CP x TP = {region}; EP {_divisors(region)} would do",
    )


def even_stages(trial: Trial) -> Finding | None:
    """Layers divide over stages and virtual stages unless first, last or a layout says otherwise (M13, M14)."""
    layers, pp = trial.shape.fact("layers"), trial.degrees["pp"]
    mapping = trial.case.mapping
    if layers is None or pp == 1 or mapping.layout is not None:
        return None
    if trial.launcher.uneven_stages and layers + ENDS >= pp * trial.degrees["vpp"]:
        return None
    ends = [found.value for found in (said(mapping.first_stage_layers), said(mapping.last_stage_layers)) if found]
    middle, stages = layers - sum(ends), pp - len(ends)
    if stages < 1:
        return None
    chunks = stages * trial.degrees["vpp"]
    if middle >= chunks and middle % chunks == 0:
        return None
    if middle < chunks:
        return Finding("infeasible", "layers_fill_stages", f"{layers} layers do not fill {chunks} pipeline chunks")
    vpp = f" x VPP {trial.degrees['vpp']}" if trial.degrees["vpp"] > 1 else ""
    built = middle // chunks * chunks + sum(ends)
    return Finding(
        "infeasible",
        "even_stages",
        f"{layers} layers do not divide over PP {pp}{vpp}: {middle // chunks} per chunk make {built}, {layers - built} "
        f"are left over; PP {_divisors(layers, 64)} would do, or another first or last stage, or a layout",
        "a launch without layout",
    )


def fp8_width(trial: Trial) -> Finding | None:
    """Tokens of a rank are a multiple of what FP8 products need."""
    tokens, precision = said(trial.case.run.tokens), str(trial.case.run.precision or "").lower()
    if tokens is None or "fp8" not in precision or trial.case.run.padding:
        return None
    need = MX_BLOCK if "mx" in precision else FP8_WIDTH
    left = tokens.value % need
    if not left:
        return None
    return Finding(
        "infeasible",
        "fp8_alignment",
        f"{tokens.value} tokens on a rank are no multiple of {need}, which {precision.upper()} products need: {left} "
        f"left over; pad to {need} x CP",
    )


def expert_rows(trial: Trial) -> Finding | None:
    """Rows of each expert are a multiple of MXFP8's block; routing without a capacity gives any number."""
    precision = str(trial.case.run.precision or "").lower()
    blocks = "mx" in precision or "nvfp4" in precision
    if not blocks or not trial.shape.has_experts or trial.launcher.pads_rows or trial.case.run.padding:
        return None
    return Finding(
        "infeasible",
        "fp8_alignment",
        f"{precision.upper()} scales blocks of {MX_BLOCK} rows, but the tokens of an expert are as many as the router "
        f"sends, under any EP; pad the rows of each expert to {MX_BLOCK}",
    )


def packed_sequences(trial: Trial) -> Finding | None:
    """Each packed sub-sequence is a multiple of 2 CP."""
    cp = trial.degrees["cp"]
    if not trial.case.run.packing or cp == 1 or trial.launcher.pads_packed or trial.case.run.padding:
        return None
    return Finding(
        "infeasible",
        "packed_sequence_divides",
        f"with CP {cp} each packed sub-sequence must be a multiple of 2 x CP = {2 * cp}, not the packed whole "
        "alone; pad each of them",
    )


def vocabulary(trial: Trial) -> Finding | None:
    """The vocabulary divides over TP, or is padded."""
    entries, tp = trial.shape.fact("vocab"), trial.degrees["tp"]
    if entries is None or entries % tp == 0 or trial.launcher.pads_vocabulary or trial.case.run.padding:
        return None
    padded = math.ceil(entries / (128 * tp)) * 128 * tp
    return Finding(
        "infeasible",
        "vocabulary_divides",
        f"{entries:,} entries of the vocabulary do not divide over TP {tp}: {entries % tp} left over; "
        f"pad to {padded:,}",
    )


def rollout_world(trial: Trial) -> Finding | None:
    """An engine colocated with training takes exactly TP x PP ranks."""
    if trial.gpus is None or "colocate" not in trial.words:
        return None
    ranks = trial.degrees["tp"] * trial.degrees["pp"]
    if trial.gpus == ranks:
        return None
    return Finding(
        "infeasible",
        "attention_grid",
        f"a rollout engine colocated on {trial.gpus} ranks takes TP x PP = {ranks} and leaves {trial.gpus - ranks} "
        "over, which engines without data parallelism refuse",
        "rollout engine",
    )


RULES: tuple[Callable[[Trial], Finding | None], ...] = (
    expert_grid,
    attention_grid,
    expert_region,
    even_stages,
    fp8_width,
    expert_rows,
    packed_sequences,
    vocabulary,
    rollout_world,
)
