"""A topology document from files: one node, a node in a fabric, or a whole cluster that lacks its device.

Contents: composed, imported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mapsearch.errors import InputError
from mapsearch.records import validate
from mapsearch.topologies.composing.between import Net, net_of
from mapsearch.topologies.composing.node import Plan, plan_of
from mapsearch.topologies.composing.selection import selected
from mapsearch.topologies.composing.wishes import Form, Wishes, rate_text, rounded, time_text
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.importers.base import Between, Imported, Inside, VertexKind, Whole
from mapsearch.topologies.importers.parts import load_parts, part_of
from mapsearch.topologies.known import level_suspicions
from mapsearch.topologies.levels import with_ports
from mapsearch.topologies.load import fabric_of
from mapsearch.topologies.spec import DeviceSpec, LevelSpec, LinkSpec, NodeSpec, Topology

LEVELS_FROM = 1024
"""Devices from which an exactly regular cluster is written as levels: the graph would be long and say no more."""
MOST_DEVICES = 2**19


def imported(files: Sequence[tuple[str, Imported]], wishes: Wishes) -> tuple[Topology, list[str]]:
    """The cluster that one or more files describe together, and notes. Raises InputError."""
    wholes = [(file, one) for file, one in files if isinstance(one, Whole)]
    insides = [(file, one) for file, one in files if isinstance(one, Inside)]
    fabrics = [(file, one) for file, one in files if isinstance(one, Between)]
    if wholes and len(files) == 1:
        return _whole(*wholes[0], wishes)
    if len(insides) == 1 and len(fabrics) == 1 and not wholes:
        return composed(insides[0], fabrics[0], wishes)
    if len(insides) == 1 and len(files) == 1:
        return composed(insides[0], None, wishes)
    said = ", ".join(f"{file} ({one.format})" for file, one in files)
    if len(files) == 1:
        raise InputError(
            f"({fabrics[0][1].format}) says how nodes are joined and nothing of what is in them; add the file of a "
            "node, such as what nvidia-smi topo -m prints, or use topology compose",
            file=fabrics[0][0],
        )
    raise InputError(f"{said}: one cluster is one file, or one node and one fabric between nodes")


def composed(
    node: tuple[str, Inside], fabric: tuple[str, Between] | None, wishes: Wishes
) -> tuple[Topology, list[str]]:
    """The cluster of nodes all alike in a fabric (or of one node alone), and notes. Raises InputError."""
    file, inside = node
    part = part_of(wishes.device, inside, file=file)
    plan = plan_of(inside, part, wishes, file=file, network=fabric is not None)
    if fabric is None:
        draft = _Draft(wishes.name or Path(file).stem, plan, file)
        return draft.finished(wishes.form), plan.notes
    where, between = fabric[0], selected(fabric[1], wishes.only, file=fabric[0])
    net = net_of(between, plan, wishes, file=where)
    count = len(net.nodes) * len(plan.devices)
    if count > MOST_DEVICES:
        raise InputError(
            f"makes {count:,} devices; at most {MOST_DEVICES:,} are drawn as a graph: write levels by hand", file=where
        )
    blocks = _blocks(between, plan, where)
    draft = _Draft(wishes.name or Path(where).stem, plan, where, net, blocks, set(between.down))
    notes = [*plan.notes, *net.notes]
    if blocks:
        notes.append(f"fast links of {part.name} reach all nodes of a block (up to {part.domain} devices)")
    return draft.finished(wishes.form), notes


def _whole(file: str, one: Whole, wishes: Wishes) -> tuple[Topology, list[str]]:
    document = dict(one.document)
    document.setdefault("name", Path(file).stem)
    if wishes.name:
        document["name"] = wishes.name
    if "device" not in document or wishes.device is not None:
        part = part_of(wishes.device, None, file=file)
        document["device"] = _dumped(part.spec())
    return validate(Topology, document, file=file), list(one.notes)


def _dumped(device: DeviceSpec) -> dict[str, Any]:
    return device.model_dump(mode="json", exclude_defaults=True)


def _blocks(between: Between, plan: Plan, file: str) -> dict[str, str]:
    """The block whose fast links a node shares; empty when they stay inside nodes. Raises InputError."""
    domain = plan.part.domain
    if not domain or not plan.hubs:
        return {}
    for block in between.blocks:
        devices = len(block.nodes) * len(plan.devices)
        if devices > domain:
            raise InputError(
                f"block {block.name} has {devices} devices, but the fast links of {plan.part.name} reach {domain}",
                file=file,
            )
    return {node: block.name for block in between.blocks for node in block.nodes}


@dataclass
class _Draft:
    """A cluster with all its rates, before it is written as a graph or as levels."""

    name: str
    plan: Plan
    file: str
    net: Net | None = None
    blocks: dict[str, str] = field(default_factory=dict)
    """Nodes that share their fast links, by the name of what they share."""
    down: set[str] = field(default_factory=set)

    def finished(self, form: Form) -> Topology:
        """The document. Raises InputError when levels are wanted that would not say the same."""
        per_node = len(self.plan.devices)
        if self.net is None and per_node == 1:
            return self._single()
        topology = self._graph()
        fabric = fabric_of(topology)
        shared = max(Counter(self.blocks.values()).values(), default=0) * per_node
        names = _level_names(fabric, per_node, shared, bool(self.net))
        if _regular(topology, fabric):
            topology = topology.model_copy(update={"level_names": names})
            if form == "levels" or (form == "auto" and fabric.devices > LEVELS_FROM):
                return self._levels(topology, fabric, names)
        elif form == "levels":
            raise InputError(
                f"is not regular, so levels cannot say what it is ({'; '.join(fabric.notes) or 'parts are down'}); "
                "leave --form out",
                file=self.file,
            )
        elif fabric.levels[-1].name == f"tier{len(names)}":  # no tier that the fabric leaves out for its fan-out of 1
            topology = topology.model_copy(update={"level_names": names})
        return topology

    def _single(self) -> Topology:
        """One device alone."""
        rate = load_parts().slot(self.plan.part.pcie or "gen4")
        level = LevelSpec(
            name="node",
            size=1,
            bandwidth=rate_text(rate.value),
            latency=time_text(load_parts().latency.pcie),
            sources={"bandwidth": "assumed: nothing crosses this tier"},
        )
        return self._valid(levels=[level])

    def _valid(self, **fields: Any) -> Topology:
        document = {"name": self.name, "device": self.plan.part.spec(), **fields}
        return validate(Topology, document, file=self.file)

    def _graph(self) -> Topology:
        """The explicit form. Its parts are made without validation: they are ours, and there may be a million."""
        plan, net = self.plan, self.net
        nodes: dict[str, NodeSpec] = {}
        links: list[LinkSpec] = []
        hubs = set(plan.hubs)
        for host in net.nodes if net else [""]:
            prefix = f"{host}/" if host else ""
            shared = f"{self.blocks[host]}/" if host in self.blocks else prefix
            names = {one.name: f"{shared if one.name in hubs else prefix}{one.name}" for one in plan.vertices}
            for vertex in plan.vertices:
                reduces = plan.part.in_network_reduction and vertex.name in hubs
                name = names[vertex.name]
                nodes.setdefault(name, _node(name, vertex.kind, reduces))
            links += [_link(names[one.a], names[one.b], one.bytes_per_s, one.latency_s) for one in plan.links]
        for switch in net.switches if net else []:
            nodes[switch] = _node(switch, "switch", False)
        for cable in net.cables if net else []:
            a = f"{cable.a}/{plan.ports[cable.port]}" if cable.port >= 0 else cable.a
            b = f"{cable.b}/{plan.ports[cable.other_port]}" if cable.other_port >= 0 else cable.b
            links.append(_link(a, b, cable.bytes_per_s, cable.latency_s))
        sources = {**plan.sources, **(net.sources if net else {})}
        return self._valid(nodes=list(nodes.values()), links=links, down=self._gone(), sources=sources)

    def _gone(self) -> list[str]:
        """Nodes of the graph that are down: all devices of a host, and switches."""
        if self.net is None:
            return []
        gone = [f"{host}/{one}" for host in self.net.nodes if host in self.down for one in self.plan.devices]
        return gone + [switch for switch in self.net.switches if switch in self.down]

    def _levels(self, topology: Topology, fabric: Fabric, names: list[str]) -> Topology:
        """The same cluster as levels, each with the source of its bandwidth."""
        levels = []
        inside = 1
        for name, level in zip(names, fabric.levels, strict=True):
            inside *= level.size
            levels.append(
                LevelSpec(
                    name=name,
                    kind=level.kind,
                    size=level.size,
                    bandwidth=rate_text(level.bytes_per_s),
                    latency=time_text(level.latency_s),
                    high_bandwidth=level.high_bandwidth,
                    dims=list(level.dims),
                    in_network_reduction=level.in_network_reduction,
                    sources=_level_sources(topology.sources, inside <= len(self.plan.devices)),
                )
            )
        return self._valid(levels=with_ports(levels, [level.own_ports for level in fabric.levels]))


def _node(name: str, kind: VertexKind, reduces: bool) -> NodeSpec:
    return NodeSpec.model_construct(id=name, type=kind, in_network_reduction=reduces)


def _link(a: str, b: str, bytes_per_s: float, latency_s: float) -> LinkSpec:
    return LinkSpec.model_construct(a=a, b=b, bandwidth=rounded(bytes_per_s), latency=rounded(latency_s))


def _regular(topology: Topology, fabric: Fabric) -> bool:
    """Whether the levels say all that the graph says: every device is in, and nothing is approximated."""
    usual = {*topology.warnings(), *level_suspicions(topology.device.name, fabric.levels)}
    return not topology.down and fabric.devices == topology.device_count and all(note in usual for note in fabric.notes)


def _level_names(fabric: Fabric, per_node: int, block: int, network: bool) -> list[str]:
    """`node` for the tier that is a node, `island` inside it, `block`, `leaf`, `group` and `cluster` above."""
    counts = [math.prod(fabric.fan_outs[: place + 1]) for place in range(len(fabric.levels))]
    inner = [count for count in counts if count < per_node]
    outer = [count for count in counts if count > per_node and count != block]
    names = [f"island{place}" if len(inner) > 1 else "island" for place in range(len(inner))]
    names += ["node"] if per_node in counts else []
    names += ["block"] if block > per_node and block in counts else []
    above = ["cluster"] if network and outer else []
    middle = len(outer) - len(above)
    names += ["leaf", *(f"group{place}" if middle > 2 else "group" for place in range(1, middle))][:middle]
    return [*names, *above]


def _level_sources(sources: dict[str, str], in_node: bool) -> dict[str, str]:
    latency = load_parts().latency.sources
    fast = next((text for field, text in sources.items() if field.split()[0] in ("nvlink", "xgmi", "hccs")), None)
    if in_node:
        bandwidth = fast or sources.get("pcie links") or "file"
        return {"bandwidth": bandwidth, "latency": latency["scale_up" if fast else "pcie"]}
    bandwidth = sources.get("links between switches") or sources.get("network ports") or "file"
    return {"bandwidth": bandwidth, "latency": latency["network"]}
