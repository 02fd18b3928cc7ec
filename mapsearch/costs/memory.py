"""Memory: model states, buffers, what is offloaded, and the peak of a stage (FORMULAS 1.1, 1.2, 3.6, 3.7).

Contents: weight_bytes, gradient_bytes, optimizer_bytes, zero3_live_bytes, zero3_root_bytes, unsharded_bytes,
weight_gradient_scratch_bytes, output_gradient_scratch_bytes,
dispatcher_buffer_bytes, attention_communicator_bytes, expert_communicator_bytes, offloaded_optimizer_bytes,
offload_transfer_s, optimizer_offload_s, resident_microbatches, stage_peak_bytes, QUANTITIES.

`shards` is the number of ranks a state is divided over: DP*CP for dense parameters, EDP for routed experts.
Each demand is charged once: tensors and named buffers here, allocator fragmentation in the run's reserve.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import Dispatcher, Hidden, Offload
from mapsearch.costs.activations import HALF, saved_input_bytes
from mapsearch.costs.routing import routed_amplification
from mapsearch.errors import MissingFact
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.quantity import Num, Quantity, maximum, quantity
from mapsearch.topologies.fabric import Fabric


def _divided(parameters: Num, shards: Num, divided: Num) -> Num:
    """Parameters of which a rank keeps the state: its shard where the state is divided, else all."""
    return parameters * np.where(divided, 1.0 / np.asarray(shards), 1.0)


def _weight_bytes_each(run: Run) -> float:
    """Bytes of one weight on the device, with its cached FP8 or NVFP4 copies."""
    if run.fp4:
        return run.state.weight_bytes + run.state.fp4_weight_copies
    if not run.fp8:
        return run.state.weight_bytes
    if run.state.fp8_primary_weights:
        return max(1.0, run.state.fp8_weight_copies)
    return run.state.weight_bytes + run.state.fp8_weight_copies


@quantity(unit="bytes", source="FORMULAS 3.6, 2.3")
def weight_bytes(parameters: Num, shards: Num, zero: Num, *, run: Run) -> Num:
    """Weights: the recipe's bytes per parameter, divided over the shards by ZeRO-3.

    FP8 and NVFP4 compute add their row and column copies; with FP8 primary weights these are all there is.

    Axes: parameters (local), shards, zero. Unit: bytes. Source: FORMULAS 3.6, 2.3.
    Ignores: that embeddings, norms, routers and the layers kept in 16 bits have no copies.
    """
    return _divided(parameters, shards, np.asarray(zero) >= 3) * _weight_bytes_each(run)


@quantity(unit="bytes", source="FORMULAS 3.6")
def gradient_bytes(parameters: Num, shards: Num, zero: Num, *, run: Run) -> Num:
    """Persistent gradient buffer, divided over the shards by ZeRO-2 and 3.

    Axes: parameters (local), shards, zero. Unit: bytes. Source: FORMULAS 3.6 (Megatron's buffer stays whole).
    """
    return _divided(parameters, shards, np.asarray(zero) >= 2) * run.state.gradient_bytes


@quantity(unit="bytes", source="FORMULAS 3.6")
def optimizer_bytes(parameters: Num, shards: Num, zero: Num, *, run: Run) -> Num:
    """Master weights and both moments, divided over the shards by ZeRO-1, 2 and 3.

    With one shard (EDP = 1) nothing is divided.

    Axes: parameters (local), shards, zero. Unit: bytes. Source: FORMULAS 3.6.
    """
    each = run.state.master_bytes + run.state.moment_bytes
    return _divided(parameters, shards, np.asarray(zero) >= 1) * each


@quantity(unit="bytes", source="FORMULAS 3.6")
def zero3_live_bytes(parameters: Num, zero: Num, overlap: Num, *, run: Run) -> Num:
    """What ZeRO-3 holds beside its shards: its largest unit, gathered, and that unit's gradient; where gathers run
    ahead of their use, the next unit as well.

    Axes: parameters (of the largest unit), zero, overlap. Unit: bytes. Source: FORMULAS 3.6; PyTorch FSDP2 (pull
    request 128884: two outputs of all-gathers alive at once, so that the next one overlaps).
    """
    units = np.where((np.asarray(overlap) & Hidden.PARAM_GATHER) != 0, 2.0, 1.0)
    each = units * run.state.weight_bytes + run.state.gradient_bytes
    return parameters * np.where(np.asarray(zero) >= 3, each, 0.0)


@quantity(unit="bytes", source="FORMULAS 3.6")
def zero3_root_bytes(parameters: Num, zero: Num, *, run: Run) -> Num:
    """What ZeRO-3 holds of the ends of the model: their gathered weights, from the forward to the end of the backward.

    Embedding and output head are the root unit, which is not sharded again after its forward.

    Axes: parameters (of embedding and output head on this stage), zero. Unit: bytes. Source: PyTorch FSDP2
    (fully_shard).
    """
    return parameters * np.where(np.asarray(zero) >= 3, run.state.weight_bytes, 0.0)


@quantity(unit="bytes", source="FORMULAS 3.6")
def unsharded_bytes(parameters: Num, zero: Num, *, run: Run) -> Num:
    """What stays whole under ZeRO-3 between microbatches: `StateRecipe.unsharded_bytes` of every local parameter.

    Axes: parameters (local), zero. Unit: bytes. Source: PyTorch FSDP2 (reshard_after_forward=False,
    set_requires_gradient_sync(False)).
    """
    return parameters * np.where(np.asarray(zero) >= 3, run.state.unsharded_bytes, 0.0)


@quantity(unit="bytes", source="FORMULAS 3.7b")
def weight_gradient_scratch_bytes(parameters: Num, *, run: Run) -> Num:
    """16-bit weight gradients that exist beside the gradient buffer: 2 bytes per parameter.

    TransformerEngine adds the gradient to its buffer in the GEMM and hands autograd a dummy instead; it keeps one
    dummy per shape of weight, so one layer of each kind, and one expert.

    Axes: parameters (of one layer of each kind). Unit: bytes. Source: FORMULAS 3.7b; get_dummy_wgrad in
    TransformerEngine.
    """
    return parameters * HALF


@quantity(unit="bytes", source="FORMULAS 3.7b")
def output_gradient_scratch_bytes(parameters: Num, *, run: Run) -> Num:
    """The 16-bit gradient of the output head's weights while its backward and that of the layers before it run.

    Axes: parameters (of the output head). Unit: bytes. Source: FORMULAS 3.7b; Megatron-LM (tensor_parallel/layers.py).
    """
    return parameters * HALF


@quantity(unit="bytes", source="FORMULAS 1.4, 3.3, 4.2")
def dispatcher_buffer_bytes(tokens: Num, etp: Num, ep: Num, dispatcher: Num, *, model: Model, run: Run) -> Num:
    """Buffers that a dispatcher keeps beside the activations; one set serves all layers.

    Whole-group all-to-all: a send and a receive buffer of R M slots of h elements each, R M = E C_src.
    All-gather: the gathered tokens of the ETP*EP group. De-duplicated: one receive buffer of the rank's row budget,
    K tokens times the rank skew. Variable all-to-all: none, its rows are activations. None when nothing leaves the
    rank. An element takes the larger of its dispatch and combine bytes.

    Axes: tokens, etp, ep, dispatcher. Unit: bytes. Source: FORMULAS 1.4 (whole-group), 3.3 (flex budget), 4.2.
    Ignores: the alignment of the budget; registered network buffers of a library beyond the rows themselves.
    """
    if model.moe is None:
        return np.zeros(np.broadcast(tokens, etp, ep, dispatcher).shape)
    element = model.hidden * max(saved_input_bytes(model, run), run.routing.combine_bytes)
    rows = np.asarray(tokens) * model.moe.top_k * routed_amplification(tokens, ep, dispatcher, model=model, run=run)
    group, code = np.asarray(ep) * np.asarray(etp), np.asarray(dispatcher)
    gathered = np.asarray(tokens) * group
    padded, flex = code == Dispatcher.FIXED_ALL_TO_ALL, code == Dispatcher.DEDUPLICATED
    slots = np.select([padded, flex, code == Dispatcher.ALL_GATHER], [2.0 * rows, rows, gathered])
    leaves = np.where(code == Dispatcher.ALL_GATHER, group > 1, np.asarray(ep) > 1)
    return np.where(leaves, slots, 0.0) * element


@quantity(unit="bytes", source="FORMULAS 1.1")
def attention_communicator_bytes(tp: Num, cp: Num, dp: Num, pp: Num, *, profile: Profile) -> Num:
    """Communicators of the attention grid: one for each of TP, CP, DP*CP and PP with more than one rank.

    Axes: tp, cp, dp, pp. Unit: bytes. Source: FORMULAS 1.1 (M_comm); groups of FORMULAS 5.1.
    """
    groups = (np.asarray(size) > 1 for size in (tp, cp, np.asarray(dp) * np.asarray(cp), pp))
    return sum(1.0 * group for group in groups) * profile.communicator_bytes


@quantity(unit="bytes", source="FORMULAS 1.1")
def expert_communicator_bytes(etp: Num, ep: Num, edp: Num, *, profile: Profile) -> Num:
    """Communicators of the expert grid: one for each of ETP, EP and EDP with more than one rank.

    Axes: etp, ep, edp. Unit: bytes. Source: FORMULAS 1.1 (M_comm); groups of FORMULAS 5.1.
    """
    return sum(1.0 * (np.asarray(size) > 1) for size in (etp, ep, edp)) * profile.communicator_bytes


@quantity(unit="bytes", source="FORMULAS 3.6")
def offloaded_optimizer_bytes(parameters: Num, shards: Num, zero: Num, offload: Num, *, run: Run) -> Num:
    """Optimizer states that live in host memory or on NVMe instead of HBM.

    Never free: `optimizer_offload_s` is their way to the device and back.

    Axes: parameters (local), shards, zero, offload. Unit: bytes. Source: FORMULAS 3.6.
    """
    moved = np.where((np.asarray(offload) & Offload.OPTIMIZER) != 0, 1.0, 0.0)
    return optimizer_bytes(parameters, shards, zero, run=run) * moved


@quantity(unit="s", source="FORMULAS 3.6")
def offload_transfer_s(payload_bytes: Num, offload: Num, *, fabric: Fabric) -> Num:
    """Seconds to move bytes between a device and host memory, or through it to NVMe, one way.

    Axes: payload_bytes, offload. Unit: s. Source: bytes over the host link; to NVMe over the slower of host link and
    NVMe, which work at the same time on different pieces.
    Raises MissingFact when the topology does not give what `offload` needs. Ignores: start-up of the copies, and the
    host memory that pieces on their way to NVMe take.
    """
    device, to_nvme = fabric.device, (np.asarray(offload) & Offload.NVME) != 0
    _needed(device.host_bytes_per_s, "host_bandwidth", "offload", fabric)
    each = 1.0 / device.host_bytes_per_s
    if not np.any(to_nvme):
        return payload_bytes * each
    _needed(device.nvme_bytes, "nvme", "offload to NVMe", fabric)
    _needed(device.nvme_bytes_per_s, "nvme_bandwidth", "offload to NVMe", fabric)
    return payload_bytes * np.where(to_nvme, max(each, 1.0 / device.nvme_bytes_per_s), each)


def _needed(fact: float, name: str, purpose: str, fabric: Fabric) -> None:
    if fact <= 0:
        raise MissingFact(
            f"is needed for {purpose} and the topology does not give it; state it, or leave offload at 'none'",
            file=fabric.name,
            field=f"device.{name}",
        )


@quantity(unit="s", source="FORMULAS 3.6")
def optimizer_offload_s(parameters: Num, shards: Num, zero: Num, offload: Num, *, run: Run, fabric: Fabric) -> Num:
    """Seconds per step, on the critical path, to bring offloaded optimizer states to the device and back.

    Axes: parameters (local), shards, zero, offload. Unit: s. Source: twice `offloaded_optimizer_bytes`.
    Raises MissingFact as `offload_transfer_s` when anything is offloaded.
    Ignores: an optimizer that runs on the host, and overlap with other work.
    """
    moved = offloaded_optimizer_bytes(parameters, shards, zero, offload, run=run)
    if not np.any((np.asarray(offload) & Offload.OPTIMIZER) != 0):
        return moved
    return offload_transfer_s(2.0 * moved, offload, fabric=fabric)


def resident_microbatches(held: Num, offload: Num) -> Num:
    """Of the microbatches in flight, those whose activations stay in HBM.

    All without offload; otherwise two: the one that is computed and the one on its way. The others are offloaded,
    and each of their activations travels out and back once (`offload_transfer_s` of twice the bytes).
    """
    moved = (np.asarray(offload) & Offload.ACTIVATIONS) != 0
    return np.where(moved, np.minimum(held, 2.0), held)


def stage_peak_bytes(
    *,
    states: Num,
    activations: Num,
    recomputed_layer: Num,
    transient: Num,
    loss: Num,
    head: Num,
    head_scratch: Num,
    scratch: Num,
    buffers: Num,
) -> Num:
    """Peak of one stage: what is always there, plus the worst moment of the backward pass.

    states + activations + scratch + buffers + max(loss, head scratch + max(head, recomputed layer + transient)).

    states: weights, gradients, optimizer states that stay in HBM, what ZeRO-3 keeps whole. activations: those of all
    microbatches in HBM, with the ends of the model. recomputed_layer: what the largest layer holds again while it is
    recomputed, and the layers that ZeRO-3 gathers. loss, head, head_scratch: 0 but on the last stage. buffers:
    dispatcher, communicators, work space. Works on numbers, arrays and solver values.

    Unit: bytes. Source: FORMULAS 3.7b (within 0.3 % of 19 measured peaks).
    Ignores: that a recomputed layer's routed rows are gone at the loss, so that the sides of a mapping only add up.
    """
    layer = maximum(head, recomputed_layer + transient)
    return states + activations + scratch + buffers + maximum(loss, head_scratch + layer)


QUANTITIES: tuple[Quantity[..., Num], ...] = (
    weight_bytes,
    gradient_bytes,
    optimizer_bytes,
    zero3_live_bytes,
    zero3_root_bytes,
    unsharded_bytes,
    weight_gradient_scratch_bytes,
    output_gradient_scratch_bytes,
    dispatcher_buffer_bytes,
    attention_communicator_bytes,
    expert_communicator_bytes,
    offloaded_optimizer_bytes,
    offload_transfer_s,
    optimizer_offload_s,
)
