"""Which layers stand on which pipeline stage: the layout, and its distinct kinds of stage.

Contents: Cut, Layout, layer_weights, partition, chunks_of, usual_cut, layout, stages_of, chunks_in_order,
StageKinds, recomputing, recomputing_shares, stage_kinds.

A cut says how many layers each chunk of the pipeline takes, in order; MTP modules stand on the last chunk and are not
counted. Without one, where the layers divide evenly over the pipeline's chunks, every chunk gets as many, as
frameworks do unless told otherwise. Where embedding and loss make up for what is missing (126 layers on 8 stages),
each counts as one layer.
Where neither holds, consecutive stages are cut so that the largest one, counted in model FLOP with the loss and the
MTP modules on the last one, is as small as possible (an exact partition, not a heuristic).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mapsearch.arrays import remembered
from mapsearch.axes import Schedule
from mapsearch.costs import flops, parameters
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import Run, Vocabulary
from mapsearch.quantity import Floats, Num

Cut = tuple[int, ...]
"""Layers of each chunk of a pipeline in order (of each stage; V-shaped schedules have two chunks per stage); empty:
as frameworks cut unless told otherwise."""

TWO_CHUNK_SCHEDULES = (Schedule.ZB_V, Schedule.DUALPIPE_V)
"""Schedules that fold the pipeline into a V: device r holds chunks r and 2p-1-r."""


@dataclass(frozen=True)
class Layout:
    """Layers of each kind on each device of one pipeline, MTP modules included."""

    dense: tuple[int, ...]
    moe: tuple[int, ...]
    embedding: tuple[float, ...]
    """1 where the input embedding lives; its share on every stage when it is split."""
    output: tuple[float, ...]
    """1 where the output head, the loss and the MTP modules live; their share on every stage when they are split."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers per stage, MTP modules included."""
        return tuple(d + m for d, m in zip(self.dense, self.moe, strict=True))


@dataclass(frozen=True)
class StageKinds:
    """The distinct kinds of stage of one layout: arrays over kinds, or the values of one kind."""

    dense: Num
    moe: Num
    embedding: Num
    output: Num
    count: Num
    """Stages of this kind."""
    stage: Num
    """The first stage of this kind: the one that holds most microbatches."""
    recomputes: Num
    """1 where the stage recomputes what the mapping says, 0 where it recomputes nothing."""


def layer_weights(model: Model, length: float) -> tuple[tuple[float, ...], float, float]:
    """Model FLOP per token, forward: of each layer, of one MTP module without its output, of the output head.

    Unit: FLOP per token. Source: FORMULAS 3.2. Ignores: elementwise work and communication.
    """
    core = float(flops.attention_core_flops(model=model, length=length)) / (model.layers + model.mtp_layers)
    weight = {"dense": core + 2.0 * float(parameters.dense_layer_parameters(1, model=model))}
    if model.moe is not None:
        active = model.moe.top_k / model.moe.experts * float(parameters.expert_parameters(1, 1, model=model))
        weight["moe"] = core + 2.0 * (float(parameters.moe_layer_parameters(1, model=model)) + active)
    layers = tuple(weight[kind] for kind in model.layer_kinds)
    return layers, layers[-1] + 4.0 * model.hidden**2, 2.0 * model.hidden * model.vocab


@lru_cache(maxsize=4096)
def partition(weights: tuple[float, ...], tail: float, parts: int) -> tuple[int, ...]:
    """Cut `weights` into `parts` consecutive runs with the least maximum sum; `tail` is added to the last run.

    Every run has at least one item when there are enough. Among the optima the earlier runs are as long as they
    may be while no run exceeds the optimum, then evened out, so equal weights give equal runs.
    """
    n = len(weights)
    prefix = np.concatenate([[0.0], np.cumsum(weights)])
    best = np.full((parts + 1, n + 1), np.inf)
    best[0, 0] = 0.0
    for part in range(1, parts + 1):
        extra = tail if part == parts else 0.0
        for end in range(n + 1):
            starts = np.arange(0, max(end, 1)) if end else np.array([0])
            best[part, end] = np.min(np.maximum(best[part - 1, starts], prefix[end] - prefix[starts] + extra))
    return _evened(prefix, tail, parts, best[parts, n])


