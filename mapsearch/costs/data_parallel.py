"""Seconds of data-parallel communication: gradients and weights, once per step or per microbatch (FORMULAS 4.2).

Contents: shard_count, shard_and_replica_rows, dense_gradient_s, dense_gather_s, expert_gradient_s, expert_gather_s,
zero3_dense_s, zero3_expert_s, QUANTITIES.

Dense weights are replicated over DP*CP, routed experts over EDP only (F3.6). With `shard_replicas` k of the run (HSDP,
several instances of the optimizer) the states are divided over 1/k of that group, its innermost part: gathers and
reduce-scatters stay inside, and each shard is all-reduced over the k copies.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.costs import collectives, volumes
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.quantity import Floats, Num, quantity
from mapsearch.topologies.fabric import Fabric


def _size(row: Num) -> Floats:
    return np.asarray(np.prod(np.asarray(row), axis=-1), dtype=np.float64)


def shard_count(ranks: Num, *, run: Run) -> Num:
    """Ranks that a state is divided over, of a group of `ranks`: all, or 1/k of them where k copies are kept.

    A k that does not divide the group leaves the copies that do. Unit: ranks. Source: F3.6 (d -> d/k), F4.2 (HSDP).
    """
    if run.shard_replicas == 1:
        return ranks
    whole = np.asarray(ranks, dtype=np.int64)
    return np.asarray(whole // np.gcd(whole, run.shard_replicas))


def shard_and_replica_rows(row: Num, *, run: Run) -> tuple[Num, Num]:
    """A row split into the shard group, its innermost part, and the copies of it, cut off from the outermost level.

    The sizes are those of `shard_count`. Unit: ways. Source: F4.2 (HSDP).
    """
    shards = np.array(row, dtype=np.int64)
    copies = np.ones_like(shards)
    left = np.full(shards.shape[:-1], run.shard_replicas, dtype=np.int64)
    for level in range(shards.shape[-1] - 1, -1, -1):
        copies[..., level] = np.gcd(shards[..., level], left)
        left = left // copies[..., level]
    return shards // copies, copies


def _reduced_s(full: Floats, row: Num, inner_row: Num, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Reduce-scatter of a full tensor in the shard group, and all-reduce of the shard over its copies."""
    if run.shard_replicas == 1:
        return collectives.reduce_scatter_s(full, row, fabric=fabric, profile=profile, inner_row=inner_row)
    shards, copies = shard_and_replica_rows(row, run=run)
    scatter = collectives.reduce_scatter_s(full, shards, fabric=fabric, profile=profile, inner_row=inner_row)
    apart = None if inner_row is None else np.asarray(inner_row) * shards
    part = full / _size(shards)
    return scatter + collectives.all_reduce_s(part, copies, fabric=fabric, profile=profile, inner_row=apart)


