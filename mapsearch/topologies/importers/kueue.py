"""Kubernetes: labels of nodes in the order of a Kueue Topology, and the output of `kubectl get nodes -o yaml`.

Contents: FORMAT, JOINED_WITH, KNOWN_LEVELS, BLOCK_LABELS, detect, read.

    kind: Topology                                      # kueue.x-k8s.io: names the labels, outermost first
    spec: {levels: [{nodeLabel: cloud.provider.com/topology-block}, {nodeLabel: cloud.provider.com/topology-rack}]}
    ---
    kind: Node
    metadata: {name: n1, labels: {cloud.provider.com/topology-block: b1, cloud.provider.com/topology-rack: r1}}

A value of a label names a unit inside the unit around it only: rack r1 of block b1 and r1 of b2 are two racks. Where a
ResourceFlavor names the topology, its `nodeLabels` say which nodes count. Without a Topology the well-known labels of
clouds, Slurm bridges and NVIDIA's topograph are looked for. A `kind` cluster file is read as well. Several files are
read as one. What labels do not say: bandwidths, how a unit is wired inside, devices.

Source: Kueue, "Topology Aware Scheduling" (kueue.sigs.k8s.io); Kubernetes, "Well-Known Labels"; the label tables of
GKE, EKS and topograph.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mapsearch import documents
from mapsearch.errors import listed
from mapsearch.topologies.importers.base import MAX_NODES, Between, Block, Repairs, fault
from mapsearch.topologies.importers.evenness import block_notes
from mapsearch.topologies.importers.hostlist import short
from mapsearch.topologies.importers.marks import Marks

FORMAT = "kueue"
JOINED_WITH = "\n---\n"
HOSTNAME = "kubernetes.io/hostname"
KNOWN_LEVELS = (
    ("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"),
    ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3, 4)),
    tuple(f"network.topology.nvidia.com/{tier}" for tier in ("core", "spine", "leaf")),
    tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(7, -1, -1)),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/zone"),
)
"""Labels by platform, outermost first; the first set of which a node has any counts."""
BLOCK_LABELS = (
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "nvidia.com/gpu.clique",
    "topology.k8s.aws/ultraserver-id",
)
"""Labels that name the NVLink domain of a node, the first one found counts."""
_API = re.compile(r"[\"']?apiVersion[\"']?[ \t]*:")
_KIND = re.compile(r"[\"']?kind[\"']?[ \t]*:[ \t]*[\"']?(?:Topology|ResourceFlavor|Node|NodeList|List|Cluster)\b")
_LABEL = re.compile(r"[A-Za-z0-9._/-]{1,317}")
"""A key of a label, a prefix of up to 253 letters and a name of up to 63, or the name of a node."""
_MAX_DEPTH = 8
_DOWN_TAINTS = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def detect(text: str, name: str) -> bool:
    """An object of Kubernetes that is a topology, a flavor, a node or a list."""
    return _API.search(text) is not None and _KIND.search(text) is not None


def read(text: str, *, file: str, repair: bool = False) -> Between:
    """The nodes and where their labels put them. Raises InputError with line and column."""
    if text.lstrip().startswith("{") and "\n---\n" not in text:
        data = [documents.parse(text, file=file, json_text=True)]
    else:
        data = documents.parse_all(text, file=file)
    found = _Objects(Marks(text, file))
    for place, document in enumerate(data):
        found.take(document, (place,))
    repairs = Repairs(file, repair)
    levels, notes = _levels(found, file)
    return _placed(found, _counted(found, notes), levels, repairs, notes)


@dataclass
class _Node:
    """A node, its labels, and whether it takes work."""

    name: str
    labels: dict[str, str]
    path: tuple[str | int, ...]
    down: bool = False
    devices: str = ""


@dataclass
class _Objects:
    """What the documents hold, by kind."""

    marks: Marks
    topologies: dict[str, list[str]] = field(default_factory=dict)
    flavors: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    nodes: list[_Node] = field(default_factory=list)

    def take(self, item: Any, path: tuple[str | int, ...]) -> None:
        """One object, or a list of them. Raises InputError."""
        if len(path) > 2 * _MAX_DEPTH:
            raise self.marks.fault(f"lists stand in each other over {_MAX_DEPTH} deep", *path)
        if not isinstance(item, dict):
            raise self.marks.fault("is no object of Kubernetes (keys such as kind and metadata)", *path)
        kind = item.get("kind")
        if isinstance(kind, str) and kind.endswith("List") and isinstance(item.get("items"), list):
            for place, each in enumerate(item["items"]):
                bare = isinstance(each, dict) and "kind" not in each and kind != "List"
                one = {**each, "kind": kind.removesuffix("List")} if bare else each
                self.take(one, (*path, "items", place))
        elif kind == "Topology":
            self._take_topology(item, path)
        elif kind == "ResourceFlavor":
            spec = self._part(item, "spec", path)
            if spec.get("topologyName") is not None:
                labels = self._words(spec.get("nodeLabels"), (*path, "spec", "nodeLabels"))
                self.flavors.append((str(spec["topologyName"]), labels))
        elif kind == "Node":
            self._take_node(item, path)
        elif kind == "Cluster" and str(item.get("apiVersion", "")).startswith("kind.x-k8s.io"):
            self._take_kind_cluster(item, path)

    def _take_topology(self, item: dict[str, Any], path: tuple[str | int, ...]) -> None:
        name = str(self._part(item, "metadata", path).get("name", "default"))
        levels = self._part(item, "spec", path).get("levels")
        if not isinstance(levels, list) or not levels:
            raise self.marks.fault("a Topology needs spec.levels, a list of nodeLabel: ...", *path, "spec", "levels")
        labels = []
        for place, level in enumerate(levels):
            label = level.get("nodeLabel") if isinstance(level, dict) else None
            named = isinstance(label, str) and _LABEL.fullmatch(label) is not None
            if not isinstance(label, str) or not named or label in labels:
                what = "stands twice" if named else "is missing or no label; write - nodeLabel: name/of-label"
                raise self.marks.fault(f"nodeLabel {what}", *path, "spec", "levels", place)
            labels.append(label)
        if HOSTNAME in labels[:-1]:
            raise self.marks.fault(f"{HOSTNAME} can be the lowest level only", *path, "spec", "levels")
        if name in self.topologies:
            raise self.marks.fault(f"Topology {short(name)!r} stands twice", *path, "metadata", "name")
        self.topologies[name] = labels

    def _take_node(self, item: dict[str, Any], path: tuple[str | int, ...]) -> None:
        metadata = self._part(item, "metadata", path)
        name = metadata.get("name")
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            raise self.marks.fault("a Node needs metadata.name", *path)
        labels = self._words(metadata.get("labels"), (*path, "metadata", "labels"))
        spec, status = self._part(item, "spec", path), self._part(item, "status", path)
        taints = [taint.get("key") for taint in _dicts(spec.get("taints"))]
        ready = [each.get("status") for each in _dicts(status.get("conditions")) if each.get("type") == "Ready"]
        down = spec.get("unschedulable") is True or any(taint in _DOWN_TAINTS for taint in taints)
        capacity = status.get("allocatable", status.get("capacity"))
        counted = capacity.items() if isinstance(capacity, dict) else ()
        devices = [f"{count} x {key}" for key, count in counted if str(key).endswith(("gpu", "npu"))]
        down = down or any(state not in ("True", True) for state in ready)
        self._add(_Node(name, labels, path, down=down, devices=", ".join(devices)), path)

    def _take_kind_cluster(self, item: dict[str, Any], path: tuple[str | int, ...]) -> None:
        """Workers of a `kind` cluster, by the names that kind gives them: kind-worker, kind-worker2, ..."""
        cluster = short(item.get("name", "kind"))
        number = 0
        for place, each in enumerate(_dicts(item.get("nodes"))):
            if each.get("role") != "worker":
                continue
            number += 1
            at = (*path, "nodes", place)
            name = f"{cluster}-worker{number if number > 1 else ''}"
            self._add(_Node(name, self._words(each.get("labels"), (*at, "labels")), at), at)

    def _add(self, node: _Node, path: tuple[str | int, ...]) -> None:
        self.nodes.append(node)
        if len(self.nodes) > MAX_NODES:
            raise self.marks.fault(f"over {MAX_NODES:,} nodes, more than are read", *path)

    def _part(self, item: dict[str, Any], key: str, path: tuple[str | int, ...]) -> dict[str, Any]:
        value = item.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.marks.fault(f"{key} holds {short(value)!r}; keys and values are needed", *path, key)
        return value or {}

    def _words(self, value: Any, path: tuple[str | int, ...]) -> dict[str, str]:
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(word, str | int | float) for word in value.values()):
            raise self.marks.fault("labels are names with one text each", *path)
        return {str(key): str(word) for key, word in value.items()}


def _dicts(value: Any) -> list[dict[str, Any]]:
    """Those entries of a list that are keys and values."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _levels(found: _Objects, file: str) -> tuple[list[str], list[str]]:
    """The labels that place a node, outermost first, and what to say about the choice."""
    if not found.nodes:
        names = [label for labels in found.topologies.values() for label in labels]
        hint = f": a Topology names labels ({listed(names[:4])}), not where nodes are" if names else ""
        raise fault(f"has no Node objects{hint}; give the output of kubectl get nodes -o yaml as well", file=file)
    if found.topologies:
        asked = {name for name, _ in found.flavors if name in found.topologies}
        names = sorted(asked or found.topologies)
        if len(names) > 1:
            raise fault(f"names {len(names)} topologies ({short(listed(names), 120)}); keep one of them", file=file)
        levels = found.topologies[names[0]]
        return [label for label in levels if label != HOSTNAME], []
    for known in KNOWN_LEVELS:
        present = [label for label in known if any(label in node.labels for node in found.nodes)]
        if present:
            return present, [f"no Topology is given: nodes are placed by {', '.join(present)}"]
    if any(label in node.labels for node in found.nodes for label in BLOCK_LABELS):
        return [], ["no Topology is given, and no label of nodes places them above their NVLink domain"]
    raise fault("names no Topology, and no node has a label that is known to place it; add the Topology", file=file)


