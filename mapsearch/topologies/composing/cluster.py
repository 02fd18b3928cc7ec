"""A topology document from files: one node, a node in a fabric, or a whole cluster that lacks its device.

Contents: composed, imported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mapsearch.errors import InputError
from mapsearch.records import validate
from mapsearch.topologies.composing.between import Net, net_of
from mapsearch.topologies.composing.node import Plan, plan_of
from mapsearch.topologies.composing.wishes import Wishes, rate_text
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.importers.base import Between, Imported, Inside, Whole
from mapsearch.topologies.importers.parts import load_parts, part_of
from mapsearch.topologies.known import level_suspicions
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
    notes = list(plan.notes)
    name = wishes.name or Path(fabric[0] if fabric else file).stem
    if fabric is None:
        return _finished(name, plan, None, wishes, file, notes)
    net = net_of(fabric[1], plan, wishes, file=fabric[0])
    count = len(net.nodes) * len(plan.devices)
    if count > MOST_DEVICES:
        raise InputError(
            f"makes {count:,} devices; at most {MOST_DEVICES:,} are drawn as a graph: write levels by hand",
            file=fabric[0],
        )
    notes += net.notes
    notes += _block_notes(fabric[1], plan, fabric[0])
    down = set(fabric[1].down)
    return _finished(name, plan, net, wishes, fabric[0], notes, blocks=_block_of(fabric[1], plan, net), down=down)


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


def _block_notes(between: Between, plan: Plan, file: str) -> list[str]:
    """Check the blocks of a part whose fast links reach beyond a node. Raises InputError with both numbers."""
    domain = plan.part.domain
    if not domain or not between.blocks or not plan.hubs:
        return []
    for block in between.blocks:
        devices = len(block.nodes) * len(plan.devices)
        if devices > domain:
            raise InputError(
                f"block {block.name} has {devices} devices, but the fast links of {plan.part.name} reach {domain}",
                file=file,
            )
    return [f"fast links of {plan.part.name} reach all nodes of a block (up to {domain} devices)"]


def _block_of(between: Between, plan: Plan, net: Net) -> dict[str, str]:
    """The block whose fast links a node shares; empty when they stay inside nodes."""
    if not plan.part.domain or not plan.hubs:
        return {}
    known = set(net.nodes)
    return {node: block.name for block in between.blocks for node in block.nodes if node in known}


def _finished(
    name: str,
    plan: Plan,
    net: Net | None,
    wishes: Wishes,
    file: str,
    notes: list[str],
    *,
    blocks: dict[str, str] | None = None,
    down: set[str] | None = None,
) -> tuple[Topology, list[str]]:
    """The document: as a graph, or as levels where these say the same."""
    if net is None and len(plan.devices) == 1:
        return _single(name, plan), notes
    nodes, links = _graph(plan, net, blocks or {})
    sources = {**plan.sources, **(net.sources if net else {})}
    hosts, switches = (net.nodes, net.switches) if net else ([], [])
    gone = [f"{host}/{device}" for host in hosts if host in (down or ()) for device in plan.devices]
    gone += [switch for switch in switches if switch in (down or ())]
    topology = _valid(
        {"name": name, "device": plan.part.spec(), "nodes": nodes, "links": links, "down": gone, "sources": sources},
        file,
    )
    fabric = fabric_of(topology)
    names = _level_names(fabric, len(plan.devices), bool(net))
    if fabric.devices == topology.device_count and not topology.down:
        topology = topology.model_copy(update={"level_names": names})
    if _regular(topology, fabric):
        if wishes.form == "levels" or (wishes.form == "auto" and fabric.devices > LEVELS_FROM):
            return _as_levels(topology, fabric, names, sources, len(plan.devices)), notes
    elif wishes.form == "levels":
        raise InputError(
            f"is not exactly regular, so levels cannot say what it is ({'; '.join(fabric.notes) or 'devices are down'})"
            "; leave --form out",
            file=file,
        )
    return topology, notes


def _valid(document: dict[str, Any], file: str) -> Topology:
    return validate(Topology, document, file=file)


def _single(name: str, plan: Plan) -> Topology:
    """One device alone."""
    rate = load_parts().slot(plan.part.pcie or "gen4")
    level = LevelSpec(name="node", size=1, bandwidth=rate_text(rate.value), latency="5.7 us",
                      sources={"bandwidth": "assumed: nothing crosses this tier"})  # fmt: skip
    return _valid({"name": name, "device": plan.part.spec(), "levels": [level]}, name)


def _graph(plan: Plan, net: Net | None, blocks: dict[str, str]) -> tuple[list[NodeSpec], list[LinkSpec]]:
    """Nodes and links of the explicit form."""
    hosts = net.nodes if net else [""]
    nodes: list[NodeSpec] = []
    links: list[LinkSpec] = []
    hubs = set(plan.hubs)
    seen: set[str] = set()
    for host in hosts:
        prefix = f"{host}/" if host else ""
        block = blocks.get(host)
        names = {
            vertex.name: f"{block}/{vertex.name}" if block and vertex.name in hubs else f"{prefix}{vertex.name}"
            for vertex in plan.vertices
        }
        for vertex in plan.vertices:
            if names[vertex.name] not in seen:
                seen.add(names[vertex.name])
                reduce = plan.part.in_network_reduction and vertex.name in hubs
                nodes.append(NodeSpec(id=names[vertex.name], type=vertex.kind, in_network_reduction=reduce))
        links += [
            LinkSpec(a=names[one.a], b=names[one.b], bandwidth=rate_text(one.bytes_per_s), latency=_time(one.latency_s))
            for one in plan.links
        ]
    if net:
        nodes += [NodeSpec(id=switch, type="switch") for switch in net.switches]
        for cable in net.cables:
            a = f"{cable.a}/{plan.ports[cable.port]}" if cable.port >= 0 else cable.a
            b = f"{cable.b}/{plan.ports[cable.other_port]}" if cable.other_port >= 0 else cable.b
            links.append(LinkSpec(a=a, b=b, bandwidth=rate_text(cable.bytes_per_s), latency=_time(cable.latency_s)))
    return nodes, links


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.6g} us"


def _regular(topology: Topology, fabric: Fabric) -> bool:
    """Whether the levels say all that the graph says: every device is in, and nothing is approximated."""
    usual = {*topology.warnings(), *level_suspicions(topology.device.name, fabric.levels)}
    return not topology.down and fabric.devices == topology.device_count and all(note in usual for note in fabric.notes)


def _level_names(fabric: Fabric, per_node: int, network: bool) -> list[str]:
    """`node` for the tier that is a node, `island` inside it, `leaf`, `group` and `cluster` above."""
    counts = [math.prod(fabric.fan_outs[: place + 1]) for place in range(len(fabric.levels))]
    inner = [count for count in counts if count < per_node]
    outer = [count for count in counts if count > per_node]
    names = [f"island{place}" if len(inner) > 1 else "island" for place in range(len(inner))]
    names += ["node"] if per_node in counts else []
    above = ["cluster"] if network and outer else []
    middle = len(outer) - len(above)
    names += ["leaf", *(f"group{place}" if middle > 2 else "group" for place in range(1, middle))][:middle]
    return [*names, *above]


def _as_levels(
    topology: Topology, fabric: Fabric, names: list[str], sources: dict[str, str], per_node: int
) -> Topology:
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
                latency=_time(level.latency_s),
                high_bandwidth=level.high_bandwidth,
                dims=list(level.dims),
                in_network_reduction=level.in_network_reduction,
                sources=_level_sources(sources, inside <= per_node),
            )
        )
    return _valid({"name": topology.name, "device": topology.device, "levels": levels}, topology.name)


def _level_sources(sources: dict[str, str], in_node: bool) -> dict[str, str]:
    latency = load_parts().latency.sources
    fast = next((text for field, text in sources.items() if field.split()[0] in ("nvlink", "xgmi", "hccs")), None)
    if in_node:
        bandwidth = fast or sources.get("pcie links") or "file"
        return {"bandwidth": bandwidth, "latency": latency["scale_up" if fast else "pcie"]}
    bandwidth = sources.get("links between switches") or sources.get("network ports") or "file"
    return {"bandwidth": bandwidth, "latency": latency["network"]}