def _gathered_s(full: Floats, row: Num, inner_row: Num, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """All-gather of a full tensor in the shard group."""
    inside = row if run.shard_replicas == 1 else shard_and_replica_rows(row, run=run)[0]
    return collectives.all_gather_s(full, inside, fabric=fabric, profile=profile, inner_row=inner_row)


def _gradient_s(
    row: Num, parameters: Num, zero: Num, inner_row: Num, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    full = volumes.padded_parameters(parameters, _size(row)) * run.state.gradient_reduce_bytes
    stage = np.asarray(zero)
    whole = stage == 0
    if np.all(whole):
        return collectives.all_reduce_s(full, row, fabric=fabric, profile=profile, inner_row=inner_row)
    scatter = _reduced_s(full, row, inner_row, run, fabric, profile)
    result = np.where(stage <= 2, scatter, 0.0)
    if np.any(whole):
        reduced = collectives.all_reduce_s(full, row, fabric=fabric, profile=profile, inner_row=inner_row)
        result = np.where(whole, reduced, result)
    return result


def _gather_s(
    row: Num, parameters: Num, zero: Num, inner_row: Num, run: Run, fabric: Fabric, profile: Profile
) -> Floats:
    full = volumes.padded_parameters(parameters, _size(row)) * volumes.gathered_weight_bytes(run=run)
    stage = np.asarray(zero)
    once = (stage >= 1) & (stage <= 2)
    if not np.any(once):
        return 0.0 * full
    return np.where(once, _gathered_s(full, row, inner_row, run, fabric, profile), 0.0)


def _zero3_s(row: Num, parameters: Num, inner_row: Num, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """Forward gather, backward gather and gradient reduce-scatter of one unit."""
    padded = volumes.padded_parameters(parameters, _size(row))
    gather = _gathered_s(padded * volumes.gathered_weight_bytes(run=run), row, inner_row, run, fabric, profile)
    scatter = _reduced_s(padded * run.state.gradient_reduce_bytes, row, inner_row, run, fabric, profile)
    return 2.0 * gather + scatter


def _replicas(dp_row: Num, cp_row: Num) -> Num:
    """The row of the group that dense weights are replicated over: DP and CP together."""
    return np.asarray(dp_row) * np.asarray(cp_row)


@quantity(unit="s", source="F4.2")
def dense_gradient_s(
    dp_row: Num,
    cp_row: Num,
    parameters: Num,
    zero: Num,
    inner_row: Num = None,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """Gradient reduction of the weights outside the routed experts over DP*CP, once per step.

    ZeRO-0 all-reduce; ZeRO-1, 2 reduce-scatter of `gradient_reduce_bytes` per parameter; ZeRO-3: see zero3_dense_s.
    Axes: dp_row, cp_row, parameters, zero, inner_row (TP). Unit: s. Source: F4.2.
    Ignores: buckets (one call is charged).
    """
    return _gradient_s(_replicas(dp_row, cp_row), parameters, zero, inner_row, run, fabric.seen_by("dp"), profile)


@quantity(unit="s", source="F4.2")
def dense_gather_s(
    dp_row: Num,
    cp_row: Num,
    parameters: Num,
    zero: Num,
    inner_row: Num = None,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """All-gather of the updated weights outside the routed experts over DP*CP, once per step with ZeRO-1 and 2.

    Axes: dp_row, cp_row, parameters, zero, inner_row (TP). Unit: s. Source: F4.2, F2.3.
    """
    return _gather_s(_replicas(dp_row, cp_row), parameters, zero, inner_row, run, fabric.seen_by("dp"), profile)


@quantity(unit="s", source="F4.2")
def expert_gradient_s(
    edp_row: Num,
    parameters: Num,
    zero: Num,
    inner_row: Num = None,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """Gradient reduction of the local routed experts over EDP, once per step; 0 when EDP is 1.

    Axes: edp_row, parameters, zero, inner_row (ETP, EP). Unit: s. Source: F4.2.
    """
    return _gradient_s(edp_row, parameters, zero, inner_row, run, fabric.seen_by("edp"), profile)


@quantity(unit="s", source="F4.2")
def expert_gather_s(
    edp_row: Num,
    parameters: Num,
    zero: Num,
    inner_row: Num = None,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """All-gather of the updated local experts over EDP, once per step with ZeRO-1 and 2.

    Axes: edp_row, parameters, zero, inner_row (ETP, EP). Unit: s. Source: F4.2, F2.3.
    """
    return _gather_s(edp_row, parameters, zero, inner_row, run, fabric.seen_by("edp"), profile)


@quantity(unit="s", source="F4.2")
def zero3_dense_s(
    dp_row: Num,
    cp_row: Num,
    parameters: Num,
    inner_row: Num = None,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """ZeRO-3 of one unit of dense weights, per microbatch: two gathers and one reduce-scatter over DP*CP.

    Latency is charged once per call: call it with the parameters of one unit (a layer). Axes: dp_row, cp_row,
    parameters, inner_row (TP). Unit: s. Source: F4.2.
    """
    return _zero3_s(_replicas(dp_row, cp_row), parameters, inner_row, run, fabric.seen_by("dp"), profile)


@quantity(unit="s", source="F4.2")
def zero3_expert_s(
    edp_row: Num,
    parameters: Num,
    inner_row: Num = None,
    *,
    model: Model,
    run: Run,
    fabric: Fabric,
    profile: Profile,
) -> Floats:
    """ZeRO-3 of one unit of local experts, per microbatch: two gathers and one reduce-scatter over EDP.

    Axes: edp_row, parameters, inner_row (ETP, EP). Unit: s. Source: F4.2.
    """
    return _zero3_s(edp_row, parameters, inner_row, run, fabric.seen_by("edp"), profile)


QUANTITIES = (
    dense_gradient_s,
    dense_gather_s,
    expert_gradient_s,
    expert_gather_s,
    zero3_dense_s,
    zero3_expert_s,
)
