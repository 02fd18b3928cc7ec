"""Which constraints of both pools cannot hold together: minimal sets, by leaving constraints out and solving again.

Contents: JointProbe, JointConflicts, joint_conflicts, told_conflict.

Constraints by name: `training.<relation>` of the training search; `rollout.hbm`, `rollout.concurrency`,
`rollout.sizes` (the TP, DP and EP that a replica may have) and `rollout.kinds` (replicas for prompts apart) of serving;
`devices` (a device is in one pool); `queue` (what is held and one batch are within Q_max); `versions` (some step is
long enough for samples to be young). A set can be satisfied when some division has a training mapping that keeps its
training relations and a way to serve that keeps its serving constraints. Supply and publishing only make steps long,
so they are in no conflict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

from mapsearch.answer import Conflict
from mapsearch.constraints.capacity import bytes_text
from mapsearch.costs import serving
from mapsearch.costs.pacing import least_versions
from mapsearch.pooling.problem import Part, Pools
from mapsearch.pooling.replicas import Server, demand_of, shapes_of
from mapsearch.relation import Relation
from mapsearch.solver.explain.conflict import blamed
from mapsearch.solver.explain.hitting import Hitting, TooMany, enumerate_conflicts
from mapsearch.solver.explain.probe import Probe
from mapsearch.solver.explain.sentences import conflict_of
from mapsearch.solver.problem import problem_of
from mapsearch.topologies import fabric_of

TRAINING = "training."
SERVING = ("rollout.hbm", "rollout.concurrency", "rollout.sizes", "rollout.kinds")
ENDLESS_BYTES = 1e15
"""HBM with which every cut of every model fits."""
ENDLESS = 2**62
OWN = ("rollout.concurrency", "rollout.sizes", "rollout.kinds", "queue", "versions")
"""Constraints that somebody wrote into the rollout's inventory."""


class JointProbe:
    """A question about two pools that is asked what subsets of its constraints allow."""

    def __init__(self, pools: Pools, deadline: float | None = None, names: Iterable[str] | None = None) -> None:
        """`names`: the constraints that count; all of them unless given. Those that do not count are left out."""
        self.pools = pools
        self.deadline = deadline
        self.names = [name for name in self._all() if names is None or name in names]
        self._serves: dict[tuple[object, frozenset[str]], bool] = {}
        self._probes: dict[object, Probe] = {}

    def _all(self) -> list[str]:
        kinds = ["rollout.kinds"] if self.pools.rollout.serving.prefill_decode_split else []
        devices = ["devices"] if self.pools.own is None else []
        rest = [name for name in SERVING[:3]] + kinds + devices + ["queue", "versions"]
        return [*(TRAINING + relation.name for relation in self.relations), *rest]

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """Relations of the training side."""
        return problem_of(self.parts[-1].training).relations

    @cached_property
    def parts(self) -> list[Part]:
        """Divisions."""
        return self.pools.parts()

    @cached_property
    def wholes(self) -> list[Part]:
        """Parts of either pool when devices may be in both: every division, and the whole cluster."""
        if self.pools.own is not None:
            return self.parts
        whole = self.parts[-1]
        return [*self.parts, _whole(self.pools, whole)]

    @cached_property
    def scalars(self) -> frozenset[str]:
        """Constraints of the loop alone that hold."""
        rollout = self.pools.rollout
        queue, every = rollout.queue, rollout.publishing.every
        kept = {"queue"} if queue.held_batches + 1.0 <= queue.most_batches else set()
        kept |= {"versions"} if rollout.versions >= least_versions(queue.held_batches, every) else set()
        return frozenset(kept) & frozenset(self.names)

    def witness(self, asked: frozenset[str]) -> frozenset[str] | None:
        """All constraints that one pair satisfies, the asked ones among them; None when no pair does.

        Raises OutOfTime.
        """
        if asked & {"queue", "versions"} - self.scalars:
            return None
        relations = frozenset(name.removeprefix(TRAINING) for name in asked if name.startswith(TRAINING))
        serves = asked & frozenset(SERVING)
        if "devices" in asked or self.pools.own is not None:
            return self._together(relations, serves)
        trained = next((found for part in self.wholes if (found := self._trains(part, relations)) is not None), None)
        served = next((found for part in self.wholes if (found := self._widest(part, serves)) is not None), None)
        return None if trained is None or served is None else trained | served | self.scalars

    def _together(self, relations: frozenset[str], serves: frozenset[str]) -> frozenset[str] | None:
        for part in self.parts:
            served = self._widest(part, serves)
            trained = None if served is None else self._trains(part, relations)
            if served is not None and trained is not None:
                devices = frozenset({"devices"}) & frozenset(self.names)
                return trained | served | devices | self.scalars
        return None

    def _trains(self, part: Part, relations: frozenset[str]) -> frozenset[str] | None:
        """Training constraints that one mapping on a part keeps, those asked about among them."""
        key = part.trained
        if key not in self._probes:
            problem = problem_of(part.training)
            counted = tuple(one for one in problem.relations if TRAINING + one.name in self.names)
            self._probes[key] = Probe(replace(problem, relations=counted), self.deadline)
        kept = self._probes[key].witness(relations)
        return None if kept is None else frozenset(TRAINING + name for name in kept)

    def _widest(self, part: Part, asked: frozenset[str]) -> frozenset[str] | None:
        """The most serving constraints, those asked about among them, that one way to serve on a part keeps."""
        if not self.serves(part, asked):
            return None
        others = [name for name in self.names if name in SERVING and name not in asked]
        for count in range(len(others), 0, -1):
            for more in combinations(others, count):
                if self.serves(part, asked | frozenset(more)):
                    return asked | frozenset(more)
        return asked

    def serves(self, part: Part, kept: frozenset[str]) -> bool:
        """Whether a part has a way to serve under these constraints alone."""
        key = (part.key, kept)
        if key not in self._serves:
            facts, server = part.serving, self._server(kept, part)
            if "rollout.hbm" not in kept:
                device = replace(facts.fabric.device, hbm_bytes=ENDLESS_BYTES)
                facts = replace(facts, fabric=replace(facts.fabric, device=device))
            facts = replace(facts, serving=server.rollout.serving)
            self._serves[key] = bool(server.offers(facts))
        return self._serves[key]

    def _server(self, kept: frozenset[str], part: Part) -> Server:
        """The server under some of its constraints."""
        rollout, inside = self.pools.rollout, self.pools.rollout.serving
        if "rollout.sizes" not in kept:
            ways = [2**power for power in range(part.serving.fabric.devices.bit_length())]
            wide = {axis: sorted({*getattr(inside, axis), *ways}) for axis in ("tp", "dp", "ep")}
            inside = inside.model_copy(update=wide)
        if "rollout.kinds" not in kept:
            inside = inside.model_copy(update={"prefill_decode_split": False})
        changes = {"serving": inside} | ({} if "rollout.concurrency" in kept else {"concurrency": ENDLESS})
        changed = rollout.model_copy(update=changes)
        return Server(self.pools.model, changed, demand_of(changed, float(self.pools.run.tokens_per_step)))


