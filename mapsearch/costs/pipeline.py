"""Pipelines: microbatches held, bubbles and step time of each schedule (FORMULAS 3.5).

Contents: in_flight, model_copies, hops_per_chunk, steady_correction, ramp_scale, RampWeights, ramp_weights,
pipeline_s, QUANTITIES.

A stage is all the layers of one device of the pipeline, whatever chunks they are cut into. Its times are those of
one microbatch through all of them: F forward, B input gradients, W weight gradients, without the bubble.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mapsearch import arrays as np
from mapsearch.axes import Hidden, Schedule
from mapsearch.inventories.run import Run
from mapsearch.quantity import Num, Quantity, maximum, quantity

LATE_MICROBATCHES = {"split-1": 2.0, "split-2": 1.0}
"""What two barriers, or one, between the last layer and its backward add in flight (arXiv 2411.05288, Figure 10)."""


def _by_schedule(schedule: Num, values: dict[Schedule, Num]) -> Num:
    codes = np.asarray(schedule)
    if type(schedule) is int:
        return values.get(Schedule(schedule), 0.0)
    return np.select([codes == code for code in values], list(values.values()))


@quantity(unit="microbatches", source="FORMULAS 3.5")
def in_flight(pp: Num, vpp: Num, schedule: Num, overlap: Num, microbatches: Num, stage: Num, *, run: Run) -> Num:
    """Microbatches whose activations a stage holds at its peak, in units of one microbatch through the whole stage.

    GPipe m; 1F1B p-r; interleaved [2(p-r-1) + (v-1)p + 1]/v, and as 1F1B for v = 1; both one forward more where expert
    all-to-alls hide behind another microbatch, except on one stage, where that one's layers take the place of this
    one's; ZB-H1 and ZB-V p; ZB-2P 2p, the limit that its schedule is made for; DualPipe p+1;
    DualPipeV [2p+1]/2, since its 2p chunks stand on p devices. Never more than the m microbatches there are.
    `stage` is r, from 0. A vocabulary that is split over the stages keeps two more in flight (algorithm 1), or one.

    Axes: pp, vpp, schedule, overlap, microbatches, stage. Unit: microbatches. Source: FORMULAS 3.5; Megatron-LM
    (docs/user-guide/features/moe_a2a_overlap.md: one more forward in the warm-up, which makes forward and backward of
    a step independent; without a pipeline layer by layer).
    Ignores: interleaving groups other than p; that late ZB-H1 stages hold some microbatches for W only; the one layer
    more that overlap holds on a single stage; what overlap adds in schedules that Megatron does not run.
    """
    p, v, left = np.asarray(pp), np.asarray(vpp), np.asarray(pp) - np.asarray(stage)
    more = np.where((p > 1) & ((np.asarray(overlap) & Hidden.EXPERT_ALL_TO_ALL) != 0), 1.0, 0.0)
    plain = left + more
    held = _by_schedule(
        schedule,
        {
            Schedule.GPIPE: 1.0 * np.asarray(microbatches),
            Schedule.ONE_F_ONE_B: plain,
            Schedule.INTERLEAVED: np.where(v > 1, (2.0 * (left - 1) + (v - 1) * p + 1.0 + more) / v, plain),
            Schedule.ZB_H1: 1.0 * p,
            Schedule.ZB_V: 1.0 * p,
            Schedule.ZB_2P: np.where(p > 1, 2.0 * p, 1.0),
            Schedule.DUALPIPE: np.where(p > 1, p + 1.0, 1.0),
            Schedule.DUALPIPE_V: np.where(p > 1, p + 0.5, 1.0),
        },
    )
    late = np.where(p > 1, LATE_MICROBATCHES.get(run.vocabulary, 0.0), 0.0)
    return np.minimum(held + late, microbatches)


@quantity(unit="copies", source="FORMULAS 3.5")
def model_copies(schedule: Num) -> Num:
    """Copies of a stage's weights and gradients on its device: 2 for DualPipe, which runs in both directions.

    Optimizer states do not double from ZeRO-1 on: each stage then has twice the replicas to divide them over.
    DualPipeV is written with 2p stages on p devices and "2x weights"; counted per device, that is one copy.

    Axes: schedule. Unit: copies. Source: FORMULAS 3.5 (DualPipe README).
    """
    return np.where(np.asarray(schedule) == Schedule.DUALPIPE, 2.0, 1.0)


@quantity(unit="hops", source="FORMULAS 3.5")
def hops_per_chunk(schedule: Num) -> Num:
    """Sends of a device per microbatch, direction and chunk of `vpp`: 2 in V-shaped schedules, which pass it twice.

    Axes: schedule. Unit: hops. Source: FORMULAS 3.5 (P2P x2). Ignores: that the bottom of the V stays on its device.
    """
    codes = np.asarray(schedule)
    return np.where((codes == Schedule.ZB_V) | (codes == Schedule.DUALPIPE_V), 2.0, 1.0)


@quantity(unit="microbatches", source="FORMULAS 3.5")
def steady_correction(schedule: Num, vpp: Num) -> Num:
    """delta: microbatches of the slowest stage that its own ramp term already counts.

    1 for GPipe and 1F1B, 1/v interleaved, 0 where the ramp is written as a bubble alone.

    Axes: schedule, vpp. Unit: microbatches. Source: FORMULAS 3.5 (unequal stages).
    """
    one = np.ones_like(np.asarray(vpp, dtype=float))
    return _by_schedule(
        schedule, {Schedule.GPIPE: one, Schedule.ONE_F_ONE_B: one, Schedule.INTERLEAVED: one / np.asarray(vpp)}
    )


@quantity(unit="share", source="FORMULAS 3.5")
def ramp_scale(schedule: Num, pp: Num, vpp: Num) -> Num:
    """kappa: share of the weighted stage times, summed over the stages, that fills and drains the pipeline.

    GPipe and 1F1B 1; interleaved 1/v; ZB-H1 (p-1)/p; ZB-V and ZB-2P 0; DualPipe (p/2-1)/p; DualPipeV (p-1)/(2p), as
    each of its 2p stages takes half of a device's time.

    Axes: schedule, pp, vpp. Unit: share. Source: FORMULAS 3.5.
    Ignores: the bubble of ZB-V and ZB-2P when forward, input-gradient and weight-gradient times differ.
    """
    p = np.asarray(pp, dtype=float)
    one = np.ones(np.broadcast_shapes(np.shape(p), np.shape(vpp)))
    return _by_schedule(
        schedule,
        {
            Schedule.GPIPE: one,
            Schedule.ONE_F_ONE_B: one,
            Schedule.INTERLEAVED: one / np.asarray(vpp),
            Schedule.ZB_H1: one * (p - 1.0) / p,
            Schedule.DUALPIPE: one * np.maximum(p / 2.0 - 1.0, 0.0) / p,
            Schedule.DUALPIPE_V: one * (p - 1.0) / (2.0 * p),
        },
    )


class RampWeights(NamedTuple):
    """What a stage's forward, input-gradient and weight-gradient time counts in the ramp."""

    forward: Num
    input_grad: Num
    weight_grad: Num