def _counted(found: _Objects, notes: list[str]) -> list[_Node]:
    """The nodes that the flavor of the topology counts."""
    asked = [labels for name, labels in found.flavors if name in found.topologies and labels]
    if not asked:
        return found.nodes
    inside = [node for node in found.nodes if any(labels.items() <= node.labels.items() for labels in asked)]
    if len(inside) < len(found.nodes):
        wanted = short("; ".join(", ".join(f"{key}={value}" for key, value in labels.items()) for labels in asked), 200)
        notes.append(f"{len(found.nodes) - len(inside):,} nodes are left out: not of the flavor ({wanted})")
    return inside


def _placed(found: _Objects, nodes: list[_Node], levels: list[str], repairs: Repairs, notes: list[str]) -> Between:
    if not nodes:
        raise fault("no node has the labels of the ResourceFlavor", file=repairs.file)
    labels: dict[str, str] = {}
    kept: dict[str, _Node] = {}
    for node in nodes:
        missing = [label for label in levels if not node.labels.get(label)]
        if missing:
            line, column = found.marks.at(*node.path)
            what = f"node {node.name} lacks the label {missing[0]}"
            repairs.mend(what, "left out, as Kueue does", line=line, column=column)
        elif node.name in kept:
            line, column = found.marks.at(*node.path)
            repairs.mend(f"node {node.name} stands twice", "the first kept", line=line, column=column)
        else:
            kept[node.name] = node
            labels[node.name] = "/".join(node.labels[label].replace("/", "_") for label in levels)
    if not kept:
        raise fault(f"no node has all of the labels {', '.join(levels)}", file=repairs.file)
    blocks = _blocks(kept)
    counts = Counter(node.devices for node in kept.values() if node.devices)
    if counts:
        shown = "; ".join(f"{number:,} nodes with {devices}" for devices, number in counts.most_common(4))
        notes.append(f"devices as Kubernetes counts them: {shown}")
    notes.append("labels say where nodes sit, not what joins them")
    return Between(
        format=FORMAT,
        nodes=tuple(kept),
        switches=(),
        links=(),
        blocks=blocks,
        down=tuple(name for name, node in kept.items() if node.down),
        labels=labels if levels else {},
        notes=(*repairs.notes, *notes, *block_notes(blocks, None)),
    )


def _blocks(nodes: dict[str, _Node]) -> tuple[Block, ...]:
    """NVLink domains, by the first label of them that any node has."""
    key = next((label for label in BLOCK_LABELS if any(node.labels.get(label) for node in nodes.values())), None)
    if key is None:
        return ()
    members: dict[str, list[str]] = {}
    for name, node in nodes.items():
        if node.labels.get(key):
            members.setdefault(node.labels[key], []).append(name)
    return tuple(Block(domain, tuple(names)) for domain, names in members.items())
