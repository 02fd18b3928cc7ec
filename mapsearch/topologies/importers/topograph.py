"""Model files of NVIDIA's topograph: a tree of switches, and blocks of nodes with their NVLink domain.

Contents: FORMAT, DOMAIN, detect, read.

    switches:
      spine-1: {switches: [leaf-1, leaf-2]}
    blocks:
    - switch: leaf-1
      nodes: ["node[1101-1118]"]
      annotations: {accelerator.topology.test/domain: nvl-1}

Source: topograph, docs/modeling.md and tests/models.
"""

from __future__ import annotations

import re
from typing import Any

from mapsearch import documents
from mapsearch.errors import listed
from mapsearch.topologies.importers.base import Between, Repairs
from mapsearch.topologies.importers.hostlist import HostLists, short
from mapsearch.topologies.importers.marks import Marks
from mapsearch.topologies.importers.slurm_conf import between
from mapsearch.topologies.importers.slurm_tree import BlockEntry, SwitchEntry, blocks_of, tree_of

FORMAT = "topograph model"
DOMAIN = "/domain"
"""The annotation that names the NVLink domain ends so."""
_SWITCHES = re.compile(r"^switches:[ \t]*(?:#.*)?$", re.MULTILINE)
_BLOCKS = re.compile(r"^blocks:[ \t]*(?:#.*)?$", re.MULTILINE)
_Path = tuple[str | int, ...]


def detect(text: str, name: str) -> bool:
    """Top keys `switches` and `blocks`."""
    return _SWITCHES.search(text) is not None and _BLOCKS.search(text) is not None


def read(text: str, *, file: str, repair: bool = False) -> Between:
    """The fabric of a model file. Raises InputError with line and column."""
    marks = Marks(text, file)
    data = _keys(documents.parse(text, file=file), ("switches", "blocks"), (0,), marks)
    lists = HostLists(Repairs(file, repair))
    entries: dict[str, SwitchEntry] = {}
    for name, switch in _keys(data.get("switches"), (), (0, "switches"), marks).items():
        path: _Path = (0, "switches", str(name))
        below = _keys(switch, ("switches", "labels"), path, marks).get("switches")
        entries[str(name)] = SwitchEntry(str(name), *marks.at(*path))
        if below is not None:
            entries[str(name)].switches = marks.listed(_names(below, (*path, "switches"), marks), *path, "switches")
    blocks = []
    items = data.get("blocks")
    if not isinstance(items, list) or not items:
        raise marks.fault("blocks is a list of - switch: ..., nodes: [...]", 0, "blocks")
    for place, item in enumerate(items):
        at: _Path = (0, "blocks", place)
        block = _keys(item, ("switch", "nodes"), at, marks)
        nodes = marks.listed(_names(block.get("nodes"), (*at, "nodes"), marks), *at, "nodes")
        leaf = block.get("switch")
        line, column = marks.at(*at)
        if isinstance(leaf, str):
            entry = entries.setdefault(leaf, SwitchEntry(leaf, line, column))
            if entry.nodes is not None:
                raise marks.fault(f"switch {leaf!r} has two blocks; give each block its own", *at, "switch")
            entry.nodes = nodes
        blocks.append(BlockEntry(_domain(block, place), line, column, nodes))
    _add_leaves(entries, lists)
    return between(FORMAT, tree_of(entries.values(), lists), blocks_of(blocks, lists), [], [], [], lists.repairs, [])


def _add_leaves(entries: dict[str, SwitchEntry], lists: HostLists) -> None:
    """Switches that are named as children only: leaves without a block."""
    for entry in list(entries.values()):
        if entry.switches is not None:
            for name in lists.names(entry.switches, "switch"):
                entries.setdefault(name, SwitchEntry(name, entry.line, entry.column))


def _domain(block: dict[str, Any], place: int) -> str:
    """The NVLink domain of a block, else its place in the list."""
    for part in (block.get("annotations"), block.get("labels")):
        if isinstance(part, dict):
            for key, value in part.items():
                if str(key).endswith(DOMAIN) and isinstance(value, str) and value:
                    return value
    return f"block{place}"


def _keys(value: Any, known: tuple[str, ...], path: _Path, marks: Marks) -> dict[str, Any]:
    """A part that is keys and values; nothing is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise marks.fault(f"holds {short(value)!r}; keys such as {listed(known or ('leaf-1',))} are needed", *path)
    return value


def _names(value: Any, path: _Path, marks: Marks) -> str:
    words = value if isinstance(value, list) else [value]
    if not words or not all(isinstance(word, str) for word in words):
        raise marks.fault("a list of names such as node[1101-1118] is needed", *path)
    return ",".join(words)
