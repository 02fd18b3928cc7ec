"""Some of the nodes of a fabric: those that the user names, and the switches above them.

Contents: selected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from mapsearch.errors import InputError, near_miss
from mapsearch.topologies.importers.base import Between, Block, Repairs
from mapsearch.topologies.importers.hostlist import HostLists, Listed, short

OPTION = "--only"


def selected(between: Between, wanted: str, *, file: str) -> Between:
    """The fabric with the nodes of a host list (all, when it is empty), without switches that have no node below.

    Raises InputError: a name that the fabric does not have, or a list that cannot be read.
    """
    known = set(between.nodes)
    asked = between.nodes if not wanted else _written_out(wanted)
    strange = next((name for name in asked if name not in known), None)
    if strange is not None:
        hint = near_miss(strange, known) if len(known) < 10_000 else ""
        raise InputError(f"no node of {file} is called {short(strange)!r}{hint}", field=OPTION)
    names = set(asked)
    above: dict[str, list[str]] = defaultdict(list)
    for link in between.links:
        if link.b not in known:
            above[link.a].append(link.b)
    kept = set(names)
    ready = [node for node in between.nodes if node in names]
    for here in ready:
        fresh = [there for there in dict.fromkeys(above[here]) if there not in kept]
        kept.update(fresh)
        ready.extend(fresh)
    left = len(known) - len(names)
    blocks = [Block(block.name, tuple(node for node in block.nodes if node in names)) for block in between.blocks]
    return replace(
        between,
        nodes=tuple(node for node in between.nodes if node in names),
        switches=tuple(switch for switch in between.switches if switch in kept),
        links=tuple(link for link in between.links if link.a in kept and link.b in kept),
        blocks=tuple(block for block in blocks if block.nodes),
        down=tuple(name for name in between.down if name in kept),
        notes=(*between.notes, *([f"{left:,} nodes left out: not among {short(wanted, 60)}"] if left else [])),
    )


def _written_out(wanted: str) -> Sequence[str]:
    try:
        return HostLists(Repairs("", allowed=False)).names(Listed(wanted, lambda offset: (1, offset + 1)), "node")
    except InputError as problem:
        raise InputError(problem.problem, field=OPTION) from None
