"""Memory of a case: the worst stage against the device, a copy while building, and host memory of a node.

Contents: Estimate, device_estimate, findings, host_finding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mapsearch.calibration.shipped import profile_named
from mapsearch.constraints.capacity import bytes_text
from mapsearch.costs.estimate import Point, point_of
from mapsearch.costs.footprint import dense_parameters, routed_parameters
from mapsearch.costs.parameters import ledger
from mapsearch.costs.views import Facts
from mapsearch.errors import MapsearchError
from mapsearch.inventories.profile import Profile
from mapsearch.judging.finding import Finding
from mapsearch.judging.trial import Trial, learns, offloads

TIGHT = 0.9
"""Share of a device above which a fit is tight: 10 % are what allocators and uneven routing take (assumed)."""
GRAPH_SHARE = 0.2
"""Memory that capturing a whole iteration as one graph leaves unused in the allocator's pools, over what is live
(measured once: 60.9 of 268.9 GB reserved, NVIDIA-NeMo/Megatron-Bridge issue 4587)."""
PINNED = 4.0 / 3.0
"""Pinned host blocks are rounded up to powers of two (PyTorch's CachingHostAllocator): by a third on average."""
HOST_STATE_BYTES = 16.0
"""FP32 master weights, both moments and gradients per parameter, when the host runs the optimizer."""
MOVED_STATE_BYTES = 14.0
"""Weights, FP32 master weights and both moments of the actor: gradients are dropped between phases."""
HOST_WEIGHT_COPIES = 2
"""Weights of actor and reference in host memory beside them, in reinforcement learning."""
HOST_USABLE = 0.8
"""Share of a node's memory left by system, page cache and object store (assumed)."""
NODE_BYTES = (1e12, 2e12)
"""Memory with which nodes of 8 are commonly built (assumed)."""


@dataclass(frozen=True)
class Estimate:
    """Bytes of the worst stage in parts, what a device offers, and what else moves the comparison."""

    parts: dict[str, float]
    offered_bytes: float
    point: Point | None = None
    fragmentation: float = 0.0
    """Share of the tensors, fitted to measured runs (`calibration.allocator`)."""

    @property
    def needed_bytes(self) -> float:
        """The worst stage's peak, with what a caching allocator reserves beyond its tensors."""
        outside = self.parts.get("communicators", 0.0)
        return (sum(self.parts.values()) - outside) * (1.0 + self.fragmentation) + outside

    @property
    def share(self) -> float:
        """Needed over offered."""
        return self.needed_bytes / self.offered_bytes

    @property
    def largest(self) -> str:
        """The part that takes most."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def states_bytes(self) -> float:
        """Weights, gradients and optimizer states."""
        return sum(self.parts.get(name, 0.0) for name in ("weights", "gradients", "optimizer"))


def profile_for(trial: Trial) -> Profile:
    """The profile of the case's device; that of an H100 where it is unknown (its context and communicators)."""
    kind = trial.hardware.kind
    return profile_named(kind.profile if kind else "h100")


def device_estimate(trial: Trial, **changes: Any) -> Estimate | None:
    """The peak of the case's mapping, with run or mapping changed; None when the case does not say enough."""
    model, memory = trial.shape.model, trial.hardware.memory_bytes
    if model is None or memory is None or not trial.closes or not trial.has_mapping:
        return None
    profile = profile_for(trial)
    offered = memory - float(profile.runtime_bytes)
    if trial.task == "inference":
        return Estimate(_inference(trial), offered)
    point = point_for(trial, profile, **changes)
    if point is None:
        return None
    stages = point.memory_by_stage_bytes
    worst = max(stages, key=lambda parts: sum(parts.values()))
    return Estimate(
        {name: value for name, value in worst.items() if value}, offered, point, float(profile.fragmentation)
    )


def point_for(trial: Trial, profile: Profile, **changes: Any) -> Point | None:
    """The case's mapping on its devices; None where it has no layout."""
    assert trial.mapping is not None and trial.run is not None and trial.shape.model is not None
    fields = trial.mapping.__class__.model_fields
    mapping = trial.mapping.model_copy(update={key: value for key, value in changes.items() if key in fields})
    run = trial.run.model_copy(update={key: value for key, value in changes.items() if key not in fields})
    fabric = trial.hardware.fabric(mapping.devices)
    flat = replace(fabric, levels=(replace(fabric.levels[0], size=mapping.devices),), cores=(), site=None)
    for place in (fabric, flat):
        try:
            point = point_of(mapping, Facts(trial.shape.model, run, place, profile))
            _ = point.memory_by_stage_bytes
        except (MapsearchError, ValueError):
            continue
        return point
    return None


def _inference(trial: Trial) -> dict[str, float]:
    """Weights of a rank; caches come on top."""
    assert trial.shape.model is not None and trial.mapping is not None
    precision = str(trial.case.run.precision or "bf16").lower()
    each = 1.0 if "8" in precision else 0.5 if "4" in precision else 2.0
    ranks = trial.mapping.tp * trial.mapping.pp
    return {"weights": each * ledger(model=trial.shape.model).total / ranks}


def findings(trial: Trial, estimate: Estimate) -> list[Finding]:
    """Out of memory on the device, tight, or nothing."""
    needed, offered = estimate.needed_bytes, estimate.offered_bytes
    held = f"the worst stage needs {bytes_text(needed)} of {bytes_text(offered)} per device"
    split = _split(estimate)
    if needed > offered:
        relation = _cause(trial, estimate)
        return [Finding("out of memory", relation, f"{held}: {split}{_what_kept(trial, estimate)}")]
    graph = str(trial.case.run.cuda_graph or "").lower()
    if "full" in graph and needed * (1.0 + GRAPH_SHARE) > offered:
        return [
            Finding(
                "out of memory",
                "allocator",
                f"{held}, but a whole iteration captured as one graph leaves {100 * GRAPH_SHARE:g} % more in the "
                "allocator's pools; expandable segments or a smaller graph let it run",
            )
        ]
    build = _building(trial, estimate)
    if build is not None:
        return [build]
    tight = "tight: " if estimate.share > TIGHT else ""
    return [Finding("note", "hbm", f"{tight}{held}: {split}")]


def _split(estimate: Estimate) -> str:
    parts = sorted(estimate.parts.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{name.replace('_', ' ')} {bytes_text(value)}" for name, value in parts)


def _cause(trial: Trial, estimate: Estimate) -> str:
    """States when they alone leave less than a fifth, else the part that takes most of the rest."""
    if trial.task in ("inference", "lora") and estimate.parts.get("weights", 0.0) > 0.5 * estimate.offered_bytes:
        return "weights"
    if estimate.states_bytes > 0.65 * estimate.offered_bytes:
        return "states"
    rest = {name: value for name, value in estimate.parts.items() if name not in ("weights", "gradients", "optimizer")}
    name = max(rest, key=lambda part: rest[part])
    return {"logits_or_transient": "logits"}.get(name, "activations")


def _what_kept(trial: Trial, estimate: Estimate) -> str:
    """Why states are not smaller."""
    mapping = trial.mapping
    assert mapping is not None
    if trial.task == "inference" or estimate.states_bytes < 0.5 * estimate.offered_bytes:
        return ""
    told = []
    if trial.shape.has_experts and mapping.edp == 1 and mapping.ep > 1:
        told.append(f"EP {mapping.ep} leaves expert DP 1, so states of experts are not sharded")
    if mapping.dp == 1 and mapping.zero > 0:
        told.append("DP is 1, so there is nothing to shard states over")
    if mapping.dp > 1 and mapping.zero == 0:
        told.append("optimizer states are not sharded over DP")
    return "".join(f"; {one}" for one in told)


def _building(trial: Trial, estimate: Estimate) -> Finding | None:
    """Frozen experts are held twice while a rank's grouped weights are stacked."""
    if trial.task != "lora" or estimate.point is None or trial.launcher.framework not in ("megatron", "mindspeed"):
        return None
    point = estimate.point
    experts = 2.0 * max(float(value) for value in routed_parameters(point.expert))
    rest = 2.0 * max(float(value) for value in dense_parameters(point.attention))
    communicators = estimate.parts.get("communicators", 0.0)
    needed = 2.0 * experts + rest + communicators
    if needed <= TIGHT * estimate.offered_bytes:
        return None
    return Finding(
        "out of memory",
        "weights",
        f"weights take {bytes_text(experts + rest)} of {bytes_text(estimate.offered_bytes)}, and stacking the experts "
        f"of a stage asks for another {bytes_text(experts)} at once; more PP or EP makes both smaller",
    )


def host_finding(trial: Trial) -> Finding | None:
    """Host memory of a node: offloaded optimizer states, or a checkpoint converted in one process."""
    if trial.shape.model is None:
        return None
    total = float(ledger(model=trial.shape.model).total)
    if trial.task == "conversion":
        needed, what = total * (2.0 + _source_bytes(trial)), "source and target of the conversion in one process"
    elif offloads(trial) and trial.gpus and trial.hardware.node and trial.task != "lora":
        nodes = max(1, -(-trial.gpus // trial.hardware.node))
        each, what = _kept_on_host(trial)
        needed = total * each / nodes
    else:
        return None
    return _against(trial, needed, what)


def _kept_on_host(trial: Trial) -> tuple[float, str]:
    """Bytes per parameter in host memory, and in words: states that move there between phases, or live there."""
    copies = 2.0 * HOST_WEIGHT_COPIES if learns(trial) else 0.0
    moved = str(trial.case.run.offload or "").lower()
    if "param" in moved:
        return MOVED_STATE_BYTES, "weights and optimizer states that move to the host between phases"
    return (
        HOST_STATE_BYTES + copies
    ) * PINNED, "optimizer states that the host keeps, in pinned blocks of powers of two,"


def _against(trial: Trial, needed: float, what: str) -> Finding | None:
    given = trial.hardware.host_bytes
    told = f"{what} take {bytes_text(needed)} of a node's memory"
    if given is not None:
        broken = needed > HOST_USABLE * given
        said = f"{told}; {bytes_text(given)} are there, {100 * HOST_USABLE:g} % of it usable"
        return Finding("out of memory" if broken else "note", "host_memory", said)
    small, large = (HOST_USABLE * size for size in NODE_BYTES)
    if needed > large:
        return Finding("out of memory", "host_memory", f"{told}; nodes have up to {bytes_text(NODE_BYTES[1])}")
    if needed > small:
        return Finding(
            "note", "host_memory?", f"{told}: it decides whether a node has {bytes_text(needed / HOST_USABLE)}"
        )
    return Finding("note", "host_memory", told)


def _source_bytes(trial: Trial) -> float:
    """Bytes per parameter of the checkpoint that is read: DeepSeek-V3 and its kin are published in FP8."""
    assert trial.shape.model is not None
    published = trial.shape.model.mla is not None and trial.shape.model.mtp_layers > 0
    return 1.0 if published else 2.0
