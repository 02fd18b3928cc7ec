"""networkx's node-link JSON, also as `mapsearch topology export --format node-link` writes it.

Contents: FORMAT, detect, read.

    {"directed": false, "multigraph": false, "graph": {},
     "nodes": [{"type": "device", "id": "gpu0"}, ...],
     "edges": [{"bytes_per_s": 5e10, "latency_s": 1e-6, "source": "gpu0", "target": "leaf0"}, ...]}

The edges stand under `edges` (networkx from 3.4) or `links` (before). Attributes: any_graph.py.

Source: networkx, `networkx.readwrite.json_graph.node_link_data`.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from mapsearch import documents
from mapsearch.topologies.importers.any_graph import GraphEdge, GraphNode, whole_of
from mapsearch.topologies.importers.base import Whole
from mapsearch.topologies.importers.hostlist import short
from mapsearch.topologies.importers.marks import Marks

FORMAT = "node-link JSON"
_SIGN = re.compile(r"\"(?:directed|multigraph|nodes)\"\s*:")
_EDGES = re.compile(r"\"(?:edges|links)\"\s*:")


def detect(text: str, name: str) -> bool:
    """A JSON object with nodes, and edges or links."""
    return text[:1000].lstrip().startswith("{") and _SIGN.search(text) is not None and _EDGES.search(text) is not None


def read(text: str, *, file: str, repair: bool = False) -> Whole:
    """The graph of a node-link file as a topology. Raises InputError with line and column."""
    data = documents.parse(text, file=file, json_text=True)
    marks = Marks(text, file)
    if not isinstance(data, dict):
        raise marks.fault("holds no object with nodes and edges", 0)
    key = "edges" if "edges" in data else "links"
    nodes = [
        GraphNode(_name(item.get("id"), marks, (0, "nodes", place)), item, partial(marks.at, 0, "nodes", place))
        for place, item in enumerate(_objects(data, "nodes", marks))
    ]
    edges = [
        GraphEdge(
            _name(item.get("source"), marks, (0, key, place)),
            _name(item.get("target"), marks, (0, key, place)),
            item,
            partial(marks.at, 0, key, place),
        )
        for place, item in enumerate(_objects(data, key, marks))
    ]
    directed = data.get("directed", False)
    if not isinstance(directed, bool):
        raise marks.fault("directed is true or false", 0, "directed")
    return whole_of(FORMAT, file, nodes, edges, directed=directed, about=data.get("graph"))


def _objects(data: dict[str, Any], key: str, marks: Marks) -> list[dict[str, Any]]:
    items = data.get(key)
    if not isinstance(items, list):
        raise marks.fault(f"{key} is {'missing' if items is None else 'no list'}; a list of objects is needed", 0, key)
    wrong = next((place for place, item in enumerate(items) if not isinstance(item, dict)), None)
    if wrong is not None:
        raise marks.fault(f"{key} holds {short(items[wrong])!r}, which is no object", 0, key, wrong)
    return items


def _name(value: Any, marks: Marks, path: tuple[str | int, ...]) -> str:
    """Names of nodes as text; numbers are common in graphs of networkx."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise marks.fault(f"{short(value)!r} is no name of a node (text or a whole number)", *path)
    return str(value)
