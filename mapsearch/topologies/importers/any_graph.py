"""A graph of another tool (node-link JSON, GraphML) as the explicit form of a topology: nodes and links.

Contents: GraphNode, GraphEdge, whole_of.

Our own names of attributes are those of `mapsearch topology export --format node-link`: of a node `type` (device,
switch, nic, host), `unit`, `in_network_reduction`; of an edge `bytes_per_s` (one way) and `latency_s`. A rate may also
be `bandwidth` and a delay `latency` as text with a unit, such as `400 Gb/s`. A bare number under another name is
refused: whether it is bits or bytes is not ours to guess.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from mapsearch import units
from mapsearch.errors import InputError, listed, near_miss
from mapsearch.topologies.importers.base import MAX_LINKS, Whole, fault
from mapsearch.topologies.importers.hostlist import short
from mapsearch.topologies.spec import NodeType

MAX_GRAPH_NODES = 2**20
NODE_TYPES = get_args(NodeType)
Where = Callable[[], tuple[int, int]]


@dataclass(frozen=True)
class GraphNode:
    """A node with its attributes, and where it stands."""

    name: str
    facts: Mapping[str, Any]
    where: Where


@dataclass(frozen=True)
class GraphEdge:
    """An edge with its attributes, and where it stands."""

    a: str
    b: str
    facts: Mapping[str, Any]
    where: Where


def whole_of(
    format_: str,
    file: str,
    nodes: Sequence[GraphNode],
    edges: Sequence[GraphEdge],
    *,
    directed: bool,
    about: Any = None,
) -> Whole:
    """The document of a topology. `about` are attributes of the graph. Raises InputError with line and column."""
    if len(nodes) > MAX_GRAPH_NODES or len(edges) > MAX_LINKS:
        what = f"has {len(nodes):,} nodes and {len(edges):,} links"
        raise fault(f"{what}; {MAX_GRAPH_NODES:,} and {MAX_LINKS:,} are read at most", file=file)
    if not nodes:
        raise fault("has no nodes", file=file)
    known = Counter(node.name for node in nodes)
    for node in nodes:
        if known[node.name] > 1:
            raise _fault(f"node {short(node.name)!r} stands {known[node.name]} times", node, file)
    vertices = [_node(node, file) for node in nodes]
    links = [_link(edge, known, file) for edge in edges]
    if directed:
        links = _undirected(links, edges, file)
    about = about if isinstance(about, dict) else {}
    named = about.get("name")
    document: dict[str, Any] = {"name": named if isinstance(named, str) and named else Path(file).stem or "graph"}
    if isinstance(about.get("high_bandwidth"), str):
        document["high_bandwidth"] = about["high_bandwidth"]
    document["nodes"] = vertices
    document["links"] = links
    notes = (
        () if "high_bandwidth" in document else ("says no high-bandwidth domain: set high_bandwidth: 100 GB/s or so",)
    )
    return Whole(format_, document, notes)


def _node(node: GraphNode, file: str) -> dict[str, Any]:
    kind = node.facts.get("type")
    if kind not in NODE_TYPES:
        what = "has no type" if kind is None else f"has the type {short(kind)!r}"
        raise _fault(f"node {short(node.name)!r} {what}; {listed(NODE_TYPES)} are known", node, file)
    result: dict[str, Any] = {"id": node.name, "type": kind}
    unit = node.facts.get("unit")
    if unit:
        result["unit"] = str(unit)
    if node.facts.get("in_network_reduction") in (True, "true", "True", 1):
        result["in_network_reduction"] = True
    return result


def _link(edge: GraphEdge, known: Mapping[str, int], file: str) -> dict[str, Any]:
    for end in (edge.a, edge.b):
        if end not in known:
            hint = near_miss(end, known) if len(known) < 10_000 else ""
            raise _fault(f"a link leads to {short(end)!r}, and no node is called so{hint}", edge, file)
    if edge.a == edge.b:
        raise _fault(f"a link joins {short(edge.a)!r} to itself", edge, file)
    rate = _amount(edge, "bytes_per_s", "bandwidth", units.RATE, file)
    if rate is None:
        near = [key for key in edge.facts if "band" in key.lower() or "weight" in key.lower() or "cap" in key.lower()]
        hint = f" ({near[0][:40]!r} has no unit that is known)" if near else ""
        what = f"link {short(edge.a)} - {short(edge.b)} has no bandwidth{hint}"
        raise _fault(f"{what}; write bytes_per_s: 5e10, or bandwidth: 400 Gb/s, one way", edge, file)
    latency = _amount(edge, "latency_s", "latency", units.TIME, file) or 0.0
    result: dict[str, Any] = {"a": edge.a, "b": edge.b, "bandwidth": _rate_text(rate)}
    if latency:
        result["latency"] = _time_text(latency)
    return result


def _amount(edge: GraphEdge, plain: str, with_unit: str, dimension: units.Dimension, file: str) -> float | None:
    """A number in SI units under `plain`, or a text with its unit under `with_unit`."""
    value = edge.facts.get(plain)
    if value is not None:
        number = _number(value)
        if number is None or (dimension is units.RATE and number <= 0.0):
            raise _fault(
                f"link {short(edge.a)} - {short(edge.b)}: {plain} {short(value)!r} is no number above 0", edge, file
            )
        return number
    value = edge.facts.get(with_unit)
    if value is None:
        return None
    try:
        result = units.parse(value, dimension)
    except ValueError as problem:
        raise _fault(f"link {short(edge.a)} - {short(edge.b)}: {with_unit} {short(problem, 200)}", edge, file) from None
    if dimension is units.RATE and result <= 0.0:
        raise _fault(f"link {short(edge.a)} - {short(edge.b)}: {with_unit} is 0", edge, file)
    return result


def _number(value: Any) -> float | None:
    """A finite number from 0, also when it is written as text (GraphML); None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0.0 else None


@lru_cache(maxsize=4096)
def _rate_text(bytes_per_s: float) -> str:
    """With its unit; rates of a fabric repeat, so each is written out once."""
    return units.render(bytes_per_s, units.RATE)


@lru_cache(maxsize=4096)
def _time_text(latency_s: float) -> str:
    return units.render(latency_s, units.TIME)


def _undirected(links: list[dict[str, Any]], edges: Sequence[GraphEdge], file: str) -> list[dict[str, Any]]:
    """Each pair of opposite edges as one full-duplex link; both must be there and alike."""
    ways: dict[tuple[str, str], list[str]] = {}
    for link in links:
        ways.setdefault((link["a"], link["b"]), []).append(f"{link['bandwidth']} {link.get('latency', '')}")
    kept = []
    for link, edge in zip(links, edges, strict=True):
        a, b = link["a"], link["b"]
        if sorted(ways[a, b]) != sorted(ways.get((b, a), [])):
            has = "differs from the way back" if (b, a) in ways else "has no way back"
            raise _fault(
                f"the graph is directed and {short(a)} -> {short(b)} {has}; links here are full-duplex", edge, file
            )
        if a < b:
            kept.append(link)
    return kept


def _fault(problem: str, at: GraphNode | GraphEdge, file: str) -> InputError:
    line, column = at.where()
    return fault(problem, file=file, line=line, column=column)