def _evened(prefix: Floats, tail: float, parts: int, bound: float) -> tuple[int, ...]:
    """Among the partitions within `bound`, the one whose ends stay closest to an equal share of layers."""
    n = len(prefix) - 1
    slack = bound * (1.0 + 1e-12)
    latest = [n] * (parts + 1)
    for part in range(parts - 1, -1, -1):
        extra = tail if part == parts - 1 else 0.0
        # The earliest end of run `part` from which the runs after it still fit under the bound.
        end = latest[part + 1]
        start = end - 1 if end > 0 else 0
        while start > 0 and prefix[end] - prefix[start - 1] + extra <= slack:
            start -= 1
        latest[part] = start
    cuts = [0]
    for part in range(1, parts):
        furthest = int(np.searchsorted(prefix, prefix[cuts[-1]] + slack, side="right") - 1)
        wish = round(n * part / parts)
        low, high = max(latest[part], cuts[-1] + 1), max(min(furthest, n - (parts - part)), cuts[-1] + 1)
        cuts.append(int(min(max(wish, low), high)))
    cuts.append(n)
    return tuple(cuts[i + 1] - cuts[i] for i in range(parts))


def chunks_of(pp: int, schedule: int) -> int:
    """Chunks that a cut has entries for: the stages, or twice as many in V-shaped schedules."""
    return 2 * pp if schedule in TWO_CHUNK_SCHEDULES else pp


def _given(cut: Cut, pp: int, chunks: int, layers: int) -> Cut:
    """A cut that covers the pipeline and the model. Raises ValueError."""
    if len(cut) != chunks:
        what = f"{chunks} of its V" if chunks != pp else f"{chunks} stages"
        raise ValueError(f"the layout has {len(cut)} entries, but PP {pp} has {what}")
    if min(cut) < 0 or (chunks > 2 and min(cut[1:-1]) < 1):
        raise ValueError("the layout leaves a stage between the first and the last without a layer")
    if sum(cut) != layers:
        raise ValueError(f"the layout places {sum(cut)} layers, but the model has {layers}")
    return cut


