"""GraphML, as networkx, yEd and Gephi write it.

Contents: FORMAT, detect, read.

    <graphml xmlns="http://graphml.graphdrawing.org/xmlns">
      <key id="d0" for="node" attr.name="type" attr.type="string"/>
      <key id="d1" for="edge" attr.name="bytes_per_s" attr.type="double"/>
      <graph edgedefault="undirected">
        <node id="gpu0"><data key="d0">device</data></node>
        <edge source="gpu0" target="leaf0"><data key="d1">5e10</data></edge>
      </graph>
    </graphml>

Attributes: any_graph.py. Entities and document types are refused before they are expanded. Nested graphs, ports and
hyperedges are not of a fabric and are refused.

Source: GraphML primer and schema 1.0 (graphml.graphdrawing.org); networkx, `networkx.readwrite.graphml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mapsearch import documents
from mapsearch.topologies.importers.any_graph import MAX_GRAPH_NODES, GraphEdge, GraphNode, whole_of
from mapsearch.topologies.importers.base import MAX_LINKS, Whole, fault
from mapsearch.topologies.importers.markup import Element, parse_xml

FORMAT = "GraphML"
_SIGN = re.compile(r"<(?:\w+:)?graphml[\s>/]")
_REFUSED = ("hyperedge", "port", "endpoint")
_MOST_ELEMENTS = 4 * (MAX_GRAPH_NODES + MAX_LINKS)


def detect(text: str, name: str) -> bool:
    """An element `graphml`."""
    return _SIGN.search(text) is not None


def read(text: str, *, file: str, repair: bool = False) -> Whole:
    """The graph of a GraphML file as a topology. Raises InputError with line and column."""
    root = parse_xml(text, file=file, most_elements=_MOST_ELEMENTS, most_characters=documents.MAX_BYTES)
    if _word(root) != "graphml":
        raise _fault(f"<{root.tag[:40]}> is no graphml", root, file)
    for element in root.walk():
        if _word(element) in _REFUSED:
            raise _fault(f"<{_word(element)}> is not read; a fabric has nodes and edges only", element, file)
    graphs = [element for element in root.walk() if _word(element) == "graph"]
    if not graphs:
        raise _fault("holds no graph", root, file)
    if len(graphs) > 1:
        raise _fault("a second or nested graph is not read; a fabric is one graph", graphs[1], file)
    keys = _Keys(root)
    nodes = []
    for item in _inside(graphs, "node"):
        if not item.attributes.get("id"):
            raise _fault("a node has no id", item, file)
        nodes.append(GraphNode(item.attributes["id"], keys.facts(item, "node"), _Place(item)))
    edges = []
    directed = graphs[0].attributes.get("edgedefault") == "directed"
    for item in _inside(graphs, "edge"):
        if item.attributes.get("directed", str(directed).lower()) != str(directed).lower():
            raise _fault("an edge has another direction than the graph says", item, file)
        ends = item.attributes.get("source", ""), item.attributes.get("target", "")
        edges.append(GraphEdge(*ends, keys.facts(item, "edge"), _Place(item)))
    return whole_of(FORMAT, file, nodes, edges, directed=directed, about=keys.facts(graphs[0], "graph"))


class _Keys:
    """What the keys of the file are called, and their defaults."""

    def __init__(self, root: Element) -> None:
        self.names: dict[str, str] = {}
        self.defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}, "graph": {}}
        for key in _inside([root], "key"):
            identity = key.attributes.get("id", "")
            self.names[identity] = key.attributes.get("attr.name", identity)
            for default in _inside([key], "default"):
                scope = key.attributes.get("for", "all")
                for where in self.defaults if scope == "all" else [scope]:
                    if where in self.defaults:
                        self.defaults[where][self.names[identity]] = default.text.strip()

    def facts(self, item: Element, scope: str) -> dict[str, str]:
        """The data of an element by name, defaults included."""
        facts = dict(self.defaults[scope])
        for data in _inside([item], "data"):
            key = data.attributes.get("key", "")
            facts[self.names.get(key, key)] = data.text.strip()
        return facts


class _Place:
    """Where an element stands."""

    def __init__(self, element: Element) -> None:
        self.element = element

    def __call__(self) -> tuple[int, int]:
        return self.element.line, self.element.column


def _word(element: Element) -> str:
    """The tag without its namespace."""
    return element.tag.rpartition(":")[2]


def _inside(elements: Iterable[Element], word: str) -> list[Element]:
    return [child for element in elements for child in element.children if _word(child) == word]


def _fault(problem: str, at: Element, file: str) -> Exception:
    return fault(problem, file=file, line=at.line, column=at.column)