def _whole(pools: Pools, part: Part) -> Part:
    """The whole cluster on either side."""
    fabric = fabric_of(pools.topology)
    training = replace(part.training, fabric=fabric)
    return Part(pools.units, training, pools.topology, replace(part.serving, fabric=fabric))


@dataclass
class JointConflicts:
    """Minimal conflicts as sets of names, in the order in which they were found."""

    cores: list[list[str]] = field(default_factory=list)
    complete: bool = False


def joint_conflicts(probe: JointProbe, most: int, found: JointConflicts | None = None) -> JointConflicts:
    """So many minimal conflicts at most, entered one by one: small ones first, of equals what nobody can change.

    Nothing satisfies all of a conflict, and something satisfies every proper subset of it. Raises OutOfTime.
    """
    result = found if found is not None else JointConflicts()
    order = {relation.name: blamed(relation) for relation in probe.relations}
    blame = [order.get(name.removeprefix(TRAINING), len(order) if name in OWN else 0) for name in probe.names]
    every = (1 << len(probe.names)) - 1

    def named(code: int) -> list[str]:
        return [name for bit, name in enumerate(probe.names) if code >> bit & 1]

    def witness(code: int) -> int | None:
        kept = probe.witness(frozenset(named(code)))
        return None if kept is None else sum(1 << bit for bit, name in enumerate(probe.names) if name in kept)

    def preferred(code: int) -> tuple[int, list[int], int]:
        return (
            code.bit_count(),
            sorted((blame[bit] for bit in range(len(blame)) if code >> bit & 1), reverse=True),
            code,
        )

    with suppress(TooMany):
        result.complete = enumerate_conflicts(
            Hitting(), every, witness, enter=lambda code: result.cores.append(named(code)), order=preferred, most=most
        )
    return result


def told_conflict(probe: JointProbe, core: list[str]) -> Conflict:
    """A minimal conflict as the answer shows it: a sentence for every constraint, with its numbers."""
    own = [name for name in core if not name.startswith(TRAINING)]
    names = {name.removeprefix(TRAINING) for name in core}
    part = _beside(probe, frozenset(core) & frozenset(SERVING))
    sentences = {name: _sentence(probe, part, name) for name in own}
    fields = {name: _fields(probe.pools, name) for name in own}
    kinds = {"user" if name in OWN else "physics" for name in own}
    training = [relation for relation in probe.relations if relation.name in names]
    if training:
        told = conflict_of(Probe(problem_of(part.training)), training)
        sentences |= {
            TRAINING + name: f"training: {words}" for name, words in zip(told.relations, told.sentences, strict=True)
        }
        fields |= {TRAINING + name: where for name, where in zip(told.relations, told.fields, strict=True)}
        kinds |= {told.kind}
    return Conflict(
        relations=core,
        sentences=[sentences[name] for name in core],
        fields=[fields[name] for name in core],
        kind=next(iter(kinds)) if len(kinds) == 1 else "mixed" if "user" in kinds or "mixed" in kinds else "framework",
        statement=_statement(core),
    )  # fmt: skip