def _counts(
    weights: tuple[float, ...], tail: float, chunks: int, *, folded: bool, vocabulary: Vocabulary
) -> tuple[int, ...]:
    """Layers of each chunk of a pipeline.

    With embedding and loss as layers: Megatron-LM's account-for-embedding- and account-for-loss-in-pipeline-split,
    DeepSpeed's partition by `type:transformer|embedding`; Llama 3 (arXiv 2407.21783, section 3.3.2) and BLOOM did so.
    """
    layers = len(weights)
    if vocabulary == "redistributed" and chunks > 1:
        last = partition(weights, tail, chunks)[-1]
        # What the last chunk leaves is spread evenly over the others.
        return (*partition(weights[: layers - last], 0.0, chunks - 1), last)
    if layers % chunks == 0:
        return (layers // chunks,) * chunks
    each = (layers + 2) // chunks
    counted = chunks > 1 and (layers + 2) % chunks == 0 and each > 1
    if counted and not folded and not vocabulary.startswith("split"):
        return (each - 1, *(each,) * (chunks - 2), each - 1)
    return partition(weights, tail, chunks)


def usual_cut(pp: int, schedule: int, *, model: Model, length: float, vocabulary: Vocabulary = "last") -> Cut:
    """The cut that frameworks make unless told otherwise. Raises ValueError when there are fewer layers than chunks."""
    chunks = chunks_of(pp, schedule)
    if model.layers < chunks:
        raise ValueError(f"{model.layers} layers cannot fill {chunks} pipeline chunks")
    weights, tail = cut_weights(model, length, vocabulary)
    return _counts(weights, tail, chunks, folded=schedule in TWO_CHUNK_SCHEDULES, vocabulary=vocabulary)


def cut_weights(model: Model, length: float, vocabulary: Vocabulary) -> tuple[tuple[float, ...], float]:
    """Model FLOP per token, forward: of each layer, and what the last chunk has beside its layers. Unit: FLOP."""
    weights, mtp_weight, output_weight = layer_weights(model, length)
    heads = 0.0 if vocabulary.startswith("split") else (1 + model.mtp_layers) * output_weight
    return weights, heads + model.mtp_layers * mtp_weight


def layout(
    pp: int, schedule: int, cut: Cut = (), *, model: Model, length: float, vocabulary: Vocabulary = "last"
) -> Layout:
    """The layout of one pipeline, with the given cut or the usual one.

    Axes: pp, schedule. Raises ValueError when there are fewer layers than stages, or the cut does not fit.
    V-shaped schedules cut into 2*pp chunks and fold them, so the first device holds embedding and loss; DualPipe
    runs the pipeline in both directions, so device r holds the layers of stages r and pp-1-r. `redistributed` cuts
    layers that divide evenly by their FLOP too; split vocabularies leave the layers even.
    """
    return _layout(model, pp, schedule, cut, length, vocabulary)


@remembered()
def _layout(model: Model, pp: int, schedule: int, cut: Cut, length: float, vocabulary: Vocabulary) -> Layout:
    plain = _chunks(model, pp, schedule, cut, length, vocabulary)
    columns = [np.array(column) for column in (plain.dense, plain.moe, plain.embedding, plain.output)]
    if schedule in TWO_CHUNK_SCHEDULES:
        columns = [column[:pp] + column[pp:][::-1] for column in columns]
    elif schedule == Schedule.DUALPIPE and pp > 1:
        # Both directions of a device: its own stage and the mirrored one, each for half of the microbatches.
        columns = [(column + column[::-1]) / 2 for column in columns]
    return Layout(*(tuple(column.tolist()) for column in columns))


def _chunks(model: Model, pp: int, schedule: int, cut: Cut, length: float, vocabulary: Vocabulary) -> Layout:
    """The layout of the chunks of one pipeline in order, before a schedule folds them onto devices."""
    chunks, split = chunks_of(pp, schedule), vocabulary.startswith("split")
    if cut:
        counts = _given(cut, pp, chunks, model.layers)
    else:
        counts = usual_cut(pp, schedule, model=model, length=length, vocabulary=vocabulary)
    starts = np.concatenate([[0], np.cumsum(counts)])
    kinds = np.array([kind == "moe" for kind in model.layer_kinds])
    moe = np.array([int(kinds[starts[i] : starts[i + 1]].sum()) for i in range(chunks)])
    dense = np.array(counts) - moe
    (moe if model.layer_kinds[-1] == "moe" else dense)[-1] += model.mtp_layers
    first, last = np.zeros(chunks), np.zeros(chunks)
    first[0], last[-1] = 1.0, 1.0
    if split:
        first[:], last[:] = 1.0 / chunks, 1.0 / chunks
    return Layout(*(tuple(column.tolist()) for column in (dense, moe, first, last)))


def stages_of(pp: int, schedule: int, cut: Cut = (), *, model: Model, run: Run) -> Layout:
    """The layout of one pipeline of a run. Raises ValueError as `layout` does."""
    return layout(pp, schedule, cut, model=model, length=run.attended_length, vocabulary=run.vocabulary)


def chunks_in_order(pp: int, schedule: int, cut: Cut = (), *, model: Model, run: Run) -> Layout:
    """The layout of a run's pipeline chunk by chunk (see `chunks_of`), before the schedule folds it onto devices.

    Axes: pp, schedule. Raises ValueError as `layout` does.
    """
    return _chunks(model, pp, schedule, cut, run.attended_length, run.vocabulary)


def recomputing(pp: int, first: int) -> tuple[float, ...]:
    """1 for each stage that recomputes, 0 for the others; `first` 0: all do."""
    return tuple(float(not first or stage < first) for stage in range(pp))


def recomputing_shares(
    pp: int, schedule: int, cut: Cut, first: int, *, model: Model, run: Run
) -> tuple[float, float, float]:
    """Share of all layers, dense layers and MoE layers on the first stages; 1 for what there is none of.

    Axes: pp, schedule. `first` 0: all stages.
    """
    if not first:
        return flops.ALL_LAYERS
    plan = stages_of(pp, schedule, cut, model=model, run=run)
    columns = (plan.layers, plan.dense, plan.moe)
    shares = [sum(column[:first]) / sum(column) if sum(column) else 1.0 for column in columns]
    return shares[0], shares[1], shares[2]


def stage_kinds(pp: int, schedule: int, cut: Cut = (), first: int = 0, *, model: Model, run: Run) -> StageKinds:
    """The distinct stages of a layout: same layers, same ends, recomputing or not, told by the first that is so.

    Axes: pp, schedule. In-flight microbatches never grow along the pipeline (F3.5), so the first stage of a
    kind has the kind's largest memory; times do not depend on the position. `first`: stages that recompute, 0 for all.
    """
    plan = stages_of(pp, schedule, cut, model=model, run=run)
    rows = list(zip(plan.dense, plan.moe, plan.embedding, plan.output, recomputing(pp, first), strict=True))
    distinct = list(dict.fromkeys(rows))
    table = np.array(distinct, dtype=float)
    return StageKinds(
        dense=table[:, 0],
        moe=table[:, 1],
        embedding=table[:, 2],
        output=table[:, 3],
        count=np.array([rows.count(row) for row in distinct], dtype=float),
        stage=np.array([rows.index(row) for row in distinct], dtype=float),
        recomputes=table[:, 4],
    )
