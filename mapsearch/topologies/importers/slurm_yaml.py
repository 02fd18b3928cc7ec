"""Slurm's topology.yaml: several named topologies, each by one of the plugins tree, block, flat, ring, torus3d.

Contents: FORMAT, detect, read.

    - topology: racks            # a name that partitions call
      cluster_default: true
      block: {block_sizes: [18], blocks: [{block: r1, nodes: "gb[01-18]"}]}
    - topology: fabric
      tree: {switches: [{switch: spine, children: "leaf[1-2]"}, {switch: leaf1, nodes: "gb[01-18]"}, ...]}

The topologies of a file are views of the same cluster, or of parts of it. What is taken: the first one with
`cluster_default: true` (as Slurm does), else the first; to it a tree that holds all nodes of a default by blocks, and
the blocks of others whose nodes it holds. Notes name the rest.

Source: topology.yaml(5) of Slurm 26.05, and what its parser refuses (one plugin per topology, lists where lists stand).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import Any

from mapsearch import documents
from mapsearch.errors import listed, near_miss
from mapsearch.topologies.importers.base import Between, Block, Link, Repairs
from mapsearch.topologies.importers.hostlist import MAX_NAME_LENGTH, HostLists, short
from mapsearch.topologies.importers.marks import Marks
from mapsearch.topologies.importers.slurm_conf import between
from mapsearch.topologies.importers.slurm_tree import (
    BlockEntry,
    SwitchEntry,
    Tree,
    blocks_of,
    checked_sizes,
    ring_links,
    torus_links,
    tree_of,
)

FORMAT = "slurm topology.yaml"
PLUGINS = ("block", "flat", "ring", "torus3d", "tree")
_SIGN = re.compile(r"^[ \t]*-[ \t]+[\"']?topology[\"']?[ \t]*:", re.MULTILINE)
_JSON_SIGN = re.compile(r"\[\s*\{\s*\"topology\"\s*:")


def detect(text: str, name: str) -> bool:
    """A list whose entries begin with `topology:`."""
    return _SIGN.search(text) is not None or _JSON_SIGN.match(text[:1000].lstrip()) is not None


def read(text: str, *, file: str, repair: bool = False) -> Between:
    """The fabric of a topology.yaml. Raises InputError with line and column."""
    data = documents.parse(text, file=file)
    repairs = Repairs(file, repair)
    reader = _Reader(Marks(text, file), HostLists(repairs))
    if not isinstance(data, list) or not data:
        raise reader.marks.fault(f"holds {_kind(data)}; a topology.yaml is a list of topologies", 0)
    return _chosen([reader.topology(entry, place) for place, entry in enumerate(data)], reader)


@dataclass
class _View:
    """One topology of the file."""

    name: str
    plugin: str
    place: int
    default: bool
    tree: Tree = field(default_factory=Tree)
    blocks: list[Block] = field(default_factory=list)
    grids: list[Block] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def nodes(self) -> set[str]:
        return {*self.tree.node_names(), *(node for part in (*self.blocks, *self.grids) for node in part.nodes)}


def _chosen(views: list[_View], reader: _Reader) -> Between:
    """The default topology, with the tree or the blocks that others say of its nodes."""
    names = [view.name for view in views]
    twice = next((view for view in views if names.index(view.name) != view.place), None)
    if twice is not None:
        raise reader.marks.fault(f"topology {twice.name!r} stands twice; names must differ", 0, twice.place, "topology")
    main = next((view for view in views if view.default), views[0])
    if main.plugin == "flat":
        what = f"topology {main.name!r} is flat: it says nothing of the fabric"
        others = [view.name for view in views if view.plugin != "flat"]
        hint = f"; set cluster_default: true on {listed(others)} in its place" if others else "; give a tree or blocks"
        raise reader.marks.fault(what + hint, 0, main.place)
    inside = main.nodes()
    used = [main]
    if main.plugin == "block":
        cover = next((view for view in views if view.plugin == "tree" and inside <= view.nodes()), None)
        if cover is not None:
            used.append(cover)
            inside = cover.nodes()
    elif main.plugin == "tree":
        seen: set[str] = set()
        for view in views:
            nodes = view.nodes()
            if view.plugin == "block" and nodes and nodes <= inside and not nodes & seen:
                used.append(view)
                seen |= nodes
    tree = next((view.tree for view in used if view.plugin == "tree"), main.tree)
    blocks = [block for view in used for block in view.blocks]
    sizes = next((view.sizes for view in used if view.sizes), [])
    notes = [f"topology {view.name!r} ({view.plugin}) is taken with it" for view in used[1:]]
    if not main.default and len(views) > 1:
        notes.append(f"no topology has cluster_default: true; the first one, {main.name!r}, is taken")
    for view in views:
        if view not in used:
            size = f", {len(view.nodes()):,} nodes" if view.plugin != "flat" else ""
            notes.append(
                f"topology {view.name!r} ({view.plugin}{size}) is not read: cluster_default is true on {main.name!r}"
                if main.default
                else f"topology {view.name!r} ({view.plugin}{size}) is not read"
            )
    return between(FORMAT, tree, blocks, sizes, main.grids, main.links, reader.lists.repairs, notes)


@dataclass
class _Reader:
    """Turns the entries of the list into views, refusing what Slurm's parser refuses."""

    marks: Marks
    lists: HostLists

    def topology(self, entry: Any, place: int) -> _View:
        """One entry of the list. Raises InputError."""
        path = (0, place)
        self._known(entry, ("topology", "cluster_default", *PLUGINS), path, "a topology")
        name = entry.get("topology")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
            raise self.marks.fault("a topology needs its name, such as topology: default", *path)
        default = entry.get("cluster_default", False)
        if not isinstance(default, bool):
            raise self.marks.fault(f"cluster_default is {_kind(default)}; true or false are", *path, "cluster_default")
        plugins = [plugin for plugin in PLUGINS if plugin in entry and entry[plugin] not in (False, None)]
        if len(plugins) != 1:
            has = f"has {listed(plugins).replace(' or ', ' and ')}" if plugins else "has none"
            where = (*path, plugins[1]) if plugins else path
            raise self.marks.fault(f"topology {name!r} {has}; exactly one of {listed(PLUGINS)} is needed", *where)
        view = _View(name, plugins[0], place, default)
        content = entry[view.plugin]
        if view.plugin != "flat":
            getattr(self, f"_read_{view.plugin}")(view, content, (*path, view.plugin))
        return view

    def _read_tree(self, view: _View, content: Any, path: tuple[str | int, ...]) -> None:
        self._known(content, ("switches",), path, "tree")
        entries = []
        for item, at in self._items(content, "switches", path, ("switch", "children", "nodes")):
            name = self._name(item, "switch", at)
            entry = SwitchEntry(name, *self.marks.at(*at))
            for key, value in (("children", "switches"), ("nodes", "nodes")):
                if item.get(key) is not None:
                    setattr(entry, value, self.marks.listed(self._text(item[key], (*at, key)), *at, key))
            entries.append(entry)
        view.tree = tree_of(entries, self.lists)

    def _read_block(self, view: _View, content: Any, path: tuple[str | int, ...]) -> None:
        self._known(content, ("block_sizes", "blocks"), path, "block")
        view.blocks = self._units(content, "blocks", "block", path)
        sizes = content.get("block_sizes", [])
        sizes = sizes if isinstance(sizes, list) else [sizes]
        wrong = next((place for place, size in enumerate(sizes) if type(size) is not int), None)
        if wrong is not None:
            raise self.marks.fault(
                f"block_sizes holds {_kind(sizes[wrong])}; whole numbers are", *path, "block_sizes", wrong
            )
        if sizes:
            at = self.marks.at(*path, "block_sizes")
            view.sizes = checked_sizes(sizes, len(view.blocks), self.lists.repairs, *at)

    def _read_ring(self, view: _View, content: Any, path: tuple[str | int, ...]) -> None:
        self._known(content, ("rings",), path, "ring")
        view.grids = self._units(content, "rings", "ring", path)
        view.links = ring_links(view.grids)

    def _read_torus3d(self, view: _View, content: Any, path: tuple[str | int, ...]) -> None:
        self._known(content, ("toruses",), path, "torus3d")
        items = self._items(content, "toruses", path, ("name", "dims", "nodes", "placements"))
        names = [self._name(item, "name", at) for item, at in items]
        times = Counter(names)
        for name, (_, at) in zip(names, items, strict=True):
            if times[name] > 1:
                raise self.marks.fault(f"torus {short(name)} stands {times[name]} times", *at, "name")
        toruses = {torus.name: torus for torus in self._units(content, "toruses", "name", path)}
        for name, (item, at) in zip(names, items, strict=True):
            torus = toruses.get(name)
            if torus is None:
                continue  # without nodes: left out and noted already
            dims: Any = item.get("dims")
            self._known(dims, ("x", "y", "z"), (*at, "dims"), "dims")
            shape = [dims.get(axis) for axis in "xyz"]
            if not all(type(extent) is int and 1 <= extent < 2**16 for extent in shape):
                raise self.marks.fault("dims needs x, y and z, whole numbers from 1", *at, "dims")
            if prod(shape) != len(torus.nodes):
                size = f"{' x '.join(map(str, shape))} = {prod(shape):,}"
                what = f"torus {torus.name} has {len(torus.nodes):,} nodes, but dims {size}"
                raise self.marks.fault(what, *at, "nodes")
            view.grids.append(torus)
            view.links += torus_links(torus.nodes, (shape[0], shape[1], shape[2]))

    def _units(self, content: Any, key: str, word: str, path: tuple[str | int, ...]) -> list[Block]:
        entries = []
        for item, at in self._items(content, key, path, (word, "nodes", "dims", "placements")):
            nodes = item.get("nodes")
            text = None if nodes is None else self.marks.listed(self._text(nodes, (*at, "nodes")), *at, "nodes")
            entries.append(BlockEntry(self._name(item, word, at), *self.marks.at(*at), text))
        return blocks_of(entries, self.lists, "torus" if word == "name" else word)

    def _items(
        self, content: dict[str, Any], key: str, path: tuple[str | int, ...], known: tuple[str, ...]
    ) -> list[tuple[dict[str, Any], tuple[str | int, ...]]]:
        """The entries of a list (or a single one), each with its path."""
        value = content.get(key)
        if isinstance(value, dict):
            self._known(value, known, (*path, key), key)
            return [(value, (*path, key))]
        if not isinstance(value, list) or not value:
            what = f"{key} is missing" if value is None else f"{key} holds {_kind(value)}"
            raise self.marks.fault(f"{what}; a list such as - {known[0]}: name, nodes: n[1-8] is needed", *path, key)
        for place, item in enumerate(value):
            self._known(item, known, (*path, key, place), key)
        return [(item, (*path, key, place)) for place, item in enumerate(value)]

    def _known(self, value: Any, known: tuple[str, ...], path: tuple[str | int, ...], what: str) -> None:
        if not isinstance(value, dict):
            raise self.marks.fault(f"{what} holds {_kind(value)}; keys such as {listed(known)} are needed", *path)
        for key in value:
            if key not in known:
                hint = near_miss(str(key)[:40], known)
                raise self.marks.fault(f"unknown key {short(key)!r}{hint}; known: {listed(known)}", *path, key)

    def _name(self, item: dict[str, Any], key: str, path: tuple[str | int, ...]) -> str:
        name = item.get(key)
        if not isinstance(name, str | int) or isinstance(name, bool) or not str(name).strip():
            raise self.marks.fault(f"{key} needs a name", *path)
        if set(str(name)) & set("[], \t\n"):
            raise self.marks.fault(f"{short(name)!r} is no name of one {key}", *path, key)
        return str(name)

    def _text(self, value: Any, path: tuple[str | int, ...]) -> str:
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return ",".join(value)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
        raise self.marks.fault(f"holds {_kind(value)}; names such as node[1-8] are needed", *path)


def _kind(value: Any) -> str:
    """What a value is, in words."""
    words = {dict: "keys and values", list: "a list", type(None): "nothing", bool: "true or false"}
    return words.get(type(value), f"{short(value)!r}")