@quantity(unit="share", source="FORMULAS 3.5")
def ramp_weights(schedule: Num) -> RampWeights:
    """Weights (c_F, c_B, c_W) of a stage's times in the ramp.

    (1, 1, 1) for GPipe, 1F1B and interleaved; (1, 1, -1) for the ZB family, whose weight gradients fill the bubble;
    (1, 2, -1) for DualPipe and DualPipeV: F&B + B - 3W with F&B = F + B + W and B the full backward.

    Axes: schedule. Unit: share. Source: FORMULAS 3.5 (notation trap of B).
    """
    codes = np.asarray(schedule)
    dual = (codes == Schedule.DUALPIPE) | (codes == Schedule.DUALPIPE_V)
    fills = dual | np.isin(codes, (Schedule.ZB_H1, Schedule.ZB_V, Schedule.ZB_2P))
    return RampWeights(np.ones(np.shape(codes)), np.where(dual, 2.0, 1.0), np.where(fills, -1.0, 1.0))


def pipeline_s(
    forward: Sequence[Num],
    input_grad: Sequence[Num],
    weight_grad: Sequence[Num],
    *,
    microbatches: Num,
    correction: Num,
    scale: Num,
    weights: RampWeights,
) -> Num:
    """Seconds of one step's microbatches through the pipeline; sequences hold one entry per stage.

    T = (m - delta) max_r t_r + kappa sum_r (c_F F_r + c_B B_r + c_W W_r), t_r = F_r + B_r + W_r.
    Exact for equal stages. For unequal stages with one ratio of forward to backward: exact for GPipe; for 1F1B exact
    when the slowest stage is the last, otherwise an upper bound, too long by at most the stages behind the slowest.

    Unit: s. Source: FORMULAS 3.5; run step by step in tests/simulating/test_closed_forms.py.
    Ignores: hop latency inside the ramp; work behind the slowest stage that its warm-up hides.
    """
    totals = [f + b + w for f, b, w in zip(forward, input_grad, weight_grad, strict=True)]
    ramps = [
        weights.forward * f + weights.input_grad * b + weights.weight_grad * w
        for f, b, w in zip(forward, input_grad, weight_grad, strict=True)
    ]
    ramp = ramps[0]
    for other in ramps[1:]:
        ramp = ramp + other
    return (microbatches - correction) * maximum(totals[0], *totals[1:]) + scale * ramp


QUANTITIES: tuple[Quantity[..., Num], ...] = (
    in_flight,
    model_copies,
    hops_per_chunk,
    steady_correction,
    ramp_scale,
    ramp_weights,
)