def _beside(probe: JointProbe, serves: frozenset[str]) -> Part:
    """The division with the most training devices beside which these serving constraints can be kept."""
    fitting = [part for part in probe.parts if probe.serves(part, serves)]
    return max(fitting or probe.parts[:1], key=lambda part: part.training.fabric.devices)


def _statement(core: list[str]) -> str:
    sides = {name.partition(".")[0] for name in core}
    if sides <= {"queue", "versions"}:
        return "the loop alone: no cluster of any size helps; versions or queue have to change"
    if "training" in sides and "rollout" in sides:
        return "the pools compete for devices: each would fit with those of the other"
    return "training alone: rollout has no part in it" if "training" in sides else "rollout alone: training has no part"


def _sentence(probe: JointProbe, part: Part, name: str) -> str:
    """A constraint of the rollout side or of both, with its numbers."""
    if name == "rollout.hbm":
        return _memory_sentence(probe, part)
    pools, rollout, sizes = probe.pools, probe.pools.rollout, probe.pools.rollout.serving
    queue, every = rollout.queue, rollout.publishing.every
    tp, dp, ep = (", ".join(str(one) for one in sorted(set(ways))) for ways in (sizes.tp, sizes.dp, sizes.ep))
    told = {
        "queue": f"the queue holds {queue.held_batches:g} batches and takes {queue.most_batches:g} at most, so that "
        "the next batch never comes together beside them",
        "versions": f"a sample may be {rollout.versions} versions old, but waiting in a queue of "
        f"{queue.held_batches:g} batches and publishing every {every} steps alone take "
        f"{least_versions(queue.held_batches, every)}, so none is ever young enough",
        "rollout.concurrency": f"requests under way are at most {rollout.concurrency:,} over all replicas",
        "rollout.kinds": "prompts have replicas of their own, so that two replicas are needed",
        "rollout.sizes": f"a replica is cut by tp {tp}, dp {dp} and ep {ep}",
    }
    if name == "devices":
        return (
            f"a device is in one pool: of {pools.devices:,} devices training has at most "
            f"{part.training.fabric.devices:,} where a replica fits beside it"
        )
    return told[name]


def least_replica_bytes(pools: Pools, part: Part) -> float:
    """Bytes per device that the leanest cut of a replica needs for weights, buffers and one longest sequence."""
    facts, demand = part.serving, pools.server.demand
    copies = 2 if pools.rollout.publishing.in_flight == "side-by-side" else 1
    needs = []
    for shape in shapes_of(pools.model, pools.rollout, facts.fabric):
        cut = (shape.tp, shape.dp, shape.ep)
        longest = float(
            serving.cache_bytes_per_sequence(shape.tp, demand.most_tokens, model=facts.model, serving=facts.serving)
        )
        held = copies * serving.weight_bytes(*cut, model=facts.model, serving=facts.serving)
        needs.append(held + serving.buffer_bytes(*cut, model=facts.model, serving=facts.serving) + longest)
    return min(needs, default=math.inf)


def _memory_sentence(probe: JointProbe, part: Part) -> str:
    """What the leanest replica needs where it has the most devices, and what there is."""
    pools = probe.pools
    widest = max(probe.parts, key=lambda one: one.serving.fabric.devices)
    need, limit = least_replica_bytes(pools, widest), serving.hbm_limit_bytes(widest.serving)
    fabric = widest.serving.fabric
    if need > limit:
        return (
            f"no replica of {pools.model.name} fits: its leanest cut needs {bytes_text(need)} per device for weights, "
            f"buffers and one longest sequence, and {fabric.name} offers {bytes_text(limit)} after context and reserve"
        )
    least = min((one.serving.fabric.devices for one in probe.parts if probe.serves(one, frozenset({"rollout.hbm"}))),
                default=fabric.devices)  # fmt: skip
    return (
        f"a replica of {pools.model.name} needs at least {least:,} devices with {bytes_text(limit)} each after context "
        "and reserve"
    )


def _fields(pools: Pools, name: str) -> list[str]:
    rollout = pools.rollout.name
    cluster = pools.topology.name if pools.own is None else pools.own.name
    told = {
        "devices": [f"{cluster}: levels"],
        "queue": [f"{rollout}: queue.held_batches", f"{rollout}: queue.most_batches"],
        "versions": [f"{rollout}: versions", f"{rollout}: queue.held_batches", f"{rollout}: publishing.every"],
        "rollout.hbm": [f"{cluster}: device.hbm", f"{rollout}: serving.reserve"],
        "rollout.concurrency": [f"{rollout}: concurrency"],
        "rollout.kinds": [f"{rollout}: serving.prefill_decode_split"],
        "rollout.sizes": [f"{rollout}: serving.tp", f"{rollout}: serving.dp", f"{rollout}: serving.ep"],
    }
    return told[name]
